//! Decisions on a cluster: a check whose keys lie in several slots is decided slot by slot, all at once, and given back where
//! that does not come to an admission.
//!
//! The parts of a check, each all-or-nothing by itself: all admit → admitted; one denies → denied, and what the others took is
//! given back; one is unknown → unknown, and what is known to be taken is given back. A part that admits after the deadline is
//! waited for, a while, and given back too. So never is more admitted than each limit allows; but for the instant between a
//! charge and its return, others find less than there is.

use super::post::Post;
use super::returns::{self, back, taken, uncharged};
use super::{Cluster, Inner, slot};
use crate::asks::{Ask, Asks};
use crate::changes::{Change, Changed};
use crate::store::redis::call::{self, Refusal};
use protocol::batch::{Answer, Outcome, Unknown, Verdict};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// The rules of one check whose keys lie in one slot.
struct Part {
    check: usize,
    rules: Vec<usize>,
    slot: u16,
    state: State,
}

enum State {
    /// Not answered.
    Open,
    Answered(Answer),
    /// It came to nothing.
    Failed,
    /// Its keys lie on two nodes, since its slot is being moved: it is asked key by key, as other parts.
    Split,
}

/// A decision on a batch that is under way.
struct Round<'a> {
    asks: &'a Asks,
    post: Post,
    /// By the number of their calls.
    parts: Vec<Part>,
    /// When the first call went.
    sent: Instant,
    /// Charges of parts whose answer was lost.
    lost: usize,
}

// === impl Cluster ===

impl Cluster {
    /// One answer per check.
    pub(in crate::store::redis) async fn decide(&self, asks: &Asks, deadline: Instant) -> Vec<Answer> {
        let mut round = Round::new(&self.inner, asks, deadline);
        if timeout_at(deadline, round.hear()).await.is_err() {
            self.late();
        }
        let (answers, backs) = round.answers();
        let sent = round.sent;
        self.inner.metrics.returns_lost(round.lost);
        round.straggle(&self.inner);
        if !backs.is_empty()
            && let Some(giving) = returns::begin_to_give(&self.inner, backs, sent)
        {
            // Who hears of a denial finds nothing of it any more, if time allows.
            let _ = timeout_at(deadline, giving).await;
        }
        answers
    }

    /// One outcome per change.
    pub(in crate::store::redis) async fn change(
        &self,
        changes: &[Change],
        deadline: Instant,
    ) -> Vec<Changed> {
        let mut changed = vec![Changed::Unknown; changes.len()];
        if timeout_at(deadline, returns::send(&self.inner, changes, deadline, &mut changed)).await.is_err() {
            self.late();
        }
        changed
    }
}

// === impl Round ===

impl<'a> Round<'a> {
    /// Sends all checks.
    fn new(inner: &Arc<Inner>, asks: &'a Asks, deadline: Instant) -> Self {
        let post = Post::new(Arc::clone(inner), deadline, deadline + returns::PATIENCE);
        let mut round =
            Self { asks, post, parts: Vec::with_capacity(asks.len()), sent: Instant::now(), lost: 0 };
        for (check, rules) in asks.checks().enumerate() {
            let mut slots: Vec<(u16, Vec<usize>)> = Vec::with_capacity(1);
            for (nth, ask) in rules.iter().enumerate() {
                let slot = slot::of(asks.key(ask));
                match slots.iter_mut().find(|(known, _)| *known == slot) {
                    Some((_, nths)) => nths.push(nth),
                    None => slots.push((slot, vec![nth])),
                }
            }
            slots.into_iter().for_each(|(slot, rules)| round.add(check, slot, rules));
        }
        round.post.send();
        round
    }

    fn add(&mut self, check: usize, slot: u16, rules: Vec<usize>) {
        let all = self.asks.check(check);
        let command = if rules.len() == all.len() {
            call::command(self.asks, check, all)
        } else {
            let some: Vec<Ask> = rules.iter().map(|nth| all[*nth].clone()).collect();
            call::command(self.asks, check, &some)
        };
        self.post.add(slot, command);
        self.parts.push(Part { check, rules, slot, state: State::Open });
    }

    /// Takes in the replies until all are there.
    async fn hear(&mut self) {
        while let Some((number, reply)) = self.post.next().await {
            let Part { check, slot, ref rules, .. } = self.parts[number];
            self.parts[number].state = match reply.and_then(|value| call::answer(value, rules.len())) {
                Ok(answer) => State::Answered(answer),
                Err(Refusal::TryAgain) if rules.len() > 1 => {
                    for nth in rules.clone() {
                        self.add(check, slot, vec![nth]);
                    }
                    self.post.send();
                    State::Split
                }
                Err(refusal) => {
                    // It may be charged. Nobody else's check suffers for one that has no other part: it is not given back.
                    if refusal == Refusal::Lost && rules.len() < self.asks.check(check).len() {
                        self.lost += self.backs(&self.parts[number]).iter().flatten().count();
                    }
                    State::Failed
                }
            };
        }
    }

    /// The checks' answers, and what has to be given back.
    fn answers(&self) -> (Vec<Answer>, Vec<Change>) {
        let (mut answers, mut backs) = (Vec::with_capacity(self.asks.len()), Vec::new());
        for (check, numbers) in self.by_check().iter().enumerate() {
            let parts: Vec<&Part> = numbers.iter().map(|number| &self.parts[*number]).collect();
            let answer = match parts.as_slice() {
                [] => Answer::Admitted(Vec::new()),
                [Part { state: State::Answered(answer), .. }] => answer.clone(),
                parts => self.joined(check, parts),
            };
            if !matches!(answer, Answer::Admitted(_)) {
                for part in parts {
                    if let State::Answered(Answer::Admitted(outcomes)) = &part.state {
                        backs.extend(taken(self.backs(part), outcomes));
                    }
                }
            }
            answers.push(answer);
        }
        (answers, backs)
    }

    /// What the parts of a check come to together.
    fn joined(&self, check: usize, parts: &[&Part]) -> Answer {
        if parts.iter().any(|part| matches!(part.state, State::Failed)) {
            return Answer::Unknown(Unknown::RedisError);
        }
        if parts.iter().any(|part| matches!(part.state, State::Open)) {
            return Answer::Unknown(Unknown::RedisTimeout);
        }
        let denied = parts.iter().any(|part| matches!(part.state, State::Answered(Answer::Denied(_))));
        let rules = self.asks.check(check);
        let mut joined =
            vec![Outcome { verdict: Verdict::Admit, left: 0, wait_ms: 0, leased: 0 }; rules.len()];
        for part in parts {
            let (outcomes, uncharge) = match &part.state {
                State::Answered(Answer::Admitted(outcomes)) => (outcomes, denied),
                State::Answered(Answer::Denied(outcomes)) => (outcomes, false),
                _ => continue,
            };
            for (nth, outcome) in part.rules.iter().zip(outcomes) {
                joined[*nth] = if uncharge { uncharged(outcome, &rules[*nth]) } else { *outcome };
            }
        }
        if denied { Answer::Denied(joined) } else { Answer::Admitted(joined) }
    }

    /// The numbers of each check's parts, without those that were split.
    fn by_check(&self) -> Vec<Vec<usize>> {
        let mut checks: Vec<Vec<usize>> = (0..self.asks.len()).map(|_| Vec::with_capacity(1)).collect();
        for (number, part) in self.parts.iter().enumerate() {
            if !matches!(part.state, State::Split) {
                checks[part.check].push(number);
            }
        }
        checks
    }

    /// What gives back each rule of a part, if there is something to give back.
    fn backs(&self, part: &Part) -> Vec<Option<Change>> {
        let rules = self.asks.check(part.check);
        part.rules.iter().map(|nth| back(self.asks, part.check, &rules[*nth])).collect()
    }

    /// Waits, in the background, for the late parts of checks that have others, and gives back what they took.
    fn straggle(self, inner: &Arc<Inner>) {
        let of_several = self.by_check().into_iter().filter(|numbers| numbers.len() > 1).flatten();
        let late: HashMap<usize, Vec<Option<Change>>> = of_several
            .map(|number| (number, &self.parts[number]))
            .filter(|(_, part)| matches!(part.state, State::Open))
            .map(|(number, part)| (number, self.backs(part)))
            .collect();
        if !late.is_empty() {
            returns::begin_to_listen(inner, self.post, late, self.sent);
        }
    }
}
