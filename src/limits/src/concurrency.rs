//! Concurrency: at most `capacity` requests at once, each holding a slot on a lease that ends unless it is renewed.
//!
//! A slot's id is made by whoever holds it, who can so release what he never heard about: a release that comes before its acquire
//! leaves a tombstone, at which the acquire then takes nothing. Whatever dies without a release is forgotten with its lease.

use crate::decision::{Outcome, Verdict, Write};
use crate::token_bucket::TTL_SLACK_MS;
use std::sync::Arc;

/// The largest capacity, in requests.
pub const CAPACITY_MAX: u64 = 100_000;
/// The longest lease, in seconds.
pub const LEASE_MAX_S: u64 = 3_600;
/// The longest id of a slot, in bytes.
pub const SLOT_MAX: usize = 64;

/// The parameters of a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    capacity: u64,
    lease_ms: u64,
}

/// What a concurrency limit remembers, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(Vec<Slot>);

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its id, shared, since a state is copied when it is written.
    pub id: Arc<[u8]>,
    /// When its lease ends, in milliseconds since the epoch; of a tombstone, when that is forgotten.
    pub until_ms: u64,
    /// Whether it was released before it was acquired.
    pub tombstone: bool,
}

/// Why parameters make no concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrencyError {
    /// The capacity is 0 or above [`CAPACITY_MAX`].
    Capacity,
    /// The lease is shorter than 1 s or longer than [`LEASE_MAX_S`].
    Lease,
}

// === impl Concurrency ===

impl Concurrency {
    /// At most `capacity` at once, on leases of `lease_s` seconds.
    ///
    /// # Errors
    /// See [`ConcurrencyError`].
    pub fn new(capacity: u64, lease_s: u64) -> Result<Self, ConcurrencyError> {
        if capacity == 0 || capacity > CAPACITY_MAX {
            return Err(ConcurrencyError::Capacity);
        }
        if lease_s == 0 || lease_s > LEASE_MAX_S {
            return Err(ConcurrencyError::Lease);
        }
        Ok(Self { capacity, lease_ms: lease_s.saturating_mul(1_000) })
    }

    /// The most at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long a slot is held without a sign of life, in milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// What a request that would hold the slot `id` hears. One that holds it already, or has released it already, is admitted.
    #[must_use]
    pub fn ask(&self, state: &Slots, now_ms: u64, id: &[u8]) -> Verdict {
        let known = state.find(id, now_ms).is_some();
        if known || state.live(now_ms) < self.capacity { Verdict::Admit } else { Verdict::Wait }
    }

    /// What is left when nothing is taken, and how long until a slot is free for certain: until as many leases have ended as
    /// it takes, though a slot may be released before, or renewed.
    #[must_use]
    pub fn refuse(&self, state: &Slots, now_ms: u64, id: &[u8]) -> Outcome {
        let verdict = self.ask(state, now_ms, id);
        let wait_ms = if verdict == Verdict::Wait { self.wait_ms(state, now_ms) } else { 0 };
        Outcome { verdict, left: self.left(state, now_ms), wait_ms }
    }

    /// Takes the slot `id`, which [`Concurrency::ask`] admits: the outcome, and the state to write (none if nothing changed).
    #[must_use]
    pub fn charge(&self, state: &Slots, now_ms: u64, id: &[u8]) -> (Outcome, Option<Write<Slots>>) {
        if state.find(id, now_ms).is_some() {
            return (Outcome { verdict: Verdict::Admit, left: self.left(state, now_ms), wait_ms: 0 }, None);
        }
        let mut slots: Vec<Slot> = state.0.iter().filter(|slot| slot.until_ms > now_ms).cloned().collect();
        slots.push(Slot { id: id.into(), until_ms: now_ms.saturating_add(self.lease_ms), tombstone: false });
        let state = Slots(slots);
        let left = self.left(&state, now_ms);
        (Outcome { verdict: Verdict::Admit, left, wait_ms: 0 }, Some(self.write(state, now_ms)))
    }

    /// Gives the slot `id` back; of one that is not there a tombstone stays for a lease.
    #[must_use]
    pub fn release(&self, mut state: Slots, now_ms: u64, id: &[u8]) -> Write<Slots> {
        let until_ms = now_ms.saturating_add(self.lease_ms);
        match state.0.iter().position(|slot| *slot.id == *id) {
            Some(place) => match state.0.get_mut(place) {
                Some(slot) if slot.tombstone => slot.until_ms = until_ms,
                _ => _ = state.0.swap_remove(place),
            },
            None => state.0.push(Slot { id: id.into(), until_ms, tombstone: true }),
        }
        self.write(state, now_ms)
    }

    /// Begins the lease of the slot `id` anew. `None` if it is not there (any more): what is gone is not brought back.
    #[must_use]
    pub fn renew(&self, mut state: Slots, now_ms: u64, id: &[u8]) -> Option<Write<Slots>> {
        let slot = state.0.iter_mut().find(|slot| *slot.id == *id && !slot.tombstone)?;
        slot.until_ms = now_ms.saturating_add(self.lease_ms);
        Some(self.write(state, now_ms))
    }

    /// Kept as long as any lease runs: others may have longer ones, from before the rule was edited.
    fn write(&self, state: Slots, now_ms: u64) -> Write<Slots> {
        let last_ms = state.held(now_ms).map(|slot| slot.until_ms.saturating_sub(now_ms)).max();
        let ttl_ms = last_ms.unwrap_or(0).max(self.lease_ms).saturating_add(TTL_SLACK_MS);
        Write { state, ttl_ms }
    }

    fn left(&self, state: &Slots, now_ms: u64) -> u64 {
        self.capacity.saturating_sub(state.live(now_ms))
    }

    fn wait_ms(&self, state: &Slots, now_ms: u64) -> u64 {
        let mut ends: Vec<u64> = state.held(now_ms).map(|slot| slot.until_ms).collect();
        ends.sort_unstable();
        let enough = state.live(now_ms).saturating_sub(self.capacity);
        let end = usize::try_from(enough).ok().and_then(|place| ends.get(place)).copied().unwrap_or(now_ms);
        end.saturating_sub(now_ms)
    }
}

// === impl Slots ===

impl Slots {
    /// The slots, tombstones and ended leases included.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.0.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many leases run.
    #[must_use]
    pub fn live(&self, now_ms: u64) -> u64 {
        u64::try_from(self.held(now_ms).count()).unwrap_or(u64::MAX)
    }

    fn held(&self, now_ms: u64) -> impl Iterator<Item = &Slot> {
        self.0.iter().filter(move |slot| !slot.tombstone && slot.until_ms > now_ms)
    }

    fn find(&self, id: &[u8], now_ms: u64) -> Option<&Slot> {
        self.0.iter().find(|slot| *slot.id == *id && slot.until_ms > now_ms)
    }
}

impl core::fmt::Display for ConcurrencyError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Capacity => write!(
                out,
                "so many at once are from 1 to {CAPACITY_MAX}; to switch a rule off say \"mode\": \"DISABLED\""
            ),
            Self::Lease => write!(out, "a lease is from 1 to {LEASE_MAX_S} seconds long"),
        }
    }
}
