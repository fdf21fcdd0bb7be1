//! A whole Kota: Envoys, their sidecars, a Redis if wanted, and an upstream.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bootstrap::{Bootstrap, Delivery, Endpoint, Places};
use crate::envoy::Envoy;
use crate::fault::FaultProxy;
use crate::process::Process;
use crate::redis::Redis;
use crate::sidecar::{Setup, Sidecar, start_echo};
use crate::workdir::{Workdir, free_port};
use crate::{clock, tools};

/// What to start. Reads as a sentence: `Stack::new().redis().sidecars(3).envoys(3).workers(2).rules(json!([…])).start()`.
pub struct Stack {
    redis: bool,
    redis_socket: bool,
    redis_faults: bool,
    store: Option<String>,
    sidecars: usize,
    sidecar_faults: bool,
    sidecar_flags: Vec<String>,
    clocks_s: Vec<i64>,
    tcp: bool,
    envoys: usize,
    workers: u32,
    envoy_flags: Vec<String>,
    delivery: Delivery,
    config: Value,
    changes: Vec<Change>,
    upstream: bool,
    module: Option<PathBuf>,
    sidecar_at: Option<Endpoint>,
}

type Change = Box<dyn Fn(&mut Bootstrap)>;

/// What was started. Its parts end when it is dropped.
#[derive(Debug)]
pub struct Running {
    /// Envoys; Envoy `i` asks sidecar `i` (modulo the number of sidecars).
    pub envoys: Vec<Envoy>,
    /// Sidecars.
    pub sidecars: Vec<Sidecar>,
    /// Proxies between Envoy and sidecar, one for each sidecar, if asked for.
    pub sidecar_faults: Vec<FaultProxy>,
    /// Proxy between the sidecars and Redis, if asked for.
    pub redis_fault: Option<FaultProxy>,
    /// Redis, if asked for.
    pub redis: Option<Redis>,
    /// The upstream, if not left out.
    pub echo: Option<Process>,
    /// The directory of sockets, configuration and logs; last, so that it goes when all others have ended.
    pub dir: Workdir,
}

/// Deadline of the filter unless a test sets another: long, so that a slow machine fails nothing open by chance.
const DEADLINE_MS: u64 = 1000;

// === impl Stack ===

impl Default for Stack {
    fn default() -> Self {
        Self::new()
    }
}

impl Stack {
    /// One Envoy of one worker, one sidecar with the memory store, the echo upstream, and the rules of the shipped bootstrap.
    #[must_use]
    pub fn new() -> Self {
        Self {
            redis: false,
            redis_socket: false,
            redis_faults: false,
            store: None,
            sidecars: 1,
            sidecar_faults: false,
            sidecar_flags: Vec::new(),
            clocks_s: Vec::new(),
            tcp: false,
            envoys: 1,
            workers: 1,
            envoy_flags: Vec::new(),
            delivery: Delivery::Static,
            config: shipped_config(),
            changes: Vec::new(),
            upstream: true,
            module: None,
            sidecar_at: None,
        }
    }

    /// The sidecars share a Redis.
    #[must_use]
    pub fn redis(mut self) -> Self {
        self.redis = true;
        self
    }

    /// The sidecars share a Redis, which they reach through its Unix socket.
    #[must_use]
    pub fn redis_socket(mut self) -> Self {
        self.redis = true;
        self.redis_socket = true;
        self
    }

    /// Puts a proxy between the sidecars and Redis: [`Running::redis_fault`].
    #[must_use]
    pub fn redis_faults(mut self) -> Self {
        self.redis = true;
        self.redis_faults = true;
        self
    }

    /// The sidecars share a store that the test has started, such as a cluster.
    #[must_use]
    pub fn store(mut self, url: String) -> Self {
        self.store = Some(url);
        self
    }

    /// So many sidecars.
    #[must_use]
    pub fn sidecars(mut self, count: usize) -> Self {
        self.sidecars = count;
        self
    }

    /// Puts a proxy before each sidecar: [`Running::sidecar_faults`].
    #[must_use]
    pub fn sidecar_faults(mut self) -> Self {
        self.sidecar_faults = true;
        self
    }

    /// No sidecars: the Envoys ask what listens there, if anything does.
    #[must_use]
    pub fn sidecar_at(mut self, endpoint: Endpoint) -> Self {
        self.sidecars = 0;
        self.sidecar_at = Some(endpoint);
        self
    }

    /// Further flags of the sidecars.
    #[must_use]
    pub fn sidecar_flags(mut self, flags: &[&str]) -> Self {
        self.sidecar_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// The sidecars' clocks, in their order: so many seconds off.
    #[must_use]
    pub fn clocks_s(mut self, clocks_s: &[i64]) -> Self {
        self.clocks_s = clocks_s.to_vec();
        self
    }

    /// Envoy and sidecar talk over loopback TCP in place of a Unix socket.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// So many Envoys.
    #[must_use]
    pub fn envoys(mut self, count: usize) -> Self {
        self.envoys = count;
        self
    }

    /// So many workers in each Envoy.
    #[must_use]
    pub fn workers(mut self, count: u32) -> Self {
        self.workers = count;
        self
    }

    /// Further flags of the Envoys.
    #[must_use]
    pub fn envoy_flags(mut self, flags: &[&str]) -> Self {
        self.envoy_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// How the filter's configuration comes.
    #[must_use]
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// The plugin's configuration, with these rules, `POST /orders` as only route and `x-api-key` as `api_key`.
    #[must_use]
    pub fn rules(self, rules: Value) -> Self {
        self.config(with_rules(rules))
    }

    /// The whole of the plugin's configuration.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// The filter's deadline, in the configuration given before; 1 s unless set.
    #[must_use]
    pub fn deadline_ms(mut self, deadline_ms: u64) -> Self {
        self.config["sidecar"]["deadlineMs"] = json!(deadline_ms);
        self
    }

    /// Changes the bootstrap of every Envoy; in the order of the calls, after the plugin's configuration is in it.
    #[must_use]
    pub fn bootstrap(mut self, change: impl Fn(&mut Bootstrap) + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// Another Wasm module in place of Kota's filter.
    #[must_use]
    pub fn module(mut self, module: PathBuf) -> Self {
        self.module = Some(module);
        self
    }

    /// No upstream: its port is closed.
    #[must_use]
    pub fn without_upstream(mut self) -> Self {
        self.upstream = false;
        self
    }

    /// Starts it all and waits until it is ready.
    ///
    /// # Panics
    /// When a part does not start; with its log.
    #[must_use]
    pub fn start(self) -> Running {
        let dir = Workdir::new();
        let redis = self.redis.then(|| Redis::start(dir.path()));
        let redis_fault = redis
            .as_ref()
            .filter(|_| self.redis_faults)
            .map(|redis| FaultProxy::start(Endpoint::Tcp(free_port()), Endpoint::Tcp(redis.port())));
        let store = match (&redis_fault, &redis) {
            (Some(proxy), _) => format!("redis://127.0.0.1:{}", tcp_port(proxy.front())),
            (None, Some(redis)) if self.redis_socket => redis.socket_url(),
            (None, Some(redis)) => redis.url(),
            (None, None) => self.store.clone().unwrap_or_else(|| "memory".to_owned()),
        };
        let key_file = (store != "memory").then(|| dir.write("kota.keys", &format!("{}\n", "0f".repeat(32))));
        let sidecars: Vec<_> =
            (0..self.sidecars).map(|i| self.start_sidecar(i, &store, key_file.clone(), &dir)).collect();
        let sidecar_faults: Vec<_> = if self.sidecar_faults {
            let front = |i: usize| self.endpoint(&format!("proxy-{i}"), &dir);
            sidecars
                .iter()
                .enumerate()
                .map(|(i, sidecar)| FaultProxy::start(front(i), sidecar.listen().clone()))
                .collect()
        } else {
            Vec::new()
        };
        let echo_port = free_port();
        let echo = self.upstream.then(|| start_echo(echo_port, dir.path()));
        let asked: Vec<_> = match sidecar_faults.is_empty() {
            true => sidecars.iter().map(Sidecar::listen).cloned().collect(),
            false => sidecar_faults.iter().map(FaultProxy::front).cloned().collect(),
        };
        let envoys = (0..self.envoys).map(|i| self.start_envoy(i, &asked, echo_port, &dir)).collect();
        Running { envoys, sidecars, sidecar_faults, redis_fault, redis, echo, dir }
    }

    fn start_sidecar(&self, number: usize, store: &str, key_file: Option<PathBuf>, dir: &Workdir) -> Sidecar {
        let name = format!("sidecar-{number}");
        let sidecar = Sidecar::start(Setup {
            listen: self.endpoint(&name, dir),
            name,
            api: free_port(),
            store: store.to_owned(),
            key_file,
            flags: self.sidecar_flags.clone(),
            env: self.clocks_s.get(number).map(|off| clock::shifted(*off, dir.path())).unwrap_or_default(),
            dir: dir.path().to_path_buf(),
        });
        sidecar.wait_ready();
        sidecar
    }

    fn start_envoy(&self, number: usize, asked: &[Endpoint], echo: u16, dir: &Workdir) -> Envoy {
        // Without sidecars Envoy still needs a place to look for one: there is nothing there.
        let nowhere = || Endpoint::Unix(dir.path().join("no-sidecar.sock"));
        let own = asked.get(number % asked.len().max(1));
        let sidecar = own.or(self.sidecar_at.as_ref()).cloned().unwrap_or_else(nowhere);
        let filter = self.module.clone().unwrap_or_else(tools::filter);
        let places = Places { listener: free_port(), admin: free_port(), echo, sidecar, filter };
        let mut bootstrap = Bootstrap::shipped(&places);
        bootstrap.configure(&self.config);
        for change in &self.changes {
            change(&mut bootstrap);
        }
        let (name, flags) = (format!("envoy-{number}"), &self.envoy_flags);
        Envoy::start(&name, &places, bootstrap, self.delivery, self.workers, flags, dir.path())
    }

    fn endpoint(&self, name: &str, dir: &Workdir) -> Endpoint {
        if self.tcp {
            return Endpoint::Tcp(free_port());
        }
        let own = dir.path().join(name);
        DirBuilder::new().mode(0o750).create(&own).unwrap_or_else(|e| panic!("{}: {e}", own.display()));
        Endpoint::Unix(own.join("decide.sock"))
    }
}

// === impl Running ===

impl Running {
    /// The first Envoy.
    #[must_use]
    pub fn envoy(&self) -> &Envoy {
        &self.envoys[0]
    }

    /// The first sidecar.
    #[must_use]
    pub fn sidecar(&self) -> &Sidecar {
        &self.sidecars[0]
    }

    /// The Redis.
    ///
    /// # Panics
    /// When the stack has none.
    #[must_use]
    pub fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("the stack was started without .redis()")
    }

    /// The sum of one of the filter's counters over all Envoys.
    #[must_use]
    pub fn kota(&self, counter: &str) -> u64 {
        self.envoys.iter().map(|envoy| envoy.kota(counter)).sum()
    }
}

/// A plugin configuration around these rules.
#[must_use]
pub fn with_rules(rules: Value) -> Value {
    json!({
        "domain": "test",
        "sidecar": { "cluster": "kota", "deadlineMs": DEADLINE_MS },
        "descriptors": { "api_key": { "header": "x-api-key", "secret": true } },
        "routes": ["POST /orders"],
        "rules": rules,
    })
}

/// The shipped bootstrap's plugin configuration, but for the deadline.
fn shipped_config() -> Value {
    let nowhere = Endpoint::Unix(PathBuf::from("/nonexistent"));
    let places = Places {
        listener: 1,
        admin: 2,
        echo: 3,
        sidecar: nowhere,
        filter: PathBuf::from("/nonexistent.wasm"),
    };
    let mut config = Bootstrap::shipped(&places).configuration();
    config["sidecar"]["deadlineMs"] = json!(DEADLINE_MS);
    config
}

fn tcp_port(endpoint: &Endpoint) -> u16 {
    match endpoint {
        Endpoint::Tcp(port) => *port,
        Endpoint::Unix(path) => panic!("{}: a port was expected", path.display()),
    }
}
