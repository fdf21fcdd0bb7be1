//! What the README shows is what happens: the demo's answers byte for byte but for times, its configuration, its faults.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use kota_integration::workdir::Workdir;
use kota_integration::{Request, Stack, tools};

use crate::support::fresh_key;

/// The README's first block of this language that holds `text`.
fn block(language: &str, text: &str) -> String {
    let path = tools::root().join("README.md");
    let readme = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let fence = format!("```{language}\n");
    let found = readme
        .split(&fence)
        .skip(1)
        .find_map(|rest| rest.split("\n```").next().filter(|block| block.contains(text)));
    found.unwrap_or_else(|| panic!("README.md has no block ```{language} with `{text}`")).to_owned()
}

/// Without the time of day, which is no part of what is shown.
fn timeless(answer: &str) -> String {
    let lines = answer.lines().map(|line| if line.starts_with("date: ") { "date: …" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// The next answer, as curl -i prints it.
fn next_answer(stream: &mut BufReader<TcpStream>) -> String {
    let (mut shown, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a head");
        let line = line.trim_end();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        }
        shown.push_str(&format!("{line}\n"));
        if line.is_empty() {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("a body");
            return timeless(&(shown + &String::from_utf8(body).expect("UTF-8")));
        }
    }
}

/// The names of an answer's headers, and the values of Kota's own; sorted, since the upstream's stand among them.
fn head(answer: &str) -> Vec<String> {
    let lines =
        answer.lines().skip_while(|line| !line.starts_with("HTTP/")).take_while(|line| !line.is_empty());
    let name = |line: &str| line.split(':').next().unwrap_or(line).to_owned();
    let ours = |line: &str| line.contains("ratelimit") || line.starts_with("HTTP/");
    let mut head: Vec<_> = lines.map(|line| if ours(line) { line.to_owned() } else { name(line) }).collect();
    head.sort();
    head
}

#[test]
fn twelve_requests_to_the_demo_give_ten_200_and_two_429_as_shown() {
    let stack = Stack::new().start(); // the shipped rule
    let (key, start) = (fresh_key(), Instant::now());
    let mut stream =
        BufReader::new(TcpStream::connect(("127.0.0.1", stack.envoy().port())).expect("Envoy listens"));
    let order = |n| Request::post(format!("/orders?n={n}")).header("x-api-key", &key).bytes();
    stream.get_mut().write_all(&(1..=12).flat_map(order).collect::<Vec<_>>()).expect("an open connection");
    let answers: Vec<_> = (1..=12).map(|_| next_answer(&mut stream)).collect();
    let refilled = start.elapsed().as_millis() as usize / 200; // none, unless the machine is very slow
    let passes = |answer: &&String| answer.starts_with("HTTP/1.1 200 OK\n");
    let passed = answers.iter().filter(passes).count();
    assert!((10..=10 + refilled).contains(&passed), "{answers:#?}");
    assert_eq!(head(&answers[0]), head(&block("console", "HTTP/1.1 200 OK")));
    let shown = timeless(&block("http", "HTTP/1.1 429"));
    for denied in answers.iter().filter(|answer| !passes(answer)) {
        assert_eq!(*denied, shown);
    }
}

#[test]
fn the_configuration_that_is_shown_is_good_and_its_faults_are_told_as_shown() {
    let dir = Workdir::new();
    let validate = |text: &str| {
        dir.write("faulty.json", text);
        let mut command = Command::new(tools::kota());
        let output = command.args(["validate", "faulty.json"]).current_dir(dir.path()).output();
        let output = output.expect("kota can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let good = block("json", "\"rules\"");
    assert_eq!(validate(&good).0, Some(0), "{good}");
    let faulty = r#"{"rules": [
        {"id": "a", "algorithm": "TOKEN_BUCKET", "capacity": 0, "refilPerSecond": 5},
        {"id": "b", "algorithm": "SLIDING_WINDOW", "capacity": 10, "windowSeconds": 60, "failMode": "LOCAL"}]}"#;
    let shown = block("console", "kota validate faulty.json");
    let (_, shown) = shown.split_once('\n').expect("a command and what it prints");
    assert_eq!(validate(faulty), (Some(65), format!("{shown}\n")));
}
