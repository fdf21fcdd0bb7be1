//! A place in a configuration: reads what is there, or notes the fault with its path and goes on.

use super::fault::{Fault, excerpt, near_miss};
use super::number::{self, NotWhole};
use super::tree::Node;
use hashbrown::HashSet;
use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

/// What is said of a field or a word that is part of the form and not yet decided.
const UNSUPPORTED: &str = "not in this version";

/// The most faults, and the most warnings, that are written out: no text makes the memory for its faults run out.
const NOTED_MAX: usize = 100_000;

/// What is noted on the way.
pub(crate) struct Notes {
    /// Whether a field of an object, or a word of a field, is part of the form and not yet decided.
    unsupported: fn(&str, &str) -> bool,
    /// Whether messages offer a field or a word as one that could be written.
    offered: fn(&str, &str) -> bool,
    faults: RefCell<Vec<Fault>>,
    warnings: RefCell<Vec<Fault>>,
}

/// A value and the way to it.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'t> {
    pub(crate) node: &'t Node,
    path: Path<'t>,
    notes: &'t Notes,
    /// Whether what is here is a secret, of which no message repeats anything.
    secret: bool,
}

/// An object whose field names are known.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'t> {
    spot: &'t Spot<'t>,
    entries: &'t [(Box<str>, Node)],
}

/// The way from the root: nothing is written out until there is a fault.
#[derive(Clone, Copy)]
enum Path<'t> {
    Root,
    Field(&'t Path<'t>, &'t str),
    Item(&'t Path<'t>, usize),
}

// === impl Notes ===

impl Notes {
    pub(crate) fn new(unsupported: fn(&str, &str) -> bool, offered: fn(&str, &str) -> bool) -> Self {
        Self { unsupported, offered, faults: RefCell::default(), warnings: RefCell::default() }
    }

    /// The faults and the warnings.
    pub(crate) fn into_parts(self) -> (Vec<Fault>, Vec<Fault>) {
        (self.faults.into_inner(), self.warnings.into_inner())
    }
}

// === impl Spot ===

impl<'t> Spot<'t> {
    pub(crate) fn root(node: &'t Node, notes: &'t Notes) -> Self {
        Self { node, path: Path::Root, notes, secret: false }
    }

    /// The same place, of whose content no message repeats anything.
    pub(crate) fn as_secret(self) -> Self {
        Self { secret: true, ..self }
    }

    pub(crate) fn is_secret(&self) -> bool {
        self.secret
    }

    /// A text from here as messages show it.
    pub(crate) fn quote(&self, text: &str) -> String {
        if self.secret { "the secret".to_owned() } else { format!("\"{}\"", excerpt(text)) }
    }

    pub(crate) fn fault(&self, message: impl fmt::Display) {
        note(&self.notes.faults, self.path, message);
    }

    pub(crate) fn warn(&self, message: impl fmt::Display) {
        note(&self.notes.warnings, self.path, message);
    }

    /// Notes that something of another kind is wanted.
    pub(crate) fn want(&self, wanted: impl fmt::Display) {
        self.fault(format_args!("want {wanted}, not {}", self.node.kind()));
    }

    /// Notes that a number is wanted; the usual mistake is one in quotes.
    pub(crate) fn want_number(&self, wanted: impl fmt::Display) {
        let quoted = matches!(self.node, Node::Text(text) if number::is_number(text));
        let remedy = if quoted { "; write the number without quotes" } else { "" };
        self.fault(format_args!("want {wanted}, not {}{remedy}", self.node.kind()));
    }

    /// A whole number within a range; `remedy` is added where it lies outside.
    pub(crate) fn whole(&self, range: RangeInclusive<u64>, remedy: &str) -> Option<u64> {
        let (least, most) = range.clone().into_inner();
        let Node::Number(text) = self.node else {
            self.want_number(format_args!("a whole number from {least} to {most}"));
            return None;
        };
        match number::whole(text) {
            Ok(value) if range.contains(&value) => return Some(value),
            Err(NotWhole::Fraction) => {
                self.fault(format_args!("{} is not a whole number", excerpt(text)));
            }
            _ => {
                self.fault(format_args!("{} is out of range, want {least} to {most}{remedy}", excerpt(text)))
            }
        }
        None
    }

    /// A whole number within a range of 32 bits.
    pub(crate) fn small(&self, range: RangeInclusive<u32>, remedy: &str) -> Option<u32> {
        let (least, most) = range.into_inner();
        u32::try_from(self.whole(u64::from(least)..=u64::from(most), remedy)?).ok()
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        if let Node::Bool(flag) = self.node {
            return Some(*flag);
        }
        self.want("true or false");
        None
    }

    /// A text of at most so many bytes, not empty and without control characters.
    pub(crate) fn text(&self, bytes_max: usize) -> Option<&'t str> {
        let Node::Text(text) = self.node else {
            self.want("a text");
            return None;
        };
        if text.is_empty() {
            self.fault("is empty");
        } else if text.len() > bytes_max {
            self.fault(format_args!("is {} bytes long, at most {bytes_max} are allowed", text.len()));
        } else if text.chars().any(char::is_control) {
            self.fault(format_args!("{} has a control character", self.quote(text)));
        } else {
            return Some(text);
        }
        None
    }

    /// One of the words that `field` can have.
    pub(crate) fn word<T: Copy>(&self, field: &str, words: &[(&'static str, T)]) -> Option<T> {
        let offered = self.notes.offered;
        let all = || words.iter().map(|(word, _)| *word).filter(|word| offered(field, word));
        let Node::Text(text) = self.node else {
            self.want(format_args!("one of {}", quoted(all())));
            return None;
        };
        if let Some((word, meaning)) = words.iter().find(|(word, _)| *word == &**text) {
            if (self.notes.unsupported)(field, word) {
                self.fault(format_args!("\"{word}\" is {UNSUPPORTED}"));
            }
            return Some(*meaning);
        }
        let meant =
            near_miss(text, all()).map_or_else(String::new, |word| format!("; did you mean \"{word}\"?"));
        self.fault(format_args!("\"{}\" is not one of {}{meant}", excerpt(text), quoted(all())));
        None
    }

    /// A list of at most so many items.
    pub(crate) fn list(&self, items_max: usize) -> Option<&'t [Node]> {
        let Node::List(items) = self.node else {
            self.want("a list");
            return None;
        };
        if items.len() > items_max {
            self.fault(format_args!("has {} items, at most {items_max} are allowed", items.len()));
            return None;
        }
        Some(items)
    }

    /// Calls `each` with every item of a list that [`Spot::list`] gave.
    pub(crate) fn each(&self, items: &[Node], mut each: impl FnMut(usize, &Spot<'_>)) {
        for (index, node) in items.iter().enumerate() {
            each(index, &Spot { node, path: Path::Item(&self.path, index), ..*self });
        }
    }

    /// An object with any keys, at most so many; a key that comes twice is a fault.
    pub(crate) fn entries(&self, entries_max: usize) -> Option<Fields<'_>> {
        let Node::Object(entries) = self.node else {
            self.want("an object");
            return None;
        };
        if entries.len() > entries_max {
            self.fault(format_args!("has {} fields, at most {entries_max} are allowed", entries.len()));
            return None;
        }
        let fields = Fields { spot: self, entries };
        let mut seen = HashSet::new();
        for (name, _) in entries {
            if !seen.insert(name) {
                fields.fault_of_name(name, "is there twice; keep one");
            }
        }
        Some(fields)
    }

    /// An object with these fields; others are faults, and so are those that this version can't decide.
    pub(crate) fn fields(&self, scope: &str, known: &[&str]) -> Option<Fields<'_>> {
        let fields = self.entries(usize::MAX)?;
        for (name, _) in fields.entries {
            if !known.contains(&&**name) {
                let offered = || known.iter().copied().filter(|name| (self.notes.offered)(scope, name));
                let remedy = match near_miss(name, offered()) {
                    Some(meant) => format!("; did you mean \"{meant}\"?"),
                    None if offered().next().is_none() => String::new(),
                    None => format!(", want one of {}", quoted(offered())),
                };
                fields.fault_of_name(name, format_args!("unknown field{remedy}"));
            } else if (self.notes.unsupported)(scope, name) {
                fields.fault(name, UNSUPPORTED);
            }
        }
        Some(fields)
    }
}

// === impl Fields ===

impl<'t> Fields<'t> {
    pub(crate) fn get(&self, name: &'t str) -> Option<Spot<'t>> {
        let (_, node) = self.entries.iter().find(|(key, _)| **key == *name)?;
        Some(Spot { node, path: Path::Field(&self.spot.path, name), ..*self.spot })
    }

    /// The field, or a fault that it is missing.
    pub(crate) fn need(&self, name: &'t str, remedy: &str) -> Option<Spot<'t>> {
        let found = self.get(name);
        if found.is_none() {
            self.fault(name, format_args!("is missing{remedy}"));
        }
        found
    }

    /// All fields, in the order of the file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'t str, Spot<'t>)> {
        let spot = self.spot;
        self.entries
            .iter()
            .map(move |(key, node)| (&**key, Spot { node, path: Path::Field(&spot.path, key), ..*spot }))
    }

    /// Notes a fault of a field, whether it is there or not.
    pub(crate) fn fault(&self, name: &str, message: impl fmt::Display) {
        note(&self.spot.notes.faults, Path::Field(&self.spot.path, name), message);
    }

    /// Notes a fault of a field's name, which within a secret is not repeated.
    fn fault_of_name(&self, name: &str, message: impl fmt::Display) {
        if self.spot.secret {
            self.spot.fault(format_args!("a field: {message}"));
        } else {
            self.fault(name, message);
        }
    }
}

// === impl Path ===

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => out.write_str("$"),
            Self::Item(parent, index) => write!(out, "{parent}[{index}]"),
            Self::Field(parent, name) if is_plain(name) => write!(out, "{parent}.{name}"),
            Self::Field(parent, name) => write!(out, "{parent}[\"{}\"]", excerpt(name)),
        }
    }
}

/// Whether a name can be written behind a dot.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(plain)
}

fn note(notes: &RefCell<Vec<Fault>>, path: Path<'_>, message: impl fmt::Display) {
    let Ok(mut notes) = notes.try_borrow_mut() else { return };
    match notes.len() {
        0..NOTED_MAX => notes.push(Fault { path: path.to_string(), message: message.to_string() }),
        NOTED_MAX => {
            let message = format!("there are more than {NOTED_MAX}, the rest is not listed");
            notes.push(Fault { path: "$".to_owned(), message });
        }
        _ => {}
    }
}

fn quoted<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}
