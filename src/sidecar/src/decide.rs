//! `POST /v1/decide`: a batch of checks, from bytes to bytes.
//!
//! The whole batch has one deadline. A decision runs detached from its request: the filter may be gone when the store answers,
//! and what was charged then must still be accounted for. What else rides in a batch (slots, settled tokens) is done whether or not
//! there is an answer in time, within bounds of its own ([`changing`]), and before the checks of the buckets that it changes.

mod changing;
mod extras;
pub mod http;
mod order;

use crate::asks::Asks;
use crate::changes::Change;
use crate::keys::{self, Keys};
use crate::metrics::Metrics;
use crate::store::{AnyStore, Store, all_unknown};
use bytes::Bytes;
use changing::Changing;
pub use changing::{CHANGING_MAX, WAITING_MAX};
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::sliding_window::SlidingWindow;
use limits::token_bucket::TokenBucket;
use protocol::batch::{self, Algorithm, Answer, Answers, Batch, Check, RuleForm, Unknown, WireError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// The most batches that are decided at once; more are shed.
pub const BATCHES_MAX: usize = 1_024;
/// The longest a batch may take, whatever it asks for, in milliseconds.
pub const BUDGET_MAX_MS: u32 = 60_000;
/// The least that is kept back of the budget: a millisecond for the way home, and a half for a timer that counts whole ones and
/// may be late by one. Otherwise Envoy would give up first, and the reason be lost.
const KEPT_BACK_MIN: Duration = Duration::from_micros(1_500);
/// The part of a longer budget that is kept back: where seconds are allowed, a busy machine's scheduler may take more than that.
const KEPT_BACK_PART: u32 = 10;
/// The least time a batch gets, however small its budget.
const BUDGET_MIN: Duration = Duration::from_millis(1);

/// Decides batches.
#[derive(Debug)]
pub struct Decider {
    store: AnyStore,
    keys: Keys,
    metrics: Metrics,
    batches: Arc<Semaphore>,
    changing: Changing,
}

/// Why a batch is no batch, for the one who wrote the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A batch turned into questions to the store.
struct Questions {
    changes: Vec<Change>,
    asks: Asks,
    /// Checks that this build can't decide, by their index.
    refused: Vec<usize>,
    budget: Duration,
}

// === impl Decider ===

impl Decider {
    /// Decides by `store`, in which buckets are named by `keys`.
    #[must_use]
    pub fn new(store: AnyStore, keys: Keys, metrics: Metrics) -> Self {
        let batches = Arc::new(Semaphore::new(BATCHES_MAX));
        Self { store, keys, metrics, batches, changing: Changing::new() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &AnyStore {
        &self.store
    }

    /// Names the buckets.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Answers the batch in `body`, which arrived at `arrived`.
    ///
    /// # Errors
    /// The body is no batch.
    pub async fn batch(self: &Arc<Self>, body: Bytes, arrived: Instant) -> Result<Vec<u8>, Malformed> {
        let answer_in = batch::version(&body).unwrap_or(batch::VERSION);
        let questions = match batch::decode_batch(&body) {
            Ok(batch) => self.questions(&batch)?,
            Err(WireError::Version(version)) if version != 0 => {
                self.metrics.unknown(Unknown::Version, 1);
                // How many checks there are can't be read; as many as there can be covers them.
                return encode(all_unknown(batch::CHECKS_MAX, Unknown::Version), answer_in);
            }
            Err(_) => return Err(Malformed),
        };
        drop(body);
        let answers = self.answers(questions, arrived).await;
        encode(answers, answer_in)
    }

    /// Asks the store for one answer per check, under its deadline.
    pub async fn ask(self: &Arc<Self>, asks: Asks, deadline: Instant) -> Vec<Answer> {
        self.change_and_ask(Vec::new(), asks, deadline).await
    }

    /// Makes the changes and asks the checks. Only a check that asks a bucket which is changed waits for that.
    async fn change_and_ask(
        self: &Arc<Self>,
        changes: Vec<Change>,
        asks: Asks,
        deadline: Instant,
    ) -> Vec<Answer> {
        let count = asks.len();
        if matches!(self.store, AnyStore::Memory(_)) {
            // Nothing is waited for: there is nothing to detach.
            self.make(changes).await;
            return self.decide(&asks, deadline).await;
        }
        let (touching, apart) = order::parted(changes, &asks);
        let changed: HashSet<Vec<u8>> = touching.iter().map(|change| change.key.clone()).collect();
        let (touching, apart) = (self.begin(touching), self.begin(apart));
        if asks.is_empty() {
            // What is late goes on by itself; but who sends nothing else is not to send faster than the store takes it.
            if let Some(changing) = apart {
                let _ = timeout_at(deadline, changing).await;
            }
            return Vec::new();
        }
        let Ok(permit) = Arc::clone(&self.batches).try_acquire_owned() else {
            return self.undecided(count, Unknown::Shed);
        };
        let decider = Arc::clone(self);
        let decided = tokio::spawn(async move {
            let answers = match touching {
                Some(changing) => decider.ask_in_order(changing, &changed, &asks, deadline).await,
                None => decider.ask_store(&asks, deadline).await,
            };
            drop(permit);
            answers
        });
        decided.await.unwrap_or_else(|_| self.undecided(count, Unknown::RedisError))
    }

    /// Asks the store, unless it is too late: nobody would hear of what is charged then.
    async fn ask_store(&self, asks: &Asks, deadline: Instant) -> Vec<Answer> {
        if Instant::now() >= deadline {
            return self.undecided(asks.len(), Unknown::RedisTimeout);
        }
        self.decide(asks, deadline).await
    }

    /// Decides and counts in one: what was charged is counted, whether or not somebody still waits for it.
    async fn decide(&self, asks: &Asks, deadline: Instant) -> Vec<Answer> {
        let answers = self.store.decide(asks, deadline).await;
        self.metrics.answers(&answers);
        answers
    }

    fn undecided(&self, count: usize, reason: Unknown) -> Vec<Answer> {
        self.metrics.unknown(reason, count);
        all_unknown(count, reason)
    }

    async fn answers(self: &Arc<Self>, questions: Questions, arrived: Instant) -> Vec<Answer> {
        self.metrics.batch(questions.asks.len() + questions.refused.len());
        self.metrics.unknown(Unknown::Version, questions.refused.len());
        let Questions { changes, asks, budget, .. } = questions;
        let mut answers = if asks.is_empty() && changes.is_empty() {
            Vec::new()
        } else {
            self.change_and_ask(changes, asks, arrived + budget).await
        };
        for index in questions.refused {
            answers.insert(index.min(answers.len()), Answer::Unknown(Unknown::Version));
        }
        answers
    }

    fn questions(&self, batch: &Batch<'_>) -> Result<Questions, Malformed> {
        if !keys::is_name(batch.domain) || !batch.rules.iter().all(|rule| keys::is_name(rule.id)) {
            return Err(Malformed);
        }
        let rules: Vec<Option<Ruled>> = batch.rules.iter().map(ruled).collect();
        let changes = extras::changes(batch, &rules, &self.keys)?;
        let mut asks = Asks::with_capacity(batch.checks.len());
        let mut refused = Vec::new();
        let mut written = Written::default();
        for (index, check) in batch.checks.iter().enumerate() {
            written.write(&self.keys, batch.domain, check)?;
            if !add(&mut asks, batch, &rules, check, &written)? {
                refused.push(index);
            }
        }
        Ok(Questions { changes, asks, refused, budget: store_budget(batch.budget_ms) })
    }
}

/// How long the store may take of the milliseconds that the caller waits.
fn store_budget(asked_ms: u32) -> Duration {
    let budget = Duration::from_millis(asked_ms.min(BUDGET_MAX_MS).into());
    let kept_back = (budget / KEPT_BACK_PART).max(KEPT_BACK_MIN);
    budget.saturating_sub(kept_back).max(BUDGET_MIN)
}

/// Adds a check. False if one of its rules is not of this version.
fn add(
    asks: &mut Asks,
    batch: &Batch<'_>,
    rules: &[Option<Ruled>],
    check: &Check<'_>,
    written: &Written,
) -> Result<bool, Malformed> {
    for call in &check.calls {
        let rule = &batch.rules[usize::from(call.rule)];
        let Some(Ruled { limit, penalty }) = rules[usize::from(call.rule)] else {
            asks.drop_check();
            return Ok(false);
        };
        if matches!(limit, Limit::Concurrency(_)) && check.slot.is_empty() {
            return Err(Malformed);
        }
        let parts = call.key.iter().map(|&part| (check.values[usize::from(part)].kind, written.get(part)));
        asks.call(limit, penalty, call.cost, rule.shadow, |into| {
            keys::write_key(into, batch.domain, rule.id, limit.tag(), parts);
        });
    }
    if !check.slot.is_empty() {
        asks.slot(check.slot);
    }
    if asks.end_check() { Ok(true) } else { Err(Malformed) }
}

/// A rule of a batch, in the terms of the model.
#[derive(Clone, Copy)]
struct Ruled {
    limit: Limit,
    penalty: Option<Penalty>,
}

/// The terms of a rule; `None` if this version can't decide it.
fn ruled(rule: &RuleForm<'_>) -> Option<Ruled> {
    let penalty = match rule.penalty {
        None => None,
        Some(_) if matches!(rule.algorithm, Algorithm::Concurrency { .. }) => return None,
        Some(form) => {
            let refill = Refill::new(form.refill_num, form.refill_den)?;
            let bucket = TokenBucket::new(form.capacity, refill, form.idle_s).ok()?;
            Some(Penalty::new(form.denials, form.within_s, form.for_s, bucket).ok()?)
        }
    };
    Some(Ruled { limit: limit(rule.algorithm)?, penalty })
}

fn limit(algorithm: Algorithm) -> Option<Limit> {
    match algorithm {
        Algorithm::TokenBucket { capacity, refill_num, refill_den, idle_s } => {
            let refill = Refill::new(refill_num, refill_den)?;
            TokenBucket::new(capacity, refill, idle_s).ok().map(Limit::TokenBucket)
        }
        Algorithm::SlidingWindow { capacity, window_s } => {
            SlidingWindow::new(capacity, window_s).ok().map(Limit::SlidingWindow)
        }
        Algorithm::Concurrency { capacity, lease_s } => {
            Concurrency::new(capacity, lease_s).ok().map(Limit::Concurrency)
        }
    }
}

fn encode(answers: Vec<Answer>, version: u8) -> Result<Vec<u8>, Malformed> {
    batch::encode_answers(&Answers { answers, unavailable_for_ms: 0 }, version).map_err(|_| Malformed)
}

/// A check's values as keys write them: each once, however many rules are keyed by it.
#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

// === impl Written ===

impl Written {
    fn write(&mut self, keys: &Keys, domain: &str, check: &Check<'_>) -> Result<(), Malformed> {
        self.bytes.clear();
        self.ends.clear();
        for value in &check.values {
            if !keys::is_name(value.kind) {
                return Err(Malformed);
            }
            keys.write_value(&mut self.bytes, domain, value.kind, value.bytes, value.secret);
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }

    fn get(&self, index: u8) -> &[u8] {
        let index = usize::from(index);
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }
}

#[cfg(test)]
mod tests;
