//! The pure core of Kota: which rules apply to a request, and what they say.
//!
//! Invariants: no I/O, no clock, no async, no randomness but what is passed in; runs natively and in wasm32; nothing panics.
//! Time is an argument of every decision, in whole microseconds since the Unix epoch.
//!
//! # Layout
//! - [`refill`], [`token_bucket`], [`sliding_window`], [`concurrency`]: the algorithms
//! - [`penalty`], [`cost`], [`settle`]: what a client brings upon itself, what a request is worth, and what it was worth after all
//! - [`decision`]: several rules of one request, decided and charged as one step (the specification of `lua/decide.lua`)
//! - [`rule`], [`descriptor`]: the domain types of a rule set
//! - [`address`], [`path`], [`host`], [`route`], [`query`], [`cookie`], [`metadata`]: one form for all spellings of what a request says
//! - [`request`], [`exemption`], [`ruleset`], [`key`]: from a request to the rules that apply, and whose bucket they charge
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

pub mod address;
pub mod concurrency;
pub mod cookie;
pub mod cost;
pub mod decision;
pub mod descriptor;
pub mod exemption;
pub mod host;
pub mod key;
pub mod metadata;
pub mod path;
pub mod penalty;
mod percent;
pub mod query;
pub mod refill;
pub mod request;
pub mod route;
pub mod rule;
pub mod ruleset;
pub mod settle;
pub mod sliding_window;
pub mod token_bucket;
