//! The forms of short texts: ids, names, header names, methods.

use crate::json::fault::{excerpt, near_miss};
use crate::json::spot::Spot;
use crate::name;
use limits::route::METHODS;

/// The longest header name, in bytes.
const HEADER_NAME_MAX: usize = 128;
/// An id or a policy's name.
pub(super) fn id<'t>(spot: &Spot<'t>) -> Option<&'t str> {
    let text = spot.text(name::ID_MAX)?;
    if name::is_id(text) {
        return Some(text);
    }
    spot.fault(format_args!(
        "\"{}\" is no id: want lower-case letters, digits, - and _, a letter or a digit first",
        excerpt(text)
    ));
    None
}

/// A domain.
pub(super) fn domain<'t>(spot: &Spot<'t>) -> Option<&'t str> {
    let text = spot.text(name::DOMAIN_MAX)?;
    if name::is_domain(text) {
        return Some(text);
    }
    spot.fault(format_args!("\"{}\" is no domain: want letters, digits, ., _ and -", excerpt(text)));
    None
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

/// A cookie's name, in the letter case that it has.
pub(super) fn cookie_name(spot: &Spot<'_>) -> Option<Box<str>> {
    let text = spot.text(HEADER_NAME_MAX)?;
    if text.bytes().all(is_token) {
        return Some(text.into());
    }
    spot.fault(format_args!(
        "\"{}\" is no cookie's name: want letters, digits and !#$%&'*+-.^_`|~",
        excerpt(text)
    ));
    None
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
