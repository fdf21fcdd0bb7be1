//! Version 1 of the batch, as the version before this one writes it: without penalties, without debits and
//! without the age of what is given back.

use super::{Algorithm, Batch, Charge, Check, LocalCount, RuleForm, Slot, Value};
use serde::Deserialize;

/// See [`Batch`].
#[derive(Deserialize)]
pub(super) struct BatchV1<'a> {
    domain: &'a str,
    budget_ms: u32,
    #[serde(borrow)]
    rules: Vec<RuleFormV1<'a>>,
    #[serde(borrow)]
    checks: Vec<Check<'a>>,
    #[serde(borrow)]
    give_backs: Vec<ChargeV1<'a>>,
    local_counts: Vec<LocalCount>,
    #[serde(borrow)]
    releases: Vec<Slot<'a>>,
    #[serde(borrow)]
    renewals: Vec<Slot<'a>>,
}

#[derive(Deserialize)]
struct RuleFormV1<'a> {
    id: &'a str,
    algorithm: Algorithm,
    shadow: bool,
}

#[derive(Deserialize)]
struct ChargeV1<'a> {
    rule: u16,
    #[serde(borrow)]
    key: Vec<Value<'a>>,
    tokens: u64,
}

impl<'a> From<BatchV1<'a>> for Batch<'a> {
    fn from(old: BatchV1<'a>) -> Self {
        let rule = |rule: RuleFormV1<'a>| RuleForm {
            id: rule.id,
            algorithm: rule.algorithm,
            shadow: rule.shadow,
            penalty: None,
        };
        // What has no age was taken just now: it did not matter then.
        let charge = |charge: ChargeV1<'a>| Charge {
            rule: charge.rule,
            key: charge.key,
            tokens: charge.tokens,
            age_ms: 0,
        };
        Self {
            domain: old.domain,
            budget_ms: old.budget_ms,
            rules: old.rules.into_iter().map(rule).collect(),
            checks: old.checks,
            give_backs: old.give_backs.into_iter().map(charge).collect(),
            debits: Vec::new(),
            local_counts: old.local_counts,
            releases: old.releases,
            renewals: old.renewals,
        }
    }
}
