//! Changes of buckets for whoever is not the filter, and `POST /v1/pardon`.

use super::applying::applying;
use crate::changes::{Change, Changed, Kind};
use crate::decide::Decider;
use crate::problem::{self, problem, whole};
use hyper::StatusCode;
use protocol::check::{Pardon, Pardoned};
use protocol::config::Config;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a change may take. Its caller waits by a clock of its own.
const CHANGE_TIME: Duration = Duration::from_secs(1);

/// What became of each.
pub(super) async fn change(decider: &Arc<Decider>, changes: Vec<Change>) -> Vec<Changed> {
    decider.change(changes, Instant::now() + CHANGE_TIME).await
}

/// Drops denials and penalties of a client under all of its rules that have a penalty.
pub(super) async fn pardon(decider: &Arc<Decider>, config: &Config, body: &[u8]) -> problem::Answer {
    let pardon = match Pardon::parse(body, &config.domain, &config.rules) {
        Ok(pardon) => pardon,
        Err(faults) => return super::refused(&faults),
    };
    let mut all = match applying(decider, config, &pardon.values) {
        Ok(all) => all,
        Err(rule) => {
            let detail =
                format!("the rule {} can't tell who is meant: a part of its key is missing", rule.id);
            return problem(StatusCode::BAD_REQUEST, &detail);
        }
    };
    all.retain(|applying| applying.rule.penalty.is_some());
    if all.is_empty() {
        return problem(
            StatusCode::NOT_FOUND,
            "no rule with a penalty applies to these descriptors; say those of the checks that were denied",
        );
    }
    let changes =
        all.iter().map(|applying| Change { key: applying.key.clone(), kind: Kind::Pardon }).collect();
    let changed = change(decider, changes).await;
    if !changed.iter().all(|one| one.is_known()) {
        return problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store did not say in time whether it was done; it is safe to try again",
        );
    }
    let done = all.iter().zip(changed).filter(|(_, changed)| *changed == Changed::Yes);
    let answer = Pardoned { pardoned: done.map(|(applying, _)| &*applying.rule.id).collect() };
    whole(StatusCode::OK, "application/json", answer.to_body())
}
