//! The scripts on a Redis of their own, called as their headers say, and compared with the model.

use std::collections::{HashMap, HashSet};

use kota_integration::cluster::Cluster;
use kota_integration::redis::{Connection, Redis, Reply, encode};
use kota_integration::workdir::Workdir;
use limits::decision::{Bucket, Limit, State, Verdict};
use limits::penalty::Penalty;
use limits::settle::Settlement;
use limits::token_bucket::TokenBucket;

use crate::model::{Answer, Ask, Change, Expected, Kind, Model, Request, Step, members, packed};

const DECIDE: &str = include_str!("../../../../lua/decide.lua");
const SETTLE: &str = include_str!("../../../../lua/settle.lua");
const SLOT: &str = include_str!("../../../../lua/slot.lua");
const PARDON: &str = include_str!("../../../../lua/pardon.lua");

/// The hashes of the scripts.
#[derive(Clone)]
pub(crate) struct Shas {
    decide: String,
    settle: String,
    slot: String,
    pardon: String,
}

/// The scripts on a Redis of their own, or a cluster.
pub(crate) struct Script {
    servers: Servers,
    connections: Vec<Connection>,
    /// Which node each client's keys are on.
    nodes: HashMap<String, usize>,
    shas: Shas,
    _workdir: Workdir,
}

enum Servers {
    One(Redis),
    Cluster(Cluster),
}

// === impl Script ===

impl Script {
    pub(crate) fn start() -> Self {
        let workdir = Workdir::new();
        let redis = Redis::start(workdir.path());
        Self::on(Servers::One(redis), workdir)
    }

    /// On a cluster of so many primaries.
    pub(crate) fn start_in_cluster(primaries: usize) -> Self {
        let workdir = Workdir::new();
        let cluster = Cluster::start(workdir.path(), primaries);
        for node in cluster.nodes() {
            // Nobody fails here, but on a busy machine somebody may seem to.
            node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]);
        }
        Self::on(Servers::Cluster(cluster), workdir)
    }

    fn on(servers: Servers, workdir: Workdir) -> Self {
        let all = servers.all();
        let shas: Vec<_> = all.iter().map(|redis| Shas::load(|words| redis.command(words))).collect();
        let connections = all.iter().map(Redis::connect).collect();
        let shas = shas.into_iter().next().expect("a server");
        Self { servers, connections, nodes: HashMap::new(), shas, _workdir: workdir }
    }

    /// Sends steps that the model has made, without waiting.
    pub(crate) fn send(&mut self, batch: &[Expected]) {
        let mut commands = vec![Vec::new(); self.connections.len()];
        for expected in batch {
            let node = self.node(expected.key());
            expected.encode(&self.shas, &mut commands[node]);
        }
        self.connections
            .iter_mut()
            .zip(&commands)
            .for_each(|(connection, commands)| connection.send(commands));
    }

    /// Reads and compares the answer to the oldest step that was sent. Gives the script's to a request.
    pub(crate) fn compare(&mut self, expected: &Expected) -> Option<Answer> {
        let node = self.node(expected.key());
        expected.compare(&mut self.connections[node])
    }

    /// Calls the script as it is, with `now` in its own words.
    pub(crate) fn raw(&mut self, now: &str, asks: &[Ask]) -> Reply {
        self.command(&self.words(now, asks))
    }

    /// The words of a call, to send as they are or spoilt.
    pub(crate) fn words(&self, now: &str, asks: &[Ask]) -> Vec<String> {
        self.shas.decide(now, asks)
    }

    /// The words of the call that makes this change.
    pub(crate) fn words_of(&self, change: &Change) -> Vec<String> {
        self.shas.change(change)
    }

    /// Sends a command to the only server.
    pub(crate) fn command<T: AsRef<[u8]>>(&mut self, parts: &[T]) -> Reply {
        let [only] = &mut self.connections[..] else { panic!("which node?") };
        command(only, parts)
    }

    /// What Redis remembers of a bucket that is no set of slots.
    pub(crate) fn state(&mut self, key: &str) -> Option<Vec<u8>> {
        let Reply::Bulk(bytes) = self.command(&["GET", key]) else { panic!("{key} is no string") };
        bytes
    }

    /// All keys of all nodes.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.servers.all().iter().flat_map(Redis::keys).collect()
    }

    /// Compares all that Redis remembers with the model, and finds keys that were written when they should not have been.
    pub(crate) fn compare_states(&mut self, model: &Model) {
        let expected: HashSet<_> = model.buckets.keys().cloned().collect();
        let found: HashSet<_> = self.keys().into_iter().collect();
        assert_eq!(found, expected, "keys of Redis and of the model");
        for (key, bucket) in &model.buckets {
            let node = self.node(key);
            compare_state(&mut self.connections[node], key, bucket);
        }
        let used: HashSet<usize> = model.buckets.keys().map(|key| self.node(key)).collect();
        assert_eq!(used.len(), self.connections.len(), "a node without clients");
    }

    fn node(&mut self, key: &str) -> usize {
        let Servers::Cluster(cluster) = &self.servers else { return 0 };
        let client = key.split('}').next().unwrap_or_default().to_owned();
        *self.nodes.entry(client).or_insert_with(|| cluster.owner(cluster.slot(key), 0))
    }
}

// === impl Servers ===

impl Servers {
    fn all(&self) -> &[Redis] {
        match self {
            Self::One(redis) => std::slice::from_ref(redis),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }
}

fn compare_state(connection: &mut Connection, key: &str, bucket: &Bucket) {
    if let State::Slots(slots) = &bucket.state {
        let Reply::Array(items) = command(connection, &["ZRANGE", key, "0", "-1", "WITHSCORES"]) else {
            panic!("{key} is no set")
        };
        let pair = |pair: &[Reply]| (pair[0].text(), pair[1].text().parse().expect("a score"));
        let mut found: Vec<_> = items.chunks(2).map(pair).collect();
        found.sort();
        assert_eq!(found, members(slots), "{key}");
    } else {
        assert_eq!(
            command(connection, &["GET", key]),
            Reply::Bulk(Some(packed(bucket))),
            "{key}: {bucket:?}"
        );
    }
    assert_eq!(command(connection, &["PTTL", key]), Reply::Integer(-1), "{key} was written unexpectedly");
}

fn command<T: AsRef<[u8]>>(connection: &mut Connection, parts: &[T]) -> Reply {
    let mut out = Vec::new();
    encode(parts, &mut out);
    connection.send(&out);
    connection.receive()
}

// === impl Expected ===

impl Expected {
    /// A key of the client that it is about.
    fn key(&self) -> &str {
        match &self.step {
            Step::Decide(request, _) => &request.asks[0].key,
            Step::Change(change, _) => &change.ask.key,
        }
    }

    /// The call, then the life of each key that it has to write, which is then taken away: time is virtual here, and must not pass
    /// for Redis. One transaction, within which Redis lets nothing expire.
    pub(crate) fn encode(&self, shas: &Shas, out: &mut Vec<u8>) {
        encode(&["MULTI"], out);
        encode(&["TIME"], out);
        match &self.step {
            Step::Decide(request, _) => encode(&shas.decide(&request.now_us.to_string(), &request.asks), out),
            Step::Change(change, _) => encode(&shas.change(change), out),
        }
        for (key, _) in &self.written {
            encode(&["PTTL", key], out);
            encode(&["PERSIST", key], out);
        }
        encode(&["TIME"], out);
        encode(&["EXEC"], out);
    }

    /// Compares the answer of the script. Gives the script's to a request.
    pub(crate) fn compare(&self, connection: &mut Connection) -> Option<Answer> {
        for _ in 0..4 + 2 * self.written.len() {
            connection.receive(); // OK to MULTI, QUEUED to the rest
        }
        let Reply::Array(replies) = connection.receive() else { panic!("EXEC answered no array") };
        let [began, replies @ .., ended] = &replies[..] else { panic!("{replies:?}") };
        // A busy machine may let Redis stand still in between.
        let passed_ms = time_ms(ended) - time_ms(began) + 1;
        let got = match &self.step {
            Step::Decide(request, wanted) => {
                let got = answer(&replies[0], request);
                assert_eq!(got, *wanted, "script (left) and model (right) differ at {:#?}", self.step);
                Some(got)
            }
            Step::Change(_, done) => {
                assert_eq!(replies[0], Reply::Integer((*done).into()), "{:#?}", self.step);
                None
            }
        };
        for ((key, ttl_ms), pair) in self.written.iter().zip(replies[1..].chunks(2)) {
            let [Reply::Integer(pttl), persisted] = pair else { panic!("{key}: {pair:?}") };
            let Some(ttl_ms) = ttl_ms else {
                assert_eq!(*pttl, -2, "{key} is to be gone: {:#?}", self.step);
                continue;
            };
            // What the script adds up in doubles may round once.
            let (most, least) = (*ttl_ms as i64 + 1, *ttl_ms as i64 - 1 - passed_ms);
            assert!((least..=most).contains(pttl), "{key} lives {pttl} ms, not {ttl_ms}: {:#?}", self.step);
            assert_eq!(*persisted, Reply::Integer(1), "{key} was written without a TTL");
        }
        got
    }
}

// === impl Shas ===

impl Shas {
    pub(crate) fn load(mut command: impl FnMut(&[&str]) -> Reply) -> Self {
        let [decide, settle, slot, pardon] =
            [DECIDE, SETTLE, SLOT, PARDON].map(|text| match command(&["SCRIPT", "LOAD", text]) {
                Reply::Bulk(Some(sha)) => String::from_utf8(sha).expect("a SHA1 in hex"),
                refused => panic!("Redis refuses a script: {refused:?}"),
            });
        Self { decide, settle, slot, pardon }
    }

    /// A call of decide.lua, in the order that its header gives.
    fn decide(&self, now: &str, asks: &[Ask]) -> Vec<String> {
        let mut words = vec!["EVALSHA".to_owned(), self.decide.clone(), asks.len().to_string()];
        words.extend(asks.iter().map(|ask| ask.key.clone()));
        words.push(now.to_owned());
        for ask in asks {
            let flag = match (ask.shadow, ask.penalty) {
                (false, None) => "e",
                (false, Some(_)) => "ep",
                (true, None) => "s",
                (true, Some(_)) => "sp",
            };
            words.extend([ask.limit.tag().to_owned(), flag.to_owned(), ask.cost.to_string()]);
            parameters(&mut words, &ask.limit);
            if matches!(ask.limit, Limit::Concurrency(_)) {
                words.push(ask.slot.clone());
            }
            penalty(&mut words, ask.penalty.as_ref());
        }
        words
    }

    /// A call of the script that makes this change.
    pub(crate) fn change(&self, change: &Change) -> Vec<String> {
        let (ask, now) = (&change.ask, change.now_us.to_string());
        let call = |sha: &str, arguments: &[&str]| {
            let words = ["EVALSHA", sha, "1", &ask.key].into_iter().chain(arguments.iter().copied());
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let lease_ms = match &ask.limit {
            Limit::Concurrency(limit) => limit.lease_ms().to_string(),
            _ => String::new(),
        };
        match change.kind {
            Kind::Settle(way, tokens, age_ms) => {
                let way = if way == Settlement::Give { "give" } else { "take" };
                let flag = if ask.penalty.is_some() { "p" } else { "" };
                let (tokens, age) = (tokens.to_string(), age_ms.to_string());
                let mut words = call(&self.settle, &[&now, ask.limit.tag(), flag, way, &tokens, &age]);
                parameters(&mut words, &ask.limit);
                penalty(&mut words, ask.penalty.as_ref());
                words
            }
            Kind::Release => call(&self.slot, &[&now, "release", &lease_ms, &ask.slot]),
            Kind::Renew => call(&self.slot, &[&now, "renew", &lease_ms, &ask.slot]),
            Kind::Pardon => call(&self.pardon, &[]),
        }
    }
}

/// The parameters of an algorithm.
fn parameters(words: &mut Vec<String>, limit: &Limit) {
    match limit {
        Limit::TokenBucket(limit) => bucket(words, limit),
        Limit::SlidingWindow(limit) => numbers(words, &[limit.capacity(), limit.window_ms()]),
        Limit::Concurrency(limit) => numbers(words, &[limit.capacity(), limit.lease_ms()]),
    }
}

fn bucket(words: &mut Vec<String>, limit: &TokenBucket) {
    numbers(words, &[limit.capacity(), limit.refill().num(), limit.refill().den(), limit.idle_ms()]);
}

fn penalty(words: &mut Vec<String>, penalty: Option<&Penalty>) {
    if let Some(penalty) = penalty {
        numbers(words, &[penalty.denials(), penalty.within_ms(), penalty.for_ms()]);
        bucket(words, penalty.bucket());
    }
}

fn numbers(words: &mut Vec<String>, numbers: &[u64]) {
    words.extend(numbers.iter().map(u64::to_string));
}

fn time_ms(reply: &Reply) -> i64 {
    let Reply::Array(parts) = reply else { panic!("{reply:?} is no time") };
    let number = |part: &Reply| part.text().parse::<i64>().expect("a number");
    number(&parts[0]) * 1_000 + number(&parts[1]) / 1_000
}

fn answer(reply: &Reply, request: &Request) -> Answer {
    let Reply::Array(items) = reply else { panic!("the script answered {reply:?} to {request:#?}") };
    let number = |reply: &Reply| match reply {
        Reply::Integer(number) => u64::try_from(*number).unwrap_or_else(|_| panic!("negative: {items:?}")),
        _ => panic!("not integers: {items:?}"),
    };
    let numbers: Vec<_> = items.iter().map(number).collect();
    let rules = numbers[1..].chunks(3).map(|rule| {
        let verdict = [Verdict::Wait, Verdict::Admit, Verdict::Never][rule[0] as usize];
        (verdict, rule[1], rule[2])
    });
    Answer { admitted: numbers[0] == 1, rules: rules.collect() }
}
