//! Header maps as the host hands them over: a count, the lengths, then the bytes, each key and value followed by a zero.
//!
//! Read in place and as bytes. The SDK's readers copy every header and require that names be UTF-8; this one allocates nothing
//! and has no input on which it can fail: what does not fit is not there.

/// The most pairs that are looked at; the host itself stops at 1,024.
const PAIRS_MAX: usize = 1_024;

/// The pairs of a header map, in their order.
pub struct Pairs<'a> {
    lengths: &'a [u8],
    bytes: &'a [u8],
}

// === impl Pairs ===

impl<'a> Pairs<'a> {
    /// Reads a serialised header map; `None` if it has no beginning, or more pairs than are looked at.
    #[must_use]
    pub fn new(map: &'a [u8]) -> Option<Self> {
        let (count, rest) = split_u32(map)?;
        let count = usize::try_from(count).ok().filter(|&count| count <= PAIRS_MAX)?;
        let (lengths, bytes) = rest.split_at_checked(count.checked_mul(8)?)?;
        Some(Self { lengths, bytes })
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (key_len, rest) = split_u32(self.lengths)?;
        let (value_len, rest) = split_u32(rest)?;
        self.lengths = rest;
        let (key, bytes) = split_text(self.bytes, key_len)?;
        let (value, bytes) = split_text(bytes, value_len)?;
        self.bytes = bytes;
        Some((key, value))
    }
}

/// The value of a header that stands on one line of a serialised map; `None` if there is none, or several: which of them holds is not
/// known, and the host's own reader would give the first.
#[must_use]
pub fn only<'a>(map: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut lines = Pairs::new(map)?.filter(|(key, _)| *key == name.as_bytes());
    match (lines.next(), lines.next()) {
        (Some((_, value)), None) => Some(value),
        _ => None,
    }
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u32::from_le_bytes(*number), rest))
}

/// A text of `len` bytes and the zero behind it.
fn split_text(bytes: &[u8], len: u32) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    Some((text, rest.split_first()?.1))
}

/// Writes a header map in the same form.
#[must_use]
pub fn write<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<u8> {
    let mut map = Vec::with_capacity(512);
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    map.extend_from_slice(&word(pairs.clone().count()));
    for (key, value) in pairs.clone() {
        map.extend_from_slice(&word(key.len()));
        map.extend_from_slice(&word(value.len()));
    }
    for (key, value) in pairs {
        for text in [key, value] {
            map.extend_from_slice(text.as_bytes());
            map.push(0);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_on_several_lines_is_none() {
        let map = write([("x-cost", "7"), ("a", "1"), ("x", "y"), ("a", "2")].into_iter());
        assert_eq!(only(&map, "x-cost"), Some(&b"7"[..]));
        for (map, name) in [(&map[..], "a"), (&map, "x-cos"), (&map, ""), (&[], "x-cost")] {
            assert_eq!(only(map, name), None, "{name}");
        }
    }

    #[test]
    fn pairs_come_back_in_their_order() {
        let pairs = [(":path", "/orders"), ("x-api-key", ""), ("x", "y")];
        let map = write(pairs.iter().copied());
        let read: Vec<_> = Pairs::new(&map).unwrap().collect();
        assert_eq!(read, [(&b":path"[..], &b"/orders"[..]), (b"x-api-key", b""), (b"x", b"y")]);
    }

    #[test]
    fn a_map_that_is_cut_anywhere_gives_what_is_whole() {
        let map = write([("a", "1"), ("bc", "23")].iter().copied());
        for cut in 0..map.len() {
            assert!(Pairs::new(&map[..cut]).is_none_or(|pairs| pairs.count() < 2), "cut at {cut}");
        }
        assert!(Pairs::new(&[255; 64]).is_none());
        assert!(Pairs::new(&[0, 4, 0, 0]).is_none());
    }

    #[test]
    fn a_map_of_too_many_pairs_is_none() {
        let map = |count: usize| write(core::iter::repeat_n(("x", "y"), count));
        assert_eq!(Pairs::new(&map(1_024)).unwrap().count(), 1_024);
        assert!(Pairs::new(&map(1_025)).is_none());
    }
}
