//! `make bench`: what Kota costs beside no filter, a filter that does nothing and Envoy's own limiter.
//! `make bench-failures` (argument `failures`): how long a request waits when the sidecar or Redis is away.

use std::env;
use std::process::ExitCode;

use kota_integration::bench::machine::Machine;
use kota_integration::bench::settings::Settings;
use kota_integration::bench::{compare, failures};

fn main() -> ExitCode {
    let what = env::args().nth(1);
    let result = Settings::from_env().and_then(|settings| match what.as_deref() {
        None => compare::run(&Machine::read(), &settings),
        Some("failures") => failures::run(&Machine::read(), &settings),
        Some(other) => Err(vec![format!("`{other}`: want no argument, or `failures`")]),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(faults) => {
            eprintln!("\n!!! THIS BENCH IS NOT VALID !!!");
            for fault in faults {
                eprintln!("!!! {fault}");
            }
            ExitCode::FAILURE
        }
    }
}
