//! A client that is denied, waits exactly as long as `Retry-After` says and finds no other traffic is admitted (HH-01): whatever the
//! algorithm and its parameters, under a penalty, in debt, and with several rules in one request. In virtual time.

use limits::concurrency::Concurrency;
use limits::decision::{Bucket, Charge, Limit, Ruling, Verdict, admits, decide};
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::settle::{Settlement, settle};
use limits::sliding_window::SlidingWindow;
use limits::token_bucket::{TIME_TO_FULL_MAX_S, TokenBucket};
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;

const START_US: u64 = 1_790_000_000_000_000;
/// How many denials each kind of rule is tried with, at least.
const DENIALS_MIN: u64 = 200;

/// A rule of a request, and what it costs.
#[derive(Clone, Copy, Debug)]
struct Rule {
    limit: Limit,
    penalty: Option<Penalty>,
    cost: u64,
    shadow: bool,
}

/// What a client does next: after a pause he asks, or tokens that he has used already are charged.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { pause_us: u64 },
    Debit { pause_us: u64, share: f64 },
}

/// One client's buckets under the rules, and his clock.
struct Client<'a> {
    rules: &'a [Rule],
    buckets: Vec<Option<Bucket>>,
    now_us: u64,
    requests: u64,
}

impl<'a> Client<'a> {
    fn new(rules: &'a [Rule], phase_us: u64) -> Self {
        Self { rules, buckets: vec![None; rules.len()], now_us: START_US + phase_us, requests: 0 }
    }

    fn ask(&mut self) -> (bool, Vec<Ruling>) {
        self.requests += 1;
        let (admitted, rulings) = self.with_charges(decide);
        for (bucket, ruling) in self.buckets.iter_mut().zip(&rulings) {
            if let Some(write) = &ruling.write {
                *bucket = Some(write.state.clone());
            }
        }
        (admitted, rulings)
    }

    /// Whether he would be admitted so many milliseconds from now.
    fn would_pass_after(&self, wait_ms: u64) -> bool {
        self.with_charges(|now_us, charges| admits(now_us + wait_ms * 1_000, charges))
    }

    fn with_charges<T>(&self, then: impl FnOnce(u64, &[Charge<'_>]) -> T) -> T {
        let slot = self.requests.to_be_bytes();
        let charge = |(rule, bucket)| {
            let &Rule { limit, penalty, cost, shadow } = rule;
            Charge { limit, penalty, cost, shadow, slot: &slot, bucket: Option::as_ref(bucket) }
        };
        let charges: Vec<_> = self.rules.iter().zip(&self.buckets).map(charge).collect();
        then(self.now_us, &charges)
    }

    fn debit(&mut self, share: f64) {
        for (rule, bucket) in self.rules.iter().zip(&mut self.buckets) {
            let tokens = (rule.limit.capacity() as f64 * share) as u64;
            let settled = settle(
                &rule.limit,
                rule.penalty.as_ref(),
                bucket.as_ref(),
                self.now_us,
                Settlement::Take,
                tokens,
                0,
            );
            if let Some(write) = settled {
                *bucket = Some(write.state);
            }
        }
    }

    /// Milliseconds until he is admitted: of the rule with the longest wait. `None` if waiting is of no use.
    fn wait_ms(&self, rulings: &[Ruling]) -> Option<u64> {
        let denying = || {
            let pairs = self.rules.iter().zip(rulings);
            pairs.filter(|(rule, ruling)| !rule.shadow && ruling.outcome.verdict != Verdict::Admit)
        };
        if denying().any(|(_, ruling)| ruling.outcome.verdict == Verdict::Never) {
            return None;
        }
        denying().map(|(_, ruling)| ruling.outcome.wait_ms).max()
    }

    /// Does what the steps say, and obeys each denial: how many there were.
    fn obey(mut self, steps: &[Step]) -> Result<u64, TestCaseError> {
        let mut denials = 0;
        for step in steps {
            match *step {
                Step::Debit { pause_us, share } => {
                    self.now_us += pause_us;
                    self.debit(share);
                    continue;
                }
                Step::Ask { pause_us } => self.now_us += pause_us,
            }
            let (admitted, rulings) = self.ask();
            let Some(wait_ms) = self.wait_ms(&rulings).filter(|_| !admitted) else { continue };
            denials += 1;
            prop_assert!(!self.would_pass_after(wait_ms - 1), "{wait_ms} ms is too long: {rulings:?}");
            // As the header says it: whole seconds, at least 1.
            let seconds = wait_ms.div_ceil(1_000).max(1);
            self.now_us += seconds * 1_000_000;
            let (admitted, again) = self.ask();
            prop_assert!(admitted, "after {seconds} s still denied: {again:?}, before {rulings:?}");
        }
        Ok(denials)
    }
}

fn refill() -> impl Strategy<Value = Refill> {
    let rates = ["0.001", "0.0167", "0.3333333333", "1", "7.77", "1000.0000001"];
    prop::sample::select(rates.to_vec()).prop_map(|text| Refill::from_decimal(text).unwrap())
}

fn bucket(capacity: impl Strategy<Value = u64>) -> impl Strategy<Value = TokenBucket> {
    (capacity, refill()).prop_map(|(capacity, refill)| TokenBucket::new(capacity, refill, 0).unwrap())
}

fn with_cost(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = Rule> {
    let cost = prop_oneof![3 => Just(1), 1 => 0..12_u64];
    (limit, cost).prop_map(|(limit, cost)| Rule { limit, penalty: None, cost, shadow: false })
}

fn token_bucket() -> impl Strategy<Value = Rule> {
    with_cost(bucket(1..20_u64).prop_map(Limit::TokenBucket))
}

fn sliding_window() -> impl Strategy<Value = Rule> {
    let window_s = prop_oneof![1..10_u64, Just(60), Just(3_600), Just(86_400), Just(31 * 86_400)];
    let limit = (1..20_u64, window_s).prop_map(|(capacity, window_s)| SlidingWindow::new(capacity, window_s));
    with_cost(limit.prop_map(|limit| Limit::SlidingWindow(limit.unwrap())))
}

fn concurrency() -> impl Strategy<Value = Rule> {
    let limit = (1..8_u64, 1..60_u64).prop_map(|(capacity, lease_s)| Concurrency::new(capacity, lease_s));
    limit.prop_map(|limit| Rule {
        limit: Limit::Concurrency(limit.unwrap()),
        penalty: None,
        cost: 1,
        shadow: false,
    })
}

fn penalised() -> impl Strategy<Value = Rule> {
    let base = prop_oneof![token_bucket().boxed(), sliding_window().boxed()];
    // One without refill shuts its client out until it is over.
    let shut = TokenBucket::new(1, Refill::NEVER, TIME_TO_FULL_MAX_S).unwrap();
    let stricter = prop_oneof![3 => bucket(1..6_u64).boxed(), 1 => Just(shut).boxed()];
    let penalty = (1..4_u64, 1..600_u64, 1..600_u64, stricter);
    (base, penalty).prop_map(|(base, (denials, within_s, for_s, stricter))| {
        let penalty = Penalty::new(denials, within_s, for_s, stricter).unwrap();
        Rule { penalty: Some(penalty), ..base }
    })
}

fn mixed() -> impl Strategy<Value = Vec<Rule>> {
    let any: Vec<BoxedStrategy<Rule>> =
        vec![token_bucket().boxed(), sliding_window().boxed(), concurrency().boxed(), penalised().boxed()];
    let rule =
        (Union::new(any), prop::bool::weighted(0.2)).prop_map(|(rule, shadow)| Rule { shadow, ..rule });
    prop::collection::vec(rule, 2..6)
}

fn asks() -> impl Strategy<Value = Step> {
    let pause_us = prop_oneof![4 => 0..400_000_u64, 2 => Just(0), 1 => 0..90_000_000_u64];
    pause_us.prop_map(|pause_us| Step::Ask { pause_us })
}

/// Clients of these rules: all obey, and enough of them are denied for that to mean something.
fn all_obeying(rules: impl Strategy<Value = Vec<Rule>>, step: impl Strategy<Value = Step>) {
    let denials = Cell::new(0);
    let phase_us = 0..7_200_000_000_u64;
    let histories = (rules, phase_us, prop::collection::vec(step, 1..40));
    let mut runner = TestRunner::new(Config { cases: 128, ..Config::default() });
    let result = runner.run(&histories, |(rules, phase_us, steps)| {
        denials.set(denials.get() + Client::new(&rules, phase_us).obey(&steps)?);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(denials.get() >= DENIALS_MIN, "only {} denials", denials.get());
}

fn alone(rule: impl Strategy<Value = Rule>) -> impl Strategy<Value = Vec<Rule>> {
    rule.prop_map(|rule| vec![rule])
}

#[test]
fn hh_01_who_obeys_a_token_bucket_is_admitted() {
    all_obeying(alone(token_bucket()), asks());
}

#[test]
fn hh_01_who_obeys_a_sliding_window_is_admitted() {
    all_obeying(alone(sliding_window()), asks());
}

#[test]
fn hh_01_who_obeys_a_concurrency_limit_is_admitted() {
    all_obeying(alone(concurrency()), asks());
}

#[test]
fn hh_01_who_obeys_a_penalty_is_admitted() {
    all_obeying(alone(penalised()), asks());
}

#[test]
fn hh_01_who_obeys_several_rules_at_once_is_admitted() {
    all_obeying(mixed(), asks());
}

#[test]
fn hh_01_who_obeys_while_he_is_in_debt_is_admitted() {
    let debit = (0..2_000_000_u64, 0.0..3.0).prop_map(|(pause_us, share)| Step::Debit { pause_us, share });
    all_obeying(mixed(), prop_oneof![3 => asks(), 1 => debit]);
}
