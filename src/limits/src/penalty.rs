//! The penalty: who keeps being denied falls under a stricter limit for a time, and gets out of it by behaving.
//!
//! After so many denials, the first of which is not longer ago than a set time, the bucket is for another set time *also* held to
//! a token bucket of the penalty's own, which starts empty. Each denial meanwhile begins that time anew; after it without a
//! denial the penalty is over. Who was never denied has no [`Strikes`], and pays nothing for this.

use crate::decision::Verdict;
use crate::token_bucket::{MICRO, TTL_SLACK_MS, TokenBucket, Used};

/// The most denials that a penalty can wait for.
pub const DENIALS_MAX: u64 = 1_000_000;
/// The longest times of a penalty, in seconds: 31 days.
pub const TIME_MAX_S: u64 = 31 * 24 * 60 * 60;

/// The parameters of a penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Penalty {
    denials: u64,
    within_ms: u64,
    for_ms: u64,
    bucket: TokenBucket,
}

/// What is remembered of a client that was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strikes {
    /// When the first of the denials that count was, in milliseconds since the epoch.
    pub first_ms: u64,
    /// How many there were since, outside of a penalty.
    pub denials: u64,
    /// When the penalty ends, in milliseconds since the epoch; 0 before the first.
    pub until_ms: u64,
    /// What the penalty's bucket remembers; of no meaning outside of a penalty.
    pub used: Used,
}

/// Why parameters make no penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PenaltyError {
    /// The number of denials is 0 or above [`DENIALS_MAX`].
    Denials,
    /// The time within which they are counted is 0 or above [`TIME_MAX_S`].
    Within,
    /// The time for which the penalty holds is 0 or above [`TIME_MAX_S`].
    For,
}

// === impl Penalty ===

impl Penalty {
    /// After `denials` within `within_s` seconds, `bucket` for `for_s` seconds.
    ///
    /// # Errors
    /// See [`PenaltyError`].
    pub fn new(denials: u64, within_s: u64, for_s: u64, bucket: TokenBucket) -> Result<Self, PenaltyError> {
        let is_time = |seconds: u64| seconds > 0 && seconds <= TIME_MAX_S;
        match () {
            () if denials == 0 || denials > DENIALS_MAX => Err(PenaltyError::Denials),
            () if !is_time(within_s) => Err(PenaltyError::Within),
            () if !is_time(for_s) => Err(PenaltyError::For),
            () => Ok(Self {
                denials,
                within_ms: within_s.saturating_mul(1_000),
                for_ms: for_s.saturating_mul(1_000),
                bucket,
            }),
        }
    }

    /// How many denials bring it about.
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.denials
    }

    /// Within how many milliseconds.
    #[must_use]
    pub fn within_ms(&self) -> u64 {
        self.within_ms
    }

    /// For how many milliseconds it holds.
    #[must_use]
    pub fn for_ms(&self) -> u64 {
        self.for_ms
    }

    /// The limit meanwhile.
    #[must_use]
    pub fn bucket(&self) -> &TokenBucket {
        &self.bucket
    }

    /// Whether the penalty admits a request of this cost; one that is not under it is admitted.
    #[must_use]
    pub fn admits(&self, strikes: &Strikes, now_us: u64, cost: u64) -> bool {
        !strikes.punished(now_us) || self.bucket.ask(Some(strikes.used), now_us, cost) == Verdict::Admit
    }

    /// Whole tokens that the penalty leaves; `None` if there is none now.
    #[must_use]
    pub fn left(&self, strikes: &Strikes, now_us: u64) -> Option<u64> {
        strikes.punished(now_us).then(|| self.bucket.refuse(Some(strikes.used), now_us, 0).left)
    }

    /// Milliseconds until the penalty admits a request of this cost, or is over.
    #[must_use]
    pub fn wait_ms(&self, strikes: &Strikes, now_us: u64, cost: u64) -> u64 {
        if !strikes.punished(now_us) {
            return 0;
        }
        let rest_ms = strikes.until_ms.saturating_sub(now_us / 1_000);
        if cost > self.bucket.capacity() {
            return rest_ms;
        }
        self.bucket.refuse(Some(strikes.used), now_us, cost).wait_ms.min(rest_ms)
    }

    /// Takes the cost of a request that is admitted out of the penalty's bucket too.
    #[must_use]
    pub fn charge(&self, strikes: Strikes, now_us: u64, cost: u64) -> Strikes {
        if !strikes.punished(now_us) || cost == 0 {
            return strikes;
        }
        let (_, write) = self.bucket.charge(Some(strikes.used), now_us, cost);
        Strikes { used: write.map_or(strikes.used, |write| write.state), ..strikes }
    }

    /// One more denial.
    #[must_use]
    pub fn strike(&self, strikes: Option<Strikes>, now_us: u64) -> Strikes {
        let now_ms = now_us / 1_000;
        let until_ms = now_ms.saturating_add(self.for_ms);
        let fresh = Strikes {
            first_ms: now_ms,
            denials: 0,
            until_ms: 0,
            used: Used { micro_tokens: 0, at_us: now_us },
        };
        let strikes = match strikes {
            Some(strikes) if strikes.punished(now_us) => return Strikes { until_ms, ..strikes },
            Some(strikes) if strikes.denials > 0 && self.counts(&strikes, now_ms) => strikes,
            _ => fresh,
        };
        let denials = strikes.denials.saturating_add(1);
        if denials < self.denials {
            return Strikes { denials, ..strikes };
        }
        let empty = Used { micro_tokens: self.bucket.capacity().saturating_mul(MICRO), at_us: now_us };
        Strikes { first_ms: strikes.first_ms, denials: 0, until_ms, used: empty }
    }

    /// What of them is still worth keeping at `now_us`; `None` if nothing is.
    #[must_use]
    pub fn kept(&self, strikes: Strikes, now_us: u64) -> Option<Strikes> {
        let counts = strikes.denials > 0 && self.counts(&strikes, now_us / 1_000);
        (counts || strikes.punished(now_us)).then_some(strikes)
    }

    /// How long they matter, in milliseconds, and [`TTL_SLACK_MS`] more.
    #[must_use]
    pub fn ttl_ms(&self, strikes: &Strikes, now_us: u64) -> u64 {
        let counted_until =
            if strikes.denials > 0 { strikes.first_ms.saturating_add(self.within_ms) } else { 0 };
        let until = counted_until.max(strikes.until_ms);
        until.saturating_sub(now_us / 1_000).saturating_add(TTL_SLACK_MS)
    }

    fn counts(&self, strikes: &Strikes, now_ms: u64) -> bool {
        now_ms < strikes.first_ms.saturating_add(self.within_ms)
    }
}

// === impl Strikes ===

impl Strikes {
    /// Whether the penalty holds.
    #[must_use]
    pub fn punished(&self, now_us: u64) -> bool {
        now_us / 1_000 < self.until_ms
    }
}

impl core::fmt::Display for PenaltyError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Denials => write!(out, "from 1 to {DENIALS_MAX} denials bring a penalty about"),
            Self::Within | Self::For => {
                write!(out, "a penalty's times are from 1 to {TIME_MAX_S} seconds (31 days)")
            }
        }
    }
}
