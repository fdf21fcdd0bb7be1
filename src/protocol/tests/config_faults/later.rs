//! What this version does not decide.

use crate::{faults, with};

#[test]
fn the_whole_model_is_read_and_what_is_not_decided_yet_is_refused_by_name() {
    let json = r#"{
        "rulesFrom": "sidecar", "untilRules": "CLOSED"}"#;
    assert_eq!(faults(json), ["$.rulesFrom: not in this version", "$.untilRules: not in this version",]);
    let json = r#"{"rules": [
        {"id": "a", "algorithm": "SLIDING_WINDOW", "capacity": 10, "windowSeconds": 60, "failMode": "LOCAL"},
        {"id": "b", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5,
         "lease": {"tokens": 50, "seconds": 1}, "preLimit": {"factor": 1.5}, "regions": {"eu": 1}}
    ]}"#;
    assert_eq!(
        faults(json),
        [
            r#"$.rules[0].failMode: "LOCAL" is not in this version"#,
            "$.rules[1].lease: not in this version",
            "$.rules[1].preLimit: not in this version",
            "$.rules[1].regions: not in this version",
        ]
    );
}

#[test]
fn what_is_not_decided_yet_is_checked_all_the_same() {
    for (field, path) in [
        (r#""lease": {"tokens": 0}"#, "$.rules[0].lease.tokens"),
        (r#""lease": 50"#, "$.rules[0].lease"),
        (r#""preLimit": {"factor": 0}"#, "$.rules[0].preLimit.factor"),
        (r#""domain": "other""#, "$.rules[0].domain"),
        (r#""policy": "Gold!""#, "$.rules[0].policy"),
        (r#""detail": "a\nb""#, "$.rules[0].detail"),
    ] {
        let found = with(r#""refillPerSecond": 5"#, &format!(r#""refillPerSecond": 5, {field}"#));
        let genuine = found
            .iter()
            .any(|fault| fault.starts_with(&format!("{path}: ")) && !fault.ends_with("this version"));
        assert!(genuine, "{field}: {found:?}");
    }
}

#[test]
fn nothing_is_offered_that_would_be_refused() {
    let later = ["LOCAL", "rulesFrom", "untilRules", "lease", "preLimit", "regions"];
    for (from, to) in [
        (r#""match": {}"#, r#""xxxxxxxxxxxx": 1"#),
        (r#""match": {}"#, r#""failMode": "local""#),
        (r#""match": {}"#, r#""failMode": 7"#),
        (r#""rules""#, r#""xxxxxxxxxxxx": 1, "rules""#),
    ] {
        let found = with(from, to).concat();
        assert!(found.contains("one of") || found.contains("want "), "{to}: {found}");
        for word in later {
            assert!(!found.contains(&format!("\"{word}\"")), "{to}: {found}");
        }
    }
}
