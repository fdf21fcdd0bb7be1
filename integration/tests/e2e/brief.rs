//! The trials that the product was ordered by, through a real Redis: how many pass, and when the next one may.

use std::thread;
use std::time::{Duration, Instant};

use kota_integration::stack::with_rules;
use kota_integration::{Request, Running, Stack};
use serde_json::json;

use crate::support::{first_pass, fresh_key, get, merge, rule, statuses};

/// Sends `requests`, by `clients` clients at once that are spread over the Envoys; how many were answered 200 and 429.
pub(crate) fn at_once(stack: &Running, clients: usize, requests: usize, request: &Request) -> (usize, usize) {
    let statuses: Vec<u16> = thread::scope(|scope| {
        let client = |i: usize| {
            let envoy = &stack.envoys[i % stack.envoys.len()];
            let share = requests / clients + usize::from(i < requests % clients);
            scope.spawn(move || statuses(&mut envoy.client(), request, share))
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client that ends")).collect()
    });
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!(count(200) + count(429), requests, "{statuses:?}");
    (count(200), count(429))
}

#[test]
fn twelve_calls_in_a_row_ten_pass_and_the_rest_wait_a_fifth_of_a_second() {
    let config = with_rules(json!([rule("brief", 10, json!({ "refillPerSecond": 5 }))]));
    let stack = Stack::new().redis().config(config).start();
    let (mut client, key) = (stack.envoy().client(), fresh_key());
    let start = Instant::now();
    let statuses = statuses(&mut client, &get("/", &key), 12);
    let refilled = start.elapsed().as_millis() as usize / 200; // none, unless the machine is so slow that they were not in a row
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!((10..=10 + refilled).contains(&passed), "{statuses:?}");
    assert_eq!(statuses[..10], first_pass(10, 0));

    // Denied costs nothing, so a token is there 200 ms after whatever moment.
    while client.send(&get("/", &key)).status == 200 {}
    thread::sleep(Duration::from_millis(200));
    assert_eq!(client.send(&get("/", &key)).status, 200);
}

#[test]
fn two_hundred_clients_at_once_take_fifty_tokens_exactly() {
    let stack = Stack::new().redis().workers(2).rules(json!([rule("brief", 50, json!({}))])).start();
    for _ in 0..3 {
        assert_eq!(at_once(&stack, 200, 200, &get("/", &fresh_key())), (50, 150));
    }
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

/// Three pods of two workers, CLOSED so that nothing passes uncounted.
fn three_pods() -> Running {
    let closed = |id: &str, capacity: u64, more| {
        let mut rule = rule(id, capacity, json!({ "failMode": "CLOSED" }));
        merge(&mut rule, more);
        rule
    };
    let mut config = with_rules(json!([
        closed("hundred", 100, json!({})),
        closed("tenant", 60, json!({ "key": ["tenant"], "onMissingKey": "SKIP" })),
    ]));
    merge(&mut config["descriptors"], json!({ "tenant": { "header": "x-tenant" } }));
    Stack::new().redis().sidecars(3).envoys(3).workers(2).config(config).deadline_ms(2000).start()
}

#[test]
fn mp_01_three_pods_admit_exactly_the_capacity_in_every_run() {
    let stack = three_pods();
    for run in 0..20 {
        assert_eq!(at_once(&stack, 30, 1000, &get("/", &fresh_key())), (100, 900), "run {run}");
    }
    assert_eq!(stack.kota("allowed.hundred"), 2000);
    assert_eq!(stack.kota("denied.hundred"), 18_000);
    assert_eq!(stack.envoys.iter().map(|envoy| envoy.vm_reloads()).sum::<u64>(), 0);
    assert!(stack.sidecars.iter().all(|sidecar| sidecar.metric("kota_decisions_total", "") > 0.0));
}

#[test]
fn mp_01_a_rule_is_charged_only_for_what_another_admits() {
    let stack = three_pods();
    for run in 0..3 {
        let (key, tenant) = (fresh_key(), fresh_key());
        let both = get("/", &key).header("x-tenant", &tenant);
        assert_eq!(at_once(&stack, 30, 300, &both), (60, 240), "run {run}: the second rule denies the rest");
        let first = stack.envoy().send(&get("/", &key));
        assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, Some("39")), "run {run}");
        assert_eq!(at_once(&stack, 30, 100, &get("/", &key)), (39, 61), "run {run}");
    }
}
