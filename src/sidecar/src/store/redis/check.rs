//! The self-check of a new connection: can this server do what will be asked of it?
//!
//! It runs the script for real, on a bucket of its own, so whatever would refuse a check (an old version, a missing right, TIME
//! denied, a replica) refuses this one first, and by name.

use super::call;
use super::cluster::slot;
use super::rights;
use super::scripts::Scripts;
use super::server::Role;
use super::tls;
use crate::asks::Asks;
use crate::store::Status;
use limits::decision::Limit;
use limits::refill::Refill;
use limits::token_bucket::TokenBucket;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The oldest Redis, by major and minor version.
const OLDEST: (u32, u32) = (6, 2);
/// So many tags are tried for one in a given slot: all 16,384 are hit long before.
const TAGS_MAX: u32 = 1_000_000;
const A_NODE: &str = "is a node of a Redis Cluster; say redis+cluster:// (or rediss+cluster://)";
/// Why what was to be a cluster is none.
pub(super) const NO_NODE: &str = "is no node of a Redis Cluster; say redis:// (or rediss://)";
/// The last step.
const CALL: &str = "EVALSHA of the script, on keys rl:*";

/// Checks the server behind `connection`.
///
/// # Errors
/// What is in the way, as a status.
pub(super) async fn check(
    scripts: &Arc<Scripts>,
    role: &Role,
    connection: &MultiplexedConnection,
) -> Result<(), Status> {
    version(role, connection.clone()).await?;
    rights::check(matches!(role, Role::Node(_)), &probe_key(role, "rights"), connection.clone()).await?;
    // The first time in any case: it shows whether that is allowed.
    if scripts.generation() == 0 {
        load(scripts, 0, connection).await?;
    }
    // Twice, in case the server had forgotten the scripts.
    for _ in 0..2 {
        let generation = scripts.generation();
        match probe(role, connection.clone()).await? {
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
async fn probe(role: &Role, mut connection: MultiplexedConnection) -> Result<Option<()>, Status> {
    let unfit = |text: &str| Status::Unfit(text.to_owned());
    let mut asks = Asks::default();
    let limit = Refill::new(1_000_000, 1).and_then(|refill| TokenBucket::new(1_000_000, refill, 0).ok());
    let limit = limit.ok_or_else(|| unfit("no bucket to try it on"))?;
    asks.call(Limit::TokenBucket(limit), None, 1, false, |into| {
        into.extend_from_slice(probe_key(role, "tb1").as_bytes())
    });
    asks.end_check();
    let command = call::command(&asks, 0, asks.check(0));
    match connection.send_packed_command(&command).await {
        Ok(Value::ServerError(error)) => match (error.kind(), role) {
            (Some(ServerErrorKind::NoScript), _) => Ok(None),
            // The slot is not its own any more, or not yet. It may have others, and rights are looked at before.
            (Some(ServerErrorKind::Moved | ServerErrorKind::Ask), Role::Node(_)) => Ok(Some(())),
            (Some(ServerErrorKind::Moved | ServerErrorKind::Ask), _) => Err(unfit(A_NODE)),
            (Some(ServerErrorKind::ReadOnly), Role::Primary) => Err(Status::Away("is a replica".to_owned())),
            (Some(ServerErrorKind::ReadOnly), _) => {
                Err(unfit("is a replica (READONLY); name the primary, or all of them: redis://HOST,HOST"))
            }
            _ => Err(status(CALL, &error.into())),
        },
        Ok(reply) => call::answer(reply, 1)
            .map(|_| Some(()))
            .map_err(|_| unfit("EVALSHA of the script: an answer of another form")),
        Err(error) => Err(status(CALL, &error)),
    }
}

/// A key of the self-check's: within `rl:`, as every key is, so that a user confined to other keys is found out; of a node in a
/// slot of its own.
fn probe_key(role: &Role, end: &str) -> String {
    let tag = match role {
        Role::Node(wanted) => {
            let wanted = wanted.load(Ordering::Relaxed);
            let tags = (0..TAGS_MAX).map(|nth| format!("kota:self-check:{nth}"));
            tags.into_iter().find(|tag| slot::of(tag.as_bytes()) == wanted).unwrap_or_default()
        }
        Role::Alone | Role::Primary => "kota:self-check:probe".to_owned(),
    };
    format!("rl:{{{tag}}}:self-check:{end}")
}

/// Whether the server is new enough, and a cluster's node only where one is wanted. One that does not tell is judged by what it
/// can do.
async fn version(role: &Role, mut connection: MultiplexedConnection) -> Result<(), Status> {
    let mut command = Cmd::new();
    command.arg("INFO").arg("server");
    let info: String = match command.query_async(&mut connection).await {
        Ok(info) => info,
        Err(error) if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm)) => return Ok(()),
        Err(error) => return Err(status("INFO", &error)),
    };
    let told = |name| info.lines().find_map(|line| line.trim().strip_prefix(name));
    match told("redis_version:") {
        Some(text) if major_minor(text).is_some_and(|version| version < OLDEST) => {
            return Err(Status::Unfit(format!(
                "Redis {text} is too old; {}.{} or later is needed",
                OLDEST.0, OLDEST.1
            )));
        }
        _ => {}
    }
    match (told("redis_mode:"), role) {
        (Some("cluster"), Role::Alone | Role::Primary) => Err(Status::Unfit(A_NODE.to_owned())),
        (Some("standalone" | "sentinel"), Role::Node(_)) => Err(Status::Unfit(NO_NODE.to_owned())),
        _ => Ok(()),
    }
}

fn major_minor(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What an error during `step` says about the server: it passes by itself, or somebody has to act.
pub(super) fn status(step: &str, error: &RedisError) -> Status {
    let cause = format!("{step}: {error}");
    if cause.contains("received fatal alert") {
        return Status::Unfit(cause + tls::WANTS_OURS);
    }
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
