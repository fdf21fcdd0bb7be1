//! Asking a store in few words, and starting one.

use kota_integration::redis::Redis as Server;
use kota_integration::wait;
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::settle::Settlement;
use limits::sliding_window::SlidingWindow;
use limits::token_bucket::TokenBucket;
use protocol::batch::{Answer, Outcome, Unknown};
use sidecar::asks::Asks;
use sidecar::changes::{Change, Changed, Kind};
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
    /// None: a bucket that gets a token in 1,000 s. It can't be a large one, which would be too long in filling.
    limit: Option<Limit>,
    penalty: Option<Penalty>,
    cost: u64,
    shadow: bool,
    /// The slot that its check holds; none: one of its own.
    slot: Option<String>,
}

/// A bucket that gets a token in 1,000 s: during a test, none.
pub(crate) fn rule(key: impl Into<String>, capacity: u64) -> Rule {
    Rule { key: key.into(), capacity, limit: None, penalty: None, cost: 1, shadow: false, slot: None }
}

fn bucket(capacity: u64, tokens: u64, seconds: u64) -> Limit {
    Limit::TokenBucket(TokenBucket::new(capacity, Refill::new(tokens, seconds).unwrap(), 0).unwrap())
}

impl Rule {
    pub(crate) fn limit(&self) -> Limit {
        self.limit.unwrap_or_else(|| bucket(self.capacity, 1, 1_000))
    }

    pub(crate) fn per_second(mut self, tokens: u64) -> Self {
        self.limit = Some(bucket(self.capacity, tokens, 1));
        self
    }

    /// The same capacity per 31 days: no test sees the end of two of them.
    pub(crate) fn window(mut self) -> Self {
        self.limit = Some(Limit::SlidingWindow(SlidingWindow::new(self.capacity, 2_678_400).unwrap()));
        self
    }

    /// The same capacity per second.
    pub(crate) fn window_of_a_second(mut self) -> Self {
        self.limit = Some(Limit::SlidingWindow(SlidingWindow::new(self.capacity, 1).unwrap()));
        self
    }

    /// The same capacity at once, on leases of an hour. Each check has a slot of its own.
    pub(crate) fn slots(mut self) -> Self {
        self.limit = Some(Limit::Concurrency(Concurrency::new(self.capacity, 3_600).unwrap()));
        self
    }

    /// The check that has this rule holds this slot.
    pub(crate) fn holding(mut self, slot: &str) -> Self {
        self.slot = Some(slot.to_owned());
        self
    }

    /// After so many denials one token at once and none later, for an hour.
    pub(crate) fn penalty_after(mut self, denials: u64) -> Self {
        let stricter = TokenBucket::new(1, Refill::NEVER, 3_600).unwrap();
        self.penalty = Some(Penalty::new(denials, 3_600, 3_600, stricter).unwrap());
        self
    }

    /// Tokens that go back, or are charged after the fact.
    pub(crate) fn settle(&self, settlement: Settlement, tokens: u64) -> Change {
        let (limit, penalty) = (self.limit(), self.penalty);
        self.change(Kind::Settle { limit, penalty, settlement, tokens, age_ms: 0 })
    }

    pub(crate) fn release(&self) -> Change {
        let (limit, slot) = self.held();
        self.change(Kind::Release { limit, slot })
    }

    pub(crate) fn renew(&self) -> Change {
        let (limit, slot) = self.held();
        self.change(Kind::Renew { limit, slot })
    }

    pub(crate) fn pardon(&self) -> Change {
        self.change(Kind::Pardon)
    }

    fn held(&self) -> (Concurrency, Box<[u8]>) {
        match (self.limit(), &self.slot) {
            (Limit::Concurrency(limit), Some(slot)) => (limit, slot.as_bytes().into()),
            _ => panic!("{self:?} holds no slot"),
        }
    }

    fn change(&self, kind: Kind) -> Change {
        Change { key: self.key.clone().into_bytes(), kind }
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
        let own = || format!("slot{}", SLOTS.fetch_add(1, Ordering::Relaxed));
        let slot = check.iter().find_map(|rule| rule.slot.clone()).unwrap_or_else(own);
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
        asks.call(rule.limit(), rule.penalty, rule.cost, rule.shadow, write);
    }
    if check.iter().any(|rule| matches!(rule.limit(), Limit::Concurrency(_))) {
        asks.slot(slot);
    }
    assert!(asks.end_check());
}

/// What becomes of these changes, within 10 s.
pub(crate) async fn change(store: &impl Store, changes: &[Change]) -> Vec<Changed> {
    store.change(changes, Instant::now() + Duration::from_secs(10)).await
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
