//! What holds of every token bucket, whatever happens to it.

use limits::decision::Verdict;
use limits::refill::Refill;
use limits::token_bucket::{MICRO, TTL_SLACK_MS, TokenBucket, Used};
use proptest::prelude::*;

const START: u64 = 1_790_000_000_000_000;
const HOUR_S: u64 = 3_600;

fn rate() -> impl Strategy<Value = Refill> {
    const RATES: [&str; 10] = [
        "0",
        "0.001",
        "0.0167",
        "0.0166666667",
        "0.3333333333",
        "1",
        "5",
        "7.77",
        "1000.0000001",
        "999999.99999999",
    ];
    prop::sample::select(&RATES[..]).prop_map(|text| Refill::from_decimal(text).unwrap())
}

fn bucket() -> impl Strategy<Value = TokenBucket> {
    let capacity = prop_oneof![1..20_u64, 1..1_000_000_u64, Just(1_000_000_000)];
    let valid = |(capacity, refill)| TokenBucket::new(capacity, refill, HOUR_S).ok();
    (capacity, rate()).prop_filter_map("from empty to full takes too long", valid)
}

/// A step of a history: how far the clock goes, forth or back, and the cost asked for, as a share of the capacity.
fn steps() -> impl Strategy<Value = Vec<(i64, f64)>> {
    let clock = prop_oneof![
        4 => 0..3_000_000_i64,
        2 => Just(0),
        1 => 0..7_200_000_000_i64,
        1 => -30_000_000..0_i64,
    ];
    prop::collection::vec((clock, prop_oneof![0.0..0.1, 0.0..1.2]), 1..40)
}

/// A bucket that is asked and charged, and what it was charged.
struct History {
    bucket: TokenBucket,
    state: Option<Used>,
    now_us: u64,
    /// What was charged, each with the furthest that the clock had been at a charge.
    charged: Vec<(u64, u64)>,
}

impl History {
    fn new(bucket: TokenBucket) -> Self {
        Self { bucket, state: None, now_us: START, charged: Vec::new() }
    }

    fn step(&mut self, (clock, share): (i64, f64)) -> (Verdict, u64) {
        self.now_us = self.now_us.saturating_add_signed(clock);
        let cost = (self.bucket.capacity() as f64 * share) as u64;
        let verdict = self.bucket.ask(self.state, self.now_us, cost);
        if verdict == Verdict::Admit {
            let (_, write) = self.bucket.charge(self.state, self.now_us, cost);
            self.state = write.map_or(self.state, |write| Some(write.state));
            if cost == 0 {
                return (verdict, cost);
            }
            let furthest = self.charged.last().map_or(self.now_us, |(at, _)| self.now_us.max(*at));
            self.charged.push((furthest, cost));
        }
        (verdict, cost)
    }
}

proptest! {
    /// Admitted in any [a, b] <= capacity + rate * (b - a), in integers, for any steps of the clock. A time that a clock passes
    /// again after it went back counts once.
    #[test]
    fn no_interval_admits_more_than_it_may(bucket in bucket(), steps in steps()) {
        prop_assume!(!bucket.refill().is_never());
        let mut history = History::new(bucket);
        steps.into_iter().for_each(|step| { history.step(step); });
        let (num, den) = (u128::from(bucket.refill().num()), u128::from(bucket.refill().den()));
        for (first, (from, _)) in history.charged.iter().enumerate() {
            let mut sum = 0_u128;
            for (to, cost) in &history.charged[first..] {
                sum += u128::from(*cost) * u128::from(MICRO) * den;
                let may = u128::from(bucket.capacity()) * u128::from(MICRO) * den + num * u128::from(to - from);
                prop_assert!(sum <= may, "{sum} > {may} in [{from}, {to}]");
            }
        }
    }

    /// A bucket without refill admits its capacity once, until nobody was admitted for the idle time.
    #[test]
    fn without_refill_the_capacity_is_all(capacity in 1..1_000_u64, steps in steps()) {
        let mut history = History::new(TokenBucket::new(capacity, Refill::NEVER, HOUR_S).unwrap());
        steps.into_iter().for_each(|step| { history.step(step); });
        for busy in history.charged.chunk_by(|a, b| b.0 - a.0 < HOUR_S * MICRO) {
            prop_assert!(busy.iter().map(|(_, cost)| cost).sum::<u64>() <= capacity);
        }
    }

    /// Denied until exactly the time that it told, and admitted then.
    #[test]
    fn a_wait_is_exact_to_the_millisecond(bucket in bucket(), steps in steps()) {
        let mut history = History::new(bucket);
        for step in steps {
            let (verdict, cost) = history.step(step);
            let (state, now_us) = (history.state, history.now_us);
            let outcome = bucket.refuse(state, now_us, cost);
            if verdict == Verdict::Wait {
                prop_assert_eq!(outcome.verdict, Verdict::Wait);
                prop_assert!(outcome.wait_ms >= 1);
                prop_assert_eq!(bucket.ask(state, now_us + outcome.wait_ms * 1_000, cost), Verdict::Admit);
                prop_assert_eq!(bucket.ask(state, now_us + (outcome.wait_ms - 1) * 1_000, cost), Verdict::Wait);
            }
        }
    }

    /// An admitted request hears when the same would be admitted again.
    #[test]
    fn the_next_wait_is_exact_too(bucket in bucket(), steps in steps()) {
        let mut history = History::new(bucket);
        for step in steps {
            let before = history.state;
            let (verdict, cost) = history.step(step);
            if verdict == Verdict::Admit {
                let (outcome, _) = bucket.charge(before, history.now_us, cost);
                let at = |ms: u64| bucket.ask(history.state, history.now_us + ms * 1_000, cost.max(1));
                prop_assert_eq!(at(outcome.wait_ms), Verdict::Admit);
                prop_assert!(outcome.wait_ms == 0 || at(outcome.wait_ms - 1) == Verdict::Wait);
            }
        }
    }

    /// Asking changes nothing, and what is left is what can be taken.
    #[test]
    fn what_is_left_can_be_taken_and_no_more(bucket in bucket(), steps in steps()) {
        let mut history = History::new(bucket);
        for step in steps {
            history.step(step);
            let left = bucket.refuse(history.state, history.now_us, 1).left;
            prop_assert!(left <= bucket.capacity());
            prop_assert_eq!(bucket.ask(history.state, history.now_us, left), Verdict::Admit);
            prop_assert_ne!(bucket.ask(history.state, history.now_us, left + 1), Verdict::Admit);
        }
    }

    /// When a state is thrown away the bucket is full, and it is not kept much longer than that.
    #[test]
    fn a_state_lives_until_the_bucket_is_full(bucket in bucket(), steps in steps()) {
        let mut history = History::new(bucket);
        for step in steps {
            let before = history.state;
            let (verdict, cost) = history.step(step);
            if verdict != Verdict::Admit {
                continue;
            }
            let Some(write) = bucket.charge(before, history.now_us, cost).1 else { continue };
            let full_at = history.now_us + (write.ttl_ms - TTL_SLACK_MS) * 1_000;
            prop_assert_eq!(bucket.ask(Some(write.state), full_at, bucket.capacity()), Verdict::Admit);
            prop_assert_eq!(bucket.refuse(Some(write.state), full_at - 1_000, 1).left < bucket.capacity(), true);
        }
    }

    /// An edit of the limit keeps what was used: the new limit says what it would say had it been there when that was used up.
    #[test]
    fn an_edit_keeps_what_was_used(before in bucket(), capacity in 1..1_000_000_u64, steps in steps()) {
        let mut history = History::new(before);
        steps.into_iter().for_each(|step| { history.step(step); });
        let Ok(after) = TokenBucket::new(capacity, before.refill(), HOUR_S) else { return Ok(()) };
        let left = |bucket: &TokenBucket| bucket.refuse(history.state, history.now_us, 0).left;
        // Floors of the same number of micro-tokens, so the capacities differ by whole tokens.
        prop_assert_eq!(left(&after), (left(&before) + capacity).saturating_sub(before.capacity()));
    }
}
