//! The check batch, `POST /v1/decide`: what the filter asks and what the sidecar answers.
//!
//! A version byte, then postcard. The version decides the form of all that follows, so a reader that does not know it answers
//! [`Unknown::Version`] and touches nothing. Version 1 already has the fields of what later versions of Kota decide (leases,
//! give-backs, local counts, releases, renewals); a side that knows nothing of them sends them empty and ignores them.

use crate::name;
use serde::{Deserialize, Serialize};

/// The version that this build writes.
pub const VERSION: u8 = 1;
/// The most checks in a batch.
pub const CHECKS_MAX: usize = 64;
/// The largest batch and the largest answer, in bytes.
pub const BYTES_MAX: usize = 1024 * 1024;
/// The most values that the keys of a check's rules can be made of.
pub const VALUES_MAX: usize = limits::rule::RULES_PER_REQUEST_MAX * limits::rule::PARTS_MAX;
/// The longest id of a slot, in bytes.
pub const SLOT_MAX: usize = 64;
/// The response header by which a genuine answer is told from one that a proxy made up.
pub const MARKER: (&str, &str) = ("x-kota", "1");

/// What one worker of one filter asks in one callout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch<'a> {
    /// The configuration's domain: the first part of every key.
    #[serde(borrow)]
    pub domain: &'a str,
    /// Milliseconds that are left to answer, from when this was sent.
    pub budget_ms: u32,
    /// The rules that the checks refer to by index, each once.
    #[serde(borrow)]
    pub rules: Vec<RuleForm<'a>>,
    /// One per request, in the order in which the answers come back.
    #[serde(borrow)]
    pub checks: Vec<Check<'a>>,
    /// Leased tokens that were not used.
    #[serde(borrow)]
    pub give_backs: Vec<Charge<'a>>,
    /// Decisions that were made without asking.
    pub local_counts: Vec<LocalCount>,
    /// Slots of concurrency that are free again.
    #[serde(borrow)]
    pub releases: Vec<Slot<'a>>,
    /// Slots of concurrency that are still held.
    #[serde(borrow)]
    pub renewals: Vec<Slot<'a>>,
}

/// A rule's parameters: the filter sends those it applies, so the two sides can't disagree about a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleForm<'a> {
    /// The rule's id.
    pub id: &'a str,
    /// The algorithm with its parameters.
    pub algorithm: Algorithm,
    /// Whether the rule only watches.
    pub shadow: bool,
}

/// An algorithm with its parameters, as they were configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// See `limits::token_bucket`.
    TokenBucket {
        /// Tokens.
        capacity: u64,
        /// Numerator of the reduced fraction of tokens per second, see `limits::refill`.
        refill_num: u64,
        /// Its denominator.
        refill_den: u64,
        /// Seconds after which a bucket that never refills starts anew; else 0.
        idle_s: u64,
    },
    /// At most so many in any window. Not decided by this version.
    SlidingWindow {
        /// Requests.
        capacity: u64,
        /// Seconds.
        window_s: u64,
    },
    /// At most so many at once. Not decided by this version.
    Concurrency {
        /// Requests.
        capacity: u64,
        /// Seconds until a slot is free unless it is renewed.
        lease_s: u64,
    },
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check<'a> {
    /// The descriptor values that make the keys, each once.
    #[serde(borrow)]
    pub values: Vec<Value<'a>>,
    /// The rules that apply.
    pub calls: Vec<Call>,
    /// Times the cost that may be taken as a lease, 0 for none.
    pub lease: u32,
    /// The id of a slot, for rules of concurrency; empty without.
    pub slot: &'a [u8],
}

/// A descriptor's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value<'a> {
    /// The descriptor's name.
    pub kind: &'a str,
    /// Its value, at most `limits::descriptor::VALUE_MAX` bytes of any kind; `None` where the key is shared by all who lack it.
    pub bytes: Option<&'a [u8]>,
    /// Whether it must never be seen.
    pub secret: bool,
}

/// One rule of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Index into [`Batch::rules`].
    pub rule: u16,
    /// Tokens that the request costs.
    pub cost: u64,
    /// Indices into [`Check::values`]; the first is the client. Empty: the rule's only bucket.
    pub key: Vec<u8>,
}

/// Tokens of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge<'a> {
    /// Index into [`Batch::rules`].
    pub rule: u16,
    /// The bucket's key, the first is the client.
    #[serde(borrow)]
    pub key: Vec<Value<'a>>,
    /// Tokens.
    pub tokens: u64,
}

/// Decisions of one rule that were made without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCount {
    /// Index into [`Batch::rules`].
    pub rule: u16,
    /// Requests admitted.
    pub allowed: u64,
    /// Requests denied.
    pub denied: u64,
}

/// A slot of concurrency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot<'a> {
    /// Index into [`Batch::rules`].
    pub rule: u16,
    /// The bucket's key, the first is the client.
    #[serde(borrow)]
    pub key: Vec<Value<'a>>,
    /// The id that the filter made.
    pub id: &'a [u8],
}

/// What the sidecar answers to a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// One per check, in their order.
    pub answers: Vec<Answer>,
    /// Milliseconds for which asking again is useless, since the store is known to be away; 0 while it is not.
    pub unavailable_for_ms: u32,
}

/// What the sidecar answers to one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// All enforcing rules admit; one outcome per call, in their order.
    Admitted(Vec<Outcome>),
    /// At least one enforcing rule does not; nothing was charged.
    Denied(Vec<Outcome>),
    /// Nobody can say.
    Unknown(Unknown),
}

/// What one rule says; the numbers are those of `limits::decision::Outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The rule's own verdict.
    pub verdict: Verdict,
    /// Whole tokens left.
    pub left: u64,
    /// Milliseconds.
    pub wait_ms: u64,
    /// Tokens leased, of which this request took its cost; 0 without a lease.
    pub leased: u64,
}

/// See `limits::decision::Verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Not now.
    Wait,
    /// Yes.
    Admit,
    /// The cost is above the capacity.
    Never,
}

/// Why the sidecar can't say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unknown {
    /// The version byte, or something in the batch, belongs to another version.
    Version,
    /// The store did not answer in time.
    RedisTimeout,
    /// The store refused, or is away.
    RedisError,
    /// More is being decided than the sidecar takes on at once.
    Shed,
    /// The store is known to be away and was not asked.
    Breaker,
}

/// Why bytes are no batch and no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The first byte names a version that this build does not read; 0 also stands for no byte at all.
    Version(u8),
    /// The rest is not what the version says, or out of its bounds.
    Malformed,
}

/// Writes a batch.
///
/// # Errors
/// [`WireError::Malformed`] if it is out of bounds.
pub fn encode_batch(batch: &Batch<'_>, into: Vec<u8>) -> Result<Vec<u8>, WireError> {
    encode(batch, into)
}

/// Reads a batch. References are checked: every index points at something.
///
/// # Errors
/// See [`WireError`].
pub fn decode_batch(bytes: &[u8]) -> Result<Batch<'_>, WireError> {
    let batch: Batch<'_> = decode(bytes)?;
    if in_bounds(&batch) { Ok(batch) } else { Err(WireError::Malformed) }
}

/// Writes an answer.
///
/// # Errors
/// [`WireError::Malformed`] if it is out of bounds.
pub fn encode_answers(answers: &Answers) -> Result<Vec<u8>, WireError> {
    encode(answers, Vec::new())
}

/// Reads an answer.
///
/// # Errors
/// See [`WireError`].
pub fn decode_answers(bytes: &[u8]) -> Result<Answers, WireError> {
    let answers: Answers = decode(bytes)?;
    let fits = |answer: &Answer| match answer {
        Answer::Admitted(outcomes) | Answer::Denied(outcomes) => {
            outcomes.len() <= limits::rule::RULES_PER_REQUEST_MAX
        }
        Answer::Unknown(_) => true,
    };
    let all_fit = answers.answers.len() <= CHECKS_MAX && answers.answers.iter().all(fits);
    if all_fit { Ok(answers) } else { Err(WireError::Malformed) }
}

fn encode<T: Serialize>(value: &T, mut into: Vec<u8>) -> Result<Vec<u8>, WireError> {
    into.clear();
    into.push(VERSION);
    postcard::to_extend(value, into).map_err(|_| WireError::Malformed)
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, WireError> {
    let Some((&version, rest)) = bytes.split_first() else { return Err(WireError::Version(0)) };
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    if bytes.len() > BYTES_MAX {
        return Err(WireError::Malformed);
    }
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) => Ok(value),
        _ => Err(WireError::Malformed),
    }
}

/// What the filter never sends may come from somebody else: names are checked as the configuration's are, since keys are made of
/// them, and every index has to point at something.
fn in_bounds(batch: &Batch<'_>) -> bool {
    let rule_exists = |rule: u16| usize::from(rule) < batch.rules.len();
    let slot_fits =
        |slot: &Slot<'_>| rule_exists(slot.rule) && key_fits(&slot.key) && slot.id.len() <= SLOT_MAX;
    name::is_domain(batch.domain)
        && batch.rules.iter().all(|rule| name::is_id(rule.id))
        && batch.checks.len() <= CHECKS_MAX
        && batch.checks.iter().all(|check| check_fits(check, batch.rules.len()))
        && batch.give_backs.iter().all(|charge| rule_exists(charge.rule) && key_fits(&charge.key))
        && batch.local_counts.iter().all(|count| rule_exists(count.rule))
        && batch.releases.iter().all(slot_fits)
        && batch.renewals.iter().all(slot_fits)
}

fn check_fits(check: &Check<'_>, rules: usize) -> bool {
    let points = |part: &u8| usize::from(*part) < check.values.len();
    let call_fits = |call: &Call| {
        usize::from(call.rule) < rules
            && call.key.len() <= limits::rule::PARTS_MAX
            && call.key.iter().all(points)
    };
    check.calls.len() <= limits::rule::RULES_PER_REQUEST_MAX
        && check.values.len() <= VALUES_MAX
        && check.slot.len() <= SLOT_MAX
        && check.values.iter().all(value_fits)
        && check.calls.iter().all(call_fits)
}

fn key_fits(key: &[Value<'_>]) -> bool {
    key.len() <= limits::rule::PARTS_MAX && key.iter().all(value_fits)
}

fn value_fits(value: &Value<'_>) -> bool {
    let short = |bytes: &[u8]| bytes.len() <= limits::descriptor::VALUE_MAX;
    name::is_descriptor(value.kind) && value.bytes.is_none_or(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch<'static> {
        Batch {
            domain: "public-api",
            budget_ms: 5,
            rules: vec![RuleForm {
                id: "gold-orders-create",
                algorithm: Algorithm::TokenBucket { capacity: 100, refill_num: 10, refill_den: 1, idle_s: 0 },
                shadow: false,
            }],
            checks: vec![Check {
                values: vec![Value { kind: "api_key", bytes: Some(b"k_123"), secret: true }],
                calls: vec![Call { rule: 0, cost: 1, key: vec![0] }],
                lease: 0,
                slot: &[],
            }],
            give_backs: vec![],
            local_counts: vec![],
            releases: vec![],
            renewals: vec![],
        }
    }

    #[test]
    fn a_batch_survives_the_wire_and_its_first_byte_is_the_version() {
        let bytes = encode_batch(&batch(), Vec::new()).unwrap();
        assert_eq!(bytes[0], VERSION);
        assert_eq!(decode_batch(&bytes), Ok(batch()));
    }

    #[test]
    fn another_version_is_told_from_garbage() {
        let mut bytes = encode_batch(&batch(), Vec::new()).unwrap();
        bytes[0] = 9;
        assert_eq!(decode_batch(&bytes), Err(WireError::Version(9)));
        assert_eq!(decode_batch(&[]), Err(WireError::Version(0)));
        bytes[0] = VERSION;
        for cut in 1..bytes.len() {
            assert_eq!(decode_batch(&bytes[..cut]), Err(WireError::Malformed), "cut at {cut}");
        }
        bytes.push(0);
        assert_eq!(decode_batch(&bytes), Err(WireError::Malformed));
    }

    #[test]
    fn an_index_that_points_at_nothing_is_refused() {
        let mut broken = batch();
        broken.checks[0].calls[0].rule = 1;
        assert_eq!(decode_batch(&encode_batch(&broken, Vec::new()).unwrap()), Err(WireError::Malformed));
        let mut broken = batch();
        broken.checks[0].calls[0].key = vec![1];
        assert_eq!(decode_batch(&encode_batch(&broken, Vec::new()).unwrap()), Err(WireError::Malformed));
    }

    #[test]
    fn answers_survive_the_wire() {
        let outcome = Outcome { verdict: Verdict::Wait, left: 0, wait_ms: 200, leased: 0 };
        let answers = Answers {
            answers: vec![Answer::Denied(vec![outcome]), Answer::Unknown(Unknown::RedisTimeout)],
            unavailable_for_ms: 0,
        };
        assert_eq!(decode_answers(&encode_answers(&answers).unwrap()), Ok(answers));
    }
}
