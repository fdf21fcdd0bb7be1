//! What the sidecar has to be told besides checks: slots that are free again, and what requests cost in the end.
//!
//! It rides with checks where there are any. What fails comes back: a release until the store has forgotten the slot by itself, a
//! settlement only if it certainly was not sent, since it must not count twice, and not for ever. After a failure nothing goes until
//! a pause is over.

use super::slots::{Notice, Slots};
use crate::bill::Settlement;
use crate::exchange::{Counter, Tally};
use protocol::batch::EXTRAS_MAX;
use std::collections::VecDeque;

/// The most releases, and the most settlements, that wait; one more is lost.
pub const WAITING_MAX: usize = 8_192;
/// How long a settlement waits, in microseconds; then it is lost. After a minute without a sidecar there are others to tell of.
pub const SETTLEMENT_MAX_US: u64 = 60_000_000;
/// The first pause after a failure; each further one doubles it.
const PAUSE_MIN_US: u64 = 200_000;
/// The longest pause.
const PAUSE_MAX_US: u64 = 5_000_000;

/// See the module's own words.
#[derive(Debug, Default)]
pub struct Outbox {
    releases: VecDeque<Notice>,
    settlements: VecDeque<Due>,
    renewals_due: bool,
    paused_until_us: Option<u64>,
    pause_us: u64,
    lost: Tally,
}

/// A settlement that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// What is to be settled.
    pub settlement: Settlement,
    /// When it is given up.
    pub until_us: u64,
}

/// How much may go in one callout.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Of releases, of renewals and of settlements, each.
    pub count: usize,
    /// Bytes of them all.
    pub bytes: usize,
}

/// What goes in one callout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel {
    /// Slots that are free again.
    pub releases: Vec<Notice>,
    /// Slots that are still held.
    pub renewals: Vec<Notice>,
    /// What requests cost in the end.
    pub settlements: Vec<Due>,
}

// === impl Outbox ===

impl Outbox {
    /// A slot is free again.
    pub fn release(&mut self, notice: Notice) {
        if self.releases.len() < WAITING_MAX {
            self.releases.push_back(notice);
        } else {
            lose_slot(&mut self.lost, &notice);
        }
    }

    /// A request cost something else than it took, as is known since `now_us`.
    pub fn settle(&mut self, settlement: Settlement, now_us: u64) {
        let due = Due { settlement, until_us: now_us.saturating_add(SETTLEMENT_MAX_US) };
        if self.settlements.len() < WAITING_MAX {
            self.settlements.push_back(due);
        } else {
            lose_settlement(&mut self.lost, &due);
        }
    }

    /// Looks at the clock: what is due, what is not paused any longer, what the store has forgotten by itself, what has waited for
    /// too long.
    pub fn tick(&mut self, slots: &Slots, now_us: u64) {
        self.renewals_due = slots.are_due(now_us);
        if self.paused_until_us.is_some_and(|until_us| until_us <= now_us) {
            self.paused_until_us = None;
        }
        while let Some(late) = self.releases.pop_front_if(|notice| notice.until_us <= now_us) {
            lose_slot(&mut self.lost, &late);
        }
        while let Some(late) = self.settlements.pop_front_if(|due| due.until_us <= now_us) {
            lose_settlement(&mut self.lost, &late);
        }
    }

    /// Whether something can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.paused_until_us.is_none()
            && (self.renewals_due || !self.releases.is_empty() || !self.settlements.is_empty())
    }

    /// Whether nothing waits; renewals do not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.settlements.is_empty()
    }

    /// Takes out what fits, if it may go.
    pub fn take(&mut self, slots: &mut Slots, room: Room, now_us: u64) -> Parcel {
        let mut parcel = Parcel::default();
        if !self.is_ready() {
            return parcel;
        }
        let mut room = Room { count: room.count.min(EXTRAS_MAX), bytes: room.bytes };
        fill(&mut parcel.releases, &mut room, || self.releases.pop_front());
        fill(&mut parcel.renewals, &mut room, || slots.next_due(now_us));
        self.renewals_due = slots.are_due(now_us);
        fill(&mut parcel.settlements, &mut room, || self.settlements.pop_front());
        parcel
    }

    /// A callout arrived: nothing keeps the next from going.
    pub fn delivered(&mut self) {
        self.paused_until_us = None;
        self.pause_us = 0;
    }

    /// A callout failed. `may_have_arrived` unless it certainly was not sent.
    pub fn returned(&mut self, slots: &mut Slots, parcel: Parcel, may_have_arrived: bool, now_us: u64) {
        if parcel.is_empty() {
            return;
        }
        self.pause_us = self.pause_us.saturating_mul(2).clamp(PAUSE_MIN_US, PAUSE_MAX_US);
        self.paused_until_us = Some(now_us.saturating_add(self.pause_us));
        parcel.renewals.iter().for_each(|notice| slots.renew_sooner(notice.id, now_us));
        for notice in parcel.releases.into_iter().rev() {
            if self.releases.len() < WAITING_MAX {
                self.releases.push_front(notice);
            } else {
                lose_slot(&mut self.lost, &notice);
            }
        }
        for due in parcel.settlements.into_iter().rev() {
            if may_have_arrived || self.settlements.len() >= WAITING_MAX {
                lose_settlement(&mut self.lost, &due);
            } else {
                self.settlements.push_front(due);
            }
        }
    }

    /// Gives up what could not be written.
    pub fn lose(&mut self, parcel: Parcel) {
        parcel.releases.iter().for_each(|notice| lose_slot(&mut self.lost, notice));
        parcel.settlements.iter().for_each(|due| lose_settlement(&mut self.lost, due));
    }

    /// Gives up all that waits.
    pub fn abandon(&mut self) {
        let releases = self.releases.drain(..).collect();
        let settlements = self.settlements.drain(..).collect();
        self.lose(Parcel { releases, settlements, ..Parcel::default() });
    }

    /// Moves what was lost since the last call into a tally.
    pub fn count_lost(&mut self, tally: &mut Tally) {
        tally.append(&mut self.lost);
    }
}

fn lose_slot(lost: &mut Tally, notice: &Notice) {
    lost.extend(notice.buckets.iter().map(|bucket| (bucket.rule, Counter::SlotLost)));
}

fn lose_settlement(lost: &mut Tally, due: &Due) {
    lost.push((due.settlement.bucket.rule, Counter::SettlementLost));
}

/// Something of a size that is known before it is sent.
trait Weighed {
    fn count(&self) -> usize;
    fn bytes(&self) -> usize;
}

/// Takes from `next` until the count or the bytes are used up; what comes last may go over the bytes.
fn fill<T: Weighed>(into: &mut Vec<T>, room: &mut Room, mut next: impl FnMut() -> Option<T>) {
    let mut left = room.count;
    // A notice counts once for each of its buckets, of which a check has at most so many.
    while left >= limits::rule::RULES_PER_REQUEST_MAX && room.bytes > 0 {
        let Some(one) = next() else { break };
        left = left.saturating_sub(one.count());
        room.bytes = room.bytes.saturating_sub(one.bytes());
        into.push(one);
    }
}

impl Weighed for Notice {
    fn count(&self) -> usize {
        self.buckets.len()
    }

    fn bytes(&self) -> usize {
        self.size()
    }
}

impl Weighed for Due {
    fn count(&self) -> usize {
        1
    }

    fn bytes(&self) -> usize {
        self.settlement.bucket.size()
    }
}

// === impl Parcel ===

impl Parcel {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.renewals.is_empty() && self.settlements.is_empty()
    }
}
