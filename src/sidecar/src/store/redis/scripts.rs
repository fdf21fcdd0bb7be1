//! The scripts: sent once, then called by their hashes, and sent again when the server has forgotten them.

use crate::metrics::Metrics;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Script, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use tokio::sync::Mutex;

/// Names the files in `lua/`; the header of each tells its KEYS, ARGV and result.
macro_rules! scripts {
    ($($(#[$doc:meta])* $id:ident => $file:literal,)+) => {
        /// One of the scripts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum ScriptId {
            $($(#[$doc])* $id,)+
        }

        const TEXTS: &[&str] = &[$(include_str!(concat!("../../../../../lua/", $file)),)+];
    };
}

scripts! {
    /// Decides one check.
    Decide => "decide.lua",
    /// Settles tokens.
    Settle => "settle.lua",
    /// Releases or renews a slot.
    Slot => "slot.lua",
    /// Drops a penalty.
    Pardon => "pardon.lua",
}

/// How many scripts there are: so many `SCRIPT LOAD` a server gets when it has forgotten them.
pub const SCRIPTS: usize = TEXTS.len();

/// The hashes that servers know the scripts by, at the scripts' places.
static HASHES: LazyLock<Vec<String>> =
    LazyLock::new(|| TEXTS.iter().map(|text| Script::new(text).get_hash().to_owned()).collect());

/// The scripts as one server knows them.
pub(super) struct Scripts {
    /// How often they were loaded.
    generation: AtomicU64,
    /// Held while they are loaded.
    loading: Arc<Mutex<()>>,
    metrics: Metrics,
}

// === impl ScriptId ===

impl ScriptId {
    /// The hash to call it by.
    pub(super) fn sha(self) -> &'static str {
        &HASHES[self as usize]
    }
}

// === impl Scripts ===

impl Scripts {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { generation: AtomicU64::new(0), loading: Arc::default(), metrics }
    }

    /// How often they were loaded, to be read before a call.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Loads them, unless that has happened since `generation`: of all calls that one flush has hit, one sends the scripts.
    ///
    /// The load itself runs detached: were it dropped with the call whose deadline passes, the next would send them again.
    pub(super) async fn load_after(
        self: &Arc<Self>,
        generation: u64,
        connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let held = Arc::clone(&self.loading).lock_owned().await;
        if self.generation() != generation {
            return Ok(());
        }
        let scripts = Arc::clone(self);
        let load = tokio::spawn(async move {
            let _held = held;
            scripts.load(connection).await
        });
        load.await
            .unwrap_or_else(|_| Err(RedisError::from((redis::ErrorKind::Client, "loading was cut short"))))
    }

    async fn load(&self, mut connection: MultiplexedConnection) -> Result<(), RedisError> {
        let mut loads = Pipeline::with_capacity(SCRIPTS);
        for text in TEXTS {
            let mut command = Cmd::new();
            command.arg("SCRIPT").arg("LOAD").arg(text);
            loads.add_command(command);
        }
        for reply in connection.send_packed_commands(&loads, 0, SCRIPTS).await? {
            if let Value::ServerError(error) = reply {
                return Err(error.into());
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
        self.metrics.script_load();
        log::info!("sent the scripts to Redis");
        Ok(())
    }
}
