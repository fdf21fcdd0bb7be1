//! Health and readiness.

use crate::server::{Reply, Server};
use kota_integration::redis::Redis;
use kota_integration::wait;
use kota_integration::workdir::{Workdir, free_port};
use sidecar::store::{Status, Store};

async fn with_redis(url: &str) -> Server {
    Server::start_with(Some(url), None, 0).await
}

fn until(server: &Server, test: impl Fn(Status) -> bool) {
    let status = || server.decider.store().status();
    tokio::task::block_in_place(|| wait::until_true("the store is as expected", || test(status())));
}

#[tokio::test]
async fn a_sidecar_with_the_memory_store_is_ready_until_it_drains() {
    let server = Server::start().await;
    assert_eq!(server.back("GET", "/healthz", b"").await.status, 200);
    let reply = server.back("GET", "/readyz", b"").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"ready":true,"store":"up"}"#));
    server.unready.send_replace(true);
    let reply = server.back("GET", "/readyz", b"").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["draining"], true);
    assert_eq!(server.back("GET", "/healthz", b"").await.status, 200);
}

#[tokio::test]
async fn head_is_answered_as_get_is_without_the_body() {
    let server = Server::start().await;
    let head = |reply: Reply| {
        let lines = reply.head.lines().filter(|line| !line.starts_with("date: "));
        let mut lines: Vec<_> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for path in ["/healthz", "/readyz", "/metrics", "/nowhere"] {
        let reply = server.back("HEAD", path, b"").await;
        assert!(reply.body.is_empty(), "{path}: {}", reply.text());
        assert_eq!(head(reply), head(server.back("GET", path, b"").await), "{path}");
    }
}

/// FM-07: an API whose rules fail open must not go down with its Redis.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_away_does_not_make_it_unready() {
    let server = with_redis(&format!("redis://127.0.0.1:{}", free_port())).await;
    until(&server, |status| matches!(status, Status::Away(_)));
    let reply = server.back("GET", "/readyz", b"").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["store"], "away");
    assert!(reply.json()["reason"].as_str().unwrap().contains("connect"), "{}", reply.text());
    assert_eq!(server.back("GET", "/healthz", b"").await.status, 200);
    assert!(server.back("GET", "/metrics", b"").await.text().contains("\nkota_store_up 0\n"));
}

/// LR-10: a server that can't do the work stops a roll-out, by name.
#[tokio::test(flavor = "multi_thread")]
async fn lr_10_a_redis_that_is_unfit_makes_it_unready_until_it_is_put_right() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    redis.command(&["ACL", "SETUSER", "kota", "on", ">pw", "~rl:*", "+@all", "-evalsha"]);
    let server = with_redis(&format!("redis://kota:pw@127.0.0.1:{}", redis.port())).await;
    until(&server, |status| matches!(status, Status::Unfit(_)));
    let reply = server.back("GET", "/readyz", b"").await;
    assert_eq!(reply.status, 503);
    assert!(reply.json()["reason"].as_str().unwrap().contains("evalsha"), "{}", reply.text());
    redis.command(&["ACL", "SETUSER", "kota", "+evalsha"]);
    until(&server, |status| status == Status::Up);
    assert_eq!(server.back("GET", "/readyz", b"").await.status, 200);
}
