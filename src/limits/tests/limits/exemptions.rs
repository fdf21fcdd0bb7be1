//! Which requests no rule looks at, and which rule looks at a preflight.

use crate::support::{Call, RuleExt, applying, call, cidr, one_of, request, rule, set};
use limits::address::Cidr;
use limits::exemption::{Exemption, Exemptions};
use limits::rule::{OnMissingKey, Rule};
use limits::ruleset::RuleSet;

fn exempt(path: Option<&str>, block: Option<&str>) -> Exemption {
    let block = block.map(|block| Cidr::parse(block).unwrap());
    Exemption { path: path.map(|path| path.as_bytes().into()), block }
}

/// A rule for all, with these exemptions from it.
fn exempting(all: impl IntoIterator<Item = Exemption>) -> RuleSet {
    set(&[], vec![rule("all").keyed(&["api_key"], OnMissingKey::Ip)]).exempting(Exemptions::new(all))
}

fn is_exempt(set: &RuleSet, call: &Call) -> bool {
    applying(set, call).is_empty()
}

#[test]
fn a_path_is_exempt_as_it_is_written_and_in_no_other_spelling() {
    let set = exempting([exempt(Some("/healthz"), None), exempt(Some("/a%2Fb"), None)]);
    for path in ["/healthz", "/healthz?", "/healthz?x=/orders", "/a%2Fb"] {
        assert!(is_exempt(&set, &call(path)), "{path}");
    }
    for path in [
        "/healthz/",
        "//healthz",
        "/./healthz",
        "/health%7A",
        "/HEALTHZ",
        "/healthz;x",
        "/healthz#",
        "/healthz/../orders",
        "/a%2fb",
        "/orders?/healthz",
        "",
        "healthz",
        "http://h/healthz",
    ] {
        assert!(!is_exempt(&set, &call(path)), "{path}");
    }
}

#[test]
fn an_address_is_exempt_in_every_form_and_no_header_makes_one() {
    let set = exempting([
        exempt(None, Some("10.0.0.0/8")),
        exempt(None, Some("2001:db8::/126")),
        exempt(Some("/metrics"), Some("192.0.2.1")),
    ]);
    for address in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::3"] {
        assert!(is_exempt(&set, &call("/").from(address)), "{address}");
    }
    assert!(is_exempt(&set, &call("/metrics").from("192.0.2.1")));
    let stranger = call("/").header("x-forwarded-for", "10.1.2.3").header("x-real-ip", "10.1.2.3");
    for call in [
        call("/").from("11.0.0.1"),
        call("/").from("2001:db8::4"),
        call("/").from("192.0.2.1"),
        call("/metrics").from("192.0.2.2"),
        stranger.header("forwarded", "for=10.1.2.3"),
    ] {
        assert!(!is_exempt(&set, &call), "{call:?}");
    }
    let mut nobody = call("/");
    nobody.address = None;
    assert!(!is_exempt(&set, &nobody));
}

#[test]
fn what_is_not_given_is_not_asked_for_and_nothing_given_exempts_nothing() {
    let by_path = exempting([exempt(Some("/healthz"), None), exempt(Some("/metrics"), Some("10.0.0.0/8"))]);
    for path in ["/healthz", "/orders"] {
        let call = call(path).header("x-api-key", "k");
        is_exempt(&by_path, &call);
        assert_eq!(call.asked_address.get(), 0, "{path}");
    }
    assert!(!is_exempt(&exempting([exempt(None, None)]), &call("/")));
    assert!(!is_exempt(&exempting([]), &call("/")));
}

fn preflight() -> Call {
    call("/orders")
        .method("OPTIONS")
        .header("origin", "https://shop.example")
        .header("access-control-request-method", "PUT")
}

fn with_preflights(rules: Vec<Rule>) -> RuleSet {
    set(&[], rules).with_preflights(rule("cors-preflight").keyed(&["ip"], OnMissingKey::Ip))
}

#[test]
fn hh_05_a_preflight_meets_the_rule_for_preflights_alone() {
    let set = with_preflights(vec![rule("all"), rule("options").when("method", one_of(&["OPTIONS"]))]);
    assert_eq!(applying(&set, &preflight()), ["cors-preflight"]);
    let origin = "https://shop.example";
    let requested = "access-control-request-method";
    for (call, wanted) in [
        (call("/orders"), &["all"][..]),
        (call("/orders").method("OPTIONS"), &["all", "options"]),
        (call("/orders").method("OPTIONS").header("origin", origin), &["all", "options"]),
        (call("/orders").method("OPTIONS").header(requested, "PUT"), &["all", "options"]),
        (
            call("/orders").method("OPTIONS").header("origin", origin).header(requested, " "),
            &["all", "options"],
        ),
        (call("/orders").method("GET").header("origin", origin).header(requested, "PUT"), &["all"]),
        (call("/orders").method("options").header("origin", origin).header(requested, "PUT"), &["all"]),
        (preflight().header("origin", origin), &["all", "options"]),
    ] {
        assert_eq!(applying(&set, &call), wanted, "{call:?}");
    }
    let counted = crate::support::set(&[], vec![rule("all")]);
    assert_eq!(applying(&counted, &preflight()), ["all"]);
}

#[test]
fn hh_05_the_rule_for_preflights_has_an_index_and_reads_its_headers() {
    let set = with_preflights(vec![rule("all").keyed(&["ip"], OnMissingKey::Ip)]);
    assert_eq!(set.header_names().join(" "), "access-control-request-method origin");
    assert_eq!(set.rules().len(), 1);
    assert_eq!(&*set.rule(1).unwrap().id, "cors-preflight");
    assert!(set.rule(2).is_none());
    let mut found = Vec::new();
    set.matching(&request(&preflight(), &set), &mut found);
    assert_eq!(found, [0], "who asks for himself says what he asks about");
}

#[test]
fn an_exempt_preflight_is_exempt() {
    let set = with_preflights(vec![rule("all").when("ip", cidr("0.0.0.0/0"))])
        .exempting(Exemptions::new([exempt(Some("/orders"), None)]));
    assert!(is_exempt(&set, &preflight()));
}
