//! Bytes from outside: whatever they are, reading them ends in a value or in an error.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::batch::{self, decode_answers, decode_batch, encode_answers, encode_batch};
use protocol::check::Request;
use protocol::config::Config;

fn golden(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A good text in which some bytes are replaced, and of which perhaps only the beginning is left.
fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = good.len();
    (vec((0..length, any::<u8>()), 0..4), 0..=length).prop_map(move |(changes, cut)| {
        let mut bytes = good.clone();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        bytes.truncate(if cut % 2 == 0 { length } else { cut });
        bytes
    })
}

/// JSON that looks like a configuration: known names and words at places where they may or may not belong.
fn json() -> impl Strategy<Value = String> {
    let words = [
        "id",
        "rules",
        "match",
        "key",
        "algorithm",
        "TOKEN_BUCKET",
        "capacity",
        "refillPerSecond",
        "idleSeconds",
        "SLIDING_WINDOW",
        "windowSeconds",
        "CONCURRENCY",
        "leaseSeconds",
        "penalty",
        "denials",
        "withinSeconds",
        "forSeconds",
        "group",
        "priority",
        "exemptions",
        "corsPreflight",
        "COUNT",
        "metadata",
        "query",
        "cookie",
        "body",
        "responseHeader",
        "default",
        "max",
        "mode",
        "DISABLED",
        "client",
        "ip",
        "route",
        "GET /a/{b}",
        "descriptors",
        "header",
        "x-a",
        "cidr",
        "10.0.0.0/8",
        "prefix",
        "cost",
        "sidecar",
        "deadlineMs",
        "routes",
        "path",
        "/a",
        "",
        "\\u0000",
        "é",
        "headers",
        "trustedHops",
        "method",
    ];
    let word = proptest::sample::select(words.to_vec());
    let text = word.clone().prop_map(|word| format!("\"{word}\""));
    let numbers =
        ["0", "-0", "1", "1e308", "-1", "0.1", "10", "1e-5", "9007199254740993", "5e3", "0e99999999999"];
    let number = proptest::sample::select(numbers.to_vec()).prop_map(str::to_owned);
    let constant = proptest::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned);
    let leaf = prop_oneof![4 => text, 2 => number, 1 => constant];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let entry = (word.clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            vec(inner, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            vec(entry, 0..6).prop_map(|entries| format!("{{{}}}", entries.join(","))),
        ]
    })
}

const GOOD: &str = r#"{"domain":"d","descriptors":{"plan":{"header":"x-plan","secret":true},"ip":{"trustedHops":1}},
"routes":["GET /orders/{id}"],"headers":{"dialect":"draft-12"},"pods":5,"rules":[{"id":"a","match":{"plan":["gold"],
"route":"POST /a","ip":{"cidr":"10.0.0.0/8"},"path":{"prefix":"/v1"}},"key":["client","plan"],"algorithm":"TOKEN_BUCKET",
"capacity":10,"refillPerSecond":0.5,"cost":2,"detail":"x"}]}"#;

fn config_holds(json: &[u8]) {
    match Config::parse(json) {
        Ok(config) => assert!((1..=60_000).contains(&config.sidecar.deadline_ms)),
        Err(faults) => {
            assert!(!faults.is_empty());
            let on_one_line = |text: &str| !text.contains(char::is_control);
            for fault in faults {
                assert!(fault.path.starts_with('$') && on_one_line(&fault.path), "{fault}");
                assert!(!fault.message.is_empty() && on_one_line(&fault.message), "{fault}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_batch_or_an_error(bytes in vec(any::<u8>(), 0..512), version in any::<bool>()) {
        let mut bytes = bytes;
        if version && let Some(first) = bytes.first_mut() {
            *first = batch::VERSION;
        }
        let _ = (decode_batch(&bytes), decode_answers(&bytes));
    }

    #[test]
    fn a_damaged_batch_that_is_still_one_survives_the_wire(bytes in damaged(golden(include_str!("golden/batch-2.hex")))) {
        if let Ok(batch) = decode_batch(&bytes) {
            let again = encode_batch(&batch, Vec::new()).unwrap();
            prop_assert_eq!(decode_batch(&again), Ok(batch.clone()));
        }
    }

    #[test]
    fn damaged_answers_that_are_still_some_survive_the_wire(bytes in damaged(golden(include_str!("golden/answers-2.hex")))) {
        if let Ok(answers) = decode_answers(&bytes) {
            let again = encode_answers(&answers, batch::VERSION).unwrap();
            prop_assert_eq!(decode_answers(&again), Ok(answers));
        }
    }

    #[test]
    fn any_bytes_are_a_configuration_or_faults(bytes in vec(any::<u8>(), 0..256)) {
        config_holds(&bytes);
    }

    #[test]
    fn a_damaged_configuration_is_one_or_has_faults(bytes in damaged(GOOD.as_bytes().to_vec())) {
        config_holds(&bytes);
    }

    #[test]
    fn any_json_is_a_configuration_or_faults(json in json()) {
        config_holds(json.as_bytes());
    }

    #[test]
    fn any_json_is_a_check_or_faults(json in json()) {
        let good = Config::parse(GOOD.as_bytes()).unwrap();
        if let Err(faults) = Request::parse(json.as_bytes(), "d", &good.rules) {
            prop_assert!(!faults.is_empty());
        }
    }
}
