//! A running Redis, and a client of a few lines to look into it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::tools;
use crate::wait;
use crate::workdir::free_port;

/// One Redis that keeps nothing on disk.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    dir: PathBuf,
    more: Vec<String>,
}

/// A connection for many commands at once: they are sent without waiting for answers, which come back in their order.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

/// What Redis answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A simple string.
    Simple(String),
    /// An error.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A string, or nil.
    Bulk(Option<Vec<u8>>),
    /// An array.
    Array(Vec<Reply>),
}

// === impl Redis ===

impl Redis {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    /// When it does not start; with its log.
    #[must_use]
    pub fn start(dir: &Path) -> Self {
        Self::start_at(free_port(), dir)
    }

    /// Starts one on this port and waits until it answers.
    ///
    /// # Panics
    /// When it does not start; with its log.
    #[must_use]
    pub fn start_at(port: u16, dir: &Path) -> Self {
        Self::start_with(port, dir, &[])
    }

    /// Starts one on this port with more of its options and waits until it answers.
    ///
    /// # Panics
    /// When it does not start; with its log.
    #[must_use]
    pub fn start_with(port: u16, dir: &Path, more: &[String]) -> Self {
        let more = more.to_vec();
        Self { process: Self::spawn(port, dir, &more), port, dir: dir.to_path_buf(), more }
    }

    /// Starts a replica of this one and waits until it has caught up.
    ///
    /// # Panics
    /// When it does not start; with its log.
    #[must_use]
    pub fn replica(&self, dir: &Path) -> Self {
        let port = self.port.to_string();
        let more = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"].map(str::to_owned);
        self.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        let replica = Self::start_with(free_port(), dir, &more);
        replica.wait_caught_up();
        replica
    }

    /// Waits until a replica has what its primary has.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_caught_up(&self) {
        wait::until_true("the replica has caught up", || {
            self.info("replication").contains("master_link_status:up")
        });
    }

    fn spawn(port: u16, dir: &Path, more: &[String]) -> Process {
        let mut command = Command::new(tools::redis_server());
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(dir).arg("--unixsocket").arg(socket(dir)).args(more);
        let process = Process::start("redis", command, dir);
        process
            .wait_ready(|| ask(port, &["PING"]).is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned())));
        process
    }

    /// The process, to freeze, kill or measure.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address for `--store`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The address of its Unix socket for `--store`.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("unix://{}", socket(&self.dir).display())
    }

    /// Kills it and starts an empty one in its place.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = Self::spawn(self.port, &self.dir, &self.more);
    }

    /// Sends a command.
    ///
    /// # Panics
    /// When Redis can't be reached or answers nonsense.
    pub fn command(&self, parts: &[&str]) -> Reply {
        ask(self.port, parts).unwrap_or_else(|e| panic!("Redis, {parts:?}: {e}"))
    }

    /// Opens a connection that stays.
    ///
    /// # Panics
    /// When Redis can't be reached.
    #[must_use]
    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap_or_else(|e| panic!("Redis: {e}"));
        Connection { stream: BufReader::new(stream) }
    }

    /// All keys, sorted; but for the bucket of the sidecar's self-check, which is there for a second after each connect.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let Reply::Array(items) = self.command(&["KEYS", "*"]) else { return Vec::new() };
        let text = |item| match item {
            Reply::Bulk(Some(bytes)) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        };
        let own = |key: &String| key.starts_with("rl:{kota:self-check:");
        let mut keys: Vec<_> = items.into_iter().filter_map(text).filter(|key| !own(key)).collect();
        keys.sort();
        keys
    }

    /// A section of what it tells about itself.
    #[must_use]
    pub fn info(&self, section: &str) -> String {
        match self.command(&["INFO", section]) {
            Reply::Bulk(Some(info)) => String::from_utf8_lossy(&info).into_owned(),
            _ => String::new(),
        }
    }

    /// Calls of one command so far, such as `evalsha`.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        let info = self.info("commandstats");
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    }
}

// === impl Reply ===

impl Reply {
    /// Its text.
    ///
    /// # Panics
    /// It has none.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("no text: {other:?}"),
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Sends commands that [`encode`] wrote.
    ///
    /// # Panics
    /// When Redis has gone.
    pub fn send(&mut self, commands: &[u8]) {
        self.stream.get_mut().write_all(commands).unwrap_or_else(|e| panic!("Redis: {e}"));
    }

    /// The answer to the oldest command that has none yet.
    ///
    /// # Panics
    /// When Redis has gone or answers nonsense.
    pub fn receive(&mut self) -> Reply {
        read_reply(&mut self.stream).unwrap_or_else(|e| panic!("Redis: {e}"))
    }
}

/// Appends a command to `out`.
pub fn encode<T: AsRef<[u8]>>(parts: &[T], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts.iter().map(AsRef::as_ref) {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn ask(port: u16, parts: &[&str]) -> io::Result<Reply> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = Vec::new();
    encode(parts, &mut request);
    (&stream).write_all(&request)?;
    read_reply(&mut BufReader::new(stream))
}

fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let number = || rest.parse::<i64>().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e));
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Integer(number()?)),
        "$" => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Bulk(None)) };
            let mut bytes = vec![0; length + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Bulk(Some(bytes)))
        }
        "*" => (0..number()?).map(|_| read_reply(from)).collect::<io::Result<_>>().map(Reply::Array),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line}"))),
    }
}
