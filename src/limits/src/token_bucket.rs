//! The token bucket: up to `capacity` tokens at once, refilled at a steady rate.
//!
//! The state holds what was *used*, not what is left. An edited limit keeps its meaning so: raised, it admits at once, lowered,
//! it denies at once; and a bucket without state is a full one. Nothing is written on a denial, so asking costs nothing.

pub use crate::decision::Write;
use crate::decision::{Outcome, Verdict};
use crate::refill::Refill;

/// Micro-tokens in a token. Capacities of up to 10^9 tokens stay below 2^53, exact in Lua's doubles.
pub const MICRO: u64 = 1_000_000;
/// The largest capacity, in tokens.
pub const CAPACITY_MAX: u64 = 1_000_000_000;
/// The longest time from empty to full, in seconds: 400 days.
pub const TIME_TO_FULL_MAX_S: u64 = 400 * 24 * 60 * 60;
/// The longest wait that is told, in milliseconds. Only an edited limit or a clock that went back can make a longer one.
pub const WAIT_MAX_MS: u64 = TIME_TO_FULL_MAX_S * 1_000;
/// How much longer than it is needed a state is kept, in milliseconds.
pub const TTL_SLACK_MS: u64 = 1_000;

/// The parameters of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    capacity: u64,
    refill: Refill,
    idle_us: u64,
}

/// What a bucket remembers. No state at all is a full bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Micro-tokens taken and not yet refilled, as of `at_us`.
    pub micro_tokens: u64,
    /// When `micro_tokens` was true, in microseconds since the epoch.
    pub at_us: u64,
}

/// Why parameters make no token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenBucketError {
    /// The capacity is 0 or above [`CAPACITY_MAX`].
    Capacity,
    /// Without refill the idle time says when the bucket starts anew; it is missing, or longer than [`TIME_TO_FULL_MAX_S`].
    Idle,
    /// From empty to full takes longer than [`TIME_TO_FULL_MAX_S`].
    TooSlow,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A bucket of `capacity` tokens. `idle_s`, in seconds, counts only where `refill` is [`Refill::NEVER`]: after so long
    /// without a charge the bucket starts full.
    ///
    /// # Errors
    /// See [`TokenBucketError`].
    pub fn new(capacity: u64, refill: Refill, idle_s: u64) -> Result<Self, TokenBucketError> {
        if capacity == 0 || capacity > CAPACITY_MAX {
            return Err(TokenBucketError::Capacity);
        }
        let longest_us = TIME_TO_FULL_MAX_S.saturating_mul(1_000_000);
        let idle_us = if refill.is_never() { idle_s.saturating_mul(1_000_000) } else { 0 };
        if refill.is_never() && (idle_us == 0 || idle_us > longest_us) {
            return Err(TokenBucketError::Idle);
        }
        match refill.time_for(capacity.saturating_mul(MICRO)) {
            Some(time) if time > longest_us => Err(TokenBucketError::TooSlow),
            _ => Ok(Self { capacity, refill, idle_us }),
        }
    }

    /// The most tokens that can be taken at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How fast tokens come back.
    #[must_use]
    pub fn refill(&self) -> Refill {
        self.refill
    }

    /// The idle time of a bucket without refill, in milliseconds; 0 with refill.
    #[must_use]
    pub fn idle_ms(&self) -> u64 {
        self.idle_us / 1_000
    }

    /// Seconds until a bucket with `left` tokens is full, rounded up; the idle time where nothing refills.
    #[must_use]
    pub fn seconds_to_full(&self, left: u64) -> u64 {
        let missing = self.capacity.saturating_sub(left).saturating_mul(MICRO);
        if missing == 0 {
            return 0;
        }
        self.refill.time_for(missing).unwrap_or(self.idle_us).div_ceil(1_000_000)
    }

    /// What a request of `cost` tokens would hear at `now_us`, if it were charged.
    #[must_use]
    pub fn ask(&self, state: Option<Used>, now_us: u64, cost: u64) -> Verdict {
        if cost > self.capacity {
            return Verdict::Never;
        }
        let wanted = self.used_at(state, now_us).saturating_add(cost.saturating_mul(MICRO));
        if wanted <= self.full() { Verdict::Admit } else { Verdict::Wait }
    }

    /// What is left when nothing is charged, and how long a request of `cost` tokens has to wait.
    #[must_use]
    pub fn refuse(&self, state: Option<Used>, now_us: u64, cost: u64) -> Outcome {
        let verdict = self.ask(state, now_us, cost);
        let left = self.left(self.used_at(state, now_us));
        Outcome { verdict, left, wait_ms: self.wait_ms(state, now_us, cost) }
    }

    /// Takes `cost` tokens, which [`TokenBucket::ask`] admits: the outcome, and the state to write (none if nothing changed).
    #[must_use]
    pub fn charge(&self, state: Option<Used>, now_us: u64, cost: u64) -> (Outcome, Option<Write<Used>>) {
        let used = self.used_at(state, now_us).saturating_add(cost.saturating_mul(MICRO));
        // A clock that went back must not credit the same time twice.
        let at_us = state.map_or(now_us, |state| state.at_us.max(now_us));
        let charged = Used { micro_tokens: used, at_us };
        let after = if cost == 0 { state } else { Some(charged) };
        let wait_ms = self.wait_ms(after, now_us, cost.max(1));
        let write = (cost > 0).then(|| self.write(charged, now_us));
        (Outcome { verdict: Verdict::Admit, left: self.left(used), wait_ms }, write)
    }

    /// Gives tokens back that were taken too much. `None` if there is nothing to take them from.
    #[must_use]
    pub fn give(&self, state: Option<Used>, now_us: u64, tokens: u64) -> Option<Write<Used>> {
        let state = state?;
        let micro_tokens = state.micro_tokens.saturating_sub(tokens.saturating_mul(MICRO));
        Some(self.write(Used { micro_tokens, ..state }, now_us))
    }

    /// Takes tokens that have been used already, whether or not they are there: a debt, which with what was used before is at
    /// most twice the capacity, so that one wild report locks nobody out for long.
    #[must_use]
    pub fn take(&self, state: Option<Used>, now_us: u64, tokens: u64) -> Write<Used> {
        let used = self.used_at(state, now_us);
        let most = self.full().saturating_mul(2).max(used);
        let micro_tokens = used.saturating_add(tokens.saturating_mul(MICRO)).min(most);
        let at_us = state.map_or(now_us, |state| state.at_us.max(now_us));
        self.write(Used { micro_tokens, at_us }, now_us)
    }

    /// A state with the time that it is worth keeping.
    #[must_use]
    pub fn write(&self, state: Used, now_us: u64) -> Write<Used> {
        Write { state, ttl_ms: self.ttl_ms(state, now_us) }
    }

    /// The whole capacity in micro-tokens.
    fn full(&self) -> u64 {
        self.capacity.saturating_mul(MICRO)
    }

    /// Whole tokens left when `used` micro-tokens are taken.
    fn left(&self, used: u64) -> u64 {
        self.full().saturating_sub(used) / MICRO
    }

    /// Micro-tokens still taken at `now_us`.
    fn used_at(&self, state: Option<Used>, now_us: u64) -> u64 {
        let Some(state) = state else { return 0 };
        let elapsed = now_us.saturating_sub(state.at_us);
        if self.refill.is_never() {
            return if elapsed >= self.idle_us { 0 } else { state.micro_tokens };
        }
        state.micro_tokens.saturating_sub(self.refill.credit(elapsed))
    }

    /// Whole milliseconds until a request of `cost` tokens would be admitted, rounded up, at most [`WAIT_MAX_MS`]; 0 if it would
    /// be now, or never.
    fn wait_ms(&self, state: Option<Used>, now_us: u64, cost: u64) -> u64 {
        let Some(state) = state.filter(|_| cost <= self.capacity) else { return 0 };
        let wanted = state.micro_tokens.saturating_add(cost.saturating_mul(MICRO));
        let missing = wanted.saturating_sub(self.full());
        if missing == 0 {
            return 0;
        }
        let from_state = self.refill.time_for(missing).unwrap_or(self.idle_us);
        state.at_us.saturating_add(from_state).saturating_sub(now_us).div_ceil(1_000).min(WAIT_MAX_MS)
    }

    /// How long `state` matters, in milliseconds from `now_us`: at most [`WAIT_MAX_MS`] and a second. Only of an edited limit, a
    /// debt or a clock that went back a rest is forgiven so.
    fn ttl_ms(&self, state: Used, now_us: u64) -> u64 {
        let drained = self.refill.time_for(state.micro_tokens).unwrap_or(self.idle_us);
        let rest_us = state.at_us.saturating_add(drained).saturating_sub(now_us);
        rest_us.div_ceil(1_000).min(WAIT_MAX_MS).saturating_add(TTL_SLACK_MS)
    }
}

impl core::fmt::Display for TokenBucketError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Capacity => write!(
                out,
                "the capacity is from 1 to {CAPACITY_MAX} tokens; to switch a rule off say \"mode\": \"DISABLED\""
            ),
            Self::Idle => {
                write!(out, "a bucket that never refills needs idleSeconds, from 1 to {TIME_TO_FULL_MAX_S}")
            }
            Self::TooSlow => write!(
                out,
                "from empty to full takes longer than 400 days; raise refillPerSecond or lower capacity"
            ),
        }
    }
}
