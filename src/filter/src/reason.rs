//! Why a request could not be decided, as metrics and the access log name it.

use protocol::batch::Unknown;

/// Why a request could not be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No answer in time.
    Deadline,
    /// The sidecar's socket is missing or refuses, or the call was reset.
    Refused,
    /// The sidecar's cluster has no host that can be called.
    NoHost,
    /// The sidecar's cluster is over its thresholds.
    Overflow,
    /// The worker knows no cluster of the configured name.
    NoCluster,
    /// An answer that no sidecar of this version gives.
    Garbage,
    /// The sidecar does not read this version of the wire.
    Version,
    /// The sidecar's store did not answer in time.
    RedisTimeout,
    /// The sidecar's store refused, or is away.
    RedisError,
    /// The sidecar, or this worker, has more to decide than it takes on.
    Shed,
    /// The sidecar knows that its store is away, and did not ask.
    Breaker,
}

// === impl Reason ===

impl Reason {
    /// All of them, in the order of their indices.
    pub const ALL: [Self; 11] = [
        Self::Deadline,
        Self::Refused,
        Self::NoHost,
        Self::Overflow,
        Self::NoCluster,
        Self::Garbage,
        Self::Version,
        Self::RedisTimeout,
        Self::RedisError,
        Self::Shed,
        Self::Breaker,
    ];

    /// The word in metric names and in the access log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Refused => "refused",
            Self::NoHost => "no_host",
            Self::Overflow => "overflow",
            Self::NoCluster => "no_cluster",
            Self::Garbage => "garbage",
            Self::Version => "version",
            Self::RedisTimeout => "redis_timeout",
            Self::RedisError => "redis_error",
            Self::Shed => "shed",
            Self::Breaker => "breaker",
        }
    }
}

impl From<Unknown> for Reason {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Version => Self::Version,
            Unknown::RedisTimeout => Self::RedisTimeout,
            Unknown::RedisError => Self::RedisError,
            Unknown::Shed => Self::Shed,
            Unknown::Breaker => Self::Breaker,
        }
    }
}
