//! The token bucket by example.

use limits::decision::Verdict;
use limits::refill::{Refill, RefillError};
use limits::token_bucket::{
    CAPACITY_MAX, TIME_TO_FULL_MAX_S, TTL_SLACK_MS, TokenBucket, TokenBucketError, Used,
};

const SECOND: u64 = 1_000_000;
/// Some time in 2026, in microseconds.
const START: u64 = 1_790_000_000 * SECOND;

fn bucket(capacity: u64, per_second: &str) -> TokenBucket {
    TokenBucket::new(capacity, Refill::from_decimal(per_second).unwrap(), 3_600).unwrap()
}

/// Asks for `cost`, and charges it where it is admitted.
fn take(bucket: &TokenBucket, state: &mut Option<Used>, now_us: u64, cost: u64) -> (Verdict, u64, u64) {
    let mut outcome = bucket.refuse(*state, now_us, cost);
    if outcome.verdict == Verdict::Admit {
        let (charged, write) = bucket.charge(*state, now_us, cost);
        *state = write.map_or(*state, |write| Some(write.state));
        outcome = charged;
    }
    (outcome.verdict, outcome.left, outcome.wait_ms)
}

#[test]
fn al_01_rates_below_one_a_second_refill_however_often_they_are_polled() {
    for (rate, every_us) in [("0.0167", 59_880_240), ("0.0166666667", 59_999_999)] {
        let bucket = bucket(1, rate);
        let mut state = None;
        let polls = (0..=1_500).map(|poll| START + poll * SECOND / 5);
        let admitted: Vec<_> =
            polls.filter(|now| take(&bucket, &mut state, *now, 1).0 == Verdict::Admit).collect();
        assert_eq!(admitted.first(), Some(&START), "{rate}");
        assert!(admitted.len() >= 5, "{rate}: starved after {} admissions", admitted.len());
        for pair in admitted.windows(2) {
            let gap = pair[1] - pair[0];
            assert!((every_us..every_us + 300_000).contains(&gap), "{rate}: {gap} us apart");
        }
    }
}

#[test]
fn al_01_one_a_day_to_a_million_a_second() {
    let daily = bucket(1, "0.0000115741");
    let mut state = None;
    assert_eq!(take(&daily, &mut state, START, 1), (Verdict::Admit, 0, 86_399_807));
    assert_eq!(take(&daily, &mut state, START + 86_399 * SECOND, 1), (Verdict::Wait, 0, 807));
    assert_eq!(take(&daily, &mut state, START + 86_400 * SECOND, 1).0, Verdict::Admit);
    let fastest = bucket(CAPACITY_MAX, "1000000");
    let mut state = None;
    assert_eq!(take(&fastest, &mut state, START, CAPACITY_MAX), (Verdict::Admit, 0, 1_000_000));
    assert_eq!(take(&fastest, &mut state, START + 1, 1), (Verdict::Admit, 0, 1));
    assert_eq!(take(&fastest, &mut state, START + 1, 1).0, Verdict::Wait);
}

#[test]
fn al_03_what_is_denied_costs_nothing() {
    let bucket = bucket(10, "0.01");
    let mut state = None;
    assert_eq!(take(&bucket, &mut state, START, 8), (Verdict::Admit, 2, 600_000));
    let after_8 = state;
    assert_eq!(take(&bucket, &mut state, START, 5), (Verdict::Wait, 2, 300_000));
    assert_eq!(state, after_8);
    assert_eq!(take(&bucket, &mut state, START, 1), (Verdict::Admit, 1, 0));
    assert_eq!(take(&bucket, &mut state, START, 1), (Verdict::Admit, 0, 100_000));
    let empty = state;
    assert_eq!(take(&bucket, &mut state, START, 1_000_000), (Verdict::Never, 0, 0));
    assert_eq!(take(&bucket, &mut state, START, u64::MAX), (Verdict::Never, 0, 0));
    assert_eq!(state, empty);
}

#[test]
fn al_03_a_state_is_kept_until_the_bucket_is_full_and_not_much_longer() {
    let bucket = bucket(10, "0.01");
    for cost in 1..=10 {
        let (_, write) = bucket.charge(None, START, cost);
        assert_eq!(write.unwrap().ttl_ms, cost * 100_000 + TTL_SLACK_MS);
    }
    assert_eq!(bucket.charge(None, START, 0).1, None);
}

#[test]
fn al_14_parameters_that_make_no_limit_are_refused() {
    let new = |capacity, rate: &str, idle_s| {
        TokenBucket::new(capacity, Refill::from_decimal(rate).unwrap(), idle_s).map(|_| ())
    };
    assert_eq!(new(0, "1", 0), Err(TokenBucketError::Capacity));
    assert_eq!(new(CAPACITY_MAX + 1, "1", 0), Err(TokenBucketError::Capacity));
    assert_eq!(new(u64::MAX, "1", 0), Err(TokenBucketError::Capacity));
    assert_eq!(new(1, "0", 0), Err(TokenBucketError::Idle));
    assert_eq!(new(1, "0", TIME_TO_FULL_MAX_S + 1), Err(TokenBucketError::Idle));
    assert_eq!(new(1, "0", u64::MAX), Err(TokenBucketError::Idle));
    assert_eq!(new(1_000_000_000, "0.0000000001", 0), Err(TokenBucketError::TooSlow));
    assert_eq!(new(1, "0", TIME_TO_FULL_MAX_S), Ok(()));
    for text in ["-1", "NaN", "inf", "1e308", "", "\"10\"", "1,5"] {
        assert_eq!(Refill::from_decimal(text), Err(RefillError::NotDecimal), "{text}");
    }
}

#[test]
fn al_14_without_refill_nothing_comes_back_before_the_idle_time() {
    let bucket = bucket(2, "0");
    let mut state = None;
    assert_eq!(take(&bucket, &mut state, START, 1), (Verdict::Admit, 1, 0));
    assert_eq!(take(&bucket, &mut state, START + SECOND, 1), (Verdict::Admit, 0, 3_600_000));
    assert_eq!(take(&bucket, &mut state, START + 3_600 * SECOND, 1), (Verdict::Wait, 0, 1_000));
    assert_eq!(take(&bucket, &mut state, START + 3_601 * SECOND - 1, 1), (Verdict::Wait, 0, 1));
    assert_eq!(take(&bucket, &mut state, START + 3_601 * SECOND, 1), (Verdict::Admit, 1, 0));
    assert_eq!((bucket.seconds_to_full(2), bucket.seconds_to_full(1)), (0, 3_600));
}

#[test]
fn al_14_extreme_states_and_times_make_no_extreme_numbers() {
    for bucket in [bucket(1, "0"), bucket(1, "0.0000115741"), bucket(CAPACITY_MAX, "1000000")] {
        for micro_tokens in [0, 1, u64::MAX] {
            for at_us in [0, START, u64::MAX] {
                for now_us in [0, START, u64::MAX] {
                    for cost in [0, 1, u64::MAX] {
                        let state = Some(Used { micro_tokens, at_us });
                        assert!(bucket.refuse(state, now_us, cost).left <= bucket.capacity());
                        let (outcome, _) = bucket.charge(state, now_us, cost);
                        assert!(outcome.left <= bucket.capacity());
                    }
                }
            }
        }
        assert!(bucket.seconds_to_full(0) <= TIME_TO_FULL_MAX_S);
    }
}

#[test]
fn a_clock_that_goes_back_mints_nothing() {
    let bucket = bucket(5, "1");
    let mut state = None;
    assert_eq!(take(&bucket, &mut state, START, 5).0, Verdict::Admit);
    assert_eq!(take(&bucket, &mut state, START - 30 * SECOND, 1), (Verdict::Wait, 0, 31_000));
    assert_eq!(take(&bucket, &mut state, START + SECOND, 1).0, Verdict::Admit);
    // Charged in the past, the state stays where it was in time.
    let mut state = Some(Used { micro_tokens: 0, at_us: START });
    assert_eq!(take(&bucket, &mut state, START - 9 * SECOND, 5).0, Verdict::Admit);
    assert_eq!(state, Some(Used { micro_tokens: 5 * SECOND, at_us: START }));
    assert_eq!(take(&bucket, &mut state, START, 1).0, Verdict::Wait);
}

#[test]
fn an_edited_limit_keeps_what_was_used() {
    let (small, large) = (bucket(10, "1"), bucket(100, "1"));
    let mut state = None;
    assert_eq!(take(&small, &mut state, START, 10), (Verdict::Admit, 0, 10_000));
    assert_eq!(take(&large, &mut state, START, 1), (Verdict::Admit, 89, 0), "raised: admits at once");
    assert_eq!(take(&small, &mut state, START, 1), (Verdict::Wait, 0, 2_000), "lowered: denies at once");
    assert_eq!(
        take(&bucket(10, "2"), &mut state, START + SECOND, 1),
        (Verdict::Admit, 0, 500),
        "faster: at once"
    );
}

#[test]
fn nothing_costs_nothing() {
    let (large, small) = (bucket(10, "1"), bucket(1, "1"));
    let mut state = None;
    assert_eq!(take(&large, &mut state, START, 0), (Verdict::Admit, 10, 0));
    assert_eq!(state, None);
    assert_eq!(take(&large, &mut state, START, 10), (Verdict::Admit, 0, 10_000));
    assert_eq!(take(&large, &mut state, START, 0), (Verdict::Admit, 0, 1_000));
    assert_eq!(
        take(&small, &mut state, START, 0),
        (Verdict::Wait, 0, 9_000),
        "more is used than a lowered limit has"
    );
}
