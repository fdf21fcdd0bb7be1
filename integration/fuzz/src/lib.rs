//! What must hold of whatever a stranger sends: one module per fuzz target (`targets/`), each with `holds`, which panics where
//! it does not. `make fuzz` runs them all; `seeds/` are their first inputs, with which `make test` tries them too.

pub mod address;
pub mod batch;
pub mod config;
pub mod cookie;
pub mod pairs;
pub mod path;
pub mod query;

/// A target: its name, and what must hold of any bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("address", address::holds),
    ("batch", batch::holds),
    ("config", config::holds),
    ("cookie", cookie::holds),
    ("pairs", pairs::holds),
    ("path", path::holds),
    ("query", query::holds),
];

/// All bytes percent-encoded.
fn encoded(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect()
}
