//! Several rules of one request, decided and charged as one step: all that enforce admit, or nothing is charged.
//!
//! This is the specification of `lua/decide.lua`; both get the same random histories and must agree in every answer.

use crate::concurrency::{Concurrency, Slots};
use crate::penalty::{Penalty, Strikes};
use crate::sliding_window::{SlidingWindow, Windows};
use crate::token_bucket::{TokenBucket, Used};
use std::borrow::Cow;

/// What one rule says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Not now; the same request is admitted later.
    Wait,
    /// Yes.
    Admit,
    /// The cost is above the capacity: the same request is never admitted.
    Never,
}

/// What one rule says to a request, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The rule's own verdict, whatever the other rules say.
    pub verdict: Verdict,
    /// Whole tokens left, rounded down: after the charge if the rule was charged, else before it.
    pub left: u64,
    /// [`Verdict::Wait`]: milliseconds until this request would be admitted, rounded up. [`Verdict::Admit`]: milliseconds until
    /// the same cost (at least 1) would be admitted again, 0 if at once or not known. [`Verdict::Never`]: 0.
    pub wait_ms: u64,
}

/// The limit of a rule: an algorithm with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`Concurrency`]; every request costs 1.
    Concurrency(Concurrency),
}

/// What an algorithm remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a [`TokenBucket`].
    Used(Used),
    /// Of a [`SlidingWindow`].
    Windows(Windows),
    /// Of a [`Concurrency`].
    Slots(Slots),
}

/// What is remembered of one client under one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The algorithm's own.
    pub state: State,
    /// The denials of one that was denied, where the rule has a penalty.
    pub strikes: Option<Strikes>,
}

/// A state to be written, and how long it is worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<S> {
    /// The new state.
    pub state: S,
    /// Milliseconds after which all is as without it, and [`crate::token_bucket::TTL_SLACK_MS`] more.
    pub ttl_ms: u64,
}

/// One rule of a request, with what its bucket remembers.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The rule's limit.
    pub limit: Limit,
    /// What denials bring about; never with [`Limit::Concurrency`].
    pub penalty: Option<Penalty>,
    /// Tokens that the request costs.
    pub cost: u64,
    /// A shadow rule is outside the all-or-nothing: it is charged only if the request passes and it admits itself.
    pub shadow: bool,
    /// The slot that [`Limit::Concurrency`] takes.
    pub slot: &'a [u8],
    /// What its bucket remembers.
    pub bucket: Option<&'a Bucket>,
}

/// The answer of one rule, and what its bucket has to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What the rule says.
    pub outcome: Outcome,
    /// The bucket to write, if the rule was charged or has counted a denial.
    pub write: Option<Write<Bucket>>,
}

/// Whether every enforcing rule admits the request.
#[must_use]
pub fn admits(now_us: u64, charges: &[Charge<'_>]) -> bool {
    charges.iter().all(|charge| charge.shadow || charge.ask(now_us) == Verdict::Admit)
}

/// Decides one request at `now_us`, microseconds since the epoch: whether it passes, and what each rule says, in their order.
/// Unless it passes, nothing is charged; what is to be written then are the denials that a penalty counts.
#[must_use]
pub fn decide(now_us: u64, charges: &[Charge<'_>]) -> (bool, Vec<Ruling>) {
    let admitted = admits(now_us, charges);
    let rulings = charges.iter().map(|charge| match charge.ask(now_us) {
        Verdict::Admit if admitted => charge.charge(now_us),
        Verdict::Admit => Ruling { outcome: charge.refuse(now_us, charge.strikes()), write: None },
        _ => charge.deny(now_us),
    });
    (admitted, rulings.collect())
}

// === impl Charge ===

impl Charge<'_> {
    fn ask(&self, now_us: u64) -> Verdict {
        let verdict = match self.limit {
            Limit::TokenBucket(limit) => limit.ask(self.used(), now_us, self.cost),
            Limit::SlidingWindow(limit) => limit.ask(self.windows(), now_us / 1_000, self.cost),
            Limit::Concurrency(limit) => limit.ask(&self.slots(), now_us / 1_000, self.slot),
        };
        match (verdict, self.penalty.zip(self.strikes())) {
            (Verdict::Admit, Some((penalty, strikes))) if !penalty.admits(&strikes, now_us, self.cost) => {
                Verdict::Wait
            }
            _ => verdict,
        }
    }

    /// What the rule says when it is not charged.
    fn refuse(&self, now_us: u64, strikes: Option<Strikes>) -> Outcome {
        let outcome = match self.limit {
            Limit::TokenBucket(limit) => limit.refuse(self.used(), now_us, self.cost),
            Limit::SlidingWindow(limit) => limit.refuse(self.windows(), now_us / 1_000, self.cost),
            Limit::Concurrency(limit) => limit.refuse(&self.slots(), now_us / 1_000, self.slot),
        };
        let outcome = Outcome { verdict: self.ask(now_us), ..outcome };
        self.with_penalty(outcome, strikes, now_us, self.cost)
    }

    fn charge(&self, now_us: u64) -> Ruling {
        let now_ms = now_us / 1_000;
        let (outcome, write) = match self.limit {
            Limit::TokenBucket(limit) => {
                let (outcome, write) = limit.charge(self.used(), now_us, self.cost);
                (outcome, write.map(|write| write.map(State::Used)))
            }
            Limit::SlidingWindow(limit) => {
                let (outcome, write) = limit.charge(self.windows(), now_ms, self.cost);
                (outcome, write.map(|write| write.map(State::Windows)))
            }
            Limit::Concurrency(limit) => {
                let (outcome, write) = limit.charge(&self.slots(), now_ms, self.slot);
                (outcome, write.map(|write| write.map(State::Slots)))
            }
        };
        let strikes = self
            .penalty
            .zip(self.strikes())
            .and_then(|(penalty, strikes)| penalty.kept(penalty.charge(strikes, now_us, self.cost), now_us));
        let outcome = self.with_penalty(outcome, strikes, now_us, self.cost.max(1));
        Ruling { outcome, write: write.map(|write| self.bucket(write, strikes, now_us)) }
    }

    /// Counts the denial where a penalty wants it counted.
    fn deny(&self, now_us: u64) -> Ruling {
        let Some(penalty) = self.penalty else {
            return Ruling { outcome: self.refuse(now_us, None), write: None };
        };
        let strikes = Some(penalty.strike(self.strikes(), now_us));
        let write = match self.limit {
            Limit::TokenBucket(limit) => {
                let used = self.used().unwrap_or(Used { micro_tokens: 0, at_us: now_us });
                limit.write(used, now_us).map(State::Used)
            }
            Limit::SlidingWindow(limit) => {
                let windows = self.windows().unwrap_or_else(|| limit.empty(now_us / 1_000));
                limit.write(windows, now_us / 1_000).map(State::Windows)
            }
            Limit::Concurrency(_) => return Ruling { outcome: self.refuse(now_us, None), write: None },
        };
        let outcome = self.refuse(now_us, strikes);
        Ruling { outcome, write: Some(self.bucket(write, strikes, now_us)) }
    }

    /// The numbers of an outcome, as a penalty worsens them.
    fn with_penalty(&self, outcome: Outcome, strikes: Option<Strikes>, now_us: u64, cost: u64) -> Outcome {
        let Some((penalty, strikes)) = self.penalty.zip(strikes) else { return outcome };
        let Some(left) = penalty.left(&strikes, now_us) else { return outcome };
        let waits = penalty.wait_ms(&strikes, now_us, cost);
        let wait_ms = if outcome.verdict == Verdict::Never { 0 } else { outcome.wait_ms.max(waits) };
        Outcome { left: outcome.left.min(left), wait_ms, ..outcome }
    }

    fn bucket(&self, write: Write<State>, strikes: Option<Strikes>, now_us: u64) -> Write<Bucket> {
        let ttl_ms = match self.penalty.zip(strikes) {
            Some((penalty, strikes)) => write.ttl_ms.max(penalty.ttl_ms(&strikes, now_us)),
            None => write.ttl_ms,
        };
        Write { state: Bucket { state: write.state, strikes }, ttl_ms }
    }

    fn strikes(&self) -> Option<Strikes> {
        self.bucket.and_then(|bucket| bucket.strikes)
    }

    fn used(&self) -> Option<Used> {
        self.bucket.and_then(Bucket::used)
    }

    fn windows(&self) -> Option<Windows> {
        self.bucket.and_then(Bucket::windows)
    }

    fn slots(&self) -> Cow<'_, Slots> {
        match self.bucket.map(|bucket| &bucket.state) {
            Some(State::Slots(slots)) => Cow::Borrowed(slots),
            _ => Cow::Owned(Slots::default()),
        }
    }
}

// === impl Bucket ===

impl Bucket {
    /// The state of a token bucket, if it is one.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        match self.state {
            State::Used(used) => Some(used),
            _ => None,
        }
    }

    /// The state of a sliding window, if it is one.
    #[must_use]
    pub fn windows(&self) -> Option<Windows> {
        match self.state {
            State::Windows(windows) => Some(windows),
            _ => None,
        }
    }
}

// === impl Write ===

impl<S> Write<S> {
    fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Write<T> {
        Write { state: wrap(self.state), ttl_ms: self.ttl_ms }
    }
}

// === impl Limit ===

impl Limit {
    /// The algorithm and the format of its state, as keys and scripts spell it.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "tb1",
            Self::SlidingWindow(_) => "sw1",
            Self::Concurrency(_) => "cc1",
        }
    }

    /// The most at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(limit) => limit.capacity(),
            Self::SlidingWindow(limit) => limit.capacity(),
            Self::Concurrency(limit) => limit.capacity(),
        }
    }

    /// Seconds until nothing is used any more when `left` tokens are left, rounded up. Of a sliding window, which does not tell,
    /// the window; of concurrency, where it is the requests that decide, none.
    #[must_use]
    pub fn seconds_to_full(&self, left: u64) -> Option<u64> {
        match self {
            Self::TokenBucket(limit) => Some(limit.seconds_to_full(left)),
            Self::SlidingWindow(limit) if left >= limit.capacity() => Some(0),
            Self::SlidingWindow(limit) => Some(limit.window_s()),
            Self::Concurrency(_) => None,
        }
    }
}
