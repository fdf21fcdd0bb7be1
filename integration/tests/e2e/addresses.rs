//! Who the client is when X-Forwarded-For says something: MK-04.

use kota_integration::stack::with_rules;
use kota_integration::{Client, Request, Running, Stack};
use serde_json::{Value, json};

use crate::support::{first_pass, merge, statuses, window};

const CAPACITY: usize = 5;
const VICTIM: &str = "198.51.100.1";

/// Who counts the hops: Envoy, as shipped, or the filter's own `trustedHops`.
#[derive(Debug, Clone, Copy)]
enum Counted {
    ByEnvoy,
    ByFilter,
}

fn start(hops: u64, counted: Counted) -> Running {
    let mut config = with_rules(json!([window("each", CAPACITY as u64, json!({ "key": ["ip"] }))]));
    match counted {
        Counted::ByEnvoy => Stack::new().config(config).bootstrap(move |bootstrap| {
            merge(bootstrap.http(), json!({ "xff_num_trusted_hops": hops }));
        }),
        Counted::ByFilter => {
            merge(&mut config["descriptors"], json!({ "ip": { "trustedHops": hops } }));
            Stack::new().config(config)
        }
    }
    .start()
}

/// What Envoy sees if so many proxies stand before it: each appends the address that it was called from.
fn through(hops: u64, said_by_client: &str, client: &str) -> Request {
    let proxies = (1..hops).map(|i| format!("10.0.0.{i}"));
    let appended = (hops > 0).then(|| client.to_owned()).into_iter().chain(proxies);
    let said = (!said_by_client.is_empty()).then(|| said_by_client.to_owned());
    let entries: Vec<_> = said.into_iter().chain(appended).collect();
    let request = Request::get("/");
    if entries.is_empty() { request } else { request.header("x-forwarded-for", entries.join(", ")) }
}

fn passed(client: &mut Client, requests: impl Iterator<Item = Request>) -> usize {
    requests.filter(|request| client.send(request).status == 200).count()
}

#[test]
fn mk_04_a_forwarded_address_is_believed_as_far_as_it_is_trusted() {
    for hops in 0..=2 {
        for counted in [Counted::ByEnvoy, Counted::ByFilter] {
            let stack = start(hops, counted);
            let mut client = stack.envoy().client();
            let attacker = "203.0.113.9";
            let rotating = (0..50).map(|i| through(hops, &format!("192.0.2.{i}"), attacker));
            assert_eq!(passed(&mut client, rotating), CAPACITY, "{hops} {counted:?}: rotating gains nothing");
            let as_victim = (0..10).map(|_| through(hops, VICTIM, attacker));
            assert_eq!(passed(&mut client, as_victim), 0, "{hops} {counted:?}");
            if hops > 0 {
                let victim = through(hops, "", VICTIM);
                assert_eq!(
                    statuses(&mut client, &victim, CAPACITY + 1),
                    first_pass(CAPACITY, 1),
                    "{hops} {counted:?}"
                );
            }
        }
    }
}

#[test]
fn mk_04_lines_of_one_header_are_one_list() {
    for counted in [Counted::ByEnvoy, Counted::ByFilter] {
        let stack = start(1, counted);
        let mut client = stack.envoy().client();
        let lines = (0..20).map(|i| {
            let said = Request::get("/").header("x-forwarded-for", format!("192.0.2.{i}"));
            said.header("x-forwarded-for", "203.0.113.9")
        });
        assert_eq!(passed(&mut client, lines), CAPACITY, "{counted:?}");
    }
}

#[test]
fn mk_04_too_few_entries_name_the_one_who_called() {
    for counted in [Counted::ByEnvoy, Counted::ByFilter] {
        let stack = start(2, counted);
        let mut client = stack.envoy().client();
        let short = (0..20).map(|i| Request::get("/").header("x-forwarded-for", format!("192.0.2.{i}")));
        assert_eq!(passed(&mut client, short), CAPACITY, "{counted:?}");
        assert_eq!(client.send(&Request::get("/")).status, 429, "{counted:?}");
    }
}

#[test]
fn mk_04_by_default_nobody_is_trusted() {
    let config: Value = with_rules(json!([window("each", 1, json!({ "key": ["ip"] }))]));
    let stack = Stack::new().config(config).start();
    let mut client = stack.envoy().client();
    let pretending = |name: &str| Request::get("/").header(name, VICTIM);
    assert_eq!(client.send(&Request::get("/")).status, 200);
    for name in ["x-forwarded-for", "x-real-ip", "forwarded", "x-envoy-external-address", "true-client-ip"] {
        assert_eq!(client.send(&pretending(name)).status, 429, "{name}");
    }
}

#[test]
fn mk_04_an_address_is_one_client_however_it_is_written() {
    let mut config = with_rules(json!([window("address", 2, json!({ "key": ["ip"] }))]));
    merge(&mut config["descriptors"], json!({ "ip": { "trustedHops": 1 } }));
    let stack = Stack::new().config(config).start();
    let mut client = stack.envoy().client();
    let mut by = |addresses: &[&str]| {
        let from = |address: &&str| client.send(&Request::get("/").header("x-forwarded-for", address)).status;
        addresses.iter().map(from).collect::<Vec<_>>()
    };
    assert_eq!(
        by(&["2001:db8:1:2::1", "2001:DB8:1:2::2", "2001:db8:1:2:ffff::3"]),
        first_pass(2, 1),
        "a /64"
    );
    assert_eq!(by(&["2001:db8:1:3::1"]), [200], "the next one");
    assert_eq!(by(&["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"]), first_pass(2, 1), "IPv4 in IPv6");
    assert_eq!(by(&["192.0.2.2"]), [200]);
}
