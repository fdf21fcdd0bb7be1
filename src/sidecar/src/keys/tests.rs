use super::*;

const SECRET: &str = "000102030405060708090a0b0c0d0e0f";

fn value(kind: &str, value: Option<&[u8]>, secret: bool) -> String {
    let mut into = Vec::new();
    Keys::from_lines(SECRET).unwrap().write_value(&mut into, "public-api", kind, value, secret);
    String::from_utf8(into).unwrap()
}

fn key(parts: &[(&str, &str)]) -> String {
    let mut into = Vec::new();
    let parts = parts.iter().map(|(kind, value)| (*kind, value.as_bytes()));
    write_key(&mut into, "public-api", "gold-orders", "tb1", parts);
    String::from_utf8(into).unwrap()
}

/// Other pods, with other builds, read the same Redis: these bytes are fixed.
#[test]
fn keys_are_written_byte_for_byte_so() {
    assert_eq!(key(&[("user", "u_1")]), "rl:{public-api:user:u_1}:gold-orders:tb1");
    assert_eq!(key(&[("api_key", "~x")]), "rl:{public-api:key:~x}:gold-orders:tb1");
    assert_eq!(
        key(&[("user", "u_1"), ("route", "~r"), ("api_key", "~shared")]),
        "rl:{public-api:user:u_1}:gold-orders:tb1:route=~r:key=~shared"
    );
    assert_eq!(key(&[]), "rl:{public-api:rule:gold-orders}:gold-orders:tb1");
}

#[test]
fn plain_values_are_written_as_they_are_and_others_as_their_hmac() {
    let longest = "x".repeat(PLAIN_MAX);
    for plain in ["u_1", "203.0.113.7", "A-z.0_9", "", &longest] {
        assert_eq!(value("user", Some(plain.as_bytes()), false), plain);
    }
    // HMAC-SHA256(key, "public-api|user|a b"), cut to 16 bytes: computed with Python's hmac.
    assert_eq!(value("user", Some(b"a b"), false), "~LXYwvtvulA4q8cLc4LA6UA");
    assert_eq!(value("api_key", Some(b"k_123"), true), "~jwTuKlwmP8am41dwBd_m1g");
    let longer = "x".repeat(PLAIN_MAX + 1);
    for odd in [&b"2001:db8::/64"[..], b"{x}", b"~x", b"\xff\xfe", b"a\0b", longer.as_bytes()] {
        let written = value("user", Some(odd), false);
        assert!(written.starts_with('~') && written.len() == 23, "{written}");
    }
}

#[test]
fn a_value_is_told_from_the_same_value_of_another_kind_and_from_nobody() {
    assert_ne!(value("user", Some(b"k"), true), value("api_key", Some(b"k"), true));
    assert_eq!(value("user", None, true), "~shared");
    assert_ne!(value("user", Some(b"shared"), false), "~shared");
    assert_ne!(value("user", Some(b"~shared"), false), "~shared");
}

#[test]
fn the_first_key_of_a_file_names_and_every_line_is_checked() {
    let two = format!("# rotated in May\n\n {SECRET} # new\nffffffffffffffffffffffffffffffff\n");
    let mut into = Vec::new();
    Keys::from_lines(&two).unwrap().write_value(&mut into, "public-api", "api_key", Some(b"k_123"), true);
    assert_eq!(into, value("api_key", Some(b"k_123"), true).as_bytes());
    assert_eq!(Keys::from_lines("# none\n").unwrap_err(), SecretsError::Empty);
    assert_eq!(Keys::from_lines("xyz").unwrap_err(), SecretsError::NotHex(1));
    assert_eq!(Keys::from_lines("abc").unwrap_err(), SecretsError::NotHex(1));
    assert_eq!(Keys::from_lines(&format!("{SECRET}\nabcd")).unwrap_err(), SecretsError::Short(2));
}

#[test]
fn a_secret_never_shows_itself() {
    assert_eq!(format!("{:?}", Keys::from_lines(SECRET).unwrap()), "Keys");
}
