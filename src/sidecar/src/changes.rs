//! What is done to buckets without a decision: tokens that are settled, slots that are released or renewed, penalties that are
//! pardoned.

use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::penalty::Penalty;
use limits::settle::Settlement;
use std::time::Duration;

/// One change of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The bucket's key.
    pub key: Vec<u8>,
    /// What is done to it.
    pub kind: Kind,
}

/// What is done to a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tokens go back, or are charged after the fact; see `limits::settle`.
    Settle {
        /// The rule's limit, which has tokens: not [`Limit::Concurrency`].
        limit: Limit,
        /// The rule's penalty.
        penalty: Option<Penalty>,
        /// Which way.
        settlement: Settlement,
        /// How many tokens.
        tokens: u64,
        /// Milliseconds since they were taken.
        age_ms: u64,
    },
    /// A slot is given back; see [`Concurrency::release`].
    Release {
        /// The rule's limit.
        limit: Concurrency,
        /// The slot's id.
        slot: Box<[u8]>,
    },
    /// A slot's lease begins anew; see [`Concurrency::renew`].
    Renew {
        /// The rule's limit.
        limit: Concurrency,
        /// The slot's id.
        slot: Box<[u8]>,
    },
    /// Denials and penalty are forgotten; what was used stays used.
    Pardon,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was done.
    Yes,
    /// There was nothing to do it to.
    No,
    /// Nobody can say.
    Unknown,
    /// It was not done: it was not sent, or the server refused to run it.
    Unsent,
}

// === impl Change ===

impl Change {
    /// The same, so much later. A part of a millisecond counts as a whole one: what is too old gives back less, never more.
    #[must_use]
    pub fn aged(mut self, by: Duration) -> Self {
        if let Kind::Settle { age_ms, .. } = &mut self.kind {
            let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            *age_ms = age_ms.saturating_add(by_ms);
        }
        self
    }
}

// === impl Changed ===

impl Changed {
    /// Whether the store said that it is done, or that there was nothing to do.
    #[must_use]
    pub fn is_known(self) -> bool {
        matches!(self, Self::Yes | Self::No)
    }
}
