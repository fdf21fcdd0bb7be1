//! What the streams of one root context share: checks that wait to be sent, callouts in flight, answers that wait to be given.
//!
//! One callout a turn of the event loop carries what has been queued by then. While as many callouts as are allowed are in
//! flight, new checks wait for one to return, so batches grow with load by themselves. Pure: the shell tells the time, sends what
//! [`Worker::next_callout`] gives and answers what [`Worker::next_decided`] gives.

use crate::callout::{Arrival, Refusal};
use crate::check::Pending;
use crate::reason::Reason;
use hashbrown::HashMap;
use limits::ruleset::RuleSet;
use protocol::batch::{self, Answer, CHECKS_MAX};
use std::collections::VecDeque;

/// The most callouts of a worker in flight. Each ends by its own timeout, so a check that waits for one waits a deadline at most.
pub const CALLOUTS_MAX: usize = 4;
/// The most streams answered in one callback. Local replies nest, each runs the response callbacks inside the last one: some
/// thousand overflow the VM's stack; 32 were safe for 60,000 denials over 8 connections of 1,000 streams.
pub const ANSWERS_MAX: usize = 32;
/// The most checks that wait; one more is shed. The memory of a VM never shrinks.
pub const QUEUE_MAX: usize = 65_536;
/// The largest body of a callout, in bytes; what does not fit goes with the next.
const BODY_MAX: usize = 256 * 1024;

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
    streams: Vec<S>,
}

/// See the module's own words. `S` is how the shell finds a stream again.
#[derive(Debug)]
pub struct Worker<S> {
    queued: VecDeque<Queued<S>>,
    in_flight: HashMap<u32, InFlight<S>>,
    decided: VecDeque<(S, Ruling)>,
    wake_sent: bool,
}

#[derive(Debug)]
struct InFlight<S> {
    streams: Vec<S>,
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
            wake_sent: false,
        }
    }
}

impl<S> Worker<S> {
    /// Queues a check that must be decided by `deadline_us`, on the clock of [`Worker::next_callout`].
    pub fn queue(&mut self, stream: S, check: Pending, deadline_us: u64) {
        if self.queued.len() >= QUEUE_MAX {
            self.decided.push_back((stream, Ruling::Failed(Reason::Shed)));
        } else {
            self.queued.push_back(Queued { stream, check, deadline_us });
        }
    }

    /// Whether the root has to be woken in the event loop's next turn: there is something to do that no returning callout will
    /// bring about, and nobody has woken it yet. Assumes that the caller then wakes it.
    pub fn wants_wake(&mut self) -> bool {
        let sendable = !self.queued.is_empty() && self.in_flight.len() < CALLOUTS_MAX;
        let wants = !self.wake_sent && (sendable || !self.decided.is_empty());
        self.wake_sent |= wants;
        wants
    }

    /// The wake arrived, or is not waited for any longer.
    pub fn woken(&mut self) {
        self.wake_sent = false;
    }

    /// Whether nothing is queued, in flight or to be answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.in_flight.is_empty() && self.decided.is_empty()
    }

    /// The next callout to be sent, if there is something to send and not too much in flight. Checks whose time is over, or so
    /// short that no answer could come, are failed instead: sent, they would cut the time of all others in the batch.
    pub fn next_callout(&mut self, rules: &RuleSet, domain: &str, now_us: u64) -> Option<Callout<S>> {
        let earliest = now_us.saturating_add(1_000);
        while let Some(late) = self.queued.pop_front_if(|check| check.deadline_us < earliest) {
            self.decided.push_back((late.stream, Ruling::Failed(Reason::Deadline)));
        }
        if self.in_flight.len() >= CALLOUTS_MAX {
            return None;
        }
        let left_us = self.queued.front()?.deadline_us.saturating_sub(now_us);
        let timeout_ms = u32::try_from(left_us / 1_000).unwrap_or(u32::MAX).max(1);
        let mut size = 0usize;
        let fitting = self.queued.iter().take(CHECKS_MAX).take_while(|queued| {
            size = size.saturating_add(queued.check.size());
            size <= BODY_MAX
        });
        let count = fitting.count().max(1);
        let taken: Vec<_> = self.queued.drain(..count.min(self.queued.len())).collect();
        let body = crate::check::encode(rules, domain, timeout_ms, taken.iter().map(|queued| &queued.check));
        let streams = taken.into_iter().map(|queued| queued.stream);
        match body {
            Some(body) => Some(Callout { body, timeout_ms, streams: streams.collect() }),
            None => {
                self.decided.extend(streams.map(|stream| (stream, Ruling::Failed(Reason::Garbage))));
                None
            }
        }
    }

    /// The host took the callout at `now_us`.
    pub fn sent(&mut self, token: u32, callout: Callout<S>, now_us: u64) {
        let half_time_us = now_us.saturating_add(u64::from(callout.timeout_ms).saturating_mul(500));
        self.in_flight.insert(token, InFlight { streams: callout.streams, half_time_us });
    }

    /// The host did not take the callout.
    pub fn refused(&mut self, callout: Callout<S>, refusal: Refusal) {
        // The host gives one status for both; with a call under way the cluster does have a host.
        let reason = match refusal {
            Refusal::NoCluster => Reason::NoCluster,
            Refusal::NotSent if self.in_flight.is_empty() => Reason::NoHost,
            Refusal::NotSent => Reason::Overflow,
        };
        self.decided.extend(callout.streams.into_iter().map(|stream| (stream, Ruling::Failed(reason))));
    }

    /// A callout ended at `now_us`.
    pub fn arrived(&mut self, token: u32, arrival: &Arrival<'_>, now_us: u64) {
        let Some(InFlight { streams, half_time_us }) = self.in_flight.remove(&token) else { return };
        // The host's timer runs from the beginning of the event loop's turn, so it may fire early by as long as that turn took.
        match arrival.read(streams.len(), now_us < half_time_us) {
            Ok(answers) => {
                self.decided.extend(streams.into_iter().zip(answers.into_iter().map(Ruling::from)))
            }
            Err(reason) => {
                self.decided.extend(streams.into_iter().map(|stream| (stream, Ruling::Failed(reason))))
            }
        }
    }

    /// The next stream to be answered.
    pub fn next_decided(&mut self) -> Option<(S, Ruling)> {
        self.decided.pop_front()
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
