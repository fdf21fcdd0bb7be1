//! The command as people and scripts meet it: words, exit codes, what goes where.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

const GOOD: &str = r#"{
  "descriptors": {"plan": {"header": "X-Plan"}},
  "routes": ["GET /orders/{id}"], "exemptions": ["/healthz"],
  "rules": [
    {"id": "a", "match": {"plan": "gold"}, "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5},
    {"id": "b", "match": {"route": "POST /orders"}, "mode": "SHADOW", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5},
    {"id": "c", "mode": "DISABLED", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}
  ]
}"#;

fn kota(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kota"));
    command.args(args).env_clear();
    command
}

fn output(args: &[&str]) -> (Option<i32>, String, String) {
    said(kota(args).stdin(Stdio::null()).output().unwrap())
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn validate(json: &str) -> (Option<i32>, String, String) {
    let mut child = kota(&["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json.as_bytes()).unwrap();
    said(child.wait_with_output().unwrap())
}

#[test]
fn a_good_configuration_is_summed_up_and_a_trusted_claim_warned_of() {
    let (code, out, err) = validate(GOOD);
    assert_eq!(code, Some(0), "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "-: ok");
    assert!(lines[1].starts_with("  version  "));
    assert_eq!(lines[2], "  domain   default");
    assert_eq!(lines[3], "  sidecar  cluster kota, deadline 5 ms");
    assert_eq!(lines[4], "  rules    1 enforcing, 1 shadow, 1 disabled");
    assert_eq!(lines[5], "  exempt   1");
    assert_eq!(lines[6], "  cors     preflights are met by a rule of their own");
    assert_eq!(lines[7], "  routes   2");
    assert_eq!(lines[8], "  headers  access-control-request-method, origin, x-plan (read)");
    assert!(err.starts_with("warning: $.rules[0].match.plan: trusts what the client says"), "{err}");
    assert_eq!(err.lines().count(), 1);
}

#[test]
fn ca_05_each_fault_is_a_line_with_its_path_and_the_exit_code_is_65() {
    let (code, out, err) = validate(&GOOD.replacen("10", "0", 1).replacen("SHADOW", "shadow", 1));
    assert_eq!(code, Some(65));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[0],
        "$.rules[0].capacity: 0 is out of range, want 1 to 1000000000; to switch a rule off say \"mode\": \"DISABLED\""
    );
    assert!(lines[1].starts_with("$.rules[1].mode: \"shadow\" is not one of "), "{out}");
    assert_eq!(lines[2], "-: 2 faults");
    assert_eq!(err, "");
}

#[test]
fn the_configurations_that_are_shipped_have_no_fault_and_no_warning() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for file in ["envoy/envoy.yaml", "envoy/istio/envoyfilter.yaml"] {
        let yaml = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
        let start = yaml.find("{ \"domain\"").unwrap_or_else(|| panic!("{file} has no configuration"));
        // The block of the YAML that the JSON stands in ends with the first line that is indented less.
        let indent = yaml[..start].rsplit('\n').next().unwrap().len();
        let within = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= indent;
        let mut lines = yaml[start..].lines();
        let first = lines.next().unwrap();
        let rest: Vec<&str> = lines.take_while(within).collect();
        let (code, out, err) = validate(&format!("{first}\n{}", rest.join("\n")));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{file}: {out}");
    }
}

#[test]
fn a_file_that_is_not_there_is_told_from_a_faulty_one() {
    let (code, out, err) = output(&["validate", "no-such-file.json"]);
    assert_eq!((code, out.as_str()), (Some(66), ""));
    assert!(err.starts_with("kota validate: no-such-file.json: "), "{err}");
}

#[test]
fn bad_flags_exit_with_64_and_help_with_0() {
    for args in [
        vec!["frobnicate"],
        vec!["validate"],
        vec!["validate", "a", "b"],
        vec!["echo"],
        vec!["echo", "--listen", "nowhere"],
        vec!["echo", "--listen", "127.0.0.1:70000"],
        vec!["echo", "--lisen", "127.0.0.1:0"],
        vec!["sidecar", "--listen", "tcp:127.0.0.1:0"],
        vec!["sidecar", "--api", "nowhere"],
        vec!["sidecar", "--store", "redis://127.0.0.1:1"],
    ] {
        let (code, out, err) = output(&args);
        assert_eq!((code, out.as_str()), (Some(64), ""), "{args:?}: {err}");
        assert!(!err.is_empty());
    }
    for args in [vec!["--help"], vec!["validate", "--help"], vec!["sidecar", "--help"], vec!["--version"]] {
        let (code, out, err) = output(&args);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
        assert!(out.contains("kota") || out.contains("Kota"));
    }
}

/// A running `kota echo`, ended with the test.
struct Echo(Child, SocketAddr);

impl Echo {
    fn start() -> Self {
        let mut child = kota(&["echo", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("kota echo: listening on ").unwrap().parse().unwrap();
        Self(child, address)
    }

    /// What comes back on a connection that the server closes.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.1).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn echo_tells_what_arrived() {
    let echo = Echo::start();
    let answer = echo.send(
        b"POST /a//b?c=d HTTP/1.1\r\nhost: x\r\nX-One: 1\r\nx-one: \xff\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc",
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-type: application/json"),
        "{head}"
    );
    let told: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&told["method"], &told["path"]), (&"POST".into(), &"/a//b?c=d".into()));
    assert_eq!((&told["headers"]["x-one"], &told["length"]), (&"1, \u{fffd}".into(), &3.into()));
    assert_eq!(told["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn echo_answers_as_it_is_asked_to() {
    let echo = Echo::start();
    let answer = echo.send(
        b"POST / HTTP/1.1\r\nhost: x\r\nx-echo: body\r\nx-echo-status: 503\r\nx-echo-set: ratelimit: \"up\";r=1\r\n\
          content-length: 3\r\nconnection: close\r\n\r\nabc",
    );
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\nratelimit: \"up\";r=1\r\n") && answer.ends_with("\r\n\r\nabc"), "{answer}");
}

#[test]
fn echo_speaks_http2_with_prior_knowledge() {
    let echo = Echo::start();
    let mut stream = TcpStream::connect(echo.1).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap(); // SETTINGS, empty
    // HEADERS of stream 1, its end: GET, /, http (indexed), :authority "a" (RFC 7541 appendix A).
    stream.write_all(&[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x86, 0x41, 1, b'a']).unwrap();
    let told = loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).unwrap();
        if head[3] == 0 {
            break serde_json::from_slice::<serde_json::Value>(&payload).unwrap();
        }
    };
    assert_eq!((&told["method"], &told["path"]), (&"GET".into(), &"/".into()));
}
