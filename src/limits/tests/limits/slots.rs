//! Concurrency.

use limits::concurrency::{Concurrency, Slots};
use limits::decision::Verdict::{Admit, Wait};

const NOW: u64 = 1_790_000_000_000;

fn limit(capacity: u64) -> Concurrency {
    Concurrency::new(capacity, 30).unwrap()
}

/// Takes a slot that is free.
fn take(limit: Concurrency, slots: Slots, now_ms: u64, id: &[u8]) -> Slots {
    assert_eq!(limit.ask(&slots, now_ms, id), Admit);
    limit.charge(&slots, now_ms, id).1.map_or(slots, |write| write.state)
}

#[test]
fn so_many_at_once_and_the_next_when_one_is_released_or_its_lease_ends() {
    let limit = limit(2);
    let slots = take(limit, take(limit, Slots::default(), NOW, b"a"), NOW + 10, b"b");
    let outcome = limit.refuse(&slots, NOW + 20, b"c");
    assert_eq!((outcome.verdict, outcome.left, outcome.wait_ms), (Wait, 0, 29_980));
    let released = limit.release(slots.clone(), NOW + 20, b"b").state;
    assert_eq!(limit.ask(&released, NOW + 20, b"c"), Admit);
    assert_eq!(limit.ask(&slots, NOW + 29_999, b"c"), Wait);
    assert_eq!(limit.ask(&slots, NOW + 30_000, b"c"), Admit);
}

#[test]
fn a_renewed_lease_goes_on_and_one_that_is_gone_is_not_brought_back() {
    let limit = limit(1);
    let slots = take(limit, Slots::default(), NOW, b"a");
    let slots = limit.renew(slots, NOW + 20_000, b"a").unwrap().state;
    assert_eq!(limit.ask(&slots, NOW + 49_999, b"b"), Wait);
    assert_eq!(limit.renew(slots.clone(), NOW + 20_000, b"x"), None);
    let slots = limit.release(slots, NOW + 21_000, b"a").state;
    assert!(slots.is_empty());
    assert_eq!(limit.renew(slots, NOW + 22_000, b"a"), None);
}

#[test]
fn cc_04_a_release_that_is_early_late_or_repeated_frees_nothing_else() {
    let limit = limit(1);
    let early = limit.release(Slots::default(), NOW, b"a").state;
    assert_eq!(early.live(NOW), 0);
    let (outcome, write) = limit.charge(&early, NOW + 1, b"a");
    assert_eq!((outcome.verdict, outcome.left, write), (Admit, 1, None), "it was released already");
    let slots = take(limit, early, NOW + 1, b"b");
    assert_eq!(slots.live(NOW + 1), 1);
    let slots = limit.release(limit.release(slots, NOW + 2, b"c").state, NOW + 3, b"c").state;
    assert_eq!(slots.live(NOW + 3), 1, "b still holds its slot");
    assert_eq!(limit.renew(slots, NOW + 4, b"c"), None, "a tombstone is no slot");
}

#[test]
fn the_same_slot_is_taken_once() {
    let limit = limit(2);
    let slots = take(limit, Slots::default(), NOW, b"a");
    assert_eq!(take(limit, slots, NOW + 1, b"a").live(NOW + 1), 1);
}

#[test]
fn a_shorter_lease_forgets_no_slot_that_was_taken_on_a_longer_one() {
    let long = limit(3);
    let short = Concurrency::new(3, 2).unwrap();
    let slots = take(long, take(long, Slots::default(), NOW, b"a"), NOW, b"b");
    let write = short.charge(&slots, NOW + 1_000, b"c").1.unwrap();
    assert_eq!(write.ttl_ms, 30_000, "29 s of the longer leases, and a second");
    assert_eq!(short.ask(&write.state, NOW + 1_500, b"d"), Wait);
    assert_eq!(short.release(write.state, NOW + 1_500, b"c").ttl_ms, 29_500);
}
