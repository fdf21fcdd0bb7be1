//! The process: runtime, listeners, signals, drain.

use crate::api::Api;
use crate::decide::Decider;
use crate::listen::Listener;
use crate::logging;
use crate::metrics::Metrics;
use crate::serve::serve;
use crate::settings::{Flags, Settings, StoreSetting};
use crate::store::AnyStore;
use crate::store::memory::{BUCKETS_MAX, Memory};
use crate::store::redis::Redis;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// What a process exits with whose flags can't be used (`EX_USAGE`).
const BAD_FLAGS: u8 = 64;
/// How long requests in flight, and the changes that they asked for, may take to finish when the process is told to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs until a signal ends it. Exits with 64 before any port is bound if a flag can't be used, with 1 if a port can't be bound,
/// with 0 after a drain.
#[must_use]
pub fn run(flags: &Flags) -> ExitCode {
    let settings = match Settings::from_flags(flags, rustix::process::geteuid().as_raw()) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("kota sidecar: {error}");
            return ExitCode::from(BAD_FLAGS);
        }
    };
    // Only if a test has begun to log already.
    let _ = logging::begin(settings.log);
    let outcome = runtime(settings.threads)
        .map_err(|error| format!("no runtime: {error}"))
        .and_then(|runtime| runtime.block_on(sidecar(settings)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// One thread needs no locks and wakes nobody: it decides more per core than several do. More are for a pod that needs more
/// than one core.
fn runtime(threads: usize) -> io::Result<Runtime> {
    match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

async fn sidecar(settings: Settings) -> Result<(), String> {
    let metrics = Metrics::new();
    let mut signals = Signals::new().map_err(|error| format!("no signals: {error}"))?;
    let listener = Listener::bind(&settings.listen, &settings.allowed).await?;
    let api_listener = Listener::bind_tcp(settings.api).await?;
    log::info!("deciding at {}, serving others at {}", listener.address(), api_listener.address());

    let store = match &settings.store {
        StoreSetting::Memory => AnyStore::Memory(Memory::new(BUCKETS_MAX)),
        StoreSetting::Redis(target) => AnyStore::Redis(Redis::connect(target, metrics.clone())),
    };
    let decider = Arc::new(Decider::new(store, settings.keys, metrics.clone()));
    let (unready, draining) = watch::channel(false);
    let (drain, drained) = watch::channel(false);
    let api = Arc::new(Api::new(Arc::clone(&decider), settings.config, metrics.clone(), draining));

    let front =
        tokio::spawn(serve(listener, Arc::clone(&decider), metrics.clone(), drained.clone(), PATIENCE));
    let back = tokio::spawn(serve(api_listener, api, metrics, drained, PATIENCE));
    signals.next().await;
    let drained = async {
        log::info!("draining for {} ms", settings.drain_wait.as_millis());
        unready.send_replace(true);
        tokio::time::sleep(settings.drain_wait).await;
        drain.send_replace(true);
        let deadline = Instant::now() + PATIENCE;
        for server in [front, back] {
            // A server that panicked has nothing left to finish.
            let _ = server.await;
        }
        // What they asked for last, and what waits for the store to come back, has what is left of the time.
        decider.finish_changes(deadline).await;
    };
    tokio::select! {
        () = drained => log::info!("drained"),
        () = signals.next() => log::warn!("a second signal: ending at once"),
    }
    Ok(())
}

/// The signals that ask a process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
