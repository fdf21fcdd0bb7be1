use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

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

/// What makes a bucket: domain, rule, tag, and the parts of its key.
type Bucket = (&'static str, &'static str, &'static str, Vec<(&'static str, Option<Vec<u8>>)>);

/// Values that look like a part of a key.
const TRICKY: [&str; 18] = [
    "",
    "a",
    "b",
    "ab",
    "~",
    "~shared",
    "shared",
    "a:b",
    "a:user=b",
    "a}",
    "{a}",
    "=",
    "user=a",
    "r",
    ":tb1",
    "2001:db8::/64",
    "~LXYwvtvulA4q8cLc4LA6UA",
    "~jwTuKlwmP8am41dwBd_m1g",
];

fn buckets() -> impl Strategy<Value = Bucket> {
    let name = |names: &'static [&'static str]| prop::sample::select(names);
    let value = prop_oneof![
        prop::sample::select(&TRICKY[..]).prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
        prop::collection::vec(prop::sample::select(&b":=}{~|a"[..]), 0..6),
    ];
    let part = (name(&["user", "api_key", "key", "ip", "rule", "path"]), prop::option::of(value));
    (
        name(&["a", "a.user", "public-api"]),
        name(&["r", "r-tb1", "rule"]),
        name(&["tb1", "sw1"]),
        prop::collection::vec(part, 0..4),
    )
}

fn key_of((domain, rule, tag, parts): &Bucket) -> Vec<u8> {
    let keys = Keys::from_lines(SECRET).unwrap();
    let written = parts.iter().map(|(kind, value)| {
        let mut text = Vec::new();
        keys.write_value(&mut text, domain, kind, value.as_deref(), kind.ends_with("key"));
        (*kind, text)
    });
    let written: Vec<_> = written.collect();
    let mut into = Vec::new();
    write_key(&mut into, domain, rule, tag, written.iter().map(|(kind, text)| (*kind, text.as_slice())));
    into
}

proptest! {
    /// Whatever values hold that looks like the rest of a key: two buckets never share one, and what stands in braces is the client.
    #[test]
    fn mk_11_no_two_buckets_have_the_same_key(all in prop::collection::vec(buckets(), 60)) {
        let mut seen: HashMap<Vec<u8>, &Bucket> = HashMap::new();
        for bucket in &all {
            let key = key_of(bucket);
            prop_assert!(key.len() <= 512 && key.iter().all(u8::is_ascii_graphic));
            prop_assert_eq!(key.iter().filter(|byte| b"{}".contains(byte)).count(), 2);
            let shown = key.escape_ascii().to_string();
            if let Some(other) = seen.insert(key, bucket) {
                prop_assert_eq!(other, bucket, "{}", shown);
            }
        }
    }
}
