//! A cookie, in one form for all of its spellings.
//!
//! What is decided, and why:
//!
//! | spelling | decision | reason |
//! |---|---|---|
//! | several `cookie` lines | read as one | HTTP/2 may split them (RFC 9113 §8.2.3), and proxies join them again |
//! | `a=1; a=2`, on whatever lines | `a` is absent | which of them the upstream reads is not known |
//! | `a="1"` | `1` | most parsers take the quotes off, and a pair of them must not be worth a second budget |
//! | `a=%31` | `1`, decoded once; `+` stays | many frameworks decode. Where the upstream does not, two values share a bucket, which gains nobody anything |
//! | letter case of names | kept | as user agents do (RFC 6265 §5) |

use crate::percent::Decoded;
use crate::query::split_once;
use std::borrow::Cow;

/// The value of the cookie of that name among the lines of a request's `cookie` header; `None` if there is none, or more than one.
#[must_use]
pub fn value<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &[u8]) -> Option<Cow<'a, [u8]>> {
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    let mut named = pairs.filter_map(|pair| {
        let (found, value) = split_once(pair, b'=').unwrap_or((pair, b""));
        (found.trim_ascii() == name).then(|| value.trim_ascii())
    });
    let value = named.next()?;
    match named.next() {
        None => Some(decoded(unquoted(value))),
        Some(_) => None,
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

fn decoded(value: &[u8]) -> Cow<'_, [u8]> {
    if value.contains(&b'%') { Decoded::of_text(value).collect::<Vec<u8>>().into() } else { value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_in_every_spelling() {
        for (lines, wanted) in [
            (&[][..], None),
            (&["sid=abc"], Some("abc")),
            (&["theme=dark; sid=abc;lang=tr"], Some("abc")),
            (&["theme=dark", "sid=abc"], Some("abc")),
            (&["sid=\"abc\""], Some("abc")),
            (&[" sid = abc "], Some("abc")),
            (&["sid=%61bc"], Some("abc")),
            (&["sid=%2561"], Some("%61")),
            (&["sid=a+b==="], Some("a+b===")),
            (&["sid=\""], Some("\"")),
            (&["sid="], Some("")),
            (&["sid"], Some("")),
            (&["SID=abc"], None),
            (&["xsid=abc; sid2=abc"], None),
            (&["sid=a; sid=b"], None),
            (&["sid=a", "sid=a"], None),
            (&["sid=a; sid"], None),
        ] {
            let found = value(lines.iter().map(|line| line.as_bytes()), b"sid");
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{lines:?}");
        }
    }
}
