//! A Redis Cluster behind Envoy and sidecar, while it does to itself what clusters do.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use kota_integration::cluster::Cluster;
use kota_integration::redis::{Redis, Reply};
use kota_integration::stack::with_rules;
use kota_integration::workdir::Workdir;
use kota_integration::{Stack, wait};
use serde_json::json;

use crate::support::{fresh_key, get, merge, rule, statuses};

const CLIENTS: usize = 12;

/// LR-01, LR-03: requests by key and by address, whose buckets lie on different nodes. Scripts are forgotten, a primary hands over,
/// a node joins and gets slots: nobody sees anything but 200, and no fail mode is asked.
#[test]
fn lr_01_no_client_notices_what_a_cluster_does_to_itself() {
    let workdir = Workdir::new();
    let mut cluster = Cluster::start(workdir.path(), 3);
    let replica = cluster.add_replica(0);
    let plenty = json!({ "failMode": "CLOSED", "refillPerSecond": 1000 });
    let mut by_address = rule("address", 1_000_000, plenty.clone());
    by_address["key"] = json!(["ip"]);
    let stack = Stack::new()
        .store(cluster.url())
        .sidecars(2)
        .envoys(2)
        .rules(json!([rule("key", 1_000_000, plenty), by_address]))
        .deadline_ms(10_000)
        .start();
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen: Vec<u16> = thread::scope(|scope| {
        let client = |nth: usize| {
            let (stack, over, answered) = (&stack, &over, &answered);
            scope.spawn(move || {
                let mut client = stack.envoys[nth % 2].client();
                let (request, mut seen) = (get("/", &fresh_key()), Vec::new());
                while !over.load(Ordering::Relaxed) {
                    seen.push(client.send(&request).status);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                seen
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let goes_on = || {
            let before = answered.load(Ordering::Relaxed);
            wait::until_true("there is load", || answered.load(Ordering::Relaxed) > before + 10 * CLIENTS);
        };
        for nth in [0, 1, 2, 0, 1, 2] {
            goes_on();
            cluster.node(nth).command(&["SCRIPT", "FLUSH"]);
        }
        cluster.fail_over_to(replica);
        goes_on();
        let joined = cluster.add_primary();
        let slots: BTreeSet<u32> = cluster.node(1).keys().iter().map(|key| cluster.slot(key)).collect();
        assert!(!slots.is_empty(), "some of the clients are of this node");
        for slot in slots {
            cluster.move_slot(slot, 1, joined);
        }
        goes_on();
        over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    assert!(seen.iter().all(|status| *status == 200), "{seen:?}");
    let decided = seen.len() as u64;
    assert_eq!((stack.kota("allowed.key"), stack.kota("allowed.address")), (decided, decided));
    for sidecar in &stack.sidecars {
        assert_eq!(sidecar.metric("kota_decisions_total", "decision=\"unknown\""), 0.0);
    }
}

/// LR-03: by address, key and tenant, each on a primary of its own or not: what is spent is what was admitted.
#[test]
fn lr_03_a_request_of_three_clients_is_charged_by_all_or_none() {
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    let by = |id: &str, key: &str, capacity: u64| {
        let mut rule = rule(id, capacity, json!({}));
        rule["key"] = json!([key]);
        rule
    };
    let mut config =
        with_rules(json!([by("address", "ip", 10_000), by("key", "api_key", 3), by("tenant", "tenant", 20)]));
    merge(&mut config["descriptors"], json!({ "tenant": { "header": "x-tenant" } }));
    let stack = Stack::new().store(cluster.url()).config(config).deadline_ms(10_000).start();
    let mut client = stack.envoy().client();
    // Ten keys of one tenant: three requests pass of each, twenty in all.
    let mut passed = 0;
    for _ in 0..10 {
        let request = get("/", &fresh_key()).header("x-tenant", "t");
        let seen = statuses(&mut client, &request, 8);
        passed += seen.iter().filter(|status| **status == 200).count();
        assert!(seen.iter().all(|status| [200, 429].contains(status)), "{seen:?}");
    }
    assert_eq!(passed, 20);
    // What was denied cost the address nothing: Redis's own state says how much it used, in micro-tokens after its time.
    let of_address = |node: &Redis| node.keys().into_iter().find(|key| key.contains(":address:"));
    let (node, key) =
        cluster.nodes().iter().find_map(|node| Some((node, of_address(node)?))).expect("a bucket");
    let Reply::Bulk(Some(state)) = node.command(&["GET", &key]) else { panic!("{key} is no string") };
    let used = state[7..].iter().rev().fold(0_u64, |used, byte| used << 8 | u64::from(*byte));
    assert_eq!(used.div_ceil(1_000_000), 20);
}
