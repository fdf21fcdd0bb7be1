//! A rule: which requests it applies to, whose bucket they share, what the limit is, and what happens when nobody can say.

use crate::address::Cidr;
use crate::cost::Cost;
use crate::decision::Limit;
use crate::descriptor::DescriptorId;
use crate::penalty::Penalty;
use std::sync::Arc;

/// The most rules in one set.
pub const RULES_MAX: usize = 20_000;
/// The most rules that can apply to one request; the configuration is free to have more that overlap, a request that meets
/// more of them is decided by the first so many in the order of the file.
pub const RULES_PER_REQUEST_MAX: usize = 16;
/// The most conditions in a rule's match, and the most descriptors in its key.
pub const PARTS_MAX: usize = 8;

/// What a rule does with its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A denied request is answered with 429.
    Enforce,
    /// The verdict is counted and logged; the request passes.
    Shadow,
}

/// What a rule does when nobody can decide in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailMode {
    /// The request passes.
    Open,
    /// The request is answered with 503.
    Closed,
}

/// What a rule does with a request that lacks a part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnMissingKey {
    /// The client's address takes the place of the missing part.
    Ip,
    /// The rule does not apply, and displaces no other of its group.
    Skip,
    /// All such requests share one bucket.
    Shared,
    /// The request is denied, and no later one like it is admitted.
    Deny,
}

/// A condition on one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value is one of these.
    OneOf(Vec<Box<[u8]>>),
    /// The value begins with this.
    Prefix(Box<[u8]>),
    /// The value is an address within this block.
    Cidr(Cidr),
    /// There is no value; an empty or blank one is none.
    Absent,
}

/// A condition of a match: all of a rule's conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is looked at.
    pub descriptor: DescriptorId,
    /// What must be true of it.
    pub test: Test,
}

/// A rule's place among others of which only one applies to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Names the group, as a rule's id is written.
    pub id: Arc<str>,
    /// The highest wins, of equal ones the first in the order of the file. 0 to 1,000,000.
    pub priority: u32,
}

/// A rule that is not DISABLED.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `[a-z0-9][a-z0-9_-]{0,63}`, unique within the set.
    pub id: Arc<str>,
    /// The name in the headers that clients see.
    pub policy: Arc<str>,
    /// A conjunction; empty applies to every request.
    pub conditions: Vec<Condition>,
    /// The descriptors that make the bucket; the first is the client. Empty: one bucket for all.
    pub key: Vec<DescriptorId>,
    /// The algorithm with its parameters.
    pub limit: Limit,
    /// What a request costs.
    pub cost: Cost,
    /// What denials bring about; never with [`Limit::Concurrency`].
    pub penalty: Option<Penalty>,
    /// What is done with the verdict.
    pub mode: Mode,
    /// What is done without one.
    pub fail_mode: FailMode,
    /// What is done without a key.
    pub on_missing_key: OnMissingKey,
    /// The group of rules that it is one of, if any.
    pub group: Option<Group>,
    /// The sentence in a denial's body, instead of the default.
    pub detail: Option<Arc<str>>,
}
