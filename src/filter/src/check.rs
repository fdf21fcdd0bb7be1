//! From a request to a check: which rules apply, and whose buckets they ask.

use limits::descriptor::DescriptorId;
use limits::key::Key;
use limits::request::{Attributes, Request};
use limits::rule::Mode;
use limits::ruleset::RuleSet;
use limits::{decision::Limit, rule::Rule};
use protocol::batch::{Algorithm, Batch, Call, Check, PenaltyForm, RuleForm, Value, encode_batch};
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
    values: Vec<PendingValue>,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct PendingValue {
    descriptor: DescriptorId,
    bytes: Option<Box<[u8]>>,
}

/// Decides what a request needs. `matched` is scratch space, kept by the caller from one request to the next.
pub fn plan<A: Attributes>(rules: &RuleSet, request: &Request<'_, A>, matched: &mut Vec<u16>) -> Plan {
    rules.applying(request, matched);
    let mut pending = Pending { values: Vec::with_capacity(2), calls: Vec::with_capacity(matched.len()) };
    for &index in matched.iter() {
        let Some(rule) = rules.rule(index) else { continue };
        match rules.key(rule, request) {
            Key::Parts(parts) => {
                let parts = parts.as_slice().iter();
                let key = parts.map(|&(descriptor, bytes)| pending.value(descriptor, bytes)).collect();
                pending.calls.push(Call { rule: index, cost: rule.cost.before(None, None), key });
            }
            Key::Skip => {}
            Key::Deny if rule.mode == Mode::Shadow => {}
            Key::Deny => return Plan::Deny(index),
        }
    }
    if pending.calls.is_empty() { Plan::Pass } else { Plan::Ask(pending) }
}

/// The batch of several checks as bytes; `None` if it is out of the wire's bounds.
pub fn encode<'p>(
    rules: &RuleSet,
    domain: &str,
    budget_ms: u32,
    checks: impl Iterator<Item = &'p Pending>,
) -> Option<Vec<u8>> {
    let mut sent: Vec<u16> = Vec::new();
    let mut forms = Vec::new();
    let checks = checks.map(|pending| {
        let calls = pending.calls.iter().map(|call| {
            let place = sent.iter().position(|&index| index == call.rule).or_else(|| {
                forms.push(form(rules.rule(call.rule)?));
                sent.push(call.rule);
                sent.len().checked_sub(1)
            });
            Some(Call { rule: u16::try_from(place?).ok()?, cost: call.cost, key: call.key.clone() })
        });
        let calls: Option<Vec<Call>> = calls.collect();
        let values: Option<Vec<Value<'_>>> =
            pending.values.iter().map(|value| value.on_wire(rules)).collect();
        Some(Check { values: values?, calls: calls?, lease: 0, slot: &[] })
    });
    let checks: Option<Vec<Check<'_>>> = checks.collect();
    let batch = Batch {
        domain,
        budget_ms,
        rules: forms,
        checks: checks?,
        give_backs: Vec::new(),
        debits: Vec::new(),
        local_counts: Vec::new(),
        releases: Vec::new(),
        renewals: Vec::new(),
    };
    encode_batch(&batch, Vec::with_capacity(1_024)).ok()
}

fn form(rule: &Rule) -> RuleForm<'_> {
    let algorithm = match rule.limit {
        Limit::TokenBucket(bucket) => Algorithm::TokenBucket {
            capacity: bucket.capacity(),
            refill_num: bucket.refill().num(),
            refill_den: bucket.refill().den(),
            idle_s: bucket.idle_ms() / 1_000,
        },
        Limit::SlidingWindow(limit) => {
            Algorithm::SlidingWindow { capacity: limit.capacity(), window_s: limit.window_s() }
        }
        Limit::Concurrency(limit) => {
            Algorithm::Concurrency { capacity: limit.capacity(), lease_s: limit.lease_ms() / 1_000 }
        }
    };
    let penalty = rule.penalty.map(|penalty| PenaltyForm {
        denials: penalty.denials(),
        within_s: penalty.within_ms() / 1_000,
        for_s: penalty.for_ms() / 1_000,
        capacity: penalty.bucket().capacity(),
        refill_num: penalty.bucket().refill().num(),
        refill_den: penalty.bucket().refill().den(),
        idle_s: penalty.bucket().idle_ms() / 1_000,
    });
    RuleForm { id: &rule.id, algorithm, shadow: rule.mode == Mode::Shadow, penalty }
}

// === impl Pending ===

impl Pending {
    /// The rules that are asked, by index, in the order of the answer's outcomes.
    pub fn rules(&self) -> impl Iterator<Item = u16> + '_ {
        self.calls.iter().map(|call| call.rule)
    }

    /// About how many bytes this adds to a body.
    #[must_use]
    pub fn size(&self) -> usize {
        let values = self
            .values
            .iter()
            .map(|value| value.bytes.as_ref().map_or(0, |bytes| bytes.len()).saturating_add(64));
        values.sum::<usize>().saturating_add(self.calls.len().saturating_mul(128))
    }

    /// The place of a value, which is kept once however many keys it is a part of.
    fn value(&mut self, descriptor: DescriptorId, bytes: Option<&[u8]>) -> u8 {
        let bytes = bytes.map(bound);
        let same = |value: &PendingValue| {
            value.descriptor == descriptor && value.bytes.as_deref() == bytes.as_deref()
        };
        let place = self.values.iter().position(same).unwrap_or_else(|| {
            let bytes = bytes.map(|bytes| bytes.into_owned().into_boxed_slice());
            self.values.push(PendingValue { descriptor, bytes });
            self.values.len().saturating_sub(1)
        });
        u8::try_from(place).unwrap_or(u8::MAX) // At most 16 rules of 8 parts.
    }
}

impl PendingValue {
    fn on_wire<'a>(&'a self, rules: &'a RuleSet) -> Option<Value<'a>> {
        let descriptor = rules.descriptors().get(self.descriptor)?;
        Some(Value { kind: &descriptor.name, bytes: self.bytes.as_deref(), secret: descriptor.secret })
    }
}
