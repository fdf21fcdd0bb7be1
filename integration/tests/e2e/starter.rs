//! The rules that Kota ships with (envoy/rules.json): each does what the README says of it, and nobody gets more by inventing a key or a plan.

use std::fs;
use std::process::Command;

use kota_integration::bootstrap::{Bootstrap, Endpoint, Places};
use kota_integration::{Client, Request, Running, Stack, tokens, tools, wait};
use serde_json::Value;

use crate::slots::{begin, finish};
use crate::support::{first_pass, fresh_key, statuses, tells_no_numbers};

/// The shipped rules, and three pods of them on one Redis.
fn pods() -> Running {
    Stack::new().redis().sidecars(3).envoys(3).deadline_ms(5000).start()
}

fn rules_file() -> Value {
    let path = tools::root().join("envoy/rules.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn as_alice(request: Request) -> Request {
    request.header("authorization", format!("Bearer {}", tokens::ALICE_GOLD))
}

fn as_bob(request: Request) -> Request {
    request.header("authorization", format!("Bearer {}", tokens::BOB_FREE))
}

fn left(stack: &Running, request: &Request) -> u64 {
    let answer = stack.envoy().send(request);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-ratelimit-remaining").and_then(|left| left.parse().ok()).expect("a number")
}

/// Sends requests in a row until one is denied: how many passed, and the policies that the denial names.
fn until_denied(client: &mut Client, request: &Request) -> (usize, String) {
    for passed in 0..1000 {
        let answer = client.send(request);
        if answer.status == 429 {
            return (passed, answer.json()["violated-policies"].to_string());
        }
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    panic!("a thousand requests passed");
}

#[test]
fn the_file_is_the_configuration_of_the_bootstrap_and_valid() {
    let nowhere = Endpoint::Unix("/nonexistent".into());
    let places = Places { listener: 1, admin: 2, echo: 3, sidecar: nowhere, filter: "/nonexistent".into() };
    assert_eq!(Bootstrap::shipped(&places).configuration(), rules_file());
    let output =
        Command::new(tools::kota()).arg("validate").arg(tools::root().join("envoy/rules.json")).output();
    let output = output.expect("kota can be started");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "the shipped rules trust no client's word");
}

#[test]
fn gold_orders_and_all_of_golds_requests_are_charged_together() {
    let stack = pods();
    let (order, look) = (as_alice(Request::post("/orders")), as_alice(Request::get("/orders/7")));
    let mut client = stack.envoys[0].client();
    let (orders, violated) = until_denied(&mut client, &order);
    assert!(orders >= 100 && violated == r#"["gold-orders-create"]"#, "{orders} passed, then {violated}");
    let denied = stack.kota("denied.gold-orders-create");
    // Whatever was denied cost gold-global nothing: it has lost the orders that passed, and this look.
    for envoy in &stack.envoys {
        assert_eq!(envoy.send(&look).status, 200);
    }
    assert_eq!(stack.kota("allowed.gold-global"), orders as u64 + 3);
    assert_eq!((denied, stack.kota("denied.gold-global")), (1, 0));
    let (_, violated) = until_denied(&mut stack.envoys[1].client(), &look);
    assert_eq!(violated, r#"["gold-global"]"#);
    let answer = stack.envoys[2].send(&order);
    let policies = answer.header("ratelimit-policy").unwrap_or_default().to_owned();
    assert_eq!(policies, r#""gold-orders-create";q=600;w=60, "gold-global";q=1200;w=60"#);
    // Another's requests are another's.
    assert!(tells_no_numbers(&stack.envoy().send(&as_bob(Request::post("/orders")))));
}

#[test]
fn who_has_not_proved_who_they_are_is_counted_by_address() {
    let stack = pods();
    let mut client = stack.envoy().client();
    for n in 0..60 {
        let request = match n % 4 {
            0 => Request::get("/things"),
            1 => Request::post("/orders").header("x-api-key", fresh_key()),
            2 => Request::get(format!("/things/{n}")).header("x-plan", "gold").header("x-user", fresh_key()),
            _ => Request::get("/things").header("x-forwarded-for", format!("192.0.2.{n}")),
        };
        assert_eq!(client.send(&request).status, 200, "{n}");
    }
    let invented = Request::get("/things").header("x-api-key", fresh_key()).header("x-plan", "gold");
    assert_eq!(client.send(&invented).status, 429, "an invented key or plan brings nothing");
    assert_eq!(stack.envoys[1].send(&Request::post("/orders")).status, 429, "in all pods");
    // Who has a token, and the partner whose key Envoy knows, are not anonymous.
    assert_eq!(client.send(&as_bob(Request::get("/things"))).status, 200);
    let partner = |key: &str| Request::get("/partners/1").header("x-api-key", key);
    assert_eq!(client.send(&partner("demo-partner-key")).status, 200);
    assert_eq!(client.send(&partner(&fresh_key())).status, 401);
    assert_eq!(client.send(&Request::get("/things").header("authorization", "Bearer invented")).status, 401);
    assert_eq!(statuses(&mut client, &Request::get("/healthz"), 3), [200; 3], "health checks go on");
}

#[test]
fn two_reports_at_a_time_are_made_for_each() {
    let stack = pods();
    let report = || Request::get("/reports/7");
    let mut held: Vec<_> = (0..2).map(|i| begin(&stack.envoys[i], as_bob(report()))).collect();
    wait::until_true("both are under way", || stack.kota("allowed.reports") == 2);
    let denied = stack.envoys[2].send(&as_bob(report()));
    assert_eq!(
        (denied.status, denied.json()["violated-policies"].to_string()),
        (429, r#"["reports"]"#.to_owned())
    );
    assert_eq!(stack.envoys[2].send(&as_alice(report())).status, 200, "each has two");
    assert_eq!(stack.envoys[2].send(&report()).status, 200, "and each address without a token");
    assert_eq!(finish(&mut held[0]).expect("an answer").status, 200);
    wait::until_true("one has ended", || stack.envoys[2].send(&as_bob(report())).status == 200);
}

#[test]
fn sensitive_requests_are_few_and_refused_where_nobody_counts_them() {
    let stack = pods();
    let mut client = stack.envoy().client();
    for path in ["/login", "/sms-codes", "/coupons/redeem"] {
        assert_eq!(statuses(&mut client, &Request::post(path), 6), first_pass(5, 1), "{path}");
        assert_eq!(
            client.send(&as_alice(Request::post(path))).status,
            429,
            "{path}: a token changes nothing"
        );
        assert_eq!(client.send(&as_alice(Request::get(path))).status, 200, "{path}");
    }
    let order = as_alice(Request::post("/orders"));
    left(&stack, &order);
    stack.redis().process().kill();
    let refused = client.send(&Request::post("/login"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(client.send(&order).status, 200, "the others let pass");
}
