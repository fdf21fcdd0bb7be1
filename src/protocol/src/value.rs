//! Descriptor values on their way out: bounded, whatever a client sent.

use limits::descriptor::VALUE_MAX;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The first byte of a shortened value. Neither a header nor a path can hold it (RFC 9110 §5.5), so no client can send a short
/// value that takes another's bucket.
const SHORTENED: u8 = 0;

/// The value itself, or, longer than [`VALUE_MAX`] bytes, a mark and its SHA-256.
#[must_use]
pub fn bound(value: &[u8]) -> Cow<'_, [u8]> {
    if value.len() <= VALUE_MAX {
        return Cow::Borrowed(value);
    }
    let mut short = vec![SHORTENED];
    short.extend_from_slice(&Sha256::digest(value));
    Cow::Owned(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mk_12_a_value_is_short_whatever_was_sent_and_distinct_ones_stay_distinct() {
        let longest = vec![b'x'; VALUE_MAX];
        assert!(matches!(bound(&longest), Cow::Borrowed(value) if value == longest));
        let (a, b) = (vec![b'x'; VALUE_MAX + 1], vec![b'x'; 60 * 1024]);
        assert_eq!((bound(&a).len(), bound(&b).len()), (33, 33));
        assert_ne!(bound(&a), bound(&b));
        assert_eq!(bound(&a), bound(&a.clone()));
        assert_eq!(bound(b""), b"".as_slice());
    }
}
