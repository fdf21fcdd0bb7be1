use super::*;

fn batch() -> Batch<'static> {
    Batch {
        domain: "public-api",
        budget_ms: 5,
        rules: vec![RuleForm {
            id: "gold-orders-create",
            algorithm: Algorithm::TokenBucket { capacity: 100, refill_num: 10, refill_den: 1, idle_s: 0 },
            shadow: false,
            penalty: None,
        }],
        checks: vec![Check {
            values: vec![Value { kind: "api_key", bytes: Some(b"k_123"), secret: true }],
            calls: vec![Call { rule: 0, cost: 1, key: vec![0] }],
            lease: 0,
            slot: &[],
        }],
        give_backs: vec![],
        debits: vec![],
        local_counts: vec![],
        releases: vec![],
        renewals: vec![],
    }
}

#[test]
fn a_batch_survives_the_wire_and_its_first_byte_is_the_version() {
    let bytes = encode_batch(&batch(), Vec::new()).unwrap();
    assert_eq!(bytes[0], VERSION);
    assert_eq!(decode_batch(&bytes), Ok(batch()));
}

#[test]
fn another_version_is_told_from_garbage() {
    let mut bytes = encode_batch(&batch(), Vec::new()).unwrap();
    bytes[0] = 9;
    assert_eq!(decode_batch(&bytes), Err(WireError::Version(9)));
    assert_eq!(decode_batch(&[]), Err(WireError::Version(0)));
    bytes[0] = VERSION;
    for cut in 1..bytes.len() {
        assert_eq!(decode_batch(&bytes[..cut]), Err(WireError::Malformed), "cut at {cut}");
    }
    bytes.push(0);
    assert_eq!(decode_batch(&bytes), Err(WireError::Malformed));
}

#[test]
fn an_index_that_points_at_nothing_is_refused() {
    let mut broken = batch();
    broken.checks[0].calls[0].rule = 1;
    assert_eq!(decode_batch(&encode_batch(&broken, Vec::new()).unwrap()), Err(WireError::Malformed));
    let mut broken = batch();
    broken.checks[0].calls[0].key = vec![1];
    assert_eq!(decode_batch(&encode_batch(&broken, Vec::new()).unwrap()), Err(WireError::Malformed));
}

#[test]
fn answers_survive_the_wire() {
    let outcome = Outcome { verdict: Verdict::Wait, left: 0, wait_ms: 200, leased: 0 };
    let answers = Answers {
        answers: vec![Answer::Denied(vec![outcome]), Answer::Unknown(Unknown::RedisTimeout)],
        unavailable_for_ms: 0,
    };
    assert_eq!(decode_answers(&encode_answers(&answers, VERSION).unwrap()), Ok(answers));
}
