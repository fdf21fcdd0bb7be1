//! Costs that are known late: what is settled, of which bucket, and what never is.

use super::*;
use crate::bill::Settlement;

const COSTS: &str = r#"{ "rules": [
    { "id": "upload", "algorithm": "TOKEN_BUCKET", "capacity": 100, "refillPerSecond": 1, "match": { "path": "/up" },
      "cost": { "body": 1000, "default": 10 } },
    { "id": "llm", "algorithm": "SLIDING_WINDOW", "capacity": 1000, "windowSeconds": 60, "match": { "path": ["/llm", "/both"] },
      "cost": { "responseHeader": "x-tokens", "default": 50, "max": 500 } },
    { "id": "watch", "mode": "SHADOW", "algorithm": "TOKEN_BUCKET", "capacity": 100, "refillPerSecond": 1,
      "match": { "path": "/both" }, "cost": { "body": 1, "default": 7 } },
    { "id": "priced", "algorithm": "TOKEN_BUCKET", "capacity": 20, "refillPerSecond": 1, "match": { "path": "/priced" },
      "cost": { "header": "x-cost", "default": 3, "max": 9 } },
    { "id": "closed", "algorithm": "TOKEN_BUCKET", "capacity": 20, "refillPerSecond": 1, "failMode": "CLOSED",
      "match": { "path": "/closed" }, "cost": { "body": 1, "default": 7 } } ] }"#;

/// When all that pass were checked.
const ASKED_US: u64 = 7_000;

fn costs() -> Config {
    Config::parse(COSTS.as_bytes()).unwrap()
}

/// What a check asks for, by rule.
fn asked(config: &Config, path: &str, headers: &[(&str, &str)], has_body: bool) -> Vec<(u16, u64)> {
    match testing::plan(&config.rules, &Sent { path, headers }, has_body) {
        Plan::Ask(check) => check.calls().iter().map(|call| (call.rule, call.cost)).collect(),
        other => panic!("{other:?}"),
    }
}

/// A request that passed: every rule admitted it.
fn passed(config: &Config, path: &str, headers: &[(&str, &str)]) -> Exchange {
    let mut exchange = Exchange::default();
    let mut check = testing::check(&config.rules, path, headers);
    let outcomes = check.calls().iter().map(|_| admit(5)).collect();
    exchange.ask(&mut check, ASKED_US);
    let action = exchange.on_ruling(config, &Ruling::Decided(Answer::Admitted(outcomes)), &mut Tally::new());
    assert!(matches!(action, Action::Resume(_)));
    exchange
}

/// Tokens by rule; negative ones go back.
fn told(settlements: Vec<Settlement>) -> Vec<(u16, i64)> {
    let one = |one: Settlement| {
        let tokens = i64::try_from(one.tokens).unwrap();
        assert_eq!(one.asked_us, ASKED_US);
        (one.bucket.rule, if one.gives { -tokens } else { tokens })
    };
    settlements.into_iter().map(one).collect()
}

#[test]
fn a_cost_that_is_known_is_asked_for_and_leaves_nothing_to_settle() {
    let config = costs();
    let priced = |value| asked(&config, "/priced", &[("x-cost", value)], false);
    assert_eq!(priced("5"), [(3, 5)]);
    assert_eq!(priced("500"), [(3, 9)], "at most max");
    assert_eq!(priced("-1"), [(3, 3)], "no number: the default");
    assert_eq!(asked(&config, "/priced", &[], false), [(3, 3)]);
    assert_eq!(asked(&config, "/up", &[("content-length", "2001")], true), [(0, 3)]);
    assert_eq!(asked(&config, "/up", &[], true), [(0, 10)], "chunked: the estimate");
    assert_eq!(asked(&config, "/up", &[], false), [(0, 0)], "no body costs nothing");
    let mut known = passed(&config, "/up", &[("content-length", "2001")]);
    assert!(known.on_body(&config.rules, 2_001, true).is_empty());
    assert!(known.on_gone(&config.rules).is_empty());
}

#[test]
fn a_body_of_unknown_length_is_settled_by_its_bytes_both_ways_once() {
    let config = costs();
    for (bytes, settled) in
        [(0, vec![(0, -10)]), (3_500, vec![(0, -6)]), (10_000, vec![]), (12_001, vec![(0, 3)])]
    {
        let mut exchange = passed(&config, "/up", &[]);
        assert!(exchange.on_body(&config.rules, bytes / 2, false).is_empty());
        assert_eq!(told(exchange.on_body(&config.rules, bytes - bytes / 2, true)), settled, "{bytes}");
        assert!(exchange.on_gone(&config.rules).is_empty(), "once");
    }
}

#[test]
fn a_body_that_breaks_off_is_settled_by_what_came() {
    let config = costs();
    let mut exchange = passed(&config, "/up", &[]);
    assert!(exchange.on_body(&config.rules, 4_000, false).is_empty());
    assert_eq!(told(exchange.on_gone(&config.rules)), [(0, -6)]);
    assert!(exchange.on_gone(&config.rules).is_empty(), "once");
}

#[test]
fn a_response_says_the_cost_in_a_header_or_a_trailer_and_its_silence_leaves_the_reserve() {
    let config = costs();
    let header = |value: &'static str| {
        move |name: &str| (name == "x-tokens" && !value.is_empty()).then(|| value.as_bytes().to_vec())
    };
    for (in_headers, in_trailers, settled) in [
        ("80", "", vec![(1, 30)]),
        ("20", "", vec![(1, -30)]),
        ("", "20", vec![(1, -30)]),
        ("20", "80", vec![(1, -30)]),
        ("9999", "", vec![(1, 450)]),
        ("many", "", vec![]),
        ("50", "", vec![]),
        ("", "", vec![]),
    ] {
        let mut exchange = passed(&config, "/llm", &[]);
        assert!(exchange.awaits_cost(&config.rules));
        let mut settlements = exchange.on_cost(&config.rules, header(in_headers));
        if exchange.awaits_cost(&config.rules) {
            settlements.extend(exchange.on_cost(&config.rules, header(in_trailers)));
        }
        assert_eq!(told(settlements), settled, "{in_headers:?} {in_trailers:?}");
        assert!(exchange.on_gone(&config.rules).is_empty(), "the reserve stays");
    }
}

#[test]
fn only_what_admitted_a_request_that_passed_is_settled() {
    let config = costs();
    let ruling = |answer| Ruling::Decided(answer);
    let wait = outcome(batch::Verdict::Wait, 0, 500);
    let everything = |exchange: &mut Exchange| {
        assert!(!exchange.awaits_cost(&config.rules));
        let mut all = exchange.on_body(&config.rules, 9, true);
        all.extend(exchange.on_cost(&config.rules, |_| Some(b"1".to_vec())));
        all.extend(exchange.on_gone(&config.rules));
        told(all)
    };
    for (path, ruling) in [
        ("/up", ruling(Answer::Denied(vec![wait]))),
        ("/up", Ruling::Failed(Reason::Deadline)),
        ("/closed", Ruling::Failed(Reason::RedisTimeout)),
        ("/up", ruling(Answer::Admitted(vec![]))),
    ] {
        let mut exchange = waiting(&config, path);
        exchange.on_ruling(&config, &ruling, &mut Tally::new());
        assert_eq!(everything(&mut exchange), [], "{ruling:?}");
    }
    let mut gone = waiting(&config, "/up");
    assert!(gone.on_gone(&config.rules).is_empty(), "gone before the ruling");
    gone.on_ruling(&config, &ruling(Answer::Admitted(vec![admit(1)])), &mut Tally::new());
    assert_eq!(everything(&mut gone), []);
    // A shadow rule that would have denied was not charged; what it stands beside was.
    let mut both = waiting(&config, "/both");
    both.on_ruling(&config, &ruling(Answer::Admitted(vec![admit(1), wait])), &mut Tally::new());
    assert!(both.on_body(&config.rules, 9, true).is_empty());
    assert_eq!(told(both.on_cost(&config.rules, |_| Some(b"49".to_vec()))), [(1, -1)]);
}
