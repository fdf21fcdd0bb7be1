//! `lua/decide.lua` on a real Redis against its specification, `limits::decision`, and against a bound that uses neither.

mod bound;
mod cases;
mod errors;
mod history;
mod random;
mod script;
