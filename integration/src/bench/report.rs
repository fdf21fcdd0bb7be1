//! The report: a form that others read (its names are fixed), and the raw data behind it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tools;
use serde::Serialize;

use crate::bench::measure::{CpuUs, Run};
use crate::bench::spread::Spread;

/// `report.json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// A summary per scenario.
    pub scenarios: Vec<Summary>,
}

/// One scenario: medians over its runs; of requests/s also the lowest and the highest.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Envoy's workers.
    pub workers: u32,
    /// Runs.
    pub runs: usize,
    /// Requests per second.
    pub rps: f64,
    /// The lowest.
    pub rps_min: f64,
    /// The highest.
    pub rps_max: f64,
    /// Latency in µs.
    pub p50_us: f64,
    /// Latency in µs.
    pub p99_us: f64,
    /// Decisions in all runs together.
    pub decisions: u64,
    /// Requests that passed undecided in all runs together.
    pub failed_open: u64,
    /// CPU µs per request.
    pub cpu_us: CpuUs,
}

/// Where results go: always `target/bench/`, and `integration/bench/` (which is published) when they are good enough.
#[derive(Debug)]
pub struct Files {
    target: PathBuf,
    published: Option<PathBuf>,
}

// === impl Summary ===

impl Summary {
    /// Of these runs; there must be one.
    #[must_use]
    pub fn of(name: &str, runs: &[Run]) -> Self {
        let rps = spread(runs, |run| Some(run.rps)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
        let median = |of: fn(&Run) -> Option<f64>| spread(runs, of).map(|spread| tenths(spread.median));
        Self {
            name: name.to_owned(),
            workers: 1,
            runs: runs.len(),
            rps: tenths(rps.median),
            rps_min: tenths(rps.min),
            rps_max: tenths(rps.max),
            p50_us: median(|run| Some(run.p50_us)).unwrap_or(0.0),
            p99_us: median(|run| Some(run.p99_us)).unwrap_or(0.0),
            decisions: runs.iter().map(|run| run.decisions).sum(),
            failed_open: runs.iter().map(Run::failed_open_total).sum(),
            cpu_us: CpuUs {
                envoy: median(|run| run.cpu_us.envoy),
                sidecar: median(|run| run.cpu_us.sidecar),
                redis: median(|run| run.cpu_us.redis),
            },
        }
    }
}

/// Spread of one figure over the runs that have it.
pub fn spread(runs: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
    Spread::of(runs.iter().filter_map(of))
}

/// Spread of the ratio of two scenarios' figures, round by round: what disturbs one round disturbs both.
pub fn ratio(over: &[Run], under: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
    let pairs = over.iter().zip(under).filter_map(|(over, under)| Some(of(over)? / of(under)?));
    Spread::of(pairs)
}

/// No figure here is good to more than a tenth.
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

// === impl Files ===

impl Files {
    /// Makes the directories.
    ///
    /// # Errors
    /// When one can't be made.
    pub fn new(publish: bool) -> Result<Self, String> {
        let directory = |place: &str| {
            let path = tools::root().join(place);
            fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display())).map(|()| path)
        };
        let published = publish.then(|| directory("integration/bench")).transpose()?;
        Ok(Self { target: directory("target/bench")?, published })
    }

    /// Writes a report; it is not published.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn report(&self, name: &str, report: &Report) -> Result<(), String> {
        write(&self.target.join(name), &text(report))
    }

    /// Writes a file that may be published.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep(&self, name: &str, text: &str) -> Result<(), String> {
        let places = [Some(&self.target), self.published.as_ref()];
        places.into_iter().flatten().try_for_each(|place| write(&place.join(name), text))
    }

    /// Tells where all is.
    pub fn tell(&self) {
        match self.published {
            Some(_) => println!("Written to target/bench/ and, to be committed, to integration/bench/."),
            None => {
                println!("Written to target/bench/ (integration/bench/ holds the last full and valid run).")
            }
        }
    }
}

/// As JSON, a line per field.
pub fn text(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|e| panic!("{e}: plain data is JSON"));
    text + "\n"
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
