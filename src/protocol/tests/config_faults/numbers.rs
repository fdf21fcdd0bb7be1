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
    for (algorithm, field) in [("SLIDING_WINDOW", "windowSeconds"), ("CONCURRENCY", "leaseSeconds")] {
        let found = with(
            r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#,
            &format!(r#""algorithm": "{algorithm}", "capacity": 0, "{field}": 0"#),
        );
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].starts_with("$.rules[0].capacity: 0 is out of range"));
        assert_eq!(found[0], format!("$.rules[0].algorithm: \"{algorithm}\" is not in this version"));
        assert!(
            found[2].starts_with(&format!("$.rules[0].{field}: 0 is out of range, want 1 to ")),
            "{found:?}"
        );
    }
}

#[test]
fn only_where_a_number_is_wanted_a_quoted_one_is_told_to_lose_its_quotes() {
    assert_eq!(with(r#""match": {}"#, r#""match": "10""#), ["$.rules[0].match: want an object, not a text"]);
    let nan = with(r#""capacity": 10"#, r#""capacity": "NaN""#);
    assert_eq!(nan, ["$.rules[0].capacity: want a whole number from 1 to 1000000000, not a text"]);
}

#[test]
fn a_bad_algorithm_hides_no_bad_number_and_one_of_a_later_version_asks_for_nothing() {
    let found = with(
        r#""TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#,
        r#""TOKEN_BUKET", "capacity": 0, "refillPerSecond": -1, "idleSeconds": 0, "windowSeconds": 0, "leaseSeconds": 0"#,
    );
    let fields = ["algorithm", "capacity", "refillPerSecond", "idleSeconds", "windowSeconds", "leaseSeconds"];
    assert_eq!(found.len(), fields.len(), "{found:?}");
    for (fault, field) in found.iter().zip(fields) {
        assert!(fault.starts_with(&format!("$.rules[0].{field}: ")), "{found:?}");
    }
    for algorithm in ["SLIDING_WINDOW", "CONCURRENCY"] {
        let found =
            with(r#""TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#, &format!("\"{algorithm}\""));
        assert_eq!(found, [format!("$.rules[0].algorithm: \"{algorithm}\" is not in this version")]);
    }
    for field in ["penalty", "preLimit", "lease"] {
        let found = with(r#""match": {}"#, &format!(r#""match": {{}}, "{field}": {{}}"#));
        assert_eq!(found, [format!("$.rules[0].{field}: not in this version")]);
    }
}
