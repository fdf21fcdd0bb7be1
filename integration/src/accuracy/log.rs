//! A sliding window log: every admitted request is remembered for the window's length. Exact, and too large for a real limiter.

use std::collections::VecDeque;

use limits::sliding_window::SlidingWindow;

/// The requests that were admitted within the last window, by the time of the latest question.
#[derive(Debug)]
pub(super) struct Log {
    window_ms: u64,
    capacity: u64,
    moments: VecDeque<u64>,
}

impl Log {
    pub(super) fn new(window: SlidingWindow) -> Self {
        Self { window_ms: window.window_ms(), capacity: window.capacity(), moments: VecDeque::new() }
    }

    /// Whether less than the limit was counted within the window that ends now.
    pub(super) fn has_room(&mut self, now_ms: u64) -> bool {
        while self.moments.front().is_some_and(|first| first + self.window_ms <= now_ms) {
            self.moments.pop_front();
        }
        self.len() < self.capacity
    }

    pub(super) fn count(&mut self, now_ms: u64) {
        self.moments.push_back(now_ms);
    }

    /// Counts the request if there is room.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let room = self.has_room(now_ms);
        if room {
            self.count(now_ms);
        }
        room
    }

    /// How many are counted.
    pub(super) fn len(&self) -> u64 {
        self.moments.len() as u64
    }
}
