//! Logs: one line per event on standard error. Only what this project's own crates say is written, so that no dependency can
//! print a key; and what repeats itself is held back.

use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The crates whose lines are written.
const OURS: [&str; 2] = ["sidecar", "kota"];

struct Logger;

/// Lets one event through per interval and counts the others.
#[derive(Debug)]
pub struct Throttle {
    every_ms: u64,
    /// Milliseconds since the epoch from when the next one passes.
    open_at_ms: AtomicU64,
    held_back: AtomicU64,
}

/// Begins to log, to standard error.
///
/// # Errors
/// Something else in this process logs already.
pub fn begin(level: LevelFilter) -> Result<(), SetLoggerError> {
    log::set_logger(&Logger)?;
    log::set_max_level(level);
    Ok(())
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let name = metadata.target().split("::").next().unwrap_or_default();
        OURS.contains(&name)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = format!("{} {} {}\n", timestamp(now()), record.level(), record.args());
            // Nobody can be told that standard error is gone.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

// === impl Throttle ===

impl Throttle {
    /// One event per so many milliseconds.
    #[must_use]
    pub const fn new(every_ms: u64) -> Self {
        Self { every_ms, open_at_ms: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }

    /// Whether this event passes, and if so, how many were held back since the last that did.
    pub fn pass(&self) -> Option<u64> {
        let now_ms = u64::try_from(now().as_millis()).unwrap_or(u64::MAX);
        let open_at = self.open_at_ms.load(Ordering::Relaxed);
        let next = now_ms.saturating_add(self.every_ms);
        let passes = now_ms >= open_at
            && self.open_at_ms.compare_exchange(open_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if passes {
            Some(self.held_back.swap(0, Ordering::Relaxed))
        } else {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// RFC 3339 in UTC, to the millisecond.
fn timestamp(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let millis = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The Gregorian date of a day since the epoch. Years are counted from March, so that the leap day is the last of its year
/// and a month's first day is 153/5 days times its number.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339() {
        assert_eq!(timestamp(Duration::ZERO), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(Duration::from_millis(951_782_399_999)), "2000-02-28T23:59:59.999Z");
        assert_eq!(timestamp(Duration::from_secs(951_782_400)), "2000-02-29T00:00:00.000Z");
        assert_eq!(timestamp(Duration::from_secs(1_798_761_599)), "2026-12-31T23:59:59.000Z");
        assert_eq!(timestamp(Duration::from_secs(4_107_542_400)), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn what_repeats_itself_is_held_back_and_counted() {
        let throttle = Throttle::new(u64::MAX);
        assert_eq!(throttle.pass(), Some(0));
        assert_eq!(throttle.pass(), None);
        assert_eq!(throttle.pass(), None);
        throttle.open_at_ms.store(0, Ordering::Relaxed);
        assert_eq!(throttle.pass(), Some(2));
    }

    #[test]
    fn only_our_own_crates_are_heard() {
        let heard = |target| Logger.enabled(&Metadata::builder().target(target).build());
        assert!(heard("sidecar::serve") && heard("kota"));
        assert!(!heard("redis::aio") && !heard("hyper") && !heard("sidecars"));
    }
}
