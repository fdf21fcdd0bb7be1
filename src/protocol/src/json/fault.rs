//! What is wrong with a configuration, and where: a JSON path and a sentence that names the remedy.

use std::fmt;

/// One fault of a configuration, or one warning about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, such as `$.rules[3].capacity`.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// The longest quotation of what somebody wrote, in characters.
const EXCERPT_MAX: usize = 40;

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.message)
    }
}

/// The beginning of a text, safe to print on one line.
pub(crate) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(EXCERPT_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// The word among `known` that was probably meant.
pub(crate) fn near_miss<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    let wanted = plain(written);
    if wanted.len() > EXCERPT_MAX {
        return None;
    }
    let near = |word: &'k str| {
        let candidate = plain(word);
        let distance = edits(&wanted, &candidate);
        (distance <= candidate.len().min(9) / 3).then_some((distance, word))
    };
    known.into_iter().filter_map(near).min_by_key(|&(distance, _)| distance).map(|(_, word)| word)
}

/// How many letters must be changed, added, dropped to get from one word to the other.
fn edits(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.iter().enumerate() {
        let mut diagonal = done;
        let mut left = done.saturating_add(1);
        let mut next = vec![left];
        for (above, other) in row.iter().skip(1).zip(to) {
            let changed = diagonal.saturating_add(usize::from(letter != other));
            left = changed.min(left.saturating_add(1)).min(above.saturating_add(1));
            next.push(left);
            diagonal = *above;
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_its_word() {
        let known = ["capacity", "refillPerSecond", "mode", "id", "failMode"];
        for (written, meant) in [
            ("capcity", Some("capacity")),
            ("refill_per_second", Some("refillPerSecond")),
            ("Mode", Some("mode")),
            ("failmode", Some("failMode")),
            ("xy", None),
            ("burst", None),
            ("", None),
        ] {
            assert_eq!(near_miss(written, known), meant, "{written}");
        }
    }

    #[test]
    fn quotations_are_short_and_on_one_line() {
        assert_eq!(excerpt("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(excerpt(&"x".repeat(41)), format!("{}…", "x".repeat(40)));
    }
}
