//! What crosses a border: the filter's configuration, the check batch between filter and sidecar, the JSON check.
//!
//! These are the only serialisable types. They are bounded and checked on the way in and become types of `limits`, which know
//! nothing of how they were written.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::arithmetic_side_effects,
        reason = "this code runs inside Envoy, where a panic traps the VM of a whole worker"
    )
)]

pub mod batch;
pub mod check;
pub mod config;
mod json;
mod name;
pub mod problem;
pub mod value;
