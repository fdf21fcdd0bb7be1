//! What the streams of one root context share: checks that wait to be sent, callouts in flight, answers that wait to be given.
//!
//! One callout a turn of the event loop carries what has been queued by then. While as many callouts as are allowed are in
//! flight, new checks wait for one to return, so batches grow with load by themselves. Pure: the shell tells the time, sends what
//! [`Worker::next_callout`] gives and answers what [`Worker::next_decided`] gives.

pub mod outbox;
pub mod slots;

use crate::bill::Settlement;
use crate::callout::{Arrival, Refusal};
use crate::check::Pending;
use crate::encode::encode;
use crate::exchange::Tally;
use crate::reason::Reason;
use hashbrown::HashMap;
use limits::ruleset::RuleSet;
use outbox::{Outbox, Parcel, Room};
use protocol::batch::{self, Answer, CHECKS_MAX, EXTRAS_MAX, Verdict};
use slots::{SlotId, Slots};
use std::collections::VecDeque;

/// The most callouts of a worker in flight. Each ends by its own timeout: one with checks within a deadline. One without, of which
/// there is one at a time, may hold its place for [`ALONE_MS`]; the others are left to the checks.
pub const CALLOUTS_MAX: usize = 4;
/// The most streams answered in one callback. Local replies nest, each runs the response callbacks inside the last one: some
/// thousand overflow the VM's stack; 32 were safe for 60,000 denials over 8 connections of 1,000 streams.
pub const ANSWERS_MAX: usize = 32;
/// The most checks that wait; one more is shed. The memory of a VM never shrinks.
pub const QUEUE_MAX: usize = 65_536;
/// The largest body of a callout, in bytes; what does not fit goes with the next.
const BODY_MAX: usize = 256 * 1024;
/// What may ride with checks, so that these don't wait for it.
const BESIDE_CHECKS: Room = Room { count: CHECKS_MAX, bytes: BODY_MAX / 4 };
/// What goes in a callout of its own, one at a time.
const ALONE: Room = Room { count: EXTRAS_MAX, bytes: BODY_MAX };
/// Milliseconds that such a callout may take; nobody waits for it.
const ALONE_MS: u32 = 1_000;

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The sidecar's answer, which is never `Unknown`.
    Decided(Answer),
    /// Nobody can say.
    Failed(Reason),
}

/// A callout to be sent.
#[derive(Debug)]
pub struct Callout<S> {
    /// The body.
    pub body: Vec<u8>,
    /// Whole milliseconds, at least 1: for the host 0 is no timeout at all.
    pub timeout_ms: u32,
    askers: Vec<Asker<S>>,
    parcel: Parcel,
}

/// See the module's own words. `S` is how the shell finds a stream again.
#[derive(Debug)]
pub struct Worker<S> {
    queued: VecDeque<Queued<S>>,
    in_flight: HashMap<u32, InFlight<S>>,
    decided: VecDeque<(S, Ruling)>,
    slots: Slots,
    outbox: Outbox,
    wake_sent: bool,
}

/// A stream whose check was sent, and the slot that it takes.
#[derive(Debug)]
struct Asker<S> {
    stream: S,
    slot: Option<SlotId>,
}

#[derive(Debug)]
struct InFlight<S> {
    askers: Vec<Asker<S>>,
    parcel: Parcel,
    half_time_us: u64,
}

#[derive(Debug)]
struct Queued<S> {
    stream: S,
    check: Pending,
    deadline_us: u64,
}

// === impl Worker ===

impl<S> Default for Worker<S> {
    fn default() -> Self {
        Self {
            queued: VecDeque::new(),
            in_flight: HashMap::new(),
            decided: VecDeque::new(),
            slots: Slots::default(),
            outbox: Outbox::default(),
            wake_sent: false,
        }
    }
}

impl<S> Worker<S> {
    /// Makes ids of slots that begin with these bytes, which no other root must have.
    pub fn seed(&mut self, seed: [u8; 8]) {
        self.slots.seed(seed);
    }

    /// Queues a check that must be decided by `deadline_us`, on the clock of [`Worker::next_callout`]. Gives the slot that it takes,
    /// if it takes one; [`Worker::end`] has to be told when its stream has ended.
    pub fn queue(&mut self, stream: S, mut check: Pending, deadline_us: u64) -> Option<SlotId> {
        if self.queued.len() >= QUEUE_MAX {
            self.decided.push_back((stream, Ruling::Failed(Reason::Shed)));
            return None;
        }
        let slot = check.take_claim().map(|claim| self.slots.claim(*claim));
        slot.into_iter().for_each(|slot| check.set_slot(slot));
        self.queued.push_back(Queued { stream, check, deadline_us });
        slot
    }

    /// The stream that wanted this slot has ended. More than once is as good as once.
    pub fn end(&mut self, slot: SlotId) {
        self.slots.end(slot).into_iter().for_each(|notice| self.outbox.release(notice));
    }

    /// Requests cost something else than they took, as is known since `now_us`.
    pub fn settle(&mut self, settlements: impl IntoIterator<Item = Settlement>, now_us: u64) {
        settlements.into_iter().for_each(|settlement| self.outbox.settle(settlement, now_us));
    }

    /// Looks at the clock: slots may have to be renewed, and what failed may be tried again.
    pub fn tick(&mut self, now_us: u64) {
        self.outbox.tick(&self.slots, now_us);
    }

    /// Whether the root has to be woken in the event loop's next turn: there is something to do that no returning callout will
    /// bring about, and nobody has woken it yet. Assumes that the caller then wakes it.
    pub fn wants_wake(&mut self) -> bool {
        let room = self.in_flight.len() < CALLOUTS_MAX;
        let sendable = room && (!self.queued.is_empty() || self.may_send_alone());
        let wants = !self.wake_sent && (sendable || !self.decided.is_empty());
        self.wake_sent |= wants;
        wants
    }

    /// The wake arrived, or is not waited for any longer.
    pub fn woken(&mut self) {
        self.wake_sent = false;
    }

    /// Whether nothing is queued, in flight, to be answered or to be told. Slots may be held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued.is_empty()
            && self.in_flight.is_empty()
            && self.decided.is_empty()
            && self.outbox.is_empty()
    }

    /// Whether slots are held, or may be, that have to be renewed.
    #[must_use]
    pub fn holds_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The next callout to be sent, if there is something to send and not too much in flight. Checks whose time is over, or so
    /// short that no answer could come, are failed instead: sent, they would cut the time of all others in the batch.
    pub fn next_callout(&mut self, rules: &RuleSet, domain: &str, now_us: u64) -> Option<Callout<S>> {
        self.fail_late(now_us);
        if self.in_flight.len() >= CALLOUTS_MAX {
            return None;
        }
        let taken = self.take_checks();
        let (room, timeout_ms) = match taken.first() {
            Some(oldest) => {
                let left_us = oldest.deadline_us.saturating_sub(now_us);
                (BESIDE_CHECKS, u32::try_from(left_us / 1_000).unwrap_or(u32::MAX).max(1))
            }
            None if self.may_send_alone() => (ALONE, ALONE_MS),
            None => return None,
        };
        let parcel = self.outbox.take(&mut self.slots, room, now_us);
        if taken.is_empty() && parcel.is_empty() {
            return None;
        }
        let checks = taken.iter().map(|queued| &queued.check);
        let body = encode(rules, domain, timeout_ms, checks, &parcel, now_us);
        let askers = taken.into_iter().map(|one| Asker { stream: one.stream, slot: one.check.slot() });
        let askers = askers.collect();
        match body {
            Some(body) => Some(Callout { body, timeout_ms, askers, parcel }),
            None => {
                // Its own doing: sent again it would be no better.
                self.not_sent(askers, Reason::Garbage);
                self.outbox.lose(parcel);
                None
            }
        }
    }

    /// The host took the callout at `now_us`.
    pub fn sent(&mut self, token: u32, callout: Callout<S>, now_us: u64) {
        let half_time_us = now_us.saturating_add(u64::from(callout.timeout_ms).saturating_mul(500));
        let Callout { askers, parcel, .. } = callout;
        askers.iter().filter_map(|asker| asker.slot).for_each(|slot| self.slots.sent(slot, now_us));
        self.in_flight.insert(token, InFlight { askers, parcel, half_time_us });
    }

    /// The host did not take the callout.
    pub fn refused(&mut self, callout: Callout<S>, refusal: Refusal, now_us: u64) {
        // The host gives one status for both; with a call under way the cluster does have a host.
        let reason = match refusal {
            Refusal::NoCluster => Reason::NoCluster,
            Refusal::NotSent if self.in_flight.is_empty() => Reason::NoHost,
            Refusal::NotSent => Reason::Overflow,
        };
        self.not_sent(callout.askers, reason);
        self.outbox.returned(&mut self.slots, callout.parcel, false, now_us);
    }

    /// A callout ended at `now_us`.
    pub fn arrived(&mut self, token: u32, arrival: &Arrival<'_>, now_us: u64) {
        let Some(InFlight { askers, parcel, half_time_us }) = self.in_flight.remove(&token) else { return };
        // The host's timer runs from the beginning of the event loop's turn, so it may fire early by as long as that turn took.
        let rulings: Vec<Ruling> = match arrival.read(askers.len(), now_us < half_time_us) {
            Ok(answers) => {
                self.outbox.delivered();
                answers.into_iter().map(Ruling::from).collect()
            }
            Err(reason) => {
                self.outbox.returned(&mut self.slots, parcel, true, now_us);
                vec![Ruling::Failed(reason); askers.len()]
            }
        };
        for (asker, ruling) in askers.into_iter().zip(rulings) {
            if let Some(slot) = asker.slot {
                self.rule_on_slot(slot, &ruling);
            }
            self.decided.push_back((asker.stream, ruling));
        }
    }

    /// The next stream to be answered.
    pub fn next_decided(&mut self) -> Option<(S, Ruling)> {
        self.decided.pop_front()
    }

    /// Moves what was given up since the last call into a tally.
    pub fn count_lost(&mut self, tally: &mut Tally) {
        self.outbox.count_lost(tally);
    }

    /// Gives up what waits to be told.
    pub fn abandon(&mut self) {
        self.outbox.abandon();
    }

    fn may_send_alone(&self) -> bool {
        self.outbox.is_ready() && !self.in_flight.values().any(|callout| callout.askers.is_empty())
    }

    fn fail_late(&mut self, now_us: u64) {
        let earliest = now_us.saturating_add(1_000);
        while let Some(late) = self.queued.pop_front_if(|check| check.deadline_us < earliest) {
            self.not_sent(vec![Asker { stream: late.stream, slot: late.check.slot() }], Reason::Deadline);
        }
    }

    /// The next checks, as many as fit. One whose slot nobody wants any more is dropped: its stream has ended.
    fn take_checks(&mut self) -> Vec<Queued<S>> {
        let mut taken = Vec::with_capacity(self.queued.len().min(CHECKS_MAX));
        let mut size = 0usize;
        while taken.len() < CHECKS_MAX {
            let Some(next) = self.queued.front() else { break };
            size = size.saturating_add(next.check.size());
            if size > BODY_MAX && !taken.is_empty() {
                break;
            }
            let wanted = next.check.slot().is_none_or(|slot| self.slots.is_wanted(slot));
            taken.extend(self.queued.pop_front().filter(|_| wanted));
        }
        taken
    }

    /// These checks never left.
    fn not_sent(&mut self, askers: Vec<Asker<S>>, reason: Reason) {
        for asker in askers {
            asker.slot.into_iter().for_each(|slot| self.slots.forget(slot));
            self.decided.push_back((asker.stream, Ruling::Failed(reason)));
        }
    }

    /// A check that was sent, and takes a slot, was decided.
    fn rule_on_slot(&mut self, slot: SlotId, ruling: &Ruling) {
        let notice = match ruling {
            // What is shed, or kept back by a breaker, never reached the store.
            Ruling::Decided(Answer::Denied(_)) | Ruling::Failed(Reason::Shed | Reason::Breaker) => {
                self.slots.forget(slot);
                None
            }
            Ruling::Decided(Answer::Admitted(outcomes)) => {
                let not_taken = |outcome: &batch::Outcome| outcome.verdict != Verdict::Admit;
                self.slots.hold(slot, |place| !outcomes.get(place).is_some_and(not_taken))
            }
            _ => self.slots.hold(slot, |_| true),
        };
        notice.into_iter().for_each(|notice| self.outbox.release(notice));
    }
}

impl From<batch::Answer> for Ruling {
    fn from(answer: batch::Answer) -> Self {
        match answer {
            Answer::Unknown(unknown) => Self::Failed(unknown.into()),
            decided => Self::Decided(decided),
        }
    }
}

#[cfg(test)]
mod tests;
