//! The flags, checked as a whole before any port binds.

use crate::keys::Keys;
use crate::listen::Address;
use crate::store::redis::{Target, TlsFiles};
use log::LevelFilter;
use protocol::config::Config;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest drain wait, in milliseconds.
const DRAIN_WAIT_MAX_MS: u64 = 600_000;
/// The most threads.
const THREADS_MAX: usize = 64;

/// The flags as they were written.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`: where the filter comes in.
    pub listen: String,
    /// `--api`: where everybody else does.
    pub api: String,
    /// `--store`: `memory`, or a Redis URL.
    pub store: String,
    /// `--redis-ca`, `--redis-cert`, `--redis-key-file`: for a store behind TLS.
    pub tls: TlsFiles,
    /// `--rules`: a configuration file, for `/v1/check`.
    pub rules: Option<String>,
    /// `--key-file`: the secrets that hide values in keys.
    pub key_file: Option<String>,
    /// `--allow-uid`: users that may connect to the Unix socket.
    pub allow_uid: Vec<String>,
    /// `--insecure-loopback`: TCP for the filter.
    pub insecure_loopback: bool,
    /// `--drain-wait-ms`.
    pub drain_wait_ms: String,
    /// `--threads`.
    pub threads: String,
    /// `--log`.
    pub log: String,
}

/// The flags as they are meant.
#[derive(Debug)]
pub struct Settings {
    /// Where the filter comes in.
    pub listen: Address,
    /// Where everybody else does.
    pub api: SocketAddr,
    /// Where the buckets are.
    pub store: StoreSetting,
    /// The configuration whose rules `/v1/check` applies.
    pub config: Option<Config>,
    /// Names the buckets.
    pub keys: Keys,
    /// Users that may connect to the Unix socket.
    pub allowed: Vec<u32>,
    /// How long to go on serving after readiness is off.
    pub drain_wait: Duration,
    /// Threads that serve.
    pub threads: usize,
    /// The least important lines that are logged.
    pub log: LevelFilter,
}

/// Where the buckets are.
#[derive(Clone, Debug)]
pub enum StoreSetting {
    /// In this process.
    Memory,
    /// In a Redis.
    Redis(Target),
}

/// A flag that can't be used: which, what it said, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFlag {
    /// The flag's name, with its dashes.
    pub flag: &'static str,
    /// Its value, unless that may hold a secret.
    pub value: String,
    /// What is wrong and what to write instead.
    pub remedy: String,
}

// === impl Settings ===

impl Settings {
    /// Checks the flags and reads the key file. `uid` is the user that this process runs as.
    ///
    /// # Errors
    /// The first flag that can't be used.
    pub fn from_flags(flags: &Flags, uid: u32) -> Result<Self, BadFlag> {
        let store = store(&flags.store, &flags.tls)?;
        Ok(Self {
            listen: listen(&flags.listen, flags.insecure_loopback)?,
            api: flags
                .api
                .parse()
                .map_err(|_| bad("--api", &flags.api, "want an address and port, such as 127.0.0.1:9180"))?,
            keys: keys(flags.key_file.as_deref(), &store)?,
            store,
            config: flags.rules.as_deref().map(config).transpose()?,
            allowed: allowed(&flags.allow_uid, uid)?,
            drain_wait: Duration::from_millis(number(
                "--drain-wait-ms",
                &flags.drain_wait_ms,
                0,
                DRAIN_WAIT_MAX_MS,
            )?),
            threads: number("--threads", &flags.threads, 1, THREADS_MAX as u64)? as usize,
            log: flags
                .log
                .parse()
                .map_err(|_| bad("--log", &flags.log, "want off, error, warn, info, debug or trace"))?,
        })
    }
}

fn listen(text: &str, insecure_loopback: bool) -> Result<Address, BadFlag> {
    let address: Address = text.parse().map_err(|remedy: String| bad("--listen", text, &remedy))?;
    match address {
        Address::Tcp(at) if !at.ip().is_loopback() => Err(bad(
            "--listen",
            text,
            "whoever reaches this port can drain any bucket, and mutual TLS is not in this version; use unix:PATH",
        )),
        Address::Tcp(_) if !insecure_loopback => Err(bad(
            "--listen",
            text,
            "every user of this machine could drain any bucket; use unix:PATH, or add --insecure-loopback for a trial",
        )),
        address => Ok(address),
    }
}

fn store(text: &str, tls: &TlsFiles) -> Result<StoreSetting, BadFlag> {
    let target = match text {
        "memory" => None,
        // The URL may hold a password: it is not repeated.
        url => Some(Target::parse(url).map_err(|remedy| bad("--store", "(a URL)", &remedy))?),
    };
    let secure = target.as_ref().is_some_and(Target::is_secure);
    match (target, tls.first()) {
        (_, Some((flag, path))) if !secure => Err(bad(
            flag,
            path,
            "the store is not behind TLS; say rediss:// or rediss+cluster://, or leave this out",
        )),
        (None, _) => Ok(StoreSetting::Memory),
        (Some(target), _) => {
            let target = target.with_tls(tls).map_err(|file| bad(file.flag, &file.path, &file.remedy))?;
            Ok(StoreSetting::Redis(target))
        }
    }
}

fn config(path: &str) -> Result<Config, BadFlag> {
    let text = fs::read(path).map_err(|error| bad("--rules", path, &format!("cannot be read: {error}")))?;
    Config::parse(&text).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        bad("--rules", path, &format!("has faults; see `kota validate`\n  {}", lines.join("\n  ")))
    })
}

fn keys(path: Option<&str>, store: &StoreSetting) -> Result<Keys, BadFlag> {
    let Some(path) = path else {
        return match store {
            StoreSetting::Memory => Keys::random()
                .map_err(|error| bad("--key-file", "", &format!("no randomness for a key: {error}"))),
            StoreSetting::Redis(_) => Err(bad(
                "--key-file",
                "",
                "a Redis store needs one: a file with a hexadecimal key of 32 bytes, the same in all pods (openssl rand -hex 32)",
            )),
        };
    };
    let text = fs::read_to_string(path)
        .map_err(|error| bad("--key-file", path, &format!("cannot be read: {error}")))?;
    Keys::from_lines(&text)
        .map_err(|error| bad("--key-file", path, &format!("{error}; want a hexadecimal key a line")))
}

fn allowed(texts: &[String], own: u32) -> Result<Vec<u32>, BadFlag> {
    if texts.is_empty() {
        return Ok(vec![own]);
    }
    let uid =
        |text: &String| text.trim().parse().map_err(|_| bad("--allow-uid", text, "want a user's number"));
    texts.iter().map(uid).collect()
}

fn number(flag: &'static str, text: &str, least: u64, most: u64) -> Result<u64, BadFlag> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(bad(flag, text, &format!("want a whole number from {least} to {most}"))),
    }
}

fn bad(flag: &'static str, value: &str, remedy: &str) -> BadFlag {
    BadFlag { flag, value: value.to_owned(), remedy: remedy.to_owned() }
}

impl fmt::Display for BadFlag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(out, "{}: {}", self.flag, self.remedy),
            value => write!(out, "{} {value}: {}", self.flag, self.remedy),
        }
    }
}

#[cfg(test)]
mod tests;
