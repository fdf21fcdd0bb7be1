//! AL-14 of windows, slots and penalties: parameters that make no limit, and states and times that no honest clock or store has.

use limits::concurrency::{CAPACITY_MAX as SLOTS_MAX, Concurrency, ConcurrencyError, LEASE_MAX_S, Slots};
use limits::decision::{Bucket, Charge, Limit, State, decide};
use limits::penalty::{DENIALS_MAX, Penalty, PenaltyError, Strikes, TIME_MAX_S};
use limits::refill::Refill;
use limits::settle::{Settlement, settle};
use limits::sliding_window::{SlidingWindow, SlidingWindowError, WINDOW_MAX_S, Windows};
use limits::token_bucket::{CAPACITY_MAX, TIME_TO_FULL_MAX_S, TokenBucket, Used};

const NOW_US: u64 = 1_790_000_000_000_000;
const NUMBERS: [u64; 4] = [0, 1, NOW_US / 1_000, u64::MAX];
const TIMES_US: [u64; 4] = [0, 1, NOW_US, u64::MAX];

#[test]
fn al_14_parameters_that_make_no_window_no_slots_and_no_penalty_are_refused() {
    let window = |capacity, window_s| SlidingWindow::new(capacity, window_s).map(|_| ());
    for capacity in [0, CAPACITY_MAX + 1, u64::MAX] {
        assert_eq!(window(capacity, 60), Err(SlidingWindowError::Capacity));
    }
    for window_s in [0, WINDOW_MAX_S + 1, u64::MAX] {
        assert_eq!(window(1, window_s), Err(SlidingWindowError::Window));
    }
    assert_eq!(window(CAPACITY_MAX, WINDOW_MAX_S), Ok(()));
    let slots = |capacity, lease_s| Concurrency::new(capacity, lease_s).map(|_| ());
    for capacity in [0, SLOTS_MAX + 1, u64::MAX] {
        assert_eq!(slots(capacity, 10), Err(ConcurrencyError::Capacity));
    }
    for lease_s in [0, LEASE_MAX_S + 1, u64::MAX] {
        assert_eq!(slots(1, lease_s), Err(ConcurrencyError::Lease));
    }
    let penalty = |denials, within_s, for_s| Penalty::new(denials, within_s, for_s, stricter()).map(|_| ());
    for denials in [0, DENIALS_MAX + 1, u64::MAX] {
        assert_eq!(penalty(denials, 1, 1), Err(PenaltyError::Denials));
    }
    for time_s in [0, TIME_MAX_S + 1, u64::MAX] {
        assert_eq!(penalty(1, time_s, 1), Err(PenaltyError::Within));
        assert_eq!(penalty(1, 1, time_s), Err(PenaltyError::For));
    }
}

fn stricter() -> TokenBucket {
    TokenBucket::new(1, Refill::NEVER, TIME_TO_FULL_MAX_S).unwrap()
}

/// Decides and settles; the numbers that come out are numbers that can be shown.
fn holds(limit: Limit, penalty: Option<Penalty>, bucket: &Bucket, now_us: u64) {
    for cost in [0, 1, CAPACITY_MAX, u64::MAX] {
        let bucket = Some(bucket);
        let charge = Charge { limit, penalty, cost, shadow: false, slot: b"x", bucket };
        let (_, rulings) = decide(now_us, &[charge]);
        assert!(rulings[0].outcome.left <= limit.capacity());
        for settlement in [Settlement::Give, Settlement::Take] {
            for age_ms in NUMBERS {
                let _ = settle(&limit, penalty.as_ref(), bucket, now_us, settlement, cost, age_ms);
            }
        }
    }
}

#[test]
fn al_14_extreme_windows_make_no_extreme_numbers() {
    for (capacity, window_s) in [(1, 1), (1, WINDOW_MAX_S), (CAPACITY_MAX, 60)] {
        let limit = Limit::SlidingWindow(SlidingWindow::new(capacity, window_s).unwrap());
        for start_ms in NUMBERS {
            for current in NUMBERS {
                for previous in NUMBERS {
                    let state = State::Windows(Windows { start_ms, current, previous });
                    for now_us in TIMES_US {
                        holds(limit, None, &Bucket { state: state.clone(), strikes: None }, now_us);
                    }
                }
            }
        }
    }
}

#[test]
fn al_14_extreme_penalties_make_no_extreme_numbers() {
    let penalty = Penalty::new(1, TIME_MAX_S, TIME_MAX_S, stricter()).unwrap();
    let limit =
        Limit::TokenBucket(TokenBucket::new(CAPACITY_MAX, Refill::new(1_000_000, 1).unwrap(), 0).unwrap());
    let state = State::Used(Used { micro_tokens: u64::MAX, at_us: NOW_US });
    for first_ms in NUMBERS {
        for denials in NUMBERS {
            for until_ms in NUMBERS {
                for at_us in TIMES_US {
                    let used = Used { micro_tokens: denials, at_us };
                    let strikes = Some(Strikes { first_ms, denials, until_ms, used });
                    for now_us in TIMES_US {
                        holds(limit, Some(penalty), &Bucket { state: state.clone(), strikes }, now_us);
                    }
                }
            }
        }
    }
}

#[test]
fn al_14_extreme_times_make_no_extreme_slots() {
    let limit = Concurrency::new(SLOTS_MAX, LEASE_MAX_S).unwrap();
    for first_ms in NUMBERS {
        for now_ms in NUMBERS {
            let slots = limit.charge(&Slots::default(), first_ms, b"a").1.unwrap().state;
            let slots = limit.release(slots, now_ms, b"b").state;
            let slots = limit.renew(slots.clone(), now_ms, b"a").map_or(slots, |write| write.state);
            assert!(limit.refuse(&slots, now_ms, b"c").left <= SLOTS_MAX);
            holds(
                Limit::Concurrency(limit),
                None,
                &Bucket { state: State::Slots(slots), strikes: None },
                now_ms,
            );
        }
    }
}
