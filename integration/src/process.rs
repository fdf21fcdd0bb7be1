//! Child processes that never outlive the test, however it ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A running program. Dropping it kills it (SIGKILL reaches stopped ones too).
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    log: PathBuf,
    child: Mutex<Child>,
}

type Spawned = std::io::Result<Child>;

/// Envoy asks the kernel for SIGTERM when the *thread* that spawned it ends, and so do all children here: then even a killed
/// test leaves nothing behind. Hence one thread spawns them all, and lives as long as the test process.
static SPAWNER: LazyLock<Sender<(Command, Sender<Spawned>)>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<(Command, Sender<Spawned>)>();
    thread::spawn(move || {
        for (mut command, answer) in inbox {
            let _ = answer.send(command.spawn());
        }
    });
    orders
});

// === impl Process ===

impl Process {
    /// Starts `command` with both outputs in `dir`: `<name>.out` and `<name>.log`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(name: &str, mut command: Command, dir: &Path) -> Self {
        let log = dir.join(format!("{name}.log"));
        let append = |path: &Path| {
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        command.stdin(std::process::Stdio::null());
        command.stdout(append(&dir.join(format!("{name}.out")))).stderr(append(&log));
        die_with_parent(&mut command);
        let program = command.get_program().to_owned();
        let (answer, answered) = channel();
        SPAWNER.send((command, answer)).expect("the spawning thread lives as long as the process");
        let child = answered.recv().expect("the spawning thread answers");
        let child =
            child.unwrap_or_else(|e| panic!("{}: can't be started: {e}", Path::new(&program).display()));
        let pid = Pid::from_child(&child);
        Self { name: name.to_owned(), pid, log, child: Mutex::new(child) }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// What it wrote to standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// What it wrote to standard output so far.
    #[must_use]
    pub fn out(&self) -> String {
        read(&self.log.with_extension("out"))
    }

    /// Its exit status, if it has ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Waits until `ready` holds.
    ///
    /// # Panics
    /// When the process ends before, or it takes too long; with the end of its log.
    pub fn wait_ready(&self, mut ready: impl FnMut() -> bool) {
        wait::until_true(&format!("{} is ready", self.name), || {
            if let Some(status) = self.ended() {
                panic!("{} ended with {status} before it was ready:\n{}", self.name, tail(&self.log()));
            }
            ready()
        });
    }

    /// Freezes it (SIGSTOP): it keeps its sockets and answers nothing.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen one go on (SIGCONT).
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait_ended(&self) -> ExitStatus {
        wait::until(&format!("{} has ended", self.name), || self.ended())
    }

    /// Ends it at once (SIGKILL) and waits for that.
    pub fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill(); // fails only if it has ended and was waited for
        let _ = child.wait();
    }

    /// Memory in use now (resident set), in KiB; 0 when it has ended.
    #[must_use]
    pub fn rss_kib(&self) -> u64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// CPU time used so far, user and system, in clock ticks of 10 ms (`USER_HZ` is 100 on Linux).
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let stat = read(Path::new(&format!("/proc/{}/stat", self.pid())));
        // Fields are counted after the command's name, which stands in parentheses and may hold anything.
        let fields =
            stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>()).unwrap_or_default();
        [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum()
    }

    fn signal(&self, signal: Signal) {
        if self.ended().is_none() {
            kill_process(self.pid, signal).unwrap_or_else(|e| panic!("{}: signal failed: {e}", self.name));
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Puts the child into a group of its own (Ctrl-C is the parent's to handle) and binds its life to the spawning thread's.
#[allow(unsafe_code)] // pre_exec runs between fork and exec: only a system call may be made there, and only one is.
fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    // SAFETY: prctl(2) is async-signal-safe and the closure allocates nothing.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

fn read(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
}
