use super::*;
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::settle::Settlement;
use limits::sliding_window::SlidingWindow;
use limits::token_bucket::TokenBucket;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store on a clock that the test turns, in milliseconds.
fn store(buckets_max: usize) -> (Memory, Arc<AtomicU64>) {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now_ms);
    (Memory::with_clock(buckets_max, Box::new(move || clock.load(Ordering::Relaxed) * 1_000)), now_ms)
}

/// Takes `cost` of ten tokens, one of which comes back each second; what is left, if it was admitted.
async fn take(store: &Memory, key: &str, cost: u64) -> Option<u64> {
    let bucket = TokenBucket::new(10, Refill::new(1, 1).unwrap(), 0).unwrap();
    let mut asks = Asks::default();
    asks.call(Limit::TokenBucket(bucket), None, cost, false, |into| into.extend_from_slice(key.as_bytes()));
    assert!(asks.end_check());
    match store.decide(&asks, tokio::time::Instant::now()).await.remove(0) {
        Answer::Admitted(outcomes) => Some(outcomes[0].left),
        _ => None,
    }
}

#[tokio::test]
async fn a_bucket_that_is_full_again_makes_room_by_itself() {
    let (store, now_ms) = store(1_000);
    for i in 0..100 {
        take(&store, &format!("old{i}"), 1).await;
    }
    assert_eq!(store.len(), 100);
    now_ms.fetch_add(60_000, Ordering::Relaxed);
    for i in 0..100 {
        take(&store, &format!("new{i}"), 1).await;
    }
    assert_eq!(store.len(), 100);
}

#[tokio::test]
async fn the_bucket_that_is_nearest_to_full_goes_first() {
    let (store, _) = store(3);
    take(&store, "much", 9).await;
    take(&store, "little", 1).await;
    take(&store, "some", 5).await;
    // Charged after its place in the order was noted: it must be moved, not forgotten.
    take(&store, "little", 7).await;
    take(&store, "new", 9).await;
    assert_eq!(store.len(), 3);
    assert_eq!(take(&store, "some", 0).await, Some(10));
    assert_eq!(take(&store, "much", 0).await, Some(1));
    assert_eq!(take(&store, "little", 0).await, Some(2));
    assert_eq!(take(&store, "new", 0).await, Some(1));
}

#[tokio::test]
async fn a_million_clients_never_pass_the_bound() {
    let (store, now_ms) = store(64);
    for i in 0..20_000u64 {
        now_ms.fetch_add(i % 7, Ordering::Relaxed);
        take(&store, &format!("client{}", i * 7_919 % 4_099), i % 10 + 1).await;
        assert!(store.len() <= 64);
    }
    let buckets = store.lock();
    assert_eq!(buckets.order.len(), buckets.states.len());
}

/// Asks one rule, whose slot is its key; whether it is admitted.
async fn ask(store: &Memory, key: &str, limit: Limit, penalty: Option<Penalty>, cost: u64) -> bool {
    let mut asks = Asks::default();
    asks.call(limit, penalty, cost, false, |into| into.extend_from_slice(key.as_bytes()));
    asks.slot(key.as_bytes());
    assert!(asks.end_check());
    matches!(store.decide(&asks, tokio::time::Instant::now()).await[0], Answer::Admitted(_))
}

async fn change(store: &Memory, key: &str, kind: Kind) -> bool {
    let change = Change { key: key.as_bytes().to_vec(), kind };
    store.change(&[change], tokio::time::Instant::now()).await[0] == Changed::Yes
}

#[tokio::test]
async fn buckets_of_every_kind_end_with_their_time() {
    let (store, now_ms) = store(1_000);
    let window = Limit::SlidingWindow(SlidingWindow::new(1, 60).unwrap());
    let slots = Concurrency::new(1, 60).unwrap();
    let bucket = TokenBucket::new(1, Refill::new(1, 1).unwrap(), 0).unwrap();
    let penalty = Penalty::new(1, 60, 60, bucket).ok();
    for (key, limit) in [("window", window), ("slots", Limit::Concurrency(slots))] {
        assert!(ask(&store, key, limit, None, 1).await);
    }
    assert!(!ask(&store, "window", window, None, 1).await);
    assert!(!ask(&store, "denied", Limit::TokenBucket(bucket), penalty, 2).await);
    assert_eq!(store.len(), 3, "a denial under a penalty is remembered");
    let renew = || Kind::Renew { limit: slots, slot: b"slots"[..].into() };
    assert!(change(&store, "slots", renew()).await);
    now_ms.fetch_add(200_000, Ordering::Relaxed);
    assert!(!change(&store, "slots", renew()).await);
    assert!(!change(&store, "denied", Kind::Pardon).await, "it is over by itself");
    let give =
        Kind::Settle { limit: window, penalty: None, settlement: Settlement::Give, tokens: 1, age_ms: 0 };
    assert!(!change(&store, "window", give).await);
    for new in 0..3 {
        assert!(ask(&store, &format!("new{new}"), window, None, 1).await);
    }
    assert_eq!(store.len(), 3, "what has ended made room");
}
