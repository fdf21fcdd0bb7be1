//! Kota's Proxy-Wasm filter: finds the rules that apply to a request, asks the sidecar, answers the client.
//!
//! # Layout
//! - [`pairs`], [`capture`]: the request's headers, read once, as bytes
//! - [`check`], [`worker`], [`encode`], [`callout`]: what is asked, batched, sent and received
//! - [`bucket`], [`bill`], [`worker::slots`]: what has to be said about a request after it has passed
//! - [`exchange`], [`answer`]: what becomes of a request, and what its client is told
//! - [`config`], [`reason`], [`counters`]: rules and words
//! - `envoy`, `shared`, `speech`, `metrics`, `host` (wasm32 only): the shell
//!
//! All but the shell is pure: values in, values out, tested natively. Nothing panics.
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
        reason = "a panic traps the VM of a whole Envoy worker"
    )
)]

pub mod answer;
pub mod bill;
pub mod bucket;
pub mod callout;
pub mod capture;
pub mod check;
pub mod config;
pub mod counters;
pub mod encode;
#[cfg(target_arch = "wasm32")]
mod envoy;
pub mod exchange;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod metrics;
pub mod pairs;
pub mod reason;
#[cfg(target_arch = "wasm32")]
mod shared;
#[cfg(target_arch = "wasm32")]
mod speech;
#[cfg(test)]
mod testing;
pub mod worker;
