//! Several rules of one request.

use crate::support::limit;
use limits::decision::{Bucket, Charge, Verdict, admits, decide};
use limits::token_bucket::Used;
use proptest::prelude::*;
use std::collections::HashMap;

const NOW: u64 = 1_790_000_000_000_000;

/// Buckets by name, each with its limit.
#[derive(Default)]
struct Buckets(HashMap<String, Bucket>);

/// A rule of a request: its bucket, capacity, refill and cost, and whether it is a shadow.
type Rule<'a> = (&'a str, u64, &'a str, u64, bool);

impl Buckets {
    fn decide(&mut self, now_us: u64, rules: &[Rule<'_>]) -> (bool, Vec<(Verdict, u64)>) {
        let charge = |(bucket, capacity, rate, cost, shadow): &Rule<'_>| Charge {
            limit: limit(*capacity, rate),
            penalty: None,
            cost: *cost,
            shadow: *shadow,
            slot: b"",
            bucket: self.0.get(*bucket),
        };
        let charges: Vec<_> = rules.iter().map(charge).collect();
        let (admitted, rulings) = decide(now_us, &charges);
        assert_eq!(admitted, admits(now_us, &charges));
        for (rule, ruling) in rules.iter().zip(&rulings) {
            if let Some(write) = &ruling.write {
                assert!(admitted, "written although denied: {rule:?}");
                self.0.insert(rule.0.to_owned(), write.state.clone());
            }
        }
        (admitted, rulings.iter().map(|ruling| (ruling.outcome.verdict, ruling.outcome.left)).collect())
    }
}

impl Buckets {
    fn used(&self, name: &str) -> Used {
        self.0[name].used().expect("a token bucket's state")
    }
}

#[test]
fn al_16_who_is_denied_by_one_rule_is_charged_by_none() {
    for global_first in [true, false] {
        let mut buckets = Buckets::default();
        let mut call = |user: &str| {
            let mut rules = vec![("global", 10, "0.001", 1, false), (user, 1, "0.001", 1, false)];
            if !global_first {
                rules.reverse();
            }
            buckets.decide(NOW, &rules).0
        };
        let first = (0..20).filter(|_| call("user-1")).count();
        assert_eq!(first, 1, "one of the twenty of user 1");
        for user in 2..=10 {
            assert!(call(&format!("user-{user}")), "user {user}");
        }
        assert!(!call("user-11"), "the global limit is used up by ten");
        assert_eq!(buckets.used("global").micro_tokens, 10_000_000);
        assert!(!buckets.0.contains_key("user-11"));
    }
}

#[test]
fn al_16_a_cost_that_one_rule_can_never_admit_charges_none() {
    let mut buckets = Buckets::default();
    let answer = buckets.decide(NOW, &[("a", 100, "1", 50, false), ("b", 10, "1", 50, false)]);
    assert_eq!(answer, (false, vec![(Verdict::Admit, 100), (Verdict::Never, 10)]));
    assert!(buckets.0.is_empty());
}

#[test]
fn a_shadow_denies_nobody_and_is_charged_only_for_what_passes() {
    let mut buckets = Buckets::default();
    let rules = [("shadow", 1, "0.001", 1, true), ("real", 2, "0.001", 1, false)];
    assert_eq!(buckets.decide(NOW, &rules), (true, vec![(Verdict::Admit, 0), (Verdict::Admit, 1)]));
    assert_eq!(buckets.decide(NOW, &rules), (true, vec![(Verdict::Wait, 0), (Verdict::Admit, 0)]));
    assert_eq!(buckets.used("shadow").micro_tokens, 1_000_000, "a shadow that denies is not charged");
    let rules = [("other", 5, "0.001", 1, true), ("real", 2, "0.001", 1, false)];
    assert_eq!(buckets.decide(NOW, &rules), (false, vec![(Verdict::Admit, 5), (Verdict::Wait, 0)]));
    assert!(!buckets.0.contains_key("other"), "denied by another rule");
    assert_eq!(buckets.decide(NOW, &[("never", 5, "1", 6, true)]), (true, vec![(Verdict::Never, 5)]));
}

#[test]
fn no_rules_admit() {
    assert_eq!(Buckets::default().decide(NOW, &[]), (true, vec![]));
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn rules() -> impl Strategy<Value = Vec<Rule<'static>>> {
    let one = (1..20_u64, prop::sample::select(&["0", "0.01", "1", "50"][..]), 0..12_u64, any::<bool>());
    prop::collection::vec(one, 1..=NAMES.len()).prop_map(|rules| {
        let named = rules.into_iter().zip(NAMES);
        named.map(|((capacity, rate, cost, shadow), name)| (name, capacity, rate, cost, shadow)).collect()
    })
}

proptest! {
    #[test]
    fn nothing_is_charged_unless_all_that_enforce_admit(
        rules in rules(),
        clocks in prop::collection::vec(0..3_000_000_u64, 1..30),
    ) {
        let mut buckets = Buckets::default();
        let mut now_us = NOW;
        for clock in clocks {
            now_us += clock;
            let before = buckets.0.clone();
            let (admitted, outcomes) = buckets.decide(now_us, &rules);
            let enforcing = rules.iter().zip(&outcomes).filter(|(rule, _)| !rule.4);
            prop_assert_eq!(admitted, enforcing.clone().all(|(_, outcome)| outcome.0 == Verdict::Admit));
            for (rule, outcome) in rules.iter().zip(&outcomes) {
                let charged = admitted && outcome.0 == Verdict::Admit && rule.3 > 0;
                prop_assert_eq!(before.get(rule.0) != buckets.0.get(rule.0), charged, "{:?}", rule);
            }
        }
    }

    #[test]
    fn the_order_of_rules_does_not_matter(
        rules in rules(),
        clocks in prop::collection::vec(0..3_000_000_u64, 1..30),
        shift in 0..5_usize,
    ) {
        let mut turned = rules.clone();
        turned.rotate_left(shift % rules.len());
        let (mut one, mut other) = (Buckets::default(), Buckets::default());
        let mut now_us = NOW;
        for clock in clocks {
            now_us += clock;
            let (admitted, mut outcomes) = one.decide(now_us, &rules);
            outcomes.rotate_left(shift % rules.len());
            prop_assert_eq!((admitted, outcomes), other.decide(now_us, &turned));
            prop_assert_eq!(&one.0, &other.0);
        }
    }

    #[test]
    fn a_shadow_changes_nothing_for_others(rules in rules(), clocks in prop::collection::vec(0..3_000_000_u64, 1..30)) {
        let enforcing: Vec<_> = rules.iter().copied().filter(|rule| !rule.4).collect();
        let (mut with, mut without) = (Buckets::default(), Buckets::default());
        let mut now_us = NOW;
        for clock in clocks {
            now_us += clock;
            let (admitted, outcomes) = with.decide(now_us, &rules);
            let kept = rules.iter().zip(outcomes).filter(|(rule, _)| !rule.4).map(|(_, outcome)| outcome).collect::<Vec<_>>();
            prop_assert_eq!((admitted, kept), without.decide(now_us, &enforcing));
        }
    }
}
