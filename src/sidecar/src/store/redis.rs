//! The shared store: a Redis, or a cluster of them; one pipeline per batch and server, one script call per check and slot.
//!
//! What is sent again is only what certainly did not run. A call whose answer was lost may have been charged, so it is answered as
//! unknown and not sent again.

mod arguments;
mod call;
mod change;
mod check;
mod cluster;
mod link;
mod rights;
mod scripts;
mod server;
mod target;
mod tls;

use super::{Status, Store};
use crate::asks::Asks;
use crate::changes::{Change, Changed};
use crate::logging::Throttle;
use crate::metrics::Metrics;
use ::redis::Pipeline;
use cluster::Cluster;
use protocol::batch::{Answer, Unknown};
pub use scripts::SCRIPTS;
use server::{Reply, Role, Server, Site};
use std::fmt;
use std::sync::Arc;
use target::Shape;
pub use target::Target;
pub use tls::{BadFile, TlsFiles};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Late answers are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;

/// See the module.
pub struct Redis {
    servers: Servers,
}

enum Servers {
    One(One),
    Cluster(Cluster),
}

/// A single server.
struct One {
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
        let servers = match target.shape() {
            Shape::One => Servers::One(One::connect(target, metrics)),
            Shape::Cluster => Servers::Cluster(Cluster::connect(target, metrics)),
        };
        Self { servers }
    }

    /// What a user of Redis has to be granted, as one grants it; for the nodes of a cluster more.
    #[must_use]
    pub fn rights(cluster: bool) -> String {
        rights::grant(cluster)
    }
}

impl Store for Redis {
    async fn decide(&self, asks: &Asks, deadline: Instant) -> Vec<Answer> {
        match &self.servers {
            Servers::One(one) => one.decide(asks, deadline).await,
            Servers::Cluster(cluster) => cluster.decide(asks, deadline).await,
        }
    }

    async fn change(&self, changes: &[Change], deadline: Instant) -> Vec<Changed> {
        match &self.servers {
            Servers::One(one) => one.change(changes, deadline).await,
            Servers::Cluster(cluster) => cluster.change(changes, deadline).await,
        }
    }

    fn status(&self) -> Status {
        match &self.servers {
            Servers::One(one) => one.server.status(),
            Servers::Cluster(cluster) => cluster.status(),
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Redis({:?})", self.status())
    }
}

// === impl One ===

impl One {
    fn connect(target: &Target, metrics: Metrics) -> Self {
        let places = target.places().to_vec();
        let role = if places.len() > 1 { Role::Primary } else { Role::Alone };
        let site = Site::new(target.door().clone(), role, places, Arc::new(Notify::new()));
        Self { server: Server::connect(site, metrics), latenesses: Throttle::new(LOG_EVERY_MS) }
    }

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

    /// The deadline passed. What is undecided then stays unknown for its lateness.
    fn late(&self) {
        if let Some(held_back) = self.latenesses.pass() {
            log::warn!(
                "Redis did not answer before a batch's deadline ({held_back} more since the last line)"
            );
        }
    }

    async fn change(&self, changes: &[Change], deadline: Instant) -> Vec<Changed> {
        let mut changed = vec![Changed::Unknown; changes.len()];
        if changes.is_empty() {
            return changed;
        }
        let mut calls = Pipeline::with_capacity(changes.len());
        changes.iter().for_each(|one| _ = calls.add_command(change::command(one)));
        let told = |place: usize, reply| changed[place] = change::answer(reply);
        if timeout_at(deadline, self.server.call(calls, false, told)).await.is_err() {
            self.late();
        }
        changed
    }

    /// Answers the checks that are not empty, in one pipeline.
    async fn ask(&self, asks: &Asks, open: &[usize], answers: &mut [Answer]) {
        let calls = call::pipeline(asks, open);
        let told = |place: usize, reply| {
            let index = open[place];
            answers[index] = self.answer(reply, asks.check(index).len());
        };
        self.server.call(calls, false, told).await;
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
}
