//! From a request to the few rules that may apply.
//!
//! A rule is filed under some of its conditions: under the one that fewest other rules share, and while more than [`CROWD`] rules
//! still lie in one place, under a further one together with it. So 10,000 rules that all want `plan = gold` lie under their
//! routes, and a grid of 100 plans by 100 routes under both. Rules filed by the same probes make a *shape*, one hash table; a
//! request costs one lookup per shape, and what is found is checked in full. Shapes are few: they grow with the ways in which rules
//! are written (descriptors used, distinct lengths of prefixes and of blocks), not with their number.

use super::condition::{Compiled, Found, Probe};
use crate::request::Values;
use core::hash::BuildHasher;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

/// Rules that may lie in one place before a further condition is used to tell them apart.
const CROWD: u32 = 4;
/// The most places that one rule is filed in when conditions with several values are combined.
const PLACES_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Rules without conditions.
    always: Vec<u16>,
    shapes: Vec<Shape>,
    hasher: DefaultHashBuilder,
}

/// Rules that are filed by the same probes, by the hash of what these find.
#[derive(Clone, Debug)]
struct Shape {
    probes: Vec<Probe>,
    table: HashTable<(u64, Vec<u16>)>,
}

/// One way in which a condition is met: a probe, and the hash of what it must find.
type Way = (Probe, u64);

/// A rule on its way into the index.
struct Filing {
    rule: u16,
    /// The ways of each condition; a condition is met in any of its own.
    conditions: Vec<Vec<Way>>,
    /// Where the rule lies by the conditions used so far.
    places: Vec<Vec<Way>>,
}

// === impl Index ===

impl Index {
    pub(super) fn new(rules: &[Vec<Compiled>]) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut index = Self { always: Vec::new(), shapes: Vec::new(), hasher };
        let mut filings: Vec<Filing> =
            (0_u16..u16::MAX).zip(rules).map(|(rule, all)| index.filing(rule, all)).collect();
        index.always =
            filings.iter().filter(|filing| filing.conditions.is_empty()).map(|filing| filing.rule).collect();
        filings.retain(|filing| !filing.conditions.is_empty());
        for filing in spread(filings, &index.hasher) {
            filing.places.iter().for_each(|place| index.file(filing.rule, place));
        }
        index.shapes.iter_mut().for_each(Shape::settle);
        index
    }

    /// Calls `found` with lists of rules, each in their order, that hold among them every rule that applies.
    pub(super) fn candidates<'i>(&'i self, values: &impl Values, mut found: impl FnMut(&'i [u16])) {
        if !self.always.is_empty() {
            found(&self.always);
        }
        for shape in &self.shapes {
            if let Some(rules) = shape.find(values, &self.hasher) {
                found(rules);
            }
        }
    }

    fn filing(&self, rule: u16, conditions: &[Compiled]) -> Filing {
        let ways = |condition: &Compiled| {
            let probes = condition.probes();
            probes.into_iter().map(|(probe, wanted)| (probe, hash_found(&self.hasher, wanted))).collect()
        };
        Filing { rule, conditions: conditions.iter().map(ways).collect(), places: vec![Vec::new()] }
    }

    fn file(&mut self, rule: u16, place: &[Way]) {
        let probes = place.iter().map(|(probe, _)| *probe);
        let known = self.shapes.iter().position(|shape| shape.probes.iter().copied().eq(probes.clone()));
        let at = known.unwrap_or(self.shapes.len());
        if known.is_none() {
            self.shapes.push(Shape { probes: probes.collect(), table: HashTable::new() });
        }
        let hash = hash_place(place);
        if let Some(shape) = self.shapes.get_mut(at) {
            let entry = shape.table.entry(hash, |entry| entry.0 == hash, |entry| entry.0);
            entry.or_insert((hash, Vec::new())).get_mut().1.push(rule);
        }
    }
}

/// Files each rule under as few conditions as keep places uncrowded.
fn spread(mut open: Vec<Filing>, hasher: &DefaultHashBuilder) -> Vec<Filing> {
    let mut done = Vec::with_capacity(open.len());
    while !open.is_empty() {
        let mut crowds: HashMap<u64, u32> = HashMap::new();
        for place in open.iter().flat_map(Filing::options).flat_map(|(_, places)| places) {
            let crowd = crowds.entry(hasher.hash_one(place)).or_default();
            *crowd = crowd.saturating_add(1);
        }
        let crowd_of = |places: &[Vec<Way>]| {
            places.iter().filter_map(|place| crowds.get(&hasher.hash_one(place)).copied()).max().unwrap_or(0)
        };
        let mut still_open = Vec::new();
        for mut filing in open {
            let options = filing.options().map(|(condition, places)| {
                let crowd = crowd_of(&places);
                let probes = places.first().map(|place| place.iter().map(|way| way.0).collect::<Vec<_>>());
                ((crowd.max(CROWD), probes), condition, places, crowd)
            });
            let best = options.min_by(|a, b| a.0.cmp(&b.0));
            match best {
                None => done.push(filing),
                Some((_, condition, places, crowd)) => {
                    filing.conditions.swap_remove(condition);
                    filing.places = places;
                    if crowd > CROWD { still_open.push(filing) } else { done.push(filing) }
                }
            }
        }
        open = still_open;
    }
    done
}

// === impl Filing ===

impl Filing {
    /// Where the rule would lie if it were also filed under a further condition, for each that is left. A condition that can never
    /// hold gives no place at all.
    fn options(&self) -> impl Iterator<Item = (usize, Vec<Vec<Way>>)> {
        let unused = self.conditions.iter().enumerate();
        let first = self.places.first().is_some_and(Vec::is_empty);
        unused
            .filter(move |(_, ways)| first || ways.len().saturating_mul(self.places.len()) <= PLACES_MAX)
            .map(|(condition, ways)| (condition, self.combined(ways)))
    }

    fn combined(&self, ways: &[Way]) -> Vec<Vec<Way>> {
        let with = |place: &Vec<Way>, way: &Way| {
            let mut place = place.clone();
            place.push(*way);
            place.sort_unstable();
            place
        };
        self.places.iter().flat_map(|place| ways.iter().map(move |way| with(place, way))).collect()
    }
}

// === impl Shape ===

impl Shape {
    fn find(&self, values: &impl Values, hasher: &DefaultHashBuilder) -> Option<&[u16]> {
        let mut hash = 0;
        for probe in &self.probes {
            hash = mix(hash, hash_found(hasher, probe.take(values)?));
        }
        self.table.find(hash, |entry| entry.0 == hash).map(|entry| entry.1.as_slice())
    }

    /// Brings each list into the order of the file.
    fn settle(&mut self) {
        for (_, rules) in self.table.iter_mut() {
            rules.sort_unstable();
            rules.dedup();
            rules.shrink_to_fit();
        }
    }
}

fn hash_found(hasher: &DefaultHashBuilder, found: Found<'_>) -> u64 {
    match found {
        Found::Bytes(bytes) => hasher.hash_one(bytes),
        Found::Block(block) => hasher.hash_one(block),
        Found::Nothing => 1,
    }
}

/// The hash of a place. Two that collide only make a list longer, since what it finds is checked.
fn hash_place(place: &[Way]) -> u64 {
    place.iter().fold(0, |hash, (_, found)| mix(hash, *found))
}

fn mix(hash: u64, found: u64) -> u64 {
    (hash.rotate_left(23) ^ found).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
