//! The repository's invariants, read from its files: what a crate may name, and how long a file may grow.

use std::fs;
use std::path::{Path, PathBuf};

/// The longest source file, in lines, with its comments and tests.
const LINES_MAX: usize = 600;

/// Where a word may not stand: below these folders.
struct Ban {
    words: &'static [&'static str],
    below: &'static [&'static str],
    /// Tests may look at Redis with a script of their own.
    in_tests: bool,
    because: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        words: &[
            "std::fs",
            "std::net::{",
            "TcpStream",
            "UdpSocket",
            "std::io",
            "std::process",
            "std::env",
            "tokio",
            "async fn",
        ],
        below: &["src/limits/src"],
        in_tests: true,
        because: "limits does no I/O",
    },
    Ban {
        words: &["Instant", "SystemTime", "std::time", "thread::sleep"],
        below: &["src/limits/src"],
        in_tests: true,
        because: "limits reads no clock: time is an argument",
    },
    Ban {
        words: &["rand::", "getrandom"],
        below: &["src/limits/src"],
        in_tests: true,
        because: "limits has no randomness",
    },
    Ban {
        words: &["println!", "eprintln!", "log::"],
        below: &["src/limits/src", "src/protocol/src"],
        in_tests: true,
        because: "the pure crates answer, they do not speak",
    },
    Ban {
        words: &["redis.call", "redis.pcall"],
        below: &["src", "integration"],
        in_tests: false,
        because: "scripts live in lua/ and are embedded with include_str!",
    },
    Ban {
        words: &[
            "allow(clippy::unwrap_used",
            "allow(clippy::expect_used",
            "allow(clippy::indexing_slicing",
            "allow(clippy::panic",
        ],
        below: &["src/limits/src", "src/protocol/src", "src/filter/src"],
        in_tests: true,
        because: "a panic here traps the VM of a whole Envoy worker",
    },
];

#[test]
fn no_file_names_what_its_place_forbids() {
    let files = sources();
    let mut faults = Vec::new();
    for ban in BANS {
        let inside = |file: &&(String, String)| {
            ban.below.iter().any(|folder| file.0.starts_with(&format!("{folder}/")))
                && (ban.in_tests || !file.0.contains("/tests/"))
        };
        for (name, text) in files.iter().filter(inside) {
            for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !is_comment(line)) {
                let named = ban.words.iter().filter(|word| names(line, word));
                faults.extend(named.map(|word| format!("{name}:{number}: `{word}`, but {}", ban.because)));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn one_file_of_the_filter_names_proxy_wasm() {
    let files = sources();
    let filter = files.iter().filter(|(name, _)| name.starts_with("src/filter/"));
    let naming =
        filter.filter(|(_, text)| text.lines().any(|line| !is_comment(line) && names(line, "proxy_wasm")));
    let naming: Vec<_> = naming.map(|(name, _)| name).collect();
    assert!(naming.len() <= 1, "keep the host behind one module: {naming:?}");
}

#[test]
fn a_crate_depends_on_what_its_place_allows() {
    for (krate, allowed) in [
        ("limits", &["hashbrown"][..]),
        (
            "filter",
            &[
                "limits",
                "protocol",
                "proxy-wasm",
                "serde",
                "serde_json",
                "log",
                "hashbrown",
                "postcard",
                "getrandom",
            ],
        ),
    ] {
        let names = dependencies(krate);
        let strays: Vec<_> = names.iter().filter(|name| !allowed.contains(&&***name)).collect();
        assert!(strays.is_empty(), "src/{krate} may depend on {allowed:?}, not on {strays:?}");
    }
    for (krate, other) in [
        ("sidecar", "filter"),
        ("sidecar", "admin"),
        ("admin", "filter"),
        ("admin", "sidecar"),
        ("client", "limits"),
    ] {
        let names = dependencies(krate);
        assert!(
            !names.iter().any(|name| name.trim_start_matches("kota-") == other),
            "src/{krate} imports {other}"
        );
    }
}

#[test]
fn only_lua_holds_scripts_for_redis() {
    let elsewhere = walk(&root(), "lua").into_iter().filter(|name| !name.starts_with("lua/"));
    let strays: Vec<_> = elsewhere.filter(|name| read(name).contains("redis.")).collect();
    assert!(strays.is_empty(), "move them into lua/: {strays:?}");
}

#[test]
fn no_file_is_longer_than_one_can_read() {
    let long = |(name, text): &(String, String)| {
        let lines = text.lines().count();
        (lines > LINES_MAX).then(|| format!("{name} has {lines} lines"))
    };
    let faults: Vec<_> = sources().iter().filter_map(long).collect();
    assert!(faults.is_empty(), "at most {LINES_MAX}: {}", faults.join(", "));
}

#[test]
fn modules_are_named_by_their_file() {
    let faults: Vec<_> =
        sources().into_iter().map(|(name, _)| name).filter(|name| name.ends_with("/mod.rs")).collect();
    assert!(faults.is_empty(), "write foo.rs beside foo/, not foo/mod.rs: {faults:?}");
}

/// Whether `line` has `word`, not as the end of a longer word.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
    })
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// What a crate of `src/` depends on, for whatever target, but not only in its tests; nothing while there is no such crate.
fn dependencies(krate: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join(format!("src/{krate}/Cargo.toml"))).unwrap_or_default();
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
        } else if let (true, Some((name, _))) = (inside, line.split_once(['=', '.'])) {
            names.push(name.trim().to_owned());
        }
    }
    names
}

/// Every Rust file with its text, but this one, which names everything.
fn sources() -> Vec<(String, String)> {
    let names = walk(&root(), "rs").into_iter().filter(|name| !name.ends_with("/tidy.rs"));
    let files: Vec<_> = names.map(|name| (read(&name), name)).collect();
    assert!(files.len() > 10, "the walk found the repository's sources");
    files.into_iter().map(|(text, name)| (name, text)).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below `folder` with this ending, by their path from there; build products and hidden folders are left out.
fn walk(folder: &Path, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(folder.join(&inner)).unwrap().map(Result::unwrap) {
            let (name, path) = (entry.file_name(), inner.join(entry.file_name()));
            let hidden = name.to_string_lossy().starts_with('.');
            if entry.file_type().unwrap().is_dir() {
                if !hidden && name != "target" && name != "node_modules" {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort_unstable();
    found
}
