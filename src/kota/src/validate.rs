//! `kota validate`: every fault of a configuration, by its path.

use limits::rule::Mode;
use protocol::config::Config;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A faulty configuration (`EX_DATAERR`).
const FAULTY: u8 = 65;
/// A file that can't be read (`EX_NOINPUT`).
const UNREADABLE: u8 = 66;

/// Check a plugin configuration as the filter will: list every fault by its JSON path.
///
/// Each fault is one line on standard output, `PATH: MESSAGE`, with exit code 65. A configuration without faults prints a summary.
/// Warnings (a rule whose match trusts what any client can claim, say) go to standard error and change nothing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration, JSON; `-` reads standard input.
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let name = args.file.display();
    let json = match read(&args.file) {
        Ok(json) => json,
        Err(error) => {
            eprintln!("kota validate: {name}: {error}");
            return ExitCode::from(UNREADABLE);
        }
    };
    match Config::parse(&json) {
        Ok(config) => {
            for warning in config.warnings() {
                eprintln!("warning: {warning}");
            }
            print(&format!("{name}: ok\n{}", summary(&config)));
            ExitCode::SUCCESS
        }
        Err(faults) => {
            let mut lines = String::new();
            for fault in &faults {
                let _ = writeln!(lines, "{fault}");
            }
            let _ = writeln!(lines, "{name}: {}", counted(faults.len(), "fault"));
            print(&lines);
            ExitCode::from(FAULTY)
        }
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    // One byte more than is allowed is enough to be refused; a device without end is not read to it.
    let most = protocol::config::BYTES_MAX as u64 + 1;
    let mut json = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut json)?;
    } else {
        std::fs::File::open(file)?.take(most).read_to_end(&mut json)?;
    }
    Ok(json)
}

fn summary(config: &Config) -> String {
    let rules = config.rules.rules();
    let shadow = rules.iter().filter(|rule| rule.mode == Mode::Shadow).count();
    let headers = config.rules.header_names();
    let headers = if headers.is_empty() { "none".to_owned() } else { headers.join(", ") };
    let preflights = if config.rules.preflight().is_some() {
        "met by a rule of their own"
    } else {
        "counted like any request"
    };
    format!(
        "  version  {}\n  domain   {}\n  sidecar  cluster {}, deadline {} ms\n  rules    {} enforcing, {shadow} shadow, {} disabled\n  \
         exempt   {}\n  cors     preflights are {preflights}\n  routes   {}\n  headers  {headers} (read)\n",
        config.version,
        config.domain,
        config.sidecar.cluster,
        config.sidecar.deadline_ms,
        rules.len() - shadow,
        config.disabled,
        config.rules.exemptions().count(),
        config.rules.routes().len(),
    )
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Unlike `print!` this does not panic where nobody reads to the end.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
