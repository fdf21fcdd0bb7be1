//! Paths: every spelling has one normal form, and what is done to a spelling without changing what it names changes nothing.

use limits::path::normalise;
use limits::route::{Route, Routes};
use std::sync::LazyLock;

static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    let texts =
        ["* /**", "GET /v1/login", "* /orders/{id}", "POST /orders/new", "* /{a}/{b}/c", "GET /%2F/é"];
    Routes::new(texts.map(|text| Route::parse(text).expect("a route")).to_vec())
});

/// Any bytes as a raw `:path`.
pub fn holds(raw: &[u8]) {
    let normal = normalise(raw).into_owned();
    assert_eq!(*normalise(&normal), *normal, "the normal form of a normal form is itself");
    assert!(
        normal.len() <= raw.len().saturating_mul(3).saturating_add(1),
        "a % grows to %25, and nothing more"
    );
    is_normal(&normal);
    respelled(raw, &normal);
    found(&normal);
    if let Ok(text) = str::from_utf8(raw)
        && let Ok(route) = Route::parse(text)
    {
        let routes = Routes::new(vec![route.clone()]);
        assert_eq!(routes.index_of(&route), Some(0));
        assert_eq!(routes.spelling(route.text().as_bytes()), Some(route.text()));
    }
}

fn is_normal(normal: &[u8]) {
    if normal == b"*" {
        return;
    }
    assert!(normal.starts_with(b"/"));
    assert!(normal == b"/" || !normal.ends_with(b"/"), "no trailing slash");
    assert!(!normal.iter().any(|byte| b"?#;".contains(byte)), "no query, fragment or parameter");
    for segment in normal.split(|byte| *byte == b'/').skip(1).filter(|_| normal != b"/") {
        assert!(!matches!(segment, b"" | b"." | b".."), "no empty segment, none of dots");
    }
    for (at, _) in normal.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let escape = normal.get(at..at + 3).expect("no escape is cut");
        assert!(
            [&b"%25"[..], b"%2F", b"%3F", b"%23", b"%3B"].contains(&escape),
            "syntax alone stays encoded"
        );
    }
}

/// Other spellings of the same resource.
fn respelled(raw: &[u8], normal: &[u8]) {
    let same = |spelling: &[u8], how: &str| {
        assert_eq!(*normalise(spelling), *normal, "{how}: {}", spelling.escape_ascii());
    };
    let has_query = raw.iter().any(|byte| matches!(byte, b'?' | b'#'));
    if !has_query {
        same(&[raw, b"?a=/../b;c#d"].concat(), "a query");
        same(&[raw, b"#/x"].concat(), "a fragment");
    }
    if normal == b"*" {
        return;
    }
    for (ending, how) in [
        (&b"/"[..], "a slash"),
        (b"//./", "dots"),
        (b"/x/..", "a segment taken back"),
        (b"/;a=b", "a parameter"),
    ] {
        same(&[normal, ending].concat(), how);
    }
    let doubled: Vec<u8> = normal
        .iter()
        .flat_map(|byte| if *byte == b'/' { &b"//"[..] } else { std::slice::from_ref(byte) }.to_vec())
        .collect();
    same(&doubled, "double slashes");
    same(&encoded(normal, false), "percent-encoded in upper case");
    same(&encoded(normal, true), "percent-encoded in lower case");
    same(&[b"HTTP://user@host:1", normal].concat(), "the absolute form");
    same(&[b"/../%2e%2E", normal].concat(), "above the root");
}

/// Every byte but slashes and what already is an escape, percent-encoded.
fn encoded(normal: &[u8], lower: bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(normal.len() * 3);
    let mut rest = normal;
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'/' => text.push(byte),
            b'%' => {
                text.extend_from_slice(&rest[..3]);
                rest = &rest[3..];
                continue;
            }
            _ if lower => text.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => text.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
        rest = tail;
    }
    text
}

/// A path takes the same route in either case, and none that is not there.
fn found(normal: &[u8]) {
    for method in [&b"GET"[..], b"POST", b"HEAD", b""] {
        let index = ROUTES.find(method, normal);
        assert!(index.is_none_or(|index| ROUTES.text(index).is_some()));
        assert_eq!(index.is_none(), normal == b"*", "`* /**` serves every path");
        for other in [normal.to_ascii_uppercase(), normal.to_ascii_lowercase()] {
            assert_eq!(ROUTES.find(method, &other), index, "letter case makes no route");
        }
    }
}
