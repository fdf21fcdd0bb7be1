//! Slots: which part of a cluster a key belongs to.

/// How many slots a cluster has.
pub(crate) const COUNT: u16 = 16_384;

/// CRC-16/XMODEM of each byte.
const TABLE: [u16; 256] = table();

/// The slot of a key: of what stands in its first braces, if that is anything, else of the whole.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc(tag(key)) % COUNT
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(length) => &inside[..length],
    }
}

fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // The first is the check value of CRC-16/XMODEM; the others are what CLUSTER KEYSLOT says.
        assert_eq!(crc(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
        ] {
            assert_eq!(of(key.as_bytes()), slot, "{key}");
        }
    }
}
