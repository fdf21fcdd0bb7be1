//! Kota as its users run it: real processes, one test binary so that it links once.

mod addresses;
mod bootstrap;
mod brief;
mod compose;
mod failure;
mod fault;
mod harness;
mod istio;
mod matching;
mod redis;
mod stack;
mod support;
