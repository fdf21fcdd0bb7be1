//! The wire between filter and sidecar: what is read is within its bounds, and is written as it was read.

use protocol::batch::{
    CHECKS_MAX, OLDEST, VERSION, decode_answers, decode_batch, encode_answers, encode_batch,
};

/// Any bytes as a batch and as answers, as they are and behind each version's byte.
pub fn holds(data: &[u8]) {
    both(data);
    let mut versioned = [&[0], data].concat();
    for version in OLDEST..=VERSION {
        versioned[0] = version;
        both(&versioned);
    }
}

fn both(bytes: &[u8]) {
    if let Ok(batch) = decode_batch(bytes) {
        assert!(batch.checks.len() <= CHECKS_MAX);
        for call in batch.checks.iter().flat_map(|check| check.calls.iter().map(move |call| (check, call))) {
            let (check, call) = call;
            assert!(usize::from(call.rule) < batch.rules.len());
            assert!(call.key.iter().all(|part| usize::from(*part) < check.values.len()));
        }
        let again = encode_batch(&batch, Vec::new()).expect("what was read can be written");
        assert_eq!(decode_batch(&again).as_ref(), Ok(&batch));
    }
    if let Ok(answers) = decode_answers(bytes) {
        let again = encode_answers(&answers, bytes[0]).expect("what was read can be written");
        assert_eq!(decode_answers(&again).as_ref(), Ok(&answers));
    }
}
