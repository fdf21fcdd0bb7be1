//! A Redis Cluster: which primary owns which slot, and the way of a call to it.
//!
//! The routing is our own, since what is sent again matters here: only a call that a node refused unrun (MOVED, ASK, NOSCRIPT) is.
//! The library sends again what may have run, and would charge twice.

mod post;
mod returns;
pub(crate) mod slot;
mod spread;
mod survey;

use super::server::{Role, Server, Site};
use super::target::{Door, Place, Target};
use crate::logging::Throttle;
use crate::metrics::Metrics;
use crate::store::{Health, Status};
use returns::Returns;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use survey::Range;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant};

/// The most nodes that are known at once.
const NODES_MAX: usize = 1_024;
/// How long a node that owns no slot is kept after it was last pointed at: one that is about to get its first.
const KEPT: Duration = Duration::from_secs(60);
/// Late answers are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;
const NOBODY: u16 = u16::MAX;

/// See the module.
pub(super) struct Cluster {
    inner: Arc<Inner>,
    surveyor: AbortHandle,
    latenesses: Throttle,
}

struct Inner {
    door: Door,
    seeds: Vec<Place>,
    map: RwLock<Arc<Map>>,
    nodes: Mutex<HashMap<Place, Node>>,
    /// Asks for a survey: a node told that the map is out of date, or is away; or a slot has no owner.
    stale: Arc<Notify>,
    /// What the surveys come to.
    health: Health,
    was_up: AtomicBool,
    returns: Returns,
    metrics: Metrics,
}

/// The owners of the slots.
struct Map {
    owners: Vec<u16>,
    servers: Vec<Arc<Server>>,
    /// A slot that nobody owns, if there is one.
    orphan: Option<u16>,
}

/// A node that is or was pointed at.
struct Node {
    server: Arc<Server>,
    last: Instant,
}

// === impl Cluster ===

impl Cluster {
    /// Begins to look for the nodes in the background and returns at once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn connect(target: &Target, metrics: Metrics) -> Self {
        let inner = Arc::new(Inner {
            door: target.door().clone(),
            seeds: target.places().to_vec(),
            map: RwLock::new(Arc::new(Map::empty())),
            nodes: Mutex::default(),
            stale: Arc::default(),
            health: Health::new(),
            was_up: AtomicBool::new(false),
            returns: Returns::new(),
            metrics,
        });
        let surveyor = tokio::spawn(survey::keep(Arc::clone(&inner))).abort_handle();
        Self { inner, surveyor, latenesses: Throttle::new(LOG_EVERY_MS) }
    }

    /// Up, if every slot has an owner that is.
    pub(super) fn status(&self) -> Status {
        self.inner.status()
    }

    /// The deadline passed before all was known.
    fn late(&self) {
        if let Some(held_back) = self.latenesses.pass() {
            log::warn!(
                "a node of Redis did not answer before a batch's deadline ({held_back} more since the last line)"
            );
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.surveyor.abort();
    }
}

// === impl Inner ===

impl Inner {
    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn nodes(&self) -> std::sync::MutexGuard<'_, HashMap<Place, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node at this place, which may be new. `None`: there are too many.
    fn node(&self, place: &Place, slot: u16) -> Option<Arc<Server>> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get_mut(place) {
            node.last = Instant::now();
            return Some(Arc::clone(&node.server));
        }
        if nodes.len() >= NODES_MAX {
            return None;
        }
        let role = Role::Node(Arc::new(AtomicU16::new(slot)));
        let site = Site::new(self.door.clone(), role, vec![place.clone()], Arc::clone(&self.stale));
        let server = Arc::new(Server::connect(site, self.metrics.clone()));
        nodes.insert(place.clone(), Node { server: Arc::clone(&server), last: Instant::now() });
        Some(server)
    }

    /// What a survey found. Nodes that own nothing any more are let go.
    fn learn(&self, ranges: &[Range]) {
        let mut map = Map::empty();
        for range in ranges {
            let Some(server) = self.node(&range.owner, range.first) else { continue };
            if let Role::Node(slot) = server.role() {
                slot.store(range.first, Ordering::Relaxed);
            }
            map.give(range, &server);
        }
        map.orphan =
            map.owners.iter().position(|owner| *owner == NOBODY).and_then(|at| u16::try_from(at).ok());
        self.nodes().retain(|_, node| {
            node.last.elapsed() < KEPT || map.servers.iter().any(|server| Arc::ptr_eq(server, &node.server))
        });
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        self.health.set(Status::Up);
    }

    fn status(&self) -> Status {
        let map = self.map();
        let status = match map.servers.is_empty() {
            // No node can be reached; if one could, it knew of nobody.
            true if self.health.get() != Status::Up => self.health.get(),
            _ => map.status(),
        };
        match status {
            Status::Up => self.was_up.store(true, Ordering::Relaxed),
            // As with a single server: one that has worked is away, not unfit; and a node that joins is no start.
            Status::Unfit(cause) if self.was_up.load(Ordering::Relaxed) => return Status::Away(cause),
            Status::Connecting if self.was_up.load(Ordering::Relaxed) => {
                return Status::Away("connecting to a node".to_owned());
            }
            _ => {}
        }
        status
    }
}

// === impl Map ===

impl Map {
    fn empty() -> Self {
        Self { owners: vec![NOBODY; slot::COUNT.into()], servers: Vec::new(), orphan: Some(0) }
    }

    fn owner(&self, slot: u16) -> Option<&Arc<Server>> {
        self.servers.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    fn give(&mut self, range: &Range, server: &Arc<Server>) {
        let known = self.servers.iter().position(|known| Arc::ptr_eq(known, server));
        let nth = known.unwrap_or_else(|| {
            self.servers.push(Arc::clone(server));
            self.servers.len() - 1
        });
        let (first, last) = (usize::from(range.first), usize::from(range.last));
        if let (Some(owners), Ok(nth)) = (self.owners.get_mut(first..=last), u16::try_from(nth)) {
            owners.fill(nth);
        }
    }

    fn status(&self) -> Status {
        let down = self.servers.iter().map(|server| (server.place(), server.status()));
        let down: Vec<_> = down.filter(|(_, status)| *status != Status::Up).collect();
        let orphan = self.orphan.map(|slot| format!("slot {slot} has no primary"));
        match (down.is_empty(), orphan) {
            (true, None) => Status::Up,
            (true, Some(orphan)) => Status::Away(orphan),
            _ if down.iter().all(|(_, status)| *status == Status::Connecting) => Status::Connecting,
            (false, None) => Status::of_all(&down),
            (false, Some(orphan)) => match Status::of_all(&down) {
                Status::Unfit(causes) => Status::Unfit(format!("{causes}; {orphan}")),
                status => Status::Away(format!("{}; {orphan}", status.reason())),
            },
        }
    }
}
