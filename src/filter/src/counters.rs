//! The names of Kota's counters in Envoy, and how many of them there can be.

use crate::exchange::Counter;

/// The most rules with counters of their own; the rest share [`OTHER`]. Envoy keeps every series for ever.
pub const RULES_MAX: usize = 500;
/// The rule name of those beyond [`RULES_MAX`].
pub const OTHER: &str = "other";

// === impl Counter ===

impl Counter {
    /// How many different counters a rule has.
    pub const COUNT: usize = 27;

    /// A number below [`Counter::COUNT`], different for each.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::Denied => 1,
            Self::ShadowDenied => 2,
            Self::FailedOpen(reason) => (reason as usize).saturating_add(3),
            Self::FailedClosed(reason) => (reason as usize).saturating_add(14),
            Self::SlotLost => 25,
            Self::SettlementLost => 26,
        }
    }

    /// The counter's name for a rule; Envoy puts `wasmcustom.` before it.
    #[must_use]
    pub fn name(self, rule: &str) -> String {
        match self {
            Self::Allowed => format!("kota.allowed.{rule}"),
            Self::Denied => format!("kota.denied.{rule}"),
            Self::ShadowDenied => format!("kota.shadow_denied.{rule}"),
            Self::FailedOpen(reason) => format!("kota.failed_open.{rule}.{}", reason.word()),
            Self::FailedClosed(reason) => format!("kota.failed_closed.{rule}.{}", reason.word()),
            Self::SlotLost => format!("kota.slots_lost.{rule}"),
            Self::SettlementLost => format!("kota.settlements_lost.{rule}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    #[test]
    fn every_counter_has_an_index_of_its_own() {
        let mut all = vec![Counter::Allowed, Counter::Denied, Counter::ShadowDenied];
        all.extend(Reason::ALL.map(Counter::FailedOpen));
        all.extend(Reason::ALL.map(Counter::FailedClosed));
        all.extend([Counter::SlotLost, Counter::SettlementLost]);
        let indices: Vec<_> = all.iter().map(|counter| counter.index()).collect();
        assert_eq!(indices, (0..Counter::COUNT).collect::<Vec<_>>());
        assert_eq!(
            Counter::FailedOpen(Reason::RedisTimeout).name("gold"),
            "kota.failed_open.gold.redis_timeout"
        );
    }
}
