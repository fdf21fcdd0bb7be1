//! The `kota` command: each subcommand is a module that reads its flags and calls a library.

mod echo;
mod sidecar;
mod validate;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The exit code of flags that can't be used (`EX_USAGE` of sysexits.h); nothing has been bound or read by then.
const USAGE: u8 = 64;

/// Kota limits API traffic inside Envoy: may this client do this now, and if not, when?
#[derive(Parser)]
#[command(name = "kota", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed while running, 64 bad flags, 65 a faulty configuration, 66 a file that can't be read.";

#[derive(Subcommand)]
enum Command {
    Sidecar(Box<sidecar::Flags>),
    Validate(validate::Args),
    Echo(echo::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            // Help and version are no errors, and a closed pipe is nobody's to hear of.
            let _ = message.print();
            return if message.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Sidecar(flags) => sidecar::run(*flags),
        Command::Validate(args) => validate::run(&args),
        Command::Echo(args) => echo::run(&args),
    }
}
