//! Several rules of one request, decided and charged as one step: all that enforce admit, or nothing is charged.
//!
//! This is the specification of `lua/decide.lua`; both get the same random histories and must agree in every answer.

use crate::token_bucket::{TokenBucket, Used, Write};

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
    /// the same cost (at least 1) would be admitted again, 0 if at once. [`Verdict::Never`]: 0.
    pub wait_ms: u64,
}

/// The limit of a rule: an algorithm with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
}

/// One rule of a request, with the state of its bucket.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// The rule's limit.
    pub limit: Limit,
    /// Tokens that the request costs.
    pub cost: u64,
    /// A shadow rule is outside the all-or-nothing: it is charged only if the request passes and it admits itself.
    pub shadow: bool,
    /// What its bucket remembers.
    pub state: Option<Used>,
}

/// The answer of one rule, and what its bucket has to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What the rule says.
    pub outcome: Outcome,
    /// The state to write, if the rule was charged.
    pub write: Option<Write>,
}

/// Whether every enforcing rule admits the request.
#[must_use]
pub fn admits(now_us: u64, charges: &[Charge]) -> bool {
    charges
        .iter()
        .all(|charge| charge.shadow || charge.limit.ask(charge.state, now_us, charge.cost) == Verdict::Admit)
}

/// Decides one request at `now_us`, microseconds since the epoch: whether it passes, and what each rule says, in their order.
/// Nothing is to be written unless it passes.
#[must_use]
pub fn decide(now_us: u64, charges: &[Charge]) -> (bool, Vec<Ruling>) {
    let admitted = admits(now_us, charges);
    let rulings = charges.iter().map(|charge| {
        let charged = admitted && charge.limit.ask(charge.state, now_us, charge.cost) == Verdict::Admit;
        if charged {
            let (outcome, write) = charge.limit.charge(charge.state, now_us, charge.cost);
            Ruling { outcome, write }
        } else {
            Ruling { outcome: charge.limit.refuse(charge.state, now_us, charge.cost), write: None }
        }
    });
    (admitted, rulings.collect())
}

// === impl Limit ===

impl Limit {
    /// The algorithm and the format of its state, as keys and scripts spell it.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "tb1",
        }
    }

    /// Seconds until nothing is used any more when `left` tokens are left, rounded up.
    #[must_use]
    pub fn seconds_to_full(&self, left: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.seconds_to_full(left),
        }
    }

    /// See [`TokenBucket::ask`].
    #[must_use]
    pub fn ask(&self, state: Option<Used>, now_us: u64, cost: u64) -> Verdict {
        match self {
            Self::TokenBucket(bucket) => bucket.ask(state, now_us, cost),
        }
    }

    fn charge(&self, state: Option<Used>, now_us: u64, cost: u64) -> (Outcome, Option<Write>) {
        match self {
            Self::TokenBucket(bucket) => bucket.charge(state, now_us, cost),
        }
    }

    fn refuse(&self, state: Option<Used>, now_us: u64, cost: u64) -> Outcome {
        match self {
            Self::TokenBucket(bucket) => bucket.refuse(state, now_us, cost),
        }
    }
}
