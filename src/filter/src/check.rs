//! From a request to a check: which rules apply, and whose buckets they ask.

use crate::bill::Bill;
use crate::bucket::{Bucket, Part};
use crate::worker::slots::{Claim, SlotId};
use limits::cost::Cost;
use limits::decision::Limit;
use limits::descriptor::DescriptorId;
use limits::key::Key;
use limits::request::{Attributes, Request};
use limits::rule::Mode;
use limits::ruleset::RuleSet;
use protocol::batch::Call;
use protocol::value::bound;

/// What a request needs before it may go on.
#[derive(Debug)]
pub enum Plan {
    /// No rule applies.
    Pass,
    /// The rule of this index denies what lacks its key, whatever the others say.
    Deny(u16),
    /// The rules that apply have to be asked.
    Ask(Pending),
}

/// A check that waits to be sent. It owns what it needs of the request, which can't be read again later.
#[derive(Debug, Default)]
pub struct Pending {
    values: Vec<Part>,
    calls: Vec<Call>,
    /// What a rule of concurrency wants to know later; most requests meet none.
    claim: Option<Box<Claim>>,
    slot: Option<SlotId>,
    /// What has to be settled later; most requests have nothing.
    bill: Option<Box<Bill>>,
}

/// Decides what a request needs; `has_body` unless its headers end it. `matched` is scratch space, kept by the caller from one
/// request to the next.
pub fn plan<A: Attributes>(
    rules: &RuleSet,
    request: &Request<'_, A>,
    has_body: bool,
    matched: &mut Vec<u16>,
) -> Plan {
    rules.applying(request, matched);
    let mut pending = Pending {
        values: Vec::with_capacity(2),
        calls: Vec::with_capacity(matched.len()),
        ..Pending::default()
    };
    for &index in matched.iter() {
        let Some(rule) = rules.rule(index) else { continue };
        match rules.key(rule, request) {
            Key::Parts(parts) => {
                let parts = parts.as_slice().iter();
                let key = parts.map(|&(descriptor, bytes)| pending.value(descriptor, bytes)).collect();
                let (cost, settles) = cost(&rule.cost, request, has_body);
                pending.calls.push(Call { rule: index, cost, key });
                if settles {
                    pending.reserve();
                }
                if let Limit::Concurrency(limit) = rule.limit {
                    pending.claim(limit.lease_ms());
                }
            }
            Key::Skip => {}
            Key::Deny if rule.mode == Mode::Shadow => {}
            Key::Deny => return Plan::Deny(index),
        }
    }
    if pending.calls.is_empty() { Plan::Pass } else { Plan::Ask(pending) }
}

/// The tokens that a request takes before it passes, and whether they have to be settled.
fn cost<A: Attributes>(cost: &Cost, request: &Request<'_, A>, has_body: bool) -> (u64, bool) {
    match cost {
        Cost::Fixed(tokens) => (*tokens, false),
        Cost::Header(named) => (cost.before(request.header(&named.header), None), false),
        Cost::Body { .. } => {
            let length = if has_body { request.header("content-length") } else { Some(&b"0"[..]) };
            (cost.before(None, length), cost.settles_by_body(length))
        }
        Cost::Response(_) => (cost.before(None, None), true),
    }
}

// === impl Pending ===

impl Pending {
    /// The rules that are asked, by index, in the order of the answer's outcomes.
    pub fn rules(&self) -> impl Iterator<Item = u16> + '_ {
        self.calls.iter().map(|call| call.rule)
    }

    /// The calls, as they point into the values; their rules are indices into the rule set.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The values that the keys are made of.
    #[must_use]
    pub fn values(&self) -> &[Part] {
        &self.values
    }

    /// The slot that it takes, once it is queued.
    #[must_use]
    pub fn slot(&self) -> Option<SlotId> {
        self.slot
    }

    /// Its id as it is sent; empty without.
    #[must_use]
    pub fn slot_bytes(&self) -> &[u8] {
        self.slot.as_ref().map_or(&[], SlotId::as_bytes)
    }

    /// Takes out what a rule of concurrency wants to know later.
    pub fn take_claim(&mut self) -> Option<Box<Claim>> {
        self.claim.take()
    }

    /// Takes out what has to be settled later.
    pub fn take_bill(&mut self) -> Option<Box<Bill>> {
        self.bill.take()
    }

    /// It takes this slot.
    pub fn set_slot(&mut self, slot: SlotId) {
        self.slot = Some(slot);
    }

    /// About how many bytes this adds to a body.
    #[must_use]
    pub fn size(&self) -> usize {
        let values: usize = self.values.iter().map(Part::size).sum();
        values.saturating_add(self.calls.len().saturating_mul(128))
    }

    /// The place of a value, which is kept once however many keys it is a part of.
    fn value(&mut self, descriptor: DescriptorId, bytes: Option<&[u8]>) -> u8 {
        let bytes = bytes.map(bound);
        let same =
            |value: &Part| value.descriptor == descriptor && value.bytes.as_deref() == bytes.as_deref();
        let place = self.values.iter().position(same).unwrap_or_else(|| {
            let bytes = bytes.map(|bytes| bytes.into_owned().into_boxed_slice());
            self.values.push(Part { descriptor, bytes });
            self.values.len().saturating_sub(1)
        });
        u8::try_from(place).unwrap_or(u8::MAX) // At most 16 rules of 8 parts.
    }

    /// The bucket of the last call.
    fn last_bucket(&self) -> Option<Bucket> {
        let call = self.calls.last()?;
        let part = |&place: &u8| self.values.get(usize::from(place)).cloned();
        let key = call.key.iter().map(part).collect::<Option<_>>()?;
        Some(Bucket { rule: call.rule, place: self.calls.len().saturating_sub(1), key })
    }

    /// What the last call takes has to be settled.
    fn reserve(&mut self) {
        let tokens = self.calls.last().map_or(0, |call| call.cost);
        if let Some(bucket) = self.last_bucket() {
            self.bill.get_or_insert_default().reserve(bucket, tokens);
        }
    }

    /// The last call takes a slot.
    fn claim(&mut self, lease_ms: u64) {
        if let Some(bucket) = self.last_bucket() {
            self.claim.get_or_insert_default().add(bucket, lease_ms);
        }
    }
}
