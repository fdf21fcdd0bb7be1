//! Which rules apply, one table per subject.

use crate::support::{
    Call, RuleExt, call, cidr, descriptors, id, ids, matched, one_of, prefix, request, rule, set,
};
use limits::key::Key;
use limits::request::{Given, Values};
use limits::rule::{OnMissingKey, RULES_PER_REQUEST_MAX, Test};
use limits::ruleset::RuleSet;

fn check(set: &RuleSet, cases: &[(Call, &[&str])]) {
    for (call, wanted) in cases {
        assert_eq!(matched(set, call), *wanted, "{call:?}");
    }
}

#[test]
fn every_kind_of_condition() {
    let set = set(
        &[],
        vec![
            rule("all"),
            rule("gold").when("plan", one_of(&["gold"])),
            rule("paid").when("plan", one_of(&["silver", "gold"])),
            rule("planless").when("plan", Test::Absent),
            rule("v1").when("path", prefix("/v1/")),
            rule("v1-and-v10").when("path", prefix("/v1")),
            rule("inside").when("ip", cidr("10.0.0.0/8")),
            rule("never").when("plan", one_of(&[])),
        ],
    );
    check(
        &set,
        &[
            (call("/"), &["all", "planless"]),
            (call("/").header("x-plan", "gold"), &["all", "gold", "paid"]),
            (call("/").header("x-plan", " gold\t"), &["all", "gold", "paid"]),
            (call("/").header("x-plan", "Gold"), &["all"]),
            (call("/").header("x-plan", "silver"), &["all", "paid"]),
            (call("/").header("x-plan", ""), &["all", "planless"]),
            (call("/").header("x-plan", "  "), &["all", "planless"]),
            (call("/").header("x-plan", b"\xff"), &["all"]),
            (call("/").header("x-plan", "gold").header("x-plan", "iron"), &["all", "planless"]),
            (call("/v1/x"), &["all", "planless", "v1", "v1-and-v10"]),
            (call("/v1"), &["all", "planless", "v1", "v1-and-v10"]),
            (call("/v1/"), &["all", "planless", "v1", "v1-and-v10"]),
            (call("/v10"), &["all", "planless", "v1-and-v10"]),
            (call("/").from("10.1.2.3"), &["all", "planless", "inside"]),
            (call("/").from("::ffff:10.1.2.3"), &["all", "planless", "inside"]),
        ],
    );
}

#[test]
fn mk_01_every_spelling_meets_the_same_rules() {
    let set = set(
        &["* /**"],
        vec![
            rule("by-route").when("route", one_of(&["* /v1/login"])),
            rule("by-path").when("path", one_of(&["/v1/login/"])),
            rule("by-prefix").when("path", prefix("/v1//login/")),
        ],
    );
    for path in [
        "/v1/login",
        "//v1/login",
        "/v1//login",
        "/v1/login/",
        "/v1/./login",
        "/v1/%6Cogin",
        "/x/../v1/login",
    ] {
        assert_eq!(matched(&set, &call(path)), ["by-route", "by-path", "by-prefix"], "{path}");
    }
}

#[test]
fn mk_03_a_query_dodges_no_rule() {
    let set = set(
        &[],
        vec![rule("search").when("path", one_of(&["/search"])).keyed(&["path"], OnMissingKey::Skip)],
    );
    for path in ["/search", "/search?x=1", "/search?x=2", "/search?", "/search#f"] {
        let call = call(path);
        assert_eq!(matched(&set, &call), ["search"], "{path}");
        assert_eq!(request(&call, &set).value(id("path")), Some(&b"/search"[..]), "{path}");
    }
}

#[test]
fn mk_11_equal_limits_on_two_paths_are_two_rules() {
    let on = |name: &str, path| rule(name).when("path", one_of(&[path])).keyed(&["ip"], OnMissingKey::Ip);
    let set = set(&[], vec![on("a", "/a"), on("b", "/b")]);
    check(&set, &[(call("/a"), &["a"]), (call("/b"), &["b"]), (call("/c"), &[])]);
}

#[test]
fn mk_16_all_conditions_must_hold_in_whatever_order() {
    let free = || one_of(&["free"]);
    let set = set(
        &[],
        vec![
            rule("plan-first").when("plan", free()).when("ip", cidr("10.0.0.0/8")),
            rule("block-first").when("ip", cidr("10.0.0.0/8")).when("plan", free()),
        ],
    );
    check(
        &set,
        &[
            (call("/").header("x-plan", "free").from("10.9.9.9"), &["plan-first", "block-first"]),
            (call("/").header("x-plan", "free").from("11.9.9.9"), &[]),
            (call("/").header("x-plan", "paid").from("10.9.9.9"), &[]),
            (call("/").from("11.9.9.9"), &[]),
        ],
    );
}

#[test]
fn an_address_matches_in_every_way_it_can_be_written() {
    let set = set(
        &[],
        vec![
            rule("one").when("ip", one_of(&["203.0.113.7"])),
            rule("six").when("ip", one_of(&["2001:db8::1"])),
            rule("sixty-four").when("ip", one_of(&["2001:db8::/64"])),
            rule("client").when("client", cidr("2001:db8::/32")),
            rule("header").when("user", cidr("10.0.0.0/8")),
            rule("nested").when("ip", one_of(&["198.51.0.0/16", "198.51.100.0/24", "198.51.100.9"])),
        ],
    );
    check(
        &set,
        &[
            (call("/"), &["one"]),
            (call("/").from("198.51.100.9"), &["nested"]),
            (call("/").from("2001:db8::1"), &["six", "sixty-four", "client"]),
            (call("/").from("2001:db8::2"), &["sixty-four", "client"]),
            (call("/").from("2001:db8:0:1::1"), &["client"]),
            (
                call("/").header("x-user", "[::ffff:10.0.0.1]:80").from("2001:db8::2"),
                &["sixty-four", "header"],
            ),
        ],
    );
}

#[test]
fn a_route_that_a_rule_names_counts_beside_the_configured_ones() {
    let set = set(
        &["GET /orders/{id}", "* /public/**"],
        vec![
            rule("orders").when("route", one_of(&["GET /orders/{number}"])),
            rule("create").when("route", one_of(&["POST /orders"])),
            rule("routeless").when("route", Test::Absent),
        ],
    );
    check(
        &set,
        &[
            (call("/orders/1"), &["orders"]),
            (call("/orders").method("POST"), &["create"]),
            (call("/public/x"), &[]),
            (call("/orders"), &["routeless"]),
        ],
    );
}

#[test]
fn of_too_many_rules_the_first_apply() {
    let many = (0..100).map(|n| rule(&format!("r{n}")).when("plan", one_of(&["gold"])));
    let set = set(&[], many.chain((100..200).map(|n| rule(&format!("r{n}")))).collect());
    let wanted: Vec<_> = (0..RULES_PER_REQUEST_MAX).map(|n| format!("r{n}")).collect();
    assert_eq!(matched(&set, &call("/").header("x-plan", "gold")), wanted);
    assert_eq!(matched(&set, &call("/"))[0], "r100");
}

#[test]
fn mk_14_an_exception_takes_the_place_of_the_default() {
    let set = set(
        &[],
        vec![
            rule("default").keyed(&["user"], OnMissingKey::Ip).in_group("quota", 0),
            rule("exception")
                .when("user", one_of(&["client-a"]))
                .keyed(&["user"], OnMissingKey::Ip)
                .in_group("quota", 10),
            rule("beside"),
        ],
    );
    check(
        &set,
        &[
            (call("/").header("x-user", "client-a"), &["exception", "beside"]),
            (call("/").header("x-user", "client-z"), &["default", "beside"]),
            (call("/"), &["default", "beside"]),
        ],
    );
}

#[test]
fn of_equal_priorities_the_first_in_the_file_wins_and_groups_do_not_mix() {
    let set = set(
        &[],
        vec![
            rule("low").in_group("g", 1),
            rule("first").in_group("g", 2),
            rule("second").in_group("g", 2),
            rule("other").in_group("h", 0),
            rule("free"),
        ],
    );
    assert_eq!(matched(&set, &call("/")), ["first", "other", "free"]);
}

#[test]
fn a_shadow_rule_applies_where_it_would_win_and_displaces_nothing() {
    let set = set(
        &[],
        vec![
            rule("best").shadow().in_group("g", 3),
            rule("good").shadow().in_group("g", 2),
            rule("enforced").in_group("g", 2),
            rule("late").shadow().in_group("g", 2),
            rule("less").in_group("g", 1),
            rule("least").shadow().in_group("g", 0),
        ],
    );
    assert_eq!(matched(&set, &call("/")), ["best", "enforced"], "good would lose to best");
}

#[test]
fn of_several_shadow_rules_of_a_group_the_best_applies() {
    let alone = vec![rule("good").shadow().in_group("g", 2), rule("best").shadow().in_group("g", 3)];
    assert_eq!(matched(&set(&[], alone), &call("/")), ["best"], "with nothing enforced");
    let best_skipped = set(
        &[],
        vec![
            rule("best").shadow().keyed(&["api_key"], OnMissingKey::Skip).in_group("g", 3),
            rule("good").shadow().in_group("g", 2),
            rule("enforced").in_group("g", 1),
            rule("other").shadow().in_group("h", 0),
        ],
    );
    assert_eq!(matched(&best_skipped, &call("/")), ["good", "enforced", "other"]);
}

#[test]
fn what_is_skipped_for_lack_of_its_key_displaces_nothing_and_takes_no_room() {
    let skips = |name: &str| rule(name).keyed(&["ip", "api_key"], OnMissingKey::Skip).in_group("g", 5);
    let set_of = |rules| set(&[], rules);
    let grouped = set_of(vec![rule("default").in_group("g", 0), skips("keyed")]);
    assert_eq!(matched(&grouped, &call("/")), ["default"]);
    assert_eq!(matched(&grouped, &call("/").header("x-api-key", "k")), ["keyed"]);
    let many =
        (0..RULES_PER_REQUEST_MAX).map(|n| rule(&format!("s{n}")).keyed(&["api_key"], OnMissingKey::Skip));
    let crowded = set_of(many.chain([rule("last")]).collect());
    assert_eq!(matched(&crowded, &call("/")), ["last"]);
}

#[test]
fn a_group_is_resolved_before_rules_are_cut_off() {
    let many = (0..100).map(|n| rule(&format!("g{n}")).in_group("g", n));
    let first = (0..RULES_PER_REQUEST_MAX - 1).map(|n| rule(&format!("r{n}")));
    let set = set(&[], first.chain(many).chain([rule("last")]).collect());
    let found = matched(&set, &call("/"));
    assert_eq!((found.len(), found[RULES_PER_REQUEST_MAX - 1]), (RULES_PER_REQUEST_MAX, "g99"));
}

#[test]
fn only_headers_that_rules_read_are_named() {
    let ip = |name: &str| rule(name).keyed(&["ip"], OnMissingKey::Ip);
    let names = |rules| set(&[], rules).header_names().join(" ");
    assert_eq!(names(vec![ip("a")]), "");
    assert_eq!(names(vec![ip("a").when("plan", Test::Absent)]), "x-plan");
    assert_eq!(names(vec![rule("client")]), "x-api-key x-user");
    assert_eq!(
        names(vec![rule("client"), rule("b").keyed(&["region", "user"], OnMissingKey::Ip)]),
        "x-api-key x-region x-user"
    );
}

#[test]
fn cookies_are_kept_only_for_a_rule_that_reads_one() {
    let by = |name: &str| set(&[], vec![rule("r").keyed(&[name], OnMissingKey::Ip)]).reads_cookies();
    assert_eq!((by("session"), by("api_key"), by("tenant")), (true, false, false));
}

#[test]
fn a_claim_is_asked_for_once_and_only_if_needed() {
    let by_plan = rule("gold").when("plan", one_of(&["gold"])).when("org", one_of(&["42"]));
    let by_sub = rule("vip").when("sub", one_of(&["u1"])).keyed(&["sub"], OnMissingKey::Ip);
    let (plan, both) = (set(&[], vec![by_plan.clone()]), set(&[], vec![by_plan, by_sub]));
    let call = call("/").claim("sub", "u1").claim("org", 42_f64.to_le_bytes());
    assert_eq!(matched(&plan, &call.clone().header("x-plan", "gold")), ["gold"]);
    let request = request(&call, &both);
    assert_eq!(ids(&both, &request), ["vip"]);
    assert!(matches!(both.key(both.rule(1).unwrap(), &request), Key::Parts(_)));
    assert_eq!(ids(&both, &request), ["vip"]);
    assert_eq!(call.asked_claims.get(), 1, "of `org` nothing is asked: the plan tells enough");
}

#[test]
fn the_address_is_asked_for_once_and_only_if_needed() {
    let by_plan = rule("gold").when("plan", one_of(&["gold"]));
    let by_block = rule("inside").when("ip", cidr("203.0.113.0/24")).when("plan", Test::Absent);
    let (plan, both) = (set(&[], vec![by_plan.clone()]), set(&[], vec![by_plan, by_block]));
    let call = call("/");
    matched(&plan, &call);
    assert_eq!(call.asked_address.get(), 0);
    let request = request(&call, &both);
    assert_eq!(ids(&both, &request), ["inside"]);
    assert!(matches!(both.key(both.rule(1).unwrap(), &request), Key::Parts(_)));
    assert_eq!(call.asked_address.get(), 1);
}

#[test]
fn given_values_match_as_those_of_a_request() {
    let set = set(
        &[],
        vec![
            rule("login").when("path", one_of(&["/v1/login"])).when("host", one_of(&["API.example.com:443"])),
            rule("inside").when("ip", cidr("2001:db8::1/128")),
            rule("keyless").when("api_key", Test::Absent),
            rule("order").when("route", one_of(&["GET /orders/{id}"])),
        ],
    );
    let descriptors = descriptors();
    let given = |values: &[(&str, &str)]| {
        let values: Vec<_> = values.iter().map(|(name, value)| (id(name), value.as_bytes())).collect();
        Given::new(&descriptors, set.routes(), values)
    };
    let same = given(&[
        ("path", "//v1/%6cogin/?q"),
        ("host", "api.EXAMPLE.com."),
        ("ip", "2001:db8::1"),
        ("api_key", " "),
    ]);
    assert_eq!(ids(&set, &same), ["login", "inside", "keyless"]);
    assert_eq!(same.kind_and_value(id("client")), Some((id("ip"), &b"2001:db8::/64"[..])));
    let keyed = given(&[("api_key", "k"), ("ip", "2001:db8::2")]);
    assert_eq!(ids(&set, &keyed), [""; 0]);
    assert_eq!(keyed.kind_and_value(id("client")), Some((id("api_key"), &b"k"[..])));
    for order in [
        &[("api_key", "k"), ("route", "GET /orders/{number}")][..],
        &[("api_key", "k"), ("method", "GET"), ("path", "/orders/7/")],
    ] {
        assert_eq!(ids(&set, &given(order)), ["order"], "{order:?}");
    }
    assert_eq!(given(&[("route", "GET /other")]).value(id("route")), Some(&b"GET /other"[..]));
    assert_eq!(given(&[]).kind_and_value(id("client")), None);
    assert_eq!(given(&[("client", "c")]).value(id("client")), Some(&b"c"[..]));
}
