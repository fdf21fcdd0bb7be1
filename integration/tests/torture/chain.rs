//! Two Kota filters in one chain, in one VM, with different rules: each charges its own.

use kota_integration::{Answer, Running, Stack};
use serde_json::{Value, json};

use crate::calm::{self, Memory};
use crate::crowd::Crowd;
use crate::rules;

/// The second filter's: it watches over what the first lets pass, and knows other rules and another domain.
fn second() -> Value {
    let rule = |id: &str, want: &str, capacity: u64| {
        json!({
            "id": id, "match": { "want": want }, "key": [], "algorithm": "TOKEN_BUCKET", "capacity": capacity,
            "refillPerSecond": 0, "idleSeconds": 86_400, "failMode": "CLOSED",
        })
    };
    json!({
        "domain": "second",
        "sidecar": { "cluster": "kota", "deadlineMs": rules::DEADLINE_MS },
        "descriptors": { "want": { "header": "x-want" } },
        "rules": [
            rule("second-ledger", "allow", rules::LEDGER),
            rule("second-alone", "second", rules::LEDGER),
            rule("second-empty", "refuse", 1),
        ],
    })
}

/// The first filter's own share in what the second denies.
fn first() -> Value {
    let mut config = rules::config(rules::DEADLINE_MS);
    let rule = json!({
        "id": "first-too", "match": { "want": "refuse" }, "key": [], "algorithm": "TOKEN_BUCKET",
        "capacity": rules::LEDGER, "refillPerSecond": 0, "idleSeconds": 86_400, "failMode": "CLOSED",
    });
    config["rules"].as_array_mut().expect("rules").push(rule);
    config
}

fn stack() -> Running {
    let stack = Stack::new().without_upstream().config(first());
    let stack = stack.bootstrap(|bootstrap| bootstrap.add_kota("kota-second", &second()));
    let stack = stack.bootstrap(rules::answer_some_directly).start();
    rules::prime(&stack);
    let statuses = Crowd::gather(&stack, 2, "/direct", "refuse").answers();
    let mut statuses: Vec<_> = statuses.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429], "the second filter's empty bucket held one token");
    stack
}

/// `size` requests wait in the first filter, then in the second, together.
fn storm(stack: &Running, size: usize, want: &'static str) -> Vec<Answer> {
    stack.sidecar().process().freeze();
    let crowd = Crowd::gather(stack, size, "/direct", want);
    crowd.wait_inside(stack);
    stack.sidecar().process().thaw();
    crowd.answers()
}

fn lines(answer: &Answer, name: &str) -> Vec<String> {
    let lines = answer.headers.iter().filter(|(header, _)| header == name);
    lines.flat_map(|(_, value)| value.split(", ").map(str::to_owned)).collect()
}

fn round(stack: &Running, size: usize) -> Memory {
    let envoy = stack.envoy();
    let names = [
        "allowed.ledger",
        "allowed.own",
        "allowed.second-ledger",
        "denied.empty",
        "allowed.first-too",
        "denied.second-empty",
        "allowed.second-alone",
    ];
    let before = names.map(|name| envoy.kota(name));

    for answer in storm(stack, size, "allow") {
        assert_eq!(answer.status, 200);
        let policies = lines(&answer, "ratelimit-policy").concat();
        assert!(
            ["\"ledger\"", "\"own\"", "\"second-ledger\""].iter().all(|name| policies.contains(name)),
            "{policies}"
        );
        assert_eq!(lines(&answer, "x-ratelimit-remaining").len(), 1, "the stricter of the two stays");
    }
    for answer in storm(stack, size, "deny") {
        assert_eq!(answer.status, 429);
        assert!(!lines(&answer, "ratelimit-policy").concat().contains("second"), "the second saw it");
    }
    for answer in storm(stack, size, "refuse") {
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (429, Some("0")));
        let policies = lines(&answer, "ratelimit-policy").concat();
        assert!(policies.contains("\"first-too\"") && policies.contains("\"second-empty\""), "{policies}");
    }
    assert!(storm(stack, size, "second").iter().all(|answer| answer.status == 200));

    let made: Vec<_> = names.iter().zip(before).map(|(name, before)| envoy.kota(name) - before).collect();
    assert_eq!(made, [size as u64; 7], "{names:?}");
    calm::settled(envoy)
}

fn chain(size: usize) {
    let stack = stack();
    round(&stack, size); // fills the pools
    let first = round(&stack, size);
    round(&stack, size);
    calm::no_growth(stack.envoy(), first);
}

#[test]
fn two_filters_in_one_chain() {
    chain(1_000);
}

#[test]
#[ignore = "a minute; make test-long"]
fn two_filters_in_one_chain_under_storm() {
    chain(10_000);
}
