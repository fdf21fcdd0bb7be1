//! As many HTTP/2 streams at once as the shipped bootstrap lets a client open, on one worker, and all answered in one go.
//!
//! The sidecar is stopped while they come in, so that they really wait together; then it goes on, or is cut off.

use kota_integration::{Answer, Fault, Running, Stack};
use serde_json::json;

use crate::calm::{self, Memory};
use crate::crowd::Crowd;
use crate::rules;

fn stack() -> Running {
    let stack = Stack::new().sidecar_faults().without_upstream().config(rules::config(rules::DEADLINE_MS));
    let stack = stack.bootstrap(rules::answer_some_directly).start();
    rules::prime(&stack);
    stack
}

/// Lets `size` requests wait together, then calls `release`, and gives the answers.
fn storm(
    stack: &Running,
    size: usize,
    path: &'static str,
    want: &'static str,
    release: impl FnOnce(),
) -> Vec<Answer> {
    stack.sidecar().process().freeze();
    let crowd = Crowd::gather(stack, size, path, want);
    crowd.wait_inside(stack);
    release();
    crowd.answers()
}

fn all_are(answers: &[Answer], size: usize, status: u16, problem: bool) {
    assert_eq!(answers.len(), size);
    let is_problem = |answer: &Answer| answer.header("content-type") == Some("application/problem+json");
    let wrong = answers.iter().find(|answer| answer.status != status || is_problem(answer) != problem);
    assert!(wrong.is_none(), "{status} was expected, not {wrong:?}");
}

/// One round; every phase of it is `size` requests at once.
fn round(stack: &Running, size: usize) -> Memory {
    let (envoy, sidecar, many) = (stack.envoy(), stack.sidecar().process(), size as u64);
    let before = |counter: &str| envoy.kota(counter);

    let denied = before("denied.empty");
    let answers = storm(stack, size, "/", "deny", || sidecar.thaw());
    all_are(&answers, size, 429, true);
    assert_eq!(envoy.kota("denied.empty"), denied + many);
    eprintln!("{size} at once: denied");

    let closed = before("failed_closed.ledger.refused");
    let answers = storm(stack, size, "/", "allow", || stack.sidecar_faults[0].set(Fault::Cut));
    all_are(&answers, size, 503, true);
    assert_eq!(envoy.kota("failed_closed.ledger.refused"), closed + many);
    sidecar.thaw();
    stack.sidecar_faults[0].set(Fault::Pass);
    eprintln!("{size} at once: failed closed");

    let (allowed, spent) = (before("allowed.ledger"), rules::spent(stack));
    let answers = storm(stack, size, "/", "allow", || sidecar.thaw());
    all_are(&answers, size, 503, false); // Envoy's: there is no upstream
    assert!(answers.iter().all(|answer| answer.header("ratelimit").is_some()));
    eprintln!("{size} at once: allowed, without an upstream");

    let answers = storm(stack, size, "/direct", "allow", || sidecar.thaw());
    all_are(&answers, size, 200, false);
    eprintln!("{size} at once: allowed and answered within the callback");

    sidecar.freeze();
    let crowd = Crowd::gather(stack, size, "/direct", "allow");
    crowd.wait_inside(stack);
    crowd.leave();
    calm::await_stat(envoy, "http.api.downstream_rq_active", 0);
    sidecar.thaw();
    // Charged, though nobody heard of it, and therefore counted.
    calm::await_stat(envoy, "wasmcustom.kota.allowed.ledger", allowed + 3 * many + 1);
    assert_eq!(rules::spent(stack), spent + 3 * many + 1);
    eprintln!("{size} at once: gone while they waited");
    calm::settled(envoy)
}

fn at_once(size: usize) {
    let stack = stack();
    round(&stack, size); // fills the pools
    let first = round(&stack, size);
    round(&stack, size);
    calm::no_growth(stack.envoy(), first);
}

/// All wait for an answer that never comes, until their deadline.
fn silence(size: usize) {
    let stack = Stack::new().without_upstream().config(rules::config(2_000)).start();
    stack.sidecar().process().freeze();
    let answers = Crowd::gather(&stack, size, "/", "allow").answers();
    all_are(&answers, size, 503, true);
    assert_eq!(stack.envoy().kota("failed_closed.ledger.deadline"), size as u64);
    calm::settled(stack.envoy());
}

/// The shipped deadline and fail mode: whoever can't be decided in 5 ms passes, and is counted so. Half of it with a silent sidecar.
fn impatience(size: usize) {
    let mut config = rules::config(5);
    for rule in config["rules"].as_array_mut().expect("rules") {
        rule["failMode"] = json!("OPEN");
    }
    let stack = Stack::new().without_upstream().config(config).bootstrap(rules::answer_some_directly).start();
    for is_silent in [false, false, true] {
        if is_silent {
            stack.sidecar().process().freeze();
        }
        all_are(&Crowd::gather(&stack, size, "/direct", "allow").answers(), size, 200, false);
    }
    let counters = stack.envoy().kota_counters().into_iter();
    let own = counters.filter(|(name, _)| name.split('.').nth(1) == Some("own")).map(|(_, value)| value);
    assert_eq!(own.sum::<u64>(), 3 * size as u64);
    calm::settled(stack.envoy());
}

/// More wait than one worker lets wait: what is too much is refused at once, and all others are decided.
fn too_many(size: usize) {
    let stack = stack();
    stack.sidecar().process().freeze();
    let crowd = Crowd::gather(&stack, size, "/direct", "allow");
    calm::until(stack.envoy(), "all are inside or refused", || {
        let stats = calm::stats(stack.envoy());
        let of = |name: &str| stats.get(name).copied().unwrap_or(0);
        let (open, shed) =
            (of("http.api.downstream_rq_active"), of("wasmcustom.kota.failed_closed.ledger.shed"));
        (shed > 0 && open + shed == size as u64).then_some(())
    });
    stack.sidecar().process().thaw();
    let answers = crowd.answers();
    let of = |status: u16| answers.iter().filter(|answer| answer.status == status).count() as u64;
    assert_eq!(of(200) + of(503), size as u64);
    assert_eq!(of(503), stack.envoy().kota("failed_closed.ledger.shed"));
    calm::settled(stack.envoy());
}

#[test]
fn two_thousand_streams_at_once() {
    at_once(2_000);
}

#[test]
fn two_thousand_streams_that_nobody_answers() {
    silence(2_000);
}

#[test]
#[ignore = "minutes; make test-long"]
fn twenty_thousand_streams_at_once() {
    at_once(20_000);
}

#[test]
#[ignore = "minutes; make test-long"]
fn twenty_thousand_streams_that_nobody_answers() {
    silence(20_000);
}

#[test]
fn two_thousand_streams_with_the_shipped_deadline() {
    impatience(2_000);
}

#[test]
#[ignore = "minutes; make test-long"]
fn twenty_thousand_streams_with_the_shipped_deadline() {
    impatience(20_000);
}

#[test]
#[ignore = "minutes; make test-long"]
fn seventy_thousand_streams_are_too_many() {
    too_many(70_000);
}
