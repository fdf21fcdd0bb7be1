//! The one native command.

mod sidecar;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Kota limits API traffic inside Envoy.
#[derive(Debug, Parser)]
#[command(version)]
struct Kota {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers the filter's checks, one per pod.
    Sidecar(sidecar::Flags),
}

fn main() -> ExitCode {
    match Kota::parse().command {
        Command::Sidecar(flags) => sidecar::run(flags),
    }
}
