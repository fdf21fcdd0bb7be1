//! A seeded source of numbers (splitmix64): the same seed gives the same history everywhere.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct Random(u64);

impl Random {
    /// Seeded by `KOTA_SEED`, else by the clock. The seed is printed: a failing test shows it.
    pub(crate) fn seeded() -> Self {
        let seed = match std::env::var("KOTA_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|e| panic!("KOTA_SEED={text}: {e}; give a whole number")),
            Err(_) => {
                SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_micros()
                    as u64
            }
        };
        println!("KOTA_SEED={seed}");
        Self(seed)
    }

    /// From 0 to `end`, without `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// True in `percent` of 100 calls.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Of any magnitude up to 10^`digits`: each number of digits is as likely as any other.
    pub(crate) fn magnitude(&mut self, digits: u64) -> u64 {
        let exponent = u32::try_from(self.below(digits + 1)).expect("few digits");
        self.below(10u64.pow(exponent)) + u64::from(exponent == 0)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
