//! Client addresses: parsing, the form that makes a bucket, and address blocks.

use core::fmt::{self, Write};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest text that is read as an address, in bytes: an IPv6 address with brackets, a zone and a port.
const TEXT_MAX: usize = 96;

/// A block of addresses, such as `10.0.0.0/8`. An IPv4 block also contains the mapped IPv6 forms of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    base: IpAddr,
    bits: u8,
}

/// Why a text is not an address block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CidrError {
    /// The part before `/` is not an address.
    Address,
    /// The part after `/` is not a number of bits that such an address has.
    Bits,
    /// The address has bits that the block leaves open; the block that was probably meant.
    Loose(Cidr),
}

/// Reads `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]` or `[::1]:80`. A mapped IPv4 address is that IPv4 address, a zone is dropped.
#[must_use]
pub fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_MAX)?;
    let text = text.trim_ascii();
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, rest) = bracketed.split_once(']')?;
        let port = rest.strip_prefix(':').unwrap_or(rest);
        (rest.is_empty() || is_port(port)).then(|| ipv6(inside))?.map(IpAddr::V6)
    } else if let Some((host, _)) = text.split_once(':').filter(|split| is_port(split.1)) {
        host.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    } else {
        text.parse::<Ipv4Addr>().ok().map(IpAddr::V4).or_else(|| ipv6(text).map(IpAddr::V6))
    };
    address.map(|address| address.to_canonical())
}

/// The address as the value of a descriptor: IPv4 whole, IPv6 by its /64, since a client usually owns that many and could
/// otherwise take a new bucket with each request.
#[must_use]
pub fn bucket_form(address: IpAddr) -> String {
    let mut text = String::with_capacity(24);
    // Writing to a string does not fail.
    let _ = match address.to_canonical() {
        IpAddr::V4(address) => write!(text, "{address}"),
        IpAddr::V6(address) => write!(text, "{}", Cidr::of(IpAddr::V6(address), 64).unwrap_or(Cidr::NOWHERE)),
    };
    text
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn ipv6(text: &str) -> Option<Ipv6Addr> {
    text.split_once('%').map_or(text, |(address, _zone)| address).parse().ok()
}

// === impl Cidr ===

impl Cidr {
    /// The unspecified address alone, which no client has.
    const NOWHERE: Self = Self { base: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 128 };

    /// Reads `10.0.0.0/8`; an address without bits is a block of its own. A block of mapped IPv4 addresses is an IPv4 block.
    ///
    /// # Errors
    /// See [`CidrError`].
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let written: IpAddr = address.parse().map_err(|_| CidrError::Address)?;
        let whole = if written.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => whole,
            Some(bits) if bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse::<u8>().ok().filter(|bits| *bits <= whole).ok_or(CidrError::Bits)?
            }
            Some(_) => return Err(CidrError::Bits),
        };
        let (base, bits) = match written.to_canonical() {
            IpAddr::V4(v4) if whole == 128 => (IpAddr::V4(v4), bits.checked_sub(96).ok_or(CidrError::Bits)?),
            canonical => (canonical, bits),
        };
        match Self::of(base, bits) {
            Some(block) if block.base == base => Ok(block),
            Some(block) => Err(CidrError::Loose(block)),
            None => Err(CidrError::Bits),
        }
    }

    /// The block of `bits` bits that `address` lies in; `None` if the address has fewer bits.
    #[must_use]
    pub fn of(address: IpAddr, bits: u8) -> Option<Self> {
        let base = match address.to_canonical() {
            IpAddr::V4(v4) => {
                let open = 32_u32.checked_sub(u32::from(bits))?;
                IpAddr::V4((u32::from(v4) & u32::MAX.checked_shl(open).unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                let open = 128_u32.checked_sub(u32::from(bits))?;
                IpAddr::V6((u128::from(v6) & u128::MAX.checked_shl(open).unwrap_or(0)).into())
            }
        };
        Some(Self { base, bits })
    }

    /// Whether the address lies in this block.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::of(address, self.bits) == Some(*self)
    }

    /// The first address of the block.
    #[must_use]
    pub fn base(&self) -> IpAddr {
        self.base
    }

    /// How many leading bits all addresses of the block share.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.base, self.bits)
    }
}

impl fmt::Display for CidrError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => write!(out, "want an address block such as 10.0.0.0/8 or 2001:db8::/32"),
            Self::Bits => {
                write!(out, "want 0 to 32 bits after the / of an IPv4 block, 0 to 128 of an IPv6 block")
            }
            Self::Loose(block) => write!(out, "the address has bits beyond the block; write {block}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(text: &str) -> Option<String> {
        parse(text.as_bytes()).map(bucket_form)
    }

    #[test]
    fn addresses_in_every_spelling() {
        for (text, wanted) in [
            ("203.0.113.7", Some("203.0.113.7")),
            ("203.0.113.7:443", Some("203.0.113.7")),
            (" 203.0.113.7 ", Some("203.0.113.7")),
            ("::ffff:203.0.113.7", Some("203.0.113.7")),
            ("[::ffff:203.0.113.7]:80", Some("203.0.113.7")),
            ("2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::/64")),
            ("[2001:db8:1:2:ffff::]:65535", Some("2001:db8:1:2::/64")),
            ("[2001:db8::1]", Some("2001:db8::/64")),
            ("2001:DB8:0:0::9", Some("2001:db8::/64")),
            ("::1", Some("::/64")),
            ("fe80::1%eth0", Some("fe80::/64")),
            ("1::2", Some("1::/64")),
            ("", None),
            ("/run/envoy.sock", None),
            ("1.2.3", None),
            ("1.2.3.4:", None),
            ("1.2.3.4:http", None),
            ("01.2.3.4", None),
            ("1.2.3.4, 5.6.7.8", None),
            ("[::1", None),
            ("[::1]x", None),
            ("[1.2.3.4]:80", None),
            ("localhost", None),
        ] {
            assert_eq!(bucket(text).as_deref(), wanted, "{text:?}");
        }
        assert_eq!(parse(b"1.2.3.\xff"), None);
        assert_eq!(parse(&[b'1'; 10_000]), None);
    }

    #[test]
    fn a_block_contains_its_addresses_and_no_others() {
        for (block, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "203.0.113.7", false),
            ("203.0.113.7", "203.0.113.7", true),
            ("203.0.113.7/32", "203.0.113.6", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
        ] {
            let parsed = Cidr::parse(block).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), inside, "{block} {address}");
        }
    }

    #[test]
    fn what_is_no_block_is_refused_with_the_remedy() {
        assert_eq!(Cidr::parse("ten"), Err(CidrError::Address));
        for text in ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "::/129", "::ffff:10.0.0.0/8"]
        {
            assert_eq!(Cidr::parse(text), Err(CidrError::Bits), "{text}");
        }
        let loose = Cidr::parse("10.1.2.3/8").unwrap_err();
        assert_eq!(loose.to_string(), "the address has bits beyond the block; write 10.0.0.0/8");
    }
}
