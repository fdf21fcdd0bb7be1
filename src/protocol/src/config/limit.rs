//! A rule's algorithm with its parameters.

use crate::json::fault::excerpt;
use crate::json::number;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;
use limits::concurrency::{self, Concurrency, ConcurrencyError, LEASE_MAX_S};
use limits::decision::Limit;
use limits::refill::{DECIMALS_MAX, PER_SECOND_MAX, Refill, RefillError};
use limits::sliding_window::{SlidingWindow, SlidingWindowError, WINDOW_MAX_S};
use limits::token_bucket::{CAPACITY_MAX, TIME_TO_FULL_MAX_S, TokenBucket, TokenBucketError};

/// How long a slot of concurrency is held without a sign of life unless the rule says otherwise, in seconds.
const LEASE_DEFAULT_S: u64 = 10;
/// What a rule without capacity probably wants.
const SWITCH_OFF: &str = "; to switch a rule off say \"mode\": \"DISABLED\"";

/// The words of `algorithm`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    TokenBucket,
    SlidingWindow,
    Concurrency,
}

const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("TOKEN_BUCKET", Algorithm::TokenBucket),
    ("SLIDING_WINDOW", Algorithm::SlidingWindow),
    ("CONCURRENCY", Algorithm::Concurrency),
];

/// Parameters that belong to one algorithm alone.
const PARAMETERS: [(&str, &str, Algorithm); 4] = [
    ("refillPerSecond", "TOKEN_BUCKET", Algorithm::TokenBucket),
    ("idleSeconds", "TOKEN_BUCKET", Algorithm::TokenBucket),
    ("windowSeconds", "SLIDING_WINDOW", Algorithm::SlidingWindow),
    ("leaseSeconds", "CONCURRENCY", Algorithm::Concurrency),
];

/// What a rule says of its limit.
pub(super) struct Read {
    /// The algorithm, if the word is one.
    pub(super) algorithm: Option<Algorithm>,
    /// Requests or tokens, if the number is one.
    pub(super) capacity: Option<u64>,
    /// The limit, if nothing of it is faulty.
    pub(super) limit: Option<Limit>,
}

/// Reads a rule's algorithm and its parameters.
pub(super) fn read(rule: &Fields<'_>) -> Read {
    let algorithm = rule
        .need("algorithm", ", want \"TOKEN_BUCKET\", \"SLIDING_WINDOW\" or \"CONCURRENCY\"")
        .and_then(|spot| spot.word("algorithm", &ALGORITHMS));
    let most =
        if algorithm == Some(Algorithm::Concurrency) { concurrency::CAPACITY_MAX } else { CAPACITY_MAX };
    let capacity = rule.need("capacity", "").and_then(|spot| spot.whole(1..=most, SWITCH_OFF));
    for (field, owner, of) in PARAMETERS {
        if rule.get(field).is_some() && algorithm.is_some_and(|algorithm| algorithm != of) {
            rule.fault(field, format_args!("belongs to \"algorithm\": \"{owner}\""));
        }
    }
    let limit = match algorithm {
        Some(Algorithm::TokenBucket) => token_bucket(rule, capacity),
        Some(Algorithm::SlidingWindow) => sliding_window(rule, capacity),
        Some(Algorithm::Concurrency) => concurrency(rule, capacity),
        None => {
            // Which of them belong here is not known; what is there is checked all the same.
            rule.get("refillPerSecond").and_then(|spot| refill(&spot));
            seconds(rule, "idleSeconds", TIME_TO_FULL_MAX_S);
            seconds(rule, "windowSeconds", WINDOW_MAX_S);
            seconds(rule, "leaseSeconds", LEASE_MAX_S);
            None
        }
    };
    Read { algorithm, capacity, limit }
}

/// So many seconds, if they are there.
fn seconds(rule: &Fields<'_>, name: &str, most: u64) -> Option<u64> {
    rule.get(name)?.whole(1..=most, "")
}

fn sliding_window(rule: &Fields<'_>, capacity: Option<u64>) -> Option<Limit> {
    let window = rule
        .need("windowSeconds", ", want the window's length in seconds, such as 60 or 86400")
        .and_then(|spot| spot.whole(1..=WINDOW_MAX_S, " (31 days)"));
    match SlidingWindow::new(capacity?, window?) {
        Ok(limit) => Some(Limit::SlidingWindow(limit)),
        Err(error) => {
            let field = match error {
                SlidingWindowError::Capacity => "capacity",
                SlidingWindowError::Window => "windowSeconds",
            };
            rule.fault(field, error);
            None
        }
    }
}

fn concurrency(rule: &Fields<'_>, capacity: Option<u64>) -> Option<Limit> {
    let lease =
        rule.get("leaseSeconds").map_or(Some(LEASE_DEFAULT_S), |spot| spot.whole(1..=LEASE_MAX_S, ""));
    match Concurrency::new(capacity?, lease?) {
        Ok(limit) => Some(Limit::Concurrency(limit)),
        Err(error) => {
            let field = match error {
                ConcurrencyError::Capacity => "capacity",
                ConcurrencyError::Lease => "leaseSeconds",
            };
            rule.fault(field, error);
            None
        }
    }
}

fn token_bucket(rule: &Fields<'_>, capacity: Option<u64>) -> Option<Limit> {
    let refill = rule.need("refillPerSecond", ", want tokens per second").and_then(|spot| refill(&spot));
    let idle = idle_s(rule, refill);
    let (capacity, refill, idle_s) = (capacity?, refill?, idle?);
    match TokenBucket::new(capacity, refill, idle_s) {
        Ok(bucket) => Some(Limit::TokenBucket(bucket)),
        Err(error) => {
            let field = match error {
                TokenBucketError::Capacity => "capacity",
                TokenBucketError::Idle => "idleSeconds",
                TokenBucketError::TooSlow => "refillPerSecond",
            };
            rule.fault(field, error);
            None
        }
    }
}

/// Seconds after which a bucket that never refills starts anew; 0 for one that does.
fn idle_s(rule: &Fields<'_>, refill: Option<Refill>) -> Option<u64> {
    let spot = rule.get("idleSeconds");
    let given = spot.map(|spot| spot.whole(1..=TIME_TO_FULL_MAX_S, ""));
    match (refill, given) {
        (Some(refill), None) if refill.is_never() => {
            rule.fault(
                "idleSeconds",
                "is missing: a bucket with \"refillPerSecond\": 0 starts anew after so long without use",
            );
            None
        }
        (Some(refill), Some(_)) if !refill.is_never() => {
            rule.fault("idleSeconds", "has a meaning only with \"refillPerSecond\": 0; leave it out");
            None
        }
        (_, None) => Some(0),
        (_, Some(seconds)) => seconds,
    }
}

pub(super) fn refill(spot: &Spot<'_>) -> Option<Refill> {
    let range = format!("0 to {PER_SECOND_MAX} with at most {DECIMALS_MAX} decimals");
    let Node::Number(text) = spot.node else {
        spot.want_number(format_args!("a number from {range}"));
        return None;
    };
    let shown = excerpt(text);
    let plain = number::plain(text);
    match plain.as_deref().map(|plain| {
        Refill::from_decimal(plain.strip_prefix('-').filter(|rest| is_zero(rest)).unwrap_or(plain))
    }) {
        Some(Ok(refill)) => return Some(refill),
        Some(Err(error @ RefillError::TooFine)) => spot.fault(format_args!("{shown} is too fine: {error}")),
        _ => spot.fault(format_args!("{shown} is out of range, want {range}")),
    }
    None
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'0' || byte == b'.')
}
