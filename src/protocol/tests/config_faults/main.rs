//! What a configuration can't say: every fault is listed, by its path, with the remedy.

mod costs;
mod later;
mod numbers;
mod requests;
mod whole;

use protocol::config::Config;

pub(crate) fn faults(json: &str) -> Vec<String> {
    match Config::parse(json.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(faults) => {
            assert!(!faults.is_empty());
            faults.iter().map(ToString::to_string).collect()
        }
    }
}

/// A good configuration of one rule in which `from` is replaced by `to`.
pub(crate) fn with(from: &str, to: &str) -> Vec<String> {
    let good = r#"{"descriptors": {"plan": {"header": "x-plan"}}, "rules": [{"id": "r", "match": {}, "key": ["client"],
        "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}]}"#;
    assert_eq!(faults(good), Vec::<String>::new());
    assert!(good.contains(from));
    faults(&good.replacen(from, to, 1))
}

pub(crate) fn check_all(from: &str, cases: &[(&str, &str)]) {
    for (to, message) in cases {
        assert_eq!(with(from, to), [message.to_string()], "{to}");
    }
}
