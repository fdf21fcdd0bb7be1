//! Pages of other origins (HH-04, HH-05): what a browser lets them read of a denial, and what their preflights cost.

use kota_integration::bootstrap::Bootstrap;
use kota_integration::stack::with_rules;
use kota_integration::{Answer, Request, Stack};
use serde_json::{Value, json};

use crate::support::{first_pass, fresh_key, merge, rule, statuses};

/// The origin that the shipped bootstrap knows, and one that it does not.
const KNOWN: &str = "https://shop.example";
const STRANGE: &str = "https://evil.example";

/// What a page must be able to read to come back at the right time.
const EXPOSED: [&str; 6] = [
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// A bucket for each address that never refills.
fn by_ip(capacity: u64) -> Value {
    rule("pages", capacity, json!({ "key": ["ip"], "refillPerSecond": 0, "idleSeconds": 3600 }))
}

fn from(origin: &str) -> Request {
    Request::get("/orders").header("origin", origin)
}

fn preflight(origin: &str) -> Request {
    let asked = Request::new("OPTIONS", "/orders").header("origin", origin);
    asked.header("access-control-request-method", "GET").header("access-control-request-headers", "x-api-key")
}

/// The headers of an answer that a page of `origin` may read: none unless the answer names it.
fn readable(answer: &Answer, origin: &str) -> Vec<String> {
    if answer.header("access-control-allow-origin") != Some(origin) {
        return Vec::new();
    }
    let exposed = answer.header("access-control-expose-headers").unwrap_or_default();
    let names = exposed.split(',').map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| answer.header(name).is_some()).collect()
}

/// Kota as the first filter, before CORS and authentication: the wrong order.
fn kota_first(bootstrap: &mut Bootstrap) {
    let kota = bootstrap.filter("kota").clone();
    bootstrap.remove_filter("kota");
    bootstrap.filters().insert(0, kota);
}

#[test]
fn hh_04_a_page_can_read_when_to_come_back() {
    let stack = Stack::new().rules(json!([by_ip(1)])).start();
    let mut client = stack.envoy().client();
    let (passed, denied) = (client.send(&from(KNOWN)), client.send(&from(KNOWN)));
    assert_eq!((passed.status, denied.status), (200, 429));
    assert_eq!(readable(&denied, KNOWN), EXPOSED, "{denied:?}");
    assert_eq!(readable(&passed, KNOWN), EXPOSED[1..], "all but the wait: {passed:?}");
    let strange = client.send(&from(STRANGE));
    assert_eq!(strange.status, 429);
    assert_eq!(strange.header("access-control-allow-origin"), None, "{strange:?}");
}

#[test]
fn hh_04_behind_kota_the_cors_filter_does_not_see_what_kota_denies() {
    let stack = Stack::new().rules(json!([by_ip(1)])).bootstrap(kota_first).start();
    let mut client = stack.envoy().client();
    let (passed, denied) = (client.send(&from(KNOWN)), client.send(&from(KNOWN)));
    assert_eq!((passed.status, denied.status), (200, 429));
    assert_eq!(readable(&passed, KNOWN), EXPOSED[1..], "{passed:?}");
    // Which is why the shipped bootstrap and the README put it first.
    assert_eq!(denied.header("access-control-allow-origin"), None, "{denied:?}");
    assert!(denied.header("retry-after").is_some(), "the denial itself is whole: {denied:?}");
}

#[test]
fn hh_05_preflights_cost_nothing_in_either_order() {
    for (order, is_first) in [("as shipped", false), ("Kota first", true)] {
        let mut stack = Stack::new().rules(json!([by_ip(10)]));
        if is_first {
            stack = stack.bootstrap(kota_first);
        }
        let stack = stack.start();
        let mut client = stack.envoy().client();
        for n in 1..=10 {
            let asked = client.send(&preflight(KNOWN));
            assert_eq!((asked.status, asked.body.len()), (200, 0), "{order}, preflight {n}");
            assert_eq!(asked.header("access-control-allow-origin"), Some(KNOWN), "{order}");
            assert_eq!(client.send(&from(KNOWN)).status, 200, "{order}, request {n}");
        }
        assert_eq!(client.send(&from(KNOWN)).status, 429, "{order}: ten requests were counted");
        assert_eq!(client.send(&preflight(KNOWN)).status, 200, "{order}: a preflight is no request");
        let met = stack.kota("allowed.cors-preflight");
        assert_eq!(
            met,
            if is_first { 11 } else { 0 },
            "{order}: those that no filter before Kota has answered"
        );
    }
}

#[test]
fn hh_05_what_is_no_preflight_is_counted() {
    let stack = Stack::new().rules(json!([by_ip(4)])).start();
    let mut client = stack.envoy().client();
    let options = || Request::new("OPTIONS", "/orders");
    for request in [
        options(),
        options().header("origin", KNOWN),
        options().header("access-control-request-method", "GET"),
        Request::get("/orders").header("origin", KNOWN).header("access-control-request-method", "GET"),
    ] {
        assert_eq!(client.send(&request).status, 200);
    }
    for request in [options(), options().header("origin", KNOWN), from(KNOWN)] {
        assert_eq!(client.send(&request).status, 429);
    }
}

#[test]
fn hh_05_preflights_that_nobody_answers_have_a_limit_of_their_own() {
    let mut config = with_rules(json!([by_ip(2)]));
    merge(&mut config, json!({ "corsPreflight": { "capacity": 5, "refillPerSecond": 0.001 } }));
    let stack = Stack::new().config(config).start();
    let mut client = stack.envoy().client();
    assert_eq!(statuses(&mut client, &preflight(STRANGE), 8), first_pass(5, 3));
    assert_eq!(statuses(&mut client, &preflight(KNOWN), 8), [200; 8], "the cors filter answers these");
    assert_eq!(
        statuses(&mut client, &from(STRANGE), 3),
        first_pass(2, 1),
        "no preflight was counted as a request"
    );
    assert_eq!((stack.kota("allowed.cors-preflight"), stack.kota("denied.cors-preflight")), (5, 3));
}

#[test]
fn hh_05_where_asked_to_kota_counts_a_preflight_like_any_request() {
    let mut config = with_rules(json!([by_ip(3)]));
    merge(&mut config, json!({ "corsPreflight": "COUNT" }));
    let stack = Stack::new().config(config).start();
    let mut client = stack.envoy().client();
    assert_eq!(statuses(&mut client, &preflight(STRANGE), 4), first_pass(3, 1));
    assert_eq!(client.send(&Request::get("/").header("x-api-key", fresh_key())).status, 429);
}
