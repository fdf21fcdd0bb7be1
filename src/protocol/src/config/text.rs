//! The forms of short texts: ids, names, header names, methods.

use crate::json::fault::{excerpt, near_miss};
use crate::json::spot::Spot;
use limits::route::METHODS;

/// The longest header name, in bytes.
const HEADER_NAME_MAX: usize = 128;
/// The longest id of a rule, name of a policy or domain, in bytes.
const ID_MAX: usize = 64;
/// The longest name of a descriptor, in bytes.
const DESCRIPTOR_NAME_MAX: usize = 32;

/// An id or a policy's name: `[a-z0-9][a-z0-9_-]{0,63}`.
pub(super) fn id<'t>(spot: &Spot<'t>) -> Option<&'t str> {
    let text = spot.text(ID_MAX)?;
    let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if text.bytes().all(tail) && !text.starts_with(['_', '-']) {
        return Some(text);
    }
    spot.fault(format_args!(
        "\"{}\" is no id: want lower-case letters, digits, - and _, a letter or a digit first",
        excerpt(text)
    ));
    None
}

/// A domain: `[A-Za-z0-9._-]{1,64}`, since it begins every key.
pub(super) fn domain<'t>(spot: &Spot<'t>) -> Option<&'t str> {
    let text = spot.text(ID_MAX)?;
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Some(text);
    }
    spot.fault(format_args!("\"{}\" is no domain: want letters, digits, ., _ and -", excerpt(text)));
    None
}

/// Whether a name can be a descriptor's: `[a-z][a-z0-9_]{0,31}`.
pub(super) fn is_descriptor_name(name: &str) -> bool {
    name.len() <= DESCRIPTOR_NAME_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A header's name, in the lower case in which the filter sees it, whatever the client or the operator wrote.
pub(super) fn header_name(spot: &Spot<'_>) -> Option<Box<str>> {
    let text = spot.text(HEADER_NAME_MAX)?;
    let lower = text.to_ascii_lowercase();
    let remedy = match lower.as_str() {
        "host" | ":authority" => Some("say \"host\", which is built in"),
        ":method" => Some("say \"method\", which is built in"),
        ":path" => Some("say \"path\" or \"route\", which are built in"),
        _ if lower.starts_with(':') => Some("pseudo-headers can't be read"),
        _ if !lower.bytes().all(is_token) => Some("want letters, digits and !#$%&'*+-.^_`|~"),
        _ => None,
    };
    match remedy {
        None => Some(lower.into()),
        Some(remedy) => {
            spot.fault(format_args!("\"{}\" is no header's name: {remedy}", excerpt(text)));
            None
        }
    }
}

/// Notes a fault unless the text is a known method. They are case-sensitive (RFC 9110 §9.1): `get` is another method than `GET`,
/// and one that is never seen.
pub(super) fn is_method(spot: &Spot<'_>, text: &str) -> bool {
    if METHODS.contains(&text) {
        return true;
    }
    let meant = match near_miss(text, METHODS) {
        Some(method) => format!("did you mean \"{method}\"?"),
        None => format!("want one of {}", METHODS.join(" ")),
    };
    spot.fault(format_args!("\"{}\" is no known method (they are upper-case); {meant}", excerpt(text)));
    false
}

/// A character of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
