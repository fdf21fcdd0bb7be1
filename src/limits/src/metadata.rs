//! A value of Envoy's dynamic metadata, such as a claim that `jwt_authn` has verified.

use std::borrow::Cow;

/// The numbers that are written in decimal lie below this; all whole ones among them are exact.
const NUMBER_MAX: f64 = 9_007_199_254_740_992.0;

/// A property as text. Envoy hands a text over as it is, a number as the 8 bytes of a little-endian double and a truth value as one
/// byte, and does not say which; so 8 bytes that are no printable text are read as a number, and 0 and 1 as `false` and `true`. What
/// can be no text and no such number (a list, an object) stays the bytes that it is.
#[must_use]
pub fn text(raw: &[u8]) -> Cow<'_, [u8]> {
    match raw {
        [0] => Cow::Borrowed(b"false"),
        [1] => Cow::Borrowed(b"true"),
        _ => number(raw).map_or(Cow::Borrowed(raw), |number| number.to_string().into_bytes().into()),
    }
}

fn number(raw: &[u8]) -> Option<f64> {
    let is_text = || core::str::from_utf8(raw).is_ok_and(|text| !text.chars().any(char::is_control));
    let number = f64::from_le_bytes(raw.try_into().ok()?);
    (number.abs() < NUMBER_MAX && !is_text()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_truth_values_are_read_as_they_are_written() {
        for (number, wanted) in
            [(42.0, "42"), (0.0, "0"), (-7.0, "-7"), (1.5, "1.5"), (123_456_789.0, "123456789")]
        {
            assert_eq!(&*text(&f64::to_le_bytes(number)), wanted.as_bytes(), "{number}");
        }
        assert_eq!(&*text(&[1]), b"true");
        assert_eq!(&*text(&[0]), b"false");
        for raw in ["gold", "12345678", "a customer with a long name", "ğüşı", "1", ""] {
            assert_eq!(&*text(raw.as_bytes()), raw.as_bytes());
        }
        for number in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(&*text(&number.to_le_bytes()), number.to_le_bytes());
        }
    }
}
