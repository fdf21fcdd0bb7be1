//! Who owns what: `CLUSTER SLOTS`, asked of a node when there is a reason to, and now and then without one.

use super::Inner;
use crate::store::Status;
use crate::store::redis::check;
use crate::store::redis::link::jittered;
use crate::store::redis::server::Server;
use crate::store::redis::target::Place;
use redis::{Cmd, RedisError, Value};
use std::sync::Arc;
use tokio::time::{Duration, sleep, timeout};

/// How long one node may take to answer, and to be connected to before.
const SURVEY_TIME: Duration = Duration::from_secs(2);
/// The longest pause between two surveys, half of it random: a map that is out of date is noticed by its first wrong call.
const EVERY: Duration = Duration::from_secs(60);
/// The longest pause while a node is away or a slot has no owner.
const EVERY_WHEN_AWAY: Duration = Duration::from_millis(500);
/// The shortest pause, however many calls are sent elsewhere: while slots move, each move is a reason.
const PAUSE: Duration = Duration::from_millis(50);

/// A range of slots and the primary that owns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Place,
}

/// Surveys for ever, one at a time.
pub(super) async fn keep(inner: Arc<Inner>) {
    loop {
        match survey(&inner).await {
            Ok(ranges) => inner.learn(&ranges),
            Err(status) => found(&inner, status),
        }
        sleep(PAUSE).await;
        let every = if inner.status() == Status::Up { EVERY } else { EVERY_WHEN_AWAY };
        tokio::select! {
            () = inner.stale.notified() => {}
            () = sleep(jittered(every)) => {}
        }
    }
}

/// Asks one node after the other until one answers: those that are connected first, beginning anywhere, then the seeds.
///
/// A node that owns nothing by its own word may have left the cluster, and know it as it was then. It is believed only if nobody
/// else answers.
async fn survey(inner: &Inner) -> Result<Vec<Range>, Status> {
    let servers = inner.map().servers.clone();
    let mut outsider = None;
    let first = usize::from(random());
    for nth in 0..servers.len() {
        let server = &servers[first.wrapping_add(nth) % servers.len()];
        if server.status() != Status::Up {
            continue;
        }
        let Ok(Some(ranges)) = timeout(SURVEY_TIME, of_server(server)).await else { continue };
        if ranges.iter().any(|range| range.owner == *server.place()) {
            return Ok(ranges);
        }
        outsider = Some(ranges);
    }
    let mut found = Vec::new();
    for seed in &inner.seeds {
        match timeout(SURVEY_TIME, of_seed(inner, seed)).await {
            Ok(Ok(ranges)) => return Ok(ranges),
            Ok(Err(status)) => found.push((seed, status)),
            Err(_) => {
                found.push((seed, Status::Away(format!("no answer within {} ms", SURVEY_TIME.as_millis()))))
            }
        }
    }
    outsider.ok_or_else(|| Status::of_all(&found))
}

/// `None`: no answer, or one without a slot, as of a node that was reset: that is no reason to forget the others.
async fn of_server(server: &Server) -> Option<Vec<Range>> {
    let ranges = ranges(server.ask(&command()).await?.ok()?, server.place())?;
    (!ranges.is_empty()).then_some(ranges)
}

async fn of_seed(inner: &Inner, seed: &Place) -> Result<Vec<Range>, Status> {
    let mut connection = inner.door.open(seed).await?;
    let reply: Result<Value, RedisError> = command().query_async(&mut connection).await;
    let reply = reply.map_err(|error| match error.to_string() {
        text if text.contains("cluster support disabled") => Status::Unfit(check::NO_NODE.to_owned()),
        _ => check::status("CLUSTER SLOTS", &error),
    })?;
    match ranges(reply, seed) {
        Some(ranges) if ranges.is_empty() => {
            Err(Status::Away("knows of no slot that has a primary".to_owned()))
        }
        Some(ranges) => Ok(ranges),
        None => Err(Status::Unfit("CLUSTER SLOTS: an answer of another form".to_owned())),
    }
}

fn command() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

/// Notes and logs that nobody could be asked.
fn found(inner: &Inner, status: Status) {
    if !inner.health.set(status.clone()) {
        return;
    }
    match status {
        Status::Unfit(cause) => log::error!("the Redis Cluster is not fit for use: {cause}"),
        status => log::warn!("the Redis Cluster is away: {}", status.reason()),
    }
}

/// The ranges in a reply: each is first, last, then nodes as host, port, …, of which the first is the primary. A host that a node
/// does not know is its own.
fn ranges(reply: Value, asked: &Place) -> Option<Vec<Range>> {
    let Value::Array(entries) = reply else { return None };
    let mut ranges = Vec::new();
    for entry in entries {
        let Value::Array(entry) = entry else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = entry.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
            Value::Nil => "",
            _ => return None,
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if let Some(owner) = Place::told_parts(host, u16::try_from(*port).ok()?, asked) {
            ranges.push(Range { first, last, owner });
        }
    }
    Some(ranges)
}

/// Any number; 0 without randomness, which is as good where it is only to spread load.
fn random() -> u16 {
    let mut bytes = [0; 2];
    let _ = getrandom::fill(&mut bytes);
    u16::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_hosts_that_a_node_does_not_know() {
        let text = "*3\r\n*4\r\n:0\r\n:5\r\n*3\r\n$8\r\n10.0.0.7\r\n:7000\r\n$2\r\nid\r\n*3\r\n$1\r\nr\r\n:1\r\n$2\r\nid\r\n\
             *3\r\n:6\r\n:9\r\n*4\r\n$-1\r\n:7001\r\n$2\r\nid\r\n*0\r\n*3\r\n:10\r\n:10\r\n*3\r\n$1\r\n?\r\n:7002\r\n$2\r\nid\r\n";
        let reply = redis::parse_redis_value(text.as_bytes()).unwrap();
        let place = |host: &str, port| Place::Tcp(host.to_owned(), port);
        let wanted = vec![
            Range { first: 0, last: 5, owner: place("10.0.0.7", 7000) },
            Range { first: 6, last: 9, owner: place("seed", 7001) },
        ];
        assert_eq!(ranges(reply, &place("seed", 1)), Some(wanted));
        assert_eq!(ranges(Value::Okay, &place("seed", 1)), None);
        assert_eq!(ranges(Value::Array(vec![Value::Int(1)]), &place("seed", 1)), None);
    }
}
