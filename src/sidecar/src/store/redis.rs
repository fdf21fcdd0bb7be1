//! The shared store: one Redis, a few multiplexed connections, one pipeline per batch and one script call per check.
//!
//! What is retried is only what certainly did not run: a call that the server refused with NOSCRIPT. A call whose answer was
//! lost may have been charged, so it is answered as unknown and not sent again.

mod call;
mod check;
mod link;
mod script;
mod target;

use super::{Health, Status, Store};
use crate::asks::Asks;
use crate::logging::Throttle;
use crate::metrics::Metrics;
use link::{Lease, Link};
use protocol::batch::{Answer, Unknown};
use script::Script;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
pub use target::Target;
use tokio::time::{Instant, timeout_at};

/// Connections. One is a queue in which a long answer delays all others; more make smaller pipelines.
const LINKS: usize = 2;
/// How often a call is sent when the server keeps forgetting the script.
const ROUNDS_MAX: usize = 3;
/// Errors of single calls, and late answers, are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;

/// See the module.
pub struct Redis {
    links: Vec<Arc<Link>>,
    next: AtomicUsize,
    script: Arc<Script>,
    health: Health,
    metrics: Metrics,
    refusals: Throttle,
    latenesses: Throttle,
}

// === impl Redis ===

impl Redis {
    /// Begins to connect in the background and returns at once: the sidecar starts without its Redis.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn connect(target: &Target, metrics: Metrics) -> Self {
        let health = Health::new();
        let script = Arc::new(Script::new(metrics.clone()));
        let answering = Arc::new(AtomicUsize::new(0));
        let link = |_| {
            let (script, answering) = (Arc::clone(&script), Arc::clone(&answering));
            Link::spawn(target.clone(), script, answering, health.clone(), metrics.clone())
        };
        let links = (0..LINKS).map(link).collect();
        let next = AtomicUsize::new(0);
        let (refusals, latenesses) = (Throttle::new(LOG_EVERY_MS), Throttle::new(LOG_EVERY_MS));
        Self { links, next, script, health, metrics, refusals, latenesses }
    }

    /// A connection: one that answers, else one that is open at least.
    fn lease(&self) -> Option<Lease> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..LINKS).map(|step| &self.links[first.wrapping_add(step) % LINKS]);
        in_turn().filter(|link| link.answers()).chain(in_turn()).find_map(|link| link.lease())
    }

    /// Sends the checks that are open, again if the server did not know the script. What is decided leaves `open`.
    async fn rounds(&self, asks: &Asks, open: &mut Vec<usize>, answers: &mut [Answer]) {
        for _ in 0..ROUNDS_MAX {
            let generation = self.script.generation();
            let (Some(lease), Some(sha)) = (self.lease(), self.script.sha()) else { break };
            let pipeline = call::pipeline(sha, asks, open);
            let sent = Instant::now();
            let replies = match lease.connection().send_packed_commands(&pipeline, 0, open.len()).await {
                Ok(replies) if replies.len() == open.len() => replies,
                Ok(_) => break,
                Err(error) => {
                    lease.failed(&error);
                    break;
                }
            };
            self.metrics.script(sent.elapsed());
            let mut forgotten = Vec::new();
            for (&index, reply) in open.iter().zip(replies) {
                match call::answer(reply, asks.check(index).len()) {
                    Ok(answer) => answers[index] = answer,
                    Err(call::Refusal::NoScript) => forgotten.push(index),
                    Err(refusal) => {
                        self.refused(&lease, &refusal);
                        answers[index] = Answer::Unknown(Unknown::RedisError);
                    }
                }
            }
            *open = forgotten;
            if open.is_empty() || self.script.load_after(generation, lease.connection()).await.is_err() {
                break;
            }
        }
        for &index in open.iter() {
            answers[index] = Answer::Unknown(Unknown::RedisError);
        }
        open.clear();
    }

    /// The deadline passed. What is undecided then stays unknown for its lateness.
    fn late(&self) {
        if let Some(held_back) = self.latenesses.pass() {
            log::warn!(
                "Redis did not answer before a batch's deadline ({held_back} more since the last line)"
            );
        }
    }

    /// The server refused a call. Its words may hold a key, and are not logged.
    fn refused(&self, lease: &Lease, refusal: &call::Refusal) {
        lease.refused(refusal);
        if let Some(held_back) = self.refusals.pass() {
            log::error!("Redis refused a call: {refusal} ({held_back} more since the last line)");
        }
    }
}

impl Store for Redis {
    async fn decide(&self, asks: &Asks, deadline: Instant) -> Vec<Answer> {
        let mut answers = super::all_unknown(asks.len(), Unknown::RedisTimeout);
        let mut open = Vec::with_capacity(asks.len());
        for (index, check) in asks.checks().enumerate() {
            if check.is_empty() {
                answers[index] = Answer::Admitted(Vec::new());
            } else {
                open.push(index);
            }
        }
        if !open.is_empty() {
            let decided = timeout_at(deadline, self.rounds(asks, &mut open, &mut answers)).await;
            if decided.is_err() {
                self.late();
            }
        }
        answers
    }

    fn status(&self) -> Status {
        let answers = self.links.iter().any(|link| link.answers());
        match self.health.get() {
            _ if answers => Status::Up,
            Status::Up => Status::Away("the connection was lost".to_owned()),
            status => status,
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        for link in &self.links {
            link.end();
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Redis({:?})", self.status())
    }
}
