//! `make demo`: Kota on this machine, on the ports that the shipped bootstrap names, until Ctrl-C. Argument: the store.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, thread};

use kota_integration::bootstrap::{Bootstrap, Delivery, Endpoint, Places};
use kota_integration::demo_store;
use kota_integration::envoy::Envoy;
use kota_integration::process::Process;
use kota_integration::sidecar::{Setup, Sidecar, start_echo};
use kota_integration::workdir::Workdir;
use kota_integration::{tokens, tools};
use tokio::signal::unix::{SignalKind, signal};

const LISTENER: u16 = 10_000;
const ADMIN: u16 = 9901;
const ECHO: u16 = 8080;
const API: u16 = 9180;

/// The shipped 5 ms are for a machine that serves. On a busy desktop some decisions would come later than that and their requests pass, as
/// they should in production; but a trial should show the limit.
const DEADLINE_MS: u64 = 500;

/// The exit code of a wrong command line, as of `kota` itself (sysexits.h).
const EX_USAGE: u8 = 64;

/// How long to wait until the sidecar knows whether its Redis is there.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// What runs; ended in this order.
struct Demo {
    envoy: Envoy,
    sidecar: Sidecar,
    echo: Process,
    dir: Workdir,
}

fn main() -> ExitCode {
    let store = env::args().nth(1).unwrap_or_else(|| "memory".to_owned());
    if let Err(e) = demo_store::check(&store) {
        eprintln!("demo: STORE={}: {e}", demo_store::shown(&store));
        return ExitCode::from(EX_USAGE);
    }
    for port in [LISTENER, ADMIN, ECHO, API] {
        if let Err(e) = TcpListener::bind(("127.0.0.1", port)) {
            eprintln!(
                "demo: port {port} can't be had ({e}): end what uses it, `ss -ltnp 'sport = :{port}'` names it"
            );
            return ExitCode::FAILURE;
        }
    }
    let result = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            // Before anything starts, so that a signal during the start is not lost either.
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            let demo = start(&store)?;
            println!("{}", greeting(&store, &demo));
            if let Some(trouble) = trouble(&demo.sidecar) {
                println!("\nWARNING: {} {trouble}", demo_store::shown(&store));
            }
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                ended = one_ended(&demo) => eprintln!("demo: {ended} has ended by itself; the end of its log:\n{}", tail(&demo, ended)),
            }
            println!("\nEnding.");
            Ok(())
        })
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("demo: {e}");
            ExitCode::FAILURE
        }
    }
}

fn start(store: &str) -> io::Result<Demo> {
    let dir = Workdir::new();
    let key_file = (store != "memory").then(key_file).transpose()?;
    let echo = start_echo(ECHO, dir.path());
    let rules = tools::root().join("envoy/rules.json").display().to_string();
    let listen = Endpoint::Unix(dir.path().join("sidecar/decide.sock"));
    fs::create_dir(dir.path().join("sidecar"))?;
    let sidecar = Sidecar::start(Setup {
        name: "sidecar".to_owned(),
        listen: listen.clone(),
        api: API,
        store: store.to_owned(),
        key_file,
        flags: vec!["--rules".to_owned(), rules], // for /v1/check; the filter has its own
        env: Vec::new(),
        dir: dir.path().to_path_buf(),
    });
    let places =
        Places { listener: LISTENER, admin: ADMIN, echo: ECHO, sidecar: listen, filter: tools::filter() };
    let workers =
        thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get().min(4)).unwrap_or(1));
    let mut bootstrap = Bootstrap::shipped(&places);
    let mut config = bootstrap.configuration();
    config["sidecar"]["deadlineMs"] = DEADLINE_MS.into();
    bootstrap.configure(&config);
    let envoy = Envoy::start("envoy", &places, bootstrap, Delivery::Static, workers, &[], dir.path());
    Ok(Demo { envoy, sidecar, echo, dir })
}

/// What the sidecar says of a store that does not decide. It is asked until it knows, but not for ever: a Redis may take all connections
/// and never answer.
fn trouble(sidecar: &Sidecar) -> Option<String> {
    let start = Instant::now();
    loop {
        let ready = sidecar.readiness();
        let word = ready["store"].as_str().unwrap_or_default();
        let reason = ready["reason"].as_str().map_or_else(String::new, |reason| format!(" ({reason})"));
        match word {
            "up" => return None,
            "connecting" if start.elapsed() < STORE_PATIENCE => thread::sleep(Duration::from_millis(50)),
            "unfit" => {
                return Some(format!("can't be used{reason}: requests pass undecided until it can."));
            }
            _ => return Some(format!("is not reachable{reason}: requests pass undecided until it is.")),
        }
    }
}

/// A Redis store wants an HMAC key; this one is made once and kept, so that a restarted demo finds its buckets.
fn key_file() -> io::Result<PathBuf> {
    let path = tools::target().join("demo.keys");
    if !path.exists() {
        let mut key = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?
            .write_all(format!("{hex}\n").as_bytes())?;
    }
    Ok(path)
}

async fn one_ended(demo: &Demo) -> &'static str {
    loop {
        for (name, process) in parts(demo) {
            if process.ended().is_some() {
                return name;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn tail(demo: &Demo, name: &str) -> String {
    let log = parts(demo)
        .into_iter()
        .find(|(part, _)| *part == name)
        .map(|(_, process)| process.log())
        .unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn parts(demo: &Demo) -> [(&'static str, &Process); 3] {
    [("envoy", demo.envoy.process()), ("sidecar", demo.sidecar.process()), ("echo", &demo.echo)]
}

fn greeting(store: &str, demo: &Demo) -> String {
    // "…/envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL"
    let version = Command::new(tools::envoy())
        .arg("--version")
        .output()
        .map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let version =
        version.ok().and_then(|text| text.split("version: ").nth(1)?.split('/').nth(1).map(str::to_owned));
    let version = version.unwrap_or_default();
    let store = demo_store::shown(store);
    format!(
        r#"
Envoy {version} listens on 127.0.0.1:{LISTENER}; Kota counts in: {store}. Its rules: envoy/rules.json.
The demo waits for a decision up to {DEADLINE_MS} ms (deadlineMs); the shipped envoy/envoy.yaml says 5.

  sensitive: five logins from an address at once, then one every ten seconds:
    curl -s -i -X POST '127.0.0.1:{LISTENER}/login?n=[1-7]'
  For the next ones, be alice, whose token says plan gold:
    GOLD={gold}
  gold-orders-create: 100 orders at once and 10/s; gold-global: 200 requests of any kind at once and 20/s. Charged together or not at all:
    curl -s -o /dev/null -w '%{{http_code}}\n' -X POST -H "authorization: Bearer $GOLD" '127.0.0.1:{LISTENER}/orders?n=[1-150]' | sort | uniq -c
    curl -s -o /dev/null -w '%{{http_code}}\n' -H "authorization: Bearer $GOLD" '127.0.0.1:{LISTENER}/orders/[1-250]' | sort | uniq -c
  anonymous: 60 requests a minute from an address without a token, whatever key or plan they claim:
    curl -s -o /dev/null -w '%{{http_code}}\n' -H 'x-api-key: invented' -H 'x-plan: gold' '127.0.0.1:{LISTENER}/things?n=[1-70]' | sort | uniq -c
  reports: two at a time:
    seq 3 | xargs -P 3 -I{{}} curl -s -o /dev/null -w '%{{http_code}}\n' -H "authorization: Bearer $GOLD" -H 'x-echo-hold: 2000' 127.0.0.1:{LISTENER}/reports/{{}} | sort | uniq -c
  What the filter and the sidecar counted:
    curl -s 127.0.0.1:{ADMIN}/stats/prometheus | grep ^kota_
    curl -s 127.0.0.1:{API}/metrics

Logs: {}. Ctrl-C ends it all."#,
        demo.dir.path().display(),
        gold = tokens::ALICE_GOLD,
    )
}
