//! A bucket as it is named once the request that asked it can't be read any more.

use limits::descriptor::DescriptorId;
use limits::ruleset::RuleSet;
use protocol::batch::Value;

/// One part of a key: a descriptor and its value, none where the key is shared by all who lack it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The descriptor.
    pub descriptor: DescriptorId,
    /// Its value, at most `limits::descriptor::VALUE_MAX` bytes.
    pub bytes: Option<Box<[u8]>>,
}

/// A bucket that something may still have to be said about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The rule, by index.
    pub rule: u16,
    /// The place of its outcome in the answer to the check.
    pub place: usize,
    /// The parts of its key.
    pub key: Box<[Part]>,
}

// === impl Part ===

impl Part {
    /// The part as it is sent; `None` if there is no such descriptor.
    #[must_use]
    pub fn on_wire<'a>(&'a self, rules: &'a RuleSet) -> Option<Value<'a>> {
        let descriptor = rules.descriptors().get(self.descriptor)?;
        Some(Value { kind: &descriptor.name, bytes: self.bytes.as_deref(), secret: descriptor.secret })
    }

    /// About how many bytes this adds to a body.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len()).saturating_add(64)
    }
}

// === impl Bucket ===

impl Bucket {
    /// The key as it is sent.
    #[must_use]
    pub fn on_wire<'a>(&'a self, rules: &'a RuleSet) -> Option<Vec<Value<'a>>> {
        self.key.iter().map(|part| part.on_wire(rules)).collect()
    }

    /// About how many bytes this adds to a body, its rule included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.key.iter().map(Part::size).sum::<usize>().saturating_add(128)
    }
}
