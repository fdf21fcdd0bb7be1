//! How fast tokens come back: an exact fraction of tokens per second.

use core::fmt;

/// Decimals that a refill rate may have.
pub const DECIMALS_MAX: u32 = 10;
/// Significant digits that a refill rate may have: what an IEEE double carries through text and back.
pub const DIGITS_MAX: usize = 15;
/// The fastest refill, in tokens per second.
pub const PER_SECOND_MAX: u64 = 1_000_000;

/// 10^[`DECIMALS_MAX`]: the denominator that every rate can be written with.
const SCALE: u64 = 10_000_000_000;

/// Tokens per second as a reduced fraction.
///
/// One token per second is one micro-token per microsecond, so the credit of `dt` microseconds is `num * dt / den` micro-tokens,
/// in integers: a rate of 1 per day loses nothing, however often it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refill {
    num: u64,
    den: u64,
}

/// Why a text is not a refill rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillError {
    /// Not a plain decimal number such as `0.0167` or `10`.
    NotDecimal,
    /// More than [`PER_SECOND_MAX`].
    TooFast,
    /// More than [`DECIMALS_MAX`] decimals or [`DIGITS_MAX`] significant digits.
    TooFine,
}

// === impl Refill ===

impl Refill {
    /// Nothing ever comes back: the bucket starts anew after its idle time.
    pub const NEVER: Self = Self { num: 0, den: 1 };

    /// Reads tokens per second from plain decimal text: digits, and optionally a point and digits.
    ///
    /// # Errors
    /// See [`RefillError`].
    pub fn from_decimal(text: &str) -> Result<Self, RefillError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || text.ends_with('.') {
            return Err(RefillError::NotDecimal);
        }
        let (whole, decimals) = (whole.trim_start_matches('0'), decimals.trim_end_matches('0'));
        let places = u32::try_from(decimals.len()).map_err(|_| RefillError::TooFine)?;
        let significant = format!("{whole}{decimals}");
        let significant = significant.trim_start_matches('0');
        if places > DECIMALS_MAX || significant.len() > DIGITS_MAX {
            return Err(if whole.len() > 7 { RefillError::TooFast } else { RefillError::TooFine });
        }
        let num: u64 = if significant.is_empty() {
            0
        } else {
            significant.parse().map_err(|_| RefillError::NotDecimal)?
        };
        let den = 10u64.checked_pow(places).ok_or(RefillError::TooFine)?;
        Self::new(num, den).ok_or(RefillError::TooFast)
    }

    /// A rate of `num / den` tokens per second, reduced. `None` unless `den` divides 10^10, the numerator is at most 10^15 and
    /// the rate at most [`PER_SECOND_MAX`]: what [`Refill::from_decimal`] can make.
    #[must_use]
    pub fn new(num: u64, den: u64) -> Option<Self> {
        if den == 0 || SCALE.checked_rem(den)? != 0 || num > 1_000_000_000_000_000 {
            return None;
        }
        if u128::from(num) > u128::from(PER_SECOND_MAX).saturating_mul(u128::from(den)) {
            return None;
        }
        let divisor = gcd(num, den);
        Some(Self { num: num.checked_div(divisor)?, den: den.checked_div(divisor)? })
    }

    /// The numerator of the reduced fraction, at most 10^15.
    #[must_use]
    pub fn num(self) -> u64 {
        self.num
    }

    /// The denominator of the reduced fraction, a divisor of 10^10.
    #[must_use]
    pub fn den(self) -> u64 {
        self.den
    }

    /// Whether nothing ever comes back.
    #[must_use]
    pub fn is_never(self) -> bool {
        self.num == 0
    }

    /// Whole micro-tokens that come back within `elapsed_us` microseconds, rounded down.
    #[must_use]
    pub fn credit(self, elapsed_us: u64) -> u64 {
        let exact = u128::from(self.num).saturating_mul(u128::from(elapsed_us));
        u64::try_from(exact.checked_div(u128::from(self.den)).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Microseconds until `micro_tokens` have come back, rounded up; `None` if they never do.
    #[must_use]
    pub fn time_for(self, micro_tokens: u64) -> Option<u64> {
        let exact = u128::from(micro_tokens).saturating_mul(u128::from(self.den));
        let rounded_up =
            exact.saturating_add(u128::from(self.num).saturating_sub(1)).checked_div(u128::from(self.num))?;
        Some(u64::try_from(rounded_up).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for RefillError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDecimal => {
                write!(out, "want a plain decimal number of at least 0, such as 0.0167 or 10")
            }
            Self::TooFast => write!(out, "at most {PER_SECOND_MAX} tokens per second"),
            Self::TooFine => {
                write!(out, "at most {DECIMALS_MAX} decimals and {DIGITS_MAX} significant digits")
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    match a.checked_rem(b) {
        None => a,
        Some(rest) => gcd(b, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(u64, u64), RefillError> {
        Refill::from_decimal(text).map(|rate| (rate.num(), rate.den()))
    }

    #[test]
    fn decimals_become_reduced_fractions() {
        assert_eq!(parts("10"), Ok((10, 1)));
        assert_eq!(parts("0.5"), Ok((1, 2)));
        assert_eq!(parts("0.0166666667"), Ok((166_666_667, 10_000_000_000)));
        assert_eq!(parts("1000000"), Ok((1_000_000, 1)));
        assert_eq!(parts("007.50"), Ok((15, 2)));
        assert_eq!(parts("0"), Ok((0, 1)));
        assert_eq!(parts("0.000"), Ok((0, 1)));
    }

    #[test]
    fn what_is_no_rate_is_refused_with_the_reason() {
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "NaN", "inf", " 1", "1 ", "0x10", "1.2.3", "١"]
        {
            assert_eq!(parts(text), Err(RefillError::NotDecimal), "{text:?}");
        }
        assert_eq!(parts("1000000.1"), Err(RefillError::TooFast));
        assert_eq!(parts(&"9".repeat(400)), Err(RefillError::TooFast));
        assert_eq!(parts("0.00000000001"), Err(RefillError::TooFine));
        assert_eq!(parts("123456.1234567891"), Err(RefillError::TooFine));
    }

    #[test]
    fn credit_is_floored_and_time_for_is_its_inverse() {
        let daily = Refill::from_decimal("0.0000115741").unwrap();
        assert_eq!(daily.credit(86_400_000_000), 1_000_002);
        for rate in ["0.0000115741", "0.3333333333", "5", "999999.999999999", "1000000"] {
            let rate = Refill::from_decimal(rate).unwrap();
            for wanted in [1, 7, 999_999, 1_000_000, 10_000_000_000] {
                let time = rate.time_for(wanted).unwrap();
                assert!(rate.credit(time) >= wanted);
                assert!(rate.credit(time - 1) < wanted);
            }
        }
        assert_eq!(Refill::NEVER.time_for(1), None);
        assert_eq!(Refill::NEVER.credit(u64::MAX), 0);
    }
}
