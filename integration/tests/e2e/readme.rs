//! What the README shows is what happens: the demo's answers byte for byte but for times, its configuration, its faults.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use kota_integration::workdir::Workdir;
use kota_integration::{Request, Stack, tokens, tools};

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

/// Without the time of day, and with the seconds that a slow machine takes off a wait, which are no part of what is shown.
fn timeless(answer: &str) -> String {
    let varies = ["date: ", "retry-after: ", "x-ratelimit-reset: ", "ratelimit: ", "content-length: "];
    let timeless = |line: &str| match varies.iter().find(|start| line.starts_with(**start)) {
        Some(start) => format!("{start}…"),
        None => line.replace("in 9 seconds", "in 10 seconds"),
    };
    answer.lines().map(timeless).collect::<Vec<_>>().join("\n")
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
fn seven_logins_at_the_demo_give_five_200_and_two_429_as_shown() {
    let stack = Stack::new().start(); // the shipped rules
    let start = Instant::now();
    let mut stream =
        BufReader::new(TcpStream::connect(("127.0.0.1", stack.envoy().port())).expect("Envoy listens"));
    let login = |n| Request::post(format!("/login?n={n}")).bytes();
    stream.get_mut().write_all(&(1..=7).flat_map(login).collect::<Vec<_>>()).expect("an open connection");
    let answers: Vec<_> = (1..=7).map(|_| next_answer(&mut stream)).collect();
    let refilled = start.elapsed().as_secs() as usize / 10; // none, unless the machine is very slow
    let passes = |answer: &&String| answer.starts_with("HTTP/1.1 200 OK\n");
    let passed = answers.iter().filter(passes).count();
    assert!((5..=5 + refilled).contains(&passed), "{answers:#?}");
    assert_eq!(head(&answers[0]), head(&timeless(&block("console", "HTTP/1.1 200 OK"))));
    let shown = timeless(&block("http", "HTTP/1.1 429"));
    for denied in answers.iter().filter(|answer| !passes(answer)) {
        assert_eq!(*denied, shown);
    }
}

/// The commands of a section and what they print, in order.
fn commands(section: &str) -> Vec<(String, Vec<String>)> {
    let readme = fs::read_to_string(tools::root().join("README.md")).expect("the README");
    let section = readme.split(&format!("\n## {section}\n")).nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```console\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let mut commands = Vec::<(String, Vec<String>)>::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((_, output))) => output.push(line.to_owned()),
            (None, None) => panic!("{line}: what does print this?"),
        }
    }
    commands
}

/// What is the same in every run: how often something came (the first column of `uniq -c`) and how long a wait is are not.
fn steady(line: &str) -> String {
    let line = match line.strip_prefix(' ') {
        Some(counted) => counted.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()),
        None => line,
    };
    let (mut steady, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at);
        let number = &rest[at..at + digits];
        steady.push_str(&rest[..at]);
        steady.push_str(if matches!(number, "200" | "401" | "429") { number } else { "#" });
        rest = &rest[at + digits..];
    }
    steady + rest
}

#[test]
fn the_walk_through_the_starter_rules_is_what_happens() {
    let stack = Stack::new().start();
    let here = format!("127.0.0.1:{}", stack.envoy().port());
    let walk = commands("The starter rules");
    assert!(walk.len() >= 6, "each rule is shown: {walk:#?}");
    for (command, shown) in walk {
        let ours = command.replace("127.0.0.1:10000", &here);
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", &ours]).env("GOLD", tokens::ALICE_GOLD).output().expect("bash");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let steady = |lines: &mut dyn Iterator<Item = &str>| lines.map(steady).collect::<Vec<_>>();
        let (shown, printed) = (steady(&mut shown.iter().map(String::as_str)), steady(&mut printed.lines()));
        assert_eq!(printed, shown, "{command}\n{}", String::from_utf8_lossy(&output.stderr));
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
