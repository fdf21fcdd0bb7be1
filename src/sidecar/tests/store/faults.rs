//! What can happen to a Redis while it is used.

use crate::ask::{admitted, all, asks, begin, one, rule, store, unknown, until, up};
use crate::fake::Fake;
use kota_integration::redis::Redis as Server;
use kota_integration::workdir::{Workdir, free_port};
use protocol::batch::Unknown;
use sidecar::store::redis::SCRIPTS;
use sidecar::store::{Status, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// FM-07: nothing waits for a Redis that is not there, and it is found when it comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_later_is_found() {
    let port = free_port();
    let (store, _) = begin(&format!("redis://127.0.0.1:{port}"));
    until("the first attempt has failed", || matches!(store.status(), Status::Away(_))).await;
    assert_eq!(unknown(&one(&store, &[rule("a", 10)]).await), Some(Unknown::RedisError));

    let workdir = Workdir::new();
    let server = Server::start_at(port, workdir.path());
    up(&store).await;
    assert!(admitted(&one(&store, &[rule("a", 10)]).await));
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_restarts_is_found_again_with_the_script_sent_once() {
    let workdir = Workdir::new();
    let mut server = Server::start(workdir.path());
    let (store, _) = store(&server).await;
    assert!(admitted(&one(&store, &[rule("a", 1)]).await));
    server.process().kill();
    until("the loss is noticed", || matches!(store.status(), Status::Away(_))).await;
    assert_eq!(unknown(&one(&store, &[rule("a", 1)]).await), Some(Unknown::RedisError));
    server.restart();
    up(&store).await;
    assert!(admitted(&one(&store, &[rule("a", 1)]).await));
    assert_eq!(server.calls("script|load"), SCRIPTS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_has_stopped_leaves_checks_undecided_at_their_deadline() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let (store, _) = store(&server).await;
    server.process().freeze();
    let soon = Instant::now() + Duration::from_millis(100);
    let check = [rule("a", 10)];
    let answers = store.decide(&asks([&check[..]; 3]), soon).await;
    assert_eq!(answers.iter().map(unknown).collect::<Vec<_>>(), [Some(Unknown::RedisTimeout); 3]);
    until("the silence is noticed", || matches!(store.status(), Status::Away(_))).await;
    server.process().thaw();
    up(&store).await;
    assert!(admitted(&one(&store, &check).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_redis_times_out_and_goes_on() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let (store, _) = store(&server).await;
    server.command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let soon = Instant::now() + Duration::from_millis(50);
    let check = [rule("a", 10)];
    let answers = store.decide(&asks([&check[..]]), soon).await;
    assert_eq!(unknown(&answers[0]), Some(Unknown::RedisTimeout));
    assert!(admitted(&one(&store, &check).await));
}

/// LR-01 within one pipeline: only the calls that did not run are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_forgotten_within_a_pipeline_repeats_those_calls_alone() {
    let forgotten = AtomicBool::new(false);
    let fake = Fake::start(move |words| {
        let hit = words[0] == "EVALSHA" && words[3] == "late" && !forgotten.swap(true, Ordering::SeqCst);
        hit.then(|| "-NOSCRIPT No matching script\r\n".to_owned())
    })
    .await;
    let (store, metrics) = begin(&fake.url);
    up(&store).await;
    let checks: Vec<_> = ["early", "late", "after"].map(|key| vec![rule(key, 10)]).into();
    assert!(all(&store, &checks).await.iter().all(admitted));
    let called: Vec<_> = fake.came("EVALSHA").into_iter().map(|words| words[3].clone()).collect();
    assert_eq!(called, ["early", "late", "after", "late"]);
    assert!(metrics.render(&store).contains("kota_script_loads_total 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_fails_alone_and_is_not_repeated() {
    let fake = Fake::start(|words| match (words[0].as_str(), words.get(3).map(String::as_str)) {
        ("EVALSHA", Some("full")) => Some("-OOM command not allowed\r\n".to_owned()),
        ("EVALSHA", Some("odd")) => Some(":7\r\n".to_owned()),
        _ => None,
    })
    .await;
    let (store, _) = begin(&fake.url);
    up(&store).await;
    let checks: Vec<_> = ["a", "full", "odd", "b"].map(|key| vec![rule(key, 10)]).into();
    let answers = all(&store, &checks).await;
    assert!(admitted(&answers[0]) && admitted(&answers[3]));
    assert_eq!([unknown(&answers[1]), unknown(&answers[2])], [Some(Unknown::RedisError); 2]);
    assert_eq!(fake.came("EVALSHA").len(), 4);
    assert_eq!(store.status(), Status::Up);
}

/// LR-09: whatever the server's error, it is an answer of the store's, and the next check is decided.
#[tokio::test(flavor = "multi_thread")]
async fn lr_09_every_error_of_the_server_is_an_unknown_answer() {
    let codes = "LOADING BUSY CLUSTERDOWN TRYAGAIN MASTERDOWN MISCONF READONLY NOAUTH NOPERM NOREPLICAS MOVED ASK ERR KOTA";
    let fake = Fake::start(move |words| {
        let code = words.get(3).filter(|key| words[0] == "EVALSHA" && codes.contains(key.as_str()))?;
        Some(format!("-{code} 1 127.0.0.1:1\r\n"))
    })
    .await;
    let (store, _) = begin(&fake.url);
    for code in codes.split(' ') {
        up(&store).await;
        let answers = all(&store, &[vec![rule(code, 10)], vec![rule("fine", 10)]]).await;
        assert_eq!(unknown(&answers[0]), Some(Unknown::RedisError), "{code}");
        assert!(admitted(&answers[1]), "{code}");
    }
    assert_eq!(fake.came("EVALSHA").len(), 2 * codes.split(' ').count());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_keeps_the_script_is_not_asked_for_ever() {
    let fake = Fake::start(|words| {
        let hit = words[0] == "EVALSHA" && words[3] == "lost";
        hit.then(|| "-NOSCRIPT No matching script\r\n".to_owned())
    })
    .await;
    let (store, _) = begin(&fake.url);
    up(&store).await;
    assert_eq!(unknown(&one(&store, &[rule("lost", 10)]).await), Some(Unknown::RedisError));
    assert_eq!(fake.came("EVALSHA").len(), 3);
}

/// A peer that is gone without a word is never heard of again: its connection is replaced, not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_died_in_silence_is_replaced() {
    let fake = Fake::start(|_| None).await;
    let (store, metrics) = begin(&fake.url);
    up(&store).await;
    let both = || metrics.render(&store).contains("kota_store_connects_total 2\n");
    until("both connections are made", both).await;
    fake.bury();
    let check = [rule("a", 10)];
    let soon = Instant::now() + Duration::from_millis(50);
    let answers = store.decide(&asks([&check[..]]), soon).await;
    assert_eq!(unknown(&answers[0]), Some(Unknown::RedisTimeout));
    // Both connections are new, once checks succeed one after the other.
    let mut in_a_row = 0;
    while in_a_row < 4 {
        let soon = Instant::now() + Duration::from_millis(200);
        let answer = store.decide(&asks([&check[..]]), soon).await.remove(0);
        in_a_row = if unknown(&answer).is_none() { in_a_row + 1 } else { 0 };
    }
}
