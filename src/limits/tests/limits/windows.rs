//! The sliding window counter.

use limits::decision::Verdict::{Admit, Never, Wait};
use limits::sliding_window::{SlidingWindow, Windows};

/// A moment at which a window of any length that divides a day begins, in milliseconds.
const MIDNIGHT: u64 = 1_789_948_800_000;

fn window(capacity: u64, window_s: u64) -> SlidingWindow {
    SlidingWindow::new(capacity, window_s).unwrap()
}

fn counted(current: u64, previous: u64) -> Option<Windows> {
    Some(Windows { start_ms: MIDNIGHT, current, previous })
}

#[test]
fn the_share_of_the_previous_window_that_is_still_covered_counts() {
    // 42 in the previous minute and 18 by second 15 of this one: 42 × 45/60 + 18 = 49.5.
    let now = MIDNIGHT + 15_000;
    assert_eq!(window(50, 60).ask(counted(18, 42), now, 1), Wait, "50.5 is above 50");
    assert_eq!(window(51, 60).ask(counted(18, 42), now, 1), Admit, "50.5 is within 51");
    let outcome = window(50, 60).refuse(counted(18, 42), now, 1);
    assert_eq!(outcome.left, 0, "half a request is none");
    // 42 × r/60 + 19 ≤ 50 from r = 44.285 s on, which is 715 ms later.
    assert_eq!(outcome.wait_ms, 715);
    assert_eq!(window(50, 60).ask(counted(18, 42), now + 714, 1), Wait);
    assert_eq!(window(50, 60).ask(counted(18, 42), now + 715, 1), Admit);
}

#[test]
fn a_capacity_of_one_admits_one_and_then_one_when_it_has_slid_by() {
    let limit = window(1, 60);
    let (outcome, write) = limit.charge(None, MIDNIGHT + 10_000, 1);
    assert_eq!(
        (outcome.left, outcome.wait_ms),
        (0, 110_000),
        "until nothing of the window before this is covered"
    );
    let write = write.unwrap();
    assert_eq!(write.state, Windows { start_ms: MIDNIGHT, current: 1, previous: 0 });
    assert_eq!(write.ttl_ms, 111_000);
    assert_eq!(limit.ask(Some(write.state), MIDNIGHT + 119_999, 1), Wait);
    assert_eq!(limit.ask(Some(write.state), MIDNIGHT + 120_000, 1), Admit);
    assert_eq!(limit.ask(Some(write.state), MIDNIGHT + 120_000, 2), Never);
}

#[test]
fn a_clock_that_went_back_forgets_nothing_and_an_old_state_counts_for_nothing() {
    let limit = window(10, 60);
    assert_eq!(limit.refuse(counted(4, 0), MIDNIGHT - 5_000, 1).left, 6);
    assert_eq!(limit.refuse(counted(4, 0), MIDNIGHT + 60_000, 1).left, 6);
    assert_eq!(limit.refuse(counted(4, 0), MIDNIGHT + 120_000, 1).left, 10);
}

#[test]
fn what_is_settled_moves_both_ways_within_bounds() {
    let limit = window(10, 60);
    let given = |age_ms| {
        let state = limit.give(counted(4, 5), MIDNIGHT + 100, 3, age_ms).unwrap().state;
        (state.current, state.previous)
    };
    assert_eq!([0, 100].map(given), [(1, 5); 2], "taken in the current window");
    assert_eq!([101, 60_100].map(given), [(4, 2); 2], "taken in the one before");
    assert_eq!([60_101, u64::MAX].map(given), [(4, 5); 2], "taken before that");
    let all = limit.give(counted(4, 5), MIDNIGHT, 6, 0).unwrap().state;
    assert_eq!((all.current, all.previous), (0, 5), "no more than there is, and not of the other");
    assert_eq!(limit.give(None, MIDNIGHT, 6, 0), None);
    assert_eq!(limit.take(counted(9, 0), MIDNIGHT, 5).state.current, 14, "a debt");
    assert_eq!(limit.take(counted(9, 0), MIDNIGHT, 1_000).state.current, 20, "of at most one capacity more");
    assert_eq!(limit.take(counted(25, 0), MIDNIGHT, 1_000).state.current, 25, "the capacity was lowered");
}
