//! How a store is, as readiness tells it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The first attempt to reach it is under way.
    Connecting,
    /// It answers.
    Up,
    /// It can't be reached, with the reason. The sidecar works without it: every rule has a fail mode.
    Away(String),
    /// It was reached and can't do what is asked of it (too old, a script refused, a right missing), with the cause. Somebody
    /// has to put that right.
    Unfit(String),
}

/// A store's status as its connections last found it, and whether it was ever fit.
#[derive(Clone, Debug)]
pub struct Health {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    status: Status,
    was_up: bool,
}

// === impl Status ===

impl Status {
    /// One word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Away(_) => "away",
            Self::Unfit(_) => "unfit",
        }
    }

    /// Why it is not up; empty if it is.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Connecting | Self::Up => "",
            Self::Away(reason) | Self::Unfit(reason) => reason,
        }
    }
}

impl Status {
    /// The status of something of which these parts are not up: unfit if one of them is, for that does not pass by itself.
    #[must_use]
    pub fn of_all<P: fmt::Display>(parts: &[(P, Self)]) -> Self {
        let unfit = parts.iter().any(|(_, status)| matches!(status, Self::Unfit(_)));
        let told = |(part, status): &(P, Self)| match status.reason() {
            "" => format!("{part}: {}", status.word()),
            reason => format!("{part}: {reason}"),
        };
        let reasons = parts.iter().map(told).collect::<Vec<_>>().join("; ");
        if unfit { Self::Unfit(reasons) } else { Self::Away(reasons) }
    }
}

// === impl Health ===

impl Health {
    /// Not reached yet.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner { status: Status::Connecting, was_up: false };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// What was found now. True if that differs from what was known.
    pub fn set(&self, status: Status) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.was_up |= status == Status::Up;
        let changed = inner.status != status;
        inner.status = status;
        changed
    }

    /// The status. A store that was fit once is never called unfit again, but away: a password that is changed on the server
    /// must not take every pod out of service at once.
    #[must_use]
    pub fn get(&self) -> Status {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match &inner.status {
            Status::Unfit(cause) if inner.was_up => Status::Away(cause.clone()),
            status => status.clone(),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_fit_is_never_unfit_again() {
        let health = Health::new();
        assert_eq!(health.get(), Status::Connecting);
        assert!(health.set(Status::Unfit("NOPERM".into())));
        assert!(!health.set(Status::Unfit("NOPERM".into())));
        assert_eq!(health.get(), Status::Unfit("NOPERM".into()));
        assert!(health.set(Status::Up));
        health.set(Status::Unfit("WRONGPASS".into()));
        assert_eq!(health.get(), Status::Away("WRONGPASS".into()));
    }
}
