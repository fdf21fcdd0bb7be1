//! Kota as processes: real Envoy, real Redis, sidecars and an upstream on free ports of loopback, waited for by condition, ended in
//! any case. A test begins with `Stack::new().redis().rules(json!([…])).start()`.

pub mod accuracy;
pub mod bench;
pub mod bootstrap;
pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod demo_store;
pub mod envoy;
pub mod fault;
pub mod http1;
pub mod http2;
pub mod impostor;
pub mod process;
pub mod redis;
pub mod sidecar;
pub mod stack;
pub mod tokens;
pub mod tools;
pub mod wait;
pub mod workdir;

pub use bootstrap::{Delivery, Endpoint};
pub use fault::Fault;
pub use http1::{Answer, Client, Request};
pub use stack::{Running, Stack};
