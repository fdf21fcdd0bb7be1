//! Names of buckets: `rl:{<domain>:<kind>:<value>}:<rule>:<tag>[:<kind>=<value>…]`.
//!
//! What stands in braces is the client; a Redis Cluster keeps all of a client's buckets in one slot by it. A value is written as
//! it is if it is short and plain, else, and always if it is a secret, as `~` and its HMAC: nobody who reads Redis can guess it
//! back, and no plain value can look like one. The tag names algorithm and format, so that a new format is a new key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The longest value that is written as it is, in bytes.
pub const PLAIN_MAX: usize = 64;
/// Bytes of the HMAC that are kept: 128 bits.
pub const MAC_BYTES: usize = 16;
/// The shortest secret, in bytes.
pub const SECRET_MIN: usize = 16;
/// Stands for the value of those who have none. No value is written so: it is too short for an HMAC and not plain.
const SHARED: &[u8] = b"~shared";

/// Makes the names of buckets. All sidecars of one Redis must have the same secret.
#[derive(Clone)]
pub struct Keys {
    mac: Hmac<Sha256>,
}

/// Why a text is no list of secrets. Never holds any of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsError {
    /// There is no line with a key.
    Empty,
    /// The line with this number, from 1, is not hexadecimal.
    NotHex(usize),
    /// The line with this number, from 1, has fewer than [`SECRET_MIN`] bytes.
    Short(usize),
}

// === impl Keys ===

impl Keys {
    /// Names by this secret.
    ///
    /// # Panics
    /// Never: an HMAC takes a key of any length.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { mac: Hmac::new_from_slice(secret).expect("an HMAC takes a key of any length") }
    }

    /// Names by a secret that nobody else has: for a store that nobody else reads.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Self::new(&secret))
    }

    /// Reads a key file: one secret a line in hexadecimal, `#` begins a comment. The first makes names.
    ///
    /// # Errors
    /// See [`SecretsError`]; every line is checked.
    pub fn from_lines(text: &str) -> Result<Self, SecretsError> {
        let mut first = None;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let secret = from_hex(line).ok_or(SecretsError::NotHex(number))?;
            if secret.len() < SECRET_MIN {
                return Err(SecretsError::Short(number));
            }
            first.get_or_insert(secret);
        }
        first.map(|secret| Self::new(&secret)).ok_or(SecretsError::Empty)
    }

    /// Appends how `value` of the descriptor `kind` is written; `None` is the bucket of all who have none.
    pub fn write_value(
        &self,
        into: &mut Vec<u8>,
        domain: &str,
        kind: &str,
        value: Option<&[u8]>,
        secret: bool,
    ) {
        match value {
            None => into.extend_from_slice(SHARED),
            Some(value) if !secret && is_plain(value) => into.extend_from_slice(value),
            Some(value) => self.write_mac(into, domain, kind, value),
        }
    }

    fn write_mac(&self, into: &mut Vec<u8>, domain: &str, kind: &str, value: &[u8]) {
        let mut mac = self.mac.clone();
        for part in [domain.as_bytes(), b"|", kind.as_bytes(), b"|", value] {
            mac.update(part);
        }
        let code = mac.finalize().into_bytes();
        let mut text = [0; (MAC_BYTES * 4).div_ceil(3)];
        // The slices fit by their constant lengths; were they not to, the name would only be shorter.
        let length = URL_SAFE_NO_PAD.encode_slice(&code[..MAC_BYTES], &mut text).unwrap_or_default();
        into.push(b'~');
        into.extend_from_slice(&text[..length]);
    }
}

/// Appends a bucket's name. `parts` are kinds with values as [`Keys::write_value`] wrote them, the client first; none at all is
/// the rule's only bucket.
pub fn write_key<'a>(
    into: &mut Vec<u8>,
    domain: &str,
    rule: &str,
    tag: &str,
    mut parts: impl Iterator<Item = (&'a str, &'a [u8])>,
) {
    let (kind, value) =
        parts.next().map_or(("rule", rule.as_bytes()), |(kind, value)| (written_kind(kind), value));
    write_all(into, [b"rl:{", domain.as_bytes(), b":", kind.as_bytes(), b":", value]);
    write_all(into, [b"}:", rule.as_bytes(), b":", tag.as_bytes()]);
    for (kind, value) in parts {
        write_all(into, [b":", written_kind(kind).as_bytes(), b"=", value]);
    }
}

/// Whether a name that a filter sends (a domain, a rule's id, a descriptor's name) can't be mistaken for another part of a key.
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && is_plain(name.as_bytes())
}

fn write_all<const N: usize>(into: &mut Vec<u8>, pieces: [&[u8]; N]) {
    for piece in pieces {
        into.extend_from_slice(piece);
    }
}

/// A descriptor's name as keys have it: short for the usual one. One that would read as something else is set apart by what no name has.
fn written_kind(kind: &str) -> &str {
    match kind {
        "api_key" => "key",
        "key" => "~key",
        "rule" => "~rule",
        _ => kind,
    }
}

fn is_plain(value: &[u8]) -> bool {
    value.len() <= PLAIN_MAX
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Keys")
    }
}

impl fmt::Display for SecretsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(out, "has no key"),
            Self::NotHex(line) => write!(out, "line {line} is not hexadecimal"),
            Self::Short(line) => write!(out, "line {line} has fewer than {SECRET_MIN} bytes"),
        }
    }
}

#[cfg(test)]
mod tests;
