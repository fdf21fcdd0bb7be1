//! Slots of `CONCURRENCY` for whoever is not the filter: what `/v1/check` gives, and `POST /v1/release` and `/v1/renew`.

use super::applying::{Applying, applying};
use super::changes::change;
use crate::changes::{Change, Changed, Kind};
use crate::decide::Decider;
use crate::problem::{self, problem};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::StatusCode;
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use protocol::check::Holding;
use protocol::config::Config;
use std::sync::Arc;

/// Bytes of a slot's name: nobody guesses one.
const SLOT_BYTES: usize = 16;

/// What is done with a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// It is given back.
    Release,
    /// Its lease begins anew.
    Renew,
}

/// A slot's name, new.
pub(super) fn new() -> Result<[u8; SLOT_BYTES], getrandom::Error> {
    let mut slot = [0; SLOT_BYTES];
    getrandom::fill(&mut slot)?;
    Ok(slot)
}

/// A slot's name as answers have it.
pub(super) fn text(slot: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(slot)
}

/// The limit of what runs at once, if the rule's is one.
pub(super) fn concurrency(applying: &Applying<'_>) -> Option<Concurrency> {
    match applying.rule.limit {
        Limit::Concurrency(limit) => Some(limit),
        _ => None,
    }
}

/// The changes that do this to a slot under all rules that gave it.
pub(super) fn changes(all: &[Applying<'_>], slot: &[u8], act: Act) -> Vec<Change> {
    let change = |applying: &Applying<'_>| {
        let (limit, slot) = (concurrency(applying)?, slot.into());
        let kind = match act {
            Act::Release => Kind::Release { limit, slot },
            Act::Renew => Kind::Renew { limit, slot },
        };
        Some(Change { key: applying.key.clone(), kind })
    };
    all.iter().filter_map(change).collect()
}

/// Releases or renews. A slot that is released twice, late or before anybody heard of it is released all the same.
pub(super) async fn act(decider: &Arc<Decider>, config: &Config, body: &[u8], act: Act) -> problem::Answer {
    let holding = match Holding::parse(body, &config.domain, &config.rules) {
        Ok(holding) => holding,
        Err(faults) => return super::refused(&faults),
    };
    let Ok(slot) = URL_SAFE_NO_PAD.decode(&holding.slot) else {
        return problem(StatusCode::BAD_REQUEST, "$.slot: is no slot, want the one that /v1/check answered");
    };
    // A rule that denies whoever lacks its key has given no slot.
    let all = applying(decider, config, &holding.values).unwrap_or_default();
    let changes = changes(&all, &slot, act);
    if changes.is_empty() {
        return problem(
            StatusCode::NOT_FOUND,
            "no rule of the algorithm CONCURRENCY applies to these descriptors; say those of the check",
        );
    }
    let changed = change(decider, changes).await;
    if !changed.iter().all(|one| one.is_known()) {
        return problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "the store did not say in time whether it was done; it is safe to try again",
        );
    }
    if act == Act::Renew && changed.contains(&Changed::No) {
        return problem(
            StatusCode::GONE,
            "the lease of this slot has ended, or the slot was released: it does not count any more; check again",
        );
    }
    let mut done = problem::Answer::default();
    *done.status_mut() = StatusCode::NO_CONTENT;
    done
}
