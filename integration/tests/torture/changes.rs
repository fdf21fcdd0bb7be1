//! Rules that change under load: by ECDS, hundreds of times, and with their listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kota_integration::{Answer, Delivery, Running, Stack};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::calm::{self, Memory};
use crate::{h1, h2, rules};

/// Connections that keep Envoy busy meanwhile, half of them HTTP/1.1.
const CLIENTS: usize = 8;
/// Streams at once on each HTTP/2 connection.
const STREAMS: usize = 8;
/// No answer may take longer.
const PATIENCE: Duration = Duration::from_millis(2 * rules::DEADLINE_MS);

/// Every configuration names its version in the policies of the two rules that admit, so that a request which met two versions would
/// be seen. Every third goes back to one that was there before, byte for byte.
fn version(number: u32) -> Value {
    let number = if number.is_multiple_of(3) { number % 2 } else { number };
    let mut config = rules::config(rules::DEADLINE_MS);
    for rule in config["rules"].as_array_mut().expect("rules") {
        let id = rule["id"].as_str().expect("an id").to_owned();
        if matches!(&*id, "ledger" | "own") {
            rule["policy"] = json!(format!("{id}-{number}"));
        }
    }
    config
}

/// What keeps Envoy busy.
struct Load {
    runtime: Runtime,
    clients: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    answered: AtomicU64,
    versions: AtomicU32,
    /// The policy seen last.
    last: std::sync::Mutex<String>,
}

// === impl Load ===

impl Load {
    fn start(stack: &Running) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, shared) = (runtime.expect("a runtime"), Arc::new(Shared::default()));
        let port = stack.envoy().port();
        let client = |number: usize| {
            let shared = Arc::clone(&shared);
            runtime.spawn(async move {
                while !shared.ends.load(Ordering::Relaxed) {
                    match number % 2 {
                        0 => http1(port, &shared).await,
                        _ => http2(port, &shared).await,
                    }
                }
            })
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { runtime, clients, shared }
    }

    /// Awaits so many answers more.
    fn await_answers(&self, stack: &Running, more: u64) {
        let wanted = self.shared.answered.load(Ordering::Relaxed) + more;
        calm::until(stack.envoy(), "requests are answered", || {
            (self.shared.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    /// Ends it; every request that was sent has been answered. Gives how many, and how often the version was seen to change.
    fn end(self) -> (u64, u32) {
        self.shared.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            self.runtime.block_on(client).expect("every answer is right");
        }
        (self.shared.answered.load(Ordering::Relaxed), self.shared.versions.load(Ordering::Relaxed))
    }
}

// === impl Shared ===

impl Shared {
    /// Looks at the answer to a request that wants this.
    fn take(&self, want: &str, answer: &Answer) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if want == "deny" {
            assert_eq!(answer.status, 429, "{answer:?}");
            return;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        let policies = answer.header("ratelimit-policy").unwrap_or_default();
        let numbers = policies.split(", ").filter_map(|policy| policy.split(['-', '"']).nth(2));
        let numbers: Vec<_> = numbers.collect();
        assert!(numbers.len() == 2 && numbers[0] == numbers[1], "two versions in one answer: {policies}");
        let mut last = self.last.lock().expect("no client panics");
        if *last != numbers[0] {
            *last = numbers[0].to_owned();
            self.versions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One request after the other on a connection, until that ends or the load does.
async fn http1(port: u16, shared: &Shared) {
    let mut connection = h1::Connection::open(port).await;
    for number in 0.. {
        let want = if number % 4 == 0 { "deny" } else { "allow" };
        let request = format!("GET /direct HTTP/1.1\r\nhost: k\r\nx-want: {want}\r\nx-api-key: one\r\n\r\n");
        let answer = timeout(PATIENCE, connection.converse(&[request.as_bytes()], false)).await;
        let answer = answer.expect("an answer in time").expect("an answer");
        shared.take(want, &answer);
        if h1::Connection::ends_with(&answer) || shared.ends.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Some streams at once, again and again, until the connection ends or the load does.
async fn http2(port: u16, shared: &Arc<Shared>) {
    let connection = h2::Connection::open(port).await;
    while !shared.ends.load(Ordering::Relaxed) {
        let mut streams = tokio::task::JoinSet::new();
        for number in 0..STREAMS {
            let want = if number % 4 == 0 { "deny" } else { "allow" };
            let head = h2::head("GET", "/direct", &[("x-want", want.as_bytes()), ("x-api-key", b"two")]);
            let Ok(mut send) = connection.send.clone().ready().await else { break };
            let shared = Arc::clone(shared);
            // A connection that drains takes no new stream; those that it took are answered.
            let Ok((response, _)) = send.send_request(head, true) else { break };
            streams.spawn(async move {
                match timeout(PATIENCE, response).await.expect("an answer in time") {
                    Ok(response) => shared.take(want, &h2::read(response).await.expect("a whole answer")),
                    Err(error) if was_not_taken(&error) => {}
                    Err(error) => panic!("a stream that Envoy took was not answered: {error:?}"),
                }
            });
        }
        if streams.is_empty() {
            return;
        }
        streams.join_all().await; // a panic in one of them becomes this task's
    }
}

/// A stream beyond the last that the peer's GOAWAY names.
fn was_not_taken(error: &::h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(::h2::Reason::NO_ERROR)
}

/// One round: so many changes under load. Every tenth is a configuration that Kota refuses, and changes nothing.
fn round(stack: &mut Running, changes: u32) -> Memory {
    let load = Load::start(stack);
    load.await_answers(stack, 100);
    for number in 1..=changes {
        if number.is_multiple_of(10) {
            assert!(!stack.envoys[0].reconfigure(&json!({ "rules": number })), "a bad one was taken");
        }
        assert!(stack.envoys[0].reconfigure(&version(number)), "change {number} was refused");
        load.await_answers(stack, 10);
    }
    let (answered, versions) = load.end();
    eprintln!("{changes} changes, {versions} of them seen by {answered} requests, all answered");
    calm::until(stack.envoy(), "replaced listeners have drained", || {
        (stack.envoy().stat("listener_manager.total_filter_chains_draining") == 0).then_some(())
    });
    calm::settled(stack.envoy())
}

fn changes(delivery: Delivery, changes: u32, warming: u32) {
    let stack = Stack::new().delivery(delivery).config(version(0)).without_upstream();
    // Replaced filter chains are kept for 10 minutes unless told otherwise.
    let stack = stack.envoy_flags(&["--drain-time-s", "3", "--drain-strategy", "immediate"]);
    let mut stack = stack.bootstrap(rules::answer_some_directly).start();
    rules::prime(&stack);
    let quiet = calm::wakeups(stack.envoy());
    round(&mut stack, warming);
    let first = round(&mut stack, changes);
    round(&mut stack, changes);
    let strange = stack.envoy().kota_counters().into_iter().find(|(name, _)| name.starts_with("failed"));
    assert_eq!(strange, None);
    calm::no_growth(stack.envoy(), first);
    // A timer that outlives its root goes on for ever: 50 of them make four times as many wakeups.
    let after = calm::wakeups(stack.envoy());
    eprintln!("wakeups a second at rest: {quiet} before, {after} after");
    assert!(after < 2 * quiet, "replaced roots still tick");
}

#[test]
fn fifty_changes_by_ecds() {
    changes(Delivery::Ecds, 50, 10);
}

#[test]
fn two_changes_by_lds() {
    changes(Delivery::Lds, 2, 2);
}

#[test]
#[ignore = "minutes; make test-long"]
fn five_hundred_changes_by_ecds() {
    changes(Delivery::Ecds, 500, 100);
}

#[test]
#[ignore = "minutes; make test-long"]
fn twenty_changes_by_lds() {
    changes(Delivery::Lds, 20, 10);
}
