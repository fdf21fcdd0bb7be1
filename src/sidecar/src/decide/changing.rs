//! Changes, made beside the decisions: detached, within bounds of their own, and tried again where that does no harm.
//!
//! Whoever asked for a change has been told that it arrived, and may be gone. So a release or a renewal (which twice is once) is
//! tried until the store says what became of it or it does not matter any more; a settlement only while it certainly was not sent.

use super::Decider;
use crate::changes::{Change, Changed, Kind};
use crate::store::Store;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

/// The most batches whose changes are under way at once, apart from the batches that are decided: changes never cost a check its
/// place. What is more waits to be tried again.
pub const CHANGING_MAX: usize = 256;
/// The most changes that wait to be tried again, about 300 bytes each; what is more is lost.
pub const WAITING_MAX: usize = 16_384;
/// How long changes may take: their batch waits for them until its own deadline at most.
const CHANGE_TIME: Duration = Duration::from_secs(2);
/// The same where they are tried again, all of a bundle together.
const AGAIN_TIME: Duration = Duration::from_millis(500);
/// How many are tried again in one go: Redis is busy with them for some milliseconds.
const BUNDLE: usize = 512;
/// The first and the longest pause before the next try; in between it doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The longest that a change is tried, if its rule does not make it pointless before.
const TRIED_MAX: Duration = Duration::from_secs(60);

/// What is under way, and what waits to be tried again.
#[derive(Debug)]
pub(super) struct Changing {
    places: Arc<Semaphore>,
    waiting: Mutex<VecDeque<Attempt>>,
    /// Held by the one task that tries again. It is taken and let go while `waiting` is locked, so that nothing is left behind.
    trying: Arc<Semaphore>,
}

/// A change, and how long it is worth a try.
#[derive(Debug)]
struct Attempt {
    change: Change,
    /// When it was asked for.
    since: Instant,
    until: Instant,
}

// === impl Decider ===

impl Decider {
    /// Begins to make changes, which are made whether or not anybody waits for them. `None`: not yet, since there is too much to
    /// do, or there are none.
    pub fn begin(self: &Arc<Self>, changes: Vec<Change>) -> Option<JoinHandle<Vec<Changed>>> {
        if changes.is_empty() {
            return None;
        }
        let Ok(place) = Arc::clone(&self.changing.places).try_acquire_owned() else {
            self.keep(attempts(changes, Instant::now()), &[]);
            return None;
        };
        let decider = Arc::clone(self);
        Some(tokio::spawn(async move {
            let changed = decider.make(changes).await;
            drop(place);
            changed
        }))
    }

    /// Makes changes, and tells what became of each: [`Changed::Unknown`] if that is not known by the deadline.
    pub async fn change(self: &Arc<Self>, changes: Vec<Change>, deadline: Instant) -> Vec<Changed> {
        let unknown = vec![Changed::Unknown; changes.len()];
        let Some(changing) = self.begin(changes) else { return unknown };
        timeout_at(deadline, changing).await.ok().and_then(Result::ok).unwrap_or(unknown)
    }

    /// Waits until no change is under way or waits to be tried again, and gives up at the deadline. No new ones may begin.
    pub async fn finish_changes(&self, deadline: Instant) {
        let finished = async {
            // In this order: what is under way may have to be tried again. Neither is ever closed.
            drop(self.changing.places.acquire_many(CHANGING_MAX as u32).await);
            drop(self.changing.trying.acquire().await);
        };
        if timeout_at(deadline, finished).await.is_err() {
            let left = std::mem::take(&mut *self.changing.waiting());
            left.iter().for_each(|attempt| self.metrics.lost_change(&attempt.change));
            log::warn!(
                "the store did not take all changes in time: of those that wait to be tried again {} are lost",
                left.len()
            );
        }
    }

    /// Makes changes, and keeps what has to be tried again.
    pub(super) async fn make(self: &Arc<Self>, changes: Vec<Change>) -> Vec<Changed> {
        if changes.is_empty() {
            return Vec::new();
        }
        let since = Instant::now();
        let changed = self.store.change(&changes, since + CHANGE_TIME).await;
        self.keep(attempts(changes, since), &changed);
        changed
    }

    /// Counts what became of each, and keeps what is worth another try; what is not told was not sent.
    fn keep(self: &Arc<Self>, attempts: Vec<Attempt>, changed: &[Changed]) {
        let now = Instant::now();
        let mut waiting = self.changing.waiting();
        for (nth, attempt) in attempts.into_iter().enumerate() {
            match changed.get(nth).copied().unwrap_or(Changed::Unsent) {
                done @ (Changed::Yes | Changed::No) => self.metrics.change(&attempt.change, done),
                failed if attempt.again(failed, now) && waiting.len() < WAITING_MAX => {
                    waiting.push_back(attempt);
                }
                _ => self.metrics.lost_change(&attempt.change),
            }
        }
        if !waiting.is_empty()
            && let Ok(trying) = Arc::clone(&self.changing.trying).try_acquire_owned()
        {
            tokio::spawn(Arc::clone(self).try_again(trying));
        }
    }

    /// Tries again, round by round, until nothing waits.
    async fn try_again(self: Arc<Self>, trying: OwnedSemaphorePermit) {
        let mut pause = PAUSE.0;
        loop {
            sleep(pause).await;
            let mut failed = false;
            let mut left = self.changing.waiting().len();
            while left > 0 {
                let attempts = self.take(left.min(BUNDLE));
                left -= left.min(BUNDLE);
                let changes: Vec<Change> = attempts.iter().map(Attempt::change).collect();
                let changed = self.store.change(&changes, Instant::now() + AGAIN_TIME).await;
                failed |= changed.iter().any(|one| !one.is_known());
                self.keep(attempts, &changed);
            }
            pause = if failed { (pause * 2).min(PAUSE.1) } else { PAUSE.0 };
            let waiting = self.changing.waiting();
            if waiting.is_empty() {
                drop(trying);
                return;
            }
        }
    }

    /// Takes out so many of those that wait, without those that are not worth it any more.
    fn take(&self, count: usize) -> Vec<Attempt> {
        let now = Instant::now();
        let mut waiting = self.changing.waiting();
        let count = count.min(waiting.len());
        let (worth, late) = waiting.drain(..count).partition(|attempt| attempt.until > now);
        let late: Vec<Attempt> = late;
        late.iter().for_each(|attempt| self.metrics.lost_change(&attempt.change));
        worth
    }
}

// === impl Changing ===

impl Changing {
    pub(super) fn new() -> Self {
        let (places, trying) = (Arc::new(Semaphore::new(CHANGING_MAX)), Arc::new(Semaphore::new(1)));
        Self { places, waiting: Mutex::default(), trying }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Attempt>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Attempt ===

impl Attempt {
    fn new(change: Change, now: Instant) -> Self {
        let worth = match &change.kind {
            // Then the store has forgotten the slot by itself.
            Kind::Release { limit, .. } => Duration::from_millis(limit.lease_ms()),
            // Then its holder renews it anew.
            Kind::Renew { limit, .. } => Duration::from_millis(limit.lease_ms() / 3),
            Kind::Settle { .. } => TRIED_MAX,
            // Who pardons waits for the answer, and tries again himself.
            Kind::Pardon => Duration::ZERO,
        };
        Self { change, since: now, until: now + worth.min(TRIED_MAX) }
    }

    /// The change as it is to be made now.
    fn change(&self) -> Change {
        self.change.clone().aged(self.since.elapsed())
    }

    /// Whether it is to be tried again after this.
    fn again(&self, failed: Changed, now: Instant) -> bool {
        let harmless = failed == Changed::Unsent || !matches!(self.change.kind, Kind::Settle { .. });
        harmless && self.until > now
    }
}

fn attempts(changes: Vec<Change>, since: Instant) -> Vec<Attempt> {
    changes.into_iter().map(|change| Attempt::new(change, since)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::concurrency::Concurrency;
    use limits::decision::Limit;
    use limits::settle::Settlement;
    use limits::sliding_window::SlidingWindow;

    #[test]
    fn what_twice_is_once_is_tried_while_it_matters() {
        let now = Instant::now();
        let attempt = |kind| Attempt::new(Change { key: vec![], kind }, now);
        let slots = |lease_s| (Concurrency::new(1, lease_s).unwrap(), Box::from(&b"s"[..]));
        let release = |lease_s| {
            let (limit, slot) = slots(lease_s);
            attempt(Kind::Release { limit, slot })
        };
        let (limit, slot) = slots(9);
        let renew = attempt(Kind::Renew { limit, slot });
        let limit = Limit::SlidingWindow(SlidingWindow::new(1, 1).unwrap());
        let settlement = Settlement::Give;
        let settle = attempt(Kind::Settle { limit, penalty: None, settlement, tokens: 1, age_ms: 70_000 });
        let seconds = |attempt: &Attempt| (attempt.until - now).as_secs();
        let all = [release(10), release(3_600), renew, settle, attempt(Kind::Pardon)];
        assert_eq!(all.each_ref().map(seconds), [10, 60, 3, 60, 0]);
        let again = |failed| all.each_ref().map(|attempt| attempt.again(failed, now));
        assert_eq!(again(Changed::Unknown), [true, true, true, false, false]);
        assert_eq!(again(Changed::Unsent), [true, true, true, true, false]);
        let late = now + Duration::from_secs(60);
        assert!(!all.iter().any(|attempt| attempt.again(Changed::Unsent, late)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_that_waits_grows_older() {
        let limit = Limit::SlidingWindow(SlidingWindow::new(1, 60).unwrap());
        let kind =
            Kind::Settle { limit, penalty: None, settlement: Settlement::Give, tokens: 1, age_ms: 70_000 };
        let attempt = Attempt::new(Change { key: vec![], kind }, Instant::now());
        for waited_ms in [300, 600] {
            sleep(Duration::from_millis(300)).await;
            let Kind::Settle { age_ms, .. } = attempt.change().kind else { panic!("a settlement") };
            assert!(age_ms > 70_000 + waited_ms, "{age_ms}");
        }
    }
}
