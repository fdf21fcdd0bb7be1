//! What a request costs, where that is known only after it has passed: reserved by the check, settled once it is known.
//!
//! Each entry is settled at most once, with the difference. What is never known stays as it was reserved, and what was not charged
//! (denied, undecided, gone before the ruling) is not settled.

use crate::bucket::Bucket;
use limits::ruleset::RuleSet;
use protocol::batch::{Outcome, Verdict};

/// The open entries of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    open: Vec<Entry>,
    charged: bool,
    asked_us: u64,
    body_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    bucket: Bucket,
    reserved: u64,
}

/// Tokens that a bucket gets back or is charged after the fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The bucket.
    pub bucket: Bucket,
    /// How many tokens; never 0.
    pub tokens: u64,
    /// Whether they go back into the bucket, rather than out of it.
    pub gives: bool,
    /// When the request was checked, in microseconds: before anything was taken, however long it then waited.
    pub asked_us: u64,
}

// === impl Bill ===

impl Bill {
    /// So many tokens are reserved of a bucket whose rule settles later.
    pub fn reserve(&mut self, bucket: Bucket, tokens: u64) {
        self.open.push(Entry { bucket, reserved: tokens });
    }

    /// The check is on its way since `now_us`.
    pub fn asked(&mut self, now_us: u64) {
        self.asked_us = now_us;
    }

    /// Whether nothing is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The request passes. Only what admitted it was charged.
    pub fn charged(&mut self, outcomes: &[Outcome]) {
        let admitted = |outcome: &Outcome| outcome.verdict == Verdict::Admit;
        self.open.retain(|entry| outcomes.get(entry.bucket.place).is_some_and(admitted));
        self.charged = true;
    }

    /// So many more bytes of the request's body went by.
    pub fn body(&mut self, rules: &RuleSet, bytes: usize, is_end: bool) -> Vec<Settlement> {
        self.body_bytes = self.body_bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if is_end { self.end(rules) } else { Vec::new() }
    }

    /// Whether headers or trailers of the response may tell a cost.
    #[must_use]
    pub fn awaits_response(&self, rules: &RuleSet) -> bool {
        let told = |entry: &Entry| rules.rule(entry.bucket.rule)?.cost.response_header();
        self.charged && self.open.iter().any(|entry| told(entry).is_some())
    }

    /// The response's headers or trailers can be read, by `header`.
    pub fn response(&mut self, rules: &RuleSet, header: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<Settlement> {
        self.settle(|entry| {
            let cost = &rules.rule(entry.bucket.rule)?.cost;
            cost.of_response(header(cost.response_header()?).as_deref())
        })
    }

    /// No more of the body will come.
    pub fn end(&mut self, rules: &RuleSet) -> Vec<Settlement> {
        let bytes = self.body_bytes;
        self.settle(|entry| rules.rule(entry.bucket.rule)?.cost.of_body(bytes))
    }

    /// Settles the entries of which `cost` tells the cost.
    fn settle(&mut self, cost: impl Fn(&Entry) -> Option<u64>) -> Vec<Settlement> {
        let (mut settled, asked_us) = (Vec::new(), self.asked_us);
        if !self.charged {
            return settled;
        }
        self.open.retain_mut(|entry| {
            let Some(cost) = cost(entry) else { return true };
            settled.extend(entry.settlement(cost, asked_us));
            false
        });
        settled
    }
}

// === impl Entry ===

impl Entry {
    fn settlement(&self, cost: u64, asked_us: u64) -> Option<Settlement> {
        let tokens = cost.abs_diff(self.reserved);
        let gives = cost < self.reserved;
        (tokens > 0).then(|| Settlement { bucket: self.bucket.clone(), tokens, gives, asked_us })
    }
}
