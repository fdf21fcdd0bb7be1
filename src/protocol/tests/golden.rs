//! The wire by its bytes: what a version wrote, the next one must still read.
//!
//! The files hold hexadecimal, 32 bytes a line. They are never rewritten; another version gets files of its own.

use protocol::batch::{
    Algorithm, Answer, Answers, Batch, Call, Charge, Check, LocalCount, Outcome, PenaltyForm, RuleForm, Slot,
    Unknown, Value, Verdict, decode_answers, decode_batch, encode_answers, encode_batch,
};

fn value(kind: &'static str, bytes: Option<&'static [u8]>, secret: bool) -> Value<'static> {
    Value { kind, bytes, secret }
}

/// A batch with something in every field.
fn batch() -> Batch<'static> {
    let rule = |id, algorithm, shadow| RuleForm { id, algorithm, shadow, penalty: None };
    Batch {
        domain: "public-api",
        budget_ms: 60_000,
        rules: vec![
            rule(
                "gold-orders-create",
                Algorithm::TokenBucket {
                    capacity: 1_000_000_000,
                    refill_num: 115_741,
                    refill_den: 10_000_000_000,
                    idle_s: 0,
                },
                false,
            ),
            rule(
                "trial",
                Algorithm::TokenBucket { capacity: 5, refill_num: 0, refill_den: 1, idle_s: 34_560_000 },
                true,
            ),
            rule("window", Algorithm::SlidingWindow { capacity: 10, window_s: 60 }, false),
            rule("slots", Algorithm::Concurrency { capacity: 3, lease_s: 30 }, false),
        ],
        checks: vec![
            Check {
                values: vec![
                    value("api_key", Some(b"k_123"), true),
                    value("path", Some(b"/\xff\x00"), false),
                    value("plan", None, false),
                ],
                calls: vec![
                    Call { rule: 0, cost: 1, key: vec![0] },
                    Call { rule: 1, cost: 1_000_000_000, key: vec![2, 1] },
                    Call { rule: 2, cost: 0, key: vec![] },
                ],
                lease: 50,
                slot: b"\x01\x02",
            },
            Check { values: vec![], calls: vec![], lease: 0, slot: b"" },
        ],
        give_backs: vec![Charge {
            rule: 0,
            key: vec![value("ip", Some(b"192.0.2.1"), false)],
            tokens: 49,
            age_ms: 0,
        }],
        debits: vec![],
        local_counts: vec![LocalCount { rule: 1, allowed: 300, denied: 70_000 }],
        releases: vec![Slot { rule: 3, key: vec![value("user", Some(b"u"), false)], id: b"\xaa" }],
        renewals: vec![Slot { rule: 3, key: vec![], id: b"\xbb\xcc" }],
    }
}

fn answers() -> Answers {
    let outcome = |verdict, left, wait_ms, leased| Outcome { verdict, left, wait_ms, leased };
    Answers {
        answers: vec![
            Answer::Admitted(vec![outcome(Verdict::Admit, 99, 0, 0), outcome(Verdict::Wait, 0, 200, 50)]),
            Answer::Denied(vec![
                outcome(Verdict::Never, 1_000_000_000, 0, 0),
                outcome(Verdict::Wait, 0, 34_560_000_000, 0),
            ]),
            Answer::Admitted(vec![]),
            Answer::Unknown(Unknown::Version),
            Answer::Unknown(Unknown::RedisTimeout),
            Answer::Unknown(Unknown::RedisError),
            Answer::Unknown(Unknown::Shed),
            Answer::Unknown(Unknown::Breaker),
        ],
        unavailable_for_ms: 1_000,
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(line).collect()
}

/// What version 2 adds.
fn batch_2() -> Batch<'static> {
    let mut batch = batch();
    batch.rules[0].penalty = Some(PenaltyForm {
        denials: 20,
        within_s: 60,
        for_s: 300,
        capacity: 1,
        refill_num: 1,
        refill_den: 10,
        idle_s: 0,
    });
    batch.give_backs[0].age_ms = 70_000;
    batch.debits =
        vec![Charge { rule: 2, key: vec![value("user", Some(b"u"), false)], tokens: 1_000, age_ms: 1 }];
    batch
}

#[test]
fn a_batch_of_version_1_is_read() {
    assert_eq!(decode_batch(&from_hex(include_str!("golden/batch-1.hex"))), Ok(batch()));
}

#[test]
fn a_batch_of_version_2_is_read_and_written_byte_for_byte() {
    let text = include_str!("golden/batch-2.hex");
    assert_eq!(to_hex(&encode_batch(&batch_2(), Vec::new()).unwrap()), text);
    assert_eq!(decode_batch(&from_hex(text)), Ok(batch_2()));
}

#[test]
fn answers_of_both_versions_are_read_and_written_byte_for_byte() {
    for (version, text) in
        [(1, include_str!("golden/answers-1.hex")), (2, include_str!("golden/answers-2.hex"))]
    {
        assert_eq!(to_hex(&encode_answers(&answers(), version).unwrap()), text);
        assert_eq!(decode_answers(&from_hex(text)), Ok(answers()));
    }
}
