//! A few clients with a few rules each, edited now and then, and a clock that is stepped: what happens to them, by chance.

use std::collections::HashMap;

use limits::concurrency::Concurrency;
use limits::decision::{Limit, State, Verdict};
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::settle::Settlement;
use limits::sliding_window::SlidingWindow;
use limits::token_bucket::{CAPACITY_MAX, MICRO, TokenBucket};

use crate::model::{Ask, Change, Expected, Kind, Model, Request, Step, members};
use crate::random::Random;

/// 2026; and the year 2096, past which a history begins anew.
const START_US: u64 = 1_790_000_000_000_000;
const END_US: u64 = 4_000_000_000_000_000;
/// Clients of an epoch.
const CLIENTS: u64 = 40;
/// Rules of a client, of each algorithm some: see [`History::limit`].
const RULES: u64 = 8;

/// See the module.
pub(crate) struct History {
    random: Random,
    pub(crate) model: Model,
    rules: HashMap<String, (Limit, Option<Penalty>)>,
    now_us: u64,
    /// Part of the keys: a new epoch has new buckets, as a clock that jumped far ahead leaves old ones useless.
    epoch: u64,
}

/// What a history has tried.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    admitted: u64,
    /// By algorithm: how often it said wait, admit, never.
    verdicts: HashMap<&'static str, [u64; 3]>,
    /// By kind: how often there was nothing to change, and something.
    changes: HashMap<&'static str, [u64; 2]>,
}

// === impl History ===

impl History {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, model: Model::default(), rules: HashMap::new(), now_us: START_US, epoch: 0 }
    }

    pub(crate) fn step(&mut self) -> Expected {
        self.turn_clock();
        let client = self.random.below(CLIENTS);
        if self.random.percent(20) {
            return self.change(client);
        }
        let rules = self.random.one_of(&[1, 1, 2, 2, 3, RULES]);
        let first = self.random.below(RULES);
        let asks: Vec<_> = (0..rules).map(|rule| self.ask(client, (first + rule) % RULES)).collect();
        let mut request = Request { now_us: self.now_us, asks };
        match self.random.below(6) {
            0 => self.aim_at_a_refill(&mut request),
            1 => self.aim_at_an_admission(&mut request),
            _ => {}
        }
        self.model.call(request)
    }

    fn turn_clock(&mut self) {
        let random = &mut self.random;
        self.now_us = match random.below(20) {
            0..8 => self.now_us + random.below(2_000),
            8..12 => self.now_us + random.below(1_000_000),
            12..14 => self.now_us + random.below(1_000_000_000),
            14 => self.now_us + random.magnitude(13),
            15 => self.now_us.saturating_sub(random.magnitude(13)),
            16..18 => self.now_us.saturating_sub(random.below(1_000_000)),
            _ => self.now_us,
        };
        if self.now_us > END_US || random.below(20_000) == 0 {
            (self.now_us, self.epoch) = (START_US, self.epoch + 1);
        }
    }

    fn ask(&mut self, client: u64, rule: u64) -> Ask {
        let tag = ["tb1", "tb1", "tb1", "sw1", "sw1", "sw1", "cc1", "cc1"][rule as usize];
        let key = format!("rl:{{test:user:{}.{client}}}:rule-{rule}:{tag}", self.epoch);
        if !self.rules.contains_key(&key) || self.random.percent(2) {
            let rule = self.rule(tag);
            self.rules.insert(key.clone(), rule);
        }
        let (limit, penalty) = self.rules[&key];
        let slot = format!("slot-{}", self.random.below(12));
        let mut ask = Ask { key, limit, penalty, cost: 1, shadow: self.random.percent(25), slot };
        ask.cost = self.cost(&ask);
        ask
    }

    fn rule(&mut self, tag: &str) -> (Limit, Option<Penalty>) {
        let random = &mut self.random;
        let limit = match tag {
            "tb1" => Limit::TokenBucket(bucket(random)),
            "sw1" => Limit::SlidingWindow(window(random)),
            _ => Limit::Concurrency(concurrency(random)),
        };
        let penal = tag != "cc1" && random.percent(40);
        (limit, penal.then(|| penalty(random)))
    }

    fn cost(&mut self, ask: &Ask) -> u64 {
        if matches!(ask.limit, Limit::Concurrency(_)) {
            return 1;
        }
        let left = self.left(ask);
        let (random, capacity) = (&mut self.random, ask.limit.capacity());
        match random.below(20) {
            0..9 => 1,
            9 => 0,
            10 => capacity,
            11 => capacity + 1 + random.magnitude(15),
            12..15 => random.below(capacity + 1),
            15 => random.below(capacity.min(20) + 1),
            _ => (left + random.below(3)).saturating_sub(1), // to the edge, and one beside it
        }
    }

    fn left(&self, ask: &Ask) -> u64 {
        let request = Request { now_us: self.now_us, asks: vec![Ask { cost: 0, ..ask.clone() }] };
        self.model.ask(&request).rules[0].1
    }

    fn change(&mut self, client: u64) -> Expected {
        let rule = self.random.below(RULES);
        let mut ask = self.ask(client, rule);
        if let Some(State::Slots(slots)) = self.model.buckets.get(&ask.key).map(|bucket| &bucket.state) {
            let (id, _) = members(slots).swap_remove(self.random.below(slots.iter().count() as u64) as usize);
            ask.slot = if self.random.percent(60) { id } else { ask.slot };
        }
        let kind = match (&ask.limit, self.random.below(8)) {
            (_, 0) => Kind::Pardon,
            (Limit::Concurrency(_), 1..5) => Kind::Release,
            (Limit::Concurrency(_), _) => Kind::Renew,
            (_, 1..4) => Kind::Settle(Settlement::Give, self.tokens(&ask), self.age_ms(&ask)),
            _ => Kind::Settle(Settlement::Take, self.tokens(&ask), self.age_ms(&ask)),
        };
        self.model.change(Change { now_us: self.now_us, ask, kind })
    }

    fn tokens(&mut self, ask: &Ask) -> u64 {
        match self.random.below(8) {
            0 => self.random.magnitude(18),
            1 => 0,
            _ => ask.cost,
        }
    }

    /// By chance, or to where the window begins, the one before it or the one before that, and a millisecond beside it.
    fn age_ms(&mut self, ask: &Ask) -> u64 {
        let window_ms = match &ask.limit {
            Limit::SlidingWindow(window) => window.window_ms(),
            _ => 60_000,
        };
        let (random, now_ms) = (&mut self.random, self.now_us / 1_000);
        match random.below(8) {
            0 => 0,
            1 => random.magnitude(18),
            2..5 => random.below(3 * window_ms),
            _ => (now_ms % window_ms + window_ms * random.below(3) + random.below(3)).saturating_sub(1),
        }
    }

    /// Moves the request to where rounding matters: to the moment at which its first rule admits, a step of the wait before it,
    /// or somewhere on the way from empty to full.
    fn aim_at_a_refill(&mut self, request: &mut Request) {
        let (ask, random) = (&request.asks[0], &mut self.random);
        let Limit::TokenBucket(bucket) = ask.limit else { return };
        let Some(state) = self.model.buckets.get(&ask.key).and_then(|bucket| bucket.used()) else { return };
        let refill = bucket.refill();
        let missing = (state.micro_tokens + ask.cost.min(CAPACITY_MAX) * MICRO)
            .saturating_sub(bucket.capacity() * MICRO);
        let (Some(admitted_us), Some(full_us)) =
            (refill.time_for(missing), refill.time_for(state.micro_tokens))
        else {
            return;
        };
        let after_us = match random.below(3) {
            0 => admitted_us.saturating_sub(random.one_of(&[0, 1, 999, 1_000, 1_001])),
            1 => admitted_us.saturating_sub(1_000 * random.magnitude(9)).saturating_sub(random.below(2)),
            _ => random.below(full_us.max(1)),
        };
        self.jump(state.at_us.checked_add(after_us), request);
    }

    /// Moves the request to the moment that one of its rules has told, or a millisecond beside it.
    fn aim_at_an_admission(&mut self, request: &mut Request) {
        let answer = self.model.ask(request);
        let (_, _, wait_ms) = answer.rules[self.random.below(answer.rules.len() as u64) as usize];
        if wait_ms > 0 {
            let beside_us = self.random.one_of(&[0, 0, 1_000, 999]);
            self.jump((request.now_us + wait_ms * 1_000).checked_sub(beside_us), request);
        }
    }

    fn jump(&mut self, to_us: Option<u64>, request: &mut Request) {
        if let Some(now_us) = to_us.filter(|now_us| *now_us <= END_US) {
            (self.now_us, request.now_us) = (now_us, now_us);
        }
    }
}

fn bucket(random: &mut Random) -> TokenBucket {
    loop {
        let idle_s = random.one_of(&[1, 60, 3_600, 34_560_000]);
        if let Ok(bucket) = TokenBucket::new(capacity(random), refill(random), idle_s) {
            return bucket;
        }
    }
}

fn capacity(random: &mut Random) -> u64 {
    let most = random.one_of(&[1, 10, 100, 1_000_000, CAPACITY_MAX, CAPACITY_MAX]);
    if random.percent(30) { most } else { 1 + random.below(most) }
}

/// From 1 a day to 1,000,000/s, simple ones and ones with all the digits that are allowed; or never.
fn refill(random: &mut Random) -> Refill {
    loop {
        let (num, den) = match random.below(6) {
            0 => (random.one_of(&[1, 5, 10, 100, 1_000_000]), 1),
            1 => (random.magnitude(7), 10u64.pow(random.below(11) as u32)),
            2 => (random.magnitude(15), 10_000_000_000),
            3 => (10u64.pow(14) + random.below(9 * 10u64.pow(14)), 10u64.pow(8 + random.below(3) as u32)),
            4 => (115_741, 10_000_000_000),
            _ => (0, 1),
        };
        if let Some(refill) = Refill::new(num, den) {
            return refill;
        }
    }
}

fn window(random: &mut Random) -> SlidingWindow {
    let days_31 = 31 * 24 * 60 * 60;
    let seconds = random.one_of(&[1, 1, 2, 60, 3_600, 86_400, days_31, 0]);
    let seconds = if seconds == 0 { 1 + random.below(days_31) } else { seconds };
    SlidingWindow::new(capacity(random), seconds).expect("a window")
}

fn concurrency(random: &mut Random) -> Concurrency {
    let capacity = random.one_of(&[1, 2, 3, 5, 100_000]);
    Concurrency::new(capacity, random.one_of(&[1, 1, 10, 60, 3_600])).expect("a limit")
}

fn penalty(random: &mut Random) -> Penalty {
    let seconds = |random: &mut Random| random.one_of(&[1, 60, 3_600, 31 * 24 * 60 * 60]);
    let denials = random.one_of(&[1, 1, 2, 3, 10, 1_000_000]);
    Penalty::new(denials, seconds(random), seconds(random), bucket(random)).expect("a penalty")
}

// === impl Seen ===

impl Seen {
    pub(crate) fn add(&mut self, step: &Step) {
        match step {
            Step::Decide(request, answer) => {
                self.admitted += u64::from(answer.admitted);
                for (ask, (verdict, ..)) in request.asks.iter().zip(&answer.rules) {
                    self.verdicts.entry(ask.limit.tag()).or_default()[*verdict as usize] += 1;
                }
            }
            Step::Change(change, done) => {
                let kind = match change.kind {
                    Kind::Settle(Settlement::Give, ..) => "give",
                    Kind::Settle(Settlement::Take, ..) => "take",
                    Kind::Release => "release",
                    Kind::Renew => "renew",
                    Kind::Pardon => "pardon",
                };
                self.changes.entry(kind).or_default()[usize::from(*done)] += 1;
            }
        }
    }

    /// A history that tries too little proves too little.
    pub(crate) fn check(&self, steps: usize) {
        println!("of {steps}: {self:?}");
        let (most, some) = (steps as u64 / 20, steps as u64 / 2_000);
        assert!(self.admitted > most, "{self:?}");
        for (tag, [wait, admit, never]) in &self.verdicts {
            assert!(*wait > most / 2 && *admit > most && (*never > some || *tag == "cc1"), "{self:?}");
        }
        for (kind, [nothing, done]) in &self.changes {
            let never_in_vain = ["take", "release"].contains(kind);
            assert!(*done > some && (*nothing > some || never_in_vain), "{self:?}");
        }
        assert_eq!((self.verdicts.len(), self.changes.len()), (3, 5), "{self:?}");
    }
}

// `Verdict` counts its places in `Seen::verdicts`.
const _: () =
    assert!(Verdict::Wait as usize == 0 && Verdict::Admit as usize == 1 && Verdict::Never as usize == 2);
