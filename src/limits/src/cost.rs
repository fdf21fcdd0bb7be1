//! What a request costs: known before it passes, or reserved then and settled when it is known.

/// The largest cost, in tokens.
pub const COST_MAX: u64 = crate::token_bucket::CAPACITY_MAX;
/// The longest number that is read, in digits: what is longer is above every `max`.
const DIGITS_MAX: usize = 19;

/// Where the cost of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for all, in tokens.
    Fixed(u64),
    /// A request header says it.
    Header(Named),
    /// A token for every so many bytes of the request's body, or part of it.
    Body {
        /// Bytes for one token, at least 1.
        per: u64,
        /// Tokens that are reserved while the length is not known; settled by the bytes that came.
        default: u64,
        /// The most tokens.
        max: u64,
    },
    /// A header or trailer of the response says it; settled then.
    Response(Named),
}

/// A header that holds a cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its lower-case name.
    pub header: Box<str>,
    /// Tokens where there is none, or none that is a number.
    pub default: u64,
    /// The most tokens; what is said beyond counts as this.
    pub max: u64,
}

// === impl Cost ===

impl Cost {
    /// Tokens that a request takes before it passes. `header` is the value of the request header that a [`Cost::Header`] names,
    /// `length` that of `content-length`.
    #[must_use]
    pub fn before(&self, header: Option<&[u8]>, length: Option<&[u8]>) -> u64 {
        match self {
            Self::Fixed(tokens) => *tokens,
            Self::Header(named) => named.tokens(header).unwrap_or(named.default),
            Self::Body { default, .. } => {
                length.and_then(number).and_then(|bytes| self.of_body(bytes)).unwrap_or(*default)
            }
            Self::Response(named) => named.default,
        }
    }

    /// Tokens of a body of so many bytes; `None` if the cost has nothing to do with the body.
    #[must_use]
    pub fn of_body(&self, bytes: u64) -> Option<u64> {
        match self {
            Self::Body { per, max, .. } => Some(bytes.div_ceil((*per).max(1)).min(*max)),
            _ => None,
        }
    }

    /// Tokens that a response tells of by the header of this value; `None` if the cost has nothing to do with the response, or the
    /// value is no number.
    #[must_use]
    pub fn of_response(&self, value: Option<&[u8]>) -> Option<u64> {
        match self {
            Self::Response(named) => named.tokens(value),
            _ => None,
        }
    }

    /// Whether a request without a known length reserves an estimate for its body.
    #[must_use]
    pub fn settles_by_body(&self, length: Option<&[u8]>) -> bool {
        matches!(self, Self::Body { .. }) && length.and_then(number).is_none()
    }

    /// The request header that tells the cost.
    #[must_use]
    pub fn request_header(&self) -> Option<&str> {
        match self {
            Self::Header(named) => Some(&named.header),
            _ => None,
        }
    }

    /// The header or trailer of the response that tells the cost.
    #[must_use]
    pub fn response_header(&self) -> Option<&str> {
        match self {
            Self::Response(named) => Some(&named.header),
            _ => None,
        }
    }
}

// === impl Named ===

impl Named {
    fn tokens(&self, value: Option<&[u8]>) -> Option<u64> {
        Some(number(value?)?.min(self.max))
    }
}

/// A whole number in decimal digits, blanks around it aside; one with more digits than fit is as large as can be.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if digits.len() > DIGITS_MAX {
        return Some(u64::MAX);
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(default: u64, max: u64) -> Named {
        Named { header: "x-cost".into(), default, max }
    }

    #[test]
    fn a_header_says_the_cost_within_its_bounds() {
        let cost = Cost::Header(named(3, 50));
        for (value, wanted) in [
            (Some(&b"7"[..]), 7),
            (Some(b" 7 "), 7),
            (Some(b"0"), 0),
            (Some(b"51"), 50),
            (Some(b"99999999999999999999999999"), 50),
            (Some(b"-1"), 3),
            (Some(b"1e3"), 3),
            (Some(b"\xff"), 3),
            (Some(b""), 3),
            (None, 3),
        ] {
            assert_eq!(cost.before(value, Some(b"9")), wanted, "{value:?}");
        }
    }

    #[test]
    fn a_body_costs_by_its_length_and_an_estimate_without() {
        let cost = Cost::Body { per: 1_024, default: 4, max: 100 };
        for (length, wanted, settles) in [
            (Some(&b"0"[..]), 0, false),
            (Some(b"1"), 1, false),
            (Some(b"1024"), 1, false),
            (Some(b"1025"), 2, false),
            (Some(b"18446744073709551615"), 100, false),
            (Some(b"x"), 4, true),
            (None, 4, true),
        ] {
            assert_eq!(
                (cost.before(None, length), cost.settles_by_body(length)),
                (wanted, settles),
                "{length:?}"
            );
        }
        assert_eq!(cost.of_body(2_049), Some(3));
        assert_eq!(Cost::Fixed(1).of_body(2_049), None);
    }

    #[test]
    fn a_response_is_reserved_for_and_then_settled() {
        let cost = Cost::Response(named(10, 500));
        assert_eq!(cost.before(Some(b"1"), None), 10);
        assert_eq!(cost.of_response(Some(b"77")), Some(77));
        assert_eq!(cost.of_response(Some(b"501")), Some(500));
        assert_eq!(cost.of_response(Some(b"many")), None);
        assert_eq!(cost.of_response(None), None);
    }
}
