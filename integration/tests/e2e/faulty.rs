//! Faulty configurations (CA-05): `kota validate` lists every fault by its path, Envoy refuses what it refuses, and the old one
//! keeps serving.

use std::io::Write;
use std::process::{Command, Stdio};

use kota_integration::{Delivery, Stack, tools};
use serde_json::{Value, json};

use crate::support::{fresh_key, get, rule};

/// Exit code and standard output of `kota validate`.
fn validate(config: &str) -> (Option<i32>, String) {
    let mut command = Command::new(tools::kota());
    command.args(["validate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("kota can be started");
    child.stdin.take().expect("a pipe").write_all(config.as_bytes()).expect("kota reads all of it");
    let output = child.wait_with_output().expect("kota ends");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A good rule with one field replaced by bad JSON, and the path of the fault.
fn bad_fields() -> Vec<(&'static str, &'static str, String)> {
    let long_path = format!(r#"{{"path": "/{}"}}"#, "x".repeat(10_000));
    let owned = |text: &str| text.to_owned();
    vec![
        ("capacity", "$.rules[0].capacity", owned("0")),
        ("capacity", "$.rules[0].capacity", owned("-1")),
        ("capacity", "$.rules[0].capacity", owned("1e308")),
        ("capacity", "$.rules[0].capacity", owned("9007199254740993")),
        ("capacity", "$.rules[0].capacity", owned(r#""10""#)),
        ("refillPerSecond", "$.rules[0].refillPerSecond", owned("-1")),
        ("refillPerSecond", "$.rules[0].refillPerSecond", owned("1e308")),
        ("refillPerSecond", "$.rules[0].idleSeconds", owned("0")),
        ("idleSeconds", "$.rules[0].idleSeconds", owned("0")),
        ("algorithm", "$.rules[0].algorithm", owned(r#""LEAKY""#)),
        ("algorithm", "$.rules[0].refillPerSecond", owned(r#""CONCURRENCY""#)),
        ("algorithm", "$.rules[0].windowSeconds", owned(r#""SLIDING_WINDOW""#)),
        ("windowSeconds", "$.rules[0].windowSeconds", owned("60")),
        ("leaseSeconds", "$.rules[0].leaseSeconds", owned("10")),
        ("key", "$.rules[0].key[0]", owned(r#"["nobody"]"#)),
        ("match", "$.rules[0].match.ip.cidr", owned(r#"{"ip": {"cidr": "10.0.0.0/33"}}"#)),
        ("match", "$.rules[0].match.path", long_path),
        ("match", "$.rules[0].match.route", owned(r#"{"route": "get /orders"}"#)),
        ("match", "$.rules[0].match.method", owned(r#"{"method": "FOO"}"#)),
        ("failMode", "$.rules[0].failMode", owned(r#""LOCAL""#)),
        ("nonsense", "$.rules[0].nonsense", owned("1")),
        ("id", "$.rules[0].id", owned(r#""Not An Id""#)),
    ]
}

fn with_field(field: &str, json: &str) -> String {
    const MARK: &str = "the-value-in-question";
    let mut rule = rule("r", 10, json!({}));
    rule[field] = json!(MARK);
    kota_integration::stack::with_rules(json!([rule])).to_string().replacen(&format!("\"{MARK}\""), json, 1)
}

#[test]
fn ca_05_a_faulty_configuration_is_refused_by_its_path_and_the_old_one_keeps_serving() {
    let good = kota_integration::stack::with_rules(json!([rule("r", 3, json!({}))]));
    let mut stack = Stack::new().config(good.clone()).delivery(Delivery::Ecds).start();
    let key = fresh_key();
    assert_eq!(stack.envoy().send(&get("/", &key)).header("x-ratelimit-remaining"), Some("2"));
    for (field, path, json) in bad_fields() {
        let config = with_field(field, &json);
        let (code, lines) = validate(&config);
        let shown = &json[..json.len().min(60)];
        assert_eq!(code, Some(65), "{field}: {shown}: {lines}");
        assert!(
            lines.lines().any(|line| line.starts_with(&format!("{path}: "))),
            "{field}: {shown}: {lines}"
        );
        let Ok(parsed) = serde_json::from_str::<Value>(&config) else { continue }; // 1e308 and such have no Value
        assert!(!stack.envoys[0].reconfigure(&parsed), "{field}: {shown} was taken by Envoy");
        assert!(
            stack.envoy().process().log().contains(&format!("configuration refused: {path}: ")),
            "{field}: {shown}"
        );
    }
    let whole = [json!([]), json!({}), json!({ "rules": "none" }), json!({ "rules": [], "rules2": [] })];
    for config in whole {
        assert_eq!(validate(&config.to_string()).0, Some(65), "{config}");
        assert!(!stack.envoys[0].reconfigure(&config), "{config}");
    }
    // The old one, with what it has counted.
    assert_eq!(stack.envoy().send(&get("/", &key)).header("x-ratelimit-remaining"), Some("1"));
    let raised = kota_integration::stack::with_rules(json!([rule("r", 10, json!({}))]));
    assert_eq!(validate(&raised.to_string()).0, Some(0));
    assert!(stack.envoys[0].reconfigure(&raised), "a good one is taken after all that");
    kota_integration::wait::until_true("the raised limit is in force", || {
        stack.envoy().send(&get("/", &key)).header("x-ratelimit-limit") == Some("10")
    });
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn ca_05_every_fault_of_a_file_is_listed_at_once() {
    let config = json!({ "domain": "no domain", "rules": [
        rule("r", 0, json!({ "algorithm": "NONE", "failMode": "MAYBE" })),
        rule("r", 10, json!({ "key": ["nobody", "ip", "ip"] })),
        rule("s", 10, json!({ "match": { "ip": { "cidr": "x" } } })),
    ] });
    let (code, lines) = validate(&config.to_string());
    assert_eq!(code, Some(65));
    for path in [
        "$.domain",
        "$.rules[0].capacity",
        "$.rules[0].algorithm",
        "$.rules[0].failMode",
        "$.rules[1].id",
        "$.rules[1].key[0]",
        "$.rules[1].key[2]",
        "$.rules[2].match.ip.cidr",
    ] {
        assert!(lines.lines().any(|line| line.starts_with(&format!("{path}: "))), "{path}: {lines}");
    }
}
