//! Kota as its users run it: real processes, one test binary so that it links once.

mod bootstrap;
mod compose;
mod fault;
mod harness;
mod istio;
mod stack;
