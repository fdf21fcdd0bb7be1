//! Algorithms, costs and penalties as they reach `limits`.

use limits::cost::{Cost, Named};
use limits::decision::Limit;
use limits::rule::Rule;
use protocol::config::Config;

/// A configuration of one rule of these fields, and what is warned of.
fn rule(fields: &str) -> (Rule, Vec<String>) {
    let json = format!(r#"{{"rules": [{{"id": "r", {fields}}}]}}"#);
    let config = Config::parse(json.as_bytes()).unwrap_or_else(|faults| panic!("{faults:?} in {json}"));
    let warnings = config.warnings().iter().map(ToString::to_string).collect();
    (config.rules.rules()[0].clone(), warnings)
}

fn costing(cost: &str) -> (Cost, Vec<String>) {
    let fields =
        format!(r#""algorithm": "TOKEN_BUCKET", "capacity": 50, "refillPerSecond": 5, "cost": {cost}"#);
    let (rule, warnings) = rule(&fields);
    (rule.cost, warnings)
}

#[test]
fn al_18_a_sliding_window_is_so_many_seconds_whatever_the_calendar_says() {
    for window_s in [1, 86_400, 30 * 86_400] {
        let (rule, warnings) =
            rule(&format!(r#""algorithm": "SLIDING_WINDOW", "capacity": 10, "windowSeconds": {window_s}"#));
        let Limit::SlidingWindow(limit) = rule.limit else { panic!("{:?}", rule.limit) };
        assert_eq!((limit.capacity(), limit.window_s()), (10, window_s));
        assert_eq!((rule.cost, rule.penalty, warnings), (Cost::Fixed(1), None, vec![]));
    }
}

#[test]
fn a_lease_is_ten_seconds_unless_the_rule_says_otherwise() {
    for (lease, lease_ms) in [("", 10_000), (r#", "leaseSeconds": 30, "failMode": "CLOSED""#, 30_000)] {
        let (rule, warnings) = rule(&format!(r#""algorithm": "CONCURRENCY", "capacity": 5{lease}"#));
        let Limit::Concurrency(limit) = rule.limit else { panic!("{:?}", rule.limit) };
        assert_eq!((limit.capacity(), limit.lease_ms(), warnings), (5, lease_ms, vec![]));
    }
}

#[test]
fn a_cost_comes_from_a_number_a_header_the_body_or_the_response() {
    let named = |header: &str, default, max| Named { header: header.into(), default, max };
    for (cost, read) in [
        ("0", Cost::Fixed(0)),
        ("50", Cost::Fixed(50)),
        (r#"{"header": "X-Cost"}"#, Cost::Header(named("x-cost", 1, 50))),
        (r#"{"header": "x-cost", "default": 0, "max": 5}"#, Cost::Header(named("x-cost", 0, 5))),
        (r#"{"body": 1024, "default": 10}"#, Cost::Body { per: 1_024, default: 10, max: 50 }),
        (
            r#"{"responseHeader": "X-Tokens", "default": 20, "max": 40}"#,
            Cost::Response(named("x-tokens", 20, 40)),
        ),
        (
            r#"{"responseHeader": "x-tokens", "default": 20}"#,
            Cost::Response(named("x-tokens", 20, 1_000_000_000)),
        ),
        (
            r#"{"responseHeader": "x-tokens", "default": 20, "max": 120}"#,
            Cost::Response(named("x-tokens", 20, 120)),
        ),
    ] {
        assert_eq!(costing(cost).0, read, "{cost}");
    }
}

#[test]
fn a_cost_that_the_client_says_or_that_is_reserved_by_chance_is_warned_of() {
    for (cost, warned) in [
        ("5", None),
        (r#"{"body": 1024, "default": 10}"#, None),
        (r#"{"responseHeader": "x-tokens", "default": 20}"#, None),
        (
            r#"{"header": "x-cost"}"#,
            Some("$.rules[0].cost.header: trusts what the client says: anybody can send x-cost: 0;"),
        ),
        (
            r#"{"body": 1024}"#,
            Some(
                "$.rules[0].cost: a body of unknown length (chunked, or streamed over HTTP/2) reserves 1 token",
            ),
        ),
        (
            r#"{"responseHeader": "x-tokens"}"#,
            Some("$.rules[0].cost: a request reserves 1 token until its cost is known;"),
        ),
    ] {
        let (_, warnings) = costing(cost);
        assert_eq!(warnings.len(), usize::from(warned.is_some()), "{warnings:?}");
        assert!(warned.is_none_or(|warned| warnings[0].starts_with(warned)), "{warnings:?}");
    }
}

#[test]
fn a_header_that_tells_a_cost_is_kept_of_a_request() {
    let json = r#"{"corsPreflight": "COUNT", "rules": [{"id": "r", "key": ["ip"], "algorithm": "TOKEN_BUCKET", "capacity": 5,
        "refillPerSecond": 5, "cost": {"header": "X-Cost"}}]}"#;
    assert_eq!(Config::parse(json.as_bytes()).unwrap().rules.header_names().join(" "), "x-cost");
}

#[test]
fn a_penalty_is_a_second_bucket_for_a_time() {
    for (algorithm, refill) in [
        (r#""algorithm": "TOKEN_BUCKET", "capacity": 50, "refillPerSecond": 5"#, "0.5"),
        (r#""algorithm": "SLIDING_WINDOW", "capacity": 50, "windowSeconds": 60"#, "0.8"),
    ] {
        let (rule, warnings) = rule(&format!(
            r#"{algorithm}, "penalty": {{"denials": 100, "withinSeconds": 60, "forSeconds": 600, "capacity": 2, "refillPerSecond": {refill}}}"#
        ));
        let penalty = rule.penalty.expect("it has one");
        assert_eq!((penalty.denials(), penalty.within_ms(), penalty.for_ms()), (100, 60_000, 600_000));
        assert_eq!((penalty.bucket().capacity(), warnings), (2, vec![]));
    }
}

#[test]
fn a_penalty_that_no_request_fits_under_is_warned_of() {
    let warned = |cost: u64| {
        let (_, warnings) = rule(&format!(
            r#""algorithm": "TOKEN_BUCKET", "capacity": 50, "refillPerSecond": 5, "cost": {cost},
               "penalty": {{"denials": 1, "withinSeconds": 60, "forSeconds": 600, "capacity": 2, "refillPerSecond": 1}}"#
        ));
        warnings
    };
    assert_eq!(warned(2), [""; 0]);
    assert_eq!(
        warned(3),
        [
            "$.rules[0].penalty: a request costs 3 and the penalty's capacity is 2, so that nothing passes until it is over"
        ]
    );
}

#[test]
fn a_penalty_without_refill_shuts_out_until_it_is_over() {
    let (rule, _) = rule(
        r#""algorithm": "TOKEN_BUCKET", "capacity": 50, "refillPerSecond": 5,
           "penalty": {"denials": 1, "withinSeconds": 60, "forSeconds": 600, "capacity": 1, "refillPerSecond": 0}"#,
    );
    let penalty = rule.penalty.expect("it has one");
    let now_us = 1_800_000_000_000_000;
    let strikes = penalty.strike(None, now_us);
    assert_eq!(penalty.wait_ms(&strikes, now_us, 1), 600_000);
    assert!(!penalty.admits(&strikes, now_us + 599_999_000, 1));
    assert!(penalty.admits(&strikes, now_us + 600_000_000, 1));
}
