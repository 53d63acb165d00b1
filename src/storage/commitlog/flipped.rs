//! Tells a record in which one bit has flipped from one that a crash has torn.
//!
//! What a crash leaves of a record that was never synced is an unreadable part at the end of the
//! log, and normal. A disk or a memory that flips a bit there would look the same, and a write that
//! was acknowledged would be taken for one that never was. But a torn record is not one bit away
//! from a valid one: pages of it are missing, or are those of another file.

use super::format::{HEAD_BYTES, Head, Salt};

/// The polynomial of CRC32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Longest body that is examined, in bytes. The difference of two checksums stands for each single
/// bit of the body: of a body of this length one torn record in a hundred thousand looks flipped.
const MAX_BODY: usize = 4 << 10;

/// The heads that are one bit away from these bytes and could stand at this offset.
pub(super) fn neighbours(
    head: [u8; HEAD_BYTES as usize],
    salt: Salt,
    offset: u64,
) -> impl Iterator<Item = Head> {
    (0..HEAD_BYTES as usize * 8).filter_map(move |bit| {
        let mut head = head;
        head[bit / 8] ^= 1 << (bit % 8);
        let decoded = Head::decode(&head, salt, offset);
        matches!(decoded, Head::Record { .. }).then_some(decoded)
    })
}

/// Whether a body, but for one bit, is that which makes this difference between its CRC32 and the
/// one that it should have.
pub(super) fn is_one_bit_off(body: &[u8], difference: u32) -> bool {
    if body.len() > MAX_BODY {
        return false;
    }
    let step = |difference: u32| (difference >> 1) ^ (POLYNOMIAL & (difference & 1).wrapping_neg());
    // From the last bit of the body to the first.
    let mut single = POLYNOMIAL;
    for byte in (0..body.len()).rev() {
        for _ in 0..8 {
            if single == difference {
                // With nothing but zeroes from there on it may just as well be torn.
                return body[byte..].iter().any(|byte| *byte != 0);
            }
            single = step(single);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_single_bit_is_recognised_and_nothing_that_is_torn() {
        let body: Vec<u8> = (0..=200u8).collect();
        let crc = crc32fast::hash(&body);
        let is_flipped = |body: &[u8]| is_one_bit_off(body, crc ^ crc32fast::hash(body));
        for bit in 0..body.len() * 8 {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(is_flipped(&flipped), "bit {bit}");
            flipped[(bit / 8 + 7) % 200] ^= 0x24;
            assert!(!is_flipped(&flipped), "more than bit {bit}");
        }
        for cut in 0..body.len() {
            let mut torn = body.clone();
            torn[cut..].fill(0);
            assert!(!is_flipped(&torn), "cut at {cut}");
        }
    }
}
