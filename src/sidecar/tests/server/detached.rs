//! Decisions whose request is gone, and those that are too many.

use crate::server::{Server, one_check};
use kota_integration::redis::Redis;
use kota_integration::wait;
use kota_integration::workdir::Workdir;
use protocol::batch::{Answer, Unknown, decode_answers};
use sidecar::decide::BATCHES_MAX;
use sidecar::store::{Status, Store};
use std::sync::Arc;
use tokio::time::Instant;

async fn with_redis(redis: &Redis) -> Server {
    let server = Server::start_with(Some(&redis.url()), None, rustix::process::geteuid().as_raw()).await;
    let status = || server.decider.store().status();
    tokio::task::block_in_place(|| wait::until_true("the store is up", || status() == Status::Up));
    server
}

fn left(answer: &Answer) -> u64 {
    match answer {
        Answer::Admitted(outcomes) => outcomes[0].left,
        other => panic!("not admitted: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_outlives_its_request() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = with_redis(&redis).await;
    redis.process().freeze();
    let decider = Arc::clone(&server.decider);
    let request = async move { decider.batch(one_check("k_1").into(), Instant::now()).await };
    tokio::select! {
        biased;
        _ = request => panic!("a frozen store answers nothing"),
        () = std::future::ready(()) => {} // The request is dropped once its decision is under way.
    }
    redis.process().thaw();
    let count = || server.metrics.render(server.decider.store());
    // The decision that nobody hears is made, counted, and seen by the next.
    let counted = || count().contains("kota_decisions_total{decision=\"allow\"} 1\n");
    tokio::task::block_in_place(|| wait::until_true("it is decided and counted", counted));
    assert_eq!(left(&server.decide("k_1").await), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_can_be_decided_at_once_is_shed() {
    let workdir = Workdir::new();
    let redis = Redis::start(workdir.path());
    let server = with_redis(&redis).await;
    redis.process().freeze();
    let ask = |key: String| {
        let decider = Arc::clone(&server.decider);
        tokio::spawn(async move {
            let bytes = decider.batch(one_check(&key).into(), Instant::now()).await.unwrap();
            decode_answers(&bytes).unwrap().answers.remove(0)
        })
    };
    let many: Vec<_> = (0..BATCHES_MAX + 10).map(|client| ask(format!("k_{client}"))).collect();
    let shed = || server.metrics.render(server.decider.store()).contains("{reason=\"shed\"} 10\n");
    tokio::task::block_in_place(|| wait::until_true("ten are shed", shed));
    redis.process().thaw();
    let mut answers = Vec::new();
    for answer in many {
        answers.push(answer.await.unwrap());
    }
    let shed = answers.iter().filter(|answer| **answer == Answer::Unknown(Unknown::Shed)).count();
    let admitted = answers.iter().filter(|answer| matches!(answer, Answer::Admitted(_))).count();
    assert_eq!((shed, admitted), (10, BATCHES_MAX));
}
