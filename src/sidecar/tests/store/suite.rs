//! What every store does, whatever it is made of.

use crate::ask::{admitted, all, one, outcomes, rule, store};
use kota_integration::redis::Redis as Server;
use kota_integration::workdir::Workdir;
use protocol::batch::{Answer, Verdict};
use sidecar::store::memory::Memory;
use sidecar::store::{Status, Store};
use std::sync::Arc;

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
    a_batch_is_decided_in_order(&*store).await;
    two_hundred_at_once_get_fifty(&store).await;
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
