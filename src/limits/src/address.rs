//! Client addresses: parsing, the form that makes a bucket, and address blocks.

use std::net::IpAddr;

/// A block of addresses, such as `10.0.0.0/8`. An IPv4 block also contains the mapped IPv6 forms of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    base: IpAddr,
    bits: u8,
}
