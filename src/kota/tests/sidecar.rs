//! `kota sidecar` as a process: its flags, its end, its log.

use kota_integration::certificates::Authority;
use kota_integration::cluster::Cluster;
use kota_integration::http1::{Answer, Client, Request};
use kota_integration::process::Process;
use kota_integration::wait;
use kota_integration::workdir::{Workdir, free_port};
use std::process::Command;

fn kota(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kota"));
    command.arg("sidecar").args(flags).env_clear();
    command
}

/// A running sidecar and the port of its second listener.
fn start(workdir: &Workdir, flags: &[&str]) -> (Process, u16) {
    let port = free_port();
    let (listen, api) =
        (format!("unix:{}/s/decide.sock", workdir.path().display()), format!("127.0.0.1:{port}"));
    let process = Process::start(
        "sidecar",
        kota(&[&["--listen", &listen, "--api", &api], flags].concat()),
        workdir.path(),
    );
    process.wait_ready(|| status(port, "/healthz") == Some(200));
    (process, port)
}

fn status(port: u16, path: &str) -> Option<u16> {
    Client::new(port).try_send(&Request::get(path)).ok().map(|answer| answer.status)
}

#[test]
fn a_bad_flag_ends_it_with_64_before_a_port_is_bound() {
    let workdir = Workdir::new();
    let socket = format!("unix:{}/decide.sock", workdir.path().display());
    for (flags, named) in [
        (&["--listen", "tcp:192.0.2.1:9181"][..], "--listen tcp:192.0.2.1:9181"),
        (&["--listen", &socket, "--drain-wait-ms", "soon"], "--drain-wait-ms soon"),
        (&["--listen", &socket, "--store", "redis://127.0.0.1:1"], "--key-file"),
        (&["--listen", &socket, "--store", "ftp://:s3cret@h"], "--store"),
        (&["--listen", &socket, "--rules", "/nowhere.json"], "--rules /nowhere.json"),
        (&["--listen", &socket, "--unheard-of"], "--unheard-of"),
    ] {
        let output = kota(flags).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{flags:?}: {error}");
        assert!(error.contains(named) && !error.contains("s3cret"), "{error}");
    }
    let output = kota(&[]).env("KOTA_LISTEN", &socket).env("KOTA_THREADS", "none").output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--threads none"));
    assert!(!workdir.path().join("decide.sock").exists());
}

#[test]
fn a_port_that_is_taken_is_named_and_ends_it_with_1() {
    let workdir = Workdir::new();
    let (_first, port) = start(&workdir, &[]);
    let (listen, api) =
        (format!("unix:{}/other.sock", workdir.path().display()), format!("127.0.0.1:{port}"));
    let output = kota(&["--listen", &listen, "--api", &api]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("cannot listen on tcp:{api}")));
}

#[test]
fn a_signal_makes_it_unready_first_and_a_second_ends_it_at_once() {
    let workdir = Workdir::new();
    let (process, port) = start(&workdir, &["--drain-wait-ms", "600000"]);
    assert_eq!(status(port, "/readyz"), Some(200));
    process.terminate();
    wait::until_true("it is unready", || status(port, "/readyz") == Some(503));
    assert_eq!(status(port, "/healthz"), Some(200));
    process.terminate();
    assert_eq!(process.wait_ended().code(), Some(0));
    assert!(process.log().contains("a second signal"), "{}", process.log());
}

#[test]
fn a_drain_ends_with_0_and_a_new_one_takes_over_the_socket() {
    let workdir = Workdir::new();
    let (process, _) = start(&workdir, &["--drain-wait-ms", "0", "--threads", "2"]);
    process.terminate();
    assert_eq!(process.wait_ended().code(), Some(0));
    assert!(process.log().contains("drained"), "{}", process.log());
    let (process, _) = start(&workdir, &[]);
    assert_eq!(process.ended(), None);
}

/// OB-03, OP: the password of the store is in no line, at the most talkative.
#[test]
fn ob_03_the_password_of_the_store_is_not_logged() {
    let workdir = Workdir::new();
    let key_file = workdir.write("keys", "000102030405060708090a0b0c0d0e0f\n");
    let store = format!("redis://kota:s3cret@127.0.0.1:{}", free_port());
    let flags = ["--store", &store, "--key-file", key_file.to_str().unwrap(), "--log", "trace"];
    let (process, port) = start(&workdir, &flags);
    wait::until_true("the store is known to be away", || process.log().contains("is away"));
    assert_eq!(status(port, "/readyz"), Some(200));
    assert!(!process.log().contains("s3cret"), "{}", process.log());
}

/// Flags, settings and store together: a cluster behind TLS, and a user who has what the README grants and no more.
#[test]
fn a_cluster_behind_tls_serves_a_user_of_least_rights() {
    let workdir = Workdir::new();
    let ca = Authority::new(&workdir.path().join("ca"));
    let own = ca.sign("redis", "IP:127.0.0.1");
    let cluster = Cluster::start_behind_tls(workdir.path(), 3, |port| ca.server_options(port, &own, "no"));
    let rights = sidecar::store::redis::Redis::rights(true);
    for node in cluster.nodes() {
        let words = ["ACL", "SETUSER", "kota", "reset", "on", ">s3cret"];
        assert_eq!(
            node.command(&words.into_iter().chain(rights.split(' ')).collect::<Vec<_>>()).text(),
            "OK"
        );
    }
    let rules = r#"{"domain": "d", "descriptors": {"api_key": {"header": "x-api-key", "secret": true}, "tenant": {"header": "x-tenant"}}, "rules": [
        {"id": "key", "key": ["api_key"], "algorithm": "TOKEN_BUCKET", "capacity": 3, "refillPerSecond": 0, "idleSeconds": 3600},
        {"id": "tenant", "key": ["tenant"], "algorithm": "TOKEN_BUCKET", "capacity": 5, "refillPerSecond": 0, "idleSeconds": 3600}]}"#;
    let rules = workdir.write("rules.json", rules);
    let key_file = workdir.write("keys", "000102030405060708090a0b0c0d0e0f\n");
    let store = cluster.url().replace("://", "://kota:s3cret@");
    let flags = |ca: &Authority| {
        let file = |path: &std::path::Path| path.display().to_string();
        let (rules, key_file, ca) = (file(&rules), file(&key_file), file(&ca.cert()));
        ["--store", &store, "--key-file", &key_file, "--rules", &rules, "--redis-ca", &ca, "--log", "trace"]
            .map(str::to_owned)
    };
    let run = |workdir: &Workdir, ca: &Authority| {
        start(workdir, &flags(ca).iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (process, port) = run(&workdir, &ca);
    wait::until_true("it is ready", || status(port, "/readyz") == Some(200));
    let allowed = |key: &str| {
        let body = format!(r#"{{"domain": "d", "descriptors": [{{"api_key": "{key}", "tenant": "t"}}]}}"#);
        let request = Request::post("/v1/check").header("content-type", "application/json").body(body);
        let answer: Answer = Client::new(port).send(&request);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().contains(r#""decision":"ALLOW""#)
    };
    // Whatever key and tenant share: three for a key, five for the tenant, and a key that is denied costs the tenant nothing.
    let passed = ["k1"; 6].iter().chain(["k2"; 6].iter()).filter(|key| allowed(key)).count();
    assert_eq!(passed, 5);
    assert!(!process.log().contains("s3cret"), "{}", process.log());

    let other = Workdir::new();
    let stranger = Authority::new(&other.path().join("ca"));
    let (process, port) = run(&other, &stranger);
    wait::until_true("it is known to be unfit", || process.log().contains("not fit for use"));
    let answer = Client::new(port).send(&Request::get("/readyz"));
    assert!(answer.status == 503 && answer.text().contains("--redis-ca"), "{}", answer.text());
    assert!(!(process.log() + &answer.text()).contains("s3cret"), "{}", process.log());
}
