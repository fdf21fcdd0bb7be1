//! Many at once, while things happen.

use crate::ask::{Rule, admitted, all, change, one, rule, store, unknown, until, up};
use kota_integration::redis::{Redis as Server, Reply, encode};
use kota_integration::workdir::Workdir;
use limits::settle::Settlement;
use protocol::batch::Unknown;
use sidecar::changes::Change;
use sidecar::store::redis::SCRIPTS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CLIENTS: usize = 8;

/// LR-01: the server forgets the script again and again; no client notices, and each time it is sent once.
#[tokio::test(flavor = "multi_thread")]
async fn lr_01_a_forgotten_script_is_sent_once_and_nobody_notices() {
    const FLUSHES: u64 = 20;
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let (store, metrics) = store(&server).await;
    let store = Arc::new(store);
    let (over, decided) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (store, over, decided) = (Arc::clone(&store), Arc::clone(&over), Arc::clone(&decided));
            tokio::spawn(async move {
                let checks: Vec<_> = (0..4)
                    .map(|i| vec![rule(format!("c{client}-{i}"), 1_000_000).per_second(1_000)])
                    .collect();
                while !over.load(Ordering::Relaxed) {
                    assert!(all(&*store, &checks).await.iter().all(admitted));
                    decided.fetch_add(checks.len(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for flush in 1..=FLUSHES {
        let before = decided.load(Ordering::Relaxed);
        until("there is load", || decided.load(Ordering::Relaxed) > before + 100).await;
        server.command(&["SCRIPT", "FLUSH"]);
        let sent = format!("kota_script_loads_total {}", flush + 1);
        until("the script is sent again", || metrics.render(&*store).contains(&sent)).await;
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(server.calls("script|load"), (FLUSHES + 1) * SCRIPTS as u64);
}

/// LR-06: connections die at any moment, and no key is left without an end.
#[tokio::test(flavor = "multi_thread")]
async fn lr_06_no_key_is_without_ttl_whatever_happens_to_connections() {
    const KEYS: usize = 100_000;
    const BATCH: usize = 50;
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let (store, _) = store(&server).await;
    let store = Arc::new(store);
    let next = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (store, next) = (Arc::clone(&store), Arc::clone(&next));
            tokio::spawn(async move {
                let mut lost = 0;
                loop {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    if first >= KEYS {
                        return lost;
                    }
                    let fresh = |key: usize| {
                        let slot = rule(format!("b{key}"), 10).slots().holding("slot");
                        match key % 3 {
                            // One is denied, and counted for a penalty.
                            0 => vec![rule(format!("a{key}"), 10).penalty_after(2).cost(11).shadow(), slot],
                            1 => vec![rule(format!("a{key}"), 10).window(), rule(format!("b{key}"), 10)],
                            _ => vec![rule(format!("a{key}"), 10), slot],
                        }
                    };
                    let checks: Vec<Vec<Rule>> = (first..first + BATCH).map(fresh).collect();
                    let answers = all(&*store, &checks).await;
                    change(&*store, &changes(&checks)).await;
                    for reason in answers.iter().filter_map(unknown) {
                        assert_eq!(reason, Unknown::RedisError);
                        lost += 1;
                    }
                    if lost > 0 {
                        up(&store).await;
                    }
                }
            })
        })
        .collect();
    for part in 1..10 {
        until("part of the keys are written", || next.load(Ordering::Relaxed) >= part * KEYS / 10).await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    let mut lost = 0;
    for client in clients {
        lost += client.await.unwrap();
    }
    assert_eq!(endless(&server), Vec::<String>::new());
    // One of each check, and none of a change.
    let written = server.keys().iter().filter(|key| key.starts_with('b')).count();
    assert!(written <= KEYS && written + lost >= KEYS, "{written} keys written, {lost} checks lost");
}

/// AL-08, MP-01: three sidecars share one count, and only the server's clock counts: what they admit together is bounded by
/// what passed on it, to the microsecond.
#[tokio::test(flavor = "multi_thread")]
async fn al_08_three_sidecars_admit_no_more_than_the_servers_clock_allows() {
    const RATE: u64 = 200;
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let start = time_us(&server);
    let mut admitted_in_all = 0;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let store = store(&server).await.0;
        clients.push(tokio::spawn(async move {
            let mut passed = 0;
            for _ in 0..1_000 {
                passed += u64::from(admitted(&one(&store, &[rule("shared", 5).per_second(RATE)]).await));
            }
            passed
        }));
    }
    for client in clients {
        admitted_in_all += client.await.unwrap();
    }
    let elapsed_us = time_us(&server) - start;
    assert!(admitted_in_all >= 5);
    assert!(admitted_in_all <= 5 + RATE * elapsed_us / 1_000_000, "{admitted_in_all} in {elapsed_us} us");
}

/// AL-08, MP-06: the same for a window: of each that the server's clock has seen no more pass than it takes, whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn al_08_mp_06_three_sidecars_share_the_servers_window() {
    const CAPACITY: u64 = 20;
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let mut clients = Vec::new();
    let stores = [store(&server).await.0, store(&server).await.0, store(&server).await.0];
    let start = time_us(&server) / 1_000_000;
    for store in stores {
        clients.push(tokio::spawn(async move {
            let mut passed = 0;
            for _ in 0..1_000 {
                let rule = rule("shared", CAPACITY).window_of_a_second();
                passed += u64::from(admitted(&one(&store, &[rule]).await));
            }
            passed
        }));
    }
    let mut passed = 0;
    for client in clients {
        passed += client.await.unwrap();
    }
    let windows = time_us(&server) / 1_000_000 - start + 1;
    assert!((CAPACITY..=CAPACITY * windows).contains(&passed), "{passed} in {windows} windows");
}

#[tokio::test(flavor = "multi_thread")]
async fn mp_01_three_sidecars_admit_exactly_the_capacity() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let mut clients = Vec::new();
    for _ in 0..3 {
        let store = Arc::new(store(&server).await.0);
        for _ in 0..CLIENTS {
            let store = Arc::clone(&store);
            clients.push(tokio::spawn(async move {
                let kinds = [rule("bucket", 100), rule("window", 100).window(), rule("slots", 100).slots()];
                let mut passed = Vec::new();
                for rule in kinds {
                    let checks = vec![vec![rule]; 40];
                    passed.push(all(&*store, &checks).await.iter().filter(|answer| admitted(answer)).count());
                }
                passed
            }));
        }
    }
    let mut passed = [0; 3];
    for client in clients {
        let more = client.await.unwrap();
        passed.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    assert_eq!(passed, [100; 3], "bucket, window, slots");
}

fn time_us(server: &Server) -> u64 {
    let Reply::Array(parts) = server.command(&["TIME"]) else { panic!("no time") };
    let number = |part: &Reply| match part {
        Reply::Bulk(Some(text)) => String::from_utf8_lossy(text).parse::<u64>().unwrap(),
        other => panic!("{other:?}"),
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}

/// Some of what these checks took is given back, more is charged, and slots that were never taken are released.
fn changes(checks: &[Vec<Rule>]) -> Vec<Change> {
    let changes = checks.iter().step_by(7).enumerate().map(|(nth, rules)| {
        let late = rule(format!("c{}", rules[0].key), 10).slots().holding("slot");
        match nth % 4 {
            0 => rules[0].settle(Settlement::Give, 1),
            1 => rules[0].settle(Settlement::Take, 1),
            2 => rules[0].pardon(),
            _ => late.release(),
        }
    });
    changes.collect()
}

/// The keys that live for ever. One that ends meanwhile (-2) is none of them.
fn endless(server: &Server) -> Vec<String> {
    let (keys, mut connection) = (server.keys(), server.connect());
    let mut found = Vec::new();
    for bundle in keys.chunks(1_000) {
        let mut commands = Vec::new();
        bundle.iter().for_each(|key| encode(&["PTTL", key], &mut commands));
        connection.send(&commands);
        let endless = bundle.iter().filter(|_| connection.receive() == Reply::Integer(-1));
        found.extend(endless.cloned());
    }
    found
}
