//! The order within a batch: a check that asks a bucket which the batch changes is asked after that, all others at once.

use super::Decider;
use crate::asks::Asks;
use crate::changes::{Change, Changed};
use protocol::batch::{Answer, Unknown};
use std::collections::HashSet;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// The changes of buckets that a check asks, and the others.
pub(super) fn parted(changes: Vec<Change>, asks: &Asks) -> (Vec<Change>, Vec<Change>) {
    if changes.is_empty() || asks.is_empty() {
        return (Vec::new(), changes);
    }
    let asked: HashSet<&[u8]> = asks.checks().flatten().map(|ask| asks.key(ask)).collect();
    changes.into_iter().partition(|change| asked.contains(change.key.as_slice()))
}

// === impl Decider ===

impl Decider {
    /// Asks at once what asks none of the buckets that are being changed, and the rest once that is done.
    pub(super) async fn ask_in_order(
        &self,
        changing: JoinHandle<Vec<Changed>>,
        changed: &HashSet<Vec<u8>>,
        asks: &Asks,
        deadline: Instant,
    ) -> Vec<Answer> {
        let waits = |index: &usize| asks.check(*index).iter().any(|ask| changed.contains(asks.key(ask)));
        let (later, now): (Vec<usize>, Vec<usize>) = (0..asks.len()).partition(waits);
        let (asks_later, asks_now) = (asks.only(&later), asks.only(&now));
        let afterwards = async {
            // Late or not, the changes go on; `ask_store` looks at the clock.
            let _ = timeout_at(deadline, changing).await;
            self.ask_store(&asks_later, deadline).await
        };
        let (answers_later, answers_now) = tokio::join!(afterwards, self.ask_store(&asks_now, deadline));
        let mut answers = vec![Answer::Unknown(Unknown::RedisError); asks.len()];
        for (index, answer) in later.into_iter().zip(answers_later).chain(now.into_iter().zip(answers_now)) {
            answers[index] = answer;
        }
        answers
    }
}
