//! Algorithms and their numbers.

use crate::{check_all, with};

#[test]
fn al_14_bad_numbers_are_refused_naming_the_field() {
    check_all(
        r#""capacity": 10"#,
        &[
            (
                r#""capacity": 0"#,
                r#"$.rules[0].capacity: 0 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (
                r#""capacity": -1"#,
                r#"$.rules[0].capacity: -1 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (
                r#""capacity": 1e308"#,
                r#"$.rules[0].capacity: 1e308 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (
                r#""capacity": 9007199254740993"#,
                r#"$.rules[0].capacity: 9007199254740993 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (r#""capacity": 1.5"#, "$.rules[0].capacity: 1.5 is not a whole number"),
            (
                r#""capacity": "10""#,
                "$.rules[0].capacity: want a whole number from 1 to 1000000000, not a text; write the number without quotes",
            ),
            (
                r#""capacity": null"#,
                "$.rules[0].capacity: want a whole number from 1 to 1000000000, not null",
            ),
        ],
    );
    check_all(
        r#""refillPerSecond": 5"#,
        &[
            (
                r#""refillPerSecond": -1"#,
                "$.rules[0].refillPerSecond: -1 is out of range, want 0 to 1000000 with at most 10 decimals",
            ),
            (
                r#""refillPerSecond": 1e308"#,
                "$.rules[0].refillPerSecond: 1e308 is out of range, want 0 to 1000000 with at most 10 decimals",
            ),
            (
                r#""refillPerSecond": 1000001"#,
                "$.rules[0].refillPerSecond: 1000001 is out of range, want 0 to 1000000 with at most 10 decimals",
            ),
            (
                r#""refillPerSecond": 0.00000000001"#,
                "$.rules[0].refillPerSecond: 0.00000000001 is too fine: at most 10 decimals and 15 significant digits",
            ),
            (
                r#""refillPerSecond": "5""#,
                "$.rules[0].refillPerSecond: want a number from 0 to 1000000 with at most 10 decimals, not a text; write the number without quotes",
            ),
            (
                r#""refillPerSecond": 0"#,
                r#"$.rules[0].idleSeconds: is missing: a bucket with "refillPerSecond": 0 starts anew after so long without use"#,
            ),
            (
                r#""refillPerSecond": 0, "idleSeconds": 0"#,
                "$.rules[0].idleSeconds: 0 is out of range, want 1 to 34560000",
            ),
            (
                r#""refillPerSecond": 5, "idleSeconds": 5"#,
                r#"$.rules[0].idleSeconds: has a meaning only with "refillPerSecond": 0; leave it out"#,
            ),
            (
                r#""refillPerSecond": 0.0000000001"#,
                "$.rules[0].refillPerSecond: from empty to full takes longer than 400 days; raise refillPerSecond or lower capacity",
            ),
            (
                r#""refillPerSecond": 5, "cost": 11"#,
                "$.rules[0].cost: 11 is above the capacity, so that no request would ever pass; want 0 to 10",
            ),
            (
                r#""refillPerSecond": 5, "cost": -1"#,
                "$.rules[0].cost: -1 is out of range, want 0 to 1000000000",
            ),
            (
                r#""refillPerSecond": 5, "windowSeconds": 0"#,
                r#"$.rules[0].windowSeconds: belongs to "algorithm": "SLIDING_WINDOW""#,
            ),
            (
                r#""refillPerSecond": 5, "leaseSeconds": 0"#,
                r#"$.rules[0].leaseSeconds: belongs to "algorithm": "CONCURRENCY""#,
            ),
        ],
    );
    assert_eq!(
        with(r#""refillPerSecond": 5"#, r#""refillPerSecond": 0, "idleSeconds": 60"#),
        Vec::<String>::new()
    );
    let nan = with(r#""capacity": 10"#, r#""capacity": NaN"#);
    assert!(
        nan.len() == 1 && nan[0].starts_with("$: not JSON: ") && nan[0].contains("at line 2 column"),
        "{nan:?}"
    );
}

/// Each of these in place of a number, with what is said of it; `{}` is the range.
const BAD: [(&str, &str); 8] = [
    ("0", "0 is out of range, want {}"),
    ("-1", "-1 is out of range, want {}"),
    ("1e308", "1e308 is out of range, want {}"),
    ("9007199254740993", "9007199254740993 is out of range, want {}"),
    ("1.5", "1.5 is not a whole number"),
    ("null", "want a whole number from {}, not null"),
    ("true", "want a whole number from {}, not a truth value"),
    (r#""10""#, "want a whole number from {}, not a text; write the number without quotes"),
];

/// Puts every bad number into `field` of the rule that `rule` gives.
fn refuses(field: &str, least: u64, most: u64, note: &str, rule: impl Fn(&str) -> String) {
    for (number, said) in BAD.iter().filter(|(number, _)| least > 0 || *number != "0") {
        let range = format!("{least} to {most}");
        let note = if said.contains("out of range") { note } else { "" };
        let found =
            with(r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#, &rule(number));
        assert_eq!(found, [format!("$.rules[0].{field}: {}{note}", said.replace("{}", &range))], "{number}");
    }
    let not_json = with(r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#, &rule("NaN"));
    assert!(not_json.len() == 1 && not_json[0].starts_with("$: not JSON: "), "{not_json:?}");
}

#[test]
fn al_14_a_bad_window_or_lease_is_refused_naming_the_field() {
    const OFF: &str = r#"; to switch a rule off say "mode": "DISABLED""#;
    refuses("windowSeconds", 1, 2_678_400, " (31 days)", |number| {
        format!(r#""algorithm": "SLIDING_WINDOW", "capacity": 10, "windowSeconds": {number}"#)
    });
    refuses("capacity", 1, 1_000_000_000, OFF, |number| {
        format!(r#""algorithm": "SLIDING_WINDOW", "capacity": {number}, "windowSeconds": 60"#)
    });
    refuses("leaseSeconds", 1, 3_600, "", |number| {
        format!(r#""algorithm": "CONCURRENCY", "capacity": 10, "leaseSeconds": {number}"#)
    });
    refuses("capacity", 1, 100_000, OFF, |number| {
        format!(r#""algorithm": "CONCURRENCY", "capacity": {number}"#)
    });
}

#[test]
fn al_14_a_bad_penalty_or_cost_is_refused_naming_the_field() {
    const STRICTER: &str = ", the rule's capacity: a penalty is stricter than its rule";
    let whole =
        r#""denials": 3, "withinSeconds": 60, "forSeconds": 600, "capacity": 1, "refillPerSecond": 1"#;
    let penalty = |from: &str, to: &str| {
        let fields = whole.replace(from, to);
        format!(
            r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "penalty": {{{fields}}}"#
        )
    };
    for (field, old, most, note) in [
        ("denials", 3, 1_000_000, ""),
        ("withinSeconds", 60, 2_678_400, ""),
        ("forSeconds", 600, 2_678_400, ""),
        ("capacity", 1, 10, STRICTER),
    ] {
        let (path, old) = (format!("penalty.{field}"), format!(r#""{field}": {old},"#));
        refuses(&path, 1, most, note, |number| penalty(&old, &format!(r#""{field}": {number},"#)));
    }
    let cost = |cost: String| {
        format!(r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "cost": {cost}"#)
    };
    refuses("cost.body", 1, 1_000_000_000, "", |number| cost(format!(r#"{{"body": {number}}}"#)));
    refuses("cost.max", 1, 10, ", the rule's capacity: more would never pass", |number| {
        cost(format!(r#"{{"header": "x-cost", "max": {number}}}"#))
    });
    refuses("cost.max", 1, 1_000_000_000, "", |number| {
        cost(format!(r#"{{"responseHeader": "x-cost", "default": 1, "max": {number}}}"#))
    });
    refuses("cost.default", 0, 10, ": it is a cost too, and \"max\" or the capacity is the most", |number| {
        cost(format!(r#"{{"responseHeader": "x-cost", "max": 70, "default": {number}}}"#))
    });
    refuses("cost.default", 0, 7, ": it is a cost too, and \"max\" or the capacity is the most", |number| {
        cost(format!(r#"{{"responseHeader": "x-cost", "max": 7, "default": {number}}}"#))
    });
}

#[test]
fn al_18_windows_are_from_a_second_to_31_days_and_leases_to_an_hour() {
    let rule =
        |rule: String| with(r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#, &rule);
    let window = |seconds: u64| {
        rule(format!(r#""algorithm": "SLIDING_WINDOW", "capacity": 10, "windowSeconds": {seconds}"#))
    };
    for seconds in [1, 60, 86_400, 28 * 86_400, 30 * 86_400, 31 * 86_400] {
        assert_eq!(window(seconds), [""; 0], "{seconds}");
    }
    assert_eq!(
        window(31 * 86_400 + 1),
        ["$.rules[0].windowSeconds: 2678401 is out of range, want 1 to 2678400 (31 days)"]
    );
    let lease = |lease: &str| rule(format!(r#""algorithm": "CONCURRENCY", "capacity": 10{lease}"#));
    for seconds in ["", r#", "leaseSeconds": 1"#, r#", "leaseSeconds": 3600"#] {
        assert_eq!(lease(seconds), [""; 0], "{seconds}");
    }
    assert_eq!(
        lease(r#", "leaseSeconds": 3601"#),
        ["$.rules[0].leaseSeconds: 3601 is out of range, want 1 to 3600"]
    );
}

#[test]
fn only_where_a_number_is_wanted_a_quoted_one_is_told_to_lose_its_quotes() {
    assert_eq!(with(r#""match": {}"#, r#""match": "10""#), ["$.rules[0].match: want an object, not a text"]);
    let nan = with(r#""capacity": 10"#, r#""capacity": "NaN""#);
    assert_eq!(nan, ["$.rules[0].capacity: want a whole number from 1 to 1000000000, not a text"]);
}

#[test]
fn a_bad_algorithm_hides_no_bad_number_and_a_good_one_asks_for_its_own() {
    let found = with(
        r#""TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#,
        r#""TOKEN_BUKET", "capacity": 0, "refillPerSecond": -1, "idleSeconds": 0, "windowSeconds": 0, "leaseSeconds": 0"#,
    );
    let fields = ["algorithm", "capacity", "refillPerSecond", "idleSeconds", "windowSeconds", "leaseSeconds"];
    assert_eq!(found.len(), fields.len(), "{found:?}");
    for (fault, field) in found.iter().zip(fields) {
        assert!(fault.starts_with(&format!("$.rules[0].{field}: ")), "{found:?}");
    }
    for (algorithm, missing) in [
        (r#""SLIDING_WINDOW""#, &["capacity", "windowSeconds"][..]),
        (r#""CONCURRENCY""#, &["capacity"]),
        (r#""TOKEN_BUCKET""#, &["capacity", "refillPerSecond"]),
    ] {
        let found = with(r#""TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#, algorithm);
        assert_eq!(found.len(), missing.len(), "{found:?}");
        for (fault, field) in found.iter().zip(missing) {
            assert!(fault.starts_with(&format!("$.rules[0].{field}: is missing")), "{found:?}");
        }
    }
    for field in ["preLimit", "lease"] {
        let found = with(r#""match": {}"#, &format!(r#""match": {{}}, "{field}": {{}}"#));
        assert_eq!(found, [format!("$.rules[0].{field}: not in this version")]);
    }
}
