//! Penalties (R10) over real pods: who keeps being denied is held shorter, and behaves out of it or is pardoned.

use kota_integration::stack::with_rules;
use kota_integration::workdir::Workdir;
use kota_integration::{Client, Request, Running, Stack, wait};
use serde_json::{Value, json};

use crate::slots::now_ms;
use crate::support::{fresh_key, get, merge, rule};

/// Five at once and five a second; after four denials one a second, until three seconds have passed without a denial.
fn penal(more: Value) -> Value {
    let mut rule = rule("penal", 5, json!({ "refillPerSecond": 5, "failMode": "CLOSED" }));
    let penalty =
        json!({ "denials": 4, "withinSeconds": 60, "forSeconds": 3, "capacity": 1, "refillPerSecond": 1 });
    merge(&mut rule, json!({ "penalty": penalty }));
    merge(&mut rule, more);
    rule
}

fn start(rule: Value) -> Running {
    let config = with_rules(json!([rule]));
    // The sidecars have the rules too, so that an operator can ask them for a pardon.
    let dir = Workdir::new();
    let rules = dir.write("rules.json", &config.to_string());
    let flags = ["--rules", rules.to_str().expect("UTF-8")];
    Stack::new().redis().sidecars(3).sidecar_flags(&flags).envoys(3).config(config).deadline_ms(5000).start()
}

/// How many of so many in a row pass, wherever they are decided.
fn passed(stack: &Running, key: &str, requests: usize) -> usize {
    let send = |i: usize| stack.envoys[i % 3].send(&get("/", key)).status;
    (0..requests).map(send).filter(|status| *status == 200).count()
}

fn await_ms(stack: &Running, ms: i64) {
    let until = now_ms(stack.redis()) + ms;
    wait::until_true("time has passed", || now_ms(stack.redis()) >= until);
}

/// Sends until it is denied so often.
fn be_denied(stack: &Running, key: &str, denials: usize) {
    let mut denied = 0;
    for i in 0.. {
        denied += usize::from(stack.envoys[i % 3].send(&get("/", key)).status == 429);
        if denied == denials {
            return;
        }
    }
}

#[test]
fn who_keeps_being_denied_is_held_shorter_and_behaves_out_of_it() {
    let stack = start(penal(json!({})));
    let (greedy, decent) = (fresh_key(), fresh_key());
    be_denied(&stack, &greedy, 3);
    await_ms(&stack, 1100);
    assert!(passed(&stack, &greedy, 5) >= 5, "three denials are forgiven: the bucket is full again");
    be_denied(&stack, &greedy, 4);
    await_ms(&stack, 1100);
    // By its own limit five would pass; under the penalty one does, and what a slow machine lets come back, one a second.
    let before = now_ms(stack.redis());
    let few = passed(&stack, &greedy, 8);
    let seconds = (now_ms(stack.redis()) - before) as usize / 1000;
    assert!((1..=2 + seconds).contains(&few), "{few} passed");
    assert_eq!(passed(&stack, &decent, 5), 5, "nobody else is punished");
    await_ms(&stack, 3100);
    assert_eq!(passed(&stack, &greedy, 5), 5, "after three seconds without a denial it is over");
}

#[test]
fn an_operator_pardons_whom_another_pod_has_denied() {
    let stack = start(penal(json!({})));
    let (one, other) = (fresh_key(), fresh_key());
    for key in [&one, &other] {
        be_denied(&stack, key, 4);
    }
    let pardon = |key: &str| {
        let body = json!({ "domain": "test", "descriptors": [{ "api_key": key }] }).to_string();
        let request = Request::post("/v1/pardon").header("content-type", "application/json").body(body);
        let answer = Client::new(stack.sidecars[2].api()).send(&request);
        (answer.status, answer.json())
    };
    assert_eq!(pardon(&one), (200, json!({ "pardoned": ["penal"] })));
    assert_eq!(pardon(&fresh_key()), (200, json!({ "pardoned": [] })), "nobody has denied this one");
    await_ms(&stack, 1100);
    assert_eq!(passed(&stack, &one, 5), 5, "its own limit holds, which is full again");
    assert!(passed(&stack, &other, 5) < 5, "who was not pardoned is still held shorter");
}

#[test]
fn a_shadow_punishes_nobody_and_says_whom_it_would() {
    let stack = start(penal(json!({ "mode": "SHADOW" })));
    let key = fresh_key();
    assert_eq!(passed(&stack, &key, 30), 30);
    assert!(stack.kota("shadow_denied.penal") >= 4);
}
