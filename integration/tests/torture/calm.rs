//! Envoy after the storm: nothing open, nothing trapped, no more memory than before.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kota_integration::envoy::Envoy;
use serde_json::Value;

/// How long a condition may take before it counts as a hang. It bounds, it measures nothing.
const PATIENCE: Duration = Duration::from_secs(90);
/// A second, identical round may end with so many per cent more.
const GROWTH_PERCENT: u64 = 5;

/// What a trapped VM or a panic leaves in Envoy's log.
const SIGNS_OF_A_TRAP: [&str; 8] = [
    "Maximum call stack",
    "proc_exit",
    "panicked",
    "unreachable",
    "Uncaught RuntimeError",
    "Function: proxy_on",
    "Plugin fails",
    "Segmentation fault",
];

/// What must be 0 once no client is connected.
const OPEN: [&str; 7] = [
    "http.api.downstream_rq_active",
    "http.api.downstream_cx_active",
    "http2.streams_active",
    "cluster.kota.http2.streams_active",
    "cluster.kota.upstream_rq_active",
    "cluster.echo.upstream_rq_active",
    "cluster.kota.upstream_rq_pending_active",
];

/// Memory of an Envoy at rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// `VmRSS` of the process, KiB: V8's heap and the VMs' memory included.
    rss_kib: u64,
    /// `allocated` of `/memory`, KiB: the live value behind the gauge `server.memory_allocated`, which lags by a flush. What Envoy
    /// itself has allocated; V8 is not in it.
    allocated_kib: u64,
}

/// All counters and gauges that have been used.
pub(crate) fn stats(envoy: &Envoy) -> HashMap<String, u64> {
    let text = envoy.admin("/stats?usedonly");
    let pairs = text.lines().filter_map(|line| line.rsplit_once(": "));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Polls until the condition gives a value; on a hang says what Envoy's figures are.
pub(crate) fn until<T>(envoy: &Envoy, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        if start.elapsed() > PATIENCE {
            let stats = stats(envoy);
            let open: Vec<_> = OPEN.iter().map(|name| (name, stats.get(*name))).collect();
            let counters = envoy.kota_counters();
            panic!(
                "waited {PATIENCE:?} in vain until {what}; {open:?} {counters:?}\n{}",
                tail(&envoy.process().log())
            );
        }
        sleep(Duration::from_millis(20));
    }
}

/// Awaits that a counter or gauge has this value.
pub(crate) fn await_stat(envoy: &Envoy, name: &str, value: u64) {
    until(envoy, &format!("{name} is {value}"), || (envoy.stat(name) == value).then_some(()));
}

/// Awaits that nothing is open any more, and checks that no VM ever trapped.
pub(crate) fn settled(envoy: &Envoy) -> Memory {
    until(envoy, "nothing is open", || {
        let stats = stats(envoy);
        OPEN.iter().all(|name| stats.get(*name).copied().unwrap_or(0) == 0).then_some(())
    });
    never_trapped(envoy);
    Memory::of(envoy)
}

/// No VM was loaded anew, and the log shows no trap.
pub(crate) fn never_trapped(envoy: &Envoy) {
    if let Some(status) = envoy.process().ended() {
        panic!("Envoy ended with {status}:\n{}", tail(&envoy.process().log()));
    }
    assert_eq!(envoy.vm_reloads(), 0, "a VM trapped:\n{}", tail(&envoy.process().log()));
    let log = envoy.process().log();
    let signs = log.lines().filter(|line| SIGNS_OF_A_TRAP.iter().any(|sign| line.contains(sign)));
    assert_eq!(signs.take(10).collect::<Vec<_>>(), Vec::<&str>::new());
}

/// How often Envoy's threads wake up while nothing happens, within a second.
pub(crate) fn wakeups(envoy: &Envoy) -> u64 {
    let count = || -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", envoy.process().pid())).expect("Envoy runs");
        let status =
            tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let line = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|count| count.trim().parse::<u64>().ok())
        };
        status.filter_map(line).sum()
    };
    let before = count();
    sleep(Duration::from_secs(1)); // nothing to wait for: that nothing happens is what is looked at
    count() - before
}

/// Awaits that Envoy holds at most 5 % more than it did after the first round: freed memory goes back to the system by and by.
pub(crate) fn no_growth(envoy: &Envoy, first: Memory) {
    let mut least = Memory::of(envoy);
    let start = Instant::now();
    while !least.is_within(first) && start.elapsed() < PATIENCE / 4 {
        sleep(Duration::from_millis(250));
        let now = Memory::of(envoy);
        least.rss_kib = least.rss_kib.min(now.rss_kib);
        least.allocated_kib = least.allocated_kib.min(now.allocated_kib);
    }
    eprintln!("memory after the first round {first:?}, after the second {least:?}");
    assert!(least.is_within(first), "grew by more than {GROWTH_PERCENT} %: from {first:?} to {least:?}");
}

// === impl Memory ===

impl Memory {
    fn of(envoy: &Envoy) -> Self {
        let memory: Value = serde_json::from_str(&envoy.admin("/memory")).expect("/memory is JSON");
        let allocated = memory["allocated"].as_str().and_then(|bytes| bytes.parse::<u64>().ok());
        let allocated = allocated.expect("/memory tells what is allocated");
        Self { rss_kib: envoy.process().rss_kib(), allocated_kib: allocated / 1_024 }
    }

    fn is_within(self, first: Self) -> bool {
        let most = |kib: u64| kib + kib * GROWTH_PERCENT / 100;
        self.rss_kib <= most(first.rss_kib) && self.allocated_kib <= most(first.allocated_kib)
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
