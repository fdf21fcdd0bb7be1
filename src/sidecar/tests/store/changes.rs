//! The part of the suite that changes buckets, and has rules of several kinds.

use crate::ask::{Rule, admitted, change, one, outcomes, rule};
use limits::settle::Settlement;
use protocol::batch::Verdict;
use sidecar::changes::Changed;
use sidecar::store::Store;

/// What every store does, whatever it is made of.
pub(crate) async fn suite(store: &impl Store) {
    a_slot_that_was_released_first_is_not_taken(store).await;
    all_kinds_are_charged_together(store).await;
    tokens_are_settled_both_ways(store).await;
    a_penalty_holds_until_it_is_pardoned(store).await;
    changes_are_made_in_their_order(store).await;
}

async fn left(store: &impl Store, rule: &Rule) -> u64 {
    outcomes(&one(store, &[rule.clone().cost(0)]).await)[0].left
}

async fn a_slot_that_was_released_first_is_not_taken(store: &impl Store) {
    let slot = |id: &str| rule("early", 1).slots().holding(id);
    assert_eq!(change(store, &[slot("late").release()]).await, [Changed::Yes]);
    assert!(admitted(&one(store, &[slot("late")]).await));
    assert_eq!(change(store, &[slot("late").renew()]).await, [Changed::No]);
    assert!(admitted(&one(store, &[slot("other")]).await), "nothing was taken");
}

async fn all_kinds_are_charged_together(store: &impl Store) {
    let rules = |slot: &str| {
        [
            rule("kinds-a", 9),
            rule("kinds-b", 2).window(),
            rule("kinds-c", 9).slots().holding(slot),
            rule("kinds-d", 9).shadow(),
        ]
    };
    for slot in ["1", "2"] {
        assert!(admitted(&one(store, &rules(slot)).await));
    }
    let answer = one(store, &rules("3")).await;
    let verdicts: Vec<_> = outcomes(&answer).iter().map(|outcome| (outcome.verdict, outcome.left)).collect();
    let admit = |left| (Verdict::Admit, left);
    assert_eq!(verdicts, [admit(7), (Verdict::Wait, 0), admit(7), admit(7)]);
    assert!(!admitted(&answer));
    for (rule, wanted) in [(rule("kinds-a", 9), 7), (rule("kinds-b", 2).window(), 0), (rule("kinds-d", 9), 7)]
    {
        assert_eq!(left(store, &rule).await, wanted, "{rule:?}");
    }
    assert_eq!(
        outcomes(&one(store, &[rule("kinds-c", 9).slots().holding("2")]).await)[0].left,
        7,
        "held already"
    );
}

async fn tokens_are_settled_both_ways(store: &impl Store) {
    for rule in [rule("settled-a", 10), rule("settled-b", 10).window()] {
        let give = |tokens| rule.settle(Settlement::Give, tokens);
        let take = |tokens| rule.settle(Settlement::Take, tokens);
        assert_eq!(change(store, &[give(1)]).await, [Changed::No], "nothing to give back to");
        assert!(admitted(&one(store, &[rule.clone().cost(8)]).await));
        assert_eq!(change(store, &[give(5)]).await, [Changed::Yes]);
        assert_eq!(left(store, &rule).await, 7);
        assert_eq!(change(store, &[take(9)]).await, [Changed::Yes]);
        assert!(!admitted(&one(store, std::slice::from_ref(&rule)).await), "a debt");
        assert_eq!(change(store, &[take(1_000_000), give(15)]).await, [Changed::Yes; 2]);
        assert_eq!(left(store, &rule).await, 5, "of at most one capacity more");
    }
}

async fn a_penalty_holds_until_it_is_pardoned(store: &impl Store) {
    for rule in [rule("penalty-a", 2), rule("penalty-b", 2).window()] {
        let rule = rule.penalty_after(2);
        assert_eq!(change(store, &[rule.pardon()]).await, [Changed::No]);
        assert!(admitted(&one(store, &[rule.clone().cost(2)]).await));
        assert_eq!(change(store, &[rule.pardon()]).await, [Changed::No], "who was never denied has none");
        for _ in 0..2 {
            assert!(!admitted(&one(store, std::slice::from_ref(&rule)).await));
        }
        change(store, &[rule.settle(Settlement::Give, 2)]).await;
        let denied = one(store, &[rule.clone().cost(2)]).await;
        assert!(!admitted(&denied), "above what the penalty has");
        assert_eq!(change(store, &[rule.pardon(), rule.pardon()]).await, [Changed::Yes, Changed::No]);
        assert!(admitted(&one(store, &[rule.clone().cost(2)]).await));
    }
}

async fn changes_are_made_in_their_order(store: &impl Store) {
    let rule = rule("order", 100);
    assert!(admitted(&one(store, &[rule.clone().cost(50)]).await));
    let changes: Vec<_> =
        [(Settlement::Give, 60), (Settlement::Take, 10)].map(|(way, tokens)| rule.settle(way, tokens)).into();
    assert_eq!(change(store, &changes).await, [Changed::Yes; 2]);
    assert_eq!(left(store, &rule).await, 90);
    assert!(change(store, &[]).await.is_empty());
}
