//! How long and how often is measured.

use std::env;

use serde::Serialize;

/// What the environment may override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Seconds of load in each measured run: `BENCH_SECONDS`, 4.
    pub seconds: u64,
    /// Rounds over all scenarios: `BENCH_ROUNDS`, 5.
    pub rounds: u64,
    /// Names of the only scenarios to measure: `BENCH_ONLY`, separated by commas; empty for all.
    pub only: Vec<String>,
}

/// The defaults: what published figures are made with. `make bench` then takes under ten minutes.
const SECONDS: u64 = 4;
const ROUNDS: u64 = 5;

// === impl Settings ===

impl Settings {
    /// From the environment.
    ///
    /// # Errors
    /// Names each variable that is no number from 1 to 600.
    pub fn from_env() -> Result<Self, Vec<String>> {
        let seconds = number("BENCH_SECONDS", SECONDS);
        let rounds = number("BENCH_ROUNDS", ROUNDS);
        let only = env::var("BENCH_ONLY").unwrap_or_default();
        let only = only.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        match (seconds, rounds) {
            (Ok(seconds), Ok(rounds)) => Ok(Self { seconds, rounds, only }),
            (seconds, rounds) => Err(seconds.err().into_iter().chain(rounds.err()).collect()),
        }
    }

    /// Whether a run with these may replace the published figures.
    #[must_use]
    pub fn thorough(&self) -> bool {
        self.seconds >= SECONDS && self.rounds >= ROUNDS && self.only.is_empty()
    }

    /// Whether this scenario is to be measured.
    #[must_use]
    pub fn wants(&self, scenario: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == scenario)
    }
}

fn number(variable: &str, default: u64) -> Result<u64, String> {
    let Ok(text) = env::var(variable) else { return Ok(default) };
    let number = text.parse().ok().filter(|number| (1..=600).contains(number));
    number.ok_or_else(|| format!("{variable}={text}: want a number from 1 to 600"))
}
