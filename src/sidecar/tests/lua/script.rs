//! The script and its specification side by side: the same request to both, and what each remembers.

use std::collections::{HashMap, HashSet};

use kota_integration::redis::{Connection, Redis, Reply, encode};
use kota_integration::workdir::Workdir;
use limits::decision::{Bucket, Charge, Limit, State, Verdict, decide};
use limits::token_bucket::{TTL_SLACK_MS, TokenBucket, Used};

const SCRIPT: &str = include_str!("../../../../lua/decide.lua");

/// One rule of a request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: String,
    pub(crate) bucket: TokenBucket,
    pub(crate) cost: u64,
    pub(crate) shadow: bool,
}

/// One request, at microseconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) now_us: u64,
    pub(crate) asks: Vec<Ask>,
}

/// What both sides answer: `(verdict, left, wait in ms)` of each rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) admitted: bool,
    pub(crate) rules: Vec<(Verdict, u64, u64)>,
}

/// The specification, with its buckets in a map.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) states: HashMap<String, Used>,
}

/// What the script has to answer to a request, and which keys it has to write, with their TTL in ms.
pub(crate) struct Expected {
    request: Request,
    answer: Answer,
    written: Vec<(String, u64)>,
}

/// The script on a Redis of its own.
pub(crate) struct Script {
    pub(crate) redis: Redis,
    connection: Connection,
    sha: String,
    _workdir: Workdir,
}

// === impl Model ===

impl Model {
    pub(crate) fn call(&mut self, request: Request) -> Expected {
        let bucket = |used: &Used| Bucket { state: State::Used(*used), strikes: None };
        let known = |ask: &Ask| Some((ask.key.clone(), bucket(self.states.get(&ask.key)?)));
        let buckets: HashMap<_, _> = request.asks.iter().filter_map(known).collect();
        let charge = |ask: &Ask| Charge {
            limit: Limit::TokenBucket(ask.bucket),
            penalty: None,
            cost: ask.cost,
            shadow: ask.shadow,
            slot: b"",
            bucket: buckets.get(&ask.key),
        };
        let charges: Vec<_> = request.asks.iter().map(charge).collect();
        let (admitted, rulings) = decide(request.now_us, &charges);
        let mut written = Vec::new();
        for (ask, ruling) in request.asks.iter().zip(&rulings) {
            if let Some((write, used)) =
                ruling.write.as_ref().and_then(|write| Some((write, write.state.used()?)))
            {
                self.states.insert(ask.key.clone(), used);
                written.push((ask.key.clone(), write.ttl_ms));
            }
        }
        let rules = rulings.iter().map(|r| (r.outcome.verdict, r.outcome.left, r.outcome.wait_ms)).collect();
        Expected { request, answer: Answer { admitted, rules }, written }
    }
}

// === impl Expected ===

impl Expected {
    pub(crate) fn answer(&self) -> &Answer {
        &self.answer
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The call, then the life of each key that it has to write, which is then taken away: time is virtual here, and must not pass
    /// for Redis. One transaction, within which Redis lets nothing expire.
    pub(crate) fn encode(&self, sha: &str, out: &mut Vec<u8>) {
        encode(&["MULTI"], out);
        encode(&words(sha, &self.request.now_us.to_string(), &self.request.asks), out);
        for (key, _) in &self.written {
            encode(&["PTTL", key], out);
            encode(&["PERSIST", key], out);
        }
        encode(&["EXEC"], out);
    }

    /// Compares the answer of the script. Gives the script's.
    pub(crate) fn compare(&self, connection: &mut Connection) -> Answer {
        for _ in 0..2 + 2 * self.written.len() {
            connection.receive(); // OK to MULTI, QUEUED to the rest
        }
        let Reply::Array(replies) = connection.receive() else { panic!("EXEC answered no array") };
        let got = answer(&replies[0]);
        assert_eq!(got, self.answer, "script (left) and model (right) differ at {:#?}", self.request);
        for ((key, ttl_ms), pair) in self.written.iter().zip(replies[1..].chunks(2)) {
            let [Reply::Integer(pttl), persisted] = pair else { panic!("{key}: {pair:?}") };
            // Real time has passed since the write, and what the script adds up in doubles may round once.
            let (most, least) = (*ttl_ms as i64 + 1, (ttl_ms - TTL_SLACK_MS) as i64);
            assert!(
                (least..=most).contains(pttl),
                "{key} lives {pttl} ms, not {ttl_ms}: {:#?}",
                self.request
            );
            assert_eq!(*persisted, Reply::Integer(1), "{key} was written without a TTL");
        }
        got
    }
}

// === impl Script ===

impl Script {
    pub(crate) fn start() -> Self {
        let workdir = Workdir::new();
        let redis = Redis::start(workdir.path());
        let Reply::Bulk(Some(sha)) = redis.command(&["SCRIPT", "LOAD", SCRIPT]) else {
            panic!("Redis refuses the script")
        };
        let connection = redis.connect();
        Self { redis, connection, sha: String::from_utf8(sha).expect("a SHA1 in hex"), _workdir: workdir }
    }

    /// Sends requests that the model has answered, without waiting.
    pub(crate) fn send(&mut self, batch: &[Expected]) {
        let mut commands = Vec::new();
        batch.iter().for_each(|expected| expected.encode(&self.sha, &mut commands));
        self.connection.send(&commands);
    }

    /// Reads and compares the answer to the oldest request that was sent.
    pub(crate) fn compare(&mut self, expected: &Expected) -> Answer {
        expected.compare(&mut self.connection)
    }

    /// Calls the script as it is, with `now` in its own words.
    pub(crate) fn raw(&mut self, now: &str, asks: &[Ask]) -> Reply {
        self.command(&self.words(now, asks))
    }

    /// The words of a call, to send as they are or spoilt.
    pub(crate) fn words(&self, now: &str, asks: &[Ask]) -> Vec<String> {
        words(&self.sha, now, asks)
    }

    pub(crate) fn command<T: AsRef<[u8]>>(&mut self, parts: &[T]) -> Reply {
        let mut out = Vec::new();
        encode(parts, &mut out);
        self.connection.send(&out);
        self.connection.receive()
    }

    /// What Redis remembers of a bucket.
    pub(crate) fn state(&mut self, key: &str) -> Option<Used> {
        let Reply::Bulk(bytes) = self.command(&["GET", key]) else { panic!("{key} is no string") };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        bytes.map(|bytes| Used { at_us: number(&bytes[..7]), micro_tokens: number(&bytes[7..]) })
    }

    /// Gives a bucket a state.
    pub(crate) fn remember(&mut self, key: &str, state: Used) {
        let mut value = state.at_us.to_le_bytes()[..7].to_vec();
        let long = if state.micro_tokens < 1 << 40 { 5 } else { 7 };
        value.extend_from_slice(&state.micro_tokens.to_le_bytes()[..long]);
        assert_eq!(self.command(&[b"SET", key.as_bytes(), &value]), Reply::Simple("OK".to_owned()));
    }

    /// Compares all that Redis remembers with the model, and finds keys that were written when they should not have been.
    pub(crate) fn compare_states(&mut self, model: &Model) {
        let expected: HashSet<_> = model.states.keys().cloned().collect();
        assert_eq!(
            self.redis.keys().into_iter().collect::<HashSet<_>>(),
            expected,
            "keys of Redis and of the model"
        );
        for (key, state) in &model.states {
            assert_eq!(self.state(key), Some(*state), "{key}");
            assert_eq!(self.command(&["PTTL", key]), Reply::Integer(-1), "{key} was written on a denial");
        }
    }
}

/// A call of the script, in the order that its header gives.
fn words(sha: &str, now: &str, asks: &[Ask]) -> Vec<String> {
    let mut words = vec!["EVALSHA".to_owned(), sha.to_owned(), asks.len().to_string()];
    words.extend(asks.iter().map(|ask| ask.key.clone()));
    words.push(now.to_owned());
    for ask in asks {
        let (limit, refill) = (Limit::TokenBucket(ask.bucket), ask.bucket.refill());
        words.extend([limit.tag(), if ask.shadow { "s" } else { "e" }].map(str::to_owned));
        let numbers = [ask.cost, ask.bucket.capacity(), refill.num(), refill.den(), ask.bucket.idle_ms()];
        words.extend(numbers.map(|number| number.to_string()));
    }
    words
}

fn answer(reply: &Reply) -> Answer {
    let Reply::Array(items) = reply else { panic!("the script answered {reply:?}") };
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
