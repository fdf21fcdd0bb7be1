//! One Redis server: a few multiplexed connections to it, the scripts as it knows them, and how it is.
//!
//! What is sent again is only what certainly did not run: calls that the server refused with NOSCRIPT. A call whose answer was
//! lost may have run.

use super::call::{Refusal, refusal};
use super::link::{Lease, Link};
use super::scripts::Scripts;
use super::target::Target;
use crate::logging::Throttle;
use crate::metrics::Metrics;
use crate::store::{Health, Status};
use redis::{Pipeline, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// Connections. One is a queue in which a long answer delays all others; more make smaller pipelines.
const LINKS: usize = 2;
/// How often a call is sent when the server keeps forgetting the scripts.
const ROUNDS_MAX: usize = 3;
/// Errors of single calls are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;

/// What a call came to.
pub(super) type Reply = Result<Value, Refusal>;

/// See the module.
pub(super) struct Server {
    links: Vec<Arc<Link>>,
    next: AtomicUsize,
    scripts: Arc<Scripts>,
    health: Health,
    metrics: Metrics,
    refusals: Throttle,
}

// === impl Server ===

impl Server {
    /// Begins to connect in the background and returns at once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn connect(target: &Target, metrics: Metrics) -> Self {
        let health = Health::new();
        let scripts = Arc::new(Scripts::new(metrics.clone()));
        let answering = Arc::new(AtomicUsize::new(0));
        let link = |_| {
            let (scripts, answering) = (Arc::clone(&scripts), Arc::clone(&answering));
            Link::spawn(target.clone(), scripts, answering, health.clone(), metrics.clone())
        };
        let links = (0..LINKS).map(link).collect();
        let refusals = Throttle::new(LOG_EVERY_MS);
        Self { links, next: AtomicUsize::new(0), scripts, health, metrics, refusals }
    }

    /// Makes these calls, as one pipeline, and tells each reply with its call's place as soon as it is known: every call gets
    /// one, unless the future is dropped before. There is no deadline here.
    pub(super) async fn call(&self, mut calls: Pipeline, mut told: impl FnMut(usize, Reply)) {
        let mut places: Vec<usize> = (0..calls.len()).collect();
        for _ in 0..ROUNDS_MAX {
            let generation = self.scripts.generation();
            let Some(lease) = self.lease() else { return all(places, &Refusal::Away, told) };
            let Some(replies) = self.send(&lease, &calls).await else {
                return all(places, &Refusal::Lost, told);
            };
            let mut forgotten = Vec::new();
            for (nth, reply) in replies.into_iter().enumerate() {
                let reply = match reply {
                    Value::ServerError(error) => Err(refusal(&error)),
                    value => Ok(value),
                };
                match &reply {
                    Err(Refusal::NoScript) => {
                        forgotten.push(nth);
                        continue;
                    }
                    Err(refusal) => self.refused(&lease, refusal),
                    Ok(_) => {}
                }
                told(places[nth], reply);
            }
            if forgotten.is_empty() {
                return;
            }
            (places, calls) = only(&forgotten, &places, &calls);
            if self.scripts.load_after(generation, lease.connection()).await.is_err() {
                break;
            }
        }
        all(places, &Refusal::NoScript, told);
    }

    /// How it is.
    pub(super) fn status(&self) -> Status {
        let answers = self.links.iter().any(|link| link.answers());
        match self.health.get() {
            _ if answers => Status::Up,
            Status::Up => Status::Away("the connection was lost".to_owned()),
            status => status,
        }
    }

    /// Logs that a call came to nothing. The server's words may hold a key, and are not logged.
    pub(super) fn complain(&self, refusal: &Refusal) {
        if let Some(held_back) = self.refusals.pass() {
            log::error!("Redis refused a call: {refusal} ({held_back} more since the last line)");
        }
    }

    /// A connection: one that answers, else one that is open at least.
    fn lease(&self) -> Option<Lease> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..LINKS).map(|step| &self.links[first.wrapping_add(step) % LINKS]);
        in_turn().filter(|link| link.answers()).chain(in_turn()).find_map(|link| link.lease())
    }

    /// The replies to all of these calls, or none: the connection was lost.
    async fn send(&self, lease: &Lease, calls: &Pipeline) -> Option<Vec<Value>> {
        let sent = Instant::now();
        match lease.connection().send_packed_commands(calls, 0, calls.len()).await {
            Ok(replies) => {
                self.metrics.script(sent.elapsed());
                (replies.len() == calls.len()).then_some(replies)
            }
            Err(error) => {
                lease.failed(&error);
                None
            }
        }
    }

    fn refused(&self, lease: &Lease, refusal: &Refusal) {
        lease.refused(refusal);
        self.complain(refusal);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for link in &self.links {
            link.end();
        }
    }
}

/// The same refusal for all of these.
fn all(places: Vec<usize>, refusal: &Refusal, mut told: impl FnMut(usize, Reply)) {
    for place in places {
        told(place, Err(refusal.clone()));
    }
}

/// Some of the calls, with their places.
fn only(nths: &[usize], places: &[usize], calls: &Pipeline) -> (Vec<usize>, Pipeline) {
    let mut left = Pipeline::with_capacity(nths.len());
    for (nth, call) in calls.cmd_iter().enumerate() {
        if nths.binary_search(&nth).is_ok() {
            left.add_command(call.clone());
        }
    }
    (nths.iter().map(|nth| places[*nth]).collect(), left)
}
