//! The results for people.

use std::fmt::Write;

use crate::bench::compare::Ratio;
use crate::bench::machine::Machine;
use crate::bench::report::Summary;
use crate::bench::settings::Settings;

/// What was measured on, and how.
pub fn head(machine: &Machine, settings: &Settings) -> String {
    format!(
        "Kota {} on {} cores of {}; Envoy {} with one worker, Redis {}, wrk {}, oha {}.\n\
         {} rounds in turns, {} s each: medians. No access log and no authenticating filters, in any scenario.",
        machine.kota,
        machine.cores,
        machine.cpu,
        machine.envoy,
        machine.redis,
        machine.wrk,
        machine.oha,
        settings.rounds,
        settings.seconds,
    )
}

/// A line per scenario.
pub fn scenarios(summaries: &[Summary]) -> String {
    let mut text = format!(
        "{:<24}{:>10}{:>19}{:>9}{:>9}{:>11}{:>9}{:>7}{:>11}{:>13}\n",
        "scenario",
        "requests/s",
        "(lowest–highest)",
        "p50 µs",
        "p99 µs",
        "Envoy µs",
        "sidecar",
        "Redis",
        "decisions",
        "failed open"
    );
    for s in summaries {
        let cpu = |of: Option<f64>| of.map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"));
        let range = format!("({}–{})", grouped(s.rps_min), grouped(s.rps_max));
        let _ = writeln!(
            text,
            "{:<24}{:>10}{range:>19}{:>9}{:>9}{:>11}{:>9}{:>7}{:>11}{:>13}",
            s.name,
            grouped(s.rps),
            grouped(s.p50_us),
            grouped(s.p99_us),
            cpu(s.cpu_us.envoy),
            cpu(s.cpu_us.sidecar),
            cpu(s.cpu_us.redis),
            s.decisions,
            s.failed_open,
        );
    }
    text
}

/// A line per ratio.
pub fn ratios(ratios: &[Ratio]) -> String {
    let line = |ratio: &Ratio| {
        let spread = ratio.spread;
        format!(
            "{}: {:.2} ({:.2}–{:.2}); aim: {}\n",
            ratio.name, spread.median, spread.min, spread.max, ratio.aim
        )
    };
    ratios.iter().map(line).collect()
}

/// A whole number with its thousands set apart.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Waits against the deadline.
pub fn waits(summaries: &[Summary], deadline_ms: u64) -> String {
    let deadline_us = deadline_ms as f64 * 1e3;
    let mut text =
        format!("{:<24}{:>9}{:>14}{:>9}{:>14}\n", "waits", "p50 ms", "÷ deadline", "p99 ms", "÷ deadline");
    for s in summaries {
        let (p50, p99) = (s.p50_us, s.p99_us);
        let _ = writeln!(
            text,
            "{:<24}{:>9.2}{:>14.2}{:>9.2}{:>14.2}",
            s.name,
            p50 / 1e3,
            p50 / deadline_us,
            p99 / 1e3,
            p99 / deadline_us
        );
    }
    text
}
