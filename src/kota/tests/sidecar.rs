//! `kota sidecar` as a process: its flags, its end, its log.

use kota_integration::http1::{Client, Request};
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
