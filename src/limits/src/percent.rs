//! Percent-encoding (RFC 3986 §2.1), read byte by byte and never twice.

/// The bytes that a percent-encoded text stands for. A `%` without two hexadecimal digits stands for itself.
#[derive(Clone, Debug)]
pub(crate) struct Decoded<'a> {
    rest: &'a [u8],
    plus_is_space: bool,
}

impl<'a> Decoded<'a> {
    /// Of a text in which `+` is a plus.
    pub(crate) fn of_text(text: &'a [u8]) -> Self {
        Self { rest: text, plus_is_space: false }
    }

    /// Of a form's name or value, in which `+` is a space.
    pub(crate) fn of_form(text: &'a [u8]) -> Self {
        Self { rest: text, plus_is_space: true }
    }
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&byte, tail) = self.rest.split_first()?;
        self.rest = tail;
        if byte == b'+' && self.plus_is_space {
            return Some(b' ');
        }
        if let (b'%', [high, low, after @ ..]) = (byte, tail)
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            self.rest = after;
            return Some((high << 4) | low);
        }
        Some(byte)
    }
}

/// The value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_once_and_what_is_not_stays() {
        for (raw, text, form) in [
            ("gold", "gold", "gold"),
            ("%67ol%64", "gold", "gold"),
            ("%2567", "%67", "%67"),
            ("a+b%2B%2b", "a+b++", "a b++"),
            ("%", "%", "%"),
            ("%4", "%4", "%4"),
            ("%zz%41", "%zzA", "%zzA"),
            ("%%41", "%A", "%A"),
        ] {
            let decoded = |bytes: Decoded<'_>| String::from_utf8(bytes.collect()).unwrap();
            assert_eq!(decoded(Decoded::of_text(raw.as_bytes())), text, "{raw}");
            assert_eq!(decoded(Decoded::of_form(raw.as_bytes())), form, "{raw}");
        }
    }
}
