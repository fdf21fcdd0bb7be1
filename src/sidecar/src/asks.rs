//! What a batch asks of the store: its checks with the names of their buckets, in three allocations however many there are.

use limits::decision::Limit;
use limits::penalty::Penalty;
use std::ops::Range;

/// The checks of a batch, in their order.
#[derive(Debug, Default)]
pub struct Asks {
    /// All keys, one after the other.
    keys: Vec<u8>,
    calls: Vec<Ask>,
    /// Where each check's calls end within `calls`.
    ends: Vec<usize>,
    /// The slot that each check would hold.
    slots: Vec<Box<[u8]>>,
}

/// One rule of one check.
#[derive(Clone, Debug)]
pub struct Ask {
    key: Range<usize>,
    /// The rule's limit.
    pub limit: Limit,
    /// What denials bring about.
    pub penalty: Option<Penalty>,
    /// Tokens that the request costs.
    pub cost: u64,
    /// Whether the rule only watches.
    pub shadow: bool,
}

// === impl Asks ===

impl Asks {
    /// Room for so many checks of about two rules each.
    #[must_use]
    pub fn with_capacity(checks: usize) -> Self {
        Self {
            keys: Vec::with_capacity(checks * 128),
            calls: Vec::with_capacity(checks * 2),
            ends: Vec::with_capacity(checks),
            slots: Vec::new(),
        }
    }

    /// Adds a rule to the check that is being added; `write` appends the bucket's key.
    pub fn call(
        &mut self,
        limit: Limit,
        penalty: Option<Penalty>,
        cost: u64,
        shadow: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.keys.len();
        write(&mut self.keys);
        self.calls.push(Ask { key: start..self.keys.len(), limit, penalty, cost, shadow });
    }

    /// Ends the check that is being added. False, and the check is dropped, if it asks the same bucket twice.
    pub fn end_check(&mut self) -> bool {
        let start = self.open_from();
        let open = &self.calls[start..];
        let twice =
            (1..open.len()).any(|later| (0..later).any(|i| self.key(&open[i]) == self.key(&open[later])));
        if twice {
            self.drop_check();
        } else {
            self.ends.push(self.calls.len());
        }
        !twice
    }

    /// Says which slot the check that is being added would hold, if one of its rules limits what runs at once.
    pub fn slot(&mut self, id: &[u8]) {
        self.slots.resize_with(self.ends.len(), Box::default);
        self.slots.push(id.into());
    }

    /// The slot of a check, by its index; empty if it holds none.
    #[must_use]
    pub fn slot_of(&self, index: usize) -> &[u8] {
        self.slots.get(index).map_or(&[], |id| &**id)
    }

    /// Drops the check that is being added.
    pub fn drop_check(&mut self) {
        let start = self.open_from();
        self.calls.truncate(start);
        self.slots.truncate(self.ends.len());
    }

    /// How many checks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The rules of a check, by its index.
    ///
    /// # Panics
    /// There is no such check.
    #[must_use]
    pub fn check(&self, index: usize) -> &[Ask] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.calls[start..self.ends[index]]
    }

    /// All checks, in their order.
    pub fn checks(&self) -> impl Iterator<Item = &[Ask]> {
        (0..self.len()).map(|index| self.check(index))
    }

    /// The key of a call's bucket.
    #[must_use]
    pub fn key(&self, ask: &Ask) -> &[u8] {
        &self.keys[ask.key.clone()]
    }

    /// Some of the checks, by their indices, in that order.
    #[must_use]
    pub fn only(&self, indices: &[usize]) -> Self {
        let mut some = Self::with_capacity(indices.len());
        for &index in indices {
            for ask in self.check(index) {
                let write = |into: &mut Vec<u8>| into.extend_from_slice(self.key(ask));
                some.call(ask.limit, ask.penalty, ask.cost, ask.shadow, write);
            }
            if !self.slot_of(index).is_empty() {
                some.slot(self.slot_of(index));
            }
            some.ends.push(some.calls.len());
        }
        some
    }

    fn open_from(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::refill::Refill;
    use limits::token_bucket::TokenBucket;

    fn add(asks: &mut Asks, key: &str) {
        let bucket = TokenBucket::new(1, Refill::new(1, 1).unwrap(), 0).unwrap();
        asks.call(Limit::TokenBucket(bucket), None, 1, false, |into| into.extend_from_slice(key.as_bytes()));
    }

    #[test]
    fn checks_keep_their_calls_and_keys() {
        let mut asks = Asks::default();
        add(&mut asks, "a");
        add(&mut asks, "b");
        assert!(asks.end_check());
        assert!(asks.end_check()); // A check without rules.
        add(&mut asks, "a");
        assert!(asks.end_check());
        let keys: Vec<Vec<&[u8]>> =
            asks.checks().map(|check| check.iter().map(|ask| asks.key(ask)).collect()).collect();
        assert_eq!(keys, [vec![&b"a"[..], b"b"], vec![], vec![b"a"]]);
    }

    #[test]
    fn a_bucket_is_not_asked_twice_within_a_check() {
        let mut asks = Asks::default();
        for key in ["a", "b", "a"] {
            add(&mut asks, key);
        }
        assert!(!asks.end_check());
        add(&mut asks, "c");
        assert!(asks.end_check());
        assert_eq!(asks.len(), 1);
        assert_eq!(asks.check(0).len(), 1);
    }
}
