//! One rule.

use super::descriptors::Defined;
use super::exemptions::PREFLIGHT_ID;
use super::routes::RouteTable;
use super::{cost, extras, limit, matching, penalty, text};
use crate::json::fault::excerpt;
use crate::json::spot::{Fields, Spot};
use crate::json::tree::Node;
use hashbrown::HashMap;
use limits::rule::{FailMode, Group, Mode, OnMissingKey, Rule};
use std::sync::Arc;

/// The longest `detail`, in bytes.
const DETAIL_BYTES_MAX: usize = 1_024;
/// The highest priority.
const PRIORITY_MAX: u32 = 1_000_000;

const FIELDS: [&str; 22] = [
    "id",
    "policy",
    "domain",
    "match",
    "key",
    "algorithm",
    "capacity",
    "refillPerSecond",
    "idleSeconds",
    "windowSeconds",
    "leaseSeconds",
    "cost",
    "mode",
    "failMode",
    "onMissingKey",
    "group",
    "priority",
    "lease",
    "preLimit",
    "penalty",
    "regions",
    "detail",
];

/// `None` is DISABLED.
const MODES: [(&str, Option<Mode>); 3] =
    [("ENFORCE", Some(Mode::Enforce)), ("SHADOW", Some(Mode::Shadow)), ("DISABLED", None)];

/// `None` is LOCAL, which is not in this version.
const FAIL_MODES: [(&str, Option<FailMode>); 3] =
    [("OPEN", Some(FailMode::Open)), ("CLOSED", Some(FailMode::Closed)), ("LOCAL", None)];

const ON_MISSING_KEY: [(&str, OnMissingKey); 4] = [
    ("IP", OnMissingKey::Ip),
    ("SKIP", OnMissingKey::Skip),
    ("SHARED", OnMissingKey::Shared),
    ("DENY", OnMissingKey::Deny),
];

/// What the rules of a configuration share.
pub(super) struct Scope {
    pub(super) domain: String,
    pub(super) descriptors: Defined,
    pub(super) routes: RouteTable,
    /// The ids so far, with their indices.
    pub(super) ids: HashMap<String, usize>,
    /// The groups so far, with how many rules are in each.
    pub(super) groups: HashMap<String, usize>,
}

/// A rule that has no fault.
pub(super) enum Parsed {
    Active(Box<Rule>),
    Disabled,
}

/// Reads the rule at `spot`, the one of that index; `None` if it has faults.
pub(super) fn read(spot: &Spot<'_>, index: usize, scope: &mut Scope) -> Option<Parsed> {
    let rule = spot.fields("rule", &FIELDS)?;
    let id = id(&rule, index, scope);
    let policy = rule.get("policy").map_or(id, |spot| text::id(&spot));
    domain(&rule, scope);
    let conditions = matching::conditions(rule.get("match"), scope);
    let key = matching::key(rule.get("key"), scope);
    let limit = limit::read(&rule);
    let cost = cost::read(rule.get("cost"), &limit);
    let penalty = or(rule.get("penalty"), None, |spot| penalty::read(spot, &limit).map(Some));
    if let (Some(spot), Some(Some(penalty)), Some(cost)) = (rule.get("penalty"), &penalty, &cost) {
        penalty::warn_of_cost(&spot, penalty, cost);
    }
    let mode = or(rule.get("mode"), Some(Mode::Enforce), |spot| spot.word("mode", &MODES));
    let fail_mode = or(rule.get("failMode"), Some(FailMode::Open), |spot| spot.word("failMode", &FAIL_MODES));
    let on_missing_key =
        or(rule.get("onMissingKey"), OnMissingKey::Ip, |spot| spot.word("onMissingKey", &ON_MISSING_KEY));
    let detail =
        or(rule.get("detail"), None, |spot| spot.text(DETAIL_BYTES_MAX).map(|text| Some(Arc::from(text))));
    let group = group(&rule, scope);
    extras::check(&rule);
    let Some(mode) = mode? else { return Some(Parsed::Disabled) };
    Some(Parsed::Active(Box::new(Rule {
        id: id?.into(),
        policy: policy?.into(),
        conditions,
        key,
        limit: limit.limit?,
        cost: cost?,
        penalty: penalty?,
        mode,
        fail_mode: fail_mode??,
        on_missing_key: on_missing_key?,
        group,
        detail: detail?,
    })))
}

/// The field's value, or what stands for it where it is missing.
fn or<'t, T>(spot: Option<Spot<'t>>, default: T, read: impl FnOnce(&Spot<'t>) -> Option<T>) -> Option<T> {
    match spot {
        None => Some(default),
        Some(spot) => read(&spot),
    }
}

fn id<'t>(rule: &Fields<'t>, index: usize, scope: &mut Scope) -> Option<&'t str> {
    let spot = rule.need("id", "")?;
    let id = text::id(&spot)?;
    if id == PREFLIGHT_ID {
        spot.fault(format_args!(
            "\"{id}\" is the rule for preflights, which $.corsPreflight is about; choose another id"
        ));
        return None;
    }
    if let Some(first) = scope.ids.get(id) {
        spot.fault(format_args!("\"{id}\" is the id of $.rules[{first}] already"));
        return None;
    }
    scope.ids.insert(id.to_owned(), index);
    Some(id)
}

/// The group that the rule is one of, and its priority there, 0 unless it says otherwise.
fn group(rule: &Fields<'_>, scope: &mut Scope) -> Option<Group> {
    let priority = rule.get("priority").map_or(Some(0), |spot| spot.small(0..=PRIORITY_MAX, ""));
    let Some(spot) = rule.get("group") else {
        if rule.get("priority").is_some() {
            rule.fault("priority", "has a meaning only within a group; say \"group\" too, or leave it out");
        }
        return None;
    };
    let id = text::id(&spot)?;
    let rules = scope.groups.entry_ref(id).or_default();
    *rules = rules.saturating_add(1);
    Some(Group { id: id.into(), priority: priority? })
}

/// Warns of a rule that is alone in its group: where the name is misspelt, two rules apply of which only one should.
pub(super) fn warn_of_lone_group(spot: &Spot<'_>, scope: &Scope) {
    let Node::Object(entries) = spot.node else { return };
    let group = entries.iter().find(|(name, _)| **name == *"group");
    if let Some((_, Node::Text(group))) = group
        && scope.groups.get(&**group) == Some(&1)
    {
        spot.warn(format_args!("no other rule is in the group \"{}\"; is it misspelt?", excerpt(group)));
    }
}

/// A rule of another domain than the configuration's is never applied by it.
fn domain(rule: &Fields<'_>, scope: &Scope) {
    if let Some(spot) = rule.get("domain")
        && let Some(domain) = text::domain(&spot)
        && domain != scope.domain
    {
        let ours = &scope.domain;
        spot.fault(format_args!(
            "\"{}\" is not the configuration's domain, which is \"{ours}\"",
            excerpt(domain)
        ));
    }
}
