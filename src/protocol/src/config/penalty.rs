//! `penalty`: what befalls a client that keeps being denied.

use super::limit::{self, Algorithm, Read};
use crate::json::spot::{Fields, Spot};
use core::cmp::Ordering;
use limits::cost::Cost;
use limits::decision::Limit;
use limits::penalty::{DENIALS_MAX, Penalty, PenaltyError, TIME_MAX_S};
use limits::refill::Refill;
use limits::token_bucket::{CAPACITY_MAX, TIME_TO_FULL_MAX_S, TokenBucket, TokenBucketError};

const FIELDS: [&str; 5] = ["denials", "withinSeconds", "forSeconds", "capacity", "refillPerSecond"];

/// Warns of a penalty under which no request of its rule fits.
pub(super) fn warn_of_cost(spot: &Spot<'_>, penalty: &Penalty, cost: &Cost) {
    let capacity = penalty.bucket().capacity();
    if let Cost::Fixed(cost) = cost
        && *cost > capacity
    {
        spot.warn(format_args!(
            "a request costs {cost} and the penalty's capacity is {capacity}, so that nothing passes until it is over"
        ));
    }
}

/// Reads a rule's penalty: `{"denials": N, "withinSeconds": S, "forSeconds": T, "capacity": c, "refillPerSecond": r}`.
pub(super) fn read(spot: &Spot<'_>, rule: &Read) -> Option<Penalty> {
    let fields = spot.fields("penalty", &FIELDS)?;
    if rule.algorithm == Some(Algorithm::Concurrency) {
        spot.fault("is not for CONCURRENCY, which counts no denials: have it in a rule of another algorithm beside this one");
    }
    let number = |name, most, remedy| fields.need(name, remedy).and_then(|spot| spot.whole(1..=most, ""));
    let denials = number("denials", DENIALS_MAX, ", want how many denials bring the penalty about");
    let within = number("withinSeconds", TIME_MAX_S, ", want the time in which so many denials count");
    let lasting = number("forSeconds", TIME_MAX_S, ", want how long without a denial it takes to get out");
    let capacity = capacity(&fields, rule.capacity);
    let own = rule.limit.as_ref().and_then(own_refill);
    let refill = refill(&fields, own);
    if let (Some(capacity), Some(refill), Some(own)) = (capacity, refill, own)
        && Some(capacity) == rule.capacity
        && compare(refill, own).is_eq()
    {
        spot.fault(
            "has the rule's own capacity and refill: lower one of them, a penalty is stricter than its rule",
        );
    }
    let bucket = bucket(&fields, capacity?, refill?)?;
    match Penalty::new(denials?, within?, lasting?, bucket) {
        Ok(penalty) => Some(penalty),
        Err(error) => {
            let field = match error {
                PenaltyError::Denials => "denials",
                PenaltyError::Within => "withinSeconds",
                PenaltyError::For => "forSeconds",
            };
            fields.fault(field, error);
            None
        }
    }
}

fn capacity(fields: &Fields<'_>, most: Option<u64>) -> Option<u64> {
    let remedy = ", the rule's capacity: a penalty is stricter than its rule";
    fields.need("capacity", "")?.whole(1..=most.unwrap_or(CAPACITY_MAX), most.map_or("", |_| remedy))
}

fn refill(fields: &Fields<'_>, own: Option<(u64, u64)>) -> Option<Refill> {
    let spot = fields.need("refillPerSecond", ", want tokens per second; 0 shuts out until it is over")?;
    let refill = limit::refill(&spot)?;
    if own.is_some_and(|own| compare(refill, own).is_gt()) {
        spot.fault("is above the rule's own (of a SLIDING_WINDOW capacity / windowSeconds): a penalty is stricter than its rule");
        return None;
    }
    Some(refill)
}

/// What the rule's own limit admits in the long run, as a fraction of tokens per second.
fn own_refill(limit: &Limit) -> Option<(u64, u64)> {
    match limit {
        Limit::TokenBucket(bucket) => Some((bucket.refill().num(), bucket.refill().den())),
        Limit::SlidingWindow(window) => Some((window.capacity(), window.window_s())),
        Limit::Concurrency(_) => None,
    }
}

fn compare(refill: Refill, (num, den): (u64, u64)) -> Ordering {
    let product = |one: u64, other: u64| u128::from(one).saturating_mul(u128::from(other));
    product(refill.num(), den).cmp(&product(num, refill.den()))
}

/// The bucket that holds meanwhile. One that never refills admits nothing until the penalty is over, which is not the bucket's to end.
fn bucket(fields: &Fields<'_>, capacity: u64, refill: Refill) -> Option<TokenBucket> {
    match TokenBucket::new(capacity, refill, TIME_TO_FULL_MAX_S) {
        Ok(bucket) => Some(bucket),
        Err(error) => {
            let field = if error == TokenBucketError::Capacity { "capacity" } else { "refillPerSecond" };
            fields.fault(field, error);
            None
        }
    }
}
