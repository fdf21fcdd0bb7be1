//! OB-03: a client's key is seen nowhere, whatever happens to the request.

use crate::server::Server;
use kota_integration::redis::Redis;
use kota_integration::wait;
use kota_integration::workdir::Workdir;
use log::{LevelFilter, Log, Metadata, Record};
use protocol::batch::{Answer, Unknown};
use serde_json::json;
use sidecar::store::{Status, Store};
use std::sync::Mutex;

const CANARY: &str = "canary-5f3a9c";
const RULES: &str = r#"{ "domain": "public-api",
    "descriptors": { "api_key": { "header": "x-api-key", "secret": true } },
    "rules": [{ "id": "ten", "key": ["api_key"], "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 0.001 }] }"#;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Hears everything, of every crate and at every level.
struct Listener;

impl Log for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.lock().unwrap().push(format!("{} {}", record.target(), record.args()));
    }

    fn flush(&self) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn ob_03_a_key_is_seen_nowhere() {
    log::set_logger(&Listener).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let uid = rustix::process::geteuid().as_raw();
    let server = Server::start_with(Some(&redis.url()), Some(RULES), uid).await;
    let status = || server.decider.store().status();
    tokio::task::block_in_place(|| wait::until_true("the store is up", || status() == Status::Up));

    let mut seen = Vec::new();
    for _ in 0..11 {
        assert!(!matches!(server.decide(CANARY).await, Answer::Unknown(_)));
    }
    for body in [
        json!({ "descriptors": [{ "api_key": CANARY }] }),
        json!({ "descriptors": [{ "api_key": CANARY }, { "api_key": "another" }] }),
        json!({ "descriptors": [{ "api_key": format!("{CANARY}\u{1}") }] }),
    ] {
        seen.push(server.back("POST", "/v1/check", body.to_string().as_bytes()).await.text());
    }
    let keys = redis.keys();
    assert!(keys.iter().any(|key| key.starts_with("rl:{public-api:key:~")), "{keys:?}");
    // A refusal of the server whose words hold the key: the state is of another type.
    let key = keys.iter().find(|key| key.contains(":ten:")).unwrap();
    redis.command(&["DEL", key]);
    redis.command(&["LPUSH", key, "x"]);
    server.decide(CANARY).await;
    redis.process().kill();
    tokio::task::block_in_place(|| wait::until_true("the loss is noticed", || status() != Status::Up));
    assert_eq!(server.decide(CANARY).await, Answer::Unknown(Unknown::RedisError));
    for path in ["/metrics", "/readyz"] {
        seen.push(server.back("GET", path, b"").await.text());
    }
    seen.extend(keys);
    seen.extend(LINES.lock().unwrap().iter().cloned());
    assert!(seen.iter().any(|line| line.starts_with("sidecar::")), "the log is heard");
    for text in seen {
        assert!(!text.contains(CANARY), "{text}");
    }
}
