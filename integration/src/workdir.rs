//! A directory for one stack's sockets, configuration and logs.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::{env, process, thread};

use crate::tools;

/// Removed on drop; when the test fails, its logs and configuration go to `target/integration/<test>/` first.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
    test: String,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);

// === impl Workdir ===

impl Workdir {
    /// A fresh one in the system's temporary directory: the path of a Unix socket must stay under 108 bytes, and `target/` may lie deep.
    ///
    /// # Panics
    /// When it can't be made.
    #[must_use]
    pub fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("kota-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let test = thread::current().name().unwrap_or("unnamed").replace("::", "-");
        Self { path, test: format!("{test}-{number}") }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into it and gives its path. Appears at once and whole (written beside, then renamed): Envoy watches for that.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let (path, draft) = (self.path.join(name), self.path.join(format!("{name}.draft")));
        fs::write(&draft, content).unwrap_or_else(|e| panic!("{}: {e}", draft.display()));
        fs::rename(&draft, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    fn keep(&self) -> std::io::Result<PathBuf> {
        let kept = tools::target().join("integration").join(&self.test);
        let _ = fs::remove_dir_all(&kept); // of an earlier run
        copy_files(&self.path, &kept)?;
        Ok(kept)
    }
}

impl Default for Workdir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        if thread::panicking() {
            match self.keep() {
                Ok(kept) => eprintln!("logs and configuration are kept in {}", kept.display()),
                Err(e) => eprintln!("{}: logs could not be kept: {e}", self.path.display()),
            }
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies regular files, with their directories; sockets stay behind.
fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_files(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A port on loopback that nobody listens on. Below the range from which the kernel takes ports for outgoing connections, and
/// never given twice by one process; other test processes begin elsewhere.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    const FIRST: u32 = 11_000;
    const COUNT: u32 = 20_000;
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(process::id().wrapping_mul(97)));
    let tries = (0..COUNT).map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT);
    let mut ports = tries.filter_map(|port| u16::try_from(port).ok());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("loopback has a free port")
}
