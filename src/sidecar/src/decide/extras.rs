//! What rides in a batch beside its checks: tokens to settle, slots to release and to renew.

use super::{Malformed, Ruled};
use crate::changes::{Change, Kind};
use crate::keys::{self, Keys};
use limits::decision::Limit;
use limits::settle::Settlement;
use protocol::batch::{Batch, Charge, Slot, Value};

/// The changes that a batch asks for. What belongs to a rule that this version can't decide is left out: nothing was taken by it.
pub(super) fn changes(
    batch: &Batch<'_>,
    rules: &[Option<Ruled>],
    keys: &Keys,
) -> Result<Vec<Change>, Malformed> {
    let extras = [batch.releases.len(), batch.renewals.len(), batch.give_backs.len(), batch.debits.len()];
    let mut reader = Reader { batch, rules, keys, changes: Vec::with_capacity(extras.iter().sum()) };
    for slot in &batch.releases {
        reader.slot(slot, |limit, slot| Kind::Release { limit, slot })?;
    }
    for slot in &batch.renewals {
        reader.slot(slot, |limit, slot| Kind::Renew { limit, slot })?;
    }
    for charge in &batch.give_backs {
        reader.tokens(charge, Settlement::Give)?;
    }
    for charge in &batch.debits {
        reader.tokens(charge, Settlement::Take)?;
    }
    Ok(reader.changes)
}

struct Reader<'a> {
    batch: &'a Batch<'a>,
    rules: &'a [Option<Ruled>],
    keys: &'a Keys,
    changes: Vec<Change>,
}

// === impl Reader ===

impl Reader<'_> {
    fn slot(
        &mut self,
        slot: &Slot<'_>,
        kind: impl FnOnce(limits::concurrency::Concurrency, Box<[u8]>) -> Kind,
    ) -> Result<(), Malformed> {
        let Some(Ruled { limit, .. }) = self.rules[usize::from(slot.rule)] else { return Ok(()) };
        let Limit::Concurrency(of_slots) = limit else { return Err(Malformed) };
        if slot.id.is_empty() {
            return Err(Malformed);
        }
        let key = self.key(slot.rule, limit.tag(), &slot.key)?;
        self.changes.push(Change { key, kind: kind(of_slots, slot.id.into()) });
        Ok(())
    }

    fn tokens(&mut self, charge: &Charge<'_>, settlement: Settlement) -> Result<(), Malformed> {
        let Some(Ruled { limit, penalty }) = self.rules[usize::from(charge.rule)] else { return Ok(()) };
        if matches!(limit, Limit::Concurrency(_)) {
            return Err(Malformed);
        }
        let key = self.key(charge.rule, limit.tag(), &charge.key)?;
        if charge.tokens > 0 {
            let &Charge { tokens, age_ms, .. } = charge;
            let kind = Kind::Settle { limit, penalty, settlement, tokens, age_ms };
            self.changes.push(Change { key, kind });
        }
        Ok(())
    }

    fn key(&self, rule: u16, tag: &str, values: &[Value<'_>]) -> Result<Vec<u8>, Malformed> {
        let domain = self.batch.domain;
        let written = values.iter().map(|value| {
            let mut bytes = Vec::new();
            self.keys.write_value(&mut bytes, domain, value.kind, value.bytes, value.secret);
            keys::is_name(value.kind).then_some((value.kind, bytes)).ok_or(Malformed)
        });
        let written: Vec<(&str, Vec<u8>)> = written.collect::<Result<_, _>>()?;
        let parts = written.iter().map(|(kind, bytes)| (*kind, bytes.as_slice()));
        let mut key = Vec::with_capacity(128);
        keys::write_key(&mut key, domain, self.batch.rules[usize::from(rule)].id, tag, parts);
        Ok(key)
    }
}
