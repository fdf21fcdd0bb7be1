//! Version 1 of the batch, as the version before this one writes it: without penalties and without debits.

use super::{Algorithm, Batch, Charge, Check, LocalCount, RuleForm, Slot};
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
    give_backs: Vec<Charge<'a>>,
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

impl<'a> From<BatchV1<'a>> for Batch<'a> {
    fn from(old: BatchV1<'a>) -> Self {
        let rule = |rule: RuleFormV1<'a>| RuleForm {
            id: rule.id,
            algorithm: rule.algorithm,
            shadow: rule.shadow,
            penalty: None,
        };
        Self {
            domain: old.domain,
            budget_ms: old.budget_ms,
            rules: old.rules.into_iter().map(rule).collect(),
            checks: old.checks,
            give_backs: old.give_backs,
            debits: Vec::new(),
            local_counts: old.local_counts,
            releases: old.releases,
            renewals: old.renewals,
        }
    }
}
