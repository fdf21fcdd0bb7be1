//! What a request costs, and what denials bring about.

use crate::{check_all, faults, with};

#[test]
fn ca_05_a_cost_that_comes_from_nowhere_is_refused() {
    const ONE: &str =
        r#"want a whole number, {"header": NAME}, {"body": BYTES_PER_TOKEN} or {"responseHeader": NAME}"#;
    let found = |cost: &str| with(r#""match": {}"#, &format!(r#""match": {{}}, "cost": {cost}"#));
    for (cost, message) in [
        ("{}", format!("$.rules[0].cost: {ONE}")),
        (r#"{"header": "a", "body": 1}"#, format!("$.rules[0].cost: {ONE}")),
        (r#"{"default": 1}"#, format!("$.rules[0].cost: {ONE}")),
        ("null", format!("$.rules[0].cost: {ONE}, not null")),
        (r#""5""#, format!("$.rules[0].cost: {ONE}, not a text; write the number without quotes")),
        (
            r#"{"header": "a b"}"#,
            r#"$.rules[0].cost.header: "a b" is no header's name: want letters, digits and !#$%&'*+-.^_`|~"#
                .into(),
        ),
        (
            r#"{"responseHeader": ":status"}"#,
            r#"$.rules[0].cost.responseHeader: ":status" is no header's name: pseudo-headers can't be read"#
                .into(),
        ),
        (r#"{"heder": "a"}"#, String::new()),
    ] {
        let found = found(cost);
        if !message.is_empty() {
            assert_eq!(found, [message], "{cost}");
        } else {
            assert_eq!(found[0], r#"$.rules[0].cost.heder: unknown field; did you mean "header"?"#);
        }
    }
}

#[test]
fn ca_05_concurrency_has_neither_cost_nor_penalty() {
    let concurrency = |more: &str| {
        with(
            r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#,
            &format!(r#""algorithm": "CONCURRENCY", "capacity": 10, "failMode": "CLOSED", {more}"#),
        )
    };
    const SLOT: &str =
        "$.rules[0].cost: a request takes one slot of CONCURRENCY, whatever it costs elsewhere; leave it out";
    assert_eq!(concurrency(r#""cost": 1"#), [""; 0]);
    for cost in ["2", "0", r#"{"header": "x-cost"}"#, r#"{"body": 1}"#] {
        assert_eq!(concurrency(&format!(r#""cost": {cost}"#)), [SLOT], "{cost}");
    }
    assert_eq!(
        concurrency(
            r#""penalty": {"denials": 1, "withinSeconds": 1, "forSeconds": 1, "capacity": 1, "refillPerSecond": 1}"#
        ),
        [
            "$.rules[0].penalty: is not for CONCURRENCY, which counts no denials: have it in a rule of another algorithm beside this one"
        ]
    );
    for field in ["refillPerSecond", "idleSeconds", "windowSeconds"] {
        let found = concurrency(&format!(r#""{field}": 1"#));
        assert!(found.len() == 1 && found[0].contains("belongs to \"algorithm\": "), "{found:?}");
    }
}

#[test]
fn ca_05_a_penalty_is_stricter_than_its_rule() {
    let penalty = |refill: &str| {
        format!(
            r#""refillPerSecond": 5, "penalty": {{"denials": 3, "withinSeconds": 60, "forSeconds": 600, "capacity": 1, "refillPerSecond": {refill}}}"#
        )
    };
    for refill in ["5", "0.5", "0"] {
        assert_eq!(with(r#""refillPerSecond": 5"#, &penalty(refill)), [""; 0], "{refill}");
    }
    for (refill, said) in [
        (
            "5.0000001",
            "is above the rule's own (of a SLIDING_WINDOW capacity / windowSeconds): a penalty is stricter than its rule",
        ),
        ("-1", "-1 is out of range, want 0 to 1000000 with at most 10 decimals"),
        ("1e308", "1e308 is out of range, want 0 to 1000000 with at most 10 decimals"),
        ("1e-10", "from empty to full takes longer than 400 days; raise refillPerSecond or lower capacity"),
    ] {
        assert_eq!(
            with(r#""refillPerSecond": 5"#, &penalty(refill)),
            [format!("$.rules[0].penalty.refillPerSecond: {said}")]
        );
    }
    check_all(
        r#""match": {}"#,
        &[
            (r#""match": {}, "penalty": 3"#, "$.rules[0].penalty: want an object, not a number"),
            (
                r#""match": {}, "penalty": {"denials": 3, "withinSeconds": 60, "forSeconds": 600, "capacity": 1, "refillPerSecond": 1, "rule": "x"}"#,
                r#"$.rules[0].penalty.rule: unknown field, want one of "denials", "withinSeconds", "forSeconds", "capacity", "refillPerSecond""#,
            ),
        ],
    );
    let missing = with(r#""match": {}"#, r#""match": {}, "penalty": {}"#);
    for (fault, field) in
        missing.iter().zip(["denials", "withinSeconds", "forSeconds", "capacity", "refillPerSecond"])
    {
        assert!(fault.starts_with(&format!("$.rules[0].penalty.{field}: is missing")), "{missing:?}");
    }
    assert_eq!(missing.len(), 5);
}

#[test]
fn ca_05_a_penalty_that_is_not_stricter_in_anything_is_refused() {
    const BUCKET: &str = r#""algorithm": "TOKEN_BUCKET", "capacity": 60, "refillPerSecond": 0.5"#;
    const WINDOW: &str = r#""algorithm": "SLIDING_WINDOW", "capacity": 60, "windowSeconds": 120"#;
    let penalty = |rule: &str, capacity: u64, refill: &str| {
        faults(&format!(
            r#"{{"rules": [{{"id": "r", {rule}, "penalty": {{"denials": 3, "withinSeconds": 60, "forSeconds": 600,
               "capacity": {capacity}, "refillPerSecond": {refill}}}}}]}}"#
        ))
    };
    for rule in [BUCKET, WINDOW] {
        for (capacity, refill) in [(59, "0.5"), (60, "0.4999999999"), (1, "0")] {
            assert_eq!(penalty(rule, capacity, refill), [""; 0], "{rule}: {capacity}, {refill}");
        }
        assert_eq!(
            penalty(rule, 60, "0.5"),
            [
                "$.rules[0].penalty: has the rule's own capacity and refill: lower one of them, a penalty is stricter than its rule"
            ]
        );
        for capacity in [1, 60] {
            let found = penalty(rule, capacity, "0.5000000001");
            assert!(
                found.len() == 1
                    && found[0].starts_with("$.rules[0].penalty.refillPerSecond: is above the rule's own"),
                "{found:?}"
            );
        }
    }
}
