//! Who a request is from, and which rules are about them: claims, queries, cookies, groups, exemptions and preflights, through Envoy.

use kota_integration::stack::with_rules;
use kota_integration::{Request, Stack, http2, tokens};
use serde_json::{Value, json};

use crate::support::{buckets, first_pass, fresh_key, get, merge, rule, statuses};

/// A configuration of these rules and descriptors, to which `more` is added.
fn config(rules: Value, descriptors: Value, more: Value) -> Value {
    let mut config = with_rules(rules);
    merge(&mut config["descriptors"], descriptors);
    merge(&mut config, more);
    config
}

fn claim(name: &str) -> Value {
    json!({ "metadata": ["envoy.filters.http.jwt_authn", "claims", name] })
}

#[test]
fn a_claim_that_is_verified_is_matched_and_makes_the_bucket() {
    let rules = json!([
        rule("gold", 3, json!({ "key": ["user"], "match": { "plan": "gold" } })),
        // A number: Envoy hands it over as eight bytes.
        rule(
            "expiry",
            3,
            json!({ "key": ["expires"], "match": { "expires": "4102444800", "path": "/expiry" } })
        ),
    ]);
    let descriptors = json!({ "user": claim("sub"), "plan": claim("plan"), "expires": claim("exp") });
    let stack = Stack::new().redis().config(config(rules, descriptors, json!({}))).start();
    let mut client = stack.envoy().client();
    let with =
        |path: &str, token: &str| Request::get(path).header("authorization", format!("Bearer {token}"));
    assert_eq!(statuses(&mut client, &with("/", tokens::ALICE_GOLD), 5), first_pass(3, 2));
    assert_eq!(statuses(&mut client, &with("/", tokens::BOB_FREE), 5), vec![200; 5]);
    assert_eq!(client.send(&with("/", tokens::CAROL_EXPIRED)).status, 401);
    let pretender = Request::get("/").header("sub", "alice").header("plan", "gold").header("x-plan", "gold");
    assert_eq!(statuses(&mut client, &pretender, 5), vec![200; 5]);
    assert_eq!(statuses(&mut client, &with("/expiry", tokens::BOB_FREE), 5), first_pass(3, 2));
    assert_eq!(
        buckets(stack.redis()),
        ["rl:{test:expires:4102444800}:expiry:tb1", "rl:{test:user:alice}:gold:tb1"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_parameter_and_a_cookie_make_buckets_in_every_spelling() {
    let rules = json!([
        rule("tenant", 2, json!({ "key": ["tenant"], "match": { "path": "/q" }, "onMissingKey": "DENY" })),
        rule("session", 2, json!({ "key": ["session"], "match": { "path": "/c" }, "onMissingKey": "DENY" })),
    ]);
    let descriptors = json!({ "tenant": { "query": "tenant" }, "session": { "cookie": "sid" } });
    let stack = Stack::new().redis().config(config(rules, descriptors, json!({}))).start();
    let mut client = stack.envoy().client();
    let mut status = |request: Request| client.send(&request).status;
    let queries = ["/q?tenant=acme", "/q?x=1&%74enant=%61cme", "/q?tenant=acme&y"];
    assert_eq!(queries.map(|path| status(Request::get(path))), [200, 200, 429]);
    for path in ["/q", "/q?tenant=", "/q?tenant=new&tenant=acme"] {
        assert_eq!(status(Request::get(path)), 429, "{path} says nothing");
    }
    let cookie = |line: &str| Request::get("/c").header("cookie", line);
    assert_eq!(status(cookie("a=1; sid=s1; b=2")), 200);
    assert_eq!(status(cookie("a=1").header("cookie", "sid=\"%731\"")), 200);
    assert_eq!(status(cookie("sid=s1")), 429);
    assert_eq!(status(cookie("sid=s2; sid=s3")), 429, "two say nothing");
    let h2 = http2::Connection::open(stack.envoy().port()).await.expect("Envoy speaks HTTP/2");
    let split = http2::Request::new("GET", "/c").header("cookie", "a=1").header("cookie", "sid=s1");
    assert_eq!(
        h2.send(&split, Vec::new().into()).await.expect("an answer").status,
        429,
        "one bucket for both protocols"
    );
    assert_eq!(
        buckets(stack.redis()),
        ["rl:{test:session:s1}:session:tb1", "rl:{test:tenant:acme}:tenant:tb1"]
    );
}

#[test]
fn mk_14_an_exception_replaces_the_default_of_its_group() {
    let rules = json!([
        rule("default", 10, json!({ "key": ["user"], "group": "quota" })),
        rule(
            "client-a",
            15,
            json!({ "key": ["user"], "match": { "user": "client-a" }, "group": "quota", "priority": 1 })
        ),
    ]);
    let descriptors = json!({ "user": { "header": "x-user" } });
    let stack = Stack::new().config(config(rules, descriptors, json!({}))).start();
    let mut client = stack.envoy().client();
    let from = |user: &str| Request::get("/").header("x-user", user);
    assert_eq!(statuses(&mut client, &from("client-a"), 16), first_pass(15, 1));
    assert_eq!(statuses(&mut client, &from("client-z"), 15), first_pass(10, 5));
    assert_eq!((stack.kota("allowed.client-a"), stack.kota("allowed.default")), (15, 10));
}

#[test]
fn an_exemption_is_for_its_path_and_its_callers_alone() {
    let exemptions = json!(["/healthz", { "path": "/metrics", "cidr": "10.0.0.0/8" }, { "path": "/local", "cidr": "127.0.0.0/8" }]);
    let rules = json!([rule("all", 1, json!({ "key": ["ip"] }))]);
    let stack = Stack::new().config(config(rules, json!({}), json!({ "exemptions": exemptions }))).start();
    let mut client = stack.envoy().client();
    for path in ["/healthz", "/healthz?x=1", "/local"] {
        assert_eq!(statuses(&mut client, &Request::get(path), 3), vec![200; 3], "{path}");
    }
    assert_eq!(stack.kota("allowed.all"), 0);
    assert_eq!(statuses(&mut client, &Request::get("/"), 2), first_pass(1, 1));
    for path in ["/HEALTHZ", "/healthz/", "/healthz;x", "/metrics", "/?/healthz"] {
        let spoofed = Request::get(path)
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-envoy-original-path", "/healthz");
        assert_eq!(client.send(&spoofed).status, 429, "{path}");
    }
}

/// Of an origin that Envoy's cors filter does not know: it reaches Kota.
fn preflight(path: &str) -> Request {
    Request::new("OPTIONS", path)
        .header("origin", "https://other.example")
        .header("access-control-request-method", "GET")
}

#[test]
fn hh_05_a_preflight_takes_nothing_from_the_request_that_it_asks_for() {
    let never = json!({ "key": ["ip"], "refillPerSecond": 0, "idleSeconds": 3600 });
    let stack = |more: Value| {
        Stack::new().config(config(json!([rule("ten", 10, never.clone())]), json!({}), more)).start()
    };
    let apart = stack(json!({ "corsPreflight": { "capacity": 11, "refillPerSecond": 0.001 } }));
    let mut client = apart.envoy().client();
    for n in 0..10 {
        assert_eq!(client.send(&preflight("/")).status, 200, "{n}");
        assert_eq!(
            client.send(&Request::get("/").header("origin", "https://other.example")).status,
            200,
            "{n}"
        );
    }
    assert_eq!(
        client.send(&Request::new("OPTIONS", "/")).status,
        429,
        "no preflight, and the ten are used up"
    );
    assert_eq!(statuses(&mut client, &preflight("/"), 2), first_pass(1, 1), "they have a limit of their own");
    assert_eq!((apart.kota("allowed.ten"), apart.kota("allowed.cors-preflight")), (10, 11));

    let counted = stack(json!({ "corsPreflight": "COUNT" }));
    let mut client = counted.envoy().client();
    let pairs: Vec<u16> = (0..12)
        .map(|n| client.send(&if n % 2 == 0 { preflight("/") } else { Request::get("/") }).status)
        .collect();
    assert_eq!(pairs, first_pass(10, 2));
}

#[test]
fn a_request_without_a_rule_is_not_looked_at_even_if_it_is_a_preflight() {
    let stack = Stack::new().config(config(json!([]), json!({}), json!({}))).start();
    let mut client = stack.envoy().client();
    assert_eq!(statuses(&mut client, &preflight("/"), 3), vec![200; 3]);
    assert_eq!(client.send(&get("/", &fresh_key())).header("ratelimit"), None);
    assert_eq!(stack.kota("allowed.cors-preflight"), 0);
}
