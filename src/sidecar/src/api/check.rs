//! `POST /v1/check`: one decision for whoever is not the filter, by the rules of the sidecar's own file, from the same buckets.

use super::applying::{Applying, applying};
use super::slot;
use crate::asks::Asks;
use crate::changes::Change;
use crate::decide::Decider;
use crate::problem::{self, whole};
use hyper::StatusCode;
use limits::decision::Limit;
use limits::rule::{Mode, Rule};
use protocol::batch::{Answer, Outcome, Unknown, Verdict};
use protocol::check::{self, Decision};
use protocol::config::Config;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a check may take. Its caller waits by a clock of its own.
const CHECK_TIME: Duration = Duration::from_secs(1);
const JSON: &str = "application/json";

/// Answers a check. A cost that the request does not say is the rule's own; one that a header, a body or a response would tell is its
/// default, since there is none of these here.
pub(super) async fn check(decider: &Arc<Decider>, config: &Config, body: &[u8]) -> problem::Answer {
    let request = match check::Request::parse(body, &config.domain, &config.rules) {
        Ok(request) => request,
        Err(faults) => return super::refused(&faults),
    };
    let all = match applying(decider, config, &request.values) {
        Ok(all) if all.is_empty() => {
            return told(&Told { retry_after_ms: Some(0), ..Told::of(Decision::Allow) });
        }
        Ok(all) => all,
        Err(rule) => {
            return told(&Told { remaining: Some(0), rule: Some(rule), ..Told::of(Decision::Deny) });
        }
    };
    let held = match held(&all) {
        Ok(held) => held,
        Err(error) => return undecided(&format!("the system has no randomness for a slot: {error}")),
    };
    let asks = asks(&all, request.cost, held.as_ref());
    let rules: Vec<&Rule> = all.iter().map(|applying| applying.rule).collect();
    let give_back = GiveBack::new(decider, &all, held.as_ref());
    let answer = decider.ask(asks, Instant::now() + CHECK_TIME).await.into_iter().next();
    if !matches!(answer, Some(Answer::Unknown(reason)) if reason != Unknown::Shed) {
        give_back.forget();
    }
    match answer {
        Some(Answer::Admitted(outcomes)) => told(&Told { held, ..allowed(&rules, &outcomes) }),
        Some(Answer::Denied(outcomes)) => denied(&rules, &outcomes),
        Some(Answer::Unknown(reason)) => undecided(&format!("{reason:?}")),
        None => undecided("nothing was asked"),
    }
}

/// Releases a slot that may have been taken and that nobody will hear of: the caller has gone, or is told that nothing is known.
struct GiveBack<'d> {
    decider: &'d Arc<Decider>,
    changes: Vec<Change>,
}

/// The slot that a request would hold.
struct Held {
    slot: [u8; 16],
    lease_ms: u64,
}

/// What is answered.
struct Told<'r> {
    decision: Decision,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    rule: Option<&'r Rule>,
    held: Option<Held>,
}

/// A slot, where one of the rules limits what runs at once; its lease is the shortest of theirs.
fn held(all: &[Applying<'_>]) -> Result<Option<Held>, getrandom::Error> {
    let leases = all.iter().filter_map(slot::concurrency).map(|limit| limit.lease_ms());
    leases.min().map(|lease_ms| Ok(Held { slot: slot::new()?, lease_ms })).transpose()
}

fn asks(all: &[Applying<'_>], cost: Option<u64>, held: Option<&Held>) -> Asks {
    let mut asks = Asks::with_capacity(1);
    for Applying { rule, key } in all {
        let cost = match rule.limit {
            Limit::Concurrency(_) => 1,
            _ => cost.unwrap_or_else(|| rule.cost.before(None, None)),
        };
        let shadow = rule.mode == Mode::Shadow;
        asks.call(rule.limit, rule.penalty, cost, shadow, |into| into.extend_from_slice(key));
    }
    if let Some(held) = held {
        asks.slot(&held.slot);
    }
    // Rules have ids of their own, and so do their keys.
    asks.end_check();
    asks
}

/// The nearest is the one with the least left.
fn allowed<'r>(rules: &[&'r Rule], outcomes: &[Outcome]) -> Told<'r> {
    let nearest = enforcing(rules, outcomes).min_by_key(|(_, outcome)| outcome.left);
    let (rule, left) = nearest.map(|(rule, outcome)| (rule, outcome.left)).unzip();
    Told { remaining: left, retry_after_ms: Some(0), rule, ..Told::of(Decision::Allow) }
}

/// The nearest is the one with the longest wait; never is longer than any.
fn denied(rules: &[&Rule], outcomes: &[Outcome]) -> problem::Answer {
    let wait = |outcome: &Outcome| match outcome.verdict {
        Verdict::Never => u64::MAX,
        Verdict::Wait => outcome.wait_ms,
        Verdict::Admit => 0,
    };
    let denying = enforcing(rules, outcomes).filter(|(_, outcome)| outcome.verdict != Verdict::Admit);
    match denying.max_by_key(|(_, outcome)| wait(outcome)) {
        Some((rule, outcome)) => {
            let retry = (outcome.verdict == Verdict::Wait).then_some(outcome.wait_ms);
            let remaining = Some(outcome.left);
            told(&Told { remaining, retry_after_ms: retry, rule: Some(rule), ..Told::of(Decision::Deny) })
        }
        None => undecided("a denial that no rule explains"),
    }
}

fn enforcing<'r, 'o>(
    rules: &'o [&'r Rule],
    outcomes: &'o [Outcome],
) -> impl Iterator<Item = (&'r Rule, &'o Outcome)> {
    let pairs = rules.iter().copied().zip(outcomes);
    pairs.filter(|(rule, _)| rule.mode == Mode::Enforce)
}

fn told(told: &Told<'_>) -> problem::Answer {
    let answer = check::Answer {
        decision: told.decision,
        remaining: told.remaining,
        retry_after_ms: told.retry_after_ms,
        matched_rule: told.rule.map(|rule| &*rule.id),
        slot: told.held.as_ref().map(|held| slot::text(&held.slot)),
        lease_ms: told.held.as_ref().map(|held| held.lease_ms),
    };
    whole(StatusCode::OK, JSON, answer.to_body())
}

fn undecided(reason: &str) -> problem::Answer {
    let body = protocol::problem::reduced_capacity(&format!("no decision: {reason}"));
    whole(StatusCode::SERVICE_UNAVAILABLE, protocol::problem::MEDIA_TYPE, body)
}

// === impl GiveBack ===

impl<'d> GiveBack<'d> {
    fn new(decider: &'d Arc<Decider>, all: &[Applying<'_>], held: Option<&Held>) -> Self {
        let changes = held.map(|held| slot::changes(all, &held.slot, slot::Act::Release));
        Self { decider, changes: changes.unwrap_or_default() }
    }

    /// The caller hears of it, or nothing was taken.
    fn forget(mut self) {
        self.changes.clear();
    }
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        // Should this overtake what takes the slot, it takes nothing then.
        if !self.changes.is_empty() {
            drop(self.decider.begin(std::mem::take(&mut self.changes)));
        }
    }
}

// === impl Told ===

impl Told<'_> {
    fn of(decision: Decision) -> Self {
        Self { decision, remaining: None, retry_after_ms: None, rule: None, held: None }
    }
}
