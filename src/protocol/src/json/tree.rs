//! JSON as it was written: duplicate keys are kept, numbers are text.
//!
//! The usual readers drop the first of two equal keys and round numbers to doubles; both hide mistakes of whoever wrote the file.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// How deep a configuration may nest; its own form needs 6.
pub(crate) const DEPTH_MAX: usize = 16;
/// What some editors write before UTF-8; invisible to whoever looks for the fault.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    /// The number's own text.
    Number(Box<str>),
    Text(Box<str>),
    List(Vec<Node>),
    /// In the order of the file, equal keys included.
    Object(Vec<(Box<str>, Node)>),
}

/// An object's entries, not yet read.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

// === impl Node ===

impl Node {
    /// Reads a whole document. The error says what is wrong and where.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(BYTE_ORDER_MARK) {
            return Err("not JSON: begins with a byte order mark (EF BB BF), which JSON does not have; save it as UTF-8 without one".to_owned());
        }
        let raw: &RawValue = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
        Self::read(raw, DEPTH_MAX)
    }

    /// What it is, for the message that says what it should have been.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    fn read(raw: &RawValue, depth: usize) -> Result<Self, String> {
        let text = raw.get();
        // The document as a whole was well-formed; only escapes are looked into no sooner than here. The text itself is not told,
        // since it may be a secret.
        let malformed = |_| "not JSON: a text has half of a surrogate pair".to_owned();
        let Some(deeper) = depth.checked_sub(1) else {
            return Err(format!("nested more than {DEPTH_MAX} deep"));
        };
        Ok(match text.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::Text(serde_json::from_str(text).map_err(malformed)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(malformed)?;
                Self::List(items.into_iter().map(|item| Self::read(item, deeper)).collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(text).map_err(malformed)?;
                let read = |(key, item): (String, _)| Ok((key.into_boxed_str(), Self::read(item, deeper)?));
                Self::Object(entries.into_iter().map(read).collect::<Result<_, String>>()?)
            }
            _ => Self::Number(text.into()),
        })
    }
}

// === impl Entries ===

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Collect).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_keys_and_the_text_of_numbers_survive() {
        let node = Node::parse(br#"{"a": 9007199254740993, "a": [true, null, 1e308, "\u00e9"]}"#).unwrap();
        let list = vec![Node::Bool(true), Node::Null, Node::Number("1e308".into()), Node::Text("é".into())];
        let first = Node::Number("9007199254740993".into());
        assert_eq!(node, Node::Object(vec![("a".into(), first), ("a".into(), Node::List(list))]));
    }

    #[test]
    fn what_is_no_json_says_where() {
        for text in ["", "{", "{\"a\": NaN}", "[1,]", "{} {}", "01", "{\"a\" 1}"] {
            let message = Node::parse(text.as_bytes()).unwrap_err();
            assert!(
                message.starts_with("not JSON: ") && message.contains("line 1 column"),
                "{text}: {message}"
            );
        }
        assert!(Node::parse(b"\"\xff\"").is_err());
        let marked = Node::parse("\u{feff}{}".as_bytes()).unwrap_err();
        assert!(marked.starts_with("not JSON: begins with a byte order mark (EF BB BF)"), "{marked}");
        for text in [r#""\ud800""#, r#"{"\ud800": 1}"#, r#"["\ud800"]"#] {
            let message = Node::parse(text.as_bytes()).unwrap_err();
            assert_eq!(message, "not JSON: a text has half of a surrogate pair");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Node::parse(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert!(
            Node::parse(nested(DEPTH_MAX + 1).as_bytes()).unwrap_err().starts_with("nested more than 16")
        );
        assert!(Node::parse(nested(100_000).as_bytes()).is_err());
    }
}
