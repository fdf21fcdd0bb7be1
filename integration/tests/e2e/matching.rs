//! Which rule a request meets, and whose bucket it takes from: the cases MK, through Envoy.

use kota_integration::bootstrap::Bootstrap;
use kota_integration::stack::with_rules;
use kota_integration::{Request, Stack, http2};
use serde_json::{Value, json};

use crate::support::{buckets, first_pass, fresh_key, get, merge, rule, statuses, tells_no_numbers, window};

/// What one upstream or another serves as `/v1/login`.
const SPELLINGS: [&str; 10] = [
    "/v1/login",
    "//v1/login",
    "/v1//login",
    "/v1/login/",
    "/v1/./login",
    "/v1/x/../login",
    "/v1/%6Cogin",
    "/v1/login?next=/v1/other",
    "/v1/login;jsessionid=1",
    "/%761/%2e/login",
];

fn config(rules: Value, descriptors: Value) -> Value {
    let mut config = with_rules(rules);
    merge(&mut config["descriptors"], descriptors);
    config
}

fn by_ip(id: &str, capacity: u64, path: &str) -> Value {
    window(id, capacity, json!({ "key": ["ip"], "match": { "path": path } }))
}

/// Envoy hands on the path as the client wrote it.
fn raw_paths(bootstrap: &mut Bootstrap) {
    let http = bootstrap.http();
    merge(http, json!({ "normalize_path": false, "merge_slashes": false }));
    merge(http, json!({ "path_with_escaped_slashes_action": "KEEP_UNCHANGED" }));
}

#[test]
fn mk_01_every_spelling_of_a_path_takes_from_one_bucket() {
    let rules = json!([
        window("login", 3, json!({ "match": { "path": "/v1/login" } })),
        by_ip("in-turn", 3, "/v1/login"),
    ]);
    for (name, normalises) in [("shipped", true), ("raw", false)] {
        let mut stack = Stack::new().rules(rules.clone());
        if !normalises {
            stack = stack.bootstrap(raw_paths);
        }
        let stack = stack.start();
        let mut client = stack.envoy().client();
        let in_turn = SPELLINGS.map(|path| client.send(&get(path, &fresh_key())).status);
        assert_eq!(in_turn[..], first_pass(3, SPELLINGS.len() - 3), "{name}");
        assert_eq!(stack.kota("allowed.login"), 3, "{name}: each is seen by the rule of the path");
    }
}

#[test]
fn mk_01_no_spelling_has_a_bucket_of_its_own() {
    let rules = json!([
        window("path", 2, json!({ "match": { "path": "/v1/login" } })),
        window("route", 2, json!({ "match": { "route": "GET /v1/{what}" } })),
    ]);
    let stack = Stack::new().rules(rules).bootstrap(raw_paths).start();
    let mut client = stack.envoy().client();
    for path in SPELLINGS {
        let key = fresh_key();
        assert_eq!(client.send(&get(path, &key)).status, 200, "{path}");
        assert_eq!(statuses(&mut client, &get("/v1/login", &key), 2), first_pass(1, 1), "{path}");
        assert_eq!(client.send(&get(path, &key)).status, 429, "{path}");
    }
}

#[test]
fn mk_03_a_query_or_a_fragment_dodges_no_rule() {
    let stack = Stack::new().rules(json!([by_ip("search", 5, "/search")])).start();
    let mut client = stack.envoy().client();
    let random: Vec<_> =
        (0..20).map(|i| client.send(&Request::get(format!("/search?x={}", i * 7919))).status).collect();
    assert_eq!(random, first_pass(5, 15));
    for path in ["/search", "/search?", "/search?x=/other", "/search?a=b&a=b"] {
        assert_eq!(client.send(&Request::get(path)).status, 429, "{path}");
    }
    assert_eq!(client.send(&Request::get("/search#f")).status, 400, "Envoy refuses what no client may send");
    assert_eq!(client.send(&Request::get("/other?x=/search")).status, 200);
}

#[test]
fn mk_07_a_missing_an_empty_and_a_blank_key_are_treated_as_the_rule_says() {
    let on = |word: &str| {
        let path = format!("/{}", word.to_lowercase());
        rule(&word.to_lowercase(), 5, json!({ "match": { "path": path }, "onMissingKey": word }))
    };
    let mut rules = vec![on("IP"), on("SKIP"), on("SHARED"), on("DENY")];
    rules.push(rule("default", 5, json!({ "match": { "path": "/default" } })));
    let stack = Stack::new().redis().rules(json!(rules)).start();
    let mut client = stack.envoy().client();
    let mut keyless = |path: &str| {
        let missing = statuses(&mut client, &Request::get(path), 8);
        let empty = statuses(&mut client, &Request::get(path).header("x-api-key", ""), 6);
        let blank = statuses(&mut client, &Request::get(path).header("x-api-key", "   "), 6);
        [missing, empty, blank].concat()
    };
    assert_eq!(keyless("/ip"), first_pass(5, 15));
    assert_eq!(keyless("/default"), first_pass(5, 15), "IP unless the rule says otherwise");
    assert_eq!(keyless("/skip"), vec![200; 20]);
    assert_eq!(keyless("/shared"), first_pass(5, 15));
    assert_eq!(keyless("/deny"), vec![429; 20]);
    let keys = buckets(stack.redis());
    let expected = [
        "rl:{test:ip:127.0.0.1}:default:tb1",
        "rl:{test:ip:127.0.0.1}:ip:tb1",
        "rl:{test:key:~shared}:shared:tb1",
    ];
    assert_eq!(keys, expected);
    assert_eq!((stack.kota("denied.deny"), stack.kota("allowed.ip"), stack.kota("denied.ip")), (20, 5, 15));

    // Whoever says who they are has a bucket of their own all the same.
    for path in ["/ip", "/skip", "/shared", "/deny"] {
        assert_eq!(client.send(&get(path, &fresh_key())).status, 200, "{path}");
    }
    let denied = client.send(&Request::get("/deny"));
    assert_eq!(denied.header("retry-after"), None, "waiting does not bring a key");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(tells_no_numbers(&client.send(&Request::get("/skip"))));
    // Of two keys nobody knows which one the upstream believes.
    let twice = Request::get("/ip").header("x-api-key", fresh_key()).header("x-api-key", fresh_key());
    assert_eq!(client.send(&twice).status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn mk_08_a_header_is_found_however_its_name_is_written() {
    let names = [("/a", "X-Api-Key"), ("/b", "x-api-key"), ("/c", "X-API-KEY")];
    let id = |path: &str| format!("name{}", &path[1..]);
    let rules: Vec<_> = names
        .iter()
        .map(|(path, _)| rule(&id(path), 3, json!({ "key": [id(path)], "match": { "path": path } })))
        .collect();
    let descriptors: serde_json::Map<_, _> =
        names.iter().map(|(path, header)| (id(path), json!({ "header": header }))).collect();
    let stack = Stack::new().config(config(json!(rules), Value::Object(descriptors))).start();
    let h2 = http2::Connection::open(stack.envoy().port()).await.expect("Envoy speaks HTTP/2");
    for (path, name) in names {
        let key = fresh_key();
        let mixed = Request::get(path).header("X-aPi-KeY", &key);
        assert_eq!(statuses(&mut stack.envoy().client(), &mixed, 2), [200, 200], "{name}");
        let lower = http2::Request::new("GET", path).header("x-api-key", &key);
        let status = async || h2.send(&lower, Vec::new().into()).await.expect("an answer").status;
        assert_eq!([status().await, status().await], [200, 429], "{name}: one bucket for both protocols");
        assert_eq!(stack.envoy().send(&mixed).status, 429, "{name}");
    }
}

#[test]
fn mk_11_equal_limits_on_two_paths_share_nothing() {
    let stack = Stack::new().redis().rules(json!([by_ip("a", 3, "/a"), by_ip("b", 3, "/b")])).start();
    let mut client = stack.envoy().client();
    assert_eq!(statuses(&mut client, &Request::get("/a"), 4), first_pass(3, 1));
    let first = client.send(&Request::get("/b"));
    assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, Some("2")));
    assert_eq!(statuses(&mut client, &Request::get("/b"), 3), first_pass(2, 1));
    assert_eq!(buckets(stack.redis()), ["rl:{test:ip:127.0.0.1}:a:sw1", "rl:{test:ip:127.0.0.1}:b:sw1"]);
}

#[test]
fn mk_16_a_header_and_an_address_must_both_match_in_whatever_order() {
    let both = |id: &str, json: &str| {
        let conditions: Value = serde_json::from_str(json).expect("JSON");
        rule(id, 2, json!({ "match": conditions }))
    };
    let rules = json!([
        both("header-first", r#"{"plan": "free", "ip": {"cidr": "10.0.0.0/8"}}"#),
        both("address-first", r#"{"ip": {"cidr": "10.0.0.0/8"}, "plan": "free"}"#),
    ]);
    let descriptors = json!({ "plan": { "header": "x-plan" }, "ip": { "trustedHops": 1 } });
    let stack = Stack::new().config(config(rules, descriptors)).start();
    let mut client = stack.envoy().client();
    for (plan, ip, meets) in [
        ("free", "10.1.2.3", true),
        ("free", "192.0.2.1", false),
        ("gold", "10.1.2.3", false),
        ("gold", "192.0.2.1", false),
    ] {
        let request = get("/", &fresh_key()).header("x-plan", plan).header("x-forwarded-for", ip);
        let expected = if meets { first_pass(2, 2) } else { vec![200; 4] };
        assert_eq!(statuses(&mut client, &request, 4), expected, "{plan} {ip}");
    }
    for id in ["header-first", "address-first"] {
        assert_eq!(
            (stack.kota(&format!("allowed.{id}")), stack.kota(&format!("denied.{id}"))),
            (2, 2),
            "{id}"
        );
    }
}

#[test]
fn every_built_in_descriptor_can_be_matched_and_makes_a_bucket() {
    let by = |name: &str, conditions: Value| rule(name, 10, json!({ "key": [name], "match": conditions }));
    let rules = json!([
        by("method", json!({ "method": "PUT" })),
        by("path", json!({ "path": { "prefix": "/things/" } })),
        by("host", json!({ "host": "shop.example" })),
        by("route", json!({ "route": "* /things/{id}" })),
        by("envoy_route", json!({ "envoy_route": "streams" })),
        by("ip", json!({ "ip": { "cidr": "127.0.0.0/8" }, "path": "/ip" })),
        by("api_key", json!({ "api_key": null, "path": "/anonymous" })),
    ]);
    let stack = Stack::new().redis().rules(rules).start();
    let mut client = stack.envoy().client();
    for (request, rule) in [
        (Request::new("PUT", "/"), "method"),
        (Request::get("/").header("host", "Shop.Example:8080"), "host"),
        (Request::get("/streams/1"), "envoy_route"),
        (Request::get("/ip"), "ip"),
        (Request::get("/anonymous"), "api_key"),
    ] {
        let answer = client.send(&request);
        assert_eq!(
            answer.header("ratelimit").map(|field| field.split(';').next()),
            Some(Some(&*format!("\"{rule}\"")))
        );
    }
    let policies =
        client.send(&Request::get("/things/7%20x?y=1")).header("ratelimit-policy").map(str::to_owned);
    let policies = policies.expect("two rules applied");
    assert!(policies.contains("\"path\"") && policies.contains("\"route\""), "{policies}");
    let seen = buckets(stack.redis());
    for plain in [
        "rl:{test:method:PUT}:method:tb1",
        "rl:{test:host:shop.example}:host:tb1",
        "rl:{test:envoy_route:streams}:envoy_route:tb1",
        "rl:{test:ip:127.0.0.1}:ip:tb1",
        "rl:{test:ip:127.0.0.1}:api_key:tb1",
    ] {
        assert!(seen.iter().any(|key| key == plain), "{plain} is not in {seen:#?}");
    }
    let hidden =
        seen.iter().filter(|key| key.starts_with("rl:{test:path:~") || key.starts_with("rl:{test:route:~"));
    assert_eq!(hidden.count(), 2, "what is not plain is hidden: {seen:#?}");
    assert!(tells_no_numbers(&client.send(&get("/anonymous", &fresh_key()))), "it has a key");
}

#[test]
fn mk_11_several_parts_of_a_key_can_not_be_taken_for_others() {
    let rules = json!([rule("parts", 1, json!({ "key": ["one", "two"], "onMissingKey": "SHARED" }))]);
    let descriptors = json!({ "one": { "header": "x-one" }, "two": { "header": "x-two" } });
    let stack = Stack::new().redis().config(config(rules, descriptors)).start();
    let mut client = stack.envoy().client();
    let parts = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b}:c"),
        ("a}", "b:c"),
        ("", "a:b:c"),
        ("a:b:c", ""),
        ("~shared", "x"),
        ("", "x"),
    ];
    for (one, two) in parts {
        let request = Request::get("/").header("x-one", one).header("x-two", two);
        assert_eq!(statuses(&mut client, &request, 2), first_pass(1, 1), "{one:?} {two:?}");
    }
    assert_eq!(buckets(stack.redis()).len(), parts.len());
    let secret = fresh_key(); // the same values in another header are another client
    assert_eq!(client.send(&Request::get("/").header("x-one", &secret).header("x-two", "c")).status, 200);
}
