//! A running Envoy and what its admin interface tells.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bootstrap::{Bootstrap, Delivery, Places};
use crate::http1::{Answer, Client, Request};
use crate::process::Process;
use crate::{tools, wait};

/// One Envoy, ready to serve.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    places: Places,
    delivery: Delivery,
    dir: PathBuf,
    bootstrap: Bootstrap, // as it was before its delivery took parts out of it
}

// === impl Envoy ===

impl Envoy {
    /// Starts one, with further `flags` of Envoy's, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not start; with its log.
    #[must_use]
    pub fn start(
        name: &str,
        places: &Places,
        bootstrap: Bootstrap,
        delivery: Delivery,
        workers: u32,
        flags: &[String],
        dir: &Path,
    ) -> Self {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut booted = bootstrap.clone();
        if let Some((file, text)) = booted.deliver(delivery, &dir) {
            replace(&dir.join(file), &text);
        }
        let config = dir.join("envoy.json");
        replace(&config, &booted.text());
        let mut command = Command::new(tools::envoy());
        command.arg("-c").arg(&config);
        command.args([
            "--concurrency",
            &workers.to_string(),
            "--disable-hot-restart",
            "--log-level",
            "warning",
        ]);
        command.env("EVENT_PRECISE_TIMER", "1"); // as envoy/envoy.yaml asks for
        command.args(["--component-log-level", "wasm:info", "--file-flush-interval-msec", "50"]);
        command.args(flags);
        let process = Process::start(name, command, dir.parent().unwrap_or(&dir));
        let envoy = Self { process, places: places.clone(), delivery, dir, bootstrap };
        envoy.process.wait_ready(|| {
            Client::new(envoy.places.admin)
                .try_send(&Request::get("/ready"))
                .is_ok_and(|answer| answer.status == 200)
        });
        envoy
    }

    /// The process, to freeze, kill or measure.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.places.listener
    }

    /// Where this Envoy's parts are.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// A new client of it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.port())
    }

    /// One request on a connection of its own.
    #[must_use]
    pub fn send(&self, request: &Request) -> Answer {
        self.client().send(request)
    }

    /// Asks the admin interface.
    #[must_use]
    pub fn admin(&self, path: &str) -> String {
        Client::new(self.places.admin).send(&Request::get(path)).text()
    }

    /// A counter or gauge by its full name; 0 when it does not exist (yet).
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let stats = self.admin("/stats?usedonly");
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// One of the filter's counters: `failed_open.orders-create.deadline`, say; 0 when it does not exist yet.
    #[must_use]
    pub fn kota(&self, counter: &str) -> u64 {
        self.stat(&format!("wasmcustom.kota.{counter}"))
    }

    /// All of the filter's counters as `(name behind wasmcustom.kota., value)`.
    #[must_use]
    pub fn kota_counters(&self) -> Vec<(String, u64)> {
        let stats = self.admin("/stats?usedonly");
        let ours = stats.lines().filter_map(|line| line.strip_prefix("wasmcustom.kota.")?.split_once(": "));
        ours.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }

    /// What Prometheus scrapes.
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.admin("/stats/prometheus")
    }

    /// Requests that were begun and have not ended.
    #[must_use]
    pub fn open_requests(&self) -> u64 {
        self.stat("http.api.downstream_rq_active")
    }

    /// How often a VM was loaded anew after a trap: must stay 0.
    #[must_use]
    pub fn vm_reloads(&self) -> u64 {
        let stats = self.admin("/stats?usedonly");
        let reloads = stats.lines().filter(|line| line.starts_with("wasm.") && line.contains(".vm_reload"));
        reloads.filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum()
    }

    /// The access log so far, a value per line (written within 50 ms; wait for the line that you want).
    #[must_use]
    pub fn access_log(&self) -> Vec<Value> {
        self.process.out().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The access log once it has `lines` lines.
    #[must_use]
    pub fn access_log_of(&self, lines: usize) -> Vec<Value> {
        wait::until(&format!("the access log has {lines} lines"), || {
            Some(self.access_log()).filter(|log| log.len() >= lines)
        })
    }

    /// Changes the configuration of Kota's filter through its discovery file, and waits until Envoy has taken or refused it.
    /// True when it was taken.
    ///
    /// # Panics
    /// When this Envoy's configuration is static.
    pub fn reconfigure(&mut self, config: &Value) -> bool {
        self.reload(|bootstrap| bootstrap.configure(config))
    }

    /// Changes the bootstrap and delivers what the discovery file holds of it; as [`Envoy::reconfigure`]. The workers follow in their
    /// event loop's next turn, so a request sent at once may still meet the old one.
    pub fn reload(&mut self, change: impl FnOnce(&mut Bootstrap)) -> bool {
        let discovery = match self.delivery {
            Delivery::Static => {
                panic!("a static configuration can't be reloaded: start the stack with .delivery(…)")
            }
            Delivery::Ecds => "extension_config_discovery.http_filter.kota", // its config_reload counts attempts
            Delivery::Lds => "listener_manager.lds",
        };
        let stat = |envoy: &Self, result: &str| envoy.stat(&format!("{discovery}.update_{result}"));
        let counts = |envoy: &Self| (stat(envoy, "success"), stat(envoy, "rejected"));
        let before = counts(self);
        change(&mut self.bootstrap);
        let discovered = self.bootstrap.clone().deliver(self.delivery, &self.dir);
        let (file, text) = discovered.expect("a delivery that is not static has a file");
        replace(&self.dir.join(file), &text);
        wait::until("the new configuration is taken or refused", || {
            let now = counts(self);
            (now != before).then_some(now.0 > before.0)
        })
    }
}

/// Envoy watches for a file that is moved into place.
fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).unwrap_or_else(|e| panic!("{}: {e}", draft.display()));
    std::fs::rename(&draft, path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
