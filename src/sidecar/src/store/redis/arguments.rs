//! Limits and penalties as the scripts take them.

use limits::decision::Limit;
use limits::penalty::Penalty;
use limits::token_bucket::TokenBucket;
use redis::Cmd;

/// The most arguments of a rule: a token bucket's, with a penalty.
pub(super) const MAX: usize = 14;

/// What the algorithm of a limit wants, the capacity first.
pub(super) fn limit(command: &mut Cmd, limit: &Limit) {
    match limit {
        Limit::TokenBucket(limit) => bucket(command, limit),
        Limit::SlidingWindow(limit) => _ = command.arg(limit.capacity()).arg(limit.window_ms()),
        Limit::Concurrency(limit) => _ = command.arg(limit.capacity()).arg(limit.lease_ms()),
    }
}

/// What a penalty wants; nothing without one.
pub(super) fn penalty(command: &mut Cmd, penalty: Option<&Penalty>) {
    if let Some(penalty) = penalty {
        command.arg(penalty.denials()).arg(penalty.within_ms()).arg(penalty.for_ms());
        bucket(command, penalty.bucket());
    }
}

fn bucket(command: &mut Cmd, limit: &TokenBucket) {
    let refill = limit.refill();
    command.arg(limit.capacity()).arg(refill.num()).arg(refill.den()).arg(limit.idle_ms());
}
