//! One connection, kept open in the background: connected, checked, watched, replaced.

use super::call::Refusal;
use super::check::check;
use super::scripts::Scripts;
use super::server::Site;
use super::target::Place;
use crate::metrics::Metrics;
use crate::store::{Health, Status};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long connecting and checking may take.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// How often a connection is asked whether it lives, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The first and the longest wait before connecting again; in between it doubles. Half of it is random.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A place for a connection, and the task that keeps it filled.
pub(super) struct Link {
    open: Mutex<Option<MultiplexedConnection>>,
    /// Numbers the connections, so that an old one's failure does not close a new one.
    epoch: AtomicU64,
    answers: AtomicBool,
    /// How many of the store's connections answer.
    answering: Arc<AtomicUsize>,
    failed: Notify,
    task: OnceLock<AbortHandle>,
}

/// A connection to be used for one pipeline.
pub(super) struct Lease {
    link: Arc<Link>,
    epoch: u64,
    connection: MultiplexedConnection,
}

/// What the task works with.
struct Keeper {
    link: Arc<Link>,
    site: Arc<Site>,
    scripts: Arc<Scripts>,
    health: Health,
    metrics: Metrics,
}

// === impl Link ===

impl Link {
    pub(super) fn spawn(
        site: Arc<Site>,
        scripts: Arc<Scripts>,
        answering: Arc<AtomicUsize>,
        health: Health,
        metrics: Metrics,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            open: Mutex::new(None),
            epoch: AtomicU64::new(0),
            answers: AtomicBool::new(false),
            answering,
            failed: Notify::new(),
            task: OnceLock::new(),
        });
        let keeper = Keeper { link: Arc::clone(&link), site, scripts, health, metrics };
        let task = tokio::spawn(keeper.keep()).abort_handle();
        link.task.get_or_init(|| task);
        link
    }

    /// Whether it is open and answered when it was last asked.
    pub(super) fn answers(&self) -> bool {
        self.answers.load(Ordering::Acquire)
    }

    /// The connection, if there is one.
    pub(super) fn lease(self: &Arc<Self>) -> Option<Lease> {
        let slot = self.slot();
        let (connection, epoch) = (slot.clone()?, self.epoch.load(Ordering::Acquire));
        Some(Lease { link: Arc::clone(self), epoch, connection })
    }

    /// Closes the connection and stops the task.
    pub(super) fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        self.slot().take();
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<MultiplexedConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, connection: MultiplexedConnection) {
        let mut slot = self.slot();
        self.epoch.fetch_add(1, Ordering::Release);
        *slot = Some(connection);
        self.set_answers(true);
    }

    fn clear(&self, epoch: u64) {
        let mut slot = self.slot();
        if self.epoch.load(Ordering::Acquire) == epoch && slot.take().is_some() {
            self.set_answers(false);
            self.failed.notify_one();
        }
    }

    fn set_answers(&self, answers: bool) {
        match (self.answers.swap(answers, Ordering::AcqRel), answers) {
            (false, true) => _ = self.answering.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.answering.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
    }
}

// === impl Lease ===

impl Lease {
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// A pipeline failed as a whole: the connection is gone, or can't be trusted to pair answers with calls.
    pub(super) fn failed(&self, error: &RedisError) {
        log::debug!("lost a connection to Redis: {}", error.category());
        self.link.clear(self.epoch);
    }

    /// A call was refused. If that tells of a server that has changed, another connection is opened, and checked anew.
    pub(super) fn refused(&self, refusal: &Refusal) {
        if refusal.wants_a_check() {
            self.link.clear(self.epoch);
        }
    }
}

// === impl Keeper ===

impl Keeper {
    async fn keep(self) {
        let mut backoff = BACKOFF.0;
        loop {
            match self.open().await {
                Ok(connection) => {
                    let since = Instant::now();
                    self.link.fill(connection);
                    self.found(Status::Up);
                    self.watch().await;
                    // A connection that is lost at once, again and again, is no reason to connect without a pause.
                    if since.elapsed() > BACKOFF.1 {
                        backoff = BACKOFF.0;
                    }
                }
                Err(status) => self.found(status),
            }
            sleep(jittered(backoff)).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    /// A connection that has passed the check: to the place that was last found fit, else to the first that is.
    async fn open(&self) -> Result<MultiplexedConnection, Status> {
        let mut found = Vec::new();
        for (nth, place) in self.site.in_turn() {
            let late = |_| Status::Away(format!("no answer within {} ms", OPEN_TIME.as_millis()));
            match timeout(OPEN_TIME, self.open_at(place)).await.map_err(late) {
                Ok(Ok(connection)) => {
                    self.site.settle(nth);
                    return Ok(connection);
                }
                Ok(Err(status)) | Err(status) => found.push((place, status)),
            }
        }
        match found.as_slice() {
            [(_, status)] => Err(status.clone()),
            found => Err(Status::of_all(found)),
        }
    }

    async fn open_at(&self, place: &Place) -> Result<MultiplexedConnection, Status> {
        let connection = self.site.door.open(place).await?;
        self.metrics.connect();
        check(&self.scripts, &self.site.role, &connection).await?;
        Ok(connection)
    }

    /// Returns when the connection is lost. One that does not answer is kept (a stopped server may go on, and its late answers
    /// are told from errors), but replaced as soon as another can be opened: a dead peer never answers again.
    async fn watch(&self) {
        loop {
            let Some(lease) = self.link.lease() else { return };
            tokio::select! {
                // It may be an older one's failure that was noted late.
                () = self.link.failed.notified() => continue,
                () = sleep(PING_EVERY) => {}
            }
            match timeout(PING_EVERY, ping(lease.connection())).await {
                Ok(Ok(())) => {
                    self.link.set_answers(true);
                    self.found(Status::Up);
                }
                Ok(Err(error)) => lease.failed(&error),
                Err(_) => {
                    self.link.set_answers(false);
                    self.found(Status::Away(format!("no answer within {} ms", PING_EVERY.as_millis())));
                    if let Ok(connection) = self.open().await {
                        self.link.fill(connection);
                    }
                }
            }
        }
    }

    /// Notes and logs how the store is. While another connection answers, the trouble of this one is no news of the store's.
    fn found(&self, status: Status) {
        if status != Status::Up && self.link.answering.load(Ordering::Acquire) > 0 {
            log::debug!("one of the connections to Redis is {}: {}", status.word(), status.reason());
            return;
        }
        if status != Status::Up {
            self.site.trouble.notify_one();
        }
        let changed = self.health.set(status.clone());
        self.site.news.notify_waiters();
        if changed {
            let place = self.site.place();
            match status {
                Status::Connecting => {}
                Status::Up => log::info!("Redis at {place} answers"),
                Status::Away(reason) => log::warn!("Redis at {place} is away: {reason}"),
                Status::Unfit(cause) => log::error!("Redis at {place} is not fit for use: {cause}"),
            }
        }
    }
}

/// Asks for a sign of life; a refusal is one.
async fn ping(mut connection: MultiplexedConnection) -> Result<(), RedisError> {
    let mut command = Cmd::new();
    command.arg("PING");
    connection.send_packed_command(&command).await.map(|_| ())
}

/// Between half of it and all of it, so that the sidecars of a fleet do not come back at the same moment.
pub(super) fn jittered(wait: Duration) -> Duration {
    let mut random = [0; 2];
    // Without randomness: the whole wait.
    let share = if getrandom::fill(&mut random).is_ok() { u16::from_ne_bytes(random) } else { u16::MAX };
    wait / 2 + (wait / 2).mul_f64(f64::from(share) / f64::from(u16::MAX))
}
