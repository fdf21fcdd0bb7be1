//! The index finds exactly what looking at every rule finds.

use crate::support::{Call, RuleExt, call, cidr, id, ids, one_of, prefix, request, rule, set};
use limits::request::Values;
use limits::rule::{Mode, OnMissingKey, RULES_PER_REQUEST_MAX, Rule, Test};
use limits::ruleset::RuleSet;
use proptest::prelude::*;

const ADDRESSES: [&str; 5] = ["10.0.0.1", "10.1.0.1", "203.0.113.7", "2001:db8::1", "2001:db8:1::1"];
const BLOCKS: [&str; 6] =
    ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "::/0", "2001:db8::/32", "2001:db8:1::/48"];
const PATHS: [&str; 6] = ["/", "/v1", "/v1/login", "/v1/orders", "/v10", "/v2/orders"];
const PREFIXES: [&str; 6] = ["/", "/v1", "/v1/", "/v1/lo", "/v2/", "/x"];
const ROUTES: [&str; 3] = ["GET /v1/login", "* /v1/{x}", "GET /v2/**"];
const NAMES: [&str; 4] = ["", "gold", "golden", "silver"];

fn condition() -> impl Strategy<Value = (&'static str, Test)> {
    let names = || prop::sample::subsequence(&NAMES[1..], 1..=2).prop_map(|names| one_of(&names));
    let pick = |all: &'static [&'static str]| prop::sample::select(all);
    prop_oneof![
        (pick(&["plan", "region", "user"]), names()),
        (pick(&["plan", "region"]), pick(&["g", "gold", "s"]).prop_map(prefix)),
        (pick(&["plan", "region", "api_key", "route"]), Just(Test::Absent)),
        (pick(&["ip", "client"]), pick(&BLOCKS).prop_map(cidr)),
        (Just("path"), pick(&PREFIXES).prop_map(prefix)),
        (Just("path"), pick(&PATHS).prop_map(|path| one_of(&[path]))),
        (Just("route"), pick(&ROUTES).prop_map(|route| one_of(&[route]))),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let conditions = prop::collection::vec(condition(), 0..4);
    let group = prop::option::of((prop::sample::select(&["g", "h"][..]), 0..3_u32));
    prop::collection::vec((conditions, group, 0..4_u8), 0..60).prop_map(|all| {
        let build = |(n, (conditions, group, kind)): (usize, (Vec<_>, Option<_>, u8))| {
            let mut rule = conditions
                .into_iter()
                .fold(rule(&format!("r{n}")), |rule, (name, test)| rule.when(name, test));
            if let Some((group, priority)) = group {
                rule = rule.in_group(group, priority);
            }
            match kind {
                0 => rule.shadow(),
                1 => rule.keyed(&["plan"], OnMissingKey::Skip),
                _ => rule,
            }
        };
        all.into_iter().enumerate().map(build).collect()
    })
}

fn a_call() -> impl Strategy<Value = Call> {
    let name = || prop::sample::select(&NAMES[..]);
    let (path, address) = (prop::sample::select(&PATHS[..]), prop::sample::select(&ADDRESSES[..]));
    (path, address, name(), name(), name()).prop_map(|(path, address, plan, region, user)| {
        call(path).from(address).header("x-plan", plan).header("x-region", region).header("x-user", user)
    })
}

/// What a rule says, read from its conditions as they were written.
fn applies(rule: &Rule, values: &impl Values) -> bool {
    rule.conditions.iter().all(|condition| {
        let value = values.value(condition.descriptor);
        match &condition.test {
            Test::OneOf(wanted) => value.is_some_and(|value| wanted.iter().any(|one| **one == *value)),
            Test::Prefix(start) if condition.descriptor == id("path") => value.is_some_and(|value| {
                value.starts_with(start) || start.strip_suffix(b"/").is_some_and(|itself| itself == value)
            }),
            Test::Prefix(start) => value.is_some_and(|value| value.starts_with(start)),
            Test::Cidr(block) => {
                values.address(condition.descriptor).is_some_and(|address| block.contains(address))
            }
            Test::Absent => value.is_none(),
        }
    })
}

/// Whether `other` takes the place of `rule`; both apply.
fn displaces((other_at, other): (usize, &Rule), (at, rule): (usize, &Rule)) -> bool {
    let (Some(group), Some(other_group)) = (&rule.group, &other.group) else { return false };
    let rank = |at, priority| (priority, std::cmp::Reverse(at));
    other_group.id == group.id
        && (other.mode == Mode::Enforce || rule.mode != Mode::Enforce)
        && rank(other_at, other_group.priority) > rank(at, group.priority)
}

fn by_looking_at_all<'s>(set: &'s RuleSet, values: &impl Values) -> Vec<&'s str> {
    let has_key = |rule: &Rule| {
        rule.on_missing_key != OnMissingKey::Skip || rule.key.iter().all(|part| values.value(*part).is_some())
    };
    let hits = set.rules().iter().enumerate().filter(|(_, rule)| applies(rule, values) && has_key(rule));
    let hits: Vec<(usize, &Rule)> = hits.collect();
    let stays = |rule: &(usize, &Rule)| !hits.iter().any(|other| displaces(*other, *rule));
    let all = hits.iter().copied().filter(stays).map(|(_, rule)| rule);
    all.take(RULES_PER_REQUEST_MAX).map(|rule| &*rule.id).collect()
}

proptest! {
    #[test]
    fn the_index_finds_what_looking_at_all_rules_finds(rules in rules(), calls in prop::collection::vec(a_call(), 1..20)) {
        let set = set(&ROUTES, rules);
        for call in &calls {
            let request = request(call, &set);
            prop_assert_eq!(ids(&set, &request), by_looking_at_all(&set, &request), "{:?}", call);
        }
    }
}

/// A grid: each plan alone and each region alone is on many rules, only both together tell them apart.
#[test]
fn rules_that_only_two_conditions_tell_apart() {
    let name = |n: usize| format!("v{n}");
    let grid = (0..30).flat_map(|x| (0..30).map(move |y| (x, y)));
    let rules = grid.map(|(x, y)| {
        rule(&format!("{x}-{y}")).when("plan", one_of(&[&name(x)])).when("region", one_of(&[&name(y)]))
    });
    let set = set(&[], rules.collect());
    let at = |x, y| call("/").header("x-plan", name(x)).header("x-region", name(y));
    assert_eq!(crate::support::matched(&set, &at(7, 11)), ["7-11"]);
    assert_eq!(crate::support::matched(&set, &at(11, 7)), ["11-7"]);
    assert_eq!(crate::support::matched(&set, &at(30, 7)), [""; 0]);
}
