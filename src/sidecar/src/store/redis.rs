//! The shared store: a Redis, one pipeline per batch and one script call per check.
//!
//! What is retried is only what certainly did not run. A call whose answer was lost may have been charged, so it is answered as
//! unknown and not sent again.

mod call;
mod check;
mod link;
mod scripts;
mod server;
mod target;

use super::{Status, Store};
use crate::asks::Asks;
use crate::changes::{Change, Changed};
use crate::logging::Throttle;
use crate::metrics::Metrics;
use protocol::batch::{Answer, Unknown};
pub use scripts::SCRIPTS;
use server::{Reply, Server};
use std::fmt;
pub use target::Target;
use tokio::time::{Instant, timeout_at};

/// Late answers are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;

/// See the module.
pub struct Redis {
    server: Server,
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
        Self { server: Server::connect(target, metrics), latenesses: Throttle::new(LOG_EVERY_MS) }
    }

    /// Answers the checks that are not empty, in one pipeline.
    async fn ask(&self, asks: &Asks, open: &[usize], answers: &mut [Answer]) {
        let calls = call::pipeline(asks, open);
        self.server
            .call(calls, |place, reply| {
                let index = open[place];
                answers[index] = self.answer(reply, asks.check(index).len());
            })
            .await;
    }

    /// The answer in the reply to a check of so many rules.
    fn answer(&self, reply: Reply, rules: usize) -> Answer {
        let answer = reply.ok().map(|value| call::answer(value, rules));
        match answer {
            Some(Ok(answer)) => answer,
            Some(Err(refusal)) => {
                self.server.complain(&refusal);
                Answer::Unknown(Unknown::RedisError)
            }
            None => Answer::Unknown(Unknown::RedisError),
        }
    }

    /// The deadline passed. What is undecided then stays unknown for its lateness.
    fn late(&self) {
        if let Some(held_back) = self.latenesses.pass() {
            log::warn!(
                "Redis did not answer before a batch's deadline ({held_back} more since the last line)"
            );
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
        if !open.is_empty() && timeout_at(deadline, self.ask(asks, &open, &mut answers)).await.is_err() {
            self.late();
        }
        answers
    }

    async fn change(&self, changes: &[Change], _deadline: Instant) -> Vec<Changed> {
        vec![Changed::Unknown; changes.len()]
    }

    fn status(&self) -> Status {
        self.server.status()
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Redis({:?})", self.status())
    }
}
