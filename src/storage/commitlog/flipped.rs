//! Tells a record in which one bit has flipped from one that a crash has torn.
//!
//! What a crash leaves of a record that was never synced is an unreadable part at the end of the
//! log, and normal. A disk or a memory that flips a bit there would look the same, and a write that
//! was acknowledged would be taken for one that never was. But a torn record is not one bit away
//! from a valid one: pages of it are missing, or are those of another file.

use crate::storage::log::{HEAD_BYTES, Head, Salt, SegmentReader};
use std::io;

/// The polynomial of CRC32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Longest body that is examined, in bytes. The difference of two checksums stands for each single
/// bit of the body: of a body of this length one torn record in a hundred thousand looks flipped.
const MAX_BODY: usize = 4 << 10;

/// Unit in which a crash may lose what was written, in bytes.
const SECTOR_BYTES: usize = 512;

/// Offset of the checksum in the head of a record.
const CHECKSUM_AT: usize = 8;

/// Whether one flipped bit is all that keeps a record from being read at `offset`.
pub(super) fn has_flipped_bit(
    reader: &mut SegmentReader,
    offset: u64,
    salt: Salt,
) -> io::Result<bool> {
    let Some(head) = reader.head(offset)? else { return Ok(false) };
    if let Ok(Head { body_bytes, crc, .. }) = Head::decode(&head, salt, offset) {
        let Some(record) = reader.bytes(offset, HEAD_BYTES + body_bytes)? else {
            return Ok(false);
        };
        let body = &record[HEAD_BYTES as usize..];
        let difference = crc32fast::hash(body) ^ crc;
        let byte = if difference.is_power_of_two() {
            Some(CHECKSUM_AT + difference.trailing_zeros() as usize / 8)
        } else {
            one_bit_off(body, difference).map(|at| HEAD_BYTES as usize + at)
        };
        return Ok(byte.is_some_and(|byte| !may_be_torn(record, offset, byte)));
    }
    for (byte, Head { body_bytes, crc, .. }) in neighbours(head, salt, offset) {
        let Some(record) = reader.bytes(offset, HEAD_BYTES + body_bytes)? else { continue };
        if crc32fast::hash(&record[HEAD_BYTES as usize..]) == crc
            && !may_be_torn(record, offset, byte)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The heads that are one bit away from these bytes and could stand at this offset, each with the
/// byte that differs.
fn neighbours(
    head: [u8; HEAD_BYTES as usize],
    salt: Salt,
    offset: u64,
) -> impl Iterator<Item = (usize, Head)> {
    (0..HEAD_BYTES as usize * 8).filter_map(move |bit| {
        let mut head = head;
        head[bit / 8] ^= 1 << (bit % 8);
        Head::decode(&head, salt, offset).ok().map(|decoded| (bit / 8, decoded))
    })
}

/// Whether the byte of a record may differ because a crash has lost its sector, or all from there
/// on: there are nothing but zeroes then. `offset` is where the record begins.
fn may_be_torn(record: &[u8], offset: u64, byte: usize) -> bool {
    let within = (offset as usize + byte) % SECTOR_BYTES;
    let end = record.len().min(byte + SECTOR_BYTES - within);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    is_zero(&record[byte..]) || is_zero(&record[byte.saturating_sub(within)..end])
}

/// The byte of a body that differs, if it is by one bit that the body is not that which makes this
/// difference between its CRC32 and the one that it should have.
fn one_bit_off(body: &[u8], difference: u32) -> Option<usize> {
    if body.len() > MAX_BODY {
        return None;
    }
    let step = |difference: u32| (difference >> 1) ^ (POLYNOMIAL & (difference & 1).wrapping_neg());
    // From the last bit of the body to the first.
    let mut single = POLYNOMIAL;
    for byte in (0..body.len()).rev() {
        for _ in 0..8 {
            if single == difference {
                return Some(byte);
            }
            single = step(single);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_single_bit_is_recognised_and_nothing_that_is_torn() {
        let body: Vec<u8> = (0..=200u8).collect();
        let crc = crc32fast::hash(&body);
        let is_flipped = |body: &[u8]| {
            let byte = one_bit_off(body, crc ^ crc32fast::hash(body));
            byte.is_some_and(|byte| !may_be_torn(body, 0, byte))
        };
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

    #[test]
    fn a_lost_sector_that_held_one_bit_is_torn() {
        let mut record = vec![0; 1100];
        record[3..6].fill(7);
        record[1050..].fill(9);
        for (offset, byte) in [(0, 600), (0, 512), (500, 12), (500, 523)] {
            assert!(may_be_torn(&record, offset, byte), "{byte} behind {offset}");
        }
        for (offset, byte) in [(0, 4), (0, 511), (0, 1030), (0, 1099), (508, 3), (500, 11)] {
            assert!(!may_be_torn(&record, offset, byte), "{byte} behind {offset}");
        }
    }
}
