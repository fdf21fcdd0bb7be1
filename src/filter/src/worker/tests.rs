//! The worker driven by values: who is sent when, and what becomes of those who are not.

use super::*;
use protocol::batch::{Answers, Unknown, VERSION, decode_batch, encode_answers};

fn rules() -> RuleSet {
    let json = br#"{ "rules": [ { "id": "r", "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1 } ] }"#;
    protocol::config::Config::parse(json).unwrap().rules
}

fn loaded(checks: usize, deadline_us: u64) -> Worker<usize> {
    let mut worker = Worker::default();
    (0..checks).for_each(|stream| _ = worker.queue(stream, Pending::default(), deadline_us));
    worker
}

fn answer(checks: usize) -> Vec<u8> {
    let answers = vec![Answer::Admitted(vec![]); checks];
    encode_answers(&Answers { answers, unavailable_for_ms: 0 }, VERSION).unwrap()
}

fn genuine(body: &[u8]) -> Arrival<'_> {
    Arrival { headers: 2, genuine: true, status: None, body }
}

fn decided(worker: &mut Worker<usize>) -> Vec<(usize, Ruling)> {
    std::iter::from_fn(|| worker.next_decided()).collect()
}

#[test]
fn batches_are_bounded_and_so_is_what_is_in_flight() {
    let (rules, mut worker) = (rules(), loaded(1_000, 5_000));
    for token in 0..CALLOUTS_MAX {
        let callout = worker.next_callout(&rules, "d", 0).unwrap();
        assert_eq!(decode_batch(&callout.body).unwrap().checks.len(), CHECKS_MAX);
        assert_eq!(callout.timeout_ms, 5);
        worker.sent(u32::try_from(token).unwrap(), callout, 0);
    }
    assert!(worker.next_callout(&rules, "d", 0).is_none());
    assert!(!worker.wants_wake(), "a returning callout will bring the next turn");
    worker.arrived(0, &genuine(&answer(CHECKS_MAX)), 0);
    let streams: Vec<_> = decided(&mut worker).into_iter().map(|(stream, _)| stream).collect();
    assert_eq!(streams, (0..CHECKS_MAX).collect::<Vec<_>>(), "in the order of the body");
    assert!(worker.next_callout(&rules, "d", 0).is_some());
}

#[test]
fn the_timeout_is_what_is_left_of_the_oldest_and_the_late_are_not_sent() {
    let (rules, mut worker) = (rules(), Worker::default());
    for (stream, deadline_us) in [(1, 1_500), (2, 2_900), (3, 9_000)] {
        worker.queue(stream, Pending::default(), deadline_us);
    }
    let callout = worker.next_callout(&rules, "d", 700).unwrap();
    assert_eq!(callout.timeout_ms, 2, "2.2 ms, in whole ms");
    assert_eq!(decided(&mut worker), [(1, Ruling::Failed(Reason::Deadline))], "0.8 ms are too few");
    worker.queue(4, Pending::default(), 1_000_000);
    assert_eq!(worker.next_callout(&rules, "d", 999_000).unwrap().timeout_ms, 1, "never 0, which is none");
}

#[test]
fn one_wake_at_a_time() {
    let mut worker = loaded(2, 5_000);
    assert!(worker.wants_wake());
    assert!(!worker.wants_wake(), "it is under way");
    worker.woken();
    assert!(worker.wants_wake(), "still something to do");
    assert!(!loaded(0, 0).wants_wake());
}

#[test]
fn a_refused_callout_fails_its_checks_with_the_reason() {
    let rules = rules();
    let refused = |in_flight: bool, refusal| {
        let mut worker = loaded(1, 5_000);
        if in_flight {
            let other = worker.next_callout(&rules, "d", 0).unwrap();
            worker.sent(9, other, 0);
            worker.queue(1, Pending::default(), 5_000);
        }
        let callout = worker.next_callout(&rules, "d", 0).unwrap();
        worker.refused(callout, refusal, 0);
        decided(&mut worker).pop().unwrap().1
    };
    assert_eq!(refused(false, Refusal::NoCluster), Ruling::Failed(Reason::NoCluster));
    assert_eq!(refused(false, Refusal::NotSent), Ruling::Failed(Reason::NoHost));
    assert_eq!(refused(true, Refusal::NotSent), Ruling::Failed(Reason::Overflow));
}

#[test]
fn an_answer_of_the_wrong_length_decides_nothing_and_an_unknown_token_is_ignored() {
    let (rules, mut worker) = (rules(), loaded(2, 5_000));
    let callout = worker.next_callout(&rules, "d", 0).unwrap();
    worker.sent(7, callout, 0);
    worker.arrived(8, &genuine(&answer(2)), 0);
    assert!(decided(&mut worker).is_empty());
    worker.arrived(7, &genuine(&answer(1)), 0);
    let garbage = Ruling::Failed(Reason::Garbage);
    assert_eq!(decided(&mut worker), [(0, garbage.clone()), (1, garbage)]);
    assert!(worker.is_idle());
}

#[test]
fn an_answer_that_breaks_off_is_late_only_if_its_time_can_be_over() {
    for (now_us, reason) in [(2_499, Reason::Refused), (2_500, Reason::Deadline)] {
        let (rules, mut worker) = (rules(), loaded(1, 5_000));
        let callout = worker.next_callout(&rules, "d", 0).unwrap();
        worker.sent(7, callout, 0);
        worker.arrived(7, &Arrival { headers: 0, ..genuine(b"") }, now_us);
        assert_eq!(decided(&mut worker), [(0, Ruling::Failed(reason))], "{now_us}");
    }
}

#[test]
fn one_unknown_does_not_fail_the_batch() {
    let (rules, mut worker) = (rules(), loaded(2, 5_000));
    let callout = worker.next_callout(&rules, "d", 0).unwrap();
    worker.sent(7, callout, 0);
    let answers = vec![Answer::Unknown(Unknown::RedisError), Answer::Admitted(vec![])];
    worker.arrived(
        7,
        &genuine(&encode_answers(&Answers { answers, unavailable_for_ms: 0 }, VERSION).unwrap()),
        0,
    );
    let expected = [(0, Ruling::Failed(Reason::RedisError)), (1, Ruling::Decided(Answer::Admitted(vec![])))];
    assert_eq!(decided(&mut worker), expected);
}

#[test]
fn a_full_queue_sheds() {
    let mut worker = loaded(QUEUE_MAX + 1, 5_000);
    assert_eq!(decided(&mut worker), [(QUEUE_MAX, Ruling::Failed(Reason::Shed))]);
}

mod aftermath;
mod histories;
