//! All metrics of the sidecar, by Prometheus' conventions, their names in one place.

use crate::changes::{Change, Changed, Kind};
use crate::store::{Status, Store};
use limits::settle::Settlement;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use protocol::batch::{Answer, Unknown};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bounds of `kota_script_seconds`: from a quiet Redis on the same machine to one that has stopped.
const SCRIPT_SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5];
/// Bounds of `kota_batch_checks`.
const BATCH_CHECKS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The counters, shared by all that count.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    allowed: Counter,
    denied: Counter,
    undecided: Counter,
    unknown: [Counter; REASONS.len()],
    released: Counter,
    renewed: Counter,
    gone: Counter,
    given: Counter,
    taken: Counter,
    lost_changes: Counter,
    script_seconds: Histogram,
    batch_checks: Histogram,
    script_loads: Counter,
    returns_lost: Counter,
    reconnects: Counter,
    refused_connections: Counter,
    store_up: Gauge,
}

/// Every reason, at its place among the counters.
const REASONS: [(Unknown, &str); 5] = [
    (Unknown::Version, "version"),
    (Unknown::RedisTimeout, "redis_timeout"),
    (Unknown::RedisError, "redis_error"),
    (Unknown::Shed, "shed"),
    (Unknown::Breaker, "breaker"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabel {
    decision: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Word(&'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }
}

// === impl Metrics ===

impl Metrics {
    /// All at zero, every label there from the start: a counter that appears with its first event can't be watched.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("kota");
        let decisions = Family::<DecisionLabel, Counter>::default();
        let unknown = Family::<ReasonLabel, Counter>::default();
        let decision = |word| decisions.get_or_create_owned(&DecisionLabel { decision: Word(word) });
        let settled = Family::<DirectionLabel, Counter>::default();
        let direction = |word| settled.get_or_create_owned(&DirectionLabel { direction: Word(word) });
        let inner = Inner {
            released: Counter::default(),
            renewed: Counter::default(),
            gone: Counter::default(),
            given: direction("give"),
            taken: direction("take"),
            lost_changes: Counter::default(),
            allowed: decision("allow"),
            denied: decision("deny"),
            undecided: decision("unknown"),
            unknown: REASONS
                .map(|(_, word)| unknown.get_or_create_owned(&ReasonLabel { reason: Word(word) })),
            script_seconds: Histogram::new(SCRIPT_SECONDS),
            batch_checks: Histogram::new(BATCH_CHECKS),
            script_loads: Counter::default(),
            returns_lost: Counter::default(),
            reconnects: Counter::default(),
            refused_connections: Counter::default(),
            store_up: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("decisions", "Checks by what was answered", decisions);
        registry.register("unknown", "Checks that could not be decided, by reason", unknown);
        registry.register(
            "slots_released",
            "Slots of concurrency that were given back",
            inner.released.clone(),
        );
        registry.register("slots_renewed", "Leases of slots that were begun anew", inner.renewed.clone());
        registry.register(
            "slots_gone",
            "Renewals of slots that the store has forgotten: their streams run uncounted",
            inner.gone.clone(),
        );
        registry.register(
            "settled",
            "Costs that were settled after the fact, by which way the tokens went",
            settled,
        );
        registry.register(
            "lost_changes",
            "Releases, renewals and settlements that were given up: the store never said that they were done",
            inner.lost_changes.clone(),
        );
        registry.register(
            "script_seconds",
            "Time of a store call, from sending to its answer",
            inner.script_seconds.clone(),
        );
        registry.register("batch_checks", "Checks per batch", inner.batch_checks.clone());
        registry.register(
            "script_loads",
            "Times the scripts were sent to the store",
            inner.script_loads.clone(),
        );
        registry.register(
            "returns_lost",
            "Charges of checks that were not admitted and may not have been given back",
            inner.returns_lost.clone(),
        );
        registry.register("store_connects", "Connections made to the store", inner.reconnects.clone());
        registry.register(
            "refused_connections",
            "Connections turned away: too many, or of a user that is not allowed",
            inner.refused_connections.clone(),
        );
        registry.register("store_up", "Whether the store answers (1) or not (0)", inner.store_up.clone());
        Self { inner: Arc::new(Inner { registry, ..inner }) }
    }

    /// A batch of so many checks was read.
    pub fn batch(&self, checks: usize) {
        self.inner.batch_checks.observe(checks as f64);
    }

    /// These checks were answered.
    pub fn answers(&self, answers: &[Answer]) {
        let (mut allowed, mut denied) = (0, 0);
        for answer in answers {
            match answer {
                Answer::Admitted(_) => allowed += 1,
                Answer::Denied(_) => denied += 1,
                Answer::Unknown(reason) => self.unknown(*reason, 1),
            }
        }
        self.inner.allowed.inc_by(allowed);
        self.inner.denied.inc_by(denied);
    }

    /// What became of a change. Tokens for a bucket that is full again are none.
    pub fn change(&self, change: &Change, changed: Changed) {
        let counter = match (&change.kind, changed) {
            (Kind::Renew { .. }, Changed::No) => &self.inner.gone,
            (_, Changed::No | Changed::Unknown | Changed::Unsent) | (Kind::Pardon, _) => return,
            (Kind::Release { .. }, _) => &self.inner.released,
            (Kind::Renew { .. }, _) => &self.inner.renewed,
            (Kind::Settle { settlement: Settlement::Give, .. }, _) => &self.inner.given,
            (Kind::Settle { settlement: Settlement::Take, .. }, _) => &self.inner.taken,
        };
        counter.inc();
    }

    /// A change was given up. Of a pardon its caller hears.
    pub fn lost_change(&self, change: &Change) {
        if !matches!(change.kind, Kind::Pardon) {
            self.inner.lost_changes.inc();
        }
    }

    /// So many checks could not be decided, for this reason.
    pub fn unknown(&self, reason: Unknown, checks: usize) {
        let checks = checks as u64;
        self.inner.undecided.inc_by(checks);
        if let Some(place) = REASONS.iter().position(|(known, _)| *known == reason) {
            self.inner.unknown[place].inc_by(checks);
        }
    }

    /// A store call took so long.
    pub fn script(&self, took: Duration) {
        self.inner.script_seconds.observe(took.as_secs_f64());
    }

    /// The scripts were sent to the store.
    pub fn script_load(&self) {
        self.inner.script_loads.inc();
    }

    /// So many charges of checks that were not admitted may not have been given back.
    pub fn returns_lost(&self, charges: usize) {
        self.inner.returns_lost.inc_by(charges as u64);
    }

    /// A connection to the store was made.
    pub fn connect(&self) {
        self.inner.reconnects.inc();
    }

    /// A connection was turned away.
    pub fn refuse(&self) {
        self.inner.refused_connections.inc();
    }

    /// All of them in the text form that Prometheus reads.
    #[must_use]
    pub fn render(&self, store: &impl Store) -> String {
        self.inner.store_up.set(i64::from(store.status() == Status::Up));
        let mut out = String::new();
        // Writing to a string can't fail.
        let _ = text::encode(&mut out, &self.inner.registry);
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    #[test]
    fn every_metric_is_there_from_the_start_under_its_name() {
        let metrics = Metrics::new();
        metrics.answers(&[
            Answer::Admitted(vec![]),
            Answer::Denied(vec![]),
            Answer::Unknown(Unknown::RedisTimeout),
        ]);
        metrics.batch(3);
        metrics.script_load();
        let text = metrics.render(&Memory::new(1));
        for line in [
            "kota_decisions_total{decision=\"allow\"} 1",
            "kota_decisions_total{decision=\"deny\"} 1",
            "kota_decisions_total{decision=\"unknown\"} 1",
            "kota_unknown_total{reason=\"redis_timeout\"} 1",
            "kota_unknown_total{reason=\"shed\"} 0",
            "kota_slots_released_total 0",
            "kota_slots_renewed_total 0",
            "kota_slots_gone_total 0",
            "kota_settled_total{direction=\"give\"} 0",
            "kota_settled_total{direction=\"take\"} 0",
            "kota_lost_changes_total 0",
            "kota_script_seconds_count 0",
            "kota_batch_checks_bucket{le=\"4.0\"} 1",
            "kota_script_loads_total 1",
            "kota_returns_lost_total 0",
            "kota_store_up 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
    }
}
