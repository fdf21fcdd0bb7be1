//! Returns: what a check took on one node and is not admitted for as a whole goes back.

use super::post::Post;
use super::{Inner, slot};
use crate::asks::{Ask, Asks};
use crate::changes::{Change, Changed, Kind};
use crate::store::redis::call::{self, Refusal};
use crate::store::redis::change;
use limits::decision::Limit;
use limits::settle::Settlement;
use protocol::batch::{Answer, Outcome, Verdict};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, timeout_at};

/// How long after a batch's deadline an answer is still waited for that may have to be given back, and how long giving back may
/// take.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// The most returns that are under way at once, and the most batches whose late answers are listened for: a node that stands still
/// would hold all that come within [`PATIENCE`]. What is beyond counts as lost.
const RETURNS_MAX: usize = 1_024;

/// What goes on behind batches that were answered.
pub(super) struct Returns {
    giving: Arc<Semaphore>,
    listening: Arc<Semaphore>,
}

impl Returns {
    pub(super) fn new() -> Self {
        let most = || Arc::new(Semaphore::new(RETURNS_MAX));
        Self { giving: most(), listening: most() }
    }
}

/// Gives back, in the background, what was taken by calls that were `sent` then. `None`: too much is being given back already.
pub(super) fn begin_to_give(inner: &Arc<Inner>, backs: Vec<Change>, sent: Instant) -> Option<JoinHandle<()>> {
    match begun(&inner.returns.giving) {
        Some(permit) => {
            let inner = Arc::clone(inner);
            Some(tokio::spawn(async move {
                give(&inner, backs, sent).await;
                drop(permit);
            }))
        }
        None => {
            inner.metrics.returns_lost(backs.len());
            None
        }
    }
}

/// Listens, in the background, for late answers, by the number of their calls, and gives back what they say was taken.
pub(super) fn begin_to_listen(
    inner: &Arc<Inner>,
    post: Post,
    late: HashMap<usize, Vec<Option<Change>>>,
    sent: Instant,
) {
    match begun(&inner.returns.listening) {
        Some(permit) => {
            let inner = Arc::clone(inner);
            tokio::spawn(async move {
                listen(&inner, post, late, sent).await;
                drop(permit);
            });
        }
        None => inner.metrics.returns_lost(late.values().flatten().flatten().count()),
    }
}

fn begun(most: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(most).try_acquire_owned().ok()
}

async fn listen(
    inner: &Arc<Inner>,
    mut post: Post,
    mut late: HashMap<usize, Vec<Option<Change>>>,
    sent: Instant,
) {
    let patience = Instant::now() + PATIENCE;
    while !late.is_empty() {
        let Ok(Some((number, reply))) = timeout_at(patience, post.next()).await else { break };
        let Some(backs) = late.remove(&number) else { continue };
        match reply.and_then(|value| call::answer(value, backs.len())) {
            Ok(Answer::Admitted(outcomes)) => give(inner, taken(backs, &outcomes).collect(), sent).await,
            Err(Refusal::Lost) => inner.metrics.returns_lost(backs.iter().flatten().count()),
            _ => {}
        }
    }
    inner.metrics.returns_lost(late.values().flatten().flatten().count());
}

/// Those that were charged.
pub(super) fn taken(backs: Vec<Option<Change>>, outcomes: &[Outcome]) -> impl Iterator<Item = Change> {
    let charged = backs.into_iter().zip(outcomes).filter(|(_, outcome)| outcome.verdict == Verdict::Admit);
    charged.filter_map(|(back, _)| back)
}

/// What gives back what a rule of this check took, of an age that [`give`] knows; `None` if it took nothing.
pub(super) fn back(asks: &Asks, check: usize, ask: &Ask) -> Option<Change> {
    let kind = match ask.limit {
        Limit::Concurrency(limit) => Kind::Release { limit, slot: asks.slot_of(check).into() },
        _ if ask.cost == 0 => return None,
        limit => {
            let (penalty, tokens) = (ask.penalty, ask.cost);
            Kind::Settle { limit, penalty, settlement: Settlement::Give, tokens, age_ms: 0 }
        }
    };
    Some(Change { key: asks.key(ask).to_vec(), kind })
}

/// Gives back what was taken by calls that were `sent` then. What does not arrive stays taken: then less is admitted than might be,
/// never more.
async fn give(inner: &Arc<Inner>, backs: Vec<Change>, sent: Instant) {
    let patience = Instant::now() + PATIENCE;
    let backs: Vec<Change> = backs.into_iter().map(|back| back.aged(sent.elapsed())).collect();
    let mut changed = vec![Changed::Unknown; backs.len()];
    // Too late is told by what is left unknown.
    let _ = timeout_at(patience, send(inner, &backs, patience, &mut changed)).await;
    let lost = changed.iter().filter(|one| !one.is_known()).count();
    inner.metrics.returns_lost(lost);
    if lost > 0 {
        log::warn!("{lost} charges of checks that were not admitted may not have been given back");
    }
}

/// Sends changes and tells what became of each.
pub(super) async fn send(inner: &Arc<Inner>, changes: &[Change], deadline: Instant, changed: &mut [Changed]) {
    let mut post = Post::new(Arc::clone(inner), deadline, deadline);
    for one in changes {
        post.add(slot::of(&one.key), change::command(one));
    }
    post.send();
    while let Some((number, reply)) = post.next().await {
        changed[number] = change::answer(reply);
    }
}

/// What a rule that was charged says once that is given back.
pub(super) fn uncharged(outcome: &Outcome, ask: &Ask) -> Outcome {
    if outcome.verdict != Verdict::Admit {
        return *outcome;
    }
    let taken = if matches!(ask.limit, Limit::Concurrency(_)) { 1 } else { ask.cost };
    Outcome { left: outcome.left.saturating_add(taken), wait_ms: 0, ..*outcome }
}
