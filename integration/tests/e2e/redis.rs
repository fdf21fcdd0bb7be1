//! What happens to Redis while requests come: forgotten scripts, killed connections, clocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kota_integration::redis::{Redis, Reply};
use kota_integration::{Fault, Stack, wait};
use serde_json::json;

use crate::support::{buckets, fresh_key, get, rule};

/// How many keys have no end.
pub(crate) fn endless(redis: &Redis) -> i64 {
    let Reply::Array(counts) = endless_and_all(redis) else { panic!("Redis gives two counts") };
    let Reply::Integer(endless) = counts[0] else { panic!("Redis gives numbers: {counts:?}") };
    endless
}

/// Keys that have no end, and all keys.
fn endless_and_all(redis: &Redis) -> Reply {
    let script = "local endless, all = 0, redis.call('KEYS', '*')
        for _, key in ipairs(all) do
            if redis.call('PTTL', key) < 0 then endless = endless + 1 end
        end
        return {endless, #all}";
    redis.command(&["EVAL", script, "0"])
}

#[test]
fn lr_01_a_forgotten_script_is_noticed_by_no_client() {
    const FLUSHES: u64 = 10;
    let stack = Stack::new()
        .redis()
        .rules(json!([rule("r", 1_000_000, json!({ "failMode": "CLOSED", "refillPerSecond": 1000 }))]))
        .start();
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let statuses: Vec<u16> = thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| {
                let (mut client, request, mut statuses) =
                    (stack.envoy().client(), get("/", &fresh_key()), Vec::new());
                while !over.load(Ordering::Relaxed) {
                    statuses.push(client.send(&request).status);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                statuses
            })
        };
        let clients: Vec<_> = (0..4).map(client).collect();
        let loads = || stack.sidecar().metric("kota_script_loads_total", "") as u64;
        for flush in 1..=FLUSHES {
            let before = answered.load(Ordering::Relaxed);
            wait::until_true("there is load", || answered.load(Ordering::Relaxed) > before + 20);
            stack.redis().command(&["SCRIPT", "FLUSH"]);
            wait::until_true("the script is sent again", || loads() > flush);
        }
        over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("a client that ends")).collect()
    });
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(
        stack.sidecar().metric("kota_script_loads_total", ""),
        (FLUSHES + 1) as f64,
        "once for each event"
    );
    let counters = stack.envoy().kota_counters();
    assert_eq!(counters, [("allowed.r".to_owned(), statuses.len() as u64)]);
}

#[test]
fn lr_06_no_key_is_without_an_end_when_connections_are_killed() {
    const KEYS: usize = 400;
    let rules = json!([
        rule("a", 5, json!({ "refillPerSecond": 1 })),
        rule("b", 5, json!({ "refillPerSecond": 0.5 }))
    ]);
    let stack = Stack::new().redis().workers(2).rules(rules).start();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = stack.envoy().client();
                while next.fetch_add(1, Ordering::Relaxed) < KEYS {
                    assert_eq!(client.send(&get("/", &fresh_key())).status, 200, "an OPEN rule passes");
                }
            });
        }
        for part in 1..4 {
            wait::until_true("part of it is done", || next.load(Ordering::Relaxed) >= part * KEYS / 4);
            stack.redis().command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
    });
    let Reply::Array(counts) = endless_and_all(stack.redis()) else { panic!("an array") };
    assert_eq!(counts[0], Reply::Integer(0), "{counts:?}");
    assert!(stack.kota("allowed.a") > 0 && counts[1] != Reply::Integer(0), "{counts:?}");
    wait::until_true("no key is left", || stack.redis().keys().is_empty());
}

#[test]
fn al_08_the_time_that_a_client_or_a_pod_claims_mints_no_token() {
    let stack = Stack::new().redis().sidecars(3).envoys(3).rules(json!([rule("r", 5, json!({}))])).start();
    let key = fresh_key();
    let passed = (0..30).filter(|i| {
        let claims =
            get("/", &key).header("date", "Thu, 01 Jan 2099 00:00:00 GMT").header("x-request-start", "t=1");
        stack.envoys[i % 3].send(&claims).status == 200
    });
    assert_eq!(passed.count(), 5);
    let bucket = &buckets(stack.redis())[0];
    let Reply::Bulk(Some(state)) = stack.redis().command(&["GET", bucket]) else {
        panic!("{bucket} is no string")
    };
    let now = time_us(stack.redis()) / 1_000_000;
    let at_us = state[..7].iter().rev().fold(0, |at, byte| at << 8 | u64::from(*byte));
    assert!(
        (now - 60..=now).contains(&(at_us / 1_000_000)),
        "the bucket's time is {at_us} us, Redis's {now} s"
    );
}

#[test]
fn al_08_a_call_that_comes_late_mints_no_token() {
    const RATE: u64 = 5;
    let rules = json!([rule("r", 5, json!({ "refillPerSecond": RATE }))]);
    let stack =
        Stack::new().redis().redis_faults().sidecars(3).envoys(3).rules(rules).deadline_ms(5000).start();
    let (key, start, faults) =
        (fresh_key(), time_us(stack.redis()), stack.redis_fault.as_ref().expect("asked for"));
    let (passed, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for envoy in &stack.envoys {
            let (key, passed, calls) = (&key, &passed, &calls);
            scope.spawn(move || {
                let (mut client, request) = (envoy.client(), get("/", key));
                for _ in 0..40 {
                    let status = client.send(&request).status;
                    passed.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                    calls.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(50)); // the case's 20 requests a second
                }
            });
        }
        // What is sent now is late, and arrives among what was sent after it.
        wait::until_true("it is under way", || calls.load(Ordering::Relaxed) >= 30);
        faults.set(Fault::Delay(Duration::from_secs(1)));
        thread::sleep(Duration::from_millis(100));
        faults.set(Fault::Pass);
    });
    let (passed, elapsed_us) = (passed.into_inner() as u64, time_us(stack.redis()) - start);
    assert!((5..=5 + RATE * elapsed_us / 1_000_000).contains(&passed), "{passed} in {elapsed_us} us");
    assert_eq!(stack.kota("allowed.r"), passed, "nothing failed open");
}

/// Redis's clock.
fn time_us(redis: &Redis) -> u64 {
    let Reply::Array(parts) = redis.command(&["TIME"]) else { panic!("an array") };
    let number = |part: &Reply| match part {
        Reply::Bulk(Some(text)) => String::from_utf8_lossy(text).parse::<u64>().expect("a number"),
        other => panic!("{other:?}"),
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}
