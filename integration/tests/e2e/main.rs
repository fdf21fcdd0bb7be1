//! Kota as its users run it: real processes, one test binary so that it links once.

mod addresses;
mod bootstrap;
mod compose;
mod fault;
mod harness;
mod istio;
mod matching;
mod stack;
mod support;
