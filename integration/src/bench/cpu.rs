//! CPU time of processes.

use std::fs;

use crate::process::Process;

/// CPU time that a process has used so far, in µs, over all its threads. From the scheduler's own sum in nanoseconds where the kernel keeps
/// it; else from the ticks of 10 ms. (Threads that ended are missing from the first; Envoy, sidecar and Redis keep theirs.)
pub fn used_us(process: &Process) -> f64 {
    let exact = threads_ns(process.pid());
    if exact > 0 { exact as f64 / 1e3 } else { process.cpu_ticks() as f64 * 1e4 }
}

fn threads_ns(pid: i32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let ran = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.flatten().filter_map(ran).sum()
}
