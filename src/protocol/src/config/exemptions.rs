//! `exemptions` and `corsPreflight`: the requests that no rule, or only a cheap one, looks at.

use super::{limit, matching};
use crate::json::fault::excerpt;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;
use limits::cost::Cost;
use limits::decision::Limit;
use limits::descriptor::Descriptors;
use limits::exemption::{Exemption, Exemptions};
use limits::refill::Refill;
use limits::rule::{FailMode, Mode, OnMissingKey, Rule};
use limits::token_bucket::{CAPACITY_MAX, TokenBucket};

/// The id of the rule that preflights meet where no other does.
pub const PREFLIGHT_ID: &str = "cors-preflight";

/// The most exemptions.
const EXEMPTIONS_MAX: usize = 1_000;
/// The longest exempt path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// Preflights at once from one address, and per second, unless the configuration says otherwise.
const PREFLIGHTS: (u64, u64) = (100, 10);

/// Reads `exemptions`, which may be missing.
pub(super) fn read(spot: Option<Spot<'_>>) -> Exemptions {
    let mut all: Vec<Exemption> = Vec::new();
    if let Some(spot) = spot
        && let Some(items) = spot.list(EXEMPTIONS_MAX)
    {
        spot.each(items, |_, item| match exemption(item) {
            Some(exemption) if all.contains(&exemption) => item.fault("is there twice; keep one"),
            Some(exemption) => all.push(exemption),
            None => {}
        });
    }
    Exemptions::new(all)
}

/// `"/healthz"`, or `{"path": …, "cidr": …}` with at least one of them.
fn exemption(spot: &Spot<'_>) -> Option<Exemption> {
    match spot.node {
        Node::Text(_) => Some(Exemption { path: Some(path(spot)?), block: None }),
        Node::Object(_) => {
            let fields = spot.fields("exemption", &["path", "cidr"])?;
            let (path, block) = (fields.get("path"), fields.get("cidr"));
            if path.is_none() && block.is_none() {
                spot.fault("exempts nothing: want \"path\", \"cidr\" or both");
                return None;
            }
            let path = path.map(|spot| self::path(&spot));
            let block = block.map(|spot| matching::block(&spot));
            // A part that is faulty must not be taken for one that is not given.
            let whole = !matches!(path, Some(None)) && !matches!(block, Some(None));
            whole.then_some(Exemption { path: path.flatten(), block: block.flatten() })
        }
        _ => {
            spot.want("a path or an object with \"path\", \"cidr\" or both");
            None
        }
    }
}

fn path(spot: &Spot<'_>) -> Option<Box<[u8]>> {
    let text = spot.text(PATH_BYTES_MAX)?;
    let remedy = if !text.starts_with('/') {
        "is no path: want a / first"
    } else if text.contains(['?', '#']) {
        "never matches, since paths are compared without query: leave it off"
    } else if text.contains('*') {
        "is no exact path: name each, there are no wildcards here"
    } else {
        return Some(text.as_bytes().into());
    };
    spot.fault(format_args!("\"{}\" {remedy}", excerpt(text)));
    None
}

/// Reads `corsPreflight`: the rule for preflights, beside these; none where they are counted like any request.
pub(super) fn preflight(fields: &Fields<'_>, rules: &[Rule]) -> Option<Rule> {
    let (capacity, refill) = match fields.get("corsPreflight") {
        None => (PREFLIGHTS.0, Refill::new(PREFLIGHTS.1, 1)?),
        Some(spot) => match spot.node {
            Node::Object(_) => bucket(&spot)?,
            Node::Text(_) => return spot.word("corsPreflight", &[("COUNT", ())]).and(None),
            _ => {
                spot.want("\"COUNT\" or an object with \"capacity\" and \"refillPerSecond\"");
                return None;
            }
        },
    };
    // Where nothing is enforced yet, this is not the one thing that is.
    let mode = rules.iter().find(|rule| rule.mode == Mode::Enforce).or(rules.first())?.mode;
    Some(Rule {
        id: PREFLIGHT_ID.into(),
        policy: PREFLIGHT_ID.into(),
        conditions: Vec::new(),
        key: vec![Descriptors::IP],
        limit: Limit::TokenBucket(TokenBucket::new(capacity, refill, 0).ok()?),
        cost: Cost::Fixed(1),
        penalty: None,
        mode,
        fail_mode: FailMode::Open,
        on_missing_key: OnMissingKey::Ip,
        group: None,
        detail: None,
    })
}

fn bucket(spot: &Spot<'_>) -> Option<(u64, Refill)> {
    let fields = spot.fields("corsPreflight", &["capacity", "refillPerSecond"])?;
    let capacity = fields.need("capacity", "").and_then(|spot| spot.whole(1..=CAPACITY_MAX, ""));
    let refill =
        fields.need("refillPerSecond", ", want tokens per second").and_then(|spot| limit::refill(&spot));
    let (capacity, refill) = (capacity?, refill?);
    if refill.is_never() {
        fields.fault("refillPerSecond", "is 0, so that a browser would be shut out for good; want more");
        return None;
    }
    match TokenBucket::new(capacity, refill, 0) {
        Ok(_) => Some((capacity, refill)),
        Err(error) => {
            fields.fault("refillPerSecond", error);
            None
        }
    }
}
