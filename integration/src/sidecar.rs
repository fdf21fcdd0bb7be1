//! A running `kota sidecar`, and a running `kota echo`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bootstrap::Endpoint;
use crate::http1::{Answer, Client, Request};
use crate::process::Process;
use crate::tools;

/// One sidecar, ready to decide.
#[derive(Debug)]
pub struct Sidecar {
    process: Process,
    setup: Setup,
}

/// What a sidecar is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Name of its logs.
    pub name: String,
    /// Where it listens for the filter.
    pub listen: Endpoint,
    /// Port of its second listener.
    pub api: u16,
    /// `memory` or the address of a Redis.
    pub store: String,
    /// Its HMAC keys; None for the memory store's random one.
    pub key_file: Option<PathBuf>,
    /// Further flags.
    pub flags: Vec<String>,
    /// Further variables of its environment.
    pub env: Vec<(String, String)>,
    /// Where its logs go.
    pub dir: PathBuf,
}

// === impl Sidecar ===

impl Sidecar {
    /// Starts one and waits until its second listener answers. (Not until it is *ready*: a test may want one whose Redis is away.)
    ///
    /// # Panics
    /// When it does not start; with its log.
    #[must_use]
    pub fn start(setup: Setup) -> Self {
        let mut command = Command::new(tools::kota());
        command.args(["sidecar", "--listen", &setup.listen.listen(), "--store", &setup.store]);
        command.args(["--api", &format!("127.0.0.1:{}", setup.api)]);
        if let Some(key_file) = &setup.key_file {
            command.arg("--key-file").arg(key_file);
        }
        if matches!(setup.listen, Endpoint::Tcp(_)) {
            command.arg("--insecure-loopback");
        }
        command.args(&setup.flags).envs(setup.env.iter().cloned());
        let process = Process::start(&setup.name, command, &setup.dir);
        process.wait_ready(|| get(setup.api, "/healthz").is_some_and(|answer| answer.status == 200));
        Self { process, setup }
    }

    /// Waits until it says that it is ready: its store answers.
    pub fn wait_ready(&self) {
        self.process.wait_ready(|| get(self.setup.api, "/readyz").is_some_and(|answer| answer.status == 200));
    }

    /// The process, to freeze, kill or measure.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The port of its second listener.
    #[must_use]
    pub fn api(&self) -> u16 {
        self.setup.api
    }

    /// Where it listens for the filter.
    #[must_use]
    pub fn listen(&self) -> &Endpoint {
        &self.setup.listen
    }

    /// Kills it and starts another in its place.
    pub fn restart(&mut self) {
        self.process.kill();
        *self = Self::start(self.setup.clone());
        self.wait_ready();
    }

    /// `POST /v1/check`.
    #[must_use]
    pub fn check(&self, body: &Value) -> Answer {
        let request =
            Request::post("/v1/check").header("content-type", "application/json").body(body.to_string());
        Client::new(self.setup.api).send(&request)
    }

    /// What `/readyz` says: whether it is ready, and how its store is.
    #[must_use]
    pub fn readiness(&self) -> Value {
        let answer = get(self.setup.api, "/readyz");
        answer.and_then(|answer| serde_json::from_str(&answer.text()).ok()).unwrap_or_default()
    }

    /// What Prometheus scrapes.
    #[must_use]
    pub fn metrics(&self) -> String {
        Client::new(self.setup.api).send(&Request::get("/metrics")).text()
    }

    /// The sum of a metric over all its label sets that contain `labels` (`result="ok"`, say).
    #[must_use]
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let metrics = self.metrics();
        let lines = metrics.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
        });
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

/// Starts `kota echo` on a port of loopback and waits until it answers.
///
/// # Panics
/// When it does not start; with its log.
#[must_use]
pub fn start_echo(port: u16, dir: &Path) -> Process {
    let mut command = Command::new(tools::kota());
    command.args(["echo", "--listen", &format!("127.0.0.1:{port}")]);
    let process = Process::start("echo", command, dir);
    process.wait_ready(|| get(port, "/").is_some_and(|answer| answer.status == 200));
    process
}

fn get(port: u16, path: &str) -> Option<Answer> {
    Client::new(port).try_send(&Request::get(path)).ok()
}
