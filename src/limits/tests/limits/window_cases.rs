//! Sliding windows as clients meet them, through `decide` and in virtual time: the cases AL, and what a window promises.

use limits::concurrency::Concurrency;
use limits::decision::{Bucket, Charge, Limit, Outcome, Verdict, decide};
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::sliding_window::{SlidingWindow, WINDOW_MAX_S};
use limits::token_bucket::{TTL_SLACK_MS, TokenBucket};
use proptest::prelude::*;

/// 2026-09-21 00:00 UTC, when windows of any length that divides a day begin, in milliseconds.
const MIDNIGHT_MS: u64 = 1_789_948_800_000;
const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const DAY_S: u64 = 86_400;

/// One client of one rule, whose bucket is forgotten when its TTL is over, as Redis does.
struct Client {
    limit: Limit,
    penalty: Option<Penalty>,
    bucket: Option<Bucket>,
    forgotten_at_ms: u64,
    /// The last TTL written.
    ttl_ms: u64,
}

impl Client {
    fn new(limit: Limit) -> Self {
        Self { limit, penalty: None, bucket: None, forgotten_at_ms: 0, ttl_ms: 0 }
    }

    fn of_window(capacity: u64, window_s: u64) -> Self {
        Self::new(Limit::SlidingWindow(SlidingWindow::new(capacity, window_s).unwrap()))
    }

    fn ask(&mut self, now_ms: u64) -> Outcome {
        if now_ms >= self.forgotten_at_ms {
            self.bucket = None;
        }
        let slot = now_ms.to_be_bytes();
        let charge = Charge {
            limit: self.limit,
            penalty: self.penalty,
            cost: 1,
            shadow: false,
            slot: &slot,
            bucket: self.bucket.as_ref(),
        };
        let (_, mut rulings) = decide(now_ms * 1_000, &[charge]);
        let ruling = rulings.remove(0);
        if let Some(write) = ruling.write {
            (self.bucket, self.ttl_ms) = (Some(write.state), write.ttl_ms);
            self.forgotten_at_ms = now_ms + write.ttl_ms;
        }
        ruling.outcome
    }

    fn admitted(&mut self, now_ms: u64) -> bool {
        self.ask(now_ms).verdict == Verdict::Admit
    }

    /// How many of so many requests at one moment pass.
    fn burst(&mut self, now_ms: u64, requests: usize) -> usize {
        (0..requests).filter(|_| self.admitted(now_ms)).count()
    }
}

#[test]
fn the_briefs_example_is_49_and_a_half() {
    for (capacity, admits) in [(50, false), (51, true)] {
        let mut client = Client::of_window(capacity, 60);
        assert_eq!(client.burst(MIDNIGHT_MS + 30 * SECOND_MS, 42), 42);
        let now = MIDNIGHT_MS + MINUTE_MS + 15 * SECOND_MS;
        assert_eq!(client.burst(now, 18), 18, "42 × 45/60 + 18 = 49.5");
        let outcome = client.ask(now);
        assert_eq!(outcome.verdict == Verdict::Admit, admits, "capacity {capacity}");
        if !admits {
            assert_eq!(outcome.wait_ms, 715, "42 × 44.285/60 + 19 = 49.9995");
            assert!(!client.admitted(now + 714));
            assert!(client.admitted(now + 715));
        }
    }
}

#[test]
fn a_capacity_of_one_works() {
    for window_s in [1, 60, DAY_S, WINDOW_MAX_S] {
        let mut client = Client::of_window(1, window_s);
        let mut now = MIDNIGHT_MS + 123;
        for _ in 0..10 {
            assert!(client.admitted(now));
            let wait_ms = client.ask(now).wait_ms;
            assert!((1..=2 * window_s * SECOND_MS).contains(&wait_ms), "{window_s} s: {wait_ms}");
            assert!(!client.admitted(now + wait_ms - 1));
            now += wait_ms;
        }
    }
}

#[test]
fn al_10_a_window_that_ends_lets_no_second_burst_through() {
    let mut client = Client::of_window(100, 60);
    assert_eq!(client.burst(MIDNIGHT_MS + 59_500, 100), 100);
    assert!(client.burst(MIDNIGHT_MS + MINUTE_MS + 500, 100) <= 1);
    let third = client.burst(MIDNIGHT_MS + MINUTE_MS + 30_000, 100);
    assert!((49..=51).contains(&third), "{third}");
}

#[test]
fn al_12_who_asks_a_little_too_often_is_denied_a_little() {
    let mut client = Client::of_window(10, 60);
    let per_minute: Vec<_> = (0..10)
        .map(|minute| {
            let asks = (0..12).map(|ask| MIDNIGHT_MS + minute * MINUTE_MS + ask * 5 * SECOND_MS);
            asks.filter(|now| client.admitted(*now)).count()
        })
        .collect();
    assert!(per_minute.iter().all(|admitted| (9..=10).contains(admitted)), "{per_minute:?}");
}

#[test]
fn al_13_a_ttl_is_long_enough_and_not_much_longer() {
    for window_s in [1, 2, 59, 60, 3_600, DAY_S, 30 * DAY_S, WINDOW_MAX_S] {
        let window_ms = window_s * SECOND_MS;
        for phase_ms in [0, 1, window_ms / 2, window_ms - 1] {
            let start = MIDNIGHT_MS - MIDNIGHT_MS % window_ms;
            let mut client = Client::of_window(5, window_s);
            assert_eq!(client.burst(start + phase_ms, 5), 5);
            assert!(client.ttl_ms <= 2 * window_ms + TTL_SLACK_MS, "{window_s} s");
            assert!(
                client.forgotten_at_ms > start + 2 * window_ms,
                "{window_s} s: kept through the next window"
            );
            assert!(
                !client.admitted(start + window_ms),
                "the previous window counts in full when it has just ended"
            );
        }
    }
    for (capacity, rate) in [(1, "0.0000115741"), (10, "1"), (1_000_000, "0.5"), (1, "1000000")] {
        let bucket = TokenBucket::new(capacity, Refill::from_decimal(rate).unwrap(), 0).unwrap();
        let mut client = Client::new(Limit::TokenBucket(bucket));
        client.burst(MIDNIGHT_MS, 1_000);
        assert!(
            client.ttl_ms > 0 && client.ttl_ms <= bucket.seconds_to_full(0) * SECOND_MS + TTL_SLACK_MS,
            "{rate}"
        );
    }
    for lease_s in [1, 10, 3_600] {
        let mut client = Client::new(Limit::Concurrency(Concurrency::new(5, lease_s).unwrap()));
        assert!(client.admitted(MIDNIGHT_MS));
        assert_eq!(client.ttl_ms, lease_s * SECOND_MS + TTL_SLACK_MS);
    }
}

#[test]
fn al_13_a_penalty_is_kept_as_long_as_it_matters() {
    let stricter = TokenBucket::new(1, Refill::from_decimal("0.01").unwrap(), 0).unwrap();
    let mut client = Client::of_window(1, 1);
    client.penalty = Some(Penalty::new(2, 3_600, 600, stricter).unwrap());
    assert_eq!(client.burst(MIDNIGHT_MS, 2), 1);
    assert_eq!(client.ttl_ms, 3_600 * SECOND_MS + TTL_SLACK_MS, "one denial counts for an hour");
    assert_eq!(client.burst(MIDNIGHT_MS, 1), 0);
    assert_eq!(client.ttl_ms, 600 * SECOND_MS + TTL_SLACK_MS, "the penalty lasts ten minutes");
}

#[test]
fn al_18_a_day_is_the_last_24_hours_whatever_the_calendar_says() {
    const HOUR_MS: u64 = 3_600 * SECOND_MS;
    // An ordinary midnight, the ends of daylight-saving time in Berlin and New York, the ends of a month of 28 and one of 31 days.
    for midnight_s in [1_789_948_800, 1_792_886_400, 1_793_491_200, 1_772_323_200, 1_793_491_200 + 30 * DAY_S]
    {
        let midnight = midnight_s * SECOND_MS;
        assert_eq!(midnight_s % DAY_S, 0);
        let mut client = Client::of_window(10, DAY_S);
        assert_eq!(client.burst(midnight - 10 * MINUTE_MS, 20), 10);
        let outcome = client.ask(midnight + 10 * MINUTE_MS);
        assert_eq!(outcome.verdict, Verdict::Wait, "a new date is no new budget");
        // A tenth of what was used counts no more when a tenth of the day is over.
        assert_eq!(outcome.wait_ms, 24 * HOUR_MS / 10 - 10 * MINUTE_MS);
        assert!(client.admitted(midnight + 10 * MINUTE_MS + outcome.wait_ms));
    }
}

#[test]
fn al_18_windows_of_a_month_neither_overflow_nor_forget() {
    for days in [28, 30, 31] {
        let window_ms = days * DAY_S * SECOND_MS;
        let mut client = Client::of_window(10, days * DAY_S);
        let start = MIDNIGHT_MS - MIDNIGHT_MS % window_ms;
        assert_eq!(client.burst(start + window_ms - 1, 20), 10, "{days} days");
        assert!(client.ttl_ms <= window_ms + 1 + TTL_SLACK_MS);
        assert!(!client.admitted(start + window_ms), "{days} days");
        assert_eq!(client.burst(start + window_ms + window_ms / 2, 20), 5, "{days} days");
        assert!(client.ttl_ms <= 2 * window_ms + TTL_SLACK_MS);
        assert_eq!(client.burst(start + 10 * window_ms, 20), 10, "{days} days");
    }
    let longest = SlidingWindow::new(u64::from(u32::MAX) / 8, WINDOW_MAX_S).unwrap();
    assert!(longest.write(longest.empty(u64::MAX), u64::MAX).ttl_ms >= TTL_SLACK_MS);
}

proptest! {
    /// What a window promises, exactly: no more than the capacity in any window of the clock, and in a span that reaches so far into
    /// the next one that much of the capacity more. (All at the end of one window and as much as can be had in the next: by the end
    /// of that one twice the capacity, of which the second half came evenly.)
    #[test]
    fn al_10_no_span_admits_more_than_it_may(
        capacity in 1..60_u64,
        window_s in 1..30_u64,
        pauses in prop::collection::vec(prop_oneof![Just(0), 0..50_u64, 0..3_000_u64], 1..400),
    ) {
        let window_ms = window_s * SECOND_MS;
        let mut client = Client::of_window(capacity, window_s);
        let mut now = MIDNIGHT_MS;
        let mut admitted = Vec::new();
        for pause in pauses {
            now += pause;
            if client.admitted(now) {
                admitted.push(now);
            }
        }
        for (last, to) in admitted.iter().enumerate() {
            let from = to.saturating_sub(window_ms - 1);
            let inside = admitted[..=last].iter().filter(|at| **at >= from).count() as u64;
            let of_window = admitted[..=last].iter().filter(|at| **at / window_ms == to / window_ms).count() as u64;
            prop_assert!(of_window <= capacity);
            let may = capacity + (capacity * (to % window_ms)).div_ceil(window_ms);
            prop_assert!(inside <= may, "{} in the window until {}, may {}", inside, to, may);
        }
    }
}
