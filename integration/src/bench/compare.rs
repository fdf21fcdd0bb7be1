//! The comparison: saturated on a `direct_response`, then at fixed rates with a real upstream.

use serde::Serialize;

use crate::bench::chart;
use crate::bench::gateway::{Backend, Chain};
use crate::bench::load::{CONNECTIONS, Load};
use crate::bench::machine::Machine;
use crate::bench::report::{self, Files, Report, Summary};
use crate::bench::scenario::{self, Measured, NO_TROUBLE, Scenario};
use crate::bench::settings::Settings;
use crate::bench::spread::Spread;
use crate::bench::table;

/// All that was measured.
#[derive(Debug, Serialize)]
struct Raw<'a> {
    machine: &'a Machine,
    settings: &'a Settings,
    connections: u64,
    ratios: &'a [Ratio],
    saturated: &'a [Measured],
    open_loop: &'a [Measured],
}

/// Two scenarios of the same rounds, compared.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// What is divided by what.
    pub name: &'static str,
    /// Round by round.
    pub spread: Spread,
    /// What it should be.
    pub aim: &'static str,
}

/// The saturated scenarios.
const SATURATED: [(&str, Chain); 5] = [
    ("none", Chain::None),
    ("noop_wasm", Chain::NoopWasm),
    ("local_ratelimit", Chain::LocalRatelimit),
    ("exact_memory", Chain::KotaMemory),
    ("exact_redis", Chain::KotaRedis),
];

/// The scenarios at fixed rates.
pub const OPEN_LOOP: [(&str, Chain); 3] =
    [("none", Chain::None), ("local_ratelimit", Chain::LocalRatelimit), ("exact_redis", Chain::KotaRedis)];

/// The rates, in requests/s.
pub const RATES: [u32; 5] = [500, 1250, 2000, 2500, 5000];

/// So long that nothing fails open for being slow: then the limiter's cost is measured, not its absence.
const SATURATED_DEADLINE_MS: u64 = 1000;

/// The default.
const OPEN_LOOP_DEADLINE_MS: u64 = 5;

/// Measures, prints and writes it all.
///
/// # Errors
/// What makes the figures invalid, or what went wrong.
pub fn run(machine: &Machine, settings: &Settings) -> Result<(), Vec<String>> {
    let saturated = saturated(settings).map_err(|e| vec![e])?;
    let open_loop = open_loop(settings).map_err(|e| vec![e])?;
    let ratios = ratios(&saturated);
    let summaries = |measured: &[Measured]| -> Vec<Summary> {
        measured.iter().map(|scenario| Summary::of(&scenario.name, &scenario.runs)).collect()
    };
    println!("\n{}", table::head(machine, settings));
    println!("\nSaturated ({CONNECTIONS} connections, direct_response, deadline {SATURATED_DEADLINE_MS} ms)");
    println!("{}", table::scenarios(&summaries(&saturated)));
    println!("{}", table::ratios(&ratios));
    println!("At fixed rates ({CONNECTIONS} connections, upstream, deadline {OPEN_LOOP_DEADLINE_MS} ms)");
    println!("{}", table::scenarios(&summaries(&open_loop)));

    let faults = faults(&saturated);
    let raw = Raw {
        machine,
        settings,
        connections: CONNECTIONS,
        ratios: &ratios,
        saturated: &saturated,
        open_loop: &open_loop,
    };
    let scenarios = [summaries(&saturated), summaries(&open_loop)].concat();
    let files = Files::new(settings.thorough() && faults.is_empty()).map_err(|e| vec![e])?;
    let written = files
        .report("report.json", &Report { scenarios })
        .and_then(|()| files.keep("raw-bench.json", &report::text(&raw)))
        .and_then(|()| files.keep("chart.svg", &chart::draw(machine, settings, &saturated, &open_loop)));
    written.map_err(|e| vec![e])?;
    files.tell();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn saturated(settings: &Settings) -> Result<Vec<Measured>, String> {
    let wanted = SATURATED.iter().filter(|(name, _)| settings.wants(name));
    let stacks: Vec<_> = wanted
        .map(|(name, chain)| (*name, *chain, chain.start(Backend::Direct, SATURATED_DEADLINE_MS)))
        .collect();
    let scenario = |(name, chain, stack)| Scenario {
        name: String::from(name),
        chain,
        stack,
        load: Load::Saturating,
        trouble: NO_TROUBLE,
    };
    let scenarios: Vec<_> =
        stacks.iter().map(|(name, chain, stack)| scenario((*name, *chain, stack))).collect();
    scenario::in_turns(&scenarios, settings)
}

fn open_loop(settings: &Settings) -> Result<Vec<Measured>, String> {
    let wanted = OPEN_LOOP
        .iter()
        .filter(|(name, _)| RATES.iter().any(|rate| settings.wants(&open_loop_name(name, *rate))));
    let stacks: Vec<_> = wanted
        .map(|(name, chain)| (*name, *chain, chain.start(Backend::Echo, OPEN_LOOP_DEADLINE_MS)))
        .collect();
    let mut scenarios = Vec::new();
    for rate in RATES {
        for (name, chain, stack) in &stacks {
            scenarios.push(Scenario {
                name: open_loop_name(name, rate),
                chain: *chain,
                stack,
                load: Load::Open(rate),
                trouble: NO_TROUBLE,
            });
        }
    }
    scenarios.retain(|scenario| settings.wants(&scenario.name));
    scenario::in_turns(&scenarios, settings)
}

/// The name of a scenario at a fixed rate.
pub fn open_loop_name(name: &str, rate: u32) -> String {
    format!("{name}_at_{rate}")
}

fn ratios(saturated: &[Measured]) -> Vec<Ratio> {
    let runs = |name: &str| saturated.iter().find(|scenario| scenario.name == name).map(|found| &found.runs);
    let ratio = |name, aim, over: &str, under: &str, of: fn(&crate::bench::measure::Run) -> Option<f64>| {
        let spread = report::ratio(runs(over)?, runs(under)?, of)?;
        Some(Ratio { name, spread, aim })
    };
    let cpu = ratio("Envoy CPU, exact_redis ÷ noop_wasm", "at most 1.5", "exact_redis", "noop_wasm", |run| {
        run.cpu_us.envoy
    });
    let rps = ratio(
        "requests/s, exact_redis ÷ local_ratelimit",
        "at least 0.5",
        "exact_redis",
        "local_ratelimit",
        |run| Some(run.rps),
    );
    cpu.into_iter().chain(rps).collect()
}

fn faults(saturated: &[Measured]) -> Vec<String> {
    let mut faults = Vec::new();
    for scenario in saturated {
        for run in &scenario.runs {
            if let Some(fault) = run.fault(scenario.chain) {
                faults.push(format!("{}, round {}: {fault}", scenario.name, run.round));
            }
        }
    }
    faults
}
