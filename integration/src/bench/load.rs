//! The load generators: wrk as fast as it goes, oha at a fixed rate.

use std::path::Path;
use std::process::Command;

use crate::tools;
use serde_json::Value;

/// A load on one Envoy. Both send `POST /orders` with one `x-api-key` on [`CONNECTIONS`] connections of HTTP/1.1.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// As much as the connections carry: each sends its next request when the last is answered (wrk).
    Saturating,
    /// So many requests a second, whether answers come or not; a late answer is late from the moment its request was due (oha).
    Open(u32),
}

/// What the load generator saw.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Requests that were answered.
    pub answered: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Latency that half of them stayed under, in µs.
    pub p50_us: f64,
    /// Latency that 99 of 100 stayed under, in µs.
    pub p99_us: f64,
    /// Requests that failed or were answered with anything but 200.
    pub errors: u64,
}

/// Connections in every scenario.
pub const CONNECTIONS: u64 = 32;

// === impl Load ===

impl Load {
    /// Puts it on a port of loopback for so long.
    ///
    /// # Errors
    /// When the generator can't be run or prints something else than expected.
    pub fn run(self, port: u16, seconds: u64, dir: &Path) -> Result<Outcome, String> {
        match self {
            Self::Saturating => wrk(port, seconds, dir),
            Self::Open(rate) => oha(port, rate, seconds),
        }
    }
}

fn wrk(port: u16, seconds: u64, dir: &Path) -> Result<Outcome, String> {
    let script = dir.join("wrk.lua");
    std::fs::write(&script, include_str!("wrk.lua")).map_err(|e| format!("{}: {e}", script.display()))?;
    let mut command = Command::new(tools::wrk());
    // One thread: it shares the cores with what it measures.
    command.args(["--threads=1", &format!("--connections={CONNECTIONS}"), &format!("--duration={seconds}s")]);
    command.arg("--script").arg(&script).arg(url(port));
    let text = output(command)?;
    let result = text.lines().find_map(|line| line.strip_prefix("result "));
    let result = result.ok_or_else(|| format!("wrk printed no result:\n{text}"))?;
    let result: Value = serde_json::from_str(result).map_err(|e| format!("wrk printed {result}: {e}"))?;
    let read = |name: &str| result[name].as_u64().ok_or_else(|| format!("wrk printed no `{name}`"));
    Ok(Outcome {
        answered: read("requests")?,
        seconds: read("micros")? as f64 / 1e6,
        p50_us: read("p50")? as f64,
        p99_us: read("p99")? as f64,
        errors: read("errors")?,
    })
}

fn oha(port: u16, rate: u32, seconds: u64) -> Result<Outcome, String> {
    let mut command = Command::new(tools::oha());
    command.args(["--no-tui", "--output-format", "json", "--latency-correction"]);
    command.arg("--wait-ongoing-requests-after-deadline"); // else those in flight at the end count as errors
    command.args(["-q", &rate.to_string(), "-z", &format!("{seconds}s"), "-c", &CONNECTIONS.to_string()]);
    command.args(["-m", "POST", "-H", "x-api-key: bench", &url(port)]);
    let text = output(command)?;
    let result: Value = serde_json::from_str(&text).map_err(|e| format!("oha printed {text}: {e}"))?;
    let sum = |name: &str| -> u64 {
        result[name].as_object().map_or(0, |counts| counts.values().filter_map(Value::as_u64).sum())
    };
    let number = |group: &str, name: &str| {
        result[group][name].as_f64().ok_or_else(|| format!("oha printed no `{group}.{name}`: {text}"))
    };
    let answered = sum("statusCodeDistribution");
    Ok(Outcome {
        answered,
        seconds: number("summary", "total")?,
        p50_us: number("latencyPercentiles", "p50")? * 1e6,
        p99_us: number("latencyPercentiles", "p99")? * 1e6,
        errors: answered - result["statusCodeDistribution"]["200"].as_u64().unwrap_or(0)
            + sum("errorDistribution"),
    })
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/orders")
}

fn output(mut command: Command) -> Result<String, String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
