//! What rides in a batch beside its checks, when the store is slow or away.

use crate::server::Server;
use kota_integration::redis::{Redis, Reply};
use kota_integration::wait;
use kota_integration::workdir::{Workdir, free_port};
use protocol::batch::{Algorithm, Answer, Batch, Call, Check, RuleForm, Slot, Unknown, Value};
use protocol::batch::{decode_answers, encode_batch};
use sidecar::decide::{BATCHES_MAX, CHANGING_MAX, WAITING_MAX};
use sidecar::store::{Status, Store};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

async fn start(url: &str) -> Server {
    Server::start_with(Some(url), None, rustix::process::geteuid().as_raw()).await
}

async fn with_redis(redis: &Redis) -> Server {
    let server = start(&redis.url()).await;
    let status = || server.decider.store().status();
    until("the store is up", || status() == Status::Up);
    server
}

fn until(what: &str, test: impl Fn() -> bool) {
    tokio::task::block_in_place(|| wait::until_true(what, test));
}

/// One client, who may hold one slot: those that are released, and that which is asked for.
fn batch(budget_ms: u32, released: &[&[u8]], asked: Option<&[u8]>) -> Vec<u8> {
    let key = vec![Value { kind: "api_key", bytes: Some(&b"k"[..]), secret: true }];
    let algorithm = Algorithm::Concurrency { capacity: 1, lease_s: 60 };
    let check = |slot| Check {
        values: key.clone(),
        calls: vec![Call { rule: 0, cost: 1, key: vec![0] }],
        lease: 0,
        slot,
    };
    let batch = Batch {
        domain: "public-api",
        budget_ms,
        rules: vec![RuleForm { id: "slots", algorithm, shadow: false, penalty: None }],
        checks: asked.map(check).into_iter().collect(),
        give_backs: vec![],
        debits: vec![],
        local_counts: vec![],
        releases: released.iter().map(|id| Slot { rule: 0, key: key.clone(), id }).collect(),
        renewals: vec![],
    };
    encode_batch(&batch, Vec::new()).unwrap()
}

async fn send(server: &Server, batch: Vec<u8>) -> Option<Answer> {
    let bytes = server.decider.batch(batch.into(), Instant::now()).await.unwrap();
    decode_answers(&bytes).unwrap().answers.pop()
}

/// Takes the slot of this id.
async fn take(server: &Server, slot: &[u8]) {
    let answer = send(server, batch(10_000, &[], Some(slot))).await;
    assert!(matches!(answer, Some(Answer::Admitted(_))), "{answer:?}");
}

/// How many slots are held, by Redis's own word.
fn held(redis: &Redis) -> i64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
    let Some(key) = redis.keys().into_iter().find(|key| key.ends_with(":slots:cc1")) else { return 0 };
    match redis.command(&["ZCOUNT", &key, &now_ms, "+inf"]) {
        Reply::Integer(held) => held,
        other => panic!("{other:?}"),
    }
}

fn counts(server: &Server, line: &str) -> bool {
    let text = server.metrics.render(server.decider.store());
    text.lines().any(|have| have == line)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_released_while_the_store_is_away_is_free_when_it_is_back() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = with_redis(&redis).await;
    take(&server, b"1").await;
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    // The one connection is found dead by this, the other by the next or by itself.
    assert_eq!(send(&server, batch(1_000, &[b"1"], None)).await, None);
    until("the slot is free", || held(&redis) == 0);
    take(&server, b"2").await;
    until("it is counted", || counts(&server, "kota_slots_released_total 1"));
    assert!(counts(&server, "kota_lost_changes_total 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_the_store_does_not_take_cost_no_check_its_place_and_are_not_lost() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = with_redis(&redis).await;
    redis.process().freeze();
    let count = BATCHES_MAX + CHANGING_MAX;
    let many: Vec<_> = (0..count)
        .map(|nth| {
            let decider = Arc::clone(&server.decider);
            let bytes = batch(1, &[format!("s{nth}").as_bytes()], None);
            tokio::spawn(async move { decider.batch(bytes.into(), Instant::now()).await })
        })
        .collect();
    for one in many {
        one.await.unwrap().unwrap();
    }
    let answer = send(&server, batch(10, &[], Some(b"1"))).await;
    assert_eq!(answer, Some(Answer::Unknown(Unknown::RedisTimeout)), "it was asked");
    redis.process().thaw();
    until("all are released", || counts(&server, &format!("kota_slots_released_total {count}")));
    assert!(counts(&server, "kota_lost_changes_total 0"));
    assert!(counts(&server, "kota_unknown_total{reason=\"shed\"} 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_waits_for_a_change_is_not_asked_after_its_deadline() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = with_redis(&redis).await;
    take(&server, b"1").await;
    redis.process().freeze();
    let answer = send(&server, batch(20, &[b"1"], Some(b"2"))).await;
    assert_eq!(answer, Some(Answer::Unknown(Unknown::RedisTimeout)));
    redis.process().thaw();
    until("the release is made", || counts(&server, "kota_slots_released_total 1"));
    assert_eq!(held(&redis), 0, "what nobody hears of takes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_part_of_the_drain() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = with_redis(&redis).await;
    take(&server, b"1").await;
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    send(&server, batch(1, &[b"1"], None)).await;
    server.decider.finish_changes(Instant::now() + Duration::from_secs(60)).await;
    assert_eq!(held(&redis), 0);
    assert!(counts(&server, "kota_slots_released_total 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_bounded_and_given_up_at_the_end_of_the_drain() {
    let server = start(&format!("redis://127.0.0.1:{}", free_port())).await;
    let ids: Vec<String> = (0..128).map(|nth| format!("s{nth}")).collect();
    let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
    let sent = WAITING_MAX / ids.len() + 8;
    for _ in 0..sent {
        send(&server, batch(1, &ids, None)).await;
    }
    let lost = || {
        let text = server.metrics.render(server.decider.store());
        let line = text.lines().find_map(|line| line.strip_prefix("kota_lost_changes_total "));
        line.unwrap().parse::<usize>().unwrap()
    };
    until("no more than fits waits", || lost() >= (sent * ids.len()) - WAITING_MAX);
    assert!(lost() < sent * ids.len());
    server.decider.finish_changes(Instant::now()).await;
    until("all are given up", || lost() == sent * ids.len());
}
