//! Whose bucket a request takes its tokens from.

use crate::support::{Call, RuleExt, call, id, request, rule, set};
use limits::descriptor::Descriptors;
use limits::key::Key;
use limits::rule::OnMissingKey::{self, Deny, Ip, Shared, Skip};

/// The key of a rule with these key descriptors, as text.
fn key(call: &Call, parts: &[&str], on_missing_key: OnMissingKey) -> String {
    let set = set(&["GET /orders/{id}"], vec![rule("r").keyed(parts, on_missing_key)]);
    let request = request(call, &set);
    match set.key(set.rule(0).unwrap(), &request) {
        Key::Skip => "skip".into(),
        Key::Deny => "deny".into(),
        Key::Parts(parts) => {
            let text = parts.as_slice().iter().map(|(kind, value)| {
                let kind = &set.descriptors().get(*kind).unwrap().name;
                value.map_or(format!("{kind}!"), |value| format!("{kind}={}", value.escape_ascii()))
            });
            text.collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn a_client_is_the_first_present_of_its_kinds() {
    for (call, wanted) in [
        (call("/"), "ip=203.0.113.7"),
        (call("/").header("x-user", "u"), "user=u"),
        (call("/").header("x-user", "u").header("x-api-key", "k"), "api_key=k"),
        (call("/").header("x-user", "u").header("x-api-key", " "), "user=u"),
        (call("/").header("x-api-key", "k").header("x-api-key", "l"), "ip=203.0.113.7"),
        (call("/").header("x-api-key", b"\xff\0"), r"api_key=\xff\x00"),
        (call("/").header("x-api-key", " k "), "api_key=k"),
    ] {
        assert_eq!(key(&call, &["client"], Ip), wanted, "{call:?}");
    }
}

#[test]
fn mk_07_an_empty_key_is_a_missing_key() {
    let keyless = [
        call("/"),
        call("/").header("x-api-key", ""),
        call("/").header("x-api-key", "   "),
        call("/").header("x-api-key", "\t"),
        call("/").header("x-api-key", "one").header("x-api-key", "two"),
    ];
    for call in &keyless {
        for (on_missing_key, wanted) in
            [(Ip, "ip=203.0.113.7"), (Skip, "skip"), (Shared, "api_key!"), (Deny, "deny")]
        {
            assert_eq!(key(call, &["api_key"], on_missing_key), wanted, "{call:?}");
        }
    }
    for on_missing_key in [Ip, Skip, Shared, Deny] {
        assert_eq!(key(&call("/").header("x-api-key", "k"), &["api_key"], on_missing_key), "api_key=k");
    }
}

#[test]
fn only_the_missing_part_is_replaced() {
    let call = call("/orders/7").header("x-plan", "gold");
    for (parts, on_missing_key, wanted) in [
        (&["plan", "api_key"][..], Ip, "plan=gold ip=203.0.113.7"),
        (&["plan", "api_key"], Shared, "plan=gold api_key!"),
        (&["api_key", "plan"], Skip, "skip"),
        (&["plan", "api_key"], Deny, "deny"),
        (&["route", "method", "host"], Deny, "route=GET /orders/{id} method=GET host=api.example.com"),
        (&["path", "envoy_route"], Deny, "path=/orders/7 envoy_route=orders-cluster"),
        (&[], Deny, ""),
    ] {
        assert_eq!(key(&call, parts, on_missing_key), wanted, "{parts:?}");
    }
}

#[test]
fn without_any_address_what_is_missing_is_shared() {
    let mut call = call("/");
    call.address = None;
    assert_eq!(key(&call, &["api_key"], Ip), "api_key!");
    assert_eq!(key(&call, &["client"], Ip), "client!");
    assert_eq!(key(&call, &["client"], Deny), "deny");
}

#[test]
fn an_ipv6_client_owns_its_64() {
    for address in ["2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"] {
        assert_eq!(key(&call("/").from(address), &["ip"], Ip), "ip=2001:db8:1:2::/64");
    }
    assert_eq!(key(&call("/").from("::ffff:203.0.113.7"), &["ip"], Ip), "ip=203.0.113.7");
}

#[test]
fn a_query_a_cookie_and_a_claim_make_buckets() {
    let claimed = |name, value: &[u8]| call("/").claim(name, value);
    for (call, part, wanted) in [
        (call("/?x=1&tenant=acme"), "tenant", "tenant=acme"),
        (call("/?%74enant=%61cme+%20"), "tenant", "tenant=acme"),
        (call("/?tenant=+"), "tenant", "skip"),
        (call("/?tenant=a&tenant=a"), "tenant", "skip"),
        (call("/tenant=a"), "tenant", "skip"),
        (call("/").header("cookie", "a=1; sid=s1"), "session", "session=s1"),
        (call("/").header("cookie", "a=1").header("cookie", "sid=\"%731\""), "session", "session=s1"),
        (call("/").header("cookie", "sid=s1").header("cookie", "sid=s1"), "session", "skip"),
        (call("/").header("cookie", "sid="), "session", "skip"),
        (call("/"), "session", "skip"),
        (claimed("sub", b"u 1"), "sub", "sub=u 1"),
        (claimed("sub", b" "), "sub", "skip"),
        (claimed("org", &42_f64.to_le_bytes()), "org", "org=42"),
        (claimed("sub", b"u1"), "org", "skip"),
    ] {
        assert_eq!(key(&call, &[part], Skip), wanted, "{call:?}");
    }
}

#[test]
fn a_key_is_one_whatever_the_spelling_of_the_request() {
    let keys: Vec<_> = ["/orders/7", "//orders/7/?x", "/ORDERS/7", "/orders/%37"]
        .map(|path| key(&call(path), &["route"], Deny))
        .to_vec();
    assert_eq!(keys, ["route=GET /orders/{id}"; 4]);
}

#[test]
fn the_constants_name_the_built_in_descriptors() {
    for (name, constant) in [
        ("ip", Descriptors::IP),
        ("method", Descriptors::METHOD),
        ("path", Descriptors::PATH),
        ("route", Descriptors::ROUTE),
        ("client", Descriptors::CLIENT),
    ] {
        assert_eq!(id(name), constant, "{name}");
    }
}
