//! A change as a call of its script, and its reply as what became of it.

use super::server::Reply;
use crate::changes::{Change, Changed};
use redis::Cmd;

/// The call that makes this change.
pub(super) fn command(_change: &Change) -> Cmd {
    // The scripts are to come.
    redis::cmd("PING")
}

/// What became of it.
pub(super) fn answer(_reply: Reply) -> Changed {
    Changed::Unknown
}
