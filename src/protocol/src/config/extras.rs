//! The fields of a rule that later versions decide, and the forms of `cost`: checked now, so that a file that passes keeps passing.

use super::text;
use crate::json::number;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;
use limits::token_bucket::{CAPACITY_MAX, TIME_TO_FULL_MAX_S};

/// The most tokens leased at once.
const LEASE_TOKENS_MAX: u64 = 1_000_000;
/// The longest lease, in seconds.
const LEASE_SECONDS_MAX: u64 = 60;
/// The largest factor on a pod's share of a limit.
const FACTOR_MAX: f64 = 1_000.0;

/// Tokens per request: a number, or an object that says where the number comes from (nothing then).
pub(super) fn cost(spot: Option<Spot<'_>>, capacity: Option<u64>) -> Option<u64> {
    let Some(spot) = spot else { return Some(1) };
    if let Node::Object(_) = spot.node {
        variable_cost(&spot);
        return None;
    }
    let cost = spot.whole(0..=CAPACITY_MAX, "")?;
    match capacity {
        Some(capacity) if cost > capacity => {
            spot.fault(format_args!(
                "{cost} is above the capacity, so that no request would ever pass; want 0 to {capacity}"
            ));
            None
        }
        _ => Some(cost),
    }
}

/// `{"header": NAME}`, `{"body": BYTES_PER_TOKEN}` or `{"responseHeader": NAME}`, each with an optional `max`.
fn variable_cost(spot: &Spot<'_>) -> Option<()> {
    let fields = spot.fields("cost", &["header", "body", "responseHeader", "default", "max"])?;
    let given = ["header", "body", "responseHeader"].map(|name| fields.get(name));
    if given.iter().flatten().count() != 1 {
        spot.fault(format_args!("want a whole number from 0 to {CAPACITY_MAX}"));
    }
    for name in ["header", "responseHeader"] {
        fields.get(name).and_then(|spot| text::header_name(&spot));
    }
    fields.get("body").and_then(|spot| spot.whole(1..=CAPACITY_MAX, ""));
    for name in ["default", "max"] {
        fields.get(name).and_then(|spot| spot.whole(0..=CAPACITY_MAX, ""));
    }
    Some(())
}

/// `lease`, `penalty`, `preLimit`; `regions` is reserved and may be anything. They are refused as a whole:
/// what is there is checked, what is missing is not asked for.
pub(super) fn check(rule: &Fields<'_>) {
    if let Some(spot) = rule.get("lease")
        && let Some(lease) = spot.fields("lease", &["tokens", "seconds"])
    {
        lease.get("tokens").and_then(|spot| spot.whole(1..=LEASE_TOKENS_MAX, ""));
        lease.get("seconds").and_then(|spot| spot.whole(1..=LEASE_SECONDS_MAX, ""));
    }
    rule.get("penalty").and_then(|spot| penalty(&spot));
    rule.get("preLimit").and_then(|spot| pre_limit(&spot));
}

/// `{"rule": ID, "denials": N, "withinSeconds": S, "forSeconds": S}`: who is denied so often falls under that rule for so long.
fn penalty(spot: &Spot<'_>) -> Option<()> {
    let fields = spot.fields("penalty", &["rule", "denials", "withinSeconds", "forSeconds"])?;
    fields.get("rule").and_then(|spot| text::id(&spot));
    for (name, most) in
        [("denials", CAPACITY_MAX), ("withinSeconds", TIME_TO_FULL_MAX_S), ("forSeconds", TIME_TO_FULL_MAX_S)]
    {
        fields.get(name).and_then(|spot| spot.whole(1..=most, ""));
    }
    Some(())
}

/// `{"factor": F}`: a pod denies by itself beyond F times its share of the limit.
fn pre_limit(spot: &Spot<'_>) -> Option<()> {
    let factor = spot.fields("preLimit", &["factor"])?.get("factor")?;
    let Node::Number(text) = factor.node else {
        factor.want_number(format_args!("a number above 0, at most {FACTOR_MAX}"));
        return None;
    };
    let value = number::plain(text).and_then(|plain| plain.parse::<f64>().ok());
    if !value.is_some_and(|value| value > 0.0 && value <= FACTOR_MAX) {
        factor.fault(format_args!("is out of range, want a number above 0, at most {FACTOR_MAX}"));
    }
    Some(())
}
