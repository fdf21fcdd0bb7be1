//! Of the rules of one group that could apply to a request only the best one does: a plan's default gives way to a customer's exception.

use crate::rule::{Mode, Rule};
use core::cmp::Reverse;
use hashbrown::HashMap;

/// The place of each rule within its group.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    /// By rule; empty if no rule is in a group.
    ranks: Vec<Option<Rank>>,
}

/// A rule's place within its group.
#[derive(Clone, Copy, Debug)]
struct Rank {
    /// Numbers the groups.
    group: u16,
    priority: u32,
    enforces: bool,
}

// === impl Groups ===

impl Groups {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let mut numbers: HashMap<&str, u16> = HashMap::new();
        let mut ranks = Vec::with_capacity(rules.len());
        for rule in rules {
            // There are no more groups than rules, which are numbered by as many bits.
            let next = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
            ranks.push(rule.group.as_ref().map(|group| Rank {
                group: *numbers.entry(&group.id).or_insert(next),
                priority: group.priority,
                enforces: rule.mode == Mode::Enforce,
            }));
        }
        if numbers.is_empty() {
            ranks.clear();
        }
        Self { ranks }
    }

    /// Whether the rule of that index is in a group.
    pub(super) fn hold(&self, rule: u16) -> bool {
        self.rank(rule).is_some()
    }

    /// Whether no rule at all is in a group.
    pub(super) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Takes out of `found` what a better rule of its group displaces; the order is lost. Only an enforcing rule displaces enforcing
    /// ones, so that a new one can be watched beside the one that it is to replace. Of several that are watched the best one applies:
    /// were they all enforcing, it would win.
    pub(super) fn resolve(&self, found: &mut Vec<u16>) {
        let order = |rule: &u16| (self.rank(*rule).map(|rank| (rank.group, Reverse(rank.priority))), *rule);
        found.sort_unstable_by_key(order);
        let (mut won, mut watched) = (None, None);
        found.retain(|rule| match self.rank(*rule) {
            None => true,
            Some(Rank { group, enforces, .. }) => {
                let displaced = won == Some(group) || !enforces && watched == Some(group);
                *(if enforces { &mut won } else { &mut watched }) = Some(group);
                !displaced
            }
        });
    }

    fn rank(&self, rule: u16) -> Option<Rank> {
        self.ranks.get(usize::from(rule)).copied().flatten()
    }
}
