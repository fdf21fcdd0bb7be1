//! A callout's body: checks, and what else the sidecar has to be told, with each rule once.

use crate::bill::Settlement;
use crate::check::Pending;
use crate::worker::outbox::Parcel;
use crate::worker::slots::Notice;
use limits::decision::Limit;
use limits::rule::{Mode, Rule};
use limits::ruleset::RuleSet;
use protocol::batch::{
    Algorithm, Batch, Call, Charge, Check, PenaltyForm, RuleForm, Slot, Value, encode_batch,
};

/// The rules that a batch refers to, in the order in which they were met.
struct Rules<'a> {
    all: &'a RuleSet,
    met: Vec<u16>,
    forms: Vec<RuleForm<'a>>,
}

/// The batch as bytes, as it is at `now_us`; `None` if it is out of the wire's bounds.
pub fn encode<'p>(
    rules: &'p RuleSet,
    domain: &str,
    budget_ms: u32,
    checks: impl Iterator<Item = &'p Pending>,
    parcel: &'p Parcel,
    now_us: u64,
) -> Option<Vec<u8>> {
    let mut rules = Rules { all: rules, met: Vec::new(), forms: Vec::new() };
    let checks = checks.map(|pending| rules.check(pending)).collect::<Option<_>>()?;
    let all = || parcel.settlements.iter().map(|due| &due.settlement);
    let settlements = |gives: bool| all().filter(move |one| one.gives == gives);
    let give_backs = settlements(true).map(|one| rules.charge(one, now_us)).collect::<Option<_>>()?;
    let debits = settlements(false).map(|one| rules.charge(one, now_us)).collect::<Option<_>>()?;
    let releases = rules.slots(&parcel.releases)?;
    let renewals = rules.slots(&parcel.renewals)?;
    let batch = Batch {
        domain,
        budget_ms,
        rules: rules.forms,
        checks,
        give_backs,
        debits,
        local_counts: Vec::new(),
        releases,
        renewals,
    };
    encode_batch(&batch, Vec::with_capacity(1_024)).ok()
}

// === impl Rules ===

impl<'a> Rules<'a> {
    fn place(&mut self, rule: u16) -> Option<u16> {
        let place = self.met.iter().position(|&met| met == rule).or_else(|| {
            self.forms.push(form(self.all.rule(rule)?));
            self.met.push(rule);
            self.met.len().checked_sub(1)
        });
        u16::try_from(place?).ok()
    }

    fn check(&mut self, pending: &'a Pending) -> Option<Check<'a>> {
        let call =
            |call: &Call| Some(Call { rule: self.place(call.rule)?, cost: call.cost, key: call.key.clone() });
        let calls = pending.calls().iter().map(call).collect::<Option<_>>()?;
        let values: Option<Vec<Value<'_>>> =
            pending.values().iter().map(|value| value.on_wire(self.all)).collect();
        Some(Check { values: values?, calls, lease: 0, slot: pending.slot_bytes() })
    }

    fn charge(&mut self, one: &'a Settlement, now_us: u64) -> Option<Charge<'a>> {
        let rule = self.place(one.bucket.rule)?;
        let age_ms = now_us.saturating_sub(one.asked_us).div_ceil(1_000);
        Some(Charge { rule, key: one.bucket.on_wire(self.all)?, tokens: one.tokens, age_ms })
    }

    fn slots(&mut self, notices: &'a [Notice]) -> Option<Vec<Slot<'a>>> {
        let mut slots = Vec::with_capacity(notices.len());
        for notice in notices {
            for bucket in notice.buckets.iter() {
                let rule = self.place(bucket.rule)?;
                slots.push(Slot { rule, key: bucket.on_wire(self.all)?, id: notice.id.as_bytes() });
            }
        }
        Some(slots)
    }
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
