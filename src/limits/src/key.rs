//! Whose bucket a rule takes a request's tokens from.

use crate::descriptor::{DescriptorId, Descriptors};
use crate::request::Values;
use crate::rule::{OnMissingKey, PARTS_MAX, Rule};

/// One part of a key: the descriptor that the value is of, and the value; none for what all who lack it share.
pub type Part<'r> = (DescriptorId, Option<&'r [u8]>);

/// The parts of a key, in the order of the rule; the first is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'r> {
    all: [Part<'r>; PARTS_MAX],
    len: usize,
}

/// The bucket of a rule for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'r> {
    /// The bucket of these values. No parts at all: the one bucket of the rule.
    Parts(Parts<'r>),
    /// A part is missing and the rule does not apply then.
    Skip,
    /// A part is missing and the rule denies then.
    Deny,
}

impl<'r> Key<'r> {
    /// The key of `rule` for a request. In place of a missing part comes what [`OnMissingKey`] says; with [`OnMissingKey::Ip`] the
    /// client's address, and if that too is missing, as only a hand-made check can have it, the shared bucket. Parts beyond
    /// [`PARTS_MAX`], which no configuration has, are left out.
    #[must_use]
    pub fn of(rule: &Rule, values: &'r impl Values) -> Self {
        let mut parts = Parts { all: [(Descriptors::IP, None); PARTS_MAX], len: 0 };
        for (slot, id) in parts.all.iter_mut().zip(&rule.key) {
            *slot = match (values.kind_and_value(*id), rule.on_missing_key) {
                (Some((kind, value)), _) => (kind, Some(value)),
                (None, OnMissingKey::Skip) => return Self::Skip,
                (None, OnMissingKey::Deny) => return Self::Deny,
                (None, OnMissingKey::Shared) => (*id, None),
                (None, OnMissingKey::Ip) => match values.value(Descriptors::IP) {
                    Some(ip) => (Descriptors::IP, Some(ip)),
                    None => (*id, None),
                },
            };
            parts.len = parts.len.saturating_add(1);
        }
        Self::Parts(parts)
    }
}

impl<'r> Parts<'r> {
    /// The parts in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[Part<'r>] {
        self.all.get(..self.len).unwrap_or_default()
    }
}
