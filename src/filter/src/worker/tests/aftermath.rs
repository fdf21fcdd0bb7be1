//! Slots: every ending of a stream in every state of its check; renewals; what fails and comes back.

use super::*;
use crate::bill::Settlement;
use crate::bucket::Bucket;
use crate::exchange::Counter;
use crate::testing;
use crate::worker::outbox::{SETTLEMENT_MAX_US, WAITING_MAX};
use protocol::batch::{Batch, Outcome};

pub(super) const RULES: &str = r#"{ "rules": [
    { "id": "slow", "algorithm": "CONCURRENCY", "capacity": 5, "leaseSeconds": 9, "match": { "path": ["/c", "/cc"] } },
    { "id": "quick", "algorithm": "CONCURRENCY", "capacity": 5, "leaseSeconds": 3, "mode": "SHADOW", "match": { "path": "/cc" } },
    { "id": "free", "algorithm": "TOKEN_BUCKET", "capacity": 5, "refillPerSecond": 1, "match": { "path": "/t" } } ] }"#;

pub(super) fn limits() -> RuleSet {
    protocol::config::Config::parse(RULES.as_bytes()).unwrap().rules
}

/// One worker, and how it is driven.
struct Driven {
    worker: Worker<usize>,
    rules: RuleSet,
    now_us: u64,
    token: u32,
}

/// What a callout said, by rule and slot.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    checks: usize,
    released: Vec<(String, Vec<u8>)>,
    renewed: Vec<(String, Vec<u8>)>,
    given: Vec<u64>,
    taken: Vec<u64>,
}

impl Driven {
    fn new() -> Self {
        let mut worker = Worker::default();
        worker.seed(*b"the seed");
        Self { worker, rules: limits(), now_us: 0, token: 0 }
    }

    fn queue(&mut self, path: &str) -> Option<SlotId> {
        let check = testing::check(&self.rules, path, &[]);
        self.worker.queue(0, check, self.now_us + 5_000)
    }

    /// Sends what there is; none if there is nothing.
    fn send(&mut self) -> Option<(u32, Said)> {
        let callout = self.worker.next_callout(&self.rules, "d", self.now_us)?;
        let said = said(&decode_batch(&callout.body).unwrap());
        self.token += 1;
        self.worker.sent(self.token, callout, self.now_us);
        Some((self.token, said))
    }

    fn arrive(&mut self, token: u32, answers: Vec<Answer>) {
        let body = encode_answers(&Answers { answers, unavailable_for_ms: 0 }, VERSION).unwrap();
        self.worker.arrived(token, &genuine(&body), self.now_us);
        decided(&mut self.worker);
    }

    fn time_out(&mut self, token: u32) {
        let late = Arrival { headers: 3, genuine: false, status: Some(b"504"), body: b"" };
        self.worker.arrived(token, &late, self.now_us);
        decided(&mut self.worker);
    }

    fn tick(&mut self, passed_us: u64) {
        self.now_us += passed_us;
        self.worker.tick(self.now_us);
    }

    /// A slot that is held since now.
    fn held(&mut self, path: &str) -> SlotId {
        let slot = self.queue(path).unwrap();
        let (token, _) = self.send().unwrap();
        let outcomes = if path == "/cc" { vec![admit(), admit()] } else { vec![admit()] };
        self.arrive(token, vec![Answer::Admitted(outcomes)]);
        slot
    }

    fn lost(&mut self) -> Tally {
        let mut tally = Tally::new();
        self.worker.count_lost(&mut tally);
        tally
    }
}

fn said(batch: &Batch<'_>) -> Said {
    let slots = |slots: &[batch::Slot<'_>]| {
        let one =
            |slot: &batch::Slot<'_>| (batch.rules[usize::from(slot.rule)].id.to_owned(), slot.id.to_vec());
        slots.iter().map(one).collect()
    };
    let tokens = |charges: &[batch::Charge<'_>]| charges.iter().map(|charge| charge.tokens).collect();
    Said {
        checks: batch.checks.len(),
        released: slots(&batch.releases),
        renewed: slots(&batch.renewals),
        given: tokens(&batch.give_backs),
        taken: tokens(&batch.debits),
    }
}

fn admit() -> Outcome {
    Outcome { verdict: Verdict::Admit, left: 1, wait_ms: 0, leased: 0 }
}

fn wait() -> Outcome {
    Outcome { verdict: Verdict::Wait, left: 0, wait_ms: 9, leased: 0 }
}

fn of(rule: &str, slot: SlotId) -> (String, Vec<u8>) {
    (rule.to_owned(), slot.as_bytes().to_vec())
}

fn settlement(tokens: u64, gives: bool) -> Settlement {
    Settlement { bucket: Bucket { rule: 2, place: 0, key: Box::new([]) }, tokens, gives, asked_us: 0 }
}

#[test]
fn a_check_without_concurrency_takes_no_slot_and_each_slot_has_its_own_id() {
    let mut driven = Driven::new();
    assert_eq!(driven.queue("/t"), None);
    let (first, second) = (driven.queue("/c").unwrap(), driven.queue("/c").unwrap());
    assert_ne!(first, second);
    assert_eq!(&first.as_bytes()[..8], b"the seed");
    let callout = driven.worker.next_callout(&driven.rules, "d", 0).unwrap();
    let batch = decode_batch(&callout.body).unwrap();
    let slots: Vec<_> = batch.checks.iter().map(|check| check.slot).collect();
    assert_eq!(slots, [&b""[..], first.as_bytes(), second.as_bytes()]);
}

#[test]
fn cc_05_a_stream_that_ends_before_its_check_is_sent_takes_nothing() {
    let mut driven = Driven::new();
    let slot = driven.queue("/c").unwrap();
    driven.queue("/t");
    driven.worker.end(slot);
    let (_, said) = driven.send().unwrap();
    assert_eq!(said, Said { checks: 1, ..Said::default() });
    let slot = driven.queue("/c").unwrap();
    driven.worker.end(slot);
    assert!(driven.send().is_none(), "nothing is left to be asked");
    assert!(!driven.worker.holds_slots());
}

#[test]
fn cc_05_a_stream_that_ends_while_its_check_is_under_way_is_released_after_the_ruling() {
    for (answer, releases) in [
        (Some(Answer::Admitted(vec![admit()])), true),
        (Some(Answer::Denied(vec![wait()])), false),
        (Some(Answer::Unknown(Unknown::RedisTimeout)), true),
        (Some(Answer::Unknown(Unknown::Shed)), false),
        (None, true),
    ] {
        let mut driven = Driven::new();
        let slot = driven.queue("/c").unwrap();
        let (token, _) = driven.send().unwrap();
        driven.worker.end(slot);
        driven.worker.end(slot);
        assert!(driven.send().is_none(), "it must not overtake the check");
        match answer.clone() {
            Some(answer) => driven.arrive(token, vec![answer]),
            None => driven.time_out(token),
        }
        let released = driven.send().map_or(vec![], |(_, said)| said.released);
        assert_eq!(released, if releases { vec![of("slow", slot)] } else { vec![] }, "{answer:?}");
        assert!(!driven.worker.holds_slots());
    }
}

#[test]
fn cc_05_a_slot_that_is_held_or_may_be_is_released_once_when_its_stream_ends() {
    for answer in [Some(Answer::Admitted(vec![admit()])), Some(Answer::Unknown(Unknown::RedisError)), None] {
        let mut driven = Driven::new();
        let slot = driven.queue("/c").unwrap();
        let (token, _) = driven.send().unwrap();
        match answer {
            Some(answer) => driven.arrive(token, vec![answer]),
            None => driven.time_out(token),
        }
        assert!(driven.send().is_none());
        assert!(!driven.worker.wants_wake());
        driven.worker.end(slot);
        driven.worker.end(slot);
        assert!(driven.worker.wants_wake(), "nothing else would bring the next turn");
        let (token, said) = driven.send().unwrap();
        assert_eq!(said, Said { released: vec![of("slow", slot)], ..Said::default() });
        driven.arrive(token, vec![]);
        assert!(driven.send().is_none());
        assert!(driven.worker.is_idle() && !driven.worker.holds_slots());
    }
}

#[test]
fn what_never_left_or_is_denied_holds_nothing() {
    let mut driven = Driven::new();
    let denied = driven.queue("/c").unwrap();
    let (token, _) = driven.send().unwrap();
    driven.arrive(token, vec![Answer::Denied(vec![wait()])]);
    let refused = driven.queue("/c").unwrap();
    let callout = driven.worker.next_callout(&driven.rules, "d", driven.now_us).unwrap();
    driven.worker.refused(callout, Refusal::NotSent, driven.now_us);
    let late = driven.queue("/c").unwrap();
    driven.now_us += 4_500;
    assert!(driven.send().is_none(), "too late to be sent");
    [denied, refused, late].into_iter().for_each(|slot| driven.worker.end(slot));
    assert!(driven.send().is_none());
    assert!(!driven.worker.holds_slots());
}

#[test]
fn a_rule_that_only_watches_and_says_no_took_no_slot() {
    let mut driven = Driven::new();
    let slot = driven.queue("/cc").unwrap();
    let (token, _) = driven.send().unwrap();
    driven.arrive(token, vec![Answer::Admitted(vec![admit(), wait()])]);
    driven.worker.end(slot);
    let (token, said) = driven.send().unwrap();
    assert_eq!(said.released, [of("slow", slot)]);
    driven.arrive(token, vec![]);
    let slot = driven.held("/cc");
    driven.worker.end(slot);
    assert_eq!(driven.send().unwrap().1.released, [of("slow", slot), of("quick", slot)], "one id, two rules");
}

#[test]
fn releases_ride_with_checks_within_bounds_and_the_rest_goes_alone() {
    let mut driven = Driven::new();
    let slots: Vec<_> = (0..200).map(|_| driven.held("/c")).collect();
    slots.into_iter().for_each(|slot| driven.worker.end(slot));
    driven.queue("/t");
    let (first, said) = driven.send().unwrap();
    assert_eq!(said.checks, 1);
    assert!((1..=CHECKS_MAX).contains(&said.released.len()), "beside checks only a few");
    let beside = said.released.len();
    let (second, said) = driven.send().unwrap();
    assert_eq!((said.checks, said.released.len()), (0, 200 - beside), "alone all that is left");
    let slot = driven.held("/c");
    driven.worker.end(slot);
    assert!(driven.send().is_none(), "one callout of this kind at a time");
    driven.arrive(first, vec![Answer::Admitted(vec![admit()])]);
    assert!(driven.send().is_none());
    driven.arrive(second, vec![]);
    assert_eq!(driven.send().unwrap().1.released, [of("slow", slot)]);
}

#[test]
fn a_held_slot_is_renewed_each_third_of_its_shortest_lease() {
    let mut driven = Driven::new();
    let (slow, both) = (driven.held("/c"), driven.held("/cc"));
    let mut renewed = Vec::new();
    for _ in 0..90 {
        driven.tick(100_000);
        if let Some((token, said)) = driven.send() {
            renewed.push((driven.now_us / 1_000, said.renewed));
            driven.arrive(token, vec![]);
        }
    }
    let two = || vec![of("slow", both), of("quick", both)];
    let mut expected: Vec<_> = (1..=9).map(|second| (second * 1_000, two())).collect();
    for third in [2, 5, 8] {
        expected[third].1.insert(0, of("slow", slow));
    }
    renewed.iter_mut().chain(&mut expected).for_each(|(_, slots)| slots.sort());
    assert_eq!(renewed, expected);
    driven.worker.end(slow);
    driven.worker.end(both);
    driven.send();
    driven.tick(60_000_000);
    assert!(driven.send().is_none(), "what is released is not renewed");
}

#[test]
fn a_renewal_that_fails_comes_sooner_and_the_slot_is_renewed_within_its_lease() {
    let mut driven = Driven::new();
    driven.held("/cc");
    let mut sent_ms = Vec::new();
    while driven.now_us < 3_000_000 {
        driven.tick(100_000);
        if let Some((token, said)) = driven.send() {
            assert_eq!(said.renewed.len(), 2);
            sent_ms.push(driven.now_us / 1_000);
            driven.time_out(token);
        }
    }
    assert!(sent_ms.len() >= 3, "{sent_ms:?}");
    assert!(sent_ms.len() <= 10, "bounded: {sent_ms:?}");
}

#[test]
fn cc_01_a_failed_release_is_tried_again_until_its_lease_is_over_and_then_counted() {
    let mut driven = Driven::new();
    let slot = driven.held("/c");
    driven.worker.end(slot);
    let mut sent_ms = Vec::new();
    while driven.now_us < 20_000_000 {
        if let Some((token, said)) = driven.send() {
            assert_eq!(said.released, [of("slow", slot)]);
            sent_ms.push(driven.now_us / 1_000);
            assert!(driven.send().is_none(), "once at a time");
            driven.time_out(token);
        }
        assert!(!driven.worker.wants_wake(), "nothing before the pause is over");
        driven.tick(100_000);
    }
    assert_eq!(sent_ms, [0, 200, 600, 1_400, 3_000, 6_200]);
    assert!(driven.worker.is_idle());
    assert_eq!(driven.lost(), [(0, Counter::SlotLost)]);
    assert!(driven.lost().is_empty());
}

#[test]
fn any_answer_ends_the_pause() {
    let mut driven = Driven::new();
    let slot = driven.held("/c");
    driven.worker.end(slot);
    let (token, _) = driven.send().unwrap();
    driven.time_out(token);
    driven.queue("/t");
    let (token, said) = driven.send().unwrap();
    assert_eq!((said.checks, said.released.len()), (1, 0), "checks go as ever, alone");
    driven.arrive(token, vec![Answer::Admitted(vec![admit()])]);
    assert_eq!(driven.send().unwrap().1.released, [of("slow", slot)]);
}

#[test]
fn too_many_releases_are_left_to_the_lease_and_counted() {
    let mut driven = Driven::new();
    let slots: Vec<_> = (0..=WAITING_MAX).map(|_| driven.held("/c")).collect();
    slots.into_iter().for_each(|slot| driven.worker.end(slot));
    assert_eq!(driven.lost(), [(0, Counter::SlotLost)]);
    driven.worker.abandon();
    assert_eq!(driven.lost().len(), WAITING_MAX);
    assert!(driven.worker.is_idle());
}

#[test]
fn settlements_go_both_ways_and_only_what_certainly_was_not_sent_comes_back() {
    let mut driven = Driven::new();
    driven.worker.settle([settlement(3, true), settlement(4, false)], 0);
    let callout = driven.worker.next_callout(&driven.rules, "d", 0).unwrap();
    driven.worker.refused(callout, Refusal::NotSent, 0);
    assert!(driven.send().is_none());
    driven.tick(200_000);
    let (token, said) = driven.send().unwrap();
    assert_eq!((said.given, said.taken), (vec![3], vec![4]));
    driven.time_out(token);
    driven.tick(10_000_000);
    assert!(driven.send().is_none(), "it may have arrived");
    assert_eq!(driven.lost(), [(2, Counter::SettlementLost); 2]);
}

#[test]
fn a_settlement_says_how_old_it_is_when_it_goes() {
    let mut driven = Driven::new();
    let asked = |asked_us| Settlement { asked_us, ..settlement(3, true) };
    driven.tick(70_000_000);
    driven.worker.settle([asked(500), asked(69_999_999), asked(70_000_000)], driven.now_us);
    driven.worker.settle([Settlement { asked_us: 1_000, ..settlement(4, false) }], driven.now_us);
    let callout = driven.worker.next_callout(&driven.rules, "d", driven.now_us).unwrap();
    driven.worker.refused(callout, Refusal::NotSent, driven.now_us);
    driven.tick(200_000);
    let callout = driven.worker.next_callout(&driven.rules, "d", driven.now_us).unwrap();
    let batch = decode_batch(&callout.body).unwrap();
    let ages = |charges: &[batch::Charge<'_>]| charges.iter().map(|charge| charge.age_ms).collect::<Vec<_>>();
    assert_eq!(ages(&batch.give_backs), [70_200, 201, 200], "parts of a millisecond count as whole ones");
    assert_eq!(ages(&batch.debits), [70_199]);
}

#[test]
fn a_settlement_that_was_never_sent_is_given_up_after_a_time() {
    let mut driven = Driven::new();
    driven.worker.settle([settlement(3, true)], 0);
    driven.tick(30_000_000);
    driven.worker.settle([settlement(4, true)], driven.now_us);
    while driven.now_us < SETTLEMENT_MAX_US - 5_000_000 {
        let callout = driven.worker.next_callout(&driven.rules, "d", driven.now_us).unwrap();
        driven.worker.refused(callout, Refusal::NotSent, driven.now_us);
        driven.tick(5_000_000);
    }
    assert!(driven.lost().is_empty());
    driven.tick(SETTLEMENT_MAX_US - driven.now_us);
    assert_eq!(driven.lost(), [(2, Counter::SettlementLost)]);
    assert_eq!(driven.send().unwrap().1.given, [4], "known later");
}
