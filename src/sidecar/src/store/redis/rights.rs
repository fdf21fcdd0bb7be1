//! What a user of Redis has to be granted. A script that is denied a command does not tell which, so each is tried by itself.

use super::check::status;
use crate::store::Status;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

/// A right, and the words that try it out. `KEY` is a key that holds no bucket; nothing is written to it that stays.
type Right = (&'static str, &'static str);

/// What every server needs.
const ALL: &[Right] = &[
    ("+evalsha", ""),     // by the probe
    ("+script|load", ""), // by the first load
    // Without these two all works, but each refusal is a line in the server's ACL LOG: a sign of life a second, its version.
    ("+ping", ""),
    ("+info", ""),
    ("+time", "TIME"),
    ("+mget", "MGET KEY"),
    ("+set", "SET KEY 0 PX 1"),
    // For the slots of concurrency. That KEY may hold a string now does not matter: rights are looked at first.
    ("+zscore", "ZSCORE KEY 0"),
    ("+zcount", "ZCOUNT KEY 0 1"),
    ("+zrangebyscore", "ZRANGEBYSCORE KEY 0 1"),
    ("+zrange", "ZRANGE KEY 0 0"),
    ("+zremrangebyscore", "ZREMRANGEBYSCORE KEY 0 1"),
    ("+zadd", "ZADD KEY XX 0 0"),
    ("+zrem", "ZREM KEY 0"),
    ("+pexpire", "PEXPIRE KEY 1"),
];
/// What the nodes of a cluster need besides. ASKING is for the next command alone, and that one has no key.
const OF_NODES: &[Right] = &[("+asking", "ASKING"), ("+cluster|slots", "CLUSTER SLOTS")];

/// The rights as one grants them, such as `~rl:* +evalsha …`.
pub(super) fn grant(cluster: bool) -> String {
    let more = if cluster { OF_NODES } else { &[] };
    let names = ALL.iter().chain(more).map(|(name, _)| *name);
    ["~rl:*"].into_iter().chain(names).collect::<Vec<_>>().join(" ")
}

/// Tries out all that can be tried without a script.
///
/// # Errors
/// A right that is missing, by name.
pub(super) async fn check(
    cluster: bool,
    key: &str,
    mut connection: MultiplexedConnection,
) -> Result<(), Status> {
    let more = if cluster { OF_NODES } else { &[] };
    let tried: Vec<&str> =
        more.iter().chain(ALL).map(|(_, words)| *words).filter(|words| !words.is_empty()).collect();
    let mut calls = Pipeline::with_capacity(tried.len());
    for words in &tried {
        let mut words = words.split(' ');
        calls.cmd(words.next().unwrap_or_default());
        words.for_each(|word| _ = calls.arg(if word == "KEY" { key } else { word }));
    }
    let replies = connection.send_packed_commands(&calls, 0, calls.len()).await;
    for (reply, words) in replies.map_err(|error| status("self-check", &error))?.into_iter().zip(tried) {
        let Value::ServerError(error) = reply else { continue };
        let error = RedisError::from(error);
        // Whatever else is wrong, such as a slot of another node, is the probe's to find out.
        if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::NoPerm)) {
            let words = words.replace("KEY", key);
            return Err(Status::Unfit(format!("{words}: {error}; grant {}", grant(cluster))));
        }
    }
    Ok(())
}
