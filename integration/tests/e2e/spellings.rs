//! No spelling of a URL has a budget of its own: for each of several routes some hundred spellings, sent byte for byte through the
//! shipped Envoy, against what upstreams serve (MK-01 as a whole kind).

mod routers;
mod write;

use std::collections::BTreeMap;

use kota_integration::stack::with_rules;
use kota_integration::{Answer, Client, Request, Running, Stack};
use serde_json::{Value, json};

use crate::support::{buckets, first_pass, fresh_key, rule};
use routers::ROUTERS;

/// The routes of upstream and rules: a method, a template, and a path that takes it.
const ROUTES: [(&str, &str, &str); 6] = [
    ("GET", "/v1/login", "/v1/login"),
    ("POST", "/orders", "/orders"),
    ("GET", "/orders/{id}", "/orders/17"),
    ("POST", "/v1/users/{id}/keys", "/v1/users/me/keys"),
    ("GET", "/public/**", "/public/img/logo.png"),
    ("DELETE", "/.well-known/a-b_c~d", "/.well-known/a-b_c~d"),
];
/// How many requests one client may send on a route; the rest of his spellings are denied.
const CAPACITY: usize = 10;
/// How many spellings of each route there must be at least that reach an upstream which serves them as that route.
const SERVED_MIN: usize = 40;

/// What became of a spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Envoy answered 400 by itself.
    Refused,
    /// Some upstream serves it as the route; whether one that tells letter cases apart serves the same resource.
    Served { exactly: bool },
    /// No upstream takes it for the route.
    Other,
}

#[test]
fn mk_01_no_spelling_that_an_upstream_serves_has_a_budget_of_its_own() {
    let stack = start();
    let mut client = stack.envoy().client();
    for route @ (method, _, path) in ROUTES {
        let spellings = write::spellings(path);
        let mut fates = BTreeMap::new();
        let before = buckets(stack.redis()).len();
        for spelling in &spellings {
            let fate = fate(&mut client, route, spelling);
            fates.entry(fate).or_insert_with(Vec::new).push(spelling);
        }
        let charged = buckets(stack.redis()).len() - before;
        let of = |fate| fates.get(&fate).cloned().unwrap_or_default();
        let (exact, loose) = (of(Fate::Served { exactly: true }), of(Fate::Served { exactly: false }));
        assert!(exact.len() + loose.len() >= SERVED_MIN, "{path}: {exact:?} {loose:?}");
        let refused = of(Fate::Refused).len();
        assert!(refused > 0, "{path}: encoded slashes are refused");
        assert_eq!(
            charged,
            spellings.len() - refused,
            "{path}: each is charged to one bucket, what is refused to none"
        );
        one_budget(&stack, &mut client, (method, "x-api-key"), &[exact.clone(), loose].concat());
        one_budget(&stack, &mut client, (method, "x-user"), &exact);
    }
    let by_path = buckets(stack.redis()).into_iter().filter(|key| key.contains(":by-path:"));
    assert_eq!(
        by_path.count(),
        2 * ROUTES.len(),
        "each of two clients has one bucket for all spellings of a path"
    );
}

/// A rule for each route, windows and buckets in turn, one for everything else, and one that is keyed by the path itself.
fn start() -> Running {
    let route = |method: &str, template: &str| format!("{method} {template}");
    let of_route = |(i, (method, template, _)): (usize, &(&str, &str, &str))| {
        let mut rule =
            never_refilled(&format!("route-{i}"), json!({ "match": { "route": route(method, template) } }));
        if i % 2 == 0 {
            windowed(&mut rule);
        }
        rule
    };
    let mut rules: Vec<_> = ROUTES.iter().enumerate().map(of_route).collect();
    rules.push(never_refilled("else", json!({ "match": { "route": "* /**" } })));
    rules.push(never_refilled("by-path", json!({ "key": ["user", "path"] })));
    let mut config = with_rules(json!(rules));
    config["descriptors"]["user"] = json!({ "header": "x-user" });
    Stack::new().redis().config(config).start()
}

fn never_refilled(id: &str, more: Value) -> Value {
    let mut rule = rule(id, CAPACITY as u64, more);
    rule["onMissingKey"] = json!("SKIP");
    rule["refillPerSecond"] = json!(0);
    rule["idleSeconds"] = json!(3600);
    rule
}

/// A sliding window of a month in place of the bucket.
fn windowed(rule: &mut Value) {
    let fields = rule.as_object_mut().expect("an object");
    fields.retain(|field, _| !["refillPerSecond", "idleSeconds"].contains(&field.as_str()));
    rule["algorithm"] = json!("SLIDING_WINDOW");
    rule["windowSeconds"] = json!(31 * 86_400);
}

/// Sends a spelling with a key that nobody has used, and checks what it was charged.
fn fate(client: &mut Client, route: (&str, &str, &str), spelling: &str) -> Fate {
    let (method, template, path) = route;
    let key = fresh_key();
    let answer = client.send(&request(method, spelling, ("x-api-key", &key)));
    let Some(reached) = reached(&answer) else {
        assert_eq!(answer.status, 400, "{spelling}: {}", answer.text());
        return Fate::Refused;
    };
    let served: Vec<_> = ROUTERS.iter().filter(|router| router.serves(template, &reached)).collect();
    let policy = answer.header("ratelimit-policy").unwrap_or_default();
    let index = ROUTES.iter().position(|other| *other == route).expect("one of them");
    if served.is_empty() {
        return Fate::Other;
    }
    assert!(
        policy.contains(&format!("\"route-{index}\"")),
        "{spelling} reached the upstream as {reached}, which {} serves as {template}, but was charged to {policy}",
        served[0].name
    );
    Fate::Served {
        exactly: served.iter().any(|router| !router.ignores_case && router.serves(path, &reached)),
    }
}

/// The path that reached the upstream; none if Envoy answered by itself.
fn reached(answer: &Answer) -> Option<String> {
    answer.header("x-envoy-upstream-service-time")?;
    answer.json()["path"].as_str().map(str::to_owned)
}

/// All spellings by one client: so many pass, whichever they are, and all others are denied.
fn one_budget(stack: &Running, client: &mut Client, (method, who): (&str, &str), spellings: &[&String]) {
    let key = fresh_key();
    let statuses: Vec<_> = spellings
        .iter()
        .map(|spelling| client.send(&request(method, spelling, (who, &key))).status)
        .collect();
    assert_eq!(statuses, first_pass(CAPACITY, spellings.len() - CAPACITY), "{spellings:?}");
    // And in the opposite order.
    let key = fresh_key();
    let statuses: Vec<_> = spellings
        .iter()
        .rev()
        .map(|spelling| client.send(&request(method, spelling, (who, &key))).status)
        .collect();
    assert_eq!(statuses, first_pass(CAPACITY, spellings.len() - CAPACITY), "{spellings:?}");
    assert!(stack.envoy().kota_counters().iter().all(|(name, _)| !name.starts_with("failed_open")));
}

fn request(method: &str, spelling: &str, (name, value): (&str, &str)) -> Request {
    Request::new(method, spelling).header(name, value)
}
