//! `docker-compose.yml` without Docker: against the schema of Compose, and each service's command and health check as processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kota_integration::bootstrap::substitute;
use kota_integration::process::Process;
use kota_integration::workdir::{Workdir, free_port};
use kota_integration::{Client, Request, tools, wait};
use serde_json::Value;

/// The Compose Specification's schema (Apache-2.0).
const SCHEMA: &str = include_str!("../compose.schema.json");

/// The shipped file, and the same with the places of this run.
struct Compose {
    shipped: Value,
    ours: Value,
    dir: Workdir,
    listener: u16,
}

/// Order of start: what `depends_on` says, checked below.
const SERVICES: [&str; 4] = ["redis", "sidecar", "echo", "envoy"];

// === impl Compose ===

impl Compose {
    fn read() -> Self {
        let path = tools::root().join("docker-compose.yml");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let parse = |text: &str| {
            serde_yaml_ng::from_str::<Value>(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let dir = Workdir::new();
        let listener = free_port();
        let table = table(dir.path(), listener);
        let ours = substitute(&text, &table).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { shipped: parse(&text), ours: parse(&ours), dir, listener }
    }

    /// What the service's container would run: the image's entry point is the program where the command does not name one.
    fn command(&self, service: &str) -> Command {
        let mut words = words(&self.ours["services"][service]["command"]);
        if self.ours["services"][service]["build"]["target"] == "kota" {
            words.insert(0, "kota".to_owned());
        }
        self.program(&words)
    }

    fn healthy(&self, service: &str) -> bool {
        let test = words(&self.ours["services"][service]["healthcheck"]["test"]);
        assert_eq!(test[0], "CMD", "{service}");
        self.program(&test[1..]).output().is_ok_and(|output| output.status.success())
    }

    /// A command whose `kota`, `envoy` and `redis-server` are the tools of the tests, wherever a shell looks them up.
    fn program(&self, words: &[String]) -> Command {
        let bin = self.dir.path().join("bin");
        let path = std::env::var("PATH").unwrap_or_default();
        let ours = bin.join(&words[0]);
        let mut command = Command::new(if ours.exists() { ours } else { PathBuf::from(&words[0]) });
        command.args(&words[1..]).env("PATH", format!("{}:{path}", bin.display()));
        command
    }

    /// Lays out what the images and the file mount: programs, bootstrap, module, keys, the socket's directory.
    fn mount(&self) {
        let dir = self.dir.path();
        for (name, tool) in
            [("kota", tools::kota()), ("envoy", tools::envoy()), ("redis-server", tools::redis_server())]
        {
            fs::create_dir_all(dir.join("bin")).expect("a directory");
            std::os::unix::fs::symlink(tool, dir.join("bin").join(name)).expect("a link");
        }
        fs::create_dir(dir.join("run")).expect("a directory");
        let content = self.ours["configs"]["keys"]["content"].as_str().expect("the keys' content");
        fs::write(dir.join("keys"), content).expect("the keys");
        let bootstrap = fs::read_to_string(tools::root().join("envoy/envoy.yaml")).expect("the bootstrap");
        let image = [
            ("/run/kota/", format!("{}/run/", dir.display())),
            ("/etc/kota/kota_filter.wasm", tools::filter().display().to_string()),
            ("port_value: 9901", format!("port_value: {}", self.admin())),
            (r#""deadlineMs": 5 "#, r#""deadlineMs": 1000 "#.to_owned()),
        ];
        let bootstrap = substitute(&bootstrap, &image).unwrap_or_else(|e| panic!("envoy.yaml: {e}"));
        fs::write(dir.join("envoy.yaml"), bootstrap).expect("the bootstrap");
    }

    /// The admin port stands in Envoy's health check.
    fn admin(&self) -> u16 {
        let test = words(&self.ours["services"]["envoy"]["healthcheck"]["test"]).concat();
        let port =
            test.split("/dev/tcp/127.0.0.1/").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        port.expect("the health check of Envoy asks a port")
    }
}

/// Every place that the shipped file names, and what stands for it here.
fn table(dir: &Path, listener: u16) -> Vec<(&'static str, String)> {
    let [admin, api, redis, echo] = [(); 4].map(|()| free_port());
    let path = |name: &str| dir.join(name).display().to_string();
    vec![
        ("address: 0.0.0.0, port_value: 10000/", format!("address: 127.0.0.1, port_value: {listener}/")),
        ("address: echo, port_value: 8080/", format!("address: 127.0.0.1, port_value: {echo}/")),
        ("/etc/kota/envoy.yaml", path("envoy.yaml")),
        ("/tmp/envoy.yaml", path("substituted.yaml")),
        ("/dev/tcp/127.0.0.1/9901", format!("/dev/tcp/127.0.0.1/{admin}")),
        ("unix:/run/kota/decide.sock", format!("unix:{}/run/decide.sock", dir.display())),
        ("0.0.0.0:9180", format!("127.0.0.1:{api}")),
        ("/dev/tcp/127.0.0.1/9180", format!("/dev/tcp/127.0.0.1/{api}")),
        ("redis://redis:6379", format!("redis://127.0.0.1:{redis}")),
        ("/etc/kota/keys", path("keys")),
        ("[redis-server, ", format!("[redis-server, --port, \"{redis}\", --dir, \"{}\", ", dir.display())),
        ("\"6379\", ping", format!("\"{redis}\", ping")),
        ("\"0.0.0.0:8080\"", format!("\"127.0.0.1:{echo}\"")),
        ("/dev/tcp/127.0.0.1/8080", format!("/dev/tcp/127.0.0.1/{echo}")),
    ]
}

/// A list of words, as Compose passes it: `$$` is a dollar sign.
fn words(list: &Value) -> Vec<String> {
    let words = list.as_array().unwrap_or_else(|| panic!("not a list of words: {list}"));
    words.iter().map(|word| word.as_str().expect("a word is a string").replace("$$", "$")).collect()
}

#[test]
fn the_file_follows_the_schema_of_compose() {
    let schema = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let shipped = Compose::read().shipped;
    let faults: Vec<_> =
        validator.iter_errors(&shipped).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(faults.is_empty(), "{faults:#?}");

    let mut wrong = shipped;
    wrong["services"]["envoy"]["heathcheck"] = wrong["services"]["envoy"]["healthcheck"].clone();
    assert!(!validator.is_valid(&wrong), "the schema lets an unknown field pass, so it checks nothing");
}

#[test]
fn each_service_has_a_health_check_and_waits_for_what_it_needs() {
    let shipped = Compose::read().shipped;
    let services = shipped["services"].as_object().expect("services");
    assert_eq!(services.len(), SERVICES.len());
    for (i, name) in SERVICES.iter().enumerate() {
        assert!(services[*name]["healthcheck"]["test"].is_array(), "{name} has no health check");
        let needs = services[*name]["depends_on"].as_object().into_iter().flatten();
        for (needed, how) in needs {
            assert!(SERVICES[..i].contains(&needed.as_str()), "{name} starts before {needed}");
            assert_eq!(how["condition"], "service_healthy", "{name}");
        }
    }
}

#[test]
fn each_command_runs_and_its_health_check_passes_and_together_they_limit() {
    let compose = Compose::read();
    compose.mount();
    let mut running = Vec::new();
    for service in SERVICES {
        let process = Process::start(service, compose.command(service), compose.dir.path());
        process.wait_ready(|| compose.healthy(service));
        running.push(process);
    }
    let mut client = Client::new(compose.listener);
    let request = Request::post("/login");
    let statuses: Vec<_> = (0..5).map(|_| client.send(&request).status).collect();
    assert_eq!(statuses, [200; 5]);
    wait::until_true("the limit is met", || client.send(&request).status == 429);
    let keys =
        Command::new("redis-cli").args(["-p", &redis_port(&compose), "KEYS", "rl:{public-api:ip:*"]).output();
    let keys = String::from_utf8_lossy(&keys.expect("redis-cli runs").stdout).into_owned();
    assert!(keys.contains("sensitive"), "Redis holds: {keys}");
    drop(running.pop()); // Envoy first: it depends on the others
}

fn redis_port(compose: &Compose) -> String {
    words(&compose.ours["services"]["redis"]["command"])[2].clone()
}
