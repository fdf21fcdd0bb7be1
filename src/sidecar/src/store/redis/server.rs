//! One Redis server: a few multiplexed connections to it, the scripts as it knows them, and how it is.
//!
//! What is sent again is only what certainly did not run: calls that the server refused with NOSCRIPT. A call whose answer was
//! lost may have run.

use super::call::{Refusal, refusal};
use super::link::{Lease, Link};
use super::scripts::Scripts;
use super::target::{Door, Place};
use crate::logging::Throttle;
use crate::metrics::Metrics;
use crate::store::{Health, Status};
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Connections. One is a queue in which a long answer delays all others; more make smaller pipelines.
const LINKS: usize = 2;
/// How often a call is sent when the server keeps forgetting the scripts.
const ROUNDS_MAX: usize = 3;
/// Errors of single calls are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;

/// What a call came to.
pub(super) type Reply = Result<Value, Refusal>;

/// Where a server is and what it is to be.
pub(super) struct Site {
    pub(super) door: Door,
    pub(super) role: Role,
    /// Never empty. More than one: the server is whichever of them is a primary.
    places: Vec<Place>,
    /// The place that was last found fit.
    current: AtomicUsize,
    /// Wakes those who wait for a connection.
    pub(super) news: Notify,
    /// Wakes who cares for the whole, when the server is away.
    pub(super) trouble: Arc<Notify>,
}

/// What a server is to be.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// The only one, a primary.
    Alone,
    /// A primary that has its replicas beside it.
    Primary,
    /// A primary of a cluster; with one of the slots that it owns, as far as is known.
    Node(Arc<AtomicU16>),
}

/// See the module.
pub(super) struct Server {
    site: Arc<Site>,
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
    pub(super) fn connect(site: Site, metrics: Metrics) -> Self {
        let site = Arc::new(site);
        let health = Health::new();
        let scripts = Arc::new(Scripts::new(metrics.clone()));
        let answering = Arc::new(AtomicUsize::new(0));
        let link = |_| {
            let (scripts, answering) = (Arc::clone(&scripts), Arc::clone(&answering));
            Link::spawn(Arc::clone(&site), scripts, answering, health.clone(), metrics.clone())
        };
        let links = (0..LINKS).map(link).collect();
        let refusals = Throttle::new(LOG_EVERY_MS);
        Self { site, links, next: AtomicUsize::new(0), scripts, health, metrics, refusals }
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Place {
        self.site.place()
    }

    /// What it is to be.
    pub(super) fn role(&self) -> &Role {
        &self.site.role
    }

    /// Waits while the first attempt to connect is under way, until the deadline.
    pub(super) async fn begun(&self, deadline: Instant) {
        loop {
            let news = self.site.news.notified();
            if self.health.get() != Status::Connecting || timeout_at(deadline, news).await.is_err() {
                return;
            }
        }
    }

    /// Makes one call that no script takes part in. `None`: there is no connection.
    pub(super) async fn ask(&self, command: &Cmd) -> Option<Result<Value, RedisError>> {
        let lease = self.lease()?;
        Some(lease.connection().send_packed_command(command).await.and_then(|value| match value {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }))
    }

    /// Makes these calls, as one pipeline, and tells each reply with its call's place as soon as it is known: every call gets
    /// one, unless the future is dropped before. There is no deadline here. With `asking` the server answers for slots that it
    /// is about to get, too.
    pub(super) async fn call(&self, mut calls: Pipeline, asking: bool, mut told: impl FnMut(usize, Reply)) {
        let mut places: Vec<usize> = (0..calls.len()).collect();
        for _ in 0..ROUNDS_MAX {
            let generation = self.scripts.generation();
            let Some(lease) = self.lease() else { return all(places, &Refusal::Away, told) };
            let Some(replies) = self.send(&lease, &calls, asking).await else {
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
    async fn send(&self, lease: &Lease, calls: &Pipeline, asking: bool) -> Option<Vec<Value>> {
        let sent = Instant::now();
        let mut connection = lease.connection();
        let replies = if asking {
            let calls = with_asking(calls);
            connection.send_packed_commands(&calls, 0, calls.len()).await
        } else {
            connection.send_packed_commands(calls, 0, calls.len()).await
        };
        match replies {
            Ok(mut replies) => {
                self.metrics.script(sent.elapsed());
                if asking {
                    // Those to ASKING itself say nothing that the next one does not.
                    let mut nth = 0;
                    replies.retain(|_| {
                        nth += 1;
                        nth % 2 == 0
                    });
                }
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
        // In a cluster, being sent on is no news.
        let sent_on = matches!(refusal, Refusal::Moved(_) | Refusal::Ask(_) | Refusal::TryAgain);
        if !(sent_on && matches!(self.site.role, Role::Node(_))) {
            self.complain(refusal);
        }
    }
}

// === impl Site ===

impl Site {
    pub(super) fn new(door: Door, role: Role, places: Vec<Place>, trouble: Arc<Notify>) -> Self {
        Self { door, role, places, current: AtomicUsize::new(0), news: Notify::new(), trouble }
    }

    /// The place that was last found fit.
    pub(super) fn place(&self) -> &Place {
        &self.places[self.current.load(Ordering::Relaxed)]
    }

    /// All places with their numbers, that one first.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &Place)> {
        let (first, count) = (self.current.load(Ordering::Relaxed), self.places.len());
        (first..first + count).map(move |nth| (nth % count, &self.places[nth % count]))
    }

    /// The place of this number was found fit.
    pub(super) fn settle(&self, nth: usize) {
        self.current.store(nth, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for link in &self.links {
            link.end();
        }
    }
}

/// Each call with ASKING before it.
fn with_asking(calls: &Pipeline) -> Pipeline {
    let mut pairs = Pipeline::with_capacity(2 * calls.len());
    for call in calls.cmd_iter() {
        pairs.cmd("ASKING").add_command(call.clone());
    }
    pairs
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
