//! What a client is told: the fields, which rule they speak of, when to come back, and what the upstream said itself.

use std::thread;
use std::time::Duration;

use kota_integration::stack::with_rules;
use kota_integration::{Answer, Delivery, Running, Stack, wait};
use serde_json::{Value, json};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::support::{buckets, fresh_key, get, merge, rule, statuses, tells_no_numbers};

/// An item of a RateLimit field: the policy's name and its parameters.
type Item = (String, Vec<(String, i64)>);

/// Reads a field as RFC 9651 says: all its lines joined are one list.
fn items(answer: &Answer, field: &str) -> Vec<Item> {
    let lines: Vec<_> =
        answer.headers.iter().filter(|(name, _)| name == field).map(|(_, value)| value.as_str()).collect();
    let list: List = Parser::new(&lines.join(", ")).parse().unwrap_or_else(|e| panic!("{e}: {lines:?}"));
    list.iter().map(item).collect()
}

fn item(entry: &ListEntry) -> Item {
    let ListEntry::Item(item) = entry else { panic!("{entry:?} is no item") };
    let BareItem::String(name) = &item.bare_item else { panic!("{:?} is no string", item.bare_item) };
    let number = |value: &BareItem| match value {
        BareItem::Integer(number) => i64::from(*number),
        other => panic!("{other:?} is no integer"),
    };
    let parameters = item.params.iter().map(|(key, value)| (key.as_str().to_owned(), number(value)));
    (name.as_str().to_owned(), parameters.collect())
}

fn names(items: &[Item]) -> Vec<&str> {
    items.iter().map(|(name, _)| name.as_str()).collect()
}

fn parameter(item: &Item, name: &str) -> i64 {
    let found = item.1.iter().find(|(key, _)| key == name);
    found.unwrap_or_else(|| panic!("{item:?} has no {name}")).1
}

#[test]
fn hh_07_both_fields_are_lists_and_the_nearest_rule_is_told() {
    let rules = json!([
        rule("wide", 100, json!({ "refillPerSecond": 10, "policy": "wide-policy" })),
        rule("narrow", 3, json!({ "refillPerSecond": 0.5 })),
        rule("daily", 1000, json!({ "refillPerSecond": 0.0001 })),
        rule("unseen", 1, json!({ "mode": "SHADOW" })),
    ]);
    let stack = Stack::new().rules(rules).start();
    let (mut client, key) = (stack.envoy().client(), fresh_key());
    let mut last_left = 3;
    for n in 1..=4 {
        let answer = client.send(&get("/", &key));
        let policies = items(&answer, "ratelimit-policy");
        assert_eq!(names(&policies), ["wide-policy", "narrow", "daily"], "all that enforce, in their order");
        let quotas: Vec<_> =
            policies.iter().map(|item| (parameter(item, "q"), parameter(item, "w"))).collect();
        assert_eq!(quotas, [(600, 60), (30, 60), (8, 86_400)]);
        let nearest = items(&answer, "ratelimit");
        assert_eq!(names(&nearest), ["narrow"], "the one with the least left, or the longest wait");
        let (left, seconds) = (parameter(&nearest[0], "r"), parameter(&nearest[0], "t"));
        assert_eq!(answer.status, if n <= 3 { 200 } else { 429 });
        assert!((0..=last_left).contains(&left) && left <= 3 && seconds >= 1, "{answer:?}");
        last_left = left;
        let legacy = ["limit", "remaining", "reset"]
            .map(|name| answer.header(&format!("x-ratelimit-{name}")).map(str::to_owned));
        assert_eq!(legacy, [Some("3".to_owned()), Some(left.to_string()), Some(seconds.to_string())]);
        if answer.status == 429 {
            assert_eq!(
                answer.header("retry-after"),
                Some(seconds.to_string().as_str()),
                "no earlier than the window's end"
            );
            assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.json()["violated-policies"], json!(["narrow"]));
        }
    }
    assert_eq!(last_left, 0);
}

#[test]
fn hh_01_who_waits_as_long_as_told_passes() {
    const CLIENTS: usize = 25;
    // A token comes after 0.05 s, 0.3 s, 1 s, 1.001 s and 1.5 s.
    let rates = [
        ("fast", 20.0),
        ("third", 3.333_333_3),
        ("second", 1.0),
        ("more", 0.999_000_999),
        ("half", 0.666_666_667),
    ];
    let rules: Vec<_> = rates
        .iter()
        .map(|(id, rate)| {
            rule(id, 1, json!({ "refillPerSecond": rate, "match": { "path": format!("/{id}") } }))
        })
        .collect();
    let stack = Stack::new().workers(2).rules(json!(rules)).start();
    let obey = |id: &str, round: usize| {
        let path = format!("/{id}");
        let mut client = stack.envoy().client();
        let mut told: Vec<_> = (0..CLIENTS).map(|_| (fresh_key(), 0)).collect();
        for (key, seconds) in &mut told {
            let denied = wait::until("the bucket is empty", || {
                Some(client.send(&get(&path, key))).filter(|answer| answer.status == 429)
            });
            *seconds =
                denied.header("retry-after").and_then(|text| text.parse().ok()).expect("whole seconds");
            let most = if ["more", "half"].contains(&id) { 2 } else { 1 };
            assert!((1..=most).contains(seconds), "{id}, round {round}: {seconds}");
        }
        let longest = told.iter().map(|(_, seconds)| *seconds).max().unwrap_or(1);
        thread::sleep(Duration::from_secs(longest));
        for (key, _) in &told {
            assert_eq!(
                client.send(&get(&path, key)).status,
                200,
                "{id}, round {round}: {key} waited as told"
            );
        }
    };
    thread::scope(|scope| {
        for (id, _) in rates {
            scope.spawn(move || (0..2).for_each(|round| obey(id, round)));
        }
    });
}

/// Changes the fields' setting and waits until it is in force.
fn set_headers(stack: &mut Running, headers: Value, in_force: impl Fn(&Answer) -> bool) -> Answer {
    let mut config = with_rules(json!([rule("r", 10, json!({ "refillPerSecond": 1 }))]));
    config["headers"] = headers;
    assert!(stack.envoys[0].reconfigure(&config));
    wait::until("the setting is in force", || {
        Some(stack.envoy().send(&get("/", &fresh_key()))).filter(&in_force)
    })
}

#[test]
fn the_fields_speak_the_dialect_that_is_set_and_the_old_ones_can_be_left_out() {
    let rules = json!([rule("r", 10, json!({ "refillPerSecond": 1 }))]);
    let mut stack = Stack::new().rules(rules).delivery(Delivery::Ecds).start();
    let first = stack.envoy().send(&get("/", &fresh_key()));
    assert_eq!(first.header("ratelimit"), Some(r#""r";r=9;t=1"#), "draft-11 unless set");
    assert_eq!(first.header("x-ratelimit-limit"), Some("10"), "and the old fields too");
    let speaks_12 = |answer: &Answer| answer.header("ratelimit") == Some(r#""r";a=9;w=1"#);
    let answer = set_headers(&mut stack, json!({ "dialect": "draft-12" }), speaks_12);
    assert_eq!(answer.header("ratelimit-policy"), Some(r#""r";q=60;w=60"#));
    let key = fresh_key();
    let denied = wait::until("it is denied", || {
        Some(stack.envoy().send(&get("/", &key))).filter(|answer| answer.status == 429)
    });
    assert_eq!(denied.header("ratelimit"), Some(r#""r";a=0;w=1"#));
    let no_legacy = |answer: &Answer| answer.header("x-ratelimit-limit").is_none();
    let answer = set_headers(&mut stack, json!({ "dialect": "draft-11", "legacy": false }), no_legacy);
    assert_eq!(answer.header("ratelimit"), Some(r#""r";r=9;t=1"#));
    assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("x-ratelimit")), "{answer:?}");
}

#[test]
fn what_the_upstream_says_itself_is_not_loosened() {
    let stack = Stack::new().rules(json!([rule("ours", 10, json!({ "refillPerSecond": 1 }))])).start();
    let mut client = stack.envoy().client();
    let with = |sets: &[&str]| {
        sets.iter().fold(get("/", &fresh_key()), |request, set| request.header("x-echo-set", set))
    };
    let lists = [r#"RateLimit-Policy: "theirs";q=5;w=60"#, r#"RateLimit: "theirs";r=1;t=30"#];
    let answer = client.send(&with(&lists));
    assert_eq!(names(&items(&answer, "ratelimit-policy")), ["theirs", "ours"]);
    let both = items(&answer, "ratelimit");
    assert_eq!(names(&both), ["theirs", "ours"]);
    assert_eq!((parameter(&both[0], "r"), parameter(&both[1], "r")), (1, 9));

    let old = |answer: &Answer| {
        ["limit", "remaining", "reset"]
            .map(|name| answer.header(&format!("x-ratelimit-{name}")).unwrap_or("-").to_owned())
    };
    let stricter = ["X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 30"];
    assert_eq!(old(&client.send(&with(&stricter))), ["5", "3", "30"], "the stricter stays, whole");
    let looser = ["X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4000", "X-RateLimit-Reset: 30"];
    assert_eq!(old(&client.send(&with(&looser))), ["10", "9", "1"], "the looser goes, whole");
    let retry = client.send(&with(&["Retry-After: 120"]).header("x-echo-status", "503"));
    assert_eq!((retry.status, retry.header("retry-after")), (503, Some("120")));
    assert_eq!(retry.header("ratelimit"), Some(r#""ours";r=9;t=1"#), "numbers go with any status");
}

#[test]
fn hh_10_a_shadow_rule_is_seen_by_the_operator_alone() {
    let rules = json!([
        rule("enforced", 10, json!({ "match": { "path": "/both" } })),
        rule(
            "watching",
            2,
            json!({ "match": { "path": ["/both", "/alone"] }, "mode": "SHADOW", "failMode": "CLOSED" })
        ),
        rule("once", 1, json!({ "match": { "path": "/once" } })),
        rule("watching-once", 3, json!({ "match": { "path": ["/once", "/once-alone"] }, "mode": "SHADOW" })),
        rule("off", 1, json!({ "mode": "DISABLED" })),
    ]);
    let stack = Stack::new().rules(rules).start();
    let (mut client, key) = (stack.envoy().client(), fresh_key());
    for n in 1..=10 {
        let answer = client.send(&get("/both", &key));
        assert_eq!(
            (answer.status, answer.header("x-ratelimit-remaining")),
            (200, Some((10 - n).to_string().as_str()))
        );
        assert_eq!(names(&items(&answer, "ratelimit-policy")), ["enforced"], "a shadow is in no field");
    }
    assert_eq!(
        client.send(&get("/both", &key)).status,
        429,
        "the enforcing rule's own budget, and all of it"
    );
    let counts =
        |id: &str| ["allowed", "shadow_denied", "denied"].map(|kind| stack.kota(&format!("{kind}.{id}")));
    assert_eq!(counts("watching"), [2, 8, 0]);
    assert_eq!(counts("enforced"), [10, 0, 1]);
    let log = stack.envoy().access_log_of(11);
    let said: Vec<_> =
        log.iter().map(|line| (line["kota_decision"].clone(), line["kota_rule"].clone())).collect();
    assert_eq!(said[1], (json!("allow"), Value::Null));
    assert_eq!(said[2], (json!("would_deny"), json!("watching")));
    assert_eq!(said[10], (json!("deny"), json!("enforced")));
    assert!(tells_no_numbers(&client.send(&get("/alone", &fresh_key()))), "a shadow alone says nothing");

    // It is charged when the request passes, and only then.
    assert_eq!(statuses(&mut client, &get("/once", &key), 5), [200, 429, 429, 429, 429]);
    assert_eq!(statuses(&mut client, &get("/once-alone", &key), 3), [200, 200, 200]);
    assert_eq!(counts("watching-once"), [3, 1, 0], "one of five, two of three, and no more");
    assert_eq!(counts("off"), [0, 0, 0], "a disabled rule is as if it were not there");
}

#[test]
fn a_rule_that_says_only_its_limit_enforces_by_client_at_cost_one() {
    let mut config = json!({ "sidecar": { "deadlineMs": 1000 }, "rules": [
        { "id": "plain", "algorithm": "TOKEN_BUCKET", "capacity": 2, "refillPerSecond": 0.001 } ] });
    merge(
        &mut config,
        json!({ "descriptors": { "api_key": { "header": "x-api-key" }, "user": { "header": "x-user" } } }),
    );
    let stack = Stack::new().redis().config(config).start();
    let mut client = stack.envoy().client();
    let key = fresh_key();
    let answer = client.send(&get("/", &key));
    assert_eq!(names(&items(&answer, "ratelimit-policy")), ["plain"], "the policy is the id");
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("1"), "cost 1");
    assert_eq!(
        statuses(&mut client, &get("/elsewhere", &key), 2),
        [200, 429],
        "every request of the client's; ENFORCE"
    );
    assert_eq!(
        client.send(&get("/", &key).header("x-user", "u")).status,
        429,
        "the key comes before the user"
    );
    assert_eq!(client.send(&kota_integration::Request::get("/").header("x-user", "u")).status, 200);
    assert_eq!(client.send(&kota_integration::Request::get("/")).status, 200);
    let expected = [
        "rl:{default:ip:127.0.0.1}:plain:tb1".to_owned(),
        format!("rl:{{default:key:{key}}}:plain:tb1"),
        "rl:{default:user:u}:plain:tb1".to_owned(),
    ];
    assert_eq!(buckets(stack.redis()), expected);
    stack.sidecar().process().freeze();
    assert_eq!(client.send(&get("/", &key)).status, 200, "failMode OPEN");
}
