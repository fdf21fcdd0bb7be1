//! One form for all spellings of a path, so that a client cannot take a fresh budget by writing a URL differently.
//!
//! What is decided, and why (the shipped Envoy bootstrap has already merged slashes and removed dot segments; this holds without it):
//!
//! | spelling | decision | reason |
//! |---|---|---|
//! | `?query`, `#fragment` | dropped | neither is part of the path; random queries must not dodge a rule |
//! | `http://host/path` | its path | the absolute form names the same resource |
//! | `*`, empty | `*` stays (`OPTIONS *`), empty is `/` | |
//! | `%6C` | decoded, once | RFC 3986 §6.2.2.2: same resource; decoding twice would merge `%256C`, which is another |
//! | `%25 %2F %3F %23 %3B` | stay encoded, in upper case | decoded they would be read as syntax. Upstreams that split before they decode (Go, Express, axum, Envoy by default) serve `a%2Fb` as one segment. Where the upstream decodes first (nginx), set Envoy's `path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD`, and both see the slash |
//! | `%zz`, `%4` | the `%` is read as `%25` | no upstream agrees with another, most answer 400; never a second budget for `%25zz` |
//! | `;params` | dropped from every segment, before dots are looked at | servlet containers ignore them when they route, so `/v1/login;x=1` and `/x/..;/v1/login` are `/v1/login` there; elsewhere it is a 404 that uses up the budget it asked for |
//! | `//` | one slash | |
//! | `.`, `..`, `%2e` | resolved, never above the root; after slashes are merged, as Go and nginx do | |
//! | trailing slash | dropped | most upstreams serve or redirect it to the same route |
//! | letter case | kept here, ignored by route literals (see [`crate::route`]) | a path may hold identifiers that differ by case |
//! | overlong UTF-8, NUL, other bytes | bytes like any other | `%c0%af` is no slash for a conforming decoder |
//!
//! The form is a fixed point: the normal form of a normal form is itself.

use crate::percent::hex;
use std::borrow::Cow;

/// Bytes that stay percent-encoded, since decoded they would be read as syntax.
const SYNTAX: [u8; 5] = *b"%/?#;";

/// The normal form of a request's raw `:path`, as the table above has it. Borrowed where the path already is in that form but for
/// a query, a fragment or a trailing slash.
#[must_use]
pub fn normalise(raw: &[u8]) -> Cow<'_, [u8]> {
    match normal_length(raw).and_then(|length| raw.get(..length)) {
        Some(normal) => Cow::Borrowed(normal),
        None => Cow::Owned(rewrite(raw)),
    }
}

/// The length of the normal form where it is a beginning of `raw`.
fn normal_length(raw: &[u8]) -> Option<usize> {
    let (b'/', rest) = raw.split_first()? else { return None };
    let mut previous = b'/';
    let mut length = 1_usize;
    for &byte in rest {
        match byte {
            b'?' | b'#' => break,
            b'%' | b';' => return None,
            b'/' | b'.' if previous == b'/' => return None,
            _ => {}
        }
        previous = byte;
        length = length.saturating_add(1);
    }
    // The root is the only path that ends with a slash.
    Some(if previous == b'/' { length.saturating_sub(1).max(1) } else { length })
}

fn rewrite(raw: &[u8]) -> Vec<u8> {
    let path = origin_form(raw);
    let path = path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or(path);
    if path == b"*" {
        return path.to_vec();
    }
    let mut normal = Vec::with_capacity(path.len().saturating_add(1));
    for segment in path.split(|byte| *byte == b'/') {
        let start = normal.len();
        normal.push(b'/');
        decode(segment.split(|byte| *byte == b';').next().unwrap_or(segment), &mut normal);
        match normal.get(start..) {
            Some(b"/" | b"/.") => normal.truncate(start),
            Some(b"/..") => {
                normal.truncate(start);
                normal.truncate(normal.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            }
            _ => {}
        }
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    normal
}

/// Cuts `scheme://authority` off.
fn origin_form(raw: &[u8]) -> &[u8] {
    let scheme = raw.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
    match raw.get(scheme..).and_then(|rest| rest.strip_prefix(b"://")) {
        Some(rest) if scheme > 0 => {
            let path = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
            path.and_then(|start| rest.get(start..)).unwrap_or_default()
        }
        _ => raw,
    }
}

fn decode(segment: &[u8], into: &mut Vec<u8>) {
    let mut rest = segment;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            into.push(byte);
            continue;
        }
        let escape = match tail {
            [high, low, after @ ..] => hex(*high).zip(hex(*low)).map(|digits| (digits, after)),
            _ => None,
        };
        let Some(((high, low), after)) = escape else {
            into.extend_from_slice(b"%25");
            continue;
        };
        rest = after;
        let decoded = (high << 4) | low;
        if SYNTAX.contains(&decoded) {
            into.extend(escaped(decoded));
        } else {
            into.push(decoded);
        }
    }
}

fn escaped(byte: u8) -> impl Iterator<Item = u8> {
    let digit = |value: u8| {
        char::from_digit(u32::from(value), 16).map_or(b'0', |digit| digit.to_ascii_uppercase() as u8)
    };
    [b'%', digit(byte >> 4), digit(byte & 15)].into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(raw: &str) -> String {
        String::from_utf8(normalise(raw.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn mk_01_every_spelling_of_a_path_is_one_path() {
        for raw in [
            "/v1/login",
            "//v1/login",
            "/v1//login",
            "///v1///login///",
            "/v1/login/",
            "/v1/./login",
            "/v1/login/.",
            "/v1/x/../login",
            "/v1/login/x/..",
            "/../v1/login",
            "/../../v1/login",
            "/v1/%6Cogin",
            "/v1/%6cogin",
            "/%76%31/login",
            "/v1/x/%2e%2E/login",
            "/v1/%2e/login",
            "/v1/login?q",
            "/v1/login?",
            "/v1/login/?a=b#c",
            "/v1/login?a=/../x",
            "/v1/login#f",
            "/v1/login#f?g",
            "http://example.com/v1/login",
            "HTTPS://user@example.com:443//v1/login?q",
            "v1/login",
            "/v1/login;jsessionid=1",
            "/v1;a=b/login;",
            "/x/..;/v1/login",
            "/;/v1/login",
        ] {
            assert_eq!(normal(raw), "/v1/login", "{raw:?}");
        }
    }

    #[test]
    fn mk_03_a_query_is_never_part_of_the_path() {
        for raw in ["/search", "/search?x=1", "/search?", "/search#f", "/search?/../%zz;"] {
            assert_eq!(normal(raw), "/search", "{raw:?}");
        }
    }

    #[test]
    fn what_is_another_resource_stays_another() {
        for (raw, wanted) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/?q", "/"),
            ("/..", "/"),
            ("http://example.com", "/"),
            ("http://example.com?q", "/"),
            ("*", "*"),
            ("example.com:443", "/example.com:443"),
            ("://x", "/:/x"),
            ("/V1/Login", "/V1/Login"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%252Fb", "/a%252Fb"),
            ("/%256Cogin", "/%256Cogin"),
            ("/100%", "/100%25"),
            ("/100%25", "/100%25"),
            ("/%zz%4", "/%25zz%254"),
            ("/%%36C", "/%256C"),
            ("/a%3Bb%3fc%23", "/a%3Bb%3Fc%23"),
            ("/a%20b", "/a b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/a//../b", "/b"),
            ("/a%2F../b", "/a%2F../b"),
        ] {
            assert_eq!(normal(raw), wanted, "{raw:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_bytes() {
        assert_eq!(*normalise(b"/a%00b"), *b"/a\0b");
        assert_eq!(*normalise(b"/a\0b"), *b"/a\0b");
        assert_eq!(*normalise(b"/\xff/%ff"), *b"/\xff/\xff");
        assert_eq!(*normalise(b"/v1%c0%aflogin"), *b"/v1\xc0\xaflogin");
        assert_eq!(*normalise(b"/%c0%ae%c0%ae/x"), *b"/\xc0\xae\xc0\xae/x");
    }

    #[test]
    fn a_normal_path_is_borrowed() {
        for raw in ["/", "/orders/17", "/orders/17?q=%20", "/orders/17/", "/a.b/c..d"] {
            assert!(matches!(normalise(raw.as_bytes()), Cow::Borrowed(_)), "{raw:?}");
        }
    }
}
