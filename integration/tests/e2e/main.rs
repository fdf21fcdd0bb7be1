//! Kota as its users run it: real processes, one test binary so that it links once.

mod addresses;
mod alerts;
mod bodies;
mod bootstrap;
mod brief;
mod bytes;
mod clients;
mod cluster;
mod compose;
mod failure;
mod fault;
mod faulty;
mod grpc;
mod harness;
mod headers;
mod istio;
mod ledger;
mod matching;
mod obeying;
mod privacy;
mod readme;
mod redis;
mod spellings;
mod stack;
mod support;
