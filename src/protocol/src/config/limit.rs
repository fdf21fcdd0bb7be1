//! A rule's algorithm with its parameters.

use crate::json::fault::excerpt;
use crate::json::number;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;
use limits::decision::Limit;
use limits::refill::{DECIMALS_MAX, PER_SECOND_MAX, Refill, RefillError};
use limits::token_bucket::{CAPACITY_MAX, TIME_TO_FULL_MAX_S, TokenBucket, TokenBucketError};

/// The longest time that a slot of concurrency is held without a sign of life, in seconds.
const LEASE_MAX_S: u64 = 86_400;

/// The words of `algorithm`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Algorithm {
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
    /// Requests or tokens, if the number is one.
    pub(super) capacity: Option<u64>,
    /// The limit, if it is whole and this version decides it.
    pub(super) limit: Option<Limit>,
}

/// Reads a rule's algorithm and its parameters.
pub(super) fn read(rule: &Fields<'_>) -> Read {
    let algorithm = rule
        .need("algorithm", ", want \"TOKEN_BUCKET\"")
        .and_then(|spot| spot.word("algorithm", &ALGORITHMS));
    let capacity = match algorithm {
        Some(Algorithm::SlidingWindow | Algorithm::Concurrency) => rule.get("capacity"),
        Some(Algorithm::TokenBucket) | None => rule.need("capacity", ""),
    };
    let capacity = capacity
        .and_then(|spot| spot.whole(1..=CAPACITY_MAX, "; to switch a rule off say \"mode\": \"DISABLED\""));
    for (field, owner, of) in PARAMETERS {
        if rule.get(field).is_some() && algorithm.is_some_and(|algorithm| algorithm != of) {
            rule.fault(field, format_args!("belongs to \"algorithm\": \"{owner}\""));
        }
    }
    let limit = match algorithm {
        Some(Algorithm::TokenBucket) => token_bucket(rule, capacity),
        // Refused already: what is there is checked, what is missing is not asked for.
        Some(Algorithm::SlidingWindow) => {
            seconds(rule, "windowSeconds", TIME_TO_FULL_MAX_S);
            None
        }
        Some(Algorithm::Concurrency) => {
            seconds(rule, "leaseSeconds", LEASE_MAX_S);
            None
        }
        None => {
            rule.get("refillPerSecond").and_then(|spot| refill(&spot));
            seconds(rule, "idleSeconds", TIME_TO_FULL_MAX_S);
            seconds(rule, "windowSeconds", TIME_TO_FULL_MAX_S);
            seconds(rule, "leaseSeconds", LEASE_MAX_S);
            None
        }
    };
    Read { capacity, limit }
}

/// Checks so many seconds, if they are there.
fn seconds(rule: &Fields<'_>, name: &str, most: u64) -> Option<u64> {
    rule.get(name)?.whole(1..=most, "")
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
