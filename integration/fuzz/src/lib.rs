//! What must hold of whatever a stranger sends: one module per fuzz target (`targets/`), each with `holds`, which panics where
//! it does not. `make fuzz` runs them all; `seeds/` are their first inputs.

pub mod address;
pub mod batch;
pub mod config;
pub mod pairs;
pub mod path;
