//! A change as a call of its script, and its reply as what became of it.

use super::arguments;
use super::call::Refusal;
use super::scripts::ScriptId;
use super::server::Reply;
use crate::changes::{Change, Changed, Kind};
use limits::concurrency::Concurrency;
use limits::settle::Settlement;
use redis::{Cmd, Value};

/// The call that makes this change, by the server's clock.
pub(super) fn command(change: &Change) -> Cmd {
    match &change.kind {
        Kind::Settle { limit, penalty, settlement, tokens, age_ms } => {
            let mut command = call(ScriptId::Settle, change);
            let way = match settlement {
                Settlement::Give => "give",
                Settlement::Take => "take",
            };
            let flag = if penalty.is_some() { "p" } else { "" };
            command.arg("").arg(limit.tag()).arg(flag).arg(way).arg(*tokens).arg(*age_ms);
            arguments::limit(&mut command, limit);
            arguments::penalty(&mut command, penalty.as_ref());
            command
        }
        Kind::Release { limit, slot } => of_slot(change, "release", limit, slot),
        Kind::Renew { limit, slot } => of_slot(change, "renew", limit, slot),
        Kind::Pardon => call(ScriptId::Pardon, change),
    }
}

/// What became of it.
pub(super) fn answer(reply: Reply) -> Changed {
    match reply {
        Ok(Value::Int(0)) => Changed::No,
        Ok(Value::Int(1)) => Changed::Yes,
        // Nothing ran.
        Err(
            Refusal::Away
            | Refusal::NoScript
            | Refusal::Moved(_)
            | Refusal::Ask(_)
            | Refusal::TryAgain
            | Refusal::ClusterDown,
        ) => Changed::Unsent,
        _ => Changed::Unknown,
    }
}

fn of_slot(change: &Change, what: &str, limit: &Concurrency, slot: &[u8]) -> Cmd {
    let mut command = call(ScriptId::Slot, change);
    command.arg("").arg(what).arg(limit.lease_ms()).arg(slot);
    command
}

fn call(script: ScriptId, change: &Change) -> Cmd {
    let mut command = Cmd::with_capacity(9 + arguments::MAX, 160 + change.key.len());
    command.arg("EVALSHA").arg(script.sha()).arg(1).arg(&change.key[..]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::call::tests::words;
    use limits::decision::Limit;
    use limits::penalty::Penalty;
    use limits::refill::Refill;
    use limits::sliding_window::SlidingWindow;
    use limits::token_bucket::TokenBucket;

    #[test]
    fn a_change_is_a_call_of_its_script_on_its_key() {
        let bucket = TokenBucket::new(100, Refill::new(1, 2).unwrap(), 0).unwrap();
        let window = Limit::SlidingWindow(SlidingWindow::new(7, 60).unwrap());
        let slots = Concurrency::new(3, 10).unwrap();
        let settle =
            |limit, penalty, settlement| Kind::Settle { limit, penalty, settlement, tokens: 5, age_ms: 9 };
        let penalty = Penalty::new(3, 60, 20, bucket).unwrap();
        for (kind, script, wanted) in [
            (
                settle(Limit::TokenBucket(bucket), None, Settlement::Give),
                ScriptId::Settle,
                " tb1  give 5 9 100 1 2 0",
            ),
            (
                settle(window, Some(penalty), Settlement::Take),
                ScriptId::Settle,
                " sw1 p take 5 9 7 60000 3 60000 20000 100 1 2 0",
            ),
            (Kind::Release { limit: slots, slot: b"s"[..].into() }, ScriptId::Slot, " release 10000 s"),
            (Kind::Renew { limit: slots, slot: b"s"[..].into() }, ScriptId::Slot, " renew 10000 s"),
            (Kind::Pardon, ScriptId::Pardon, ""),
        ] {
            let words = words(&command(&Change { key: b"k".to_vec(), kind }));
            let wanted = format!("EVALSHA {} 1 k {wanted}", script.sha());
            assert_eq!(words, wanted.trim_end());
        }
    }

    #[test]
    fn a_reply_tells_whether_something_was_changed() {
        assert_eq!(answer(Ok(Value::Int(1))), Changed::Yes);
        assert_eq!(answer(Ok(Value::Int(0))), Changed::No);
        assert_eq!(answer(Ok(Value::Okay)), Changed::Unknown);
        assert_eq!(answer(Err(Refusal::Lost)), Changed::Unknown);
    }
}
