//! The check batch, `POST /v1/decide`: what the filter asks and what the sidecar answers.
//!
//! A version byte, then postcard. The version decides the form of all that follows, so a reader that does not know it answers
//! [`Unknown::Version`] and touches nothing. The version before this one is still read, and answered in its own. There are fields
//! for what later versions of Kota decide (leases, local counts); a side that knows nothing of them sends them empty and ignores
//! them.

mod v1;

use crate::name;
use serde::{Deserialize, Serialize};

/// The version that this build writes.
pub const VERSION: u8 = 2;
/// The oldest version that this build reads.
pub const OLDEST: u8 = 1;
/// The most checks in a batch.
pub const CHECKS_MAX: usize = 64;
/// The largest batch and the largest answer, in bytes.
pub const BYTES_MAX: usize = 1024 * 1024;
/// The most values that the keys of a check's rules can be made of.
pub const VALUES_MAX: usize = limits::rule::RULES_PER_REQUEST_MAX * limits::rule::PARTS_MAX;
/// The most give-backs, debits, local counts, releases and renewals in a batch, of each.
pub const EXTRAS_MAX: usize = 1_024;
/// The longest id of a slot, in bytes.
pub const SLOT_MAX: usize = limits::concurrency::SLOT_MAX;
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
    /// Tokens that were taken and not used.
    #[serde(borrow)]
    pub give_backs: Vec<Charge<'a>>,
    /// Tokens that were used and not taken.
    #[serde(borrow)]
    pub debits: Vec<Charge<'a>>,
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
    /// What denials bring about; never with [`Algorithm::Concurrency`].
    pub penalty: Option<PenaltyForm>,
}

/// See `limits::penalty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PenaltyForm {
    /// How many denials.
    pub denials: u64,
    /// Within how many seconds.
    pub within_s: u64,
    /// For how many seconds.
    pub for_s: u64,
    /// Tokens at once meanwhile.
    pub capacity: u64,
    /// Numerator of the reduced fraction of tokens per second, see `limits::refill`.
    pub refill_num: u64,
    /// Its denominator.
    pub refill_den: u64,
    /// Seconds after which a bucket that never refills starts anew; else 0.
    pub idle_s: u64,
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
    /// See `limits::sliding_window`.
    SlidingWindow {
        /// Requests.
        capacity: u64,
        /// Seconds.
        window_s: u64,
    },
    /// See `limits::concurrency`.
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
    /// Milliseconds since they were taken, or reserved where they were used beyond that; rather too many than too few.
    pub age_ms: u64,
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
    encode(VERSION, batch, into)
}

/// Reads a batch. References are checked: every index points at something.
///
/// # Errors
/// See [`WireError`].
pub fn decode_batch(bytes: &[u8]) -> Result<Batch<'_>, WireError> {
    let batch = match version(bytes)? {
        1 => decode::<v1::BatchV1<'_>>(bytes)?.into(),
        _ => decode::<Batch<'_>>(bytes)?,
    };
    if in_bounds(&batch) { Ok(batch) } else { Err(WireError::Malformed) }
}

/// The version of a batch or an answer.
///
/// # Errors
/// [`WireError::Version`] if this build does not read it.
pub fn version(bytes: &[u8]) -> Result<u8, WireError> {
    match bytes.first() {
        Some(&version) if (OLDEST..=VERSION).contains(&version) => Ok(version),
        other => Err(WireError::Version(other.copied().unwrap_or(0))),
    }
}

/// Writes an answer to a batch of that version.
///
/// # Errors
/// [`WireError::Malformed`] if it is out of bounds.
pub fn encode_answers(answers: &Answers, version: u8) -> Result<Vec<u8>, WireError> {
    encode(version, answers, Vec::new()) // Both versions have the same answers.
}

/// Reads an answer.
///
/// # Errors
/// See [`WireError`].
pub fn decode_answers(bytes: &[u8]) -> Result<Answers, WireError> {
    version(bytes)?;
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

fn encode<T: Serialize>(version: u8, value: &T, mut into: Vec<u8>) -> Result<Vec<u8>, WireError> {
    into.clear();
    into.push(version);
    postcard::to_extend(value, into).map_err(|_| WireError::Malformed)
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, WireError> {
    let rest = bytes.get(1..).filter(|_| bytes.len() <= BYTES_MAX).ok_or(WireError::Malformed)?;
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
    let charge_fits = |charge: &Charge<'_>| rule_exists(charge.rule) && key_fits(&charge.key);
    let few = |count: usize| count <= EXTRAS_MAX;
    name::is_domain(batch.domain)
        && batch.rules.iter().all(|rule| name::is_id(rule.id))
        && batch.checks.len() <= CHECKS_MAX
        && batch.checks.iter().all(|check| check_fits(check, batch.rules.len()))
        && few(batch.give_backs.len())
        && few(batch.debits.len())
        && few(batch.local_counts.len())
        && few(batch.releases.len())
        && few(batch.renewals.len())
        && batch.give_backs.iter().chain(&batch.debits).all(charge_fits)
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
mod tests;
