//! Clients that do what they are told, in real time through Envoy, sidecar and Redis (HH-01): who is denied, waits as many seconds as
//! `Retry-After` says and finds no other traffic is admitted. In virtual time, and for any parameters: `src/limits/tests/limits/obeying.rs`.

use std::thread;
use std::time::Duration;

use kota_integration::{Client, Request, Running, Stack};
use serde_json::{Value, json};

use crate::support::{fresh_key, get, merge, rule};

/// How many denials each client obeys.
const ROUNDS: usize = 5;
/// Clients of each kind of rule, at once.
const CLIENTS: usize = 3;

fn of_path(id: &str, capacity: u64, more: Value) -> Value {
    let mut rule = rule(id, capacity, json!({ "match": { "path": { "prefix": format!("/{id}") } } }));
    merge(&mut rule, more);
    if rule["algorithm"] != "TOKEN_BUCKET" {
        rule.as_object_mut().expect("an object").remove("refillPerSecond");
    }
    rule
}

fn start() -> Running {
    let window = json!({ "algorithm": "SLIDING_WINDOW", "windowSeconds": 2 });
    let penalty =
        json!({ "denials": 2, "withinSeconds": 60, "forSeconds": 3, "capacity": 1, "refillPerSecond": 0.5 });
    let mut everywhere = rule("everywhere", 6, json!({ "algorithm": "SLIDING_WINDOW", "windowSeconds": 3 }));
    everywhere.as_object_mut().expect("an object").remove("refillPerSecond");
    let rules = json!([
        of_path("bucket", 2, json!({ "refillPerSecond": 0.7 })),
        of_path("window", 3, window),
        of_path("penalty", 1, json!({ "refillPerSecond": 2, "penalty": penalty })),
        of_path("slots", 1, json!({ "algorithm": "CONCURRENCY", "leaseSeconds": 2 })),
        everywhere,
    ]);
    Stack::new().redis().rules(rules).start()
}

/// Sends until it is denied, and obeys: seconds waited in each round.
fn obey(client: &mut Client, request: &Request) -> Vec<u64> {
    let mut waited = Vec::new();
    for _ in 0..ROUNDS {
        let mut answers = (0..50).map(|_| client.send(request)).skip_while(|answer| answer.status == 200);
        let denied = answers.next().expect("no more than 50 pass at once");
        assert_eq!(denied.status, 429, "{}", denied.text());
        waited.push(wait(&denied));
        assert_eq!(client.send(request).status, 200, "after {waited:?} s");
    }
    waited
}

/// Waits as long as the answer says, no longer.
fn wait(denied: &kota_integration::Answer) -> u64 {
    let seconds = denied.header("retry-after").expect("a denial says when to come back");
    let seconds: u64 = seconds.parse().expect("whole seconds");
    assert!((1..=6).contains(&seconds), "{seconds} s");
    thread::sleep(Duration::from_secs(seconds)); // What is tried is that this is long enough.
    seconds
}

#[test]
#[ignore = "half a minute of waiting: make test-long"]
fn hh_01_who_obeys_in_real_time_is_admitted() {
    let stack = start();
    let envoy = stack.envoy();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            for path in ["/bucket", "/window", "/penalty", "/else"] {
                scope.spawn(move || obey(&mut envoy.client(), &get(path, &fresh_key())));
            }
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let key = fresh_key();
                    let (mut holder, mut client) = (envoy.client(), envoy.client());
                    let held =
                        Request::post("/slots").header("x-api-key", &key).header("content-length", "5");
                    holder.send_raw(&held.bytes()).expect("Envoy takes it");
                    let mut answers = (0..50).map(|_| client.send(&get("/slots", &key)));
                    let denied = answers.find(|answer| answer.status == 429).expect("the slot is taken");
                    holder.disconnect();
                    wait(&denied);
                    assert_eq!(client.send(&get("/slots", &key)).status, 200);
                }
            });
        }
    });
    for id in ["bucket", "window", "penalty", "slots", "everywhere"] {
        assert!(stack.kota(&format!("denied.{id}")) > 0, "{id}");
    }
    assert!(envoy.kota_counters().iter().all(|(name, _)| !name.starts_with("failed_open")));
}
