//! `POST /v1/check`.

use crate::server::{Reply, Server};
use kota_integration::workdir::free_port;
use protocol::batch::Answer;
use serde_json::{Value, json};

const RULES: &str = r#"{
    "domain": "public-api",
    "descriptors": { "api_key": { "header": "x-api-key", "secret": true }, "plan": { "header": "x-plan" } },
    "routes": ["POST /orders"],
    "rules": [
        { "id": "ten", "match": { "route": "POST /orders" }, "key": ["api_key"], "algorithm": "TOKEN_BUCKET",
          "capacity": 10, "refillPerSecond": 0.001, "onMissingKey": "DENY" },
        { "id": "gold", "match": { "plan": "gold" }, "algorithm": "TOKEN_BUCKET", "capacity": 3, "refillPerSecond": 0.001 },
        { "id": "watch", "match": { "plan": "gold" }, "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 0.001,
          "mode": "SHADOW" },
        { "id": "addresses", "match": { "route": "* /sw1" }, "key": ["ip"], "algorithm": "TOKEN_BUCKET", "capacity": 9, "refillPerSecond": 0.001 }
    ] }"#;

async fn server() -> Server {
    Server::start_with(None, Some(RULES), rustix::process::geteuid().as_raw()).await
}

async fn check(server: &Server, body: &Value) -> Reply {
    server.back("POST", "/v1/check", body.to_string().as_bytes()).await
}

fn order(key: &str) -> Value {
    json!({ "domain": "public-api", "descriptors": [{ "api_key": key }, { "route": "POST /orders" }] })
}

#[tokio::test]
async fn a_check_is_allowed_then_denied_with_the_wait() {
    let server = server().await;
    let reply = check(&server, &order("k_1")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json(),
        json!({ "decision": "ALLOW", "remaining": 9, "retryAfterMs": 0, "matchedRule": "ten" })
    );
    let mut all = order("k_1");
    all["cost"] = json!(9);
    assert_eq!(check(&server, &all).await.json()["remaining"], 0);
    let reply = check(&server, &order("k_1")).await;
    assert_eq!(reply.status, 200);
    let denied = reply.json();
    assert_eq!((&denied["decision"], &denied["matchedRule"]), (&json!("DENY"), &json!("ten")));
    assert!((900_000..=1_000_000).contains(&denied["retryAfterMs"].as_u64().unwrap()), "{denied}");
}

#[tokio::test]
async fn the_nearest_rule_is_named_and_never_has_no_wait() {
    let server = server().await;
    let both =
        json!({ "descriptors": [{ "api_key": "k_1", "plan": "gold", "route": "POST /orders" }], "cost": 1 });
    let allowed = check(&server, &both).await.json();
    assert_eq!((&allowed["matchedRule"], &allowed["remaining"]), (&json!("gold"), &json!(2)));
    let mut much = both;
    much["cost"] = json!(4);
    let never = check(&server, &much).await.json();
    assert_eq!(
        never,
        json!({ "decision": "DENY", "remaining": 2, "retryAfterMs": null, "matchedRule": "gold" })
    );
    let free = json!({ "descriptors": [{ "plan": "silver" }] });
    let allowed = check(&server, &free).await.json();
    assert_eq!(
        allowed,
        json!({ "decision": "ALLOW", "remaining": null, "retryAfterMs": 0, "matchedRule": null })
    );
    let keyless = json!({ "descriptors": [{ "route": "POST /orders" }] });
    let denied = check(&server, &keyless).await.json();
    assert_eq!((&denied["decision"], &denied["matchedRule"]), (&json!("DENY"), &json!("ten")));
}

/// Whoever asks, it is one bucket.
#[tokio::test]
async fn a_check_and_the_filter_take_from_the_same_bucket() {
    let server = server().await;
    check(&server, &order("k_1")).await;
    let answer = server.decide("k_1").await;
    assert!(matches!(&answer, Answer::Admitted(outcomes) if outcomes[0].left == 8), "{answer:?}");
    assert_eq!(check(&server, &order("k_1")).await.json()["remaining"], 7);
}

#[tokio::test]
async fn what_is_no_check_is_refused_with_every_fault() {
    let server = server().await;
    let conflict = json!({ "descriptors": [{ "api_key": "k_1" }, { "api_key": "k_2" }], "costs": 1 });
    let reply = check(&server, &conflict).await;
    assert_eq!(reply.status, 400);
    let detail = reply.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("$.costs") && detail.contains("$.descriptors[1].api_key"), "{detail}");
    assert_eq!(server.back("POST", "/v1/check", &vec![b' '; 70_000]).await.status, 413);
    assert_eq!(Server::start().await.back("POST", "/v1/check", b"{}").await.status, 501);
}

/// What a browser sends to another origin without asking first is not taken for a check.
#[tokio::test]
async fn a_body_that_is_not_declared_as_json_charges_nothing() {
    let server = server().await;
    let body = order("k_1").to_string();
    let ask = |lines: &'static str| server.back_as("POST", "/v1/check", lines, body.as_bytes());
    for lines in [
        "",
        "content-type: text/plain\r\n",
        "content-type: text/plain; x=application/json\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: text/plain\r\ncontent-type: application/json\r\n",
    ] {
        let reply = ask(lines).await;
        assert_eq!(reply.status, 415, "{lines}");
        assert!(reply.head.contains("application/problem+json"), "{}", reply.head);
        assert!(reply.text().contains("content-type: application/json"), "{}", reply.text());
    }
    let reply = ask("Content-Type: Application/JSON ; charset=utf-8\r\n").await;
    assert_eq!(reply.json()["remaining"], 9);
}

#[tokio::test]
async fn undecided_is_neither_allowed_nor_denied() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let server = Server::start_with(Some(&url), Some(RULES), 0).await;
    let reply = check(&server, &order("k_1")).await;
    assert_eq!(reply.status, 503);
    assert!(reply.head.contains("application/problem+json"), "{}", reply.head);
}

/// What no request can have is refused rather than asked of a bucket that nobody else has.
#[tokio::test]
async fn a_route_or_an_address_that_is_none_is_refused_and_charges_nothing() {
    let server = server().await;
    for (descriptors, told) in [
        (json!([{ "route": "POST /ordres" }]), "did you mean \"POST /orders\"?"),
        (json!([{ "route": "GET /sw1", "ip": "10.1.2.3" }]), "did you mean \"* /sw1\"?"),
        (json!([{ "route": "* /sw1", "ip": "banana" }]), "$.descriptors[0].ip: is no address"),
        (json!([{ "route": "* /sw1", "ip": "010.1.2.3" }]), "$.descriptors[0].ip: is no address"),
    ] {
        let reply = check(&server, &json!({ "descriptors": descriptors })).await;
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && detail.contains(told), "{detail}");
    }
    let left = async |descriptors: Value| {
        check(&server, &json!({ "descriptors": [descriptors] })).await.json()["remaining"].clone()
    };
    assert_eq!(left(json!({ "route": "* /sw1", "ip": "10.1.2.3" })).await, 8);
    assert_eq!(left(json!({ "route": "* /sw1", "ip": "10.1.2.3:80" })).await, 7);
    assert_eq!(left(json!({ "method": "GET", "path": "/sw1", "ip": "::ffff:10.1.2.3" })).await, 6);
    assert_eq!(left(json!({ "route": "* /sw1", "ip": "[::1]" })).await, 8);
    assert_eq!(left(json!({ "route": "* /sw1", "ip": "[::1]:443" })).await, 7);
    assert_eq!(left(json!({ "route": "* /sw1", "ip": "::1" })).await, 6);
}
