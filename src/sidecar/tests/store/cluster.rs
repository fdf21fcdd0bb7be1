//! A cluster under load: every event that there is, and what is lost by it.

use crate::ask::{Rule, admitted, all, begin, one, outcomes, rule, unknown, until, up};
use kota_integration::cluster::Cluster;
use kota_integration::workdir::{Workdir, free_port};
use protocol::batch::Unknown;
use sidecar::store::redis::{Redis, SCRIPTS};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Tasks that ask, clients of each, and how long each rests between two batches: some 1,000 checks a second in all.
const TASKS: usize = 4;
const CLIENTS: usize = 20;
const REST: Duration = Duration::from_millis(60);

/// Clients that never run out, asking all the time.
struct Load {
    over: Arc<AtomicBool>,
    decided: Arc<AtomicUsize>,
    /// How often each client was not decided.
    undecided: Arc<Mutex<HashMap<String, usize>>>,
    tasks: Vec<JoinHandle<()>>,
}

fn client(task: usize, nth: usize) -> String {
    format!("{{t{task}c{nth}}}")
}

fn clients() -> impl Iterator<Item = String> {
    (0..TASKS).flat_map(|task| (0..CLIENTS).map(move |nth| client(task, nth)))
}

impl Load {
    fn begin(store: &Arc<Redis>) -> Self {
        let mut load = Self {
            over: Arc::default(),
            decided: Arc::default(),
            undecided: Arc::default(),
            tasks: Vec::new(),
        };
        for task in 0..TASKS {
            let store = Arc::clone(store);
            let (over, decided, undecided) =
                (Arc::clone(&load.over), Arc::clone(&load.decided), Arc::clone(&load.undecided));
            load.tasks.push(tokio::spawn(async move {
                let rules = |name: String| {
                    ["a", "b"].map(|id| rule(format!("{name}{id}"), 1_000_000).per_second(1_000)).to_vec()
                };
                let checks: Vec<Vec<Rule>> = (0..CLIENTS).map(|nth| rules(client(task, nth))).collect();
                while !over.load(Ordering::Relaxed) {
                    for (nth, answer) in all(&*store, &checks).await.iter().enumerate() {
                        match unknown(answer) {
                            None => assert!(admitted(answer)),
                            // Never late: the deadline is 10 s.
                            Some(Unknown::RedisError) => {
                                *undecided.lock().unwrap().entry(client(task, nth)).or_default() += 1;
                            }
                            Some(reason) => panic!("{reason:?}"),
                        }
                        decided.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(REST).await;
                }
            }));
        }
        load
    }

    /// Waits until every client has asked, and more than once.
    async fn goes_on(&self) {
        let before = self.decided.load(Ordering::Relaxed);
        let enough = before + 4 * TASKS * CLIENTS;
        until("there is load", || self.decided.load(Ordering::Relaxed) > enough).await;
    }

    /// Who was not decided since this was last asked.
    fn undecided(&self) -> HashMap<String, usize> {
        std::mem::take(&mut self.undecided.lock().unwrap())
    }

    async fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_is_decided_by_the_node_that_owns_it() {
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    // Any node will do to find the others, even if another that is named is not there.
    let url = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), cluster.node(2).port());
    let (store, _) = begin(&url);
    up(&store).await;
    let client = |i| vec![rule(format!("{{k{i}}}a"), 2), rule(format!("{{k{i}}}b"), 3)];
    let checks: Vec<_> = (0..300).map(client).collect();
    for passes in [true, true, false] {
        assert!(all(&store, &checks).await.iter().all(|answer| admitted(answer) == passes));
    }
    let keys: Vec<usize> = cluster.nodes().iter().map(|node| node.keys().len()).collect();
    assert!(keys.iter().sum::<usize>() == 600 && keys.iter().all(|keys| *keys > 100), "{keys:?}");
}

/// LR-01 where nothing has to be lost: scripts forgotten, a primary that hands over, a node that joins and gets slots. Each node
/// is sent the scripts once per event.
#[tokio::test(flavor = "multi_thread")]
async fn lr_01_no_decision_is_lost_when_scripts_are_forgotten_and_slots_change_hands() {
    const FLUSHES: u64 = 5;
    let workdir = Workdir::new();
    let mut cluster = Cluster::start(workdir.path(), 3);
    let replica = cluster.add_replica(0);
    let (store, _) = begin(&cluster.url());
    let store = Arc::new(store);
    up(&store).await;
    let loads = |cluster: &Cluster, nth: usize| cluster.node(nth).calls("script|load");
    let load = Load::begin(&store);
    for flush in 1..=FLUSHES {
        for nth in 0..3 {
            load.goes_on().await;
            cluster.node(nth).command(&["SCRIPT", "FLUSH"]);
            let sent = (flush + 1) * SCRIPTS as u64;
            until("the scripts are sent again", || loads(&cluster, nth) == sent).await;
        }
    }
    cluster.fail_over_to(replica);
    load.goes_on().await;
    let joined = cluster.add_primary();
    for slot in clients().map(|name| cluster.slot(&name)) {
        let owner = cluster.owner(slot, 1);
        if owner == 1 {
            cluster.move_slot(slot, owner, joined);
        }
    }
    load.goes_on().await;
    until("the store is up", || sidecar::store::Store::status(&*store) == sidecar::store::Status::Up).await;
    assert_eq!(load.undecided(), HashMap::new());
    load.end().await;
    for (nth, events) in [(0, FLUSHES + 1), (1, FLUSHES + 1), (2, FLUSHES + 1), (replica, 1), (joined, 1)] {
        assert_eq!(loads(&cluster, nth), events * SCRIPTS as u64, "node {nth}");
    }
    assert!(cluster.node(joined).calls("evalsha") > 0 && cluster.node(replica).calls("evalsha") > 0);
}

/// LR-01 where something has to be lost: while a primary is dead its own clients can't be decided, and nobody else notices.
#[tokio::test(flavor = "multi_thread")]
async fn lr_01_a_primary_that_dies_costs_decisions_of_its_own_clients_alone() {
    let workdir = Workdir::new();
    let mut cluster = Cluster::start(workdir.path(), 3);
    let replica = cluster.add_replica(0);
    let (store, _) = begin(&cluster.url());
    let store = Arc::new(store);
    up(&store).await;
    let load = Load::begin(&store);
    let of = |cluster: &Cluster, owner: usize| -> Vec<String> {
        clients().filter(|name| cluster.owner(cluster.slot(name), 2) == owner).collect()
    };
    // One that nobody stands in for, and comes back with nothing.
    load.goes_on().await;
    let its_own = of(&cluster, 1);
    cluster.restart(1);
    back(&store, &its_own, &load).await;
    load.goes_on().await;
    assert_eq!(load.undecided(), HashMap::new(), "all is well again");
    // One whose replica takes over by itself.
    let its_own = of(&cluster, 0);
    cluster.node(0).process().kill();
    cluster.wait_primary(replica);
    back(&store, &its_own, &load).await;
    load.goes_on().await;
    assert_eq!(load.undecided(), HashMap::new(), "all is well again");
    load.end().await;
}

/// Waits until these clients are decided again, and checks that no other was ever left undecided.
async fn back(store: &Arc<Redis>, its_own: &[String], load: &Load) {
    let checks: Vec<Vec<Rule>> =
        its_own.iter().map(|name| vec![rule(format!("{name}back"), 30_000)]).collect();
    while !all(&**store, &checks).await.iter().all(|answer| unknown(answer).is_none()) {
        tokio::time::sleep(REST).await;
    }
    // What was asked before is answered by then.
    load.goes_on().await;
    let undecided = load.undecided();
    let others: Vec<_> = undecided.keys().filter(|name| !its_own.contains(name)).collect();
    assert!(others.is_empty() && !undecided.is_empty(), "{others:?} of {undecided:?}");
}

/// A slot is moved to and fro under load, key by key: nothing is lost, and nothing is charged twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_loses_no_decision_and_charges_none_twice() {
    const MOVES: usize = 6;
    const PLENTY: u64 = 30_000;
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    let (store, _) = begin(&cluster.url());
    let store = Arc::new(store);
    up(&store).await;
    let slot = cluster.slot("{moving}");
    let home = cluster.owner(slot, 0);
    let away = (home + 1) % 3;
    let (over, admissions) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let keys = |fresh: usize| {
        // Two that are always there, and two that are new each time.
        let names = [
            "{moving}a".to_owned(),
            "{moving}b".to_owned(),
            format!("{{moving}}x{fresh}"),
            format!("{{moving}}y{fresh}"),
        ];
        names.map(|name| rule(name, PLENTY)).to_vec()
    };
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, over, admissions) = (Arc::clone(&store), Arc::clone(&over), Arc::clone(&admissions));
            tokio::spawn(async move {
                for fresh in (task..).step_by(TASKS) {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let checks = [keys(fresh), vec![keys(fresh).remove(0)]];
                    for answer in all(&*store, &checks).await {
                        assert!(admitted(&answer));
                        admissions.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let goes_on = async || {
        let before = admissions.load(Ordering::Relaxed);
        until("there is load", || admissions.load(Ordering::Relaxed) > before + 100).await;
    };
    for nth in 0..MOVES {
        let (from, to) = if nth % 2 == 0 { (home, away) } else { (away, home) };
        goes_on().await;
        cluster.begin_move(slot, from, to);
        goes_on().await;
        cluster.move_keys(slot, from, to);
        goes_on().await;
        // What came meanwhile went to the new place.
        cluster.move_keys(slot, from, to);
        cluster.end_move(slot, from, to);
    }
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let left = outcomes(&one(&*store, &[rule("{moving}a", PLENTY).cost(0)]).await)[0].left;
    assert_eq!(left, PLENTY - admissions.load(Ordering::Relaxed) as u64);
    // It did go by the nodes' word, and nowhere else.
    assert!(cluster.node(away).calls("asking") > 100 && cluster.node((home + 2) % 3).keys().is_empty());
}
