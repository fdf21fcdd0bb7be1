//! Addresses: one form of each, one bucket of those that belong together, blocks that contain what they should.

use limits::address::{Cidr, CidrError, bucket_form, parse};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Any bytes as the text of an address and of a block, and as the bits of two addresses and a block.
pub fn holds(data: &[u8]) {
    if let Some(address) = parse(data) {
        assert!(data.len() <= 96, "a bound on what is read");
        one_form(address);
    }
    if let Ok(text) = str::from_utf8(data) {
        block(text);
    }
    if let Some((bits, rest)) = data.split_first()
        && let Some((one, rest)) = rest.split_first_chunk::<16>()
    {
        let other =
            rest.first_chunk::<16>().map_or(!u128::from_be_bytes(*one), |other| u128::from_be_bytes(*other));
        let one = u128::from_be_bytes(*one);
        for (one, other) in [
            (six(one), six(other)),
            (six(one), six(one ^ (other >> 64))),
            (four(one), four(other)),
            (mapped(one), four(one ^ (other >> 112))),
        ] {
            one_form(one);
            contained(*bits, one, other);
        }
    }
}

fn six(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bits))
}

fn four(bits: u128) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(bits as u32))
}

fn mapped(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv4Addr::from(bits as u32).to_ipv6_mapped())
}

/// Every way to write an address is that address, in one bucket.
fn one_form(address: IpAddr) {
    let canonical = address.to_canonical();
    let bucket = bucket_form(address);
    assert_eq!(bucket, bucket_form(canonical));
    let mut spellings = vec![address.to_string(), format!("  {address}\t"), canonical.to_string()];
    match canonical {
        IpAddr::V4(v4) => {
            spellings.extend([format!("{v4}:65535"), format!("::ffff:{v4}"), format!("[::FFFF:{v4}]:1")]);
            assert_eq!(bucket, v4.to_string());
        }
        IpAddr::V6(v6) => {
            spellings.extend([
                format!("[{v6}]"),
                format!("[{v6}]:443"),
                format!("{v6}%eth0"),
                format!("[{v6}%1]:2"),
            ]);
            spellings.push(v6.segments().map(|part| format!("{part:04X}")).join(":"));
            let block = Cidr::parse(&bucket).expect("a bucket of IPv6 is a block");
            assert_eq!((block.bits(), block.contains(address)), (64, true));
            assert_eq!(bucket_form(block.base()), bucket, "all of a /64 are one bucket");
        }
    }
    for spelling in spellings {
        assert_eq!(parse(spelling.as_bytes()), Some(canonical), "{spelling:?}");
    }
}

fn block(text: &str) {
    match Cidr::parse(text) {
        Ok(block) => {
            assert!(block.contains(block.base()), "{block}");
            assert_eq!(Cidr::parse(&block.to_string()), Ok(block));
            assert!(block.bits() <= if block.base().is_ipv4() { 32 } else { 128 });
        }
        Err(CidrError::Loose(block)) => {
            assert_eq!(Cidr::parse(&block.to_string()), Ok(block), "what is proposed is accepted");
        }
        Err(CidrError::Address | CidrError::Bits) => {}
    }
}

/// A block contains what shares its first bits, by a comparison of its own.
fn contained(bits: u8, one: IpAddr, other: IpAddr) {
    let whole = if one.to_canonical().is_ipv4() { 32 } else { 128 };
    let Some(block) = Cidr::of(one, bits) else {
        assert!(bits > whole, "{one}/{bits}");
        return;
    };
    assert!(
        bits <= whole && block.bits() == bits && block.contains(one) && block.contains(one.to_canonical())
    );
    assert_eq!(Cidr::parse(&block.to_string()), Ok(block));
    let agree = match (one.to_canonical(), other.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (u128::from(one) ^ u128::from(other)).leading_zeros(),
        _ => {
            assert!(!block.contains(other), "{block} has no {other}");
            return;
        }
    };
    assert_eq!(block.contains(other), agree >= u32::from(bits), "{block} and {other}");
    assert_eq!(block.contains(other), Cidr::of(other, bits) == Some(block));
}
