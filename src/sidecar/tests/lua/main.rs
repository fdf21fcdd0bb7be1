//! The scripts in `lua/` on a real Redis against their specification, `limits`, and against a bound that uses neither.

mod both;
mod bound;
mod cases;
mod errors;
mod history;
mod kinds;
mod lives;
mod model;
mod random;
mod script;
mod steps;
