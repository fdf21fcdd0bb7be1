use super::*;
use protocol::batch::{Charge, Slot};

/// At most one at once, for ten seconds.
fn one_at_once(id: &str) -> RuleForm<'_> {
    RuleForm { algorithm: Algorithm::Concurrency { capacity: 1, lease_s: 10 }, ..bucket(id, 1) }
}

fn holding<'a>(slot: &'a [u8]) -> Check<'a> {
    Check { slot, ..check(b"a", 0..1) }
}

fn key(client: &[u8]) -> Vec<Value<'_>> {
    vec![Value { kind: "api_key", bytes: Some(client), secret: true }]
}

fn slot(rule: u16, id: &[u8]) -> Slot<'_> {
    Slot { rule, key: key(b"a"), id }
}

fn charge(rule: u16, tokens: u64) -> Charge<'static> {
    Charge { rule, key: key(b"a"), tokens, age_ms: 0 }
}

fn metric(decider: &Decider, name: &str) -> u64 {
    let text = decider.metrics.render(&decider.store);
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn a_slot_that_is_released_is_free_for_the_checks_of_the_same_batch() {
    let decider = decider();
    let take = |slot| batch(vec![one_at_once("slots")], vec![holding(slot)]);
    assert!(matches!(send(&decider, &take(b"1")).await.unwrap()[0], Answer::Admitted(_)));
    assert!(matches!(send(&decider, &take(b"2")).await.unwrap()[0], Answer::Denied(_)));
    let next = Batch { releases: vec![slot(0, b"1")], ..take(b"2") };
    assert!(matches!(send(&decider, &next).await.unwrap()[0], Answer::Admitted(_)));
    let renewals = vec![slot(0, b"2"), slot(0, b"1")];
    let renewal = Batch { renewals, ..batch(vec![one_at_once("slots")], vec![]) };
    assert_eq!(send(&decider, &renewal).await, Ok(vec![]), "a batch of extras alone has no answers");
    assert_eq!(metric(&decider, "kota_slots_released_total"), 1);
    assert_eq!(metric(&decider, "kota_slots_renewed_total"), 1, "the one that is held");
    assert_eq!(metric(&decider, "kota_lost_changes_total"), 0);
}

#[tokio::test]
async fn tokens_go_both_ways_before_the_checks() {
    let decider = decider();
    let rules = vec![bucket("ten", 10)];
    let taking = batch(
        rules.clone(),
        vec![Check { calls: vec![Call { rule: 0, cost: 6, key: vec![0] }], ..check(b"a", 0..1) }],
    );
    assert_eq!(left(&send(&decider, &taking).await.unwrap()[0]), [4]);
    let ask = || batch(rules.clone(), vec![check(b"a", 0..1)]);
    let given = Batch { give_backs: vec![charge(0, 4), charge(0, 0)], ..ask() };
    assert_eq!(left(&send(&decider, &given).await.unwrap()[0]), [7]);
    let debited = Batch { debits: vec![charge(0, 9)], ..ask() };
    let answer = &send(&decider, &debited).await.unwrap()[0];
    assert!(matches!(answer, Answer::Denied(_)), "a debt of two");
    assert_eq!(metric(&decider, "kota_settled_total{direction=\"give\"}"), 1);
    assert_eq!(metric(&decider, "kota_settled_total{direction=\"take\"}"), 1);
}

#[tokio::test]
async fn extras_that_do_not_fit_their_rule_are_malformed_and_change_nothing() {
    let decider = decider();
    let good = batch(vec![bucket("ten", 10), one_at_once("slots")], vec![]);
    let odd = vec![Value { kind: "user:x}", bytes: Some(b"a"), secret: false }];
    for bad in [
        Batch { releases: vec![slot(0, b"1")], ..good.clone() },
        Batch { renewals: vec![slot(0, b"1")], ..good.clone() },
        Batch { releases: vec![slot(1, b"")], ..good.clone() },
        Batch { give_backs: vec![charge(1, 1)], ..good.clone() },
        Batch { debits: vec![charge(0, 1), charge(1, 1)], ..good.clone() },
        Batch { releases: vec![slot(2, b"1")], ..good.clone() },
        Batch { give_backs: vec![Charge { key: odd, ..charge(0, 1) }], ..good.clone() },
    ] {
        assert_eq!(send(&decider, &bad).await, Err(Malformed), "{bad:?}");
    }
    let AnyStore::Memory(store) = decider.store() else { panic!() };
    assert!(store.is_empty());
    let later = Algorithm::SlidingWindow { capacity: 1, window_s: 0 };
    let later = Batch {
        rules: vec![RuleForm { algorithm: later, ..bucket("later", 1) }],
        debits: vec![charge(0, 1)],
        ..good
    };
    assert_eq!(send(&decider, &later).await, Ok(vec![]), "a rule of another version is left out");
}

#[tokio::test]
async fn only_a_check_of_a_changed_bucket_waits_for_the_change() {
    let decider = decider();
    let mut asks = Asks::default();
    for (key, slot) in [("changed", "1"), ("other", "2"), ("changed", "3")] {
        let limit = Limit::Concurrency(Concurrency::new(9, 10).unwrap());
        asks.call(limit, None, 1, false, |into| into.extend_from_slice(key.as_bytes()));
        asks.slot(slot.as_bytes());
        assert!(asks.end_check());
    }
    let changed = HashSet::from([b"changed".to_vec()]);
    let soon = Instant::now() + Duration::from_millis(50);
    let never = tokio::spawn(std::future::pending());
    let answers = decider.ask_in_order(never, &changed, &asks, soon).await;
    let late = Answer::Unknown(Unknown::RedisTimeout);
    assert_eq!((&answers[0], left(&answers[1]), &answers[2]), (&late, vec![8], &late));
    let at_once = tokio::spawn(async { Vec::new() });
    let long = Instant::now() + Duration::from_secs(60);
    let answers = decider.ask_in_order(at_once, &changed, &asks, long).await;
    let lefts: Vec<_> = answers.iter().map(left).collect();
    assert_eq!(lefts, [[8], [8], [7]], "the slot of the second was held already");
}
