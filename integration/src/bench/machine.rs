//! What was measured on: enough to judge figures by, nothing that tells whose machine it is.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::tools;
use serde::Serialize;

/// The machine and the versions of what ran.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// CPUs that the bench may use.
    pub cores: usize,
    /// Model of the CPU.
    pub cpu: String,
    /// MiB of memory.
    pub memory_mib: u64,
    /// Version of the kernel.
    pub kernel: String,
    /// Load average of the last minute when the bench began: above 1, something else was running.
    pub load_at_start: f64,
    /// As it calls itself.
    pub envoy: String,
    /// As it calls itself.
    pub redis: String,
    /// As it calls itself.
    pub wrk: String,
    /// As it calls itself.
    pub oha: String,
    /// Kota's version.
    pub kota: &'static str,
}

// === impl Machine ===

impl Machine {
    /// Asks the machine.
    #[must_use]
    pub fn read() -> Self {
        let proc = |file: &str| fs::read_to_string(Path::new("/proc").join(file)).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())).unwrap_or_default()
        };
        let words =
            |text: &str, index: usize| text.split_whitespace().nth(index).unwrap_or_default().to_owned();
        let memory = after(&proc("meminfo"), "MemTotal");
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            cpu: after(&proc("cpuinfo"), "model name"),
            memory_mib: words(&memory, 0).parse::<u64>().unwrap_or(0) / 1024,
            kernel: proc("sys/kernel/osrelease").trim().to_owned(),
            load_at_start: words(&proc("loadavg"), 0).parse().unwrap_or(0.0),
            envoy: version(&tools::envoy(), "--version", &|line| {
                line.split_once("version: ")?.1.split('/').nth(1)
            }),
            redis: version(&tools::redis_server(), "--version", &|line| {
                line.split_once("v=")?.1.split(' ').next()
            }),
            wrk: version(&tools::wrk(), "-v", &|line| line.strip_prefix("wrk ")?.split(' ').next()),
            oha: version(&tools::oha(), "--version", &|line| line.split(' ').nth(1)),
            kota: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The part of a program's output that is its version. The rest may name where it was built.
fn version(program: &Path, flag: &str, part: &dyn Fn(&str) -> Option<&str>) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return String::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(part).unwrap_or_default().to_owned()
}
