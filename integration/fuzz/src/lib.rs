//! What must hold of whatever a stranger sends: one module per fuzz target (`targets/`), each with `holds`, which panics where
//! it does not. `make fuzz` runs them all; `seeds/` are their first inputs.

pub mod address;
pub mod batch;
pub mod config;
pub mod cookie;
pub mod pairs;
pub mod path;
pub mod query;

/// All bytes percent-encoded.
fn encoded(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect()
}
