//! Random histories: whatever happens, each slot that may be held is released once, after its check and after its stream; no
//! settlement is sent twice unless it certainly was not sent.

use super::*;
use crate::bill::Settlement;
use crate::bucket::Bucket;
use crate::exchange::Counter;
use crate::testing;
use proptest::prelude::*;
use protocol::batch::Outcome;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
enum Event {
    Queue,
    End(usize),
    Settle,
    Send,
    Refuse,
    Answer(usize, u8),
    Fail(usize),
    Tick(u64),
}

/// What the world knows of a slot.
#[derive(Default)]
struct Known {
    stream_ended: bool,
    in_flight: bool,
    may_be_held: bool,
    released: usize,
}

/// A callout under way: its token, the slots of its checks, and those that it releases.
type Flight = (u32, Vec<Vec<u8>>, Vec<Vec<u8>>);

#[derive(Default)]
struct World {
    worker: Worker<usize>,
    now_us: u64,
    token: u32,
    settled: u64,
    open: Vec<SlotId>,
    slots: BTreeMap<Vec<u8>, Known>,
    in_flight: Vec<Flight>,
    arrived_settlements: BTreeSet<u64>,
    lost: Tally,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => Just(Event::Queue),
        4 => any::<usize>().prop_map(Event::End),
        1 => Just(Event::Settle),
        4 => Just(Event::Send),
        1 => Just(Event::Refuse),
        3 => (any::<usize>(), any::<u8>()).prop_map(|(which, how)| Event::Answer(which, how)),
        1 => any::<usize>().prop_map(Event::Fail),
        2 => (0_u64..400_000).prop_map(Event::Tick),
    ];
    proptest::collection::vec(event, 1..120)
}

impl World {
    fn run(&mut self, rules: &RuleSet, event: Event) {
        match event {
            Event::Queue => {
                let check = testing::check(rules, "/c", &[]);
                let slot = self.worker.queue(0, check, self.now_us + 5_000).unwrap();
                self.slots.insert(slot.as_bytes().to_vec(), Known::default());
                self.open.push(slot);
            }
            Event::End(which) if !self.open.is_empty() => {
                let slot = self.open.swap_remove(which % self.open.len());
                self.known(slot.as_bytes()).stream_ended = true;
                self.worker.end(slot);
                self.worker.end(slot);
            }
            Event::Settle => {
                self.settled += 1;
                let bucket = Bucket { rule: 2, place: 0, key: Box::new([]) };
                let gives = self.settled.is_multiple_of(2);
                let settlement = Settlement { bucket, tokens: self.settled, gives, asked_us: self.now_us };
                self.worker.settle([settlement], self.now_us);
            }
            Event::Send => self.send(rules),
            Event::Refuse => {
                if let Some(callout) = self.worker.next_callout(rules, "d", self.now_us) {
                    self.worker.refused(callout, Refusal::NotSent, self.now_us);
                }
            }
            Event::Answer(which, how) if !self.in_flight.is_empty() => self.answer(which, how),
            Event::Fail(which) if !self.in_flight.is_empty() => {
                let (token, checks, _) = self.in_flight.swap_remove(which % self.in_flight.len());
                for id in checks {
                    self.known(&id).in_flight = false;
                }
                let late = Arrival { headers: 0, genuine: false, status: None, body: b"" };
                self.worker.arrived(token, &late, self.now_us);
            }
            Event::Tick(passed_us) => {
                self.now_us += passed_us;
                self.worker.tick(self.now_us);
            }
            Event::End(_) | Event::Answer(..) | Event::Fail(_) => {}
        }
        decided(&mut self.worker);
        self.worker.count_lost(&mut self.lost);
    }

    fn known(&mut self, id: &[u8]) -> &mut Known {
        self.slots.get_mut(id).expect("the worker made up an id")
    }

    fn send(&mut self, rules: &RuleSet) {
        let Some(callout) = self.worker.next_callout(rules, "d", self.now_us) else { return };
        let body = callout.body.clone();
        self.token += 1;
        self.worker.sent(self.token, callout, self.now_us);
        let batch = decode_batch(&body).unwrap();
        let checks: Vec<_> = batch.checks.iter().map(|check| check.slot.to_vec()).collect();
        for id in &checks {
            let known = self.known(id);
            assert!(!known.stream_ended, "asked for nobody");
            known.in_flight = true;
            known.may_be_held = true;
        }
        let releases: Vec<_> = batch.releases.iter().map(|slot| slot.id.to_vec()).collect();
        for id in &releases {
            let known = self.known(id);
            assert!(known.stream_ended, "released while its stream lives");
            assert!(!known.in_flight, "overtakes its check");
            assert!(known.may_be_held, "was never held");
            assert_eq!(known.released, 0, "released already");
        }
        for renewal in &batch.renewals {
            let known = self.known(renewal.id);
            assert!(!known.stream_ended && known.may_be_held && known.released == 0);
        }
        for charge in batch.give_backs.iter().chain(&batch.debits) {
            assert!(self.arrived_settlements.insert(charge.tokens), "settled twice");
        }
        self.in_flight.push((self.token, checks, releases));
    }

    /// The sidecar answers; `how` picks the answer of each check.
    fn answer(&mut self, which: usize, how: u8) {
        let (token, checks, releases) = self.in_flight.swap_remove(which % self.in_flight.len());
        let one = |verdict| vec![Outcome { verdict, left: 0, wait_ms: 0, leased: 0 }];
        let mut answers = Vec::new();
        for (place, id) in checks.iter().enumerate() {
            let how = (usize::from(how) + place) % 4;
            let known = self.known(id);
            known.in_flight = false;
            known.may_be_held = how != 1 && how != 3;
            answers.push(match how {
                0 => Answer::Admitted(one(Verdict::Admit)),
                1 => Answer::Denied(one(Verdict::Wait)),
                2 => Answer::Unknown(Unknown::RedisTimeout),
                _ => Answer::Unknown(Unknown::Breaker),
            });
        }
        for id in releases {
            self.known(&id).released += 1;
        }
        let body = encode_answers(&Answers { answers, unavailable_for_ms: 0 }, VERSION).unwrap();
        self.worker.arrived(token, &genuine(&body), self.now_us);
    }
}

proptest! {
    #[test]
    fn cc_05_each_slot_is_released_once_and_each_settlement_told_at_most_once(events in events()) {
        let rules = aftermath::limits();
        let mut world = World::default();
        events.iter().for_each(|event| world.run(&rules, *event));
        // All streams end, and the sidecar answers again.
        while !world.open.is_empty() {
            world.run(&rules, Event::End(0));
        }
        for _ in 0..60 {
            world.run(&rules, Event::Send);
            world.run(&rules, Event::Answer(0, 0));
            world.run(&rules, Event::Tick(100_000));
        }
        prop_assert!(world.worker.is_idle());
        prop_assert!(!world.worker.holds_slots());
        let lost = |counter| world.lost.iter().filter(|(_, lost)| *lost == counter).count();
        let owed = world.slots.values().filter(|known| known.may_be_held).count();
        let released: usize = world.slots.values().map(|known| known.released).sum();
        prop_assert!(world.slots.values().all(|known| known.released <= 1));
        prop_assert_eq!(released + lost(Counter::SlotLost), owed);
        let told = world.arrived_settlements.len();
        prop_assert!(told as u64 <= world.settled && told + lost(Counter::SettlementLost) >= world.settled as usize);
    }
}
