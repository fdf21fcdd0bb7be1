//! The exchange driven by values: what each ruling makes of a request.

use super::*;
use crate::check::Plan;
use crate::testing::{self, Sent};
use protocol::batch::{Outcome, Unknown};

const RULES: &str = r#"{
  "domain": "d",
  "descriptors": { "api_key": { "header": "x-api-key" } },
  "rules": [
    { "id": "open", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "match": { "path": "/a" } },
    { "id": "closed", "policy": "strict", "algorithm": "TOKEN_BUCKET", "capacity": 4, "refillPerSecond": 1,
      "failMode": "CLOSED", "match": { "path": ["/a", "/closed"] } },
    { "id": "watch", "mode": "SHADOW", "failMode": "CLOSED", "algorithm": "TOKEN_BUCKET", "capacity": 1,
      "refillPerSecond": 1, "match": { "path": ["/a", "/watched"] } },
    { "id": "named", "key": ["api_key"], "onMissingKey": "DENY", "algorithm": "TOKEN_BUCKET", "capacity": 1,
      "refillPerSecond": 1, "match": { "path": "/named" } } ] }"#;

fn config() -> Config {
    Config::parse(RULES.as_bytes()).unwrap()
}

fn waiting(config: &Config, path: &str) -> Exchange {
    let mut exchange = Exchange::default();
    exchange.ask(&mut testing::check(&config.rules, path, &[]), 7_000);
    exchange
}

fn outcome(verdict: batch::Verdict, left: u64, wait_ms: u64) -> Outcome {
    Outcome { verdict, left, wait_ms, leased: 0 }
}

fn admit(left: u64) -> Outcome {
    outcome(batch::Verdict::Admit, left, 0)
}

fn named(config: &Config, tally: &Tally) -> Vec<String> {
    tally.iter().map(|&(rule, counter)| counter.name(&config.announcement(rule).unwrap().id)).collect()
}

fn header<'f>(fields: &'f [Field], name: &str) -> Option<&'f str> {
    fields.iter().find(|(field, _)| *field == name).map(|(_, value)| &**value)
}

#[test]
fn an_admitted_request_goes_on_and_its_response_tells_the_least_that_is_left() {
    let (config, mut tally) = (config(), Tally::new());
    let mut exchange = waiting(&config, "/a");
    let ruling = Ruling::Decided(Answer::Admitted(vec![admit(9), admit(3), admit(0)]));
    let action = exchange.on_ruling(&config, &ruling, &mut tally);
    assert_eq!(action, Action::Resume(Note { decision: "allow", rule: None, reason: None }));
    assert_eq!(named(&config, &tally), ["kota.allowed.open", "kota.allowed.closed", "kota.allowed.watch"]);
    let told = exchange.on_response().unwrap();
    assert_eq!(header(&told.fields, "ratelimit-policy"), Some(r#""open";q=300;w=60, "strict";q=60;w=60"#));
    assert_eq!(header(&told.fields, "ratelimit"), Some(r#""strict";r=3;t=1"#));
    assert_eq!(header(&told.legacy, "x-ratelimit-limit"), Some("4"));
    assert_eq!(header(&told.legacy, "x-ratelimit-remaining"), Some("3"));
    assert_eq!(header(&told.legacy, "x-ratelimit-reset"), Some("1"));
    assert!(exchange.on_response().is_none(), "said once");
}

#[test]
fn a_denied_request_hears_the_longest_wait_and_only_who_denies_is_counted() {
    let (config, mut tally) = (config(), Tally::new());
    let mut exchange = waiting(&config, "/a");
    let wait = |wait_ms| outcome(batch::Verdict::Wait, 0, wait_ms);
    let ruling = Ruling::Decided(Answer::Denied(vec![wait(1_001), wait(200), wait(9_000)]));
    let Action::Reply(reply, note) = exchange.on_ruling(&config, &ruling, &mut tally) else { panic!() };
    assert_eq!(note, Note { decision: "deny", rule: Some(0), reason: None });
    assert_eq!(reply.status, 429);
    assert_eq!(header(&reply.headers, "retry-after"), Some("2"), "rounded up");
    assert_eq!(header(&reply.headers, "ratelimit"), Some(r#""open";r=0;t=2"#));
    assert_eq!(header(&reply.headers, "cache-control"), Some("no-store"));
    assert_eq!(named(&config, &tally), ["kota.denied.open", "kota.denied.closed"]);
    assert!(exchange.on_response().is_none(), "its own reply gets nothing added");
}

#[test]
fn a_cost_above_the_capacity_is_never_and_promises_no_time() {
    let (config, mut tally) = (config(), Tally::new());
    let mut exchange = waiting(&config, "/closed");
    let ruling = Ruling::Decided(Answer::Denied(vec![outcome(batch::Verdict::Never, 4, 0)]));
    let Action::Reply(reply, _) = exchange.on_ruling(&config, &ruling, &mut tally) else { panic!() };
    assert_eq!(reply.status, 429);
    assert_eq!(header(&reply.headers, "retry-after"), None);
    assert_eq!(header(&reply.headers, "ratelimit"), Some(r#""strict";r=4"#));
}

#[test]
fn hh_10_a_shadow_rule_denies_nobody_and_is_in_no_header() {
    let (config, mut tally) = (config(), Tally::new());
    let mut exchange = waiting(&config, "/watched");
    let ruling = Ruling::Decided(Answer::Admitted(vec![outcome(batch::Verdict::Wait, 0, 500)]));
    let action = exchange.on_ruling(&config, &ruling, &mut tally);
    assert_eq!(action, Action::Resume(Note { decision: "would_deny", rule: Some(2), reason: None }));
    assert_eq!(named(&config, &tally), ["kota.shadow_denied.watch"]);
    assert!(exchange.on_response().is_none(), "no enforcing rule, no fields");
}

#[test]
fn fm_02_without_an_answer_closed_wins_and_a_shadow_rule_closes_nothing() {
    let config = config();
    for (path, expected) in [
        ("/a", vec!["kota.failed_closed.closed.redis_timeout"]),
        ("/watched", vec!["kota.failed_open.watch.redis_timeout"]),
    ] {
        let mut tally = Tally::new();
        let mut exchange = waiting(&config, path);
        let action = exchange.on_ruling(&config, &Ruling::Failed(Unknown::RedisTimeout.into()), &mut tally);
        assert_eq!(named(&config, &tally), expected);
        match action {
            Action::Reply(reply, note) => {
                assert_eq!((path, reply.status, note.decision), ("/a", 503, "failed_closed"));
                assert_eq!(header(&reply.headers, "retry-after"), Some("1"));
                assert!(
                    reply.headers.iter().all(|(name, _)| !name.contains("ratelimit")),
                    "no invented numbers"
                );
            }
            action => assert_eq!((path, matches!(action, Action::Resume(_))), ("/watched", true)),
        }
        assert!(exchange.on_response().is_none(), "hh_09: no invented numbers");
    }
}

#[test]
fn an_answer_to_something_else_is_garbage() {
    let config = config();
    let admitted = |outcomes| Ruling::Decided(Answer::Admitted(outcomes));
    let no_denial = Ruling::Decided(Answer::Denied(vec![admit(1)]));
    for ruling in [admitted(vec![]), admitted(vec![admit(1), admit(1)]), no_denial] {
        let mut tally = Tally::new();
        let mut exchange = waiting(&config, "/watched");
        exchange.on_ruling(&config, &ruling, &mut tally);
        assert_eq!(named(&config, &tally), ["kota.failed_open.watch.garbage"], "{ruling:?}");
    }
}

#[test]
fn a_ruling_that_comes_too_late_is_counted_and_does_nothing() {
    let config = config();
    let answered = |exchange: &mut Exchange| drop(exchange.on_response());
    let gone = |exchange: &mut Exchange| drop(exchange.on_gone(&config.rules));
    let answered_then_gone = |exchange: &mut Exchange| {
        drop(exchange.on_response());
        drop(exchange.on_gone(&config.rules));
    };
    for leave in [&gone as &dyn Fn(&mut Exchange), &answered, &answered_then_gone] {
        let mut tally = Tally::new();
        let mut exchange = waiting(&config, "/closed");
        leave(&mut exchange);
        let ruling = Ruling::Decided(Answer::Admitted(vec![admit(3)]));
        assert_eq!(exchange.on_ruling(&config, &ruling, &mut tally), Action::Nothing);
        assert_eq!(named(&config, &tally), ["kota.allowed.closed"]);
        assert_eq!(exchange.on_ruling(&config, &ruling, &mut tally), Action::Nothing);
        assert!(exchange.on_response().is_none());
        assert_eq!(tally.len(), 1, "once");
    }
}

#[test]
fn a_missing_key_can_be_denied_without_asking() {
    let (config, mut tally) = (config(), Tally::new());
    let Plan::Deny(rule) = testing::plan(&config.rules, &Sent { path: "/named", headers: &[] }, true) else {
        panic!()
    };
    let Action::Reply(reply, note) = Exchange::default().deny_missing_key(&config, rule, &mut tally) else {
        panic!()
    };
    assert_eq!((reply.status, note.decision), (429, "deny"));
    assert_eq!(header(&reply.headers, "retry-after"), None, "waiting does not help");
    assert_eq!(named(&config, &tally), ["kota.denied.named"]);
}

mod costs;
mod kinds;
