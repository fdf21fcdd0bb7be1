//! Numbers by their text: a JSON number means its value, so `1e3` and `1000.0` are 1000, but nothing is ever rounded.

/// The largest exponent that is written out; all numbers of a configuration are far smaller.
const EXPONENT_MAX: usize = 40;

/// Why a number is not the whole number that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotWhole {
    /// It has decimals.
    Fraction,
    /// Below 0, or beyond 64 bits.
    OutOfRange,
}

/// Whether a text could be written as a number.
pub(crate) fn is_number(text: &str) -> bool {
    // Unlike the standard library's, JSON's numbers are never spelt in letters.
    text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && serde_json::from_str::<f64>(text).is_ok()
}

/// The number without exponent, such as `0.0000115741` for `1.15741e-05`; `None` beyond [`EXPONENT_MAX`].
pub(crate) fn plain(text: &str) -> Option<String> {
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else { return Some(text.to_owned()) };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let shift: isize = exponent.parse().ok()?;
    if shift.unsigned_abs() > EXPONENT_MAX {
        return None;
    }
    let zeros = "0".repeat(shift.unsigned_abs());
    let (digits, point) = if shift < 0 {
        (format!("{zeros}{whole}{decimals}"), whole.len())
    } else {
        (format!("{whole}{decimals}{zeros}"), whole.len().saturating_add(shift.unsigned_abs()))
    };
    let (whole, decimals) = digits.split_at_checked(point)?;
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let decimals = decimals.trim_end_matches('0');
    let dot = if decimals.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{dot}{decimals}"))
}

/// The whole number of at least 0 that the text stands for.
pub(crate) fn whole(text: &str) -> Result<u64, NotWhole> {
    let plain = plain(text).ok_or(NotWhole::OutOfRange)?;
    let (whole, decimals) = plain.split_once('.').unwrap_or((&plain, ""));
    if decimals.bytes().any(|digit| digit != b'0') {
        return Err(if whole.starts_with('-') { NotWhole::OutOfRange } else { NotWhole::Fraction });
    }
    if whole == "-0" {
        return Ok(0);
    }
    whole.parse().map_err(|_| NotWhole::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_written_out_exactly() {
        for (text, written_out) in [
            ("12.50", "12.50"),
            ("1.15741e-05", "0.0000115741"),
            ("1e3", "1000"),
            ("1.5E+1", "15"),
            ("1.25e1", "12.5"),
            ("-2e0", "-2"),
            ("0e0", "0"),
        ] {
            assert_eq!(plain(text).as_deref(), Some(written_out), "{text}");
        }
        for text in ["1e308", "1e-308", "1e99999999999999999999"] {
            assert_eq!(plain(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_in_quotes_is_told_from_a_word() {
        assert!(["10", "-1.5", "1e3"].into_iter().all(is_number));
        assert!(!["", "NaN", "inf", "10s", "0x10", " 1", "ten"].into_iter().any(is_number));
    }

    #[test]
    fn whole_numbers_are_read_without_rounding() {
        assert_eq!(whole("9007199254740993"), Ok(9_007_199_254_740_993));
        assert_eq!(whole("10.0"), Ok(10));
        assert_eq!(whole("1e9"), Ok(1_000_000_000));
        assert_eq!(whole("-0"), Ok(0));
        assert_eq!(whole("0.1"), Err(NotWhole::Fraction));
        for text in ["-1", "-0.5", "1e308", "18446744073709551616"] {
            assert_eq!(whole(text), Err(NotWhole::OutOfRange), "{text}");
        }
    }
}
