//! `POST /v1/check`: one decision for whoever is not the filter, by the rules of the sidecar's own file, from the same buckets.

use crate::asks::Asks;
use crate::decide::Decider;
use crate::keys;
use crate::problem::{self, problem, whole};
use hyper::StatusCode;
use limits::descriptor::Descriptors;
use limits::key::{Key, Parts};
use limits::request::Given;
use limits::rule::{Mode, Rule};
use protocol::batch::{Answer, Outcome, Verdict};
use protocol::check::{self, Decision};
use protocol::config::Config;
use protocol::value::bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a check may take. Its caller waits by a clock of its own.
const CHECK_TIME: Duration = Duration::from_secs(1);
const JSON: &str = "application/json";

/// What a request comes to before the store is asked.
enum Plan<'r> {
    /// A rule denies whoever lacks a part of its key.
    Denied(&'r Rule),
    /// The store has to say; these are the rules it is asked about.
    Ask(Asks, Vec<&'r Rule>),
}

/// Answers a check.
pub(super) async fn check(decider: &Arc<Decider>, config: &Config, body: &[u8]) -> problem::Answer {
    let request = match check::Request::parse(body, &config.domain, config.rules.descriptors()) {
        Ok(request) => request,
        Err(faults) => {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return problem(StatusCode::BAD_REQUEST, &lines.join("\n"));
        }
    };
    let (asks, rules) = match plan(decider, config, &request) {
        Plan::Denied(rule) => return told(Decision::Deny, Some(0), None, Some(rule)),
        Plan::Ask(_, rules) if rules.is_empty() => return told(Decision::Allow, None, Some(0), None),
        Plan::Ask(asks, rules) => (asks, rules),
    };
    match decider.ask(asks, Instant::now() + CHECK_TIME).await.into_iter().next() {
        Some(Answer::Admitted(outcomes)) => allowed(&rules, &outcomes),
        Some(Answer::Denied(outcomes)) => denied(&rules, &outcomes),
        Some(Answer::Unknown(reason)) => undecided(&format!("{reason:?}")),
        None => undecided("nothing was asked"),
    }
}

fn plan<'r>(decider: &Decider, config: &'r Config, request: &check::Request) -> Plan<'r> {
    let descriptors = config.rules.descriptors();
    let values = request.values.iter().map(|(id, value)| (*id, value.as_bytes()));
    let given = Given::new(descriptors, config.rules.routes(), values);
    let mut matching = Vec::new();
    config.rules.matching(&given, &mut matching);
    let (mut asks, mut rules) = (Asks::with_capacity(1), Vec::new());
    for rule in matching.into_iter().filter_map(|index| config.rules.rule(index)) {
        match config.rules.key(rule, &given) {
            Key::Skip => {}
            Key::Deny if rule.mode == Mode::Shadow => {}
            Key::Deny => return Plan::Denied(rule),
            Key::Parts(parts) => {
                let write = |into: &mut Vec<u8>| {
                    write_key(into, decider, &config.domain, descriptors, rule, &parts);
                };
                let cost = request.cost.unwrap_or_else(|| rule.cost.before(None, None));
                asks.call(rule.limit, rule.penalty, cost, rule.mode == Mode::Shadow, write);
                rules.push(rule);
            }
        }
    }
    // Rules have ids of their own, and so do their keys.
    asks.end_check();
    Plan::Ask(asks, rules)
}

/// The key that the filter's check of the same values has.
fn write_key(
    into: &mut Vec<u8>,
    decider: &Decider,
    domain: &str,
    descriptors: &Descriptors,
    rule: &Rule,
    parts: &Parts<'_>,
) {
    let written: Vec<(&str, Vec<u8>)> = parts
        .as_slice()
        .iter()
        .filter_map(|(id, value)| {
            let descriptor = descriptors.get(*id)?;
            let mut text = Vec::new();
            let value = value.map(bound);
            decider.keys().write_value(
                &mut text,
                domain,
                &descriptor.name,
                value.as_deref(),
                descriptor.secret,
            );
            Some((&*descriptor.name, text))
        })
        .collect();
    let parts = written.iter().map(|(kind, text)| (*kind, text.as_slice()));
    keys::write_key(into, domain, &rule.id, rule.limit.tag(), parts);
}

/// The nearest is the one with the least left.
fn allowed(rules: &[&Rule], outcomes: &[Outcome]) -> problem::Answer {
    let nearest = enforcing(rules, outcomes).min_by_key(|(_, outcome)| outcome.left);
    let (rule, left) = nearest.map(|(rule, outcome)| (rule, outcome.left)).unzip();
    told(Decision::Allow, left, Some(0), rule)
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
            told(Decision::Deny, Some(outcome.left), retry, Some(rule))
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

fn told(
    decision: Decision,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    rule: Option<&Rule>,
) -> problem::Answer {
    let matched_rule = rule.map(|rule| &*rule.id);
    let answer = check::Answer { decision, remaining, retry_after_ms, matched_rule };
    whole(StatusCode::OK, JSON, answer.to_body())
}

fn undecided(reason: &str) -> problem::Answer {
    let body = protocol::problem::reduced_capacity(&format!("no decision: {reason}"));
    whole(StatusCode::SERVICE_UNAVAILABLE, protocol::problem::MEDIA_TYPE, body)
}
