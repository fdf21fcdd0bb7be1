//! Asking a store in few words, and starting one.

use kota_integration::redis::Redis as Server;
use kota_integration::wait;
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::refill::Refill;
use limits::sliding_window::SlidingWindow;
use limits::token_bucket::TokenBucket;
use protocol::batch::{Answer, Outcome, Unknown};
use sidecar::asks::Asks;
use sidecar::metrics::Metrics;
use sidecar::store::redis::{Redis, Target, TlsFiles};
use sidecar::store::{Status, Store};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How many slots have been asked for.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// One rule of a check.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) key: String,
    capacity: u64,
    form: Form,
    cost: u64,
    shadow: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Bucket(Refill),
    Window,
    Slots,
}

/// A bucket that gets a token in 1,000 s: during a test, none.
pub(crate) fn rule(key: impl Into<String>, capacity: u64) -> Rule {
    let form = Form::Bucket(Refill::new(1, 1_000).unwrap());
    Rule { key: key.into(), capacity, form, cost: 1, shadow: false }
}

impl Rule {
    pub(crate) fn per_second(mut self, tokens: u64) -> Self {
        self.form = Form::Bucket(Refill::new(tokens, 1).unwrap());
        self
    }

    /// The same capacity per 31 days: no test sees the end of two of them.
    pub(crate) fn window(mut self) -> Self {
        self.form = Form::Window;
        self
    }

    /// The same capacity at once, on leases of an hour. Each check has a slot of its own.
    pub(crate) fn slots(mut self) -> Self {
        self.form = Form::Slots;
        self
    }

    pub(crate) fn limit(&self) -> Limit {
        match self.form {
            Form::Bucket(refill) => Limit::TokenBucket(TokenBucket::new(self.capacity, refill, 0).unwrap()),
            Form::Window => Limit::SlidingWindow(SlidingWindow::new(self.capacity, 2_678_400).unwrap()),
            Form::Slots => Limit::Concurrency(Concurrency::new(self.capacity, 3_600).unwrap()),
        }
    }

    pub(crate) fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    pub(crate) fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }
}

/// These checks, as a store takes them.
pub(crate) fn asks<'a>(checks: impl IntoIterator<Item = &'a [Rule]>) -> Asks {
    let mut asks = Asks::default();
    for check in checks {
        let slot = format!("slot{}", SLOTS.fetch_add(1, Ordering::Relaxed));
        add(&mut asks, check, slot.as_bytes());
    }
    asks
}

/// One check that would hold this slot.
pub(crate) fn with_slot(check: &[Rule], slot: &[u8]) -> Asks {
    let mut asks = Asks::default();
    add(&mut asks, check, slot);
    asks
}

fn add(asks: &mut Asks, check: &[Rule], slot: &[u8]) {
    for rule in check {
        let write = |into: &mut Vec<u8>| into.extend_from_slice(rule.key.as_bytes());
        asks.call(rule.limit(), None, rule.cost, rule.shadow, write);
    }
    if check.iter().any(|rule| matches!(rule.form, Form::Slots)) {
        asks.slot(slot);
    }
    assert!(asks.end_check());
}

/// The answers to these checks, within 10 s.
pub(crate) async fn all(store: &impl Store, checks: &[Vec<Rule>]) -> Vec<Answer> {
    let deadline = Instant::now() + Duration::from_secs(10);
    store.decide(&asks(checks.iter().map(Vec::as_slice)), deadline).await
}

/// The answer to one check, within 10 s.
pub(crate) async fn one(store: &impl Store, rules: &[Rule]) -> Answer {
    all(store, &[rules.to_vec()]).await.remove(0)
}

/// Whether it was admitted.
///
/// # Panics
/// It is unknown.
pub(crate) fn admitted(answer: &Answer) -> bool {
    match answer {
        Answer::Admitted(_) => true,
        Answer::Denied(_) => false,
        Answer::Unknown(reason) => panic!("undecided: {reason:?}"),
    }
}

/// What its rules say.
///
/// # Panics
/// It is unknown.
pub(crate) fn outcomes(answer: &Answer) -> &[Outcome] {
    match answer {
        Answer::Admitted(outcomes) | Answer::Denied(outcomes) => outcomes,
        Answer::Unknown(reason) => panic!("undecided: {reason:?}"),
    }
}

/// Why it is unknown, if it is.
pub(crate) fn unknown(answer: &Answer) -> Option<Unknown> {
    match answer {
        Answer::Unknown(reason) => Some(*reason),
        _ => None,
    }
}

/// A store on this server, connected.
pub(crate) async fn store(server: &Server) -> (Redis, Metrics) {
    let (store, metrics) = begin(&server.url());
    up(&store).await;
    (store, metrics)
}

/// A store that begins to connect.
pub(crate) fn begin(url: &str) -> (Redis, Metrics) {
    begin_with(url, &TlsFiles::default())
}

/// The same, with these files if there is TLS.
pub(crate) fn begin_with(url: &str, tls: &TlsFiles) -> (Redis, Metrics) {
    let metrics = Metrics::new();
    let target = Target::parse(url).unwrap().with_tls(tls).unwrap();
    (Redis::connect(&target, metrics.clone()), metrics)
}

/// Waits until the store is up.
pub(crate) async fn up(store: &Redis) {
    until("the store is up", || store.status() == Status::Up).await;
}

/// Waits for a condition without holding up the runtime.
pub(crate) async fn until(what: &str, condition: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait::until_true(what, condition));
}
