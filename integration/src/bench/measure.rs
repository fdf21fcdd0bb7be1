//! One measured run: a load, and what the processes tell before and after it.

use std::collections::BTreeMap;

use crate::process::Process;
use crate::{Running, wait};
use serde::Serialize;

use crate::bench::cpu;
use crate::bench::gateway::{Chain, LOCAL_STATS};
use crate::bench::load::{CONNECTIONS, Outcome};

/// What one run gave.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// The round that it belongs to, from 1.
    pub round: u64,
    /// Requests that the load generator saw answered.
    pub answered: u64,
    /// Requests that Envoy received: a few more when the generator left while they were under way.
    pub received: u64,
    /// Requests that failed or were answered with anything but 200.
    pub errors: u64,
    /// Answered requests per second.
    pub rps: f64,
    /// Latency in µs.
    pub p50_us: f64,
    /// Latency in µs.
    pub p99_us: f64,
    /// Decisions: of the sidecar, or of Envoy's own limiter; 0 where nothing decides.
    pub decisions: u64,
    /// Requests that the filter counted as allowed.
    pub allowed: u64,
    /// Requests that passed undecided, by reason.
    pub failed_open: BTreeMap<String, u64>,
    /// CPU µs per request.
    pub cpu_us: CpuUs,
}

/// CPU time per request received, in µs; None where there is no such process.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CpuUs {
    /// Of Envoy: all its threads.
    pub envoy: Option<f64>,
    /// Of the sidecar.
    pub sidecar: Option<f64>,
    /// Of Redis.
    pub redis: Option<f64>,
}

/// What the processes tell of themselves, since their start.
#[derive(Debug)]
struct Totals {
    received: u64,
    decisions: u64,
    allowed: u64,
    failed_open: BTreeMap<String, u64>,
    cpu: CpuUs,
}

// === impl Run ===

impl Run {
    /// Measures what `act` does to a stack. Returns when everything that it caused has ended.
    ///
    /// # Errors
    /// Those of `act`.
    pub fn measure(
        stack: &Running,
        chain: Chain,
        round: u64,
        act: impl FnOnce() -> Result<Outcome, String>,
    ) -> Result<Self, String> {
        settle(stack);
        let before = Totals::read(stack, chain);
        let outcome = act()?;
        settle(stack);
        Ok(Self::between(&before, &Totals::read(stack, chain), outcome, round))
    }

    fn between(before: &Totals, after: &Totals, outcome: Outcome, round: u64) -> Self {
        let received = after.received - before.received;
        let earlier = |reason: &String| before.failed_open.get(reason).copied().unwrap_or(0);
        let failed_open =
            after.failed_open.iter().map(|(reason, count)| (reason.clone(), count - earlier(reason)));
        let per_request =
            |after: Option<f64>, before: Option<f64>| Some((after? - before?) / received.max(1) as f64);
        Self {
            round,
            answered: outcome.answered,
            received,
            errors: outcome.errors,
            rps: outcome.answered as f64 / outcome.seconds,
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
            decisions: after.decisions - before.decisions,
            allowed: after.allowed - before.allowed,
            failed_open: failed_open.filter(|(_, count)| *count > 0).collect(),
            cpu_us: CpuUs {
                envoy: per_request(after.cpu.envoy, before.cpu.envoy),
                sidecar: per_request(after.cpu.sidecar, before.cpu.sidecar),
                redis: per_request(after.cpu.redis, before.cpu.redis),
            },
        }
    }

    /// Requests that passed undecided, for whatever reason.
    #[must_use]
    pub fn failed_open_total(&self) -> u64 {
        self.failed_open.values().sum()
    }

    /// Why the figures of a saturated run mean nothing, if so: a limiter that lets requests pass undecided is fast, but is none.
    #[must_use]
    pub fn fault(&self, chain: Chain) -> Option<String> {
        let Self { answered, received, errors, decisions, .. } = self;
        let decides = chain.is_kota() || chain == Chain::LocalRatelimit;
        if *errors > 0 {
            return Some(format!("{errors} requests of {received} failed or were not answered with 200"));
        }
        if self.failed_open_total() > 0 {
            return Some(format!(
                "{} requests failed open: {:?}",
                self.failed_open_total(),
                self.failed_open
            ));
        }
        if received - answered > CONNECTIONS {
            return Some(format!(
                "Envoy received {received} requests, of which only {answered} were answered"
            ));
        }
        // Those that were under way when wrk left may have been decided or not.
        if decides && !(answered..=received).contains(&decisions) {
            return Some(format!("{decisions} decisions for {answered} answered of {received} requests"));
        }
        None
    }
}

// === impl Totals ===

impl Totals {
    fn read(stack: &Running, chain: Chain) -> Self {
        let envoy = stack.envoy();
        let mut failed_open = BTreeMap::new();
        let mut allowed = 0;
        for (name, count) in envoy.kota_counters() {
            match name.split('.').collect::<Vec<_>>()[..] {
                ["allowed", _] => allowed += count,
                ["failed_open", _, reason] => *failed_open.entry(reason.to_owned()).or_default() += count,
                _ => {}
            }
        }
        let used = |process: &Process| cpu::used_us(process);
        Self {
            received: envoy.stat("http.api.downstream_rq_total"),
            decisions: decisions(stack, chain),
            allowed,
            failed_open,
            cpu: CpuUs {
                envoy: Some(used(envoy.process())),
                sidecar: stack.sidecars.first().map(|sidecar| used(sidecar.process())),
                redis: stack.redis.as_ref().map(|redis| used(redis.process())),
            },
        }
    }
}

/// What was really decided: the sidecar's UNKNOWN is no decision.
fn decisions(stack: &Running, chain: Chain) -> u64 {
    let envoy = stack.envoy();
    match (chain, stack.sidecars.first()) {
        (Chain::LocalRatelimit, _) => {
            envoy.stat(&format!("{LOCAL_STATS}.ok")) + envoy.stat(&format!("{LOCAL_STATS}.rate_limited"))
        }
        (_, Some(sidecar)) if sidecar.process().ended().is_none() => {
            let of = |decision| sidecar.metric("kota_decisions_total", decision);
            (of("decision=\"allow\"") + of("decision=\"deny\"")) as u64
        }
        _ => 0,
    }
}

/// Waits until no request and no callout is under way. A callout outlives the request that wanted it.
pub fn settle(stack: &Running) {
    let envoy = stack.envoy();
    wait::until_true("no request and no callout is under way", || {
        envoy.open_requests() == 0 && envoy.stat("cluster.kota.upstream_rq_active") == 0
    });
}
