//! Script and model at once, for cases in virtual time.

use limits::decision::{Bucket, State};

use crate::model::{Answer, Ask, Change, Kind, Model, Request, Step, packed};
use crate::script::Script;

pub(crate) const START_US: u64 = 1_790_000_000_123_457;
pub(crate) const SECOND_US: u64 = 1_000_000;

/// Script and model, which must agree, with time as the test says.
pub(crate) struct Both {
    pub(crate) script: Script,
    pub(crate) model: Model,
}

// === impl Both ===

impl Both {
    pub(crate) fn start() -> Self {
        Self { script: Script::start(), model: Model::default() }
    }

    pub(crate) fn call(&mut self, now_us: u64, asks: &[Ask]) -> Answer {
        let expected = [self.model.call(Request { now_us, asks: asks.to_vec() })];
        self.script.send(&expected);
        self.script.compare(&expected[0]).expect("an answer")
    }

    /// Puts a state into both, as if it had been written.
    pub(crate) fn remember(&mut self, key: &str, state: State) {
        let bucket = Bucket { state, strikes: None };
        self.script.command(&[b"SET", key.as_bytes(), &packed(&bucket)]);
        self.model.buckets.insert(key.to_owned(), bucket);
    }

    /// Whether there was something to change.
    pub(crate) fn change(&mut self, now_us: u64, ask: &Ask, kind: Kind) -> bool {
        let expected = [self.model.change(Change { now_us, ask: ask.clone(), kind })];
        self.script.send(&expected);
        self.script.compare(&expected[0]);
        matches!(expected[0].step, Step::Change(_, true))
    }
}
