//! `cost`: what a request takes out of its bucket.

use super::limit::{Algorithm, Read};
use super::text;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;
use limits::cost::{COST_MAX, Cost, Named};

/// Tokens of a request that says nothing else.
const DEFAULT: u64 = 1;

/// Where a cost can come from.
const ONE_SOURCE: &str =
    "want a whole number, {\"header\": NAME}, {\"body\": BYTES_PER_TOKEN} or {\"responseHeader\": NAME}";

/// Reads a rule's cost, which may be missing.
pub(super) fn read(spot: Option<Spot<'_>>, limit: &Read) -> Option<Cost> {
    let Some(spot) = spot else { return Some(Cost::Fixed(DEFAULT)) };
    if limit.algorithm == Some(Algorithm::Concurrency) {
        return concurrency(&spot);
    }
    match spot.node {
        Node::Object(_) => variable(&spot, limit.capacity.unwrap_or(COST_MAX)),
        Node::Number(_) => fixed(&spot, limit.capacity),
        _ => {
            spot.want_number(ONE_SOURCE.strip_prefix("want ").unwrap_or(ONE_SOURCE));
            None
        }
    }
}

fn concurrency(spot: &Spot<'_>) -> Option<Cost> {
    if matches!(spot.node, Node::Number(_)) && spot.whole(0..=COST_MAX, "")? == DEFAULT {
        return Some(Cost::Fixed(DEFAULT));
    }
    spot.fault("a request takes one slot of CONCURRENCY, whatever it costs elsewhere; leave it out");
    None
}

fn fixed(spot: &Spot<'_>, capacity: Option<u64>) -> Option<Cost> {
    let cost = spot.whole(0..=COST_MAX, "")?;
    match capacity {
        Some(capacity) if cost > capacity => {
            spot.fault(format_args!(
                "{cost} is above the capacity, so that no request would ever pass; want 0 to {capacity}"
            ));
            None
        }
        _ => Some(Cost::Fixed(cost)),
    }
}

/// A cost that each request has of its own. It is cut off at `max`, which is the capacity unless it says otherwise: more would never pass.
/// What a response tells has passed already, so there `max` may be anything: a debt has a bound of its own, see `limits::token_bucket`.
fn variable(spot: &Spot<'_>, capacity: u64) -> Option<Cost> {
    let fields = spot.fields("cost", &["header", "body", "responseHeader", "default", "max"])?;
    let sources = ["header", "body", "responseHeader"].map(|name| fields.get(name));
    let one = sources.iter().flatten().count() == 1;
    if !one {
        spot.fault(ONE_SOURCE);
    }
    let bounds = bounds(&fields, capacity, fields.get("responseHeader").is_some());
    let [header, body, response] = sources;
    let header = header.map(|spot| (text::header_name(&spot), spot));
    let per = body.map(|spot| spot.whole(1..=COST_MAX, ""));
    let response = response.map(|spot| text::header_name(&spot));
    let (default, max) = bounds?;
    match (header, per, response) {
        _ if !one => None,
        (Some((header, spot)), ..) => {
            let header = header?;
            spot.warn(format_args!(
                "trusts what the client says: anybody can send {header}: 0; let a filter before this one set it"
            ));
            Some(Cost::Header(Named { header, default, max }))
        }
        (_, Some(per), _) => {
            let per = per?;
            warn_of_default(spot, &fields, "a body of unknown length (chunked, or streamed over HTTP/2)");
            Some(Cost::Body { per, default, max })
        }
        (.., response) => {
            let header = response??;
            warn_of_default(spot, &fields, "a request");
            Some(Cost::Response(Named { header, default, max }))
        }
    }
}

/// `default` and `max`; `late` if the request has passed by the time its cost is known.
fn bounds(fields: &Fields<'_>, capacity: u64, late: bool) -> Option<(u64, u64)> {
    let (most, why) =
        if late { (COST_MAX, "") } else { (capacity, ", the rule's capacity: more would never pass") };
    let max = fields.get("max").map_or(Some(most), |spot| spot.whole(1..=most, why));
    let most = max.unwrap_or(capacity).min(capacity);
    let default = fields.get("default").map_or(Some(DEFAULT), |spot| {
        spot.whole(0..=most, ": it is a cost too, and \"max\" or the capacity is the most")
    });
    Some((default?, max?))
}

/// Warns where a reservation is left to chance: what is settled later has passed already.
fn warn_of_default(spot: &Spot<'_>, fields: &Fields<'_>, what: &str) {
    if fields.get("default").is_none() {
        spot.warn(format_args!(
            "{what} reserves {DEFAULT} token until its cost is known; say as \"default\" what one usually costs, or many pass at once"
        ));
    }
}
