//! The self-check of a new connection: can this server do what will be asked of it?
//!
//! It runs the script for real, on a bucket of its own, so whatever would refuse a check (an old version, a missing right, TIME
//! denied, a replica) refuses this one first, and by name.

use super::call;
use super::scripts::Scripts;
use crate::asks::Asks;
use crate::store::Status;
use limits::decision::Limit;
use limits::refill::Refill;
use limits::token_bucket::TokenBucket;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::sync::Arc;

/// The oldest Redis, by major and minor version.
const OLDEST: (u32, u32) = (6, 2);
/// The bucket that is charged: within `rl:`, as every key is, so that a user confined to other keys is found out.
const PROBE_KEY: &[u8] = b"rl:{kota:self-check:probe}:self-check:tb1";
/// The step that may fail for a right that only the script needs; Redis does not say which.
const CALL: &str = "EVALSHA of the script, which calls TIME, MGET and SET on keys rl:*";

/// Checks the server behind `connection`.
///
/// # Errors
/// What is in the way, as a status.
pub(super) async fn check(scripts: &Arc<Scripts>, connection: &MultiplexedConnection) -> Result<(), Status> {
    version(connection.clone()).await?;
    clock(connection.clone()).await?;
    // The first time in any case: it shows whether that is allowed.
    if scripts.generation() == 0 {
        load(scripts, 0, connection).await?;
    }
    // Twice, in case the server had forgotten the scripts.
    for _ in 0..2 {
        let generation = scripts.generation();
        match probe(connection.clone()).await? {
            Some(()) => return Ok(()),
            None => load(scripts, generation, connection).await?,
        }
    }
    Err(Status::Away("the server keeps forgetting the scripts".to_owned()))
}

async fn load(
    scripts: &Arc<Scripts>,
    generation: u64,
    connection: &MultiplexedConnection,
) -> Result<(), Status> {
    scripts.load_after(generation, connection.clone()).await.map_err(|error| status("SCRIPT LOAD", &error))
}

/// Runs the script. `None` if the server does not know it.
async fn probe(mut connection: MultiplexedConnection) -> Result<Option<()>, Status> {
    let unfit = |text: &str| Status::Unfit(text.to_owned());
    let mut asks = Asks::default();
    let limit = Refill::new(1_000_000, 1).and_then(|refill| TokenBucket::new(1_000_000, refill, 0).ok());
    let limit = limit.ok_or_else(|| unfit("no bucket to try it on"))?;
    asks.call(Limit::TokenBucket(limit), None, 1, false, |into| into.extend_from_slice(PROBE_KEY));
    asks.end_check();
    let command = call::command(&asks, asks.check(0));
    match connection.send_packed_command(&command).await {
        Ok(Value::ServerError(error)) if error.kind() == Some(ServerErrorKind::NoScript) => Ok(None),
        Ok(Value::ServerError(error)) => Err(status(CALL, &error.into())),
        Ok(reply) => call::answer(reply, 1)
            .map(|_| Some(()))
            .map_err(|_| unfit("EVALSHA of the script: an answer of another form")),
        Err(error) => Err(status(CALL, &error)),
    }
}

/// Whether the server is new enough. One that does not tell is judged by what it can do.
async fn version(mut connection: MultiplexedConnection) -> Result<(), Status> {
    let mut command = Cmd::new();
    command.arg("INFO").arg("server");
    let info: String = match command.query_async(&mut connection).await {
        Ok(info) => info,
        Err(error) if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm)) => return Ok(()),
        Err(error) => return Err(status("INFO", &error)),
    };
    match info.lines().find_map(|line| line.strip_prefix("redis_version:")) {
        Some(text) if major_minor(text).is_some_and(|version| version < OLDEST) => Err(Status::Unfit(
            format!("Redis {} is too old; {}.{} or later is needed", text.trim(), OLDEST.0, OLDEST.1),
        )),
        _ => Ok(()),
    }
}

/// Whether the clock may be read: a script that is denied it does not tell what it was denied.
async fn clock(mut connection: MultiplexedConnection) -> Result<(), Status> {
    let mut command = Cmd::new();
    command.arg("TIME");
    command.query_async::<Value>(&mut connection).await.map(|_| ()).map_err(|error| status("TIME", &error))
}

fn major_minor(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What an error during `step` says about the server: it passes by itself, or somebody has to act.
pub(super) fn status(step: &str, error: &RedisError) -> Status {
    let cause = format!("{step}: {error}");
    let passes = match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => true,
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
        ),
        ErrorKind::Extension => matches!(error.code(), Some("BUSY" | "OOM" | "MISCONF" | "NOREPLICAS")),
        _ => false,
    };
    if passes { Status::Away(cause) } else { Status::Unfit(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(major_minor("6.0.16\r").unwrap() < OLDEST);
        assert!(major_minor("6.2.0").unwrap() >= OLDEST);
        assert!(major_minor("10.0").unwrap() >= OLDEST);
        assert_eq!(major_minor("unstable"), None);
    }
}
