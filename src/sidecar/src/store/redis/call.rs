//! A check as a call of the script, and its reply as an answer.

use super::arguments;
use super::rights;
use super::scripts::ScriptId;
use crate::asks::{Ask, Asks};
use limits::decision::Limit;
use protocol::batch::{Answer, Outcome, Verdict};
use redis::{Cmd, Pipeline, ServerError, ServerErrorKind, Value};
use std::fmt;

/// Values of the reply per rule.
const PER_RULE: usize = 3;
/// How Redis begins to tell that a right was missing within a script: 7.0, then 6.2. Newer ones say NOPERM.
const NO_RIGHT_IN_SCRIPT: [&str; 2] =
    ["The user executing the script can't ", "Error running script (call to f_"];

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no connection; the call was not sent.
    Away,
    /// The connection was lost; the call may have run.
    Lost,
    /// The server does not know the script; the call did not run.
    NoScript,
    /// The slot is another node's; the call did not run. The place is as that node told it.
    Moved(String),
    /// The slot is on its way to another node, and so are all of the call's keys, if there are any; it did not run.
    Ask(String),
    /// The slot is on its way to another node, and some of the call's keys are there; it did not run.
    TryAgain,
    /// The node knows no owner of the slot, or not enough of the cluster; it did not run.
    ClusterDown,
    /// The user lacks a right; Redis does not always say which.
    NoRight,
    /// The code of another error, such as `OOM`.
    Other(String),
}

/// The calls of these checks.
pub(super) fn pipeline(asks: &Asks, checks: &[usize]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(checks.len());
    for &index in checks {
        pipeline.add_command(command(asks, index, asks.check(index)));
    }
    pipeline
}

/// The call of these rules, all of the check of that index or some, by the server's clock.
pub(super) fn command(asks: &Asks, index: usize, check: &[Ask]) -> Cmd {
    let rules = check.len();
    let keys_bytes: usize = check.iter().map(|ask| asks.key(ask).len()).sum();
    let mut command = Cmd::with_capacity(4 + rules * (1 + arguments::MAX), 64 + keys_bytes + rules * 48);
    command.arg("EVALSHA").arg(ScriptId::Decide.sha()).arg(rules);
    for ask in check {
        command.arg(asks.key(ask));
    }
    command.arg("");
    for ask in check {
        let flag = match (ask.shadow, ask.penalty) {
            (false, None) => "e",
            (true, None) => "s",
            (false, Some(_)) => "ep",
            (true, Some(_)) => "sp",
        };
        command.arg(ask.limit.tag()).arg(flag).arg(ask.cost);
        arguments::limit(&mut command, &ask.limit);
        if matches!(ask.limit, Limit::Concurrency(_)) {
            command.arg(asks.slot_of(index));
        }
        arguments::penalty(&mut command, ask.penalty.as_ref());
    }
    command
}

/// The answer in a reply to a check of so many rules.
pub(super) fn answer(reply: Value, rules: usize) -> Result<Answer, Refusal> {
    let values = match reply {
        Value::Array(values) => values,
        Value::ServerError(error) => return Err(refusal(&error)),
        _ => return Err(garbage()),
    };
    let Some((Value::Int(admitted), rest)) = values.split_first() else { return Err(garbage()) };
    if rest.len() != rules * PER_RULE {
        return Err(garbage());
    }
    let outcomes: Option<Vec<Outcome>> = rest.chunks_exact(PER_RULE).map(outcome).collect();
    match (admitted, outcomes) {
        (1, Some(outcomes)) => Ok(Answer::Admitted(outcomes)),
        (0, Some(outcomes)) => Ok(Answer::Denied(outcomes)),
        _ => Err(garbage()),
    }
}

/// What an error means. Of its text, which may hold a key, nothing is kept but the code.
pub(super) fn refusal(error: &ServerError) -> Refusal {
    match error.kind() {
        Some(ServerErrorKind::NoScript) => Refusal::NoScript,
        Some(ServerErrorKind::NoPerm) => Refusal::NoRight,
        Some(ServerErrorKind::Moved) => Refusal::Moved(told_place(error)),
        Some(ServerErrorKind::Ask) => Refusal::Ask(told_place(error)),
        Some(ServerErrorKind::TryAgain) => Refusal::TryAgain,
        Some(ServerErrorKind::ClusterDown) => Refusal::ClusterDown,
        _ if error.code() == "ERR" && error.details().is_some_and(tells_no_right) => Refusal::NoRight,
        _ => Refusal::Other(error.code().to_owned()),
    }
}

/// The place in `MOVED 3999 10.0.0.7:6379`.
fn told_place(error: &ServerError) -> String {
    error.details().and_then(|text| text.split(' ').nth(1)).unwrap_or_default().to_owned()
}

fn tells_no_right(text: &str) -> bool {
    let [now, before] = NO_RIGHT_IN_SCRIPT;
    text.starts_with(now) || (text.starts_with(before) && text.contains(now))
}

fn garbage() -> Refusal {
    Refusal::Other("an answer of another form".to_owned())
}

fn outcome(values: &[Value]) -> Option<Outcome> {
    let [Value::Int(verdict), Value::Int(left), Value::Int(wait_ms)] = values else { return None };
    let verdict = match verdict {
        0 => Verdict::Wait,
        1 => Verdict::Admit,
        2 => Verdict::Never,
        _ => return None,
    };
    Some(Outcome {
        verdict,
        left: u64::try_from(*left).ok()?,
        wait_ms: u64::try_from(*wait_ms).ok()?,
        leased: 0,
    })
}

// === impl Refusal ===

impl Refusal {
    /// Whether the server, or who we are there, is not what it was when the connection was checked.
    pub(super) fn wants_a_check(&self) -> bool {
        match self {
            Self::Away
            | Self::Lost
            | Self::NoScript
            | Self::Moved(_)
            | Self::Ask(_)
            | Self::TryAgain
            | Self::ClusterDown => false,
            Self::NoRight => true,
            Self::Other(code) => matches!(code.as_str(), "NOAUTH" | "READONLY" | "WRONGPASS"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => write!(out, "there is no connection"),
            Self::Lost => write!(out, "the connection was lost"),
            Self::NoScript => write!(out, "NOSCRIPT"),
            Self::Moved(_) => write!(out, "MOVED"),
            Self::Ask(_) => write!(out, "ASK"),
            Self::TryAgain => write!(out, "TRYAGAIN"),
            Self::ClusterDown => write!(out, "CLUSTERDOWN"),
            Self::NoRight => write!(out, "its user lacks a right; grant {}", rights::grant(true)),
            Self::Other(code) => write!(out, "{code}"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use limits::concurrency::Concurrency;
    use limits::penalty::Penalty;
    use limits::refill::Refill;
    use limits::sliding_window::SlidingWindow;
    use limits::token_bucket::TokenBucket;

    /// The words of a command, with blanks between.
    pub(in crate::store::redis) fn words(command: &Cmd) -> String {
        let packed = String::from_utf8(command.get_packed_command()).unwrap();
        let lines = packed.split("\r\n").skip(1).filter(|line| !line.starts_with('$'));
        lines.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }

    fn ints(values: &[i64]) -> Value {
        Value::Array(values.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn a_call_is_keys_then_the_clock_then_what_each_rule_wants() {
        let mut asks = Asks::default();
        let key = |key: &'static str| move |into: &mut Vec<u8>| into.extend_from_slice(key.as_bytes());
        let bucket = TokenBucket::new(100, Refill::new(1, 2).unwrap(), 0).unwrap();
        asks.call(Limit::TokenBucket(bucket), None, 3, false, key("a"));
        let never = TokenBucket::new(7, Refill::NEVER, 60).unwrap();
        asks.call(Limit::TokenBucket(never), None, 1, true, key("b"));
        let window = SlidingWindow::new(9, 60).unwrap();
        let penalty = Penalty::new(3, 60, 20, bucket).unwrap();
        asks.call(Limit::SlidingWindow(window), Some(penalty), 1, false, key("c"));
        let slots = Concurrency::new(5, 10).unwrap();
        asks.call(Limit::Concurrency(slots), None, 1, true, key("d"));
        asks.slot(b"slot");
        assert!(asks.end_check());
        let wanted = "4 a b c d  tb1 e 3 100 1 2 0 tb1 s 1 7 0 1 60000 \
                      sw1 ep 1 9 60000 3 60000 20000 100 1 2 0 cc1 s 1 5 10000 slot";
        let got = words(&command(&asks, 0, asks.check(0)));
        assert_eq!(got, format!("EVALSHA {} {wanted}", ScriptId::Decide.sha()));
    }

    #[test]
    fn replies_become_answers() {
        let outcome = |verdict, left, wait_ms| Outcome { verdict, left, wait_ms, leased: 0 };
        assert_eq!(answer(ints(&[1, 1, 9, 0]), 1), Ok(Answer::Admitted(vec![outcome(Verdict::Admit, 9, 0)])));
        assert_eq!(
            answer(ints(&[0, 0, 0, 200, 2, 5, 0]), 2),
            Ok(Answer::Denied(vec![outcome(Verdict::Wait, 0, 200), outcome(Verdict::Never, 5, 0)]))
        );
    }

    #[test]
    fn a_missing_right_is_told_from_other_errors_and_no_key_is_kept() {
        let refusal = |text: &str| {
            let error = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            answer(error, 1).unwrap_err()
        };
        for text in [
            "NOPERM User kota has no permissions to access the key rl:{k}",
            "ERR The user executing the script can't run this command or subcommand script: f00, on @user_script:1.",
            "ERR The user executing the script can't access at least one of the keys mentioned in rl:{k}",
            "ERR Error running script (call to f_f00): @user_script:1: @user_script: 1: The user executing the script can't run this",
        ] {
            let refusal = refusal(text);
            assert!(refusal == Refusal::NoRight && refusal.wants_a_check(), "{text}: {refusal:?}");
            assert!(refusal.to_string().contains("+mget +set") && !refusal.to_string().contains("rl:{k}"));
        }
        for text in
            ["ERR Error running script (call to f_f00): rl:{k}", "KOTA The user executing the script can't "]
        {
            let refusal = refusal(text);
            assert!(
                !refusal.wants_a_check() && text.split(' ').next() == Some(&*refusal.to_string()),
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn a_reply_of_another_form_is_no_answer() {
        for reply in [
            ints(&[]),
            ints(&[1]),
            ints(&[1, 1, 9]),
            ints(&[1, 3, 9, 0]),
            ints(&[2, 1, 9, 0]),
            ints(&[1, 1, -1, 0]),
            ints(&[1, 1, 9, 0, 1]),
            Value::Okay,
            Value::Array(vec![Value::Nil]),
        ] {
            assert!(matches!(answer(reply.clone(), 1), Err(Refusal::Other(_))), "{reply:?}");
        }
    }
}
