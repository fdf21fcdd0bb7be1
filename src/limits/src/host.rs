//! One form for all spellings of an authority.

use std::borrow::Cow;

/// The host of an authority: lower-case, without user, port and the dot of a fully qualified name, none of which names another
/// host. `[::1]:443` gives `[::1]`.
#[must_use]
pub fn normalise(authority: &[u8]) -> Cow<'_, [u8]> {
    let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or(authority);
    let host = without_port(host);
    let host = host.strip_suffix(b".").unwrap_or(host);
    if host.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| !byte.is_ascii_digit()).and_then(|last| host.split_at_checked(last)) {
        Some((name, [b':', ..])) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_is_one_host() {
        for (authority, wanted) in [
            ("example.com", "example.com"),
            ("Example.COM", "example.com"),
            ("example.com:443", "example.com"),
            ("example.com:", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("user:1@example.com:80", "example.com"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("[::1]:443", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
            (":80", ""),
            ("123", "123"),
        ] {
            assert_eq!(*normalise(authority.as_bytes()), *wanted.as_bytes(), "{authority}");
        }
        assert_eq!(*normalise(b"\xffA"), *b"\xffa");
    }
}
