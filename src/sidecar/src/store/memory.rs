//! The embedded store: one process, one mutex, the algorithms of `limits`.
//!
//! Bounded: at most so many buckets. A bucket that is full again is forgotten; where that does not make room, the one that
//! would be full again first is, which gives its owner the least.

use super::{Status, Store};
use crate::asks::{Ask, Asks};
use crate::changes::{Change, Changed, Kind};
use limits::concurrency::Slots;
use limits::decision::{self, Bucket, Charge, Ruling, State, Write};
use limits::settle::settle;
use protocol::batch::{Answer, Outcome, Verdict};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The most buckets unless said otherwise: about 250 bytes each.
pub const BUCKETS_MAX: usize = 1_000_000;

/// Forgotten buckets that a new one may clean up after: two, so that the store shrinks while it is used.
const CLEAN_UP: usize = 2;

/// Microseconds since the epoch.
type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// See the module.
pub struct Memory {
    buckets: Mutex<Buckets>,
    clock: Clock,
}

struct Buckets {
    states: HashMap<Arc<[u8]>, Kept>,
    /// One entry per bucket. A charge only moves the bucket's own `full_at_ms`, nearly always later; the entry is put right
    /// when it comes up, so that a charge costs no reordering.
    order: BinaryHeap<Reverse<(u64, Arc<[u8]>)>>,
    buckets_max: usize,
}

struct Kept {
    bucket: Bucket,
    full_at_ms: u64,
}

// === impl Memory ===

impl Memory {
    /// An empty store of at most `buckets_max` buckets.
    #[must_use]
    pub fn new(buckets_max: usize) -> Self {
        Self::with_clock(buckets_max, Box::new(steady_clock()))
    }

    /// The same with another clock: microseconds since the epoch.
    #[must_use]
    pub fn with_clock(buckets_max: usize, clock: Clock) -> Self {
        let buckets =
            Buckets { states: HashMap::new(), order: BinaryHeap::new(), buckets_max: buckets_max.max(1) };
        Self { buckets: Mutex::new(buckets), clock }
    }

    /// How many buckets are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().states.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Buckets> {
        // A panic while the lock was held can't leave a bucket half written: each is written by one assignment.
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    async fn decide(&self, asks: &Asks, _deadline: tokio::time::Instant) -> Vec<Answer> {
        let mut buckets = self.lock();
        let now_us = (self.clock)();
        let decide = |(index, check): (usize, &[Ask])| {
            let charge = |ask: &Ask| Charge {
                limit: ask.limit,
                penalty: ask.penalty,
                cost: ask.cost,
                shadow: ask.shadow,
                slot: asks.slot_of(index),
                bucket: buckets.get(asks.key(ask), now_us),
            };
            let charges: Vec<Charge<'_>> = check.iter().map(charge).collect();
            let (admitted, rulings) = decision::decide(now_us, &charges);
            let outcomes = rulings.iter().map(outcome).collect();
            for (ask, ruling) in check.iter().zip(rulings) {
                if let Some(write) = ruling.write {
                    buckets.put(asks.key(ask), write, now_us);
                }
            }
            if admitted { Answer::Admitted(outcomes) } else { Answer::Denied(outcomes) }
        };
        asks.checks().enumerate().map(decide).collect()
    }

    async fn change(&self, changes: &[Change], _deadline: tokio::time::Instant) -> Vec<Changed> {
        let mut buckets = self.lock();
        let now_us = (self.clock)();
        let done = |change: &Change| if buckets.change(change, now_us) { Changed::Yes } else { Changed::No };
        changes.iter().map(done).collect()
    }

    fn status(&self) -> Status {
        Status::Up
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Memory")
    }
}

// === impl Buckets ===

impl Buckets {
    fn get(&self, key: &[u8], now_us: u64) -> Option<&Bucket> {
        self.states.get(key).filter(|kept| now_us / 1_000 < kept.full_at_ms).map(|kept| &kept.bucket)
    }

    /// Whether there was something to change.
    fn change(&mut self, change: &Change, now_us: u64) -> bool {
        let (key, now_ms) = (&change.key, now_us / 1_000);
        let slots = |write: Write<Slots>| Write {
            state: Bucket { state: State::Slots(write.state), strikes: None },
            ttl_ms: write.ttl_ms,
        };
        let write = match &change.kind {
            Kind::Settle { limit, penalty, settlement, tokens, age_ms } => {
                let bucket = self.get(key, now_us);
                settle(limit, penalty.as_ref(), bucket, now_us, *settlement, *tokens, *age_ms)
            }
            Kind::Release { limit, slot } => {
                Some(slots(limit.release(self.take_slots(key, now_us), now_ms, slot)))
            }
            Kind::Renew { limit, slot } => limit.renew(self.slots(key, now_us), now_ms, slot).map(slots),
            Kind::Pardon => return self.pardon(key, now_us),
        };
        let done = write.is_some();
        if let Some(write) = write {
            self.put(key, write, now_us);
        }
        done
    }

    fn slots(&self, key: &[u8], now_us: u64) -> Slots {
        match self.get(key, now_us).map(|bucket| &bucket.state) {
            Some(State::Slots(slots)) => slots.clone(),
            _ => Slots::default(),
        }
    }

    /// The same, taken out: what comes of it is written in any case.
    fn take_slots(&mut self, key: &[u8], now_us: u64) -> Slots {
        let kept = self.states.get_mut(key).filter(|kept| now_us / 1_000 < kept.full_at_ms);
        match kept.map(|kept| &mut kept.bucket.state) {
            Some(State::Slots(slots)) => std::mem::take(slots),
            _ => Slots::default(),
        }
    }

    fn pardon(&mut self, key: &[u8], now_us: u64) -> bool {
        let kept = self.states.get_mut(key).filter(|kept| now_us / 1_000 < kept.full_at_ms);
        kept.is_some_and(|kept| kept.bucket.strikes.take().is_some())
    }

    fn put(&mut self, key: &[u8], write: Write<Bucket>, now_us: u64) {
        let now_ms = now_us / 1_000;
        let bucket = Kept { bucket: write.state, full_at_ms: now_ms.saturating_add(write.ttl_ms) };
        if let Some(known) = self.states.get_mut(key) {
            *known = bucket;
            return;
        }
        for _ in 0..CLEAN_UP {
            self.forget_first(|full_at_ms| full_at_ms <= now_ms);
        }
        if self.states.len() >= self.buckets_max {
            self.forget_first(|_| true);
        }
        let key: Arc<[u8]> = key.into();
        self.order.push(Reverse((bucket.full_at_ms, Arc::clone(&key))));
        self.states.insert(key, bucket);
    }

    /// Forgets the bucket that is full again first, if that moment passes `test`.
    fn forget_first(&mut self, test: impl Fn(u64) -> bool) {
        while let Some(mut first) = self.order.peek_mut() {
            let Reverse((noted_ms, key)) = &mut *first;
            match self.states.get(key) {
                // Charged since: it moves to its place (the heap is put in order when `first` is dropped).
                Some(bucket) if bucket.full_at_ms > *noted_ms => *noted_ms = bucket.full_at_ms,
                _ if test(*noted_ms) => {
                    let Reverse((_, key)) = std::collections::binary_heap::PeekMut::pop(first);
                    self.states.remove(&key);
                    return;
                }
                _ => return,
            }
        }
    }
}

/// The wall clock when it was made, and from then on what has passed: an adjusted clock moves no bucket.
fn steady_clock() -> impl Fn() -> u64 + Send + Sync {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = Instant::now();
    move || u64::try_from((epoch + start.elapsed()).as_micros()).unwrap_or(u64::MAX)
}

fn outcome(ruling: &Ruling) -> Outcome {
    let verdict = match ruling.outcome.verdict {
        decision::Verdict::Wait => Verdict::Wait,
        decision::Verdict::Admit => Verdict::Admit,
        decision::Verdict::Never => Verdict::Never,
    };
    Outcome { verdict, left: ruling.outcome.left, wait_ms: ruling.outcome.wait_ms, leased: 0 }
}

#[cfg(test)]
mod tests;
