//! The configuration as a whole, and the texts in it.

use crate::{faults, with};

#[test]
fn ca_05_every_bad_field_is_listed_by_its_path() {
    let json = r#"{
        "domain": "a b", "pods": 0, "problemtype": "x", "problemType": "a b", "pods": 3,
        "sidecar": {"deadlineMs": 1, "cluster": ""},
        "headers": {"dialect": "draft-13", "legacy": "yes"},
        "descriptors": {
            "plan": {"header": "x plan"}, "host": {"header": "a"}, "Team": {"header": "a"}, "org": {},
            "path2": {"header": ":path"}, "ip": {"trustedHops": 99},
            "who": {"header": "x-a", "query": "b"}
        },
        "routes": ["get /a", "FOO /a", "GET", "GET /a", "GET /a", "GET /o/{id}", "GET /o/{name}"],
        "rules": [
            {"id": "Bad Id", "algorithm": "LEAKY_BUCKET", "capcity": 1, "mode": "enforce", "failMode": "SHUT"},
            {"id": "a", "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1,
             "key": ["client", "client", "pln", "nothing-like-it"],
             "match": {"ip": {"cidr": "10.0.0.0/33"}, "method": ["get", "FOO"], "plan": [], "path": 7}},
            {"id": "a", "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1, "onMissingKey": "ALLOW"},
            7,
            {"id": "w", "algorithm": "SLIDING_WINDOW", "capacity": 0, "windowSeconds": 0, "group": "A", "priority": -1,
             "penalty": {"denials": 0, "withinSeconds": 0, "forSeconds": "10", "capacity": 1e308, "refillPerSecond": -1}},
            {"id": "c", "algorithm": "CONCURRENCY", "capacity": 100001, "leaseSeconds": 0, "cost": 2},
            {"id": "v", "algorithm": "TOKEN_BUCKET", "capacity": 5, "refillPerSecond": 1,
             "cost": {"body": 0, "default": 9, "max": 6}}
        ],
        "exemptions": ["healthz", {"cidr": "10.0.0.0/33"}, {}],
        "corsPreflight": {"capacity": 0, "refillPerSecond": 0}
    }"#;
    let found = faults(json);
    let paths: Vec<&str> = found.iter().map(|fault| fault.split_once(": ").unwrap().0).collect();
    let wanted = [
        "$.pods",
        "$.problemtype",
        "$.domain",
        "$.sidecar.cluster",
        "$.sidecar.deadlineMs",
        "$.headers.dialect",
        "$.headers.legacy",
        "$.problemType",
        "$.pods",
        "$.descriptors.plan.header",
        "$.descriptors.host",
        "$.descriptors.Team",
        "$.descriptors.org",
        "$.descriptors.path2.header",
        "$.descriptors.ip.trustedHops",
        "$.descriptors.who",
        "$.routes[0]",
        "$.routes[1]",
        "$.routes[2]",
        "$.routes[4]",
        "$.routes[6]",
        "$.rules[0].capcity",
        "$.rules[0].id",
        "$.rules[0].capacity",
        "$.rules[0].algorithm",
        "$.rules[0].mode",
        "$.rules[0].failMode",
        "$.rules[1].match.ip.cidr",
        "$.rules[1].match.method[0]",
        "$.rules[1].match.method[1]",
        "$.rules[1].match.plan",
        "$.rules[1].match.path",
        "$.rules[1].key[1]",
        "$.rules[1].key[2]",
        "$.rules[1].key[3]",
        "$.rules[2].id",
        "$.rules[2].onMissingKey",
        "$.rules[3]",
        "$.rules[4].capacity",
        "$.rules[4].windowSeconds",
        "$.rules[4].group",
        "$.rules[4].priority",
        "$.rules[4].penalty.denials",
        "$.rules[4].penalty.withinSeconds",
        "$.rules[4].penalty.forSeconds",
        "$.rules[4].penalty.capacity",
        "$.rules[4].penalty.refillPerSecond",
        "$.rules[5].capacity",
        "$.rules[5].leaseSeconds",
        "$.rules[5].cost",
        "$.rules[6].cost.body",
        "$.rules[6].cost.default",
        "$.rules[6].cost.max",
        "$.exemptions[0]",
        "$.exemptions[1].cidr",
        "$.exemptions[2]",
        "$.corsPreflight.capacity",
    ];
    let mut sorted = (paths.clone(), wanted.to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    assert_eq!(sorted.0, sorted.1, "{}", found.join("\n"));
    let says = |text: &str| {
        assert!(found.iter().any(|fault| fault.contains(text)), "{text} in {}", found.join("\n"))
    };
    says(r#"$.rules[0].capcity: unknown field; did you mean "capacity"?"#);
    says(r#"$.problemtype: unknown field; did you mean "problemType"?"#);
    says(
        r#"$.rules[0].mode: "enforce" is not one of "ENFORCE", "SHADOW", "DISABLED"; did you mean "ENFORCE"?"#,
    );
    says(
        r#"$.rules[1].match.method[0]: "get" is no known method (they are upper-case); did you mean "GET"?"#,
    );
    says(r#"$.routes[1]: "FOO" is no known method (they are upper-case); want one of ACL "#);
    says(r#"$.rules[1].key[2]: no descriptor is named "pln"; did you mean "plan"?"#);
    says(r#"$.rules[1].key[1]: is there twice; keep one"#);
    says(r#"$.pods: is there twice; keep one"#);
    says(r#"$.rules[2].id: "a" is the id of $.rules[1] already"#);
    says(r#"$.routes[6]: matches the same requests as an earlier one; keep one"#);
    says(r#"$.rules[3]: want an object, not a number"#);
}

#[test]
fn what_is_no_configuration_at_all_says_so() {
    assert_eq!(faults("{}"), ["$.rules: is missing, want a list"]);
    assert_eq!(faults("[]"), ["$: want an object, not a list"]);
    assert!(faults("")[0].starts_with("$: not JSON: EOF"));
    assert_eq!(
        faults(&" ".repeat(16 * 1024 * 1024 + 1)),
        ["$: is 16777217 bytes long, at most 16777216 are allowed"]
    );
    assert_eq!(
        faults(r#"{"rules": [], "rulesFrom": "sidecar"}"#),
        ["$.rulesFrom: not in this version", r#"$.rulesFrom: excludes "rules"; keep one"#]
    );
}

#[test]
fn the_list_of_faults_has_an_end() {
    // Each of the rules has six.
    let many = vec![r#"{"mode": 7, "cost": null, "key": 7}"#; 20_000].join(",");
    let found = faults(&format!(r#"{{"rules": [{many}]}}"#));
    assert_eq!(found.len(), 100_001);
    assert_eq!(found[100_000], "$: there are more than 100000, the rest is not listed");
}

#[test]
fn a_disabled_rule_is_checked_too() {
    let found = with(r#""capacity": 10"#, r#""mode": "DISABLED", "capacity": 0"#);
    assert!(found.len() == 1 && found[0].starts_with("$.rules[0].capacity: "), "{found:?}");
}

#[test]
fn the_same_descriptor_cannot_be_defined_twice() {
    let found = with(
        r#"{"plan": {"header": "x-plan"}}"#,
        r#"{"plan": {"header": "x-plan"}, "plan": {"header": "x-b"}}"#,
    );
    assert_eq!(found, ["$.descriptors.plan: is there twice; keep one"]);
}

#[test]
fn there_are_at_most_64_descriptors_and_8_conditions() {
    let many = |count: usize| -> String {
        (0..count).map(|i| format!(r#""d{i}": {{"header": "x-{i}"}}"#)).collect::<Vec<_>>().join(",")
    };
    let descriptors = |count| with(r#""plan": {"header": "x-plan"}"#, &many(count));
    assert_eq!(descriptors(57), Vec::<String>::new());
    assert_eq!(descriptors(58), ["$.descriptors.d57: at most 64 descriptors, built-in ones included"]);
    assert_eq!(descriptors(59), ["$.descriptors: has 59 fields, at most 58 are allowed"]);
    let conditions = (0..9).map(|i| format!(r#""d{i}": "v""#)).collect::<Vec<_>>().join(",");
    let found = with(r#""match": {}"#, &format!(r#""match": {{{conditions}}}"#));
    assert_eq!(found, ["$.rules[0].match: has 9 fields, at most 8 are allowed"]);
}

#[test]
fn no_fault_repeats_a_value_of_a_secret() {
    for secret in ["true", "\"yes\""] {
        let descriptors = format!(r#"{{"api_key": {{"header": "x-api-key", "secret": {secret}}}}}"#);
        for value in [
            r#"" topsecret ""#,
            r#""topsecret\n""#,
            r#"["topsecret", "topsecret", " topsecret"]"#,
            r#"{"topsecret": 1}"#,
            r#"{"prefix": "topsecret\n"}"#,
            r#"{"cidr": "topsecret"}"#,
            r#"{"prefix": "a", "prefix": "topsecret"}"#,
            r#"[{"topsecret": 1, "topsecret": 2}]"#,
        ] {
            for name in ["api_key", "client"] {
                let found = faults(&format!(
                    r#"{{"descriptors": {descriptors}, "rules": [{{"id": "r", "match": {{"{name}": {value}}},
                        "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}}]}}"#
                ));
                let at = format!("$.rules[0].match.{name}");
                assert!(found.iter().any(|fault| fault.starts_with(&at)), "{value}: {found:?}");
                assert!(!found.concat().contains("topsecret"), "{found:?}");
            }
        }
    }
    let found = faults(
        r#"{"descriptors": {"k": {"header": "a", "secret": true}}, "rules": [{"id": "r", "match": {"k": {"cidr": "10.9.8.7/8"}},
            "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}]}"#,
    );
    assert_eq!(found, ["$.rules[0].match.k.cidr: the secret has bits beyond the block"]);
}
