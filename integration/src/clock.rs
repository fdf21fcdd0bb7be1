//! Clocks that go wrong: a process whose clock of the day is so many seconds off.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is put before the C library's own functions; made by the C compiler that a build of Kota needs anyway.
const SOURCE: &str = include_str!("clock.c");

/// The environment of a process whose clock is off by `seconds`; `dir` takes what is built for it.
///
/// # Panics
/// When there is no C compiler.
#[must_use]
pub fn shifted(seconds: i64, dir: &Path) -> Vec<(String, String)> {
    let library = library(dir);
    vec![
        ("LD_PRELOAD".to_owned(), library.display().to_string()),
        ("KOTA_CLOCK_S".to_owned(), seconds.to_string()),
    ]
}

fn library(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    if !library.exists() {
        std::fs::write(&source, SOURCE).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let output = command.output().unwrap_or_else(|e| panic!("cc: {e}: install a C compiler"));
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    }
    library
}
