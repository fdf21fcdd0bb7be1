//! A whole stack of the real parts: that it limits at all, and that what a test reads from it is there.

use std::time::Duration;

use kota_integration::{Delivery, Fault, Request, Stack};
use serde_json::{Value, json};

use crate::support::buckets;

fn rule(capacity: u64) -> Value {
    json!({ "id": "orders", "match": { "route": "POST /orders" }, "key": ["api_key"],
            "algorithm": "TOKEN_BUCKET", "capacity": capacity, "refillPerSecond": 0.001 })
}

fn order(key: &str) -> Request {
    Request::post("/orders").header("x-api-key", key)
}

#[test]
fn three_envoys_and_sidecars_share_one_count() {
    let stack = Stack::new().redis().sidecars(3).envoys(3).workers(2).rules(json!([rule(10)])).start();
    let statuses: Vec<_> = (0..15).map(|i| stack.envoys[i % 3].send(&order("k")).status).collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 5]].concat());
    assert_eq!((stack.kota("allowed.orders"), stack.kota("denied.orders")), (10, 5));
    assert_eq!(buckets(stack.redis()).len(), 1);
    assert!(stack.redis().calls("evalsha") >= 10);
}

#[test]
fn the_access_log_names_decision_rule_and_reason() {
    let stack = Stack::new().sidecar_faults().deadline_ms(1000).rules(json!([rule(1)])).start();
    assert_eq!(stack.envoy().send(&order("k")).status, 200);
    assert_eq!(stack.envoy().send(&order("k")).status, 429);
    stack.sidecar_faults[0].set(Fault::Gone);
    assert_eq!(stack.envoy().send(&order("other")).status, 200, "a rule fails open unless it says otherwise");
    assert_eq!(stack.envoy().send(&Request::get("/elsewhere")).status, 200);
    let log = stack.envoy().access_log_of(4);
    let words = |line: &Value| ["kota_decision", "kota_rule", "kota_reason"].map(|field| line[field].clone());
    let seen: Vec<_> = log.iter().map(words).collect();
    assert_eq!(seen[0], [json!("allow"), Value::Null, Value::Null]);
    assert_eq!(seen[1], [json!("deny"), json!("orders"), Value::Null]);
    assert_eq!(seen[2], [json!("failed_open"), json!("orders"), json!("refused")]);
    assert_eq!(seen[3], [Value::Null, Value::Null, Value::Null]);
}

#[test]
fn a_frozen_redis_and_a_restarted_sidecar_come_back() {
    let mut stack = Stack::new().redis_faults().rules(json!([rule(100)])).deadline_ms(300).start();
    assert_eq!(stack.envoy().send(&order("k")).status, 200);
    stack.redis().process().freeze();
    assert_eq!(stack.envoy().send(&order("k")).status, 200);
    stack.redis().process().thaw();
    assert!(stack.envoy().kota_counters().iter().any(|(name, _)| name.starts_with("failed_open.orders.")));
    stack.redis_fault.as_ref().expect("asked for").set(Fault::Delay(Duration::from_millis(5)));
    stack.sidecars[0].restart();
    let allowed = stack.kota("allowed.orders");
    kota_integration::wait::until_true("decisions are made again", || {
        assert_eq!(stack.envoy().send(&order("k")).status, 200);
        stack.kota("allowed.orders") > allowed
    });
}

#[test]
fn rules_change_by_ecds_without_a_pause() {
    let mut stack = Stack::new().delivery(Delivery::Ecds).rules(json!([rule(1)])).start();
    assert_eq!([(); 2].map(|()| stack.envoy().send(&order("k")).status), [200, 429]);
    let raised = kota_integration::stack::with_rules(json!([rule(5)]));
    assert!(stack.envoys[0].reconfigure(&raised));
    kota_integration::wait::until_true("the raised limit is in force", || {
        stack.envoy().send(&order("k")).status == 200
    });
    assert!(!stack.envoys[0].reconfigure(&json!({ "rules": "none" })), "a bad configuration was taken");
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn a_check_in_flight_is_answered_by_the_rules_that_it_met() {
    let stack = Stack::new().sidecar_faults().delivery(Delivery::Ecds).rules(json!([rule(5)]));
    let mut stack = stack.deadline_ms(30_000).start();
    assert_eq!(stack.envoy().send(&order("k")).status, 200);
    stack.sidecar_faults[0].set(Fault::Delay(Duration::from_secs(2)));
    let (port, asked) = (stack.envoy().port(), stack.envoy().stat("cluster.kota.upstream_rq_total"));
    let waiting = std::thread::spawn(move || kota_integration::Client::new(port).send(&order("k")));
    kota_integration::wait::until_true("it is asked", || {
        stack.envoy().stat("cluster.kota.upstream_rq_total") > asked
    });
    let none = kota_integration::stack::with_rules(json!([]));
    assert!(stack.envoys[0].reconfigure(&none));
    let free = |envoy: &kota_integration::envoy::Envoy| envoy.send(&order("k")).header("ratelimit").is_none();
    kota_integration::wait::until_true("the new rules are in force", || free(stack.envoy()));
    let answer = waiting.join().expect("an answer");
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("3")), "{answer:?}");
    kota_integration::wait::until_true("no request is left", || stack.envoy().open_requests() == 0);
    assert_eq!(stack.envoy().vm_reloads(), 0);
}
