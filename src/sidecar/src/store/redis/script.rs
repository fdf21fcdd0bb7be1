//! The script: sent once, then called by its hash, and sent again when the server has forgotten it.

use crate::metrics::Metrics;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Mutex;

/// Decides one check; its header tells KEYS, ARGV and the result.
const DECIDE: &str = include_str!("../../../../../lua/decide.lua");

/// The script as one server knows it.
pub(super) struct Script {
    /// Its hash, known once it was loaded for the first time: the server computes it.
    sha: OnceLock<String>,
    /// How often it was loaded.
    generation: AtomicU64,
    /// Held while it is loaded.
    loading: Arc<Mutex<()>>,
    metrics: Metrics,
}

// === impl Script ===

impl Script {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { sha: OnceLock::new(), generation: AtomicU64::new(0), loading: Arc::default(), metrics }
    }

    /// The hash to call it by, if it was ever loaded.
    pub(super) fn sha(&self) -> Option<&str> {
        self.sha.get().map(String::as_str)
    }

    /// How often it was loaded, to be read before a call.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Loads it, unless that has happened since `generation`: of all calls that one flush has hit, one sends the script.
    ///
    /// The load itself runs detached: were it dropped with the call whose deadline passes, the next would send it again.
    pub(super) async fn load_after(
        self: &Arc<Self>,
        generation: u64,
        connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let held = Arc::clone(&self.loading).lock_owned().await;
        if self.generation() != generation {
            return Ok(());
        }
        let script = Arc::clone(self);
        let load = tokio::spawn(async move {
            let _held = held;
            script.load(connection).await
        });
        load.await
            .unwrap_or_else(|_| Err(RedisError::from((redis::ErrorKind::Client, "loading was cut short"))))
    }

    async fn load(&self, mut connection: MultiplexedConnection) -> Result<(), RedisError> {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(DECIDE);
        let sha: String = command.query_async(&mut connection).await?;
        // The same text has the same hash: after the first time nothing changes.
        self.sha.get_or_init(|| sha);
        self.generation.fetch_add(1, Ordering::Release);
        self.metrics.script_load();
        log::info!("sent the script to Redis");
        Ok(())
    }
}
