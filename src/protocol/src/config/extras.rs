//! The fields of a rule that later versions decide: checked now, so that a file that passes keeps passing.

use crate::json::number;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;

/// The most tokens leased at once.
const LEASE_TOKENS_MAX: u64 = 1_000_000;
/// The longest lease, in seconds.
const LEASE_SECONDS_MAX: u64 = 60;
/// The largest factor on a pod's share of a limit.
const FACTOR_MAX: f64 = 1_000.0;

/// `lease`, `preLimit`; `regions` is reserved and may be anything. They are refused as a whole:
/// what is there is checked, what is missing is not asked for.
pub(super) fn check(rule: &Fields<'_>) {
    if let Some(spot) = rule.get("lease")
        && let Some(lease) = spot.fields("lease", &["tokens", "seconds"])
    {
        lease.get("tokens").and_then(|spot| spot.whole(1..=LEASE_TOKENS_MAX, ""));
        lease.get("seconds").and_then(|spot| spot.whole(1..=LEASE_SECONDS_MAX, ""));
    }
    rule.get("preLimit").and_then(|spot| pre_limit(&spot));
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
