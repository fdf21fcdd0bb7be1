//! The sidecar: answers the filter's checks, one per pod, from Redis or from memory.
//!
//! Invariants: nothing waits on the store but a decision, and that never past its deadline; a store that is away is an answer
//! ([`protocol::batch::Unknown`]), not an error; every queue, body and wait has a bound; no key and no value is ever logged.
//!
//! # Layout
//! - [`settings`]: the flags, checked before any port binds; [`logging`]: one line per event
//! - [`listen`], [`serve`]: sockets with their permissions, connections, drain
//! - [`decide`]: `POST /v1/decide`, a batch from bytes to bytes; [`asks`] and [`changes`] are what it asks of the store, [`keys`] names buckets
//! - [`store`]: memory and Redis behind one trait
//! - [`api`]: the second listener, for everybody but the filter; [`metrics`]: all names in one place

pub mod api;
pub mod asks;
pub mod changes;
pub mod decide;
pub mod keys;
pub mod listen;
pub mod logging;
pub mod metrics;
pub mod problem;
mod run;
pub mod serve;
pub mod settings;
pub mod store;

pub use run::run;
