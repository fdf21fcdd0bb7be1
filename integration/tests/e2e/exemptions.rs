//! Who is let alone (CA-09), and which of several rules applies (groups).

use kota_integration::stack::with_rules;
use kota_integration::{Request, Stack};
use serde_json::{Value, json};

use crate::support::{first_pass, fresh_key, get, merge, rule, statuses, tells_no_numbers};

/// All requests of an address: five a minute.
fn catch_all() -> Value {
    json!({ "id": "all", "key": ["ip"], "algorithm": "SLIDING_WINDOW", "capacity": 5, "windowSeconds": 3600, "failMode": "CLOSED" })
}

fn config(exemptions: Value) -> Value {
    let mut config = with_rules(json!([catch_all()]));
    merge(&mut config, json!({ "exemptions": exemptions }));
    config
}

#[test]
fn ca_09_health_checks_are_never_limited() {
    let exemptions = json!(["/healthz", { "path": "/live", "cidr": "127.0.0.0/8" }, { "path": "/ready", "cidr": "10.0.0.0/8" }]);
    let stack = Stack::new().config(config(exemptions)).start();
    let mut client = stack.envoy().client();
    assert_eq!(
        statuses(&mut client, &Request::get("/orders"), 7),
        first_pass(5, 2),
        "one address, all its paths"
    );
    for path in ["/healthz", "/healthz?verbose", "/live"] {
        assert_eq!(statuses(&mut client, &Request::get(path), 20), [200; 20], "{path}");
    }
    assert_eq!(client.send(&Request::get("/ready")).status, 429, "exempt for other addresses alone");
    assert_eq!(stack.kota("allowed.all"), 5, "an exempt request costs nothing");
    assert!(tells_no_numbers(&client.send(&Request::get("/healthz"))));
    // A store that is away is no matter to a health check.
    stack.sidecar().process().kill();
    assert_eq!(client.send(&Request::get("/healthz")).status, 200);
    assert_eq!(client.send(&Request::get("/orders")).status, 503);
}

#[test]
fn ca_09_no_client_can_make_itself_exempt() {
    let stack = Stack::new().config(config(json!(["/healthz", { "cidr": "192.0.2.0/24" }]))).start();
    let mut client = stack.envoy().client();
    assert_eq!(statuses(&mut client, &Request::get("/orders"), 5), first_pass(5, 0));
    let pretends = |name: &str, value: &str| Request::get("/orders").header(name, value);
    for request in [
        pretends("x-forwarded-for", "192.0.2.1"),
        pretends("x-real-ip", "192.0.2.1"),
        pretends("forwarded", "for=192.0.2.1"),
        pretends("x-envoy-external-address", "192.0.2.1"),
        pretends("x-envoy-original-path", "/healthz"),
        pretends("x-original-url", "/healthz"),
        pretends("x-forwarded-path", "/healthz"),
        pretends("user-agent", "kube-probe/1.31"),
        pretends("host", "localhost"),
    ] {
        assert_eq!(client.send(&request).status, 429, "{request:?}");
    }
    for path in [
        "/healthz/",
        "/healthz/../orders",
        "/healthz/x",
        "/HEALTHZ",
        "/healthz;x",
        "/orders?/healthz",
        "/healthz%20",
        "/healthzz",
        "http://kota.test/orders?x=/healthz",
    ] {
        assert_eq!(client.send(&Request::get(path)).status, 429, "{path}");
    }
}

#[test]
fn ca_09_a_spelling_that_the_filter_sees_as_it_came_is_not_exempt() {
    // Where Envoy does not clean paths, an upstream may serve another resource by them than the one that is exempt.
    let stack = Stack::new().config(config(json!(["/healthz"]))).bootstrap(|bootstrap| {
        merge(bootstrap.http(), json!({ "normalize_path": false, "merge_slashes": false }));
    });
    let stack = stack.start();
    let mut client = stack.envoy().client();
    assert_eq!(statuses(&mut client, &Request::get("/orders"), 5), first_pass(5, 0));
    for path in ["//healthz", "/./healthz", "/orders/../healthz", "/%68ealthz", "/healthz/."] {
        assert_eq!(client.send(&Request::get(path)).status, 429, "{path}");
    }
    assert_eq!(client.send(&Request::get("/healthz")).status, 200);
}

#[test]
fn of_a_group_only_the_first_in_rank_applies() {
    let of = |id: &str, capacity: u64, priority: u64, more: Value| {
        let mut rule = rule(id, capacity, json!({ "group": "plan", "priority": priority, "key": ["user"] }));
        merge(&mut rule, more);
        rule
    };
    let rules = [
        of("default", 10, 0, json!({})),
        of("exception", 15, 10, json!({ "match": { "user": "client-a" } })),
        of("trial", 1, 20, json!({ "match": { "user": ["client-a", "client-z"] }, "mode": "SHADOW" })),
    ];
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut config = with_rules(json!(order.map(|i: usize| rules[i].clone())));
        merge(&mut config["descriptors"], json!({ "user": { "header": "x-user", "authenticated": true } }));
        let stack = Stack::new().config(config).start();
        let mut client = stack.envoy().client();
        let by = |user: &str| get("/", &fresh_key()).header("x-user", user);
        assert_eq!(
            statuses(&mut client, &by("client-a"), 16),
            first_pass(15, 1),
            "the exception, not the default"
        );
        assert_eq!(statuses(&mut client, &by("client-z"), 16), first_pass(10, 6), "the default");
        assert_eq!(
            stack.kota("shadow_denied.trial"),
            14 + 9,
            "a shadow displaces nobody, and would deny all but one"
        );
        assert_eq!((stack.kota("allowed.default"), stack.kota("allowed.exception")), (10, 15));
    }
}
