//! The forms of the names that keys are made of: nothing that a key's punctuation could be taken for.

/// The longest id of a rule and name of a policy, in bytes.
pub(crate) const ID_MAX: usize = 64;
/// The longest domain, in bytes.
pub(crate) const DOMAIN_MAX: usize = 64;
/// The longest name of a descriptor, in bytes.
const DESCRIPTOR_MAX: usize = 32;

/// Whether a text is an id: `[a-z0-9][a-z0-9_-]{0,63}`.
pub(crate) fn is_id(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=ID_MAX).contains(&text.len()) && !text.starts_with(['_', '-']) && text.bytes().all(fits)
}

/// Whether a text is a domain: `[A-Za-z0-9._-]{1,64}`.
pub(crate) fn is_domain(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=DOMAIN_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// Whether a text is a descriptor's name: `[a-z][a-z0-9_]{0,31}`.
pub(crate) fn is_descriptor(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    text.len() <= DESCRIPTOR_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_nothing_that_a_key_is_punctuated_with() {
        assert!(is_id("gold-orders_2") && is_id("0") && is_id(&"x".repeat(64)));
        assert!(is_domain("Public.api-1_x") && is_descriptor("api_key2"));
        for text in ["", "_a", "-a", "A", "a:b", "a}b", "é", &"x".repeat(65)] {
            assert!(!is_id(text), "{text}");
        }
        for text in ["", "a:b", "a{b", "a b", &"x".repeat(65)] {
            assert!(!is_domain(text), "{text}");
        }
        for text in ["", "2a", "_a", "A", "a-b", "a=b", &"x".repeat(33)] {
            assert!(!is_descriptor(text), "{text}");
        }
    }
}
