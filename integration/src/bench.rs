//! The benches: what Kota costs beside no filter, a filter that does nothing and Envoy's own limiter, and how long a request waits
//! when nothing decides it. Figures come from here, never from tests.

pub mod chart;
pub mod compare;
pub mod cpu;
pub mod failures;
pub mod gateway;
pub mod load;
pub mod machine;
pub mod measure;
pub mod report;
pub mod scenario;
pub mod settings;
pub mod spread;
pub mod svg;
pub mod table;
