//! The specification with its buckets in a map: what the scripts have to answer, and to write.

use std::collections::HashMap;

use limits::concurrency::Slots;
use limits::decision::{Bucket, Charge, Limit, State, Verdict, Write, decide};
use limits::penalty::Penalty;
use limits::settle::{Settlement, settle};

/// One rule of a request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: String,
    pub(crate) limit: Limit,
    pub(crate) penalty: Option<Penalty>,
    pub(crate) cost: u64,
    pub(crate) shadow: bool,
    pub(crate) slot: String,
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

/// What is done to a bucket without a decision, at microseconds since the epoch. Of the rule, `cost` and `shadow` don't count.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) now_us: u64,
    pub(crate) ask: Ask,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// So many tokens that were taken so many milliseconds ago.
    Settle(Settlement, u64, u64),
    Release,
    Renew,
    Pardon,
}

/// The specification, with its buckets in a map.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) buckets: HashMap<String, Bucket>,
}

/// A step, what it has to answer, and which keys it has to write, with their TTL in ms: none where the key is to be gone.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) step: Step,
    pub(crate) written: Vec<(String, Option<u64>)>,
}

#[derive(Debug)]
pub(crate) enum Step {
    Decide(Request, Answer),
    /// Whether there is something to change.
    Change(Change, bool),
}

// === impl Ask ===

impl Ask {
    /// Of a rule that enforces, without a penalty.
    pub(crate) fn new(key: &str, limit: Limit, cost: u64) -> Self {
        Self { key: key.to_owned(), limit, penalty: None, cost, shadow: false, slot: String::new() }
    }
}

// === impl Model ===

impl Model {
    /// What a request would hear, with nothing written.
    pub(crate) fn ask(&self, request: &Request) -> Answer {
        self.decide(request).0
    }

    pub(crate) fn call(&mut self, request: Request) -> Expected {
        let (answer, writes) = self.decide(&request);
        let written = writes.into_iter().map(|(key, write)| self.write(&key, write)).collect();
        Expected { step: Step::Decide(request, answer), written }
    }

    pub(crate) fn change(&mut self, change: Change) -> Expected {
        let (ask, now_ms) = (&change.ask, change.now_us / 1_000);
        let bucket = self.buckets.get(&ask.key);
        let slots = || match bucket.map(|bucket| &bucket.state) {
            Some(State::Slots(slots)) => slots.clone(),
            _ => Slots::default(),
        };
        let wrap = |write: Write<Slots>| Write {
            state: Bucket { state: State::Slots(write.state), strikes: None },
            ttl_ms: write.ttl_ms,
        };
        let write = match (change.kind, &ask.limit) {
            (Kind::Settle(way, tokens, age_ms), limit) => {
                settle(limit, ask.penalty.as_ref(), bucket, change.now_us, way, tokens, age_ms)
            }
            (Kind::Release, Limit::Concurrency(limit)) => {
                Some(wrap(limit.release(slots(), now_ms, ask.slot.as_bytes())))
            }
            (Kind::Renew, Limit::Concurrency(limit)) => {
                limit.renew(slots(), now_ms, ask.slot.as_bytes()).map(wrap)
            }
            (Kind::Pardon, _) => {
                let done =
                    self.buckets.get_mut(&ask.key).is_some_and(|bucket| bucket.strikes.take().is_some());
                return Expected { step: Step::Change(change, done), written: Vec::new() };
            }
            (kind, limit) => panic!("{kind:?} of {limit:?}"),
        };
        let done = write.is_some();
        let key = ask.key.clone();
        let written = write.map(|write| self.write(&key, write)).into_iter().collect();
        Expected { step: Step::Change(change, done), written }
    }

    fn decide(&self, request: &Request) -> (Answer, Vec<(String, Write<Bucket>)>) {
        let charge = |ask| charge(ask, self.buckets.get(&ask.key));
        let charges: Vec<_> = request.asks.iter().map(charge).collect();
        let (admitted, rulings) = decide(request.now_us, &charges);
        let rules = rulings.iter().map(|r| (r.outcome.verdict, r.outcome.left, r.outcome.wait_ms)).collect();
        let writes = request.asks.iter().zip(rulings);
        let writes = writes.filter_map(|(ask, ruling)| Some((ask.key.clone(), ruling.write?))).collect();
        (Answer { admitted, rules }, writes)
    }

    fn write(&mut self, key: &str, write: Write<Bucket>) -> (String, Option<u64>) {
        let gone = matches!(&write.state.state, State::Slots(slots) if slots.is_empty());
        if gone {
            self.buckets.remove(key);
        } else {
            self.buckets.insert(key.to_owned(), write.state);
        }
        (key.to_owned(), (!gone).then_some(write.ttl_ms))
    }
}

fn charge<'a>(ask: &'a Ask, bucket: Option<&'a Bucket>) -> Charge<'a> {
    Charge {
        limit: ask.limit,
        penalty: ask.penalty,
        cost: ask.cost,
        shadow: ask.shadow,
        slot: ask.slot.as_bytes(),
        bucket,
    }
}

/// A bucket as Redis holds it; not of slots.
pub(crate) fn packed(bucket: &Bucket) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |number: u64, bytes: usize| out.extend_from_slice(&number.to_le_bytes()[..bytes]);
    match &bucket.state {
        State::Used(used) => {
            put(used.at_us, 7);
            put(used.micro_tokens, if used.micro_tokens < 1 << 40 { 5 } else { 7 });
        }
        State::Windows(windows) => {
            put(windows.start_ms / 1_000, 4);
            put(windows.current, 4);
            put(windows.previous, 4);
        }
        State::Slots(slots) => panic!("slots are a sorted set: {slots:?}"),
    }
    if let Some(strikes) = bucket.strikes {
        put(strikes.first_ms, 6);
        put(strikes.denials, 4);
        put(strikes.until_ms, 6);
        put(strikes.used.micro_tokens, 7);
        put(strikes.used.at_us, 7);
    }
    out
}

/// The slots as members with scores, by their ids.
pub(crate) fn members(slots: &Slots) -> Vec<(String, i64)> {
    let score = |until_ms: u64, tombstone| if tombstone { -(until_ms as i64) } else { until_ms as i64 };
    let member =
        |slot: &limits::concurrency::Slot| String::from_utf8(slot.id.to_vec()).expect("an id of text");
    let mut all: Vec<_> =
        slots.iter().map(|slot| (member(slot), score(slot.until_ms, slot.tombstone))).collect();
    all.sort();
    all
}
