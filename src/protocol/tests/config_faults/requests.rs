//! What says which requests a rule is about.

use crate::{check_all, with};

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
fn ca_05_what_exempts_nothing_is_refused() {
    check_all(
        r#"{"descriptors""#,
        &[
            (
                r#"{"exemptions": ["healthz"], "descriptors""#,
                r#"$.exemptions[0]: "healthz" is no path: want a / first"#,
            ),
            (
                r#"{"exemptions": ["/a?b"], "descriptors""#,
                r#"$.exemptions[0]: "/a?b" never matches, since paths are compared without query: leave it off"#,
            ),
            (
                r#"{"exemptions": [{"path": "/a/*"}], "descriptors""#,
                r#"$.exemptions[0].path: "/a/*" is no exact path: name each, there are no wildcards here"#,
            ),
            (
                r#"{"exemptions": [{}], "descriptors""#,
                r#"$.exemptions[0]: exempts nothing: want "path", "cidr" or both"#,
            ),
            (
                r#"{"exemptions": [7], "descriptors""#,
                r#"$.exemptions[0]: want a path or an object with "path", "cidr" or both, not a number"#,
            ),
            (r#"{"exemptions": "/healthz", "descriptors""#, "$.exemptions: want a list, not a text"),
            (
                r#"{"exemptions": ["/a", {"path": "/a"}], "descriptors""#,
                "$.exemptions[1]: is there twice; keep one",
            ),
            (
                r#"{"exemptions": [{"cidr": "10.0.0.0/33"}], "descriptors""#,
                r#"$.exemptions[0].cidr: "10.0.0.0/33" is no address block: want 0 to 32 bits after the / of an IPv4 block, 0 to 128 of an IPv6 block"#,
            ),
            (
                r#"{"exemptions": [{"path": "/a", "cidr": "10.0.0.1/8"}], "descriptors""#,
                r#"$.exemptions[0].cidr: "10.0.0.1/8" is no address block: the address has bits beyond the block; write 10.0.0.0/8"#,
            ),
            (
                r#"{"exemptions": [{"pth": "/a", "cidr": "::/0"}], "descriptors""#,
                r#"$.exemptions[0].pth: unknown field; did you mean "path"?"#,
            ),
        ],
    );
    let long = format!(r#"{{"exemptions": ["/{}"], "descriptors""#, "x".repeat(9_999));
    assert_eq!(
        with(r#"{"descriptors""#, &long),
        ["$.exemptions[0]: is 10000 bytes long, at most 1024 are allowed"]
    );
    let many = (0..1_001).map(|i| format!(r#""/{i}""#)).collect::<Vec<_>>().join(",");
    assert_eq!(
        with(r#"{"descriptors""#, &format!(r#"{{"exemptions": [{many}], "descriptors""#)),
        ["$.exemptions: has 1001 items, at most 1000 are allowed"]
    );
}

#[test]
fn ca_05_the_rule_for_preflights_is_checked_and_its_name_is_taken() {
    check_all(
        r#"{"descriptors""#,
        &[
            (
                r#"{"corsPreflight": "count", "descriptors""#,
                r#"$.corsPreflight: "count" is not one of "COUNT"; did you mean "COUNT"?"#,
            ),
            (
                r#"{"corsPreflight": true, "descriptors""#,
                r#"$.corsPreflight: want "COUNT" or an object with "capacity" and "refillPerSecond", not a truth value"#,
            ),
            (
                r#"{"corsPreflight": {"capacity": 0, "refillPerSecond": 1}, "descriptors""#,
                "$.corsPreflight.capacity: 0 is out of range, want 1 to 1000000000",
            ),
            (
                r#"{"corsPreflight": {"refillPerSecond": 1}, "descriptors""#,
                "$.corsPreflight.capacity: is missing",
            ),
            (
                r#"{"corsPreflight": {"capacity": 1}, "descriptors""#,
                "$.corsPreflight.refillPerSecond: is missing, want tokens per second",
            ),
            (
                r#"{"corsPreflight": {"capacity": 1, "refillPerSecond": 0}, "descriptors""#,
                "$.corsPreflight.refillPerSecond: is 0, so that a browser would be shut out for good; want more",
            ),
            (
                r#"{"corsPreflight": {"capacity": 9, "refillPerSecond": 1e-10}, "descriptors""#,
                "$.corsPreflight.refillPerSecond: from empty to full takes longer than 400 days; raise refillPerSecond or lower capacity",
            ),
            (
                r#"{"corsPreflight": {"capacity": 9, "refillPerSecond": 1, "key": []}, "descriptors""#,
                r#"$.corsPreflight.key: unknown field, want one of "capacity", "refillPerSecond""#,
            ),
        ],
    );
    assert_eq!(
        with(r#""id": "r""#, r#""id": "cors-preflight""#),
        [
            r#"$.rules[0].id: "cors-preflight" is the rule for preflights, which $.corsPreflight is about; choose another id"#
        ]
    );
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
