//! What a configuration means: its defaults, and the forms in which rules reach `limits`.

use limits::cost::Cost;
use limits::decision::Limit;
use limits::descriptor::{Descriptors, Source};
use limits::rule::{FailMode, Group, Mode, OnMissingKey, Rule, Test};
use protocol::config::{Config, Dialect, Headers, Sidecar};

const MINIMAL: &str =
    r#"{"rules": [{"id": "all", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}]}"#;

/// Something of everything.
const WHOLE: &str = r#"{
  "domain": "public-api",
  "sidecar": {"cluster": "kota_sidecar", "deadlineMs": 1000},
  "descriptors": {
    "api_key": {"header": "X-Api-Key", "secret": true, "authenticated": true},
    "plan": {"header": "x-plan"},
    "user": {"metadata": ["envoy.filters.http.jwt_authn", "claims", "sub"]},
    "tenant": {"query": "tenant"},
    "session": {"cookie": "sid", "secret": true},
    "ip": {"trustedHops": 1}
  },
  "routes": ["POST /orders", "GET /orders/{id}", "* /public/**"],
  "headers": {"dialect": "draft-12", "legacy": false},
  "pods": 50,
  "exemptions": ["/healthz", {"path": "/metrics", "cidr": "10.0.0.0/8"}, {"cidr": "2001:db8::/32"}],
  "corsPreflight": "COUNT",
  "problemType": "https://example.com/probs/quota",
  "rules": [
    {"id": "gold-orders-create", "policy": "gold-orders",
     "match": {"plan": "gold", "route": "POST /orders"}, "key": ["api_key", "route"],
     "algorithm": "TOKEN_BUCKET", "capacity": 100, "refillPerSecond": 10, "cost": 3,
     "mode": "SHADOW", "failMode": "CLOSED", "onMissingKey": "DENY", "detail": "Kota doldu."},
    {"id": "off", "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 0, "idleSeconds": 60,
     "mode": "DISABLED"},
    {"id": "others", "domain": "public-api",
     "match": {"plan": ["silver", "bronze"], "ip": {"cidr": "10.0.0.0/8"}, "path": {"prefix": "/v1/"},
               "api_key": null, "route": "DELETE /orders/{id}"},
     "key": [], "algorithm": "TOKEN_BUCKET", "capacity": 1e3, "refillPerSecond": 1.15741e-04}
  ]
}"#;

fn parse(json: &str) -> Config {
    Config::parse(json.as_bytes()).unwrap_or_else(|faults| panic!("{faults:?} in {json}"))
}

/// A configuration of one rule, to which `fields` are added.
fn rule(fields: &str) -> Rule {
    let json = format!(
        r#"{{"descriptors": {{"plan": {{"header": "x-plan"}}}}, "rules": [{{"id": "r", "algorithm": "TOKEN_BUCKET",
            "capacity": 10, "refillPerSecond": 5, {fields}}}]}}"#
    );
    parse(&json).rules.rules()[0].clone()
}

#[test]
fn rules_alone_are_enough_and_every_default_is_as_documented() {
    let config = parse(MINIMAL);
    assert_eq!(config.domain, "default");
    assert_eq!(config.sidecar, Sidecar { cluster: "kota".into(), deadline_ms: 5 });
    assert_eq!(config.headers, Headers { dialect: Dialect::Draft11, legacy: true });
    assert_eq!(config.problem_type, "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((config.pods, config.trusted_hops, config.disabled), (1, None, 0));
    assert!(config.warnings().is_empty());

    let rule = &config.rules.rules()[0];
    assert_eq!((&*rule.id, &*rule.policy, &rule.cost), ("all", "all", &Cost::Fixed(1)));
    assert_eq!(
        (rule.mode, rule.fail_mode, rule.on_missing_key),
        (Mode::Enforce, FailMode::Open, OnMissingKey::Ip)
    );
    assert!(rule.conditions.is_empty() && rule.detail.is_none());
    let key: Vec<_> =
        rule.key.iter().map(|id| &config.rules.descriptors().get(*id).unwrap().source).collect();
    assert_eq!(key, [&Source::Client]);
    let Limit::TokenBucket(bucket) = rule.limit else { panic!("{:?}", rule.limit) };
    assert_eq!((bucket.capacity(), bucket.refill().num(), bucket.refill().den()), (10, 5, 1));
}

#[test]
fn all_that_is_written_is_read() {
    let config = parse(WHOLE);
    assert_eq!(config.domain, "public-api");
    assert_eq!(config.sidecar, Sidecar { cluster: "kota_sidecar".into(), deadline_ms: 1000 });
    assert_eq!(config.headers, Headers { dialect: Dialect::Draft12, legacy: false });
    assert_eq!(config.problem_type, "https://example.com/probs/quota");
    assert_eq!((config.pods, config.trusted_hops, config.disabled), (50, Some(1), 1));

    let descriptors = config.rules.descriptors();
    let key = descriptors.get(descriptors.find("api_key").unwrap()).unwrap();
    assert_eq!((&key.source, key.secret), (&Source::Header("x-api-key".into()), true));

    for (name, source, secret) in [
        (
            "user",
            Source::Metadata(["envoy.filters.http.jwt_authn", "claims", "sub"].map(Box::from).into()),
            false,
        ),
        ("tenant", Source::Query("tenant".into()), false),
        ("session", Source::Cookie("sid".into()), true),
    ] {
        let found = descriptors.get(descriptors.find(name).unwrap()).unwrap();
        assert_eq!((&found.source, found.secret), (&source, secret));
    }

    let [gold, others] = config.rules.rules() else { panic!("DISABLED rules are left out") };
    assert_eq!(
        (&*gold.policy, &gold.cost, gold.detail.as_deref()),
        ("gold-orders", &Cost::Fixed(3), Some("Kota doldu."))
    );
    assert_eq!(
        (gold.mode, gold.fail_mode, gold.on_missing_key),
        (Mode::Shadow, FailMode::Closed, OnMissingKey::Deny)
    );
    assert_eq!(gold.key.len(), 2);
    let tests: Vec<_> = gold.conditions.iter().map(|condition| &condition.test).collect();
    assert_eq!(tests, [&one_of(&["gold"]), &one_of(&["POST /orders"])]);

    let tests: Vec<_> = others.conditions.iter().map(|condition| &condition.test).collect();
    let block = Test::Cidr(limits::address::Cidr::parse("10.0.0.0/8").unwrap());
    let prefix = Test::Prefix((*b"/v1/").into());
    let route = one_of(&["DELETE /orders/{id}"]);
    assert_eq!(tests, [&one_of(&["silver", "bronze"]), &block, &prefix, &Test::Absent, &route]);
    assert!(others.key.is_empty());
    let Limit::TokenBucket(bucket) = others.limit else { panic!("{:?}", others.limit) };
    assert_eq!(
        (bucket.capacity(), bucket.refill().num(), bucket.refill().den()),
        (1_000, 115_741, 1_000_000_000)
    );
}

#[test]
fn a_route_that_only_a_rule_names_is_a_route() {
    let config = parse(WHOLE);
    let routes = config.rules.routes();
    assert!(routes.find(b"DELETE", b"/orders/7").is_some());
    assert!(routes.find(b"PUT", b"/orders/7").is_none());
}

#[test]
fn a_version_names_the_bytes() {
    assert_eq!(parse(MINIMAL).version, parse(MINIMAL).version);
    assert_ne!(parse(MINIMAL).version, parse(&format!("{MINIMAL}\n")).version);
    assert_eq!(parse(MINIMAL).version.len(), 16);
}

#[test]
fn mk_08_header_names_are_stored_in_lower_case_however_they_are_written() {
    for name in ["X-Api-Key", "x-api-key", "X-API-KEY"] {
        let json =
            MINIMAL.replacen('{', &format!(r#"{{"descriptors": {{"api_key": {{"header": "{name}"}}}}, "#), 1);
        let config = parse(&json);
        let descriptors = config.rules.descriptors();
        let key = descriptors.get(descriptors.find("api_key").unwrap()).unwrap();
        assert_eq!(key.source, Source::Header("x-api-key".into()));
    }
}

#[test]
fn mk_07_what_is_done_without_a_key_is_the_rules_choice_and_ip_by_default() {
    assert_eq!(rule(r#""key": ["plan"]"#).on_missing_key, OnMissingKey::Ip);
    for (word, meaning) in [
        ("IP", OnMissingKey::Ip),
        ("SKIP", OnMissingKey::Skip),
        ("SHARED", OnMissingKey::Shared),
        ("DENY", OnMissingKey::Deny),
    ] {
        assert_eq!(rule(&format!(r#""onMissingKey": "{word}""#)).on_missing_key, meaning);
    }
}

#[test]
fn values_are_stored_in_the_form_in_which_requests_have_them() {
    let test = |fields: &str| rule(fields).conditions[0].test.clone();
    assert_eq!(test(r#""match": {"host": "API.Example.com"}"#), one_of(&["api.example.com"]));
    assert_eq!(
        test(r#""match": {"ip": ["192.0.2.1", "::ffff:192.0.2.2"]}"#),
        one_of(&["192.0.2.1", "192.0.2.2"])
    );
    assert_eq!(test(r#""match": {"method": ["GET", "PROPFIND"]}"#), one_of(&["GET", "PROPFIND"]));
    assert_eq!(test(r#""match": {"plan": "Altın üye"}"#), one_of(&["Altın üye"]));
}

#[test]
fn two_descriptors_may_read_the_same_header() {
    let json =
        MINIMAL.replacen('{', r#"{"descriptors": {"a": {"header": "x-a"}, "b": {"header": "X-A"}}, "#, 1);
    parse(&json);
}

#[test]
fn a_match_that_trusts_a_claim_is_warned_of_and_an_authenticated_one_is_not() {
    let warnings: Vec<String> = parse(WHOLE).warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with(
        "$.rules[0].match.plan: trusts what the client says: anybody can send the header x-plan;"
    ));
    assert!(warnings[1].starts_with("$.rules[2].match.plan: "), "{warnings:?}");
}

#[test]
fn a_rule_may_be_one_of_a_group_and_a_lone_one_is_warned_of() {
    let json = |second: &str| {
        let rule = |id: &str, group: &str| {
            format!(
                r#"{{"id": "{id}", {group}, "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1}}"#
            )
        };
        format!(
            r#"{{"rules": [{}, {}]}}"#,
            rule("a", r#""group": "quota""#),
            rule("b", &format!(r#""group": "{second}", "priority": 7"#))
        )
    };
    let group = |id: &str, priority| Some(Group { id: id.into(), priority });
    let config = parse(&json("quota"));
    let groups: Vec<_> = config.rules.rules().iter().map(|rule| rule.group.clone()).collect();
    assert_eq!(groups, [group("quota", 0), group("quota", 7)]);
    assert!(config.warnings().is_empty());
    let warned: Vec<String> = parse(&json("quotas")).warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warned,
        [
            r#"$.rules[0]: no other rule is in the group "quota"; is it misspelt?"#,
            r#"$.rules[1]: no other rule is in the group "quotas"; is it misspelt?"#,
        ]
    );
}

#[test]
fn hh_05_preflights_have_a_rule_of_their_own_unless_they_are_counted() {
    let preflight = |fields: &str, mode: &str| {
        let json =
            MINIMAL.replacen('{', &format!("{{{fields}"), 1).replacen("\"id\"", &format!("{mode} \"id\""), 1);
        let config = parse(&json);
        config.rules.preflight().map(|rule| {
            let Limit::TokenBucket(bucket) = rule.limit else { panic!("a bucket") };
            assert_eq!(
                (&*rule.id, &*rule.key, &rule.conditions),
                ("cors-preflight", &[Descriptors::IP][..], &vec![])
            );
            (bucket.capacity(), bucket.refill().num(), bucket.refill().den(), rule.mode)
        })
    };
    assert_eq!(preflight("", ""), Some((100, 10, 1, Mode::Enforce)));
    assert_eq!(
        preflight(r#""corsPreflight": {"capacity": 5, "refillPerSecond": 0.5},"#, ""),
        Some((5, 1, 2, Mode::Enforce))
    );
    assert_eq!(preflight(r#""corsPreflight": "COUNT","#, ""), None);
    assert_eq!(
        preflight("", r#""mode": "SHADOW","#),
        Some((100, 10, 1, Mode::Shadow)),
        "nothing is enforced yet"
    );
    assert_eq!(preflight("", r#""mode": "DISABLED","#), None, "there is no rule");
    assert!(parse(r#"{"rules": []}"#).rules.preflight().is_none());
}

#[test]
fn a_query_and_a_cookie_are_claims_and_metadata_is_none() {
    let json = r#"{"descriptors": {"user": {"metadata": ["jwt", "sub"]}, "tenant": {"query": "t"}, "session": {"cookie": "s"},
        "signed": {"cookie": "c", "authenticated": true}},
        "rules": [{"id": "r", "match": {"user": "u", "tenant": "a", "session": "s", "signed": "s", "client": "u"}, "algorithm": "TOKEN_BUCKET",
        "capacity": 1, "refillPerSecond": 1}]}"#;
    let warned: Vec<String> = parse(json).warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warned.len(), 2, "{warned:?}");
    for (warning, told) in warned.iter().zip([
        "$.rules[0].match.tenant: trusts what the client says: anybody can send the query parameter t;",
        "$.rules[0].match.session: trusts what the client says: anybody can send the cookie s;",
    ]) {
        assert!(warning.starts_with(told), "{warned:?}");
    }
}

#[test]
fn twenty_thousand_rules_are_allowed() {
    let rule = |i| {
        format!(
            r#"{{"id": "r{i}", "match": {{"route": "GET /r{i}"}}, "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}}"#
        )
    };
    let rules = |count| format!(r#"{{"rules": [{}]}}"#, (0..count).map(rule).collect::<Vec<_>>().join(","));
    assert_eq!(parse(&rules(20_000)).rules.rules().len(), 20_000);
    let faults = Config::parse(rules(20_001).as_bytes()).unwrap_err();
    assert_eq!(faults[0].to_string(), "$.rules: has 20001 items, at most 20000 are allowed");
}

fn one_of(values: &[&str]) -> Test {
    Test::OneOf(values.iter().map(|value| value.as_bytes().into()).collect())
}
