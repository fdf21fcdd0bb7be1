//! A parameter of the query, in one form for all of its spellings.
//!
//! What is decided, and why:
//!
//! | spelling | decision | reason |
//! |---|---|---|
//! | `a=1&b=2` | only `&` separates | so do all current parsers; `;` did in some old ones |
//! | `%67`, `+` | name and value are decoded once, `+` is a space | as forms are (WHATWG URL §5.1), which is what upstreams read |
//! | `a=1&a=2` | `a` is absent | which of them the upstream reads is not known, and the client would choose its bucket |
//! | `a`, `a=` | absent, and one more `a` if there is another | an empty value is none, as in a header |
//! | letter case of names | kept | `Tenant` is another parameter than `tenant` |
//! | `%zz` | stays as it is | there is nothing that it stands for |

use crate::percent::Decoded;
use std::borrow::Cow;

/// The value of the parameter of that name in a request's raw `:path`; `None` if there is none, or more than one.
#[must_use]
pub fn parameter<'a>(path: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    let mut named = pairs(query(path)?).filter(|(raw, _)| Decoded::of_form(raw).eq(name.iter().copied()));
    let (_, value) = named.next()?;
    match named.next() {
        None => Some(decoded(value)),
        Some(_) => None,
    }
}

/// What lies between the first `?` and a fragment.
fn query(path: &[u8]) -> Option<&[u8]> {
    let path = path.split(|byte| *byte == b'#').next()?;
    let start = path.iter().position(|byte| *byte == b'?')?;
    path.get(start.saturating_add(1)..)
}

fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').map(|pair| split_once(pair, b'=').unwrap_or((pair, b"")))
}

fn decoded(value: &[u8]) -> Cow<'_, [u8]> {
    if value.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        Decoded::of_form(value).collect::<Vec<u8>>().into()
    } else {
        value.into()
    }
}

/// The parts before and after the first such byte.
pub(crate) fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == separator)?;
    Some((text.get(..at)?, text.get(at.saturating_add(1)..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_in_every_spelling() {
        for (path, value) in [
            ("/", None),
            ("/?tenant=acme", Some("acme")),
            ("/?x=1&tenant=acme&y", Some("acme")),
            ("/?%74enan%74=%61cme", Some("acme")),
            ("/?tenant=a+b", Some("a b")),
            ("/?tenant=a%2Bb", Some("a+b")),
            ("/?tenant=%2561", Some("%61")),
            ("/?tenant=a=b?c", Some("a=b?c")),
            ("/?tenant=a;tenant=b", Some("a;tenant=b")),
            ("/?a?tenant=acme", None),
            ("/?Tenant=acme", None),
            ("/?tenant", Some("")),
            ("/?tenant=", Some("")),
            ("/?tenant=a&tenant=b", None),
            ("/?tenant=a&tenant=a", None),
            ("/?tenant=a&%74enant", None),
            ("/?tenant=acme#x?tenant=b", Some("acme")),
            ("/#?tenant=acme", None),
            ("/tenant=acme", None),
            ("http://h/?tenant=acme", Some("acme")),
        ] {
            let found = parameter(path.as_bytes(), b"tenant");
            assert_eq!(found.as_deref(), value.map(str::as_bytes), "{path}");
        }
        assert_eq!(parameter(b"/?a+b=%ff", b"a b").as_deref(), Some(&b"\xff"[..]));
    }
}
