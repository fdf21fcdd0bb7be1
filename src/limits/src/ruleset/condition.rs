//! A condition, ready to be checked, and what an index can hold of it.

use crate::address::Cidr;
use crate::descriptor::{DescriptorId, Descriptors, Source};
use crate::path;
use crate::request::{Values, canonical};
use crate::route::Routes;
use crate::rule::{Condition, Test};

/// A condition with its values in the form in which requests have them.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    descriptor: DescriptorId,
    check: Check,
}

#[derive(Clone, Debug)]
enum Check {
    /// Sorted.
    OneOf(Vec<Box<[u8]>>),
    Prefix(Box<[u8]>),
    /// This path or one below it.
    Under(Box<[u8]>),
    /// Any of these.
    Within(Vec<Cidr>),
    Absent,
}

/// What is taken from a request to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Probe {
    part: Part,
    descriptor: DescriptorId,
}

/// How much of a value is looked up. The order is that of preference: what is likelier to tell requests apart comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Part {
    /// All of it.
    Whole,
    /// The block of so many bits that the address lies in.
    Block { ipv6: bool, bits: u8 },
    /// So many bytes from its beginning.
    Beginning(usize),
    /// That there is none.
    Nothing,
}

// === impl Compiled ===

impl Compiled {
    pub(super) fn new(condition: &Condition, descriptors: &Descriptors, routes: &Routes) -> Self {
        let source = descriptors.get(condition.descriptor).map(|descriptor| &descriptor.source);
        let check = match (&condition.test, source) {
            (Test::OneOf(values), Some(Source::Ip)) => {
                Check::Within(values.iter().filter_map(|value| block(value)).collect())
            }
            (Test::OneOf(values), Some(source)) => {
                let forms = values.iter().filter_map(|value| one_form(value, source, routes));
                let mut values: Vec<_> = forms.collect();
                values.sort_unstable();
                values.dedup();
                Check::OneOf(values)
            }
            (Test::OneOf(values), None) => Check::OneOf(values.clone()),
            (Test::Prefix(prefix), Some(Source::Path)) => path_prefix(prefix),
            (Test::Prefix(prefix), Some(Source::Host)) => Check::Prefix(prefix.to_ascii_lowercase().into()),
            (Test::Prefix(prefix), _) => Check::Prefix(prefix.clone()),
            (Test::Cidr(block), _) => Check::Within(vec![*block]),
            (Test::Absent, _) => Check::Absent,
        };
        Self { descriptor: condition.descriptor, check }
    }

    pub(super) fn holds(&self, values: &impl Values) -> bool {
        let id = self.descriptor;
        match &self.check {
            Check::OneOf(wanted) => values
                .value(id)
                .is_some_and(|value| wanted.binary_search_by(|one| (**one).cmp(value)).is_ok()),
            Check::Prefix(prefix) => values.value(id).is_some_and(|value| value.starts_with(prefix)),
            Check::Under(base) => {
                let below = values.value(id).and_then(|value| value.strip_prefix(&**base));
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            }
            Check::Within(blocks) => {
                values.address(id).is_some_and(|address| blocks.iter().any(|block| block.contains(address)))
            }
            Check::Absent => values.value(id).is_none(),
        }
    }

    /// The lookups of which one finds the condition whenever it holds, each with what it has to find.
    pub(super) fn probes(&self) -> Vec<(Probe, Found<'_>)> {
        let probe = |part| Probe { descriptor: self.descriptor, part };
        match &self.check {
            Check::OneOf(values) => {
                values.iter().map(|value| (probe(Part::Whole), Found::Bytes(value))).collect()
            }
            Check::Prefix(start) | Check::Under(start) => {
                vec![(probe(Part::Beginning(start.len())), Found::Bytes(start))]
            }
            Check::Within(blocks) => {
                blocks.iter().map(|block| (probe(Part::of(block)), Found::Block(*block))).collect()
            }
            Check::Absent => vec![(probe(Part::Nothing), Found::Nothing)],
        }
    }
}

/// What a probe takes from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Found<'v> {
    Bytes(&'v [u8]),
    Block(Cidr),
    Nothing,
}

// === impl Probe ===

impl Probe {
    /// What this probe takes from a request; `None` if the request has no such thing.
    pub(super) fn take<'v>(self, values: &'v impl Values) -> Option<Found<'v>> {
        match self.part {
            Part::Whole => values.value(self.descriptor).map(Found::Bytes),
            Part::Beginning(length) => values.value(self.descriptor)?.get(..length).map(Found::Bytes),
            Part::Block { ipv6, bits } => {
                let address = values.address(self.descriptor).filter(|address| address.is_ipv6() == ipv6)?;
                Cidr::of(address, bits).map(Found::Block)
            }
            Part::Nothing => values.value(self.descriptor).is_none().then_some(Found::Nothing),
        }
    }
}

impl Part {
    fn of(block: &Cidr) -> Self {
        Self::Block { ipv6: block.base().is_ipv6(), bits: block.bits() }
    }
}

/// An address as a block, so that an IPv6 address can be given whole though the value of `ip` is its /64.
fn block(value: &[u8]) -> Option<Cidr> {
    core::str::from_utf8(value).ok().and_then(|text| Cidr::parse(text.trim_ascii()).ok())
}

fn one_form(value: &[u8], source: &Source, routes: &Routes) -> Option<Box<[u8]>> {
    if *source == Source::Route {
        return routes.spelling(value).map(|text| text.as_bytes().into());
    }
    canonical(source, value).map(|value| (*value).into())
}

/// The normal form has no trailing slash, so `/v1/` is `/v1` and what lies below; `/v1` is also the beginning of `/v10`.
fn path_prefix(prefix: &[u8]) -> Check {
    let normal = path::normalise(prefix);
    if prefix.ends_with(b"/") {
        Check::Under(normal.strip_suffix(b"/").unwrap_or(&normal).into())
    } else {
        Check::Prefix((*normal).into())
    }
}
