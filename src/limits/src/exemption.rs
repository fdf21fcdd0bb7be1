//! Requests that no rule applies to, such as health checks. They are looked at before anything else, and cost nothing.
//!
//! A path is compared as it came, byte by byte: an exemption must not cover what an upstream would make of another spelling. An address
//! is the client's as `ip` has it; no header of the client's own reaches it.

use crate::address::Cidr;
use crate::request::{Attributes, Request};
use core::net::IpAddr;
use hashbrown::{HashMap, HashSet};

/// What is exempt; all parts that are given must hold, and one that gives none exempts nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exemption {
    /// The raw path without its query.
    pub path: Option<Box<[u8]>>,
    /// The block that the client's address lies in.
    pub block: Option<Cidr>,
}

/// All exemptions, at a cost that does not grow with their number.
#[derive(Clone, Debug, Default)]
pub struct Exemptions {
    /// Exempt whoever asks for them.
    paths: HashSet<Box<[u8]>>,
    /// Exempt whatever they ask for.
    blocks: Blocks,
    /// Exempt if these ask for them.
    paths_from: HashMap<Box<[u8]>, Blocks>,
}

/// Blocks of addresses, by the few lengths that they have.
#[derive(Clone, Debug, Default)]
struct Blocks {
    all: HashSet<Cidr>,
    /// Bits of the IPv4 and the IPv6 blocks.
    lengths: Vec<(bool, u8)>,
}

// === impl Exemptions ===

impl Exemptions {
    /// All of these.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = Exemption>) -> Self {
        let mut exemptions = Self::default();
        for exemption in all {
            match (exemption.path, exemption.block) {
                (Some(path), None) => {
                    exemptions.paths.insert(path);
                }
                (None, Some(block)) => exemptions.blocks.add(block),
                (Some(path), Some(block)) => exemptions.paths_from.entry(path).or_default().add(block),
                (None, None) => {}
            }
        }
        exemptions
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        let from = self.paths_from.values().map(|blocks| blocks.all.len());
        from.fold(self.paths.len().saturating_add(self.blocks.all.len()), usize::saturating_add)
    }

    /// Whether no rule applies to this request. The address is asked for only where it decides.
    pub fn cover<A: Attributes>(&self, request: &Request<'_, A>) -> bool {
        let from = |blocks: &Blocks| request.client_address().is_some_and(|address| blocks.contain(address));
        if !(self.paths.is_empty() && self.paths_from.is_empty()) {
            let path = without_query(request.raw_path());
            if self.paths.contains(path) || self.paths_from.get(path).is_some_and(from) {
                return true;
            }
        }
        !self.blocks.all.is_empty() && from(&self.blocks)
    }
}

fn without_query(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'?').next().unwrap_or(path)
}

// === impl Blocks ===

impl Blocks {
    fn add(&mut self, block: Cidr) {
        let length = (block.base().is_ipv6(), block.bits());
        if !self.lengths.contains(&length) {
            self.lengths.push(length);
        }
        self.all.insert(block);
    }

    fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let lengths = self.lengths.iter().filter(|(ipv6, _)| *ipv6 == address.is_ipv6());
        lengths.filter_map(|(_, bits)| Cidr::of(address, *bits)).any(|block| self.all.contains(&block))
    }
}
