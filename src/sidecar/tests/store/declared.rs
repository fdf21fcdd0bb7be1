//! LR-05: what a server may refuse that knows keys only by KEYS (a cluster, Dragonfly, serverless offerings) is not in a script.

use kota_integration::tools;
use sidecar::store::redis::{Redis, SCRIPTS};
use std::collections::BTreeSet;
use std::fs;

/// How a key may be written: as one of KEYS.
const DECLARED: [&str; 4] = ["KEYS[i]", "KEYS[1]", "unpack(KEYS)", "KEY"];

/// Names that stand for one of KEYS, and how they have to be made.
const NAMES: [(&str, &str); 2] =
    [("key", "local key, from = KEYS[i],"), ("KEY", "local KEY, ARGV = KEYS[1], ARGV")];

/// Every script by its file's name, without comments.
fn scripts() -> Vec<(String, String)> {
    let files = fs::read_dir(tools::root().join("lua")).unwrap().map(|file| file.unwrap().path());
    let code = |line: &str| line.split("--").next().unwrap_or_default().to_owned();
    let read = |path: std::path::PathBuf| {
        let text: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(code).collect();
        (path.file_name().unwrap().to_string_lossy().into_owned(), text.join("\n"))
    };
    files.map(read).collect()
}

/// What stands behind each `redis.call(` of a script: the command, and its first argument if it has one.
fn calls(code: &str) -> Vec<(String, Option<String>)> {
    code.split("redis.call(").skip(1).map(call).collect()
}

fn call(behind: &str) -> (String, Option<String>) {
    let (mut depth, mut end) = (0, 0);
    let mut arguments = Vec::new();
    for (at, letter) in behind.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => {
                arguments.push(behind[end..at].trim().to_owned());
                end = at + 1;
                if letter == ')' {
                    break;
                }
            }
            _ => {}
        }
    }
    (arguments[0].trim_matches('\'').to_owned(), arguments.get(1).cloned())
}

#[test]
fn lr_05_every_key_that_a_script_uses_is_one_of_its_keys() {
    let scripts = scripts();
    assert_eq!(scripts.len(), SCRIPTS, "all that is in lua/ is a script of the sidecar's");
    for (name, code) in &scripts {
        assert!(
            !code.contains("redis.pcall") && !code.contains("loadstring"),
            "{name}: calls are plain to see"
        );
        let calls = calls(code);
        assert!(!calls.is_empty(), "{name}");
        for (command, key) in calls {
            let Some(key) = key else {
                assert_eq!(command, "TIME", "{name}: a command without a key");
                continue;
            };
            let made = NAMES.iter().find(|(known, _)| *known == key).map(|(_, made)| *made);
            let declared = DECLARED.contains(&key.as_str()) || made.is_some();
            assert!(declared, "{name}: {command} of {key}, which is none of KEYS");
            assert!(made.is_none_or(|made| code.contains(made)), "{name}: what is {key}?");
        }
        for (known, _) in NAMES {
            let again = |line: &&str| line.trim_start().starts_with(&format!("{known} ="));
            assert_eq!(code.lines().find(again), None, "{name}: {known} becomes another key");
        }
    }
}

/// No command is called that the documented rights leave out, and none is asked for that nobody calls.
#[test]
fn lr_05_every_command_of_a_script_is_a_right_that_is_documented() {
    let rights = Redis::rights(true);
    let granted: BTreeSet<&str> = rights.split(' ').filter_map(|right| right.strip_prefix('+')).collect();
    let mut called: BTreeSet<String> =
        ["evalsha", "script|load", "ping", "info", "cluster|slots", "asking"].map(str::to_owned).into();
    for (_, code) in scripts() {
        called.extend(calls(&code).into_iter().map(|(command, _)| command.to_lowercase()));
    }
    assert_eq!(called.iter().map(String::as_str).collect::<BTreeSet<_>>(), granted);
    let readme = fs::read_to_string(tools::root().join("README.md")).unwrap();
    for cluster in [false, true] {
        let line = Redis::rights(cluster);
        assert!(readme.contains(&line), "the README's rights are not {line}");
    }
}
