//! The crate from outside: one test binary, a file per subject.

mod bucket;
mod bucket_properties;
mod decisions;
mod exemptions;
mod extremes;
mod keys;
mod matching;
mod matching_properties;
mod obeying;
mod paths;
mod penalties;
mod slots;
mod support;
mod tidy;
mod window_cases;
mod window_settlements;
mod windows;
