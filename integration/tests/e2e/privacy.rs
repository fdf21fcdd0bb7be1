//! A client's key is nobody's business (OB-03): a canary sent every way, and looked for everywhere.

use std::fs;
use std::path::Path;

use kota_integration::redis::Reply;
use kota_integration::stack::with_rules;
use kota_integration::{Fault, Request, Running, Stack};
use serde_json::json;

use crate::support::{buckets, merge, rule};

const CANARY: &str = "canary-5e1f0d";

/// Whatever a run leaves behind, by name.
fn traces(stack: &Running) -> Vec<(String, String)> {
    let mut traces = vec![
        ("Envoy's stats".to_owned(), stack.envoy().admin("/stats")),
        ("Prometheus of Envoy".to_owned(), stack.envoy().prometheus()),
        ("Prometheus of the sidecar".to_owned(), stack.sidecar().metrics()),
        ("Redis's keys".to_owned(), buckets(stack.redis()).join("\n")),
        ("Redis's slow log".to_owned(), format!("{:?}", stack.redis().command(&["SLOWLOG", "GET", "1000"]))),
    ];
    for key in buckets(stack.redis()) {
        let Reply::Bulk(Some(value)) = stack.redis().command(&["GET", &key]) else {
            panic!("{key} is no string")
        };
        traces.push((key, String::from_utf8_lossy(&value).into_owned()));
    }
    for file in fs::read_dir(stack.dir.path()).expect("the stack's directory").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|kind| kind == "log" || kind == "out") {
            let bytes = fs::read(file.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
            traces.push((name, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    traces
}

#[test]
fn ob_03_a_key_is_in_no_log_no_metric_no_bucket_and_no_body() {
    let mut config = with_rules(json!([
        rule("closed", 2, json!({ "failMode": "CLOSED" })),
        rule("open", 100, json!({})),
        rule("watching", 1, json!({ "mode": "SHADOW" })),
        rule("named", 100, json!({ "key": ["ip", "api_key"] })),
    ]));
    merge(&mut config["sidecar"], json!({ "deadlineMs": 500 }));
    let stack = Stack::new()
        .redis()
        .sidecar_faults()
        .redis_faults()
        .sidecar_flags(&["--log", "trace"])
        .config(config);
    let stack = stack.start();
    let redis = stack.redis_fault.as_ref().expect("asked for");
    stack.redis().command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let mut client = stack.envoy().client();
    let long = format!("{CANARY}{}", "x".repeat(1000));
    let mut bodies = String::new();
    let mut send = |key: &[u8], times: usize| {
        for _ in 0..times {
            let answer = client.send(
                &Request::get(format!("/orders?key={CANARY}"))
                    .header("x-api-key", key)
                    .header("authorization-key", CANARY),
            );
            let denied = answer.status != 200; // what passes is the echo's, which tells all that it was sent
            bodies.extend(denied.then(|| answer.text()));
            bodies.push_str(&format!("{:?}", answer.headers));
        }
    };
    let odd = [CANARY.as_bytes(), b"\xff"].concat();
    send(CANARY.as_bytes(), 4); // allowed, would be denied, denied
    send(long.as_bytes(), 4);
    send(&odd, 4);
    redis.set(Fault::Garbage);
    send(CANARY.as_bytes(), 2);
    redis.set(Fault::Swallow);
    send(CANARY.as_bytes(), 1);
    redis.set(Fault::Pass);
    stack.redis().command(&["CONFIG", "SET", "maxmemory", "1"]); // a script that may not write is refused
    send(b"canary-5e1f0d-new", 2);
    stack.redis().command(&["CONFIG", "SET", "maxmemory", "0"]);
    stack.sidecar_faults[0].set(Fault::Swallow);
    send(CANARY.as_bytes(), 1);
    stack.sidecar_faults[0].set(Fault::Garbage);
    send(CANARY.as_bytes(), 1);
    stack.sidecar_faults[0].set(Fault::Pass);
    assert!(stack.envoy().access_log_of(19).len() >= 19);

    let keys = buckets(stack.redis());
    let hidden = |key: &String| {
        let name = key
            .split("key:~")
            .nth(1)
            .or_else(|| key.split("key=~").nth(1))
            .or_else(|| key.split("api_key=~").nth(1));
        name.is_some_and(|rest| {
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').count() == 22
        })
    };
    assert!(keys.len() >= 9 && keys.iter().all(hidden), "each key's value is 128 bits of an HMAC: {keys:#?}");
    assert!(
        stack.kota("allowed.open") > 0
            && stack.kota("denied.closed") > 0
            && stack.kota("shadow_denied.watching") > 0
    );
    let failed: Vec<_> = stack
        .envoy()
        .kota_counters()
        .into_iter()
        .filter(|(name, _)| name.starts_with("failed_closed"))
        .collect();
    assert!(failed.len() >= 2, "several ways to fail were met: {failed:?}");
    let mut traces = traces(&stack);
    traces.push(("the answers".to_owned(), bodies));
    for (place, text) in traces {
        assert!(!text.contains("canary"), "the key is in {place}: {text}");
    }
}
