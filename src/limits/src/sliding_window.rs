//! The sliding window counter: at most `capacity` in a window that slides, estimated from two counts.
//!
//! The current fixed window counts in full, the one before by the share of it that the sliding window still covers: 42 in the
//! previous minute and 18 by second 15 of this one are 42 × 45/60 + 18 = 49.5. A log of every request would be exact and take
//! 60 bytes for each; two counts take 8. Windows begin at multiples of their length since the epoch, on the clock that all share.
//!
//! All in integers: a count is admitted if the estimate stays within the capacity, and since everything else is whole, it is the
//! same to ask that of the estimate rounded up.

use crate::decision::{Outcome, Verdict, Write};
use crate::token_bucket::{CAPACITY_MAX, TTL_SLACK_MS};

/// The longest window, in seconds: 31 days.
pub const WINDOW_MAX_S: u64 = 31 * 24 * 60 * 60;

/// The parameters of a sliding window counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    capacity: u64,
    window_ms: u64,
}

/// What a sliding window counter remembers. No state at all is nothing counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// When the current window began, in milliseconds since the epoch.
    pub start_ms: u64,
    /// What was counted in it.
    pub current: u64,
    /// What was counted in the one before.
    pub previous: u64,
}

/// Why parameters make no sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlidingWindowError {
    /// The capacity is 0 or above [`CAPACITY_MAX`].
    Capacity,
    /// The window is shorter than 1 s or longer than [`WINDOW_MAX_S`].
    Window,
}

// === impl SlidingWindow ===

impl SlidingWindow {
    /// At most `capacity` in any `window_s` seconds.
    ///
    /// # Errors
    /// See [`SlidingWindowError`].
    pub fn new(capacity: u64, window_s: u64) -> Result<Self, SlidingWindowError> {
        if capacity == 0 || capacity > CAPACITY_MAX {
            return Err(SlidingWindowError::Capacity);
        }
        if window_s == 0 || window_s > WINDOW_MAX_S {
            return Err(SlidingWindowError::Window);
        }
        Ok(Self { capacity, window_ms: window_s.saturating_mul(1_000) })
    }

    /// The most that a window takes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The window's length, in milliseconds.
    #[must_use]
    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// The window's length, in seconds.
    #[must_use]
    pub fn window_s(&self) -> u64 {
        self.window_ms / 1_000
    }

    /// What a request of this cost would hear at `now_ms`, if it were counted.
    #[must_use]
    pub fn ask(&self, state: Option<Windows>, now_ms: u64, cost: u64) -> Verdict {
        if cost > self.capacity {
            return Verdict::Never;
        }
        let wanted = self.used(&self.at(state, now_ms), now_ms).saturating_add(cost);
        if wanted <= self.capacity { Verdict::Admit } else { Verdict::Wait }
    }

    /// What is left when nothing is counted, and how long a request of this cost has to wait.
    #[must_use]
    pub fn refuse(&self, state: Option<Windows>, now_ms: u64, cost: u64) -> Outcome {
        let windows = self.at(state, now_ms);
        let left = self.capacity.saturating_sub(self.used(&windows, now_ms));
        Outcome {
            verdict: self.ask(state, now_ms, cost),
            left,
            wait_ms: self.wait_ms(&windows, now_ms, cost),
        }
    }

    /// Counts a request of this cost, which [`SlidingWindow::ask`] admits: the outcome, and the state to write (none if nothing
    /// changed).
    #[must_use]
    pub fn charge(
        &self,
        state: Option<Windows>,
        now_ms: u64,
        cost: u64,
    ) -> (Outcome, Option<Write<Windows>>) {
        let mut windows = self.at(state, now_ms);
        windows.current = windows.current.saturating_add(cost);
        let left = self.capacity.saturating_sub(self.used(&windows, now_ms));
        let wait_ms = self.wait_ms(&windows, now_ms, cost.max(1));
        let write = (cost > 0).then(|| self.write(windows, now_ms));
        (Outcome { verdict: Verdict::Admit, left, wait_ms }, write)
    }

    /// Takes back what was counted too much `age_ms` ago, out of the window in which that was: taken out of a later one, others
    /// would be admitted there in its place. What is older than both counts no longer. `None` if there is nothing to take it from.
    #[must_use]
    pub fn give(
        &self,
        state: Option<Windows>,
        now_ms: u64,
        tokens: u64,
        age_ms: u64,
    ) -> Option<Write<Windows>> {
        let mut windows = self.at(Some(state?), now_ms);
        let counted_ms = now_ms.saturating_sub(age_ms);
        if counted_ms >= windows.start_ms {
            windows.current = windows.current.saturating_sub(tokens);
        } else if counted_ms.saturating_add(self.window_ms) >= windows.start_ms {
            windows.previous = windows.previous.saturating_sub(tokens);
        }
        Some(self.write(windows, now_ms))
    }

    /// Counts what has been used already, whether or not it is within the capacity; the current window holds at most twice that.
    #[must_use]
    pub fn take(&self, state: Option<Windows>, now_ms: u64, tokens: u64) -> Write<Windows> {
        let mut windows = self.at(state, now_ms);
        let most = self.capacity.saturating_mul(2).max(windows.current);
        windows.current = windows.current.saturating_add(tokens).min(most);
        self.write(windows, now_ms)
    }

    /// A state with the time that it is worth keeping: to the end of the next window, and [`TTL_SLACK_MS`] more.
    #[must_use]
    pub fn write(&self, windows: Windows, now_ms: u64) -> Write<Windows> {
        let end_ms = windows.start_ms.saturating_add(self.window_ms.saturating_mul(2));
        Write { state: windows, ttl_ms: end_ms.saturating_sub(now_ms).saturating_add(TTL_SLACK_MS) }
    }

    /// Nothing counted yet.
    #[must_use]
    pub fn empty(&self, now_ms: u64) -> Windows {
        self.at(None, now_ms)
    }

    /// The state as of the window that `now_ms` lies in. A state that began later than that (the clock went back, or the window
    /// was shorter) is taken as it is, so that going back forgets nothing. What is then written is of the earlier window: from a clock
    /// that went back by more than a window, and goes forward again, that is too long ago and forgotten.
    fn at(&self, state: Option<Windows>, now_ms: u64) -> Windows {
        let start_ms = now_ms.saturating_sub(now_ms.checked_rem(self.window_ms).unwrap_or(0));
        match state {
            Some(state) if state.start_ms >= start_ms => Windows { start_ms, ..state },
            Some(state) if state.start_ms.saturating_add(self.window_ms) >= start_ms => {
                Windows { start_ms, current: 0, previous: state.current }
            }
            _ => Windows { start_ms, current: 0, previous: 0 },
        }
    }

    /// The estimate, rounded up.
    fn used(&self, windows: &Windows, now_ms: u64) -> u64 {
        let covered = u128::from(windows.previous).saturating_mul(u128::from(self.rest_ms(windows, now_ms)));
        let carried = covered.div_ceil(u128::from(self.window_ms.max(1)));
        windows.current.saturating_add(u64::try_from(carried).unwrap_or(u64::MAX))
    }

    /// How much of the previous window the sliding one still covers, in milliseconds.
    fn rest_ms(&self, windows: &Windows, now_ms: u64) -> u64 {
        windows.start_ms.saturating_add(self.window_ms).saturating_sub(now_ms)
    }

    /// Milliseconds until a request of this cost is admitted if nothing else comes; 0 if it would be now, or never.
    fn wait_ms(&self, windows: &Windows, now_ms: u64, cost: u64) -> u64 {
        let Some(room) = self.capacity.checked_sub(cost) else { return 0 };
        let rest_ms = self.rest_ms(windows, now_ms);
        match room.checked_sub(windows.current) {
            // Within this window, as soon as the previous one counts for no more than `room`.
            Some(room) => rest_ms.saturating_sub(self.covering(windows.previous, room)),
            // Within the next, where what is counted now will be the previous one.
            None => {
                let fades_ms = self.window_ms.saturating_sub(self.covering(windows.current, room));
                rest_ms.saturating_add(fades_ms)
            }
        }
    }

    /// The longest part of a window with so much in it that counts for at most `room`, in milliseconds.
    fn covering(&self, counted: u64, room: u64) -> u64 {
        let part = u128::from(room).saturating_mul(u128::from(self.window_ms));
        let part = part.checked_div(u128::from(counted)).and_then(|part| u64::try_from(part).ok());
        part.unwrap_or(self.window_ms).min(self.window_ms)
    }
}

impl core::fmt::Display for SlidingWindowError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Capacity => write!(
                out,
                "the capacity is from 1 to {CAPACITY_MAX}; to switch a rule off say \"mode\": \"DISABLED\""
            ),
            Self::Window => write!(out, "a window is from 1 to {WINDOW_MAX_S} seconds long (31 days)"),
        }
    }
}
