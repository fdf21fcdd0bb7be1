//! What follows from a check: `POST /v1/release`, `/v1/renew` and `/v1/pardon`, and what requests cost there.

use crate::server::{Reply, Server, request_with};
use kota_integration::redis::{self, Redis};
use kota_integration::wait;
use kota_integration::workdir::{Workdir, free_port};
use serde_json::{Value, json};
use sidecar::store::{Status, Store};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const RULES: &str = r#"{
    "domain": "public-api",
    "descriptors": { "api_key": { "header": "x-api-key", "secret": true }, "user": { "header": "x-user" } },
    "exemptions": ["/export"],
    "rules": [
        { "id": "exports", "match": { "path": "/export" }, "key": ["api_key"], "algorithm": "CONCURRENCY", "capacity": 2,
          "leaseSeconds": 60 },
        { "id": "per-key", "match": { "path": "/export" }, "key": ["api_key"], "algorithm": "SLIDING_WINDOW", "capacity": 100,
          "windowSeconds": 3600 },
        { "id": "watched", "match": { "path": "/export" }, "key": ["api_key"], "algorithm": "CONCURRENCY", "capacity": 9, "leaseSeconds": 30,
          "mode": "SHADOW" },
        { "id": "login", "match": { "path": "/login" }, "key": ["user"], "onMissingKey": "DENY", "algorithm": "TOKEN_BUCKET", "capacity": 2,
          "refillPerSecond": 0.001,
          "penalty": { "denials": 2, "withinSeconds": 600, "forSeconds": 600, "capacity": 1, "refillPerSecond": 0 } },
        { "id": "tokens", "match": { "path": "/llm" }, "key": ["user"], "algorithm": "TOKEN_BUCKET", "capacity": 100, "refillPerSecond": 0.001,
          "cost": { "responseHeader": "x-tokens", "default": 30 } },
        { "id": "bytes", "match": { "path": "/upload" }, "key": ["user"], "algorithm": "TOKEN_BUCKET", "capacity": 100,
          "refillPerSecond": 0.001, "cost": { "body": 1024, "default": 20 } } ] }"#;

async fn server(store: Option<&str>) -> Server {
    Server::start_with(store, Some(RULES), rustix::process::geteuid().as_raw()).await
}

async fn post(server: &Server, path: &str, body: &Value) -> Reply {
    server.back("POST", path, body.to_string().as_bytes()).await
}

fn about(path: &str, key: &str) -> Value {
    json!({ "domain": "public-api", "descriptors": [{ "api_key": key, "user": key }, { "path": path }] })
}

/// The same with this slot.
fn holding(path: &str, key: &str, slot: &Value) -> Value {
    let mut holding = about(path, key);
    holding["slot"] = slot.clone();
    holding
}

async fn each_store(test: impl AsyncFn(Server)) {
    test(server(None).await).await;
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = server(Some(&redis.url())).await;
    let status = || server.decider.store().status();
    tokio::task::block_in_place(|| wait::until_true("the store is up", || status() == Status::Up));
    test(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_held_until_it_is_released_and_cc_04_twice_is_once() {
    each_store(async |server| {
        let check = async || post(&server, "/v1/check", &about("/export", "k")).await.json();
        let first = check().await;
        let slot = first["slot"].clone();
        assert_eq!(
            (&first["decision"], &first["remaining"], &first["leaseMs"]),
            (&json!("ALLOW"), &json!(1), &json!(30_000))
        );
        assert_eq!(slot.as_str().map(str::len), Some(22), "{first}");
        assert_ne!(check().await["slot"], slot);
        let denied = check().await;
        assert_eq!(
            (&denied["decision"], &denied["matchedRule"], denied.get("slot")),
            (&json!("DENY"), &json!("exports"), None)
        );
        assert!((1..=60_000).contains(&denied["retryAfterMs"].as_u64().unwrap()), "{denied}");

        for path in ["/v1/renew", "/v1/release", "/v1/release"] {
            let reply = post(&server, path, &holding("/export", "k", &slot)).await;
            assert_eq!((reply.status, reply.body.len()), (204, 0), "{path}: {}", reply.text());
        }
        let gone = post(&server, "/v1/renew", &holding("/export", "k", &slot)).await;
        assert_eq!(gone.status, 410, "what was released is not brought back: {}", gone.text());
        assert_eq!(check().await["decision"], "ALLOW");
        assert_eq!(check().await["decision"], "DENY", "two releases freed one slot");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_before_its_check_frees_nothing() {
    each_store(async |server| {
        let unknown = json!("AAECAwQFBgcICQoLDA0ODw");
        assert_eq!(post(&server, "/v1/release", &holding("/export", "k", &unknown)).await.status, 204);
        let check =
            async || post(&server, "/v1/check", &about("/export", "k")).await.json()["decision"].clone();
        assert_eq!([check().await, check().await, check().await], ["ALLOW", "ALLOW", "DENY"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_nobody_hears_of_is_given_back() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = server(Some(&redis.url())).await;
    let status = || server.decider.store().status();
    tokio::task::block_in_place(|| wait::until_true("the store is up", || status() == Status::Up));
    let check = async || post(&server, "/v1/check", &about("/export", "k")).await;
    assert_eq!(check().await.json()["remaining"], 1);
    redis.process().freeze();
    assert_eq!(check().await.status, 503, "nobody knows whether it took the second slot");
    // A caller that has gone knows nothing either.
    let mut gone = TcpStream::connect(server.api).await.unwrap();
    let lines = "content-type: application/json\r\n";
    let bytes = request_with("POST", "/v1/check", lines, about("/export", "k").to_string().as_bytes());
    gone.write_all(&bytes).await.unwrap();
    drop(gone);
    redis.process().thaw();
    tokio::task::block_in_place(|| wait::until_true("the store is up", || status() == Status::Up));
    let free = || {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
        let mut slots = redis.keys().into_iter().filter(|key| key.ends_with(":exports:cc1"));
        let live = |key: &str| redis.command(&["ZCOUNT", key, &now_ms, "+inf"]);
        slots.next().is_some_and(|key| live(&key) == redis::Reply::Integer(1))
    };
    tokio::task::block_in_place(|| wait::until_true("one slot is held, the one that was heard of", free));
    // The one that has gone may take its slot only now, and gives it back at once.
    let mut tries = 0..1_000;
    while check().await.json()["decision"] == "DENY" {
        assert!(tries.next().is_some(), "the slot stays taken");
    }
    assert_eq!(check().await.json()["decision"], "DENY");
}

#[tokio::test]
async fn what_is_no_slot_or_has_no_rule_is_told_apart() {
    let server = server(None).await;
    let slot = json!("AAECAwQFBgcICQoLDA0ODw");
    for (path, body, status, told) in [
        ("/v1/release", about("/export", "k"), 400, "$.slot: is missing"),
        ("/v1/renew", holding("/export", "k", &json!("short")), 400, "$.slot: is no slot"),
        // The last character says more bits than there are bytes for.
        ("/v1/renew", holding("/export", "k", &json!("AAECAwQFBgcICQoLDA0ODz")), 400, "$.slot: is no slot"),
        ("/v1/release", holding("/other", "k", &slot), 404, "CONCURRENCY"),
        ("/v1/release", json!({ "descriptors": [{ "usr": "k" }], "slot": slot }), 400, "did you mean"),
        ("/v1/pardon", holding("/login", "k", &slot), 400, "$.slot: unknown field"),
        ("/v1/pardon", about("/export", "k"), 404, "no rule with a penalty"),
        (
            "/v1/pardon",
            json!({ "descriptors": [{ "ip": "banana" }] }),
            400,
            "$.descriptors[0].ip: is no address",
        ),
        (
            "/v1/release",
            json!({ "descriptors": [{ "route": "GET /x" }], "slot": slot }),
            400,
            "no route of the",
        ),
        ("/v1/renew", json!({ "descriptors": [{ "ip": "010.1.2.3" }], "slot": slot }), 400, "is no address"),
        (
            "/v1/pardon",
            json!({ "descriptors": [{ "path": "/login" }] }),
            400,
            "login can't tell who is meant",
        ),
    ] {
        let reply = post(&server, path, &body).await;
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.text());
        assert!(
            reply.head.contains("application/problem+json") && reply.text().contains(told),
            "{}",
            reply.text()
        );
    }
    assert_eq!(server.back("GET", "/v1/release", b"").await.status, 404);
    assert_eq!(server.back_as("POST", "/v1/pardon", "", b"{}").await.status, 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pardon_ends_a_penalty_and_gives_no_tokens_back() {
    each_store(async |server| {
        let check = async |key: &str| post(&server, "/v1/check", &about("/login", key)).await.json();
        let pardon =
            async |path: &str, key: &str| post(&server, "/v1/pardon", &about(path, key)).await.json();
        assert_eq!(pardon("/login", "k").await, json!({ "pardoned": [] }), "nobody was denied");
        let outcomes = [check("k").await, check("k").await, check("k").await, check("k").await];
        assert_eq!(outcomes.each_ref().map(|one| &one["decision"]), ["ALLOW", "ALLOW", "DENY", "DENY"]);
        let punished = check("k").await;
        let mut free = about("/login", "k");
        free["cost"] = json!(0);
        assert_eq!(
            post(&server, "/v1/check", &free).await.json()["decision"],
            "ALLOW",
            "what costs nothing passes"
        );
        assert!(punished["retryAfterMs"].as_u64().unwrap() <= 1_000_000, "{punished}");
        assert_eq!(pardon("/login", "k").await, json!({ "pardoned": ["login"] }));
        assert_eq!(pardon("/login", "k").await, json!({ "pardoned": [] }));
        assert_eq!(check("k").await["decision"], "DENY", "the bucket is as empty as before");
        assert_eq!(check("other").await["decision"], "ALLOW");
    })
    .await;
}

#[tokio::test]
async fn a_cost_is_what_the_check_says_or_the_default() {
    let server = server(None).await;
    let remaining = async |path: &str, cost: Option<u64>| {
        let mut check = about(path, "k");
        if let Some(cost) = cost {
            check["cost"] = json!(cost);
        }
        post(&server, "/v1/check", &check).await.json()["remaining"].as_u64()
    };
    assert_eq!(remaining("/llm", None).await, Some(70), "no response is there to tell");
    assert_eq!(remaining("/llm", Some(5)).await, Some(65));
    assert_eq!(remaining("/upload", None).await, Some(80), "no body is there to be measured");
    assert_eq!(remaining("/upload", Some(0)).await, Some(80));
    assert_eq!(remaining("/export", Some(50)).await, Some(1), "one slot, whatever the rest costs");
}

/// Exemptions and preflights are for requests that come through Envoy: who asks here wants an answer.
#[tokio::test]
async fn a_check_of_an_exempt_path_is_a_check() {
    let server = server(None).await;
    let mut check = about("/export", "k");
    check["descriptors"][1]["method"] = json!("OPTIONS");
    assert_eq!(post(&server, "/v1/check", &check).await.json()["matchedRule"], "exports");
}

#[tokio::test]
async fn a_store_that_is_away_leaves_it_open_and_says_so() {
    let server = server(Some(&format!("redis://127.0.0.1:{}", free_port()))).await;
    let slot = json!("AAECAwQFBgcICQoLDA0ODw");
    for (path, body) in [
        ("/v1/check", about("/export", "k")),
        ("/v1/release", holding("/export", "k", &slot)),
        ("/v1/renew", holding("/export", "k", &slot)),
        ("/v1/pardon", about("/login", "k")),
    ] {
        let reply = post(&server, path, &body).await;
        assert_eq!(reply.status, 503, "{path}: {}", reply.text());
        assert!(reply.head.contains("application/problem+json"), "{path}");
    }
}
