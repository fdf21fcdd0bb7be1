//! `make accuracy`: how often the sliding window counter decides otherwise than an exact log would, on synthetic days; writes
//! integration/bench/accuracy.json.

use std::fs;
use std::process::ExitCode;

use kota_integration::accuracy::settings::{SEEDS, all};
use kota_integration::accuracy::{Report, Tally};
use kota_integration::tools;

fn main() -> ExitCode {
    println!(
        "{:>48} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "", "requests", "denied %", "wrong %", "judged %", "offered %"
    );
    let reports: Vec<_> = all().into_iter().map(|setting| Report::of(setting, SEEDS)).collect();
    for report in &reports {
        print(report.setting.name, &report.all);
        for (kind, tally) in &report.by_kind {
            print(&format!("{kind:?}"), tally);
        }
    }
    let path = tools::root().join("integration/bench/accuracy.json");
    let text = serde_json::to_string_pretty(&reports).expect("numbers and names");
    match fs::write(&path, text + "\n") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn print(name: &str, tally: &Tally) {
    println!(
        "{name:>48} {:>10} {:>9.5} {:>9.5} {:>9.5} {:>9.5}",
        tally.requests,
        tally.denied_percent(),
        tally.wrong_percent(),
        tally.judged_percent(),
        tally.offered_percent()
    );
}
