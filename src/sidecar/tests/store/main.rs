//! The stores, by what they do: one suite over both, and what can happen to a Redis.

mod ask;
mod changes;
mod cluster;
mod declared;
mod fake;
mod faults;
mod fitness;
mod leaving;
mod load;
mod replica;
mod sent_on;
mod spread;
mod suite;
mod tls;
