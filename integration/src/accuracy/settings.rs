//! Under which traffic the counter is tried: one day under limits from wide to tight, and clients that all keep to the limit's edge.

use super::{Popularity, Setting, Traffic};

/// The days of a report.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;

/// 10,000 clients who together send 2 requests a second on the mean of the day, by Zipf's law.
const DAY: Traffic = Traffic {
    clients: 10_000,
    seconds: 86_400.0,
    popularity: Popularity::Zipf { exponent: 1.0, per_second: 2.0 },
    job_per_second: 1.0,
};

/// The limit that few go near, as limits are set that protect and do not ration.
pub const FEW_NEAR: Setting =
    Setting { name: "200 a minute, which few go near", capacity: 200, window_s: 60, traffic: DAY };

/// Nobody does anything but hover at the limit, for a quarter of an hour.
pub const ALL_HOVER: Setting = Setting {
    name: "100 a minute, and all send 0.8 to 1.2 times that",
    capacity: 100,
    window_s: 60,
    traffic: Traffic {
        clients: 1_000,
        seconds: 900.0,
        popularity: Popularity::Between { low: 0.8 * 100.0 / 60.0, high: 1.2 * 100.0 / 60.0 },
        job_per_second: 10.0,
    },
};

/// All of them, from the widest limit to the harshest.
#[must_use]
pub fn all() -> Vec<Setting> {
    let limit = |name, capacity| Setting { name, capacity, ..FEW_NEAR };
    vec![
        limit("400 a minute, which nobody reaches", 400),
        FEW_NEAR,
        limit("100 a minute", 100),
        limit("50 a minute", 50),
        limit("20 a minute", 20),
        ALL_HOVER,
    ]
}
