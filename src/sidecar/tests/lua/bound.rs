//! The promise of a token bucket, counted from the answers alone: admitted in any \[a, b\] ≤ capacity + rate × (b − a).
//!
//! Time is what charges have shown: a clock that went back stands still until it has caught up. A changed limit starts anew, and so
//! does a bucket that was settled.

use std::collections::HashMap;

use limits::decision::{Limit, Verdict};
use limits::token_bucket::{MICRO, TokenBucket};

use crate::model::{Answer, Ask, Change, Request};

/// What one side has admitted so far.
#[derive(Default)]
pub(crate) struct Bound {
    buckets: HashMap<String, Admitted>,
}

/// The charges of one bucket under one limit. All sums are in micro-tokens × den, so that nothing is rounded.
struct Admitted {
    bucket: TokenBucket,
    last_us: u64,
    sum: i128,
    /// The least of (sum before a charge − rate × its time): the window that begins there is the worst for all that follow.
    least: i128,
}

// === impl Bound ===

impl Bound {
    /// Adds a request with its answer, and checks every window that ends with it.
    pub(crate) fn add(&mut self, request: &Request, answer: &Answer) {
        if !answer.admitted {
            return;
        }
        for (ask, (verdict, ..)) in request.asks.iter().zip(&answer.rules) {
            let Limit::TokenBucket(bucket) = ask.limit else { continue };
            if *verdict != Verdict::Admit || ask.cost == 0 {
                continue;
            }
            let fresh = || Admitted { bucket, last_us: 0, sum: 0, least: i128::MAX };
            let admitted = self.buckets.entry(ask.key.clone()).or_insert_with(fresh);
            if admitted.bucket != bucket {
                *admitted = Admitted { last_us: admitted.last_us, ..fresh() };
            }
            admitted.charge(request.now_us, ask.cost);
            let (most, within) = admitted.worst_window();
            assert!(within <= most, "{}: admitted {within}, promised at most {most}: {request:#?}", ask.key);
        }
    }

    /// Forgets a bucket whose tokens were settled.
    pub(crate) fn settled(&mut self, change: &Change) {
        self.buckets.remove(&change.ask.key);
    }
}

// === impl Admitted ===

impl Admitted {
    fn charge(&mut self, now_us: u64, cost: u64) {
        let refill = self.bucket.refill();
        let now_us = now_us.max(self.last_us);
        // Without refill the promise holds from one long silence to the next.
        if refill.is_never() && now_us - self.last_us >= self.bucket.idle_ms() * 1_000 {
            (self.sum, self.least) = (0, i128::MAX);
        }
        self.last_us = now_us;
        self.least = self.least.min(self.sum - i128::from(refill.num()) * i128::from(now_us));
        self.sum += i128::from(cost) * i128::from(MICRO) * i128::from(refill.den());
    }

    /// What may have been admitted in the worst window that ends now, and what was, less what has come back within it.
    fn worst_window(&self) -> (i128, i128) {
        let refill = self.bucket.refill();
        let most = i128::from(self.bucket.capacity()) * i128::from(MICRO) * i128::from(refill.den());
        (most, self.sum - i128::from(refill.num()) * i128::from(self.last_us) - self.least)
    }
}

/// Admits one token at each of these times, whatever a bucket would say.
fn admit_at(refill: &str, times_us: &[u64]) {
    let refill = limits::refill::Refill::from_decimal(refill).expect("a rate");
    let bucket = TokenBucket::new(2, refill, 60).expect("a bucket");
    let mut bound = Bound::default();
    for now_us in times_us {
        let ask = Ask::new("bucket", Limit::TokenBucket(bucket), 1);
        let answer = Answer { admitted: true, rules: vec![(Verdict::Admit, 0, 0)] };
        bound.add(&Request { now_us: *now_us, asks: vec![ask] }, &answer);
    }
}

#[test]
fn the_bound_holds_to_the_microsecond() {
    admit_at("1", &[0, 0, 1_000_000, 2_000_000]);
    admit_at("1", &[9_000_000, 0, 10_000_000]); // the clock stands still until it has caught up
    admit_at("0", &[1, 1, 60_000_001, 60_000_001]);
}

#[test]
#[should_panic(expected = "promised at most")]
fn the_bound_sees_one_token_a_microsecond_too_early() {
    admit_at("1", &[0, 0, 1_000_000, 1_999_999]);
}

#[test]
#[should_panic(expected = "promised at most")]
fn the_bound_sees_a_clock_that_mints_tokens_by_going_back() {
    admit_at("1", &[9_000_000, 0, 1_000_000]);
}
