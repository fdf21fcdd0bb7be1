//! The slots of concurrency that the streams of one root hold, or may hold.
//!
//! `Queued` ─sent─▶ `Sent` ─ruling─▶ `Held` ─end─▶ released, once. What was never sent, or is denied, holds nothing. Where nobody can
//! say, a slot counts as held: to release one that was never taken does no harm. A stream that ends while its check is under way
//! waits for the ruling, which comes within a deadline, so that the release never overtakes what it releases.

use crate::bucket::Bucket;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A slot is renewed when so much of its lease is over, so that two renewals may fail.
const RENEWALS_PER_LEASE: u64 = 3;
/// A renewal that failed is tried again after so much of the time until the next one.
const RETRIES_PER_RENEWAL: u64 = 4;

/// The id of a slot: eight random bytes of the root, and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId([u8; 16]);

/// What a check that takes a slot says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The buckets that the slot is taken in, one for each rule of concurrency.
    buckets: Vec<Bucket>,
    /// The shortest of their leases, in milliseconds.
    shortest_ms: u64,
    /// The longest.
    longest_ms: u64,
}

/// A slot that is held, or is not any more, as the sidecar has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The slot.
    pub id: SlotId,
    /// Where it was taken.
    pub buckets: Rc<[Bucket]>,
    /// When the store has forgotten it by itself.
    pub until_us: u64,
}

/// See the module's own words.
#[derive(Debug, Default)]
pub struct Slots {
    seed: [u8; 8],
    made: u64,
    slots: HashMap<SlotId, Slot>,
    /// Held slots by the time of their next renewal.
    due: BTreeSet<(u64, SlotId)>,
}

#[derive(Debug)]
struct Slot {
    buckets: Rc<[Bucket]>,
    state: State,
    renew_after_us: u64,
    longest_us: u64,
    /// The last sign of life that was sent.
    alive_us: u64,
}

#[derive(Debug)]
enum State {
    Queued,
    Sent { ended: bool },
    Held { due_us: u64 },
}

// === impl SlotId ===

impl SlotId {
    /// The bytes that are sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

// === impl Claim ===

impl Claim {
    /// The slot is taken in this bucket too, on a lease of so many milliseconds.
    pub fn add(&mut self, bucket: Bucket, lease_ms: u64) {
        self.shortest_ms = if self.buckets.is_empty() { lease_ms } else { self.shortest_ms.min(lease_ms) };
        self.longest_ms = self.longest_ms.max(lease_ms);
        self.buckets.push(bucket);
    }
}

// === impl Slots ===

impl Slots {
    /// Makes ids that begin with these bytes, which no other root must have.
    pub fn seed(&mut self, seed: [u8; 8]) {
        self.seed = seed;
    }

    /// A check that takes a slot is queued.
    pub fn claim(&mut self, claim: Claim) -> SlotId {
        self.made = self.made.wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = self.seed;
        let [i, j, k, l, m, n, o, p] = self.made.to_be_bytes();
        let id = SlotId([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]);
        let slot = Slot {
            buckets: claim.buckets.into(),
            state: State::Queued,
            renew_after_us: claim.shortest_ms.saturating_mul(1_000) / RENEWALS_PER_LEASE,
            longest_us: claim.longest_ms.saturating_mul(1_000),
            alive_us: 0,
        };
        self.slots.insert(id, slot);
        id
    }

    /// Whether the slot's stream still wants it.
    #[must_use]
    pub fn is_wanted(&self, id: SlotId) -> bool {
        self.slots.get(&id).is_some_and(|slot| !matches!(slot.state, State::Sent { ended: true }))
    }

    /// Its check was sent at `now_us`.
    pub fn sent(&mut self, id: SlotId, now_us: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.state = State::Sent { ended: false };
            slot.alive_us = now_us;
        }
    }

    /// It is certain that it is not held.
    pub fn forget(&mut self, id: SlotId) {
        self.remove(id);
    }

    /// It is held, or nobody can say that it is not; `taken` tells in which places of the answer. The notice of its release, if
    /// the stream ended meanwhile.
    pub fn hold(&mut self, id: SlotId, taken: impl Fn(usize) -> bool) -> Option<Notice> {
        let slot = self.slots.get_mut(&id)?;
        let State::Sent { ended } = slot.state else { return None };
        if !slot.buckets.iter().all(|bucket| taken(bucket.place)) {
            slot.buckets = slot.buckets.iter().filter(|bucket| taken(bucket.place)).cloned().collect();
        }
        if ended || slot.buckets.is_empty() {
            let slot = self.remove(id)?;
            return ended.then(|| slot.notice(id)).filter(|notice| !notice.buckets.is_empty());
        }
        let due_us = slot.alive_us.saturating_add(slot.renew_after_us);
        slot.state = State::Held { due_us };
        self.due.insert((due_us, id));
        None
    }

    /// Its stream has ended. The notice of its release, if it can be given at once; one that is not known any more has none.
    pub fn end(&mut self, id: SlotId) -> Option<Notice> {
        let slot = self.slots.get_mut(&id)?;
        match slot.state {
            State::Sent { .. } => {
                slot.state = State::Sent { ended: true };
                None
            }
            State::Queued => {
                self.remove(id);
                None
            }
            State::Held { .. } => self.remove(id).map(|slot| slot.notice(id)),
        }
    }

    /// Whether a renewal is due.
    #[must_use]
    pub fn are_due(&self, now_us: u64) -> bool {
        self.due.first().is_some_and(|(due_us, _)| *due_us <= now_us)
    }

    /// The next renewal that is due, which counts as sent.
    pub fn next_due(&mut self, now_us: u64) -> Option<Notice> {
        if !self.are_due(now_us) {
            return None;
        }
        let (_, id) = self.due.pop_first()?;
        let slot = self.slots.get_mut(&id)?;
        let due_us = now_us.saturating_add(slot.renew_after_us);
        slot.state = State::Held { due_us };
        slot.alive_us = now_us;
        let notice = slot.notice(id);
        self.due.insert((due_us, id));
        Some(notice)
    }

    /// A renewal did not arrive: the next one comes sooner.
    pub fn renew_sooner(&mut self, id: SlotId, now_us: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let State::Held { due_us } = &mut slot.state else { return };
        self.due.remove(&(*due_us, id));
        *due_us = (*due_us).min(now_us.saturating_add(slot.renew_after_us / RETRIES_PER_RENEWAL));
        self.due.insert((*due_us, id));
    }

    /// How many are held, or may be.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn remove(&mut self, id: SlotId) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        if let State::Held { due_us } = slot.state {
            self.due.remove(&(due_us, id));
        }
        Some(slot)
    }
}

// === impl Slot ===

impl Slot {
    fn notice(&self, id: SlotId) -> Notice {
        let until_us = self.alive_us.saturating_add(self.longest_us);
        Notice { id, buckets: Rc::clone(&self.buckets), until_us }
    }
}

// === impl Notice ===

impl Notice {
    /// About how many bytes this adds to a body.
    #[must_use]
    pub fn size(&self) -> usize {
        self.buckets.iter().map(Bucket::size).sum()
    }
}
