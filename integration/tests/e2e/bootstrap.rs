//! What the shipped bootstrap promises around Kota, with the filter that does nothing in its place: who may pass, who the client is,
//! which path counts.

use kota_integration::bootstrap::Bootstrap;
use kota_integration::{Request, Running, Stack, tokens, tools};
use serde_json::{Value, json};

/// Envoy answers by itself, behind all filters.
pub(crate) fn answer_directly(bootstrap: &mut Bootstrap) {
    let router = bootstrap.filters().len() - 1;
    let answer = json!({
        "name": "answer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "abort": { "http_status": 200, "percentage": { "numerator": 100 } },
        },
    });
    bootstrap.filters().insert(router, answer);
}

/// A stack without sidecar and upstream.
pub(crate) fn bare() -> Stack {
    Stack::new().sidecars(0).without_upstream().module(tools::noop()).bootstrap(answer_directly)
}

fn status(stack: &Running, request: &Request) -> u16 {
    stack.envoy().send(request).status
}

fn bearer(token: &str) -> Request {
    Request::get("/orders").header("authorization", format!("Bearer {token}"))
}

#[test]
fn a_token_may_be_missing_but_not_false() {
    let stack = bare().start();
    assert_eq!(status(&stack, &Request::get("/orders")), 200);
    assert_eq!(status(&stack, &bearer(tokens::ALICE_GOLD)), 200);
    assert_eq!(status(&stack, &bearer(tokens::BOB_FREE)), 200);
    assert_eq!(status(&stack, &bearer(tokens::CAROL_EXPIRED)), 401);
    let forged = tokens::BOB_FREE.replacen("eyJpc3Mi", "eyJJc3Mi", 1);
    assert_eq!(status(&stack, &bearer(&forged)), 401);
}

#[test]
fn one_route_wants_a_known_key() {
    let stack = bare().start();
    let partner = || Request::get("/partners/1");
    assert_eq!(status(&stack, &partner()), 401);
    assert_eq!(status(&stack, &partner().header("x-api-key", "guessed")), 401);
    assert_eq!(status(&stack, &partner().header("x-api-key", "demo-partner-key")), 200);
    assert_eq!(status(&stack, &Request::get("/orders").header("x-api-key", "any")), 200);
}

#[test]
fn a_path_has_one_spelling_and_an_encoded_slash_none() {
    let stack = bare().start();
    let spellings =
        [("//orders", "/orders"), ("/a/../orders", "/orders"), ("/a/./b", "/a/b"), ("/a//b/", "/a/b/")];
    for (i, (sent, seen)) in spellings.into_iter().enumerate() {
        assert_eq!(status(&stack, &Request::get(sent)), 200, "{sent}");
        assert_eq!(stack.envoy().access_log_of(i + 1)[i]["path"], seen, "{sent}");
    }
    for path in ["/a%2fb", "/a%2Fb", "/a%5cb"] {
        assert_eq!(status(&stack, &Request::get(path)), 400, "{path}");
    }
}

#[test]
fn headers_of_60_kib_pass_and_a_forwarded_address_is_not_believed() {
    let stack = bare().start();
    let large =
        Request::get("/").header("x-large", vec![b'x'; 60 * 1024]).header("x-forwarded-for", "203.0.113.7");
    assert_eq!(status(&stack, &large), 200);
    assert_eq!(status(&stack, &Request::get("/").header("x-large", vec![b'x'; 100 * 1024])), 431);
    let log = stack.envoy().access_log_of(1);
    assert_eq!(log[0]["client"], "127.0.0.1");
}

#[test]
fn what_hangs_is_freed_and_streams_live_longer() {
    let stack = bare().start();
    let dump = stack.envoy().admin("/config_dump");
    let dump: Value = serde_json::from_str(&dump).expect("JSON");
    let text = dump.to_string();
    assert!(text.contains(r#""stream_idle_timeout":"30s""#) && text.contains(r#""request_timeout":"60s""#));
    assert!(text.contains(r#""idle_timeout":"3600s""#) && text.contains(r#""failure_policy":"FAIL_RELOAD""#));
}
