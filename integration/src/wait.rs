//! Waiting for a condition, never for a time.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a condition may take before a test is called failed. Generous: it bounds a hang, it measures nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until the condition gives a value.
///
/// # Panics
/// When it has not after 30 s; `what` tells what was awaited.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Polls until the condition holds.
///
/// # Panics
/// When it does not after 30 s.
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}
