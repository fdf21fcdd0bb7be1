//! Random histories: costs, refills, clock steps, edits of limits, several rules. Script and model agree in every answer, and
//! what each admits keeps the bound.

use std::collections::HashMap;

use limits::refill::Refill;
use limits::token_bucket::{CAPACITY_MAX, MICRO, TokenBucket};

use crate::bound::Bound;
use crate::random::Random;
use crate::script::{Ask, Model, Request, Script};

/// 2026; and the year 2096, past which a history begins anew.
const START_US: u64 = 1_790_000_000_000_000;
const END_US: u64 = 4_000_000_000_000_000;
/// Requests in flight: enough that Redis never waits for us.
const BATCH: usize = 500;

#[test]
fn script_and_model_agree_in_a_tenth_of_a_million_random_steps() {
    run(100_000);
}

#[test]
#[ignore = "over a minute; make test runs it by name"]
fn script_and_model_agree_in_a_million_random_steps() {
    run(1_000_000);
}

fn run(steps: usize) {
    let mut history = History::new(Random::seeded());
    let mut script = Script::start();
    let (mut of_script, mut of_model) = (Bound::default(), Bound::default());
    let mut seen = [0u64; 4];
    let mut in_flight = Vec::new();
    for _ in 0..=steps.div_ceil(BATCH) {
        // The model works on the next batch while Redis works on this one.
        let next: Vec<_> = (0..BATCH).map(|_| history.step()).collect();
        script.send(&next);
        for expected in std::mem::replace(&mut in_flight, next) {
            let answer = script.compare(&expected);
            of_script.add(expected.request(), &answer);
            of_model.add(expected.request(), expected.answer());
            seen[3] += u64::from(answer.admitted);
            answer.rules.iter().for_each(|(verdict, ..)| seen[*verdict as usize] += 1);
        }
    }
    for expected in in_flight {
        script.compare(&expected);
    }
    script.compare_states(&history.model);
    println!(
        "admitted {} of {steps}; rules: {} wait, {} admit, {} never",
        seen[3], seen[0], seen[1], seen[2]
    );
    assert!(seen.iter().all(|count| *count > steps as u64 / 20), "a history that tries too little: {seen:?}");
}

/// A few clients with a few rules each, and a clock that is stepped.
struct History {
    random: Random,
    model: Model,
    limits: HashMap<String, TokenBucket>,
    now_us: u64,
    /// Part of the keys: a new epoch has new buckets, as a clock that jumped far ahead leaves old ones useless.
    epoch: u64,
}

// === impl History ===

impl History {
    fn new(random: Random) -> Self {
        Self { random, model: Model::default(), limits: HashMap::new(), now_us: START_US, epoch: 0 }
    }

    fn step(&mut self) -> crate::script::Expected {
        self.turn_clock();
        let rules = self.random.one_of(&[1, 1, 2, 2, 3, 8]);
        let (client, first) = (self.random.below(40), self.random.below(8));
        let asks: Vec<_> = (0..rules).map(|rule| self.ask(client, (first + rule) % 8)).collect();
        let mut request = Request { now_us: self.now_us, asks };
        if self.random.percent(25) {
            self.aim_at_a_refill(&mut request);
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
        let key = format!("rl:{{test:user:{}.{client}}}:rule-{rule}:tb1", self.epoch);
        if !self.limits.contains_key(&key) || self.random.percent(2) {
            let limit = self.limit();
            self.limits.insert(key.clone(), limit);
        }
        let bucket = self.limits[&key];
        let cost = self.cost(&key, &bucket);
        Ask { key, bucket, cost, shadow: self.random.percent(25) }
    }

    fn limit(&mut self) -> TokenBucket {
        loop {
            let random = &mut self.random;
            let capacity = random.one_of(&[1, 10, 100, 1_000_000, CAPACITY_MAX, CAPACITY_MAX]);
            let capacity = if random.percent(30) { capacity } else { 1 + random.below(capacity) };
            let idle_s = random.one_of(&[1, 60, 3_600, 34_560_000]);
            if let Ok(bucket) = TokenBucket::new(capacity, refill(random), idle_s) {
                return bucket;
            }
        }
    }

    fn cost(&mut self, key: &str, bucket: &TokenBucket) -> u64 {
        let random = &mut self.random;
        let left = bucket.refuse(self.model.states.get(key).copied(), self.now_us, 0).left;
        match random.below(20) {
            0..9 => 1,
            9 => 0,
            10 => bucket.capacity(),
            11 => bucket.capacity() + 1 + random.magnitude(15),
            12..15 => random.below(bucket.capacity() + 1),
            15 => random.below(bucket.capacity().min(20) + 1),
            _ => (left + random.below(3)).saturating_sub(1), // to the edge, and one beside it
        }
    }

    /// Moves the request to where rounding matters: to the moment at which its first rule admits, a step of the wait before it,
    /// or somewhere on the way from empty to full.
    fn aim_at_a_refill(&mut self, request: &mut Request) {
        let (ask, random) = (&request.asks[0], &mut self.random);
        let Some(state) = self.model.states.get(&ask.key) else { return };
        let refill = ask.bucket.refill();
        let missing = (state.micro_tokens + ask.cost.min(CAPACITY_MAX) * MICRO)
            .saturating_sub(ask.bucket.capacity() * MICRO);
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
        if let Some(now_us) = state.at_us.checked_add(after_us).filter(|now_us| *now_us <= END_US) {
            (self.now_us, request.now_us) = (now_us, now_us);
        }
    }
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
