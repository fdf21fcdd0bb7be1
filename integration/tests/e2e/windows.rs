//! Sliding windows over real pods: MP-01, MP-06, AL-10, AL-16.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use kota_integration::redis::Redis;
use kota_integration::stack::with_rules;
use kota_integration::{Request, Running, Stack, wait};
use serde_json::{Value, json};

use crate::brief::at_once;
use crate::slots::now_ms;
use crate::support::{buckets, first_pass, fresh_key, get, merge, statuses};

/// So many in a window, CLOSED so that nothing passes uncounted; the fields of `more` are added or replace others.
fn window(id: &str, capacity: u64, window_s: u64, more: Value) -> Value {
    let mut rule = json!({ "id": id, "key": ["api_key"], "algorithm": "SLIDING_WINDOW",
                           "capacity": capacity, "windowSeconds": window_s, "failMode": "CLOSED" });
    merge(&mut rule, more);
    rule
}

fn pods(rules: Value) -> Stack {
    Stack::new().redis().sidecars(3).envoys(3).config(with_rules(rules)).deadline_ms(5000)
}

/// Waits until the window of the server's clock has at least this much left, so that no border falls into what comes.
fn await_room(redis: &Redis, window_s: i64, room_s: i64) {
    wait::until_true("the window is young enough", || {
        now_ms(redis) % (1000 * window_s) <= 1000 * (window_s - room_s)
    });
}

#[test]
fn mp_01_three_pods_admit_exactly_what_a_window_and_a_bucket_hold() {
    let bucket = json!({ "id": "bucket", "key": ["api_key"], "match": { "path": "/bucket" }, "algorithm": "TOKEN_BUCKET",
                         "capacity": 100, "refillPerSecond": 0, "idleSeconds": 3600, "failMode": "CLOSED" });
    let rules = json!([window("window", 100, 60, json!({ "match": { "path": "/window" } })), bucket]);
    let stack = pods(rules).workers(2).start();
    for path in ["/window", "/bucket"] {
        await_room(stack.redis(), 60, 25);
        for run in 0..5 {
            assert_eq!(at_once(&stack, 30, 1000, &get(path, &fresh_key())), (100, 900), "{path}, run {run}");
        }
    }
    for rule in ["window", "bucket"] {
        assert_eq!(
            (stack.kota(&format!("allowed.{rule}")), stack.kota(&format!("denied.{rule}"))),
            (500, 4500)
        );
    }
    assert!(stack.sidecars.iter().all(|sidecar| sidecar.metric("kota_decisions_total", "") > 0.0));
    assert_eq!(stack.envoys.iter().map(|envoy| envoy.vm_reloads()).sum::<u64>(), 0);
}

/// The seconds that a sidecar believes it is, from the `date` of its answers.
fn believed_s(stack: &Running, pod: usize) -> i64 {
    let answer = kota_integration::Client::new(stack.sidecars[pod].api()).send(&Request::get("/healthz"));
    let date = answer.header("date").expect("HTTP has dates").to_owned(); // "Tue, 01 Dec 2026 11:05:07 GMT"
    let time = date.split(' ').nth(4).expect("a time of day");
    time.split(':').fold(0, |sum, part| 60 * sum + part.parse::<i64>().expect("digits"))
}

#[test]
fn mp_06_pods_whose_clocks_differ_count_in_one_window() {
    const DAY_S: i64 = 24 * 3600;
    const WINDOW_S: u64 = 7;
    let stack = pods(json!([window("window", 12, WINDOW_S, json!({}))])).clocks_s(&[-10, 0, 10]).start();
    let clocks = [0, 1, 2].map(|pod| believed_s(&stack, pod));
    for (slow, fast) in [(clocks[0], clocks[1]), (clocks[1], clocks[2])] {
        let apart = (fast - slow).rem_euclid(DAY_S);
        assert!((8..=12).contains(&apart), "the clocks are not apart: {clocks:?}");
    }
    await_room(stack.redis(), WINDOW_S as i64, 4);
    let key = fresh_key();
    let mut left = Vec::new();
    for i in 0..12 {
        let answer = stack.envoys[i % 3].send(&get("/", &key));
        assert_eq!(answer.status, 200);
        left.push(answer.header("x-ratelimit-remaining").expect("a number").parse::<u64>().expect("digits"));
    }
    assert_eq!(left, (0..12).rev().collect::<Vec<_>>(), "one count, whichever pod is asked");
    for envoy in &stack.envoys {
        assert_eq!(envoy.send(&get("/", &key)).status, 429);
    }
    assert_eq!(buckets(stack.redis()).len(), 1, "one key: no pod has a window of its own");
}

#[test]
fn al_16_a_client_that_is_denied_takes_nothing_from_all_others() {
    let own = window("own", 1, 60, json!({}));
    let all = window("all", 10, 60, json!({ "key": [] }));
    for rules in [json!([own, all]), json!([all, own])] {
        let stack = pods(rules).start();
        let envoy = |i: usize| &stack.envoys[i % 3];
        await_room(stack.redis(), 60, 25);
        let greedy = fresh_key();
        let statuses: Vec<_> = (0..20).map(|i| envoy(i).send(&get("/", &greedy)).status).collect();
        assert_eq!(statuses, first_pass(1, 19));
        let others: Vec<_> = (2..=10).map(|i| envoy(i).send(&get("/", &fresh_key())).status).collect();
        assert_eq!(others, [200; 9], "the greedy one took one of ten");
        assert_eq!(envoy(0).send(&get("/", &fresh_key())).status, 429, "ten are used");
    }
}

#[test]
#[ignore = "a minute of real time: make test-long"]
fn al_10_a_window_lets_no_second_burst_through_at_its_border() {
    const WINDOW_MS: i64 = 30_000;
    let stack = pods(json!([window("window", 100, 30, json!({}))])).start();
    let (redis, key) = (stack.redis(), fresh_key());
    let into = || now_ms(redis) % WINDOW_MS;
    let burst = || {
        let (mut client, before) = (stack.envoy().client(), into());
        let passed =
            statuses(&mut client, &get("/", &key), 100).into_iter().filter(|status| *status == 200).count();
        (passed as i64, before, into())
    };
    wait_long("the window is nearly over", || into() > WINDOW_MS - 1500);
    let (first, before, after) = burst();
    assert!(after > before, "the burst came over the border: {before} to {after}");
    assert_eq!(first, 100);
    wait_long("the next one", || into() < 1000);
    let (second, _, after) = burst();
    // What the first burst still weighs falls by one a 300 ms.
    assert!(second <= 100 * after / WINDOW_MS + 1, "{second} at {after} ms");
    wait_long("its middle", || into() >= WINDOW_MS / 2);
    let (third, before, after) = burst();
    let bounds = 100 * before / WINDOW_MS - second..=100 * after / WINDOW_MS - second + 1;
    assert!(bounds.contains(&third), "{third}, not {bounds:?}");
}

/// As [`wait::until_true`], for what takes longer.
fn wait_long(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2 * 60 * 20 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("waited in vain until {what}");
}

#[test]
fn a_window_tells_its_policy_and_when_to_come_back() {
    let stack = pods(json!([window("window", 3, 60, json!({}))])).start();
    await_room(stack.redis(), 60, 20);
    let (mut client, key) = (stack.envoy().client(), fresh_key());
    let answers: Vec<_> = (0..5).map(|_| client.send(&get("/", &key))).collect();
    let policies: BTreeSet<_> = answers.iter().map(|answer| answer.header("ratelimit-policy")).collect();
    assert_eq!(policies, BTreeSet::from([Some(r#""window";q=3;w=60"#)]));
    let left: Vec<_> = answers.iter().map(|answer| answer.header("x-ratelimit-remaining")).collect();
    assert_eq!(left, [Some("2"), Some("1"), Some("0"), Some("0"), Some("0")]);
    let wait: u64 = answers[4].header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((20..=120).contains(&wait), "{wait} s: this window's rest, and what of the next it weighs");
}
