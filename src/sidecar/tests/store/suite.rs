//! What every store does, whatever it is made of.

use crate::ask::{Rule, admitted, all, one, outcomes, rule, store, with_slot};
use crate::changes;
use kota_integration::redis::Redis as Server;
use kota_integration::workdir::Workdir;
use limits::decision::Limit;
use protocol::batch::{Answer, Verdict};
use sidecar::changes::{Change, Changed, Kind};
use sidecar::store::memory::Memory;
use sidecar::store::{Status, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    suite(Memory::new(10_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    suite(store(&server).await.0).await;
}

pub(crate) async fn suite(store: impl Store) {
    let store = Arc::new(store);
    assert_eq!(store.status(), Status::Up);
    a_bucket_gives_what_it_holds(&*store).await;
    denied_requests_cost_nothing(&*store).await;
    a_shadow_denies_nobody(&*store).await;
    never_is_not_later(&*store).await;
    tokens_come_back(&*store).await;
    an_edited_limit_applies_at_once(&*store).await;
    a_window_gives_what_it_holds(&*store).await;
    a_slot_is_held_until_it_is_released(&*store).await;
    a_batch_is_decided_in_order(&*store).await;
    two_hundred_at_once_get_fifty(&store).await;
    changes::suite(&*store).await;
}

async fn a_bucket_gives_what_it_holds(store: &impl Store) {
    for left in (0..10).rev() {
        let answer = one(store, &[rule("gives", 10)]).await;
        assert!(admitted(&answer));
        assert_eq!(outcomes(&answer)[0].left, left);
    }
    let answer = one(store, &[rule("gives", 10)]).await;
    assert!(!admitted(&answer));
    let outcome = outcomes(&answer)[0];
    assert_eq!((outcome.verdict, outcome.left), (Verdict::Wait, 0));
    // A token comes back in 1,000 s, counted from the first.
    assert!((900_000..=1_000_000).contains(&outcome.wait_ms), "{outcome:?}");
    assert!(admitted(&one(store, &[rule("another", 10)]).await));
}

async fn denied_requests_cost_nothing(store: &impl Store) {
    let both = [rule("costs-a", 10), rule("costs-b", 3)];
    for _ in 0..3 {
        assert!(admitted(&one(store, &both).await));
    }
    for _ in 0..5 {
        let answer = one(store, &both).await;
        assert!(!admitted(&answer));
        assert_eq!(outcomes(&answer)[0].verdict, Verdict::Admit);
    }
    assert_eq!(outcomes(&one(store, &[rule("costs-a", 10).cost(0)]).await)[0].left, 7);
}

async fn a_shadow_denies_nobody(store: &impl Store) {
    let rules = [rule("shadow-a", 4), rule("shadow-b", 1).shadow()];
    let answer = one(store, &rules).await;
    assert_eq!(outcomes(&answer)[1].verdict, Verdict::Admit);
    let answer = one(store, &rules).await;
    assert!(admitted(&answer));
    assert_eq!(outcomes(&answer)[1].verdict, Verdict::Wait);
    assert!(admitted(&one(store, &[rule("shadow-b", 1).shadow()]).await));
}

async fn never_is_not_later(store: &impl Store) {
    let answer = one(store, &[rule("never", 10).cost(11)]).await;
    assert!(!admitted(&answer));
    let outcome = outcomes(&answer)[0];
    assert_eq!((outcome.verdict, outcome.left, outcome.wait_ms), (Verdict::Never, 10, 0));
}

async fn tokens_come_back(store: &impl Store) {
    let fast = [rule("back", 1).per_second(1_000)];
    // Each waits for the next token: more pass than the bucket ever holds.
    let mut passed = 0;
    while passed < 5 {
        passed += usize::from(admitted(&one(store, &fast).await));
    }
}

async fn an_edited_limit_applies_at_once(store: &impl Store) {
    for _ in 0..5 {
        assert!(admitted(&one(store, &[rule("edited", 5)]).await));
    }
    assert!(!admitted(&one(store, &[rule("edited", 5)]).await));
    let answer = one(store, &[rule("edited", 8)]).await;
    assert!(admitted(&answer));
    assert_eq!(outcomes(&answer)[0].left, 2);
    assert!(!admitted(&one(store, &[rule("edited", 3)]).await));
}

async fn a_window_gives_what_it_holds(store: &impl Store) {
    let check = [rule("window", 3).window()];
    for left in (0..3).rev() {
        let answer = one(store, &check).await;
        assert!(admitted(&answer));
        assert_eq!(outcomes(&answer)[0].left, left);
    }
    for _ in 0..3 {
        let answer = one(store, &check).await;
        assert!(!admitted(&answer));
        assert!(outcomes(&answer)[0].wait_ms > 0);
    }
}

/// A slot, of two, that somebody else's rule denies is free again.
async fn a_slot_is_held_until_it_is_released(store: &impl Store) {
    let (slots, bucket) = (rule("slots", 2).slots(), rule("slots-b", 1));
    let Limit::Concurrency(limit) = slots.limit() else { panic!("slots") };
    let ask = async |id: &[u8], rules: &[Rule]| {
        let soon = Instant::now() + Duration::from_secs(10);
        admitted(&store.decide(&with_slot(rules, id), soon).await[0])
    };
    assert!(ask(b"s1", &[slots.clone(), bucket.clone()]).await);
    assert!(!ask(b"s2", &[slots.clone(), bucket.clone()]).await);
    assert!(ask(b"s3", std::slice::from_ref(&slots)).await);
    assert!(!ask(b"s4", std::slice::from_ref(&slots)).await);
    let change = |kind| [Change { key: slots.key.clone().into_bytes(), kind }];
    let soon = Instant::now() + Duration::from_secs(10);
    let renew = |id: &[u8]| change(Kind::Renew { limit, slot: id.into() });
    assert_eq!(store.change(&renew(b"s1"), soon).await, [Changed::Yes]);
    assert_eq!(store.change(&renew(b"s4"), soon).await, [Changed::No]);
    let release = change(Kind::Release { limit, slot: b"s1"[..].into() });
    assert_eq!(store.change(&release, soon).await, [Changed::Yes]);
    assert!(ask(b"s5", std::slice::from_ref(&slots)).await);
    assert!(!ask(b"s6", &[slots]).await);
}

async fn a_batch_is_decided_in_order(store: &impl Store) {
    let checks: Vec<_> = (0..64).map(|_| vec![rule("batch", 40)]).chain([vec![]]).collect();
    let answers = all(store, &checks).await;
    assert_eq!(answers.len(), 65);
    assert!(answers[..40].iter().all(admitted));
    assert!(!answers[40..64].iter().any(admitted));
    assert_eq!(answers[64], Answer::Admitted(vec![]));
}

async fn two_hundred_at_once_get_fifty(store: &Arc<impl Store>) {
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move { admitted(&one(&*store, &[rule("at-once", 50)]).await) })
        })
        .collect();
    let mut passed = 0;
    for client in clients {
        passed += usize::from(client.await.unwrap());
    }
    assert_eq!(passed, 50);
}
