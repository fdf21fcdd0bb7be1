//! What a configuration can't say: every fault is listed, by its path, with the remedy.

use protocol::config::Config;

fn faults(json: &str) -> Vec<String> {
    match Config::parse(json.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(faults) => {
            assert!(!faults.is_empty());
            faults.iter().map(ToString::to_string).collect()
        }
    }
}

/// A good configuration of one rule in which `from` is replaced by `to`.
fn with(from: &str, to: &str) -> Vec<String> {
    let good = r#"{"descriptors": {"plan": {"header": "x-plan"}}, "rules": [{"id": "r", "match": {}, "key": ["client"],
        "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5}]}"#;
    assert_eq!(faults(good), Vec::<String>::new());
    assert!(good.contains(from));
    faults(&good.replacen(from, to, 1))
}

fn check_all(from: &str, cases: &[(&str, &str)]) {
    for (to, message) in cases {
        assert_eq!(with(from, to), [message.to_string()], "{to}");
    }
}

#[test]
fn al_14_bad_numbers_are_refused_naming_the_field() {
    check_all(
        r#""capacity": 10"#,
        &[
            (
                r#""capacity": 0"#,
                r#"$.rules[0].capacity: 0 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (
                r#""capacity": -1"#,
                r#"$.rules[0].capacity: -1 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (
                r#""capacity": 1e308"#,
                r#"$.rules[0].capacity: 1e308 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (
                r#""capacity": 9007199254740993"#,
                r#"$.rules[0].capacity: 9007199254740993 is out of range, want 1 to 1000000000; to switch a rule off say "mode": "DISABLED""#,
            ),
            (r#""capacity": 1.5"#, "$.rules[0].capacity: 1.5 is not a whole number"),
            (
                r#""capacity": "10""#,
                "$.rules[0].capacity: want a whole number from 1 to 1000000000, not a text; write the number without quotes",
            ),
            (
                r#""capacity": null"#,
                "$.rules[0].capacity: want a whole number from 1 to 1000000000, not null",
            ),
        ],
    );
    check_all(
        r#""refillPerSecond": 5"#,
        &[
            (
                r#""refillPerSecond": -1"#,
                "$.rules[0].refillPerSecond: -1 is out of range, want 0 to 1000000 with at most 10 decimals",
            ),
            (
                r#""refillPerSecond": 1e308"#,
                "$.rules[0].refillPerSecond: 1e308 is out of range, want 0 to 1000000 with at most 10 decimals",
            ),
            (
                r#""refillPerSecond": 1000001"#,
                "$.rules[0].refillPerSecond: 1000001 is out of range, want 0 to 1000000 with at most 10 decimals",
            ),
            (
                r#""refillPerSecond": 0.00000000001"#,
                "$.rules[0].refillPerSecond: 0.00000000001 is too fine: at most 10 decimals and 15 significant digits",
            ),
            (
                r#""refillPerSecond": "5""#,
                "$.rules[0].refillPerSecond: want a number from 0 to 1000000 with at most 10 decimals, not a text; write the number without quotes",
            ),
            (
                r#""refillPerSecond": 0"#,
                r#"$.rules[0].idleSeconds: is missing: a bucket with "refillPerSecond": 0 starts anew after so long without use"#,
            ),
            (
                r#""refillPerSecond": 0, "idleSeconds": 0"#,
                "$.rules[0].idleSeconds: 0 is out of range, want 1 to 34560000",
            ),
            (
                r#""refillPerSecond": 5, "idleSeconds": 5"#,
                r#"$.rules[0].idleSeconds: has a meaning only with "refillPerSecond": 0; leave it out"#,
            ),
            (
                r#""refillPerSecond": 0.0000000001"#,
                "$.rules[0].refillPerSecond: from empty to full takes longer than 400 days; raise refillPerSecond or lower capacity",
            ),
            (
                r#""refillPerSecond": 5, "cost": 11"#,
                "$.rules[0].cost: 11 is above the capacity, so that no request would ever pass; want 0 to 10",
            ),
            (
                r#""refillPerSecond": 5, "cost": -1"#,
                "$.rules[0].cost: -1 is out of range, want 0 to 1000000000",
            ),
            (
                r#""refillPerSecond": 5, "windowSeconds": 0"#,
                r#"$.rules[0].windowSeconds: belongs to "algorithm": "SLIDING_WINDOW""#,
            ),
            (
                r#""refillPerSecond": 5, "leaseSeconds": 0"#,
                r#"$.rules[0].leaseSeconds: belongs to "algorithm": "CONCURRENCY""#,
            ),
        ],
    );
    assert_eq!(
        with(r#""refillPerSecond": 5"#, r#""refillPerSecond": 0, "idleSeconds": 60"#),
        Vec::<String>::new()
    );
    let nan = with(r#""capacity": 10"#, r#""capacity": NaN"#);
    assert!(
        nan.len() == 1 && nan[0].starts_with("$: not JSON: ") && nan[0].contains("at line 2 column"),
        "{nan:?}"
    );
    for (algorithm, field) in [("SLIDING_WINDOW", "windowSeconds"), ("CONCURRENCY", "leaseSeconds")] {
        let found = with(
            r#""algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#,
            &format!(r#""algorithm": "{algorithm}", "capacity": 0, "{field}": 0"#),
        );
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].starts_with("$.rules[0].capacity: 0 is out of range"));
        assert_eq!(found[0], format!("$.rules[0].algorithm: \"{algorithm}\" is not in this version"));
        assert!(
            found[2].starts_with(&format!("$.rules[0].{field}: 0 is out of range, want 1 to ")),
            "{found:?}"
        );
    }
}

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
            7
        ]
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
fn ca_05_what_matches_nothing_is_refused_with_what_was_meant() {
    check_all(r#""match": {}"#, &[
        (r#""match": {"ip": "2001:db8::1"}"#, r#"$.rules[0].match.ip: say {"cidr": "2001:db8::1/128"}"#),
        (r#""match": {"ip": "10.0.0.0/8"}"#, r#"$.rules[0].match.ip: "10.0.0.0/8" is no address; for a block say {"cidr": …}"#),
        (r#""match": {"ip": {"prefix": "10."}}"#, r#"$.rules[0].match.ip.prefix: an address has no prefix but a block: say {"cidr": …}"#),
        (r#""match": {"path": "/a//b"}"#, r#"$.rules[0].match.path: "/a//b" never matches, since paths are normalised first: say "/a/b""#),
        (r#""match": {"path": "/a?b"}"#, r#"$.rules[0].match.path: "/a?b" never matches, since paths are normalised first: say "/a""#),
        (r#""match": {"path": "a"}"#, r#"$.rules[0].match.path: "a" is no path: want a / first"#),
        (r#""match": {"plan": ""}"#, "$.rules[0].match.plan: is empty"),
        (r#""match": {"plan": " gold"}"#, r#"$.rules[0].match.plan: " gold" begins or ends with a space, which no value does"#),
        (r#""match": {"plan": ["a", "a"]}"#, "$.rules[0].match.plan[1]: is there twice; keep one"),
        (r#""match": {"plan": {"regex": "a"}}"#, ""),
        (r#""match": {"plan": {"prefix": "a", "cidr": "10.0.0.0/8"}}"#, r#"$.rules[0].match.plan: want exactly one of "prefix", "cidr""#),
        (r#""match": {"method": {"cidr": "10.0.0.0/8"}}"#, "$.rules[0].match.method.cidr: is never an address"),
        (r#""match": {"plan": true}"#, "$.rules[0].match.plan: want a text, a list of texts, {\"prefix\": …}, {\"cidr\": …} or null, not a truth value"),
    ].map(|case| case).iter().copied().filter(|(_, message)| !message.is_empty()).collect::<Vec<_>>());
    let regex = with(r#""match": {}"#, r#""match": {"plan": {"regex": "a"}}"#);
    assert_eq!(regex[0], r#"$.rules[0].match.plan.regex: unknown field, want one of "prefix", "cidr""#);
    let path = format!(r#""match": {{"path": "/{}"}}"#, "x".repeat(9_999));
    assert_eq!(
        with(r#""match": {}"#, &path),
        ["$.rules[0].match.path: is 10000 bytes long, at most 1024 are allowed"]
    );
    let route = format!(r#""match": {{"route": "GET /{}"}}"#, "x".repeat(9_999));
    assert_eq!(
        with(r#""match": {}"#, &route),
        ["$.rules[0].match.route: is 10004 bytes long, at most 1024 are allowed"]
    );
}

#[test]
fn ca_05_a_source_that_is_none_is_refused_with_the_remedy() {
    const ONE: &str = "$.descriptors.plan: want exactly one source: {\"header\": NAME}, {\"metadata\": [FILTER, KEY, …]}, {\"query\": NAME} or {\"cookie\": NAME}";
    check_all(
        r#"{"header": "x-plan"}"#,
        &[
            ("{}", ONE),
            (r#"{"header": "x-plan", "query": "plan"}"#, ONE),
            (r#"{"secret": true}"#, ONE),
            (
                r#"{"cookie": "a b"}"#,
                r#"$.descriptors.plan.cookie: "a b" is no cookie's name: want letters, digits and !#$%&'*+-.^_`|~"#,
            ),
            (r#"{"cookie": ""}"#, "$.descriptors.plan.cookie: is empty"),
            (r#"{"query": "a\nb"}"#, r#"$.descriptors.plan.query: "a\nb" has a control character"#),
            (r#"{"query": 7}"#, "$.descriptors.plan.query: want a text, not a number"),
            (
                r#"{"metadata": "envoy.filters.http.jwt_authn"}"#,
                "$.descriptors.plan.metadata: want a list, not a text",
            ),
            (
                r#"{"metadata": ["envoy.filters.http.jwt_authn"]}"#,
                "$.descriptors.plan.metadata: want a filter's name and at least one key",
            ),
            (
                r#"{"metadata": ["a", "b\u0000c"]}"#,
                r#"$.descriptors.plan.metadata[1]: "b\0c" has a control character"#,
            ),
            (
                r#"{"metadata": ["1","2","3","4","5","6","7","8","9"]}"#,
                "$.descriptors.plan.metadata: has 9 items, at most 8 are allowed",
            ),
        ],
    );
    let unknown = with(r#"{"header": "x-plan"}"#, r#"{"jwt": "plan"}"#);
    let sources = r#""header", "metadata", "query", "cookie", "secret", "authenticated""#;
    assert_eq!(
        unknown,
        [format!("$.descriptors.plan.jwt: unknown field, want one of {sources}"), ONE.to_owned()]
    );
}

#[test]
fn the_whole_model_is_read_and_what_is_not_decided_yet_is_refused_by_name() {
    let json = r#"{
        "rulesFrom": "sidecar", "untilRules": "CLOSED", "exemptions": ["/healthz"]}"#;
    assert_eq!(
        faults(json),
        [
            "$.rulesFrom: not in this version",
            "$.untilRules: not in this version",
            "$.exemptions: not in this version",
        ]
    );
    let json = r#"{"rules": [
        {"id": "a", "algorithm": "SLIDING_WINDOW", "capacity": 10, "windowSeconds": 60},
        {"id": "b", "algorithm": "CONCURRENCY", "capacity": 10, "leaseSeconds": 30, "failMode": "LOCAL"},
        {"id": "c", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5,
         "lease": {"tokens": 50, "seconds": 1}, "preLimit": {"factor": 1.5},
         "penalty": {"rule": "a", "denials": 100, "withinSeconds": 60, "forSeconds": 600}, "regions": {"eu": 1}},
        {"id": "d", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "cost": {"header": "x-cost", "max": 5}},
        {"id": "e", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "cost": {"body": 1024}},
        {"id": "f", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "cost": {"responseHeader": "x-cost"}}
    ]}"#;
    assert_eq!(
        faults(json),
        [
            r#"$.rules[0].algorithm: "SLIDING_WINDOW" is not in this version"#,
            r#"$.rules[1].algorithm: "CONCURRENCY" is not in this version"#,
            r#"$.rules[1].failMode: "LOCAL" is not in this version"#,
            "$.rules[2].lease: not in this version",
            "$.rules[2].preLimit: not in this version",
            "$.rules[2].penalty: not in this version",
            "$.rules[2].regions: not in this version",
            "$.rules[3].cost.header: not in this version",
            "$.rules[3].cost.max: not in this version",
            "$.rules[4].cost.body: not in this version",
            "$.rules[5].cost.responseHeader: not in this version",
        ]
    );
}

#[test]
fn what_is_not_decided_yet_is_checked_all_the_same() {
    for (field, path) in [
        (r#""lease": {"tokens": 0}"#, "$.rules[0].lease.tokens"),
        (r#""lease": 50"#, "$.rules[0].lease"),
        (r#""preLimit": {"factor": 0}"#, "$.rules[0].preLimit.factor"),
        (r#""priority": -1"#, "$.rules[0].priority"),
        (r#""penalty": {"denials": 0}"#, "$.rules[0].penalty.denials"),
        (r#""group": "A B""#, "$.rules[0].group"),
        (r#""cost": {"header": "a b"}"#, "$.rules[0].cost.header"),
        (r#""cost": {}"#, "$.rules[0].cost"),
        (r#""domain": "other""#, "$.rules[0].domain"),
        (r#""policy": "Gold!""#, "$.rules[0].policy"),
        (r#""detail": "a\nb""#, "$.rules[0].detail"),
    ] {
        let found = with(r#""refillPerSecond": 5"#, &format!(r#""refillPerSecond": 5, {field}"#));
        let genuine = found
            .iter()
            .any(|fault| fault.starts_with(&format!("{path}: ")) && !fault.ends_with("this version"));
        assert!(genuine, "{field}: {found:?}");
    }
}

#[test]
fn ca_05_a_place_in_a_group_is_checked() {
    check_all(
        r#""match": {}"#,
        &[
            (
                r#""match": {}, "group": "g", "priority": 1000001"#,
                "$.rules[0].priority: 1000001 is out of range, want 0 to 1000000",
            ),
            (
                r#""match": {}, "group": "g", "priority": 1.5"#,
                "$.rules[0].priority: 1.5 is not a whole number",
            ),
            (
                r#""match": {}, "priority": 1"#,
                r#"$.rules[0].priority: has a meaning only within a group; say "group" too, or leave it out"#,
            ),
            (
                r#""match": {}, "group": "A""#,
                r#"$.rules[0].group: "A" is no id: want lower-case letters, digits, - and _, a letter or a digit first"#,
            ),
        ],
    );
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
fn only_where_a_number_is_wanted_a_quoted_one_is_told_to_lose_its_quotes() {
    assert_eq!(with(r#""match": {}"#, r#""match": "10""#), ["$.rules[0].match: want an object, not a text"]);
    let nan = with(r#""capacity": 10"#, r#""capacity": "NaN""#);
    assert_eq!(nan, ["$.rules[0].capacity: want a whole number from 1 to 1000000000, not a text"]);
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

#[test]
fn a_bad_algorithm_hides_no_bad_number_and_one_of_a_later_version_asks_for_nothing() {
    let found = with(
        r#""TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#,
        r#""TOKEN_BUKET", "capacity": 0, "refillPerSecond": -1, "idleSeconds": 0, "windowSeconds": 0, "leaseSeconds": 0"#,
    );
    let fields = ["algorithm", "capacity", "refillPerSecond", "idleSeconds", "windowSeconds", "leaseSeconds"];
    assert_eq!(found.len(), fields.len(), "{found:?}");
    for (fault, field) in found.iter().zip(fields) {
        assert!(fault.starts_with(&format!("$.rules[0].{field}: ")), "{found:?}");
    }
    for algorithm in ["SLIDING_WINDOW", "CONCURRENCY"] {
        let found =
            with(r#""TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5"#, &format!("\"{algorithm}\""));
        assert_eq!(found, [format!("$.rules[0].algorithm: \"{algorithm}\" is not in this version")]);
    }
    for field in ["penalty", "preLimit", "lease"] {
        let found = with(r#""match": {}"#, &format!(r#""match": {{}}, "{field}": {{}}"#));
        assert_eq!(found, [format!("$.rules[0].{field}: not in this version")]);
    }
}

#[test]
fn nothing_is_offered_that_would_be_refused() {
    let later = [
        "LOCAL",
        "SLIDING_WINDOW",
        "CONCURRENCY",
        "rulesFrom",
        "untilRules",
        "exemptions",
        "lease",
        "preLimit",
        "penalty",
        "regions",
        "windowSeconds",
        "body",
        "responseHeader",
    ];
    for (from, to) in [
        (r#""match": {}"#, r#""xxxxxxxxxxxx": 1"#),
        (r#""match": {}"#, r#""failMode": "local""#),
        (r#""match": {}"#, r#""failMode": 7"#),
        (r#""match": {}"#, r#""cost": {}"#),
        (r#""match": {}"#, r#""cost": {"xxxxxxxxxxxx": 1}"#),
        (r#""TOKEN_BUCKET""#, r#""concurency""#),
        (r#"{"header": "x-plan"}"#, "{}"),
        (r#"{"header": "x-plan"}"#, r#"{"header": "x-plan", "xxxxxxxxxxxx": 1}"#),
        (r#""rules""#, r#""xxxxxxxxxxxx": 1, "rules""#),
    ] {
        let found = with(from, to).concat();
        assert!(found.contains("one of") || found.contains("want "), "{to}: {found}");
        for word in later {
            assert!(!found.contains(&format!("\"{word}\"")), "{to}: {found}");
        }
    }
}
