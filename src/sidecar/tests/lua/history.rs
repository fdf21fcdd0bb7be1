//! Random histories: costs, refills, clock steps, edits of limits, several rules of every algorithm, penalties, and changes between.
//! Scripts and model agree in every answer and state, and what each admits keeps the bound.

use crate::bound::Bound;
use crate::model::Step;
use crate::random::Random;
use crate::script::Script;
use crate::steps::{History, Seen};

/// Steps in flight: enough that Redis never waits for us.
const BATCH: usize = 500;

#[test]
fn script_and_model_agree_in_a_tenth_of_a_million_random_steps() {
    run(Script::start(), 100_000);
}

#[test]
fn script_and_model_agree_in_a_tenth_of_a_million_random_steps_in_a_cluster() {
    run(Script::start_in_cluster(3), 100_000);
}

#[test]
#[ignore = "over a minute; make test runs it by name"]
fn script_and_model_agree_in_a_million_random_steps() {
    run(Script::start(), 1_000_000);
}

#[test]
#[ignore = "over a minute; make test runs it by name"]
fn script_and_model_agree_in_a_million_random_steps_in_a_cluster() {
    run(Script::start_in_cluster(3), 1_000_000);
}

fn run(mut script: Script, steps: usize) {
    let mut history = History::new(Random::seeded());
    let (mut of_script, mut of_model) = (Bound::default(), Bound::default());
    let mut seen = Seen::default();
    let mut in_flight = Vec::new();
    for _ in 0..=steps.div_ceil(BATCH) {
        // The model works on the next batch while Redis works on this one.
        let next: Vec<_> = (0..BATCH).map(|_| history.step()).collect();
        script.send(&next);
        for expected in std::mem::replace(&mut in_flight, next) {
            let answer = script.compare(&expected);
            seen.add(&expected.step);
            match (&expected.step, answer) {
                (Step::Decide(request, wanted), Some(got)) => {
                    of_script.add(request, &got);
                    of_model.add(request, wanted);
                }
                (Step::Change(change, _), _) => {
                    of_script.settled(change);
                    of_model.settled(change);
                }
                _ => {}
            }
        }
    }
    for expected in in_flight {
        script.compare(&expected);
    }
    script.compare_states(&history.model);
    seen.check(steps);
}
