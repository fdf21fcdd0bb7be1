//! A Redis Cluster of processes on loopback, and what can be done to it.

use std::path::{Path, PathBuf};

use crate::redis::{Redis, Reply, encode};
use crate::wait;
use crate::workdir::free_port;

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// After so long, in milliseconds, a node that is silent counts as failed.
const NODE_TIMEOUT_MS: u32 = 1_000;
/// How many keys are moved at once.
const KEYS_AT_ONCE: &str = "100";

/// A running cluster. Nodes are numbered in the order of their start: the primaries, then what was added.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    nodes: Vec<Redis>,
    /// The port of each behind TLS, if it has one.
    tls: Vec<u16>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts so many primaries with a like share of the slots each, and waits until all agree.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(dir: &Path, primaries: usize) -> Self {
        let mut cluster = Self { dir: dir.to_path_buf(), nodes: Vec::new(), tls: Vec::new() };
        for _ in 0..primaries {
            cluster.spawn(&[]);
        }
        cluster.join();
        cluster
    }

    /// The same behind TLS; `options` tells how, for a node's port for that.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_behind_tls(dir: &Path, primaries: usize, options: impl Fn(u16) -> Vec<String>) -> Self {
        let mut cluster = Self { dir: dir.to_path_buf(), nodes: Vec::new(), tls: Vec::new() };
        for _ in 0..primaries {
            let port = free_port();
            cluster.tls.push(port);
            let mut options = options(port);
            options.extend(["--tls-cluster", "yes"].map(str::to_owned));
            cluster.spawn(&options);
        }
        cluster.join();
        cluster
    }

    /// Makes a cluster of nodes that know nothing yet.
    fn join(&self) {
        let share = |nth: usize| SLOTS * nth / self.nodes.len();
        for (nth, node) in self.nodes.iter().enumerate() {
            let (first, last) = (share(nth), share(nth + 1) - 1);
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(nth + 1).to_string()]);
            ok(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        (1..self.nodes.len()).for_each(|nth| self.meet(nth));
        self.wait_agreed();
    }

    /// A node by its number.
    #[must_use]
    pub fn node(&self, nth: usize) -> &Redis {
        &self.nodes[nth]
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Its address for `--store`, by the first two nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let (scheme, ports) = match self.tls.as_slice() {
            [] => ("redis", self.nodes.iter().map(Redis::port).collect()),
            ports => ("rediss", ports.to_vec()),
        };
        let places: Vec<String> = ports.iter().take(2).map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{scheme}+cluster://{}", places.join(","))
    }

    /// Adds a primary without slots and gives its number.
    ///
    /// # Panics
    /// When it does not join.
    pub fn add_primary(&mut self) -> usize {
        let nth = self.spawn(&[]);
        ok(&self.nodes[nth], &["CLUSTER", "SET-CONFIG-EPOCH", &(nth + 1).to_string()]);
        self.meet(nth);
        self.wait_agreed();
        nth
    }

    /// Adds a replica of a primary and gives its number, once it has caught up.
    ///
    /// # Panics
    /// When it does not join.
    pub fn add_replica(&mut self, primary: usize) -> usize {
        let nth = self.spawn(&[]);
        self.meet(nth);
        let id = self.id(primary);
        let replicate = || self.nodes[nth].command(&["CLUSTER", "REPLICATE", &id]) == ok_reply();
        wait::until_true("the replica knows its primary", replicate);
        self.nodes[nth].wait_caught_up();
        let id = self.id(nth);
        let is_it = |line: &str| line.starts_with(&id) && line.contains("slave");
        let knows = |node: &Redis| node.command(&["CLUSTER", "NODES"]).text().lines().any(is_it);
        wait::until_true("all know of the replica", || self.nodes.iter().all(knows));
        nth
    }

    /// Lets a replica take over from its primary, in good order.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn fail_over_to(&self, replica: usize) {
        ok(&self.nodes[replica], &["CLUSTER", "FAILOVER"]);
        self.wait_primary(replica);
    }

    /// Waits until a replica has become a primary.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_primary(&self, nth: usize) {
        let is_primary = || self.nodes[nth].info("replication").contains("role:master");
        wait::until_true("the replica is a primary", is_primary);
    }

    /// Kills a node and starts it again, with what it knew of the cluster and without its keys.
    pub fn restart(&mut self, nth: usize) {
        self.nodes[nth].restart();
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// When the first node can't be asked.
    #[must_use]
    pub fn slot(&self, key: &str) -> u32 {
        match self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]) {
            Reply::Integer(slot) => u32::try_from(slot).expect("slots are small"),
            other => panic!("KEYSLOT: {other:?}"),
        }
    }

    /// The number of the primary that owns a slot, as the given node knows it.
    ///
    /// # Panics
    /// When nobody does.
    #[must_use]
    pub fn owner(&self, slot: u32, asked: usize) -> usize {
        let Reply::Array(ranges) = self.nodes[asked].command(&["CLUSTER", "SLOTS"]) else {
            panic!("no ranges")
        };
        let port = ranges.iter().find_map(|range| match range {
            Reply::Array(parts) => match parts.as_slice() {
                [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] => {
                    (*first..=*last).contains(&i64::from(slot)).then(|| primary[1].clone())
                }
                _ => None,
            },
            _ => None,
        });
        let owner = self.nodes.iter().position(|node| port == Some(Reply::Integer(node.port().into())));
        owner.unwrap_or_else(|| panic!("nobody owns slot {slot}"))
    }

    /// Begins to move a slot: from now on both nodes answer for it, by which keys they have.
    pub fn begin_move(&self, slot: u32, from: usize, to: usize) {
        let slot = slot.to_string();
        ok(&self.nodes[to], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        ok(&self.nodes[from], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Moves the keys that are in the slot now.
    ///
    /// # Panics
    /// When a key can't be moved.
    pub fn move_keys(&self, slot: u32, from: usize, to: usize) {
        let (from, port) = (&self.nodes[from], self.nodes[to].port().to_string());
        while let Reply::Array(keys) =
            from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), KEYS_AT_ONCE])
            && !keys.is_empty()
        {
            let keys: Vec<String> = keys.iter().map(Reply::text).collect();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            let reply = from.command(&words);
            assert!(matches!(&reply, Reply::Simple(text) if text == "OK" || text == "NOKEY"), "{reply:?}");
        }
    }

    /// Ends a move: the slot is the other node's.
    pub fn end_move(&self, slot: u32, from: usize, to: usize) {
        let (slot, id) = (slot.to_string(), self.id(to));
        ok(&self.nodes[to], &["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        ok(&self.nodes[from], &["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    }

    /// Moves a slot with its keys.
    pub fn move_slot(&self, slot: u32, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    /// Gives all slots of a primary to another, without their keys, and lets it go, as `redis-cli --cluster del-node` does: the
    /// others forget it and it forgets them, and goes on running. The heir has to be a later one: of two owners the later is
    /// believed.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn retire(&self, nth: usize, heir: usize) {
        // Or it may become a replica of its heir on the way.
        ok(&self.nodes[nth], &["CONFIG", "SET", "cluster-allow-replica-migration", "no"]);
        let (mut commands, count) = self.gifts(nth, heir);
        let mut connection = self.nodes[heir].connect();
        connection.send(&commands);
        (0..count).for_each(|_| assert_eq!(connection.receive(), ok_reply()));
        // At once, since it does not give away a slot that has a key.
        let mut at_once = Vec::new();
        encode(&["MULTI"], &mut at_once);
        encode(&["FLUSHALL"], &mut at_once);
        at_once.append(&mut commands);
        encode(&["EXEC"], &mut at_once);
        let mut connection = self.nodes[nth].connect();
        connection.send(&at_once);
        let last = (0..count + 3).map(|_| connection.receive()).last();
        assert!(last == Some(Reply::Array(vec![ok_reply(); count + 1])), "a slot was not given away");
        let id = self.id(nth);
        for other in (0..self.nodes.len()).filter(|other| *other != nth) {
            ok(&self.nodes[other], &["CLUSTER", "FORGET", &id]);
        }
        ok(&self.nodes[nth], &["CLUSTER", "RESET", "SOFT"]);
    }

    /// The commands that give all slots of a primary to another, and how many they are.
    fn gifts(&self, nth: usize, heir: usize) -> (Vec<u8>, usize) {
        let (id, port) = (self.id(heir), Reply::Integer(self.nodes[nth].port().into()));
        let Reply::Array(ranges) = self.nodes[nth].command(&["CLUSTER", "SLOTS"]) else {
            panic!("no ranges")
        };
        let mut commands = Vec::new();
        let mut count = 0;
        for range in ranges {
            let Reply::Array(parts) = range else { panic!("{range:?}") };
            let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] = parts.as_slice()
            else {
                panic!("{parts:?}")
            };
            if primary[1] == port {
                let give = |slot: i64| {
                    encode(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id], &mut commands)
                };
                (*first..=*last).for_each(give);
                count += usize::try_from(last - first).expect("slots are small") + 1;
            }
        }
        (commands, count)
    }

    /// Waits until every node knows every other and finds the cluster in order.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_agreed(&self) {
        let count = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        wait::until_true("all nodes agree", || {
            self.nodes.iter().all(|node| {
                let info = node.command(&["CLUSTER", "INFO"]).text();
                info.contains("cluster_state:ok") && info.contains(&count)
            })
        });
    }

    fn id(&self, nth: usize) -> String {
        self.nodes[nth].command(&["CLUSTER", "MYID"]).text()
    }

    fn meet(&self, nth: usize) {
        // With TLS among the nodes, their ports behind it are what counts.
        let port = self.tls.get(nth).copied().unwrap_or_else(|| self.nodes[nth].port()).to_string();
        let bus = self.bus(nth);
        ok(&self.nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }

    fn bus(&self, nth: usize) -> String {
        match self.nodes[nth].command(&["CONFIG", "GET", "cluster-port"]) {
            Reply::Array(pair) => pair[1].text(),
            other => panic!("cluster-port: {other:?}"),
        }
    }

    fn spawn(&mut self, more: &[String]) -> usize {
        let nth = self.nodes.len();
        let dir = self.dir.join(format!("node{nth}"));
        std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let options = format!(
            "--cluster-enabled yes --cluster-port {} --cluster-node-timeout {NODE_TIMEOUT_MS} \
             --cluster-require-full-coverage no --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0",
            free_port()
        );
        let mut options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        options.extend(more.iter().cloned());
        self.nodes.push(Redis::start_with(free_port(), &dir, &options));
        nth
    }
}

fn ok_reply() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn ok(node: &Redis, words: &[&str]) {
    let reply = node.command(words);
    assert_eq!(reply, ok_reply(), "{words:?} on {}", node.port());
}
