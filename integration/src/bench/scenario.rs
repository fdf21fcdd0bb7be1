//! Scenarios, measured in turns.

use crate::Running;
use serde::Serialize;

use crate::bench::gateway::Chain;
use crate::bench::load::Load;
use crate::bench::measure::{Run, settle};
use crate::bench::settings::Settings;

/// One thing to measure.
pub struct Scenario<'a> {
    /// Its name in the report.
    pub name: String,
    /// What limits.
    pub chain: Chain,
    /// What runs; scenarios may share one, since only one is measured at a time.
    pub stack: &'a Running,
    /// What comes in.
    pub load: Load,
    /// What goes wrong meanwhile.
    pub trouble: Trouble,
}

/// Something that is brought about before a load and undone after it.
#[derive(Clone, Copy)]
pub struct Trouble {
    /// Brings it about.
    pub begin: fn(&Running),
    /// Undoes it.
    pub end: fn(&Running),
}

/// A scenario's runs, one of each round.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The scenario's name.
    pub name: String,
    /// What limits.
    #[serde(skip)]
    pub chain: Chain,
    /// Its runs in order.
    pub runs: Vec<Run>,
}

/// Everything works.
pub const NO_TROUBLE: Trouble = Trouble { begin: |_| {}, end: |_| {} };

/// The first load on a fresh Envoy warms its caches, the sidecar's connections and the script in Redis.
const WARM_UP_SECONDS: u64 = 1;

// === impl Scenario ===

impl Scenario<'_> {
    fn run(&self, seconds: u64, round: u64) -> Result<Run, String> {
        Run::measure(self.stack, self.chain, round, || {
            (self.trouble.begin)(self.stack);
            let outcome = self.load.run(self.stack.envoy().port(), seconds, self.stack.dir.path());
            settle(self.stack); // before the trouble ends, so that it meets all requests
            (self.trouble.end)(self.stack);
            outcome
        })
        .map_err(|e| format!("{}: {e}", self.name))
    }
}

/// Warms all scenarios up, then measures each once per round. Every round begins with another one, so that none always follows the same.
///
/// # Errors
/// When a load generator fails.
pub fn in_turns(scenarios: &[Scenario], settings: &Settings) -> Result<Vec<Measured>, String> {
    for scenario in scenarios {
        scenario.run(WARM_UP_SECONDS, 0)?;
    }
    let mut measured: Vec<_> = scenarios
        .iter()
        .map(|scenario| Measured { name: scenario.name.clone(), chain: scenario.chain, runs: Vec::new() })
        .collect();
    for round in 1..=settings.rounds {
        for turn in 0..scenarios.len() {
            let index = (turn + round as usize - 1) % scenarios.len();
            let run = scenarios[index].run(settings.seconds, round)?;
            progress(&scenarios[index].name, &run, settings);
            measured[index].runs.push(run);
        }
    }
    Ok(measured)
}

fn progress(name: &str, run: &Run, settings: &Settings) {
    let cpu = run.cpu_us.envoy.unwrap_or(0.0);
    eprintln!(
        "round {}/{}: {name}: {:.0} requests/s, p50 {:.0} µs, p99 {:.0} µs, Envoy {cpu:.1} µs of CPU per request",
        run.round, settings.rounds, run.rps, run.p50_us, run.p99_us,
    );
}
