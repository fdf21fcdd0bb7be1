//! Stores: where the buckets are. One trait, and one behavioural suite over all of them (`tests/stores.rs`).

pub mod memory;
pub mod redis;
mod status;

use crate::asks::Asks;
use crate::changes::{Change, Changed};
use protocol::batch::{Answer, Unknown};
pub use status::{Health, Status};
use std::future::Future;
use tokio::time::Instant;

/// Decides checks, each atomically and all its rules at once.
pub trait Store: Send + Sync + 'static {
    /// One answer per check, in their order. What can't be decided by `deadline` is unknown; that it was not charged is *not*
    /// promised, for an answer may be lost.
    fn decide(&self, asks: &Asks, deadline: Instant) -> impl Future<Output = Vec<Answer>> + Send;

    /// One outcome per change, in their order. They are independent of each other; one that is [`Changed::Unknown`] may have been
    /// done, one that is [`Changed::Unsent`] was not.
    fn change(&self, changes: &[Change], deadline: Instant) -> impl Future<Output = Vec<Changed>> + Send;

    /// How the store is.
    fn status(&self) -> Status;
}

/// The store that was configured.
#[derive(Debug)]
pub enum AnyStore {
    /// See [`memory::Memory`].
    Memory(memory::Memory),
    /// See [`redis::Redis`].
    Redis(redis::Redis),
}

impl Store for AnyStore {
    async fn decide(&self, asks: &Asks, deadline: Instant) -> Vec<Answer> {
        match self {
            Self::Memory(store) => store.decide(asks, deadline).await,
            Self::Redis(store) => store.decide(asks, deadline).await,
        }
    }

    async fn change(&self, changes: &[Change], deadline: Instant) -> Vec<Changed> {
        match self {
            Self::Memory(store) => store.change(changes, deadline).await,
            Self::Redis(store) => store.change(changes, deadline).await,
        }
    }

    fn status(&self) -> Status {
        match self {
            Self::Memory(store) => store.status(),
            Self::Redis(store) => store.status(),
        }
    }
}

/// The same unknown answer for all of so many checks.
#[must_use]
pub fn all_unknown(checks: usize, reason: Unknown) -> Vec<Answer> {
    vec![Answer::Unknown(reason); checks]
}
