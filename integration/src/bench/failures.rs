//! How long a request waits when nothing decides it: every way the sidecar or Redis can be away, at the default deadline, failing open.

use std::time::Duration;

use crate::{Fault, Running, Stack};
use serde::Serialize;
use serde_json::json;

use crate::bench::gateway::{self, Backend, Chain};
use crate::bench::load::{CONNECTIONS, Load};
use crate::bench::machine::Machine;
use crate::bench::measure::Run;
use crate::bench::report::{self, Files, Report, Summary};
use crate::bench::scenario::{self, Measured, NO_TROUBLE, Scenario, Trouble};
use crate::bench::settings::Settings;
use crate::bench::table;

/// One way to fail.
struct Case {
    name: &'static str,
    stack: fn() -> Stack,
    trouble: Trouble,
    /// The reasons that the filter may count, besides a passed deadline; none: all is decided.
    reasons: &'static [&'static str],
}

#[derive(Debug, Serialize)]
struct Raw<'a> {
    machine: &'a Machine,
    settings: &'a Settings,
    connections: u64,
    requests_per_second: u32,
    deadline_ms: u64,
    scenarios: &'a [Measured],
}

/// The default, and what the waits are held against.
const DEADLINE_MS: u64 = 5;

/// Few enough that no request waits for another: what is measured is the wait for an answer that does not come.
const RATE: u32 = 500;

/// Longer than any deadline here.
const LATE: Duration = Duration::from_millis(50);

/// Within the first frames of an answer.
const HALF_BYTES: usize = 40;

fn cases() -> Vec<Case> {
    let proxied = |name, trouble, reasons| Case {
        name,
        stack: || healthy(Chain::KotaMemory).sidecar_faults(),
        trouble,
        reasons,
    };
    let unreachable = |name, stack, reasons| Case { name, stack, trouble: NO_TROUBLE, reasons };
    let faulty = |begin| Trouble { begin, end: |stack| set(stack, Fault::Pass) };
    vec![
        unreachable("healthy_memory", || healthy(Chain::KotaMemory), &[]),
        unreachable("healthy_redis", || healthy(Chain::KotaRedis), &[]),
        Case {
            name: "sidecar_stopped",
            stack: || healthy(Chain::KotaMemory),
            trouble: Trouble { begin: |stack| stack.sidecar().process().kill(), end: |_| {} }, // its socket stays: refused
            reasons: &["refused"],
        },
        Case {
            name: "sidecar_frozen",
            stack: || healthy(Chain::KotaMemory),
            trouble: Trouble {
                begin: |stack| stack.sidecar().process().freeze(),
                end: |stack| stack.sidecar().process().thaw(),
            },
            reasons: &["deadline"],
        },
        proxied("socket_missing", faulty(|stack| set(stack, Fault::Gone)), &["refused"]),
        proxied("sidecar_silent", faulty(|stack| set(stack, Fault::Swallow)), &["deadline"]),
        proxied("sidecar_garbage", faulty(|stack| set(stack, Fault::Garbage)), &["garbage", "refused"]),
        proxied("sidecar_half", faulty(|stack| set(stack, Fault::Half(HALF_BYTES))), &["deadline"]),
        proxied("sidecar_late", faulty(|stack| set(stack, Fault::Delay(LATE))), &["deadline"]),
        unreachable("cluster_unknown", cluster_unknown, &["no_cluster"]),
        unreachable("cluster_without_hosts", cluster_without_hosts, &["no_host", "overflow"]),
        unreachable("cluster_over_thresholds", cluster_over_thresholds, &["no_host", "overflow"]),
        Case {
            name: "redis_stopped",
            stack: || healthy(Chain::KotaRedis),
            trouble: Trouble {
                begin: |stack| stack.redis().process().freeze(),
                end: |stack| stack.redis().process().thaw(),
            },
            reasons: &["redis_timeout", "deadline"],
        },
    ]
}

/// Measures, prints and writes it all.
///
/// # Errors
/// What makes the figures invalid, or what went wrong.
pub fn run(machine: &Machine, settings: &Settings) -> Result<(), Vec<String>> {
    let mut cases = cases();
    cases.retain(|case| settings.wants(case.name));
    let stacks: Vec<_> = cases.iter().map(|case| (case.stack)().start()).collect();
    let scenarios: Vec<_> = cases
        .iter()
        .zip(&stacks)
        .map(|(case, stack)| Scenario {
            name: case.name.to_owned(),
            chain: Chain::KotaMemory,
            stack,
            load: Load::Open(RATE),
            trouble: case.trouble,
        })
        .collect();
    let measured = scenario::in_turns(&scenarios, settings).map_err(|e| vec![e])?;
    let summaries: Vec<_> =
        measured.iter().map(|scenario| Summary::of(&scenario.name, &scenario.runs)).collect();
    println!("\n{}", table::head(machine, settings));
    println!("\nFailures ({RATE} requests/s, direct_response, deadline {DEADLINE_MS} ms, failMode OPEN)");
    println!("{}", table::scenarios(&summaries));
    println!("{}", table::waits(&summaries, DEADLINE_MS));

    let faults = cases.iter().zip(&measured).flat_map(|(case, scenario)| faults(case, &scenario.runs));
    let faults: Vec<_> = faults.collect();
    let raw = Raw {
        machine,
        settings,
        connections: CONNECTIONS,
        requests_per_second: RATE,
        deadline_ms: DEADLINE_MS,
        scenarios: &measured,
    };
    let files = Files::new(settings.thorough() && faults.is_empty()).map_err(|e| vec![e])?;
    let written = files
        .report("failures.json", &Report { scenarios: summaries })
        .and_then(|()| files.keep("raw-failures.json", &report::text(&raw)));
    written.map_err(|e| vec![e])?;
    files.tell();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// A failure that did not happen was not measured either.
fn faults(case: &Case, runs: &[Run]) -> Vec<String> {
    let fault = |run: &Run| {
        let Run { received, errors, failed_open, .. } = run;
        let undecided = run.failed_open_total();
        // On a busy machine any failure may be noticed too late.
        let known = |reason: &String| case.reasons.contains(&reason.as_str()) || reason == "deadline";
        if *errors > 0 {
            Some(format!("{errors} requests of {received} failed or were not answered with 200"))
        } else if case.reasons.is_empty() {
            None // the default deadline on a busy machine: reported, no fault
        } else if !failed_open.keys().all(known) {
            Some(format!("failed open for another reason than {:?}: {failed_open:?}", case.reasons))
        } else if undecided * 20 < received * 19 {
            Some(format!("only {undecided} of {received} requests failed open"))
        } else {
            None
        }
    };
    let named = |run: &Run| Some(format!("{}, round {}: {}", case.name, run.round, fault(run)?));
    runs.iter().filter_map(named).collect()
}

fn healthy(chain: Chain) -> Stack {
    chain.stack(Backend::Direct, DEADLINE_MS)
}

fn cluster_unknown() -> Stack {
    let mut config = gateway::config();
    config["sidecar"]["cluster"] = json!("absent");
    healthy(Chain::KotaMemory).config(config).deadline_ms(DEADLINE_MS)
}

fn cluster_without_hosts() -> Stack {
    healthy(Chain::KotaMemory)
        .bootstrap(|bootstrap| bootstrap.cluster("kota")["load_assignment"]["endpoints"] = json!([]))
}

fn cluster_over_thresholds() -> Stack {
    healthy(Chain::KotaMemory).bootstrap(|bootstrap| {
        bootstrap.cluster("kota")["circuit_breakers"]["thresholds"] =
            json!([{ "max_connections": 0, "max_pending_requests": 0, "max_requests": 0 }]);
    })
}

fn set(stack: &Running, fault: Fault) {
    stack.sidecar_faults[0].set(fault);
}
