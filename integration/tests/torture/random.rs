//! Numbers that a seed repeats.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

/// The seed of this run: `KOTA_SEED`, else the time. Printed, so that a failure can be repeated.
pub(crate) fn seed(case: &str) -> u64 {
    let given = std::env::var("KOTA_SEED").ok().map(|text| text.parse().expect("KOTA_SEED is a number"));
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_micros() as u64);
    let seed = given.unwrap_or_else(now);
    eprintln!("{case}: KOTA_SEED={seed}");
    seed
}

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True so many times of a thousand.
    pub(crate) fn per_mille(&mut self, times: usize) -> bool {
        self.below(1_000) < times
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    /// So many bytes that a header's value may hold: every one but controls.
    pub(crate) fn field_bytes(&mut self, count: usize) -> Vec<u8> {
        let byte = |n: u64| match n as u8 {
            byte @ (0x21..=0x7e | 0x80..=0xff) => byte,
            byte => 0x80 | byte,
        };
        (0..count).map(|_| byte(self.next())).collect()
    }
}
