//! A check as a call of the script, and its reply as an answer.

use crate::asks::{Ask, Asks};
use limits::decision::Limit;
use protocol::batch::{Answer, Outcome, Verdict};
use redis::{Cmd, Pipeline, ServerError, ServerErrorKind, Value};

/// Values of the reply per rule.
const PER_RULE: usize = 3;
/// Arguments per rule.
const ARGS_PER_RULE: usize = 7;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server does not know the script; the call did not run.
    NoScript,
    /// The code of another error, such as `OOM`.
    Other(String),
}

/// The calls of these checks.
pub(super) fn pipeline(sha: &str, asks: &Asks, checks: &[usize]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(checks.len());
    for &index in checks {
        pipeline.add_command(command(sha, asks, asks.check(index)));
    }
    pipeline
}

/// The call of one check, by the server's clock.
pub(super) fn command(sha: &str, asks: &Asks, check: &[Ask]) -> Cmd {
    let rules = check.len();
    let keys_bytes: usize = check.iter().map(|ask| asks.key(ask).len()).sum();
    let mut command = Cmd::with_capacity(4 + rules * (1 + ARGS_PER_RULE), 64 + keys_bytes + rules * 48);
    command.arg("EVALSHA").arg(sha).arg(rules);
    for ask in check {
        command.arg(asks.key(ask));
    }
    command.arg("");
    for ask in check {
        let Limit::TokenBucket(bucket) = ask.limit;
        command
            .arg(ask.limit.tag())
            .arg(if ask.shadow { "s" } else { "e" })
            .arg(ask.cost)
            .arg(bucket.capacity())
            .arg(bucket.refill().num())
            .arg(bucket.refill().den())
            .arg(bucket.idle_ms());
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

/// The code that starts an error, and whether it is the one for a forgotten script.
pub(super) fn refusal(error: &ServerError) -> Refusal {
    match error.kind() {
        Some(ServerErrorKind::NoScript) => Refusal::NoScript,
        _ => Refusal::Other(error.code().to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use limits::refill::Refill;
    use limits::token_bucket::TokenBucket;

    fn ints(values: &[i64]) -> Value {
        Value::Array(values.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn a_call_is_keys_then_the_clock_then_seven_per_rule() {
        let mut asks = Asks::default();
        let bucket = TokenBucket::new(100, Refill::new(1, 2).unwrap(), 0).unwrap();
        asks.call(Limit::TokenBucket(bucket), 3, false, |into| into.extend_from_slice(b"a"));
        let bucket = TokenBucket::new(7, Refill::NEVER, 60).unwrap();
        asks.call(Limit::TokenBucket(bucket), 1, true, |into| into.extend_from_slice(b"b"));
        assert!(asks.end_check());
        let packed = command("f00", &asks, asks.check(0)).get_packed_command();
        let words: Vec<String> = String::from_utf8(packed)
            .unwrap()
            .split("\r\n")
            .skip(1)
            .filter(|line| !line.starts_with('$'))
            .map(str::to_owned)
            .collect();
        let wanted = "EVALSHA f00 2 a b  tb1 e 3 100 1 2 0 tb1 s 1 7 0 1 60000 ";
        assert_eq!(words.join(" "), wanted);
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
