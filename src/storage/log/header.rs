//! Headers of segments.

/// Bytes of magic and version, and of the checksum.
const FRAME_BYTES: usize = 8 + 4 + 4;

/// Size of a header with this many numbers.
pub(crate) const fn header_bytes(numbers: usize) -> u64 {
    (FRAME_BYTES + 8 * numbers) as u64
}

/// The header of a segment.
pub(crate) fn encode_header(magic: [u8; 8], version: u32, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(header_bytes(numbers.len()) as usize);
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&version.to_le_bytes());
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Version and numbers of the header at the beginning of `bytes`; `None` if it is damaged or has
/// another magic. Later versions keep the length, so that they are recognised as what they are.
pub(crate) fn decode_header<const N: usize>(
    magic: [u8; 8],
    bytes: &[u8],
) -> Option<(u32, [u64; N])> {
    let header = bytes.get(..header_bytes(N) as usize)?;
    let (content, crc) = header.split_last_chunk()?;
    let (found, rest) = content.split_first_chunk()?;
    if *found != magic || u32::from_le_bytes(*crc) != crc32fast::hash(content) {
        return None;
    }
    let (version, rest) = rest.split_first_chunk()?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(rest.chunks_exact(8)) {
        *number = u64::from_le_bytes(*bytes.first_chunk()?);
    }
    Some((u32::from_le_bytes(*version), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let magic = *b"AlexTest";
        let numbers = [1, u64::MAX, 0x0123_4567_89AB_CDEF];
        let bytes = encode_header(magic, 7, &numbers);
        assert_eq!(bytes.len() as u64, header_bytes(3));
        assert_eq!(decode_header(magic, &bytes), Some((7, numbers)));
        assert_eq!(decode_header::<3>(*b"AlexOthr", &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header::<3>(magic, &flipped), None, "bit {bit}");
        }
        assert_eq!(decode_header::<3>(magic, &bytes[..39]), None, "too short");
    }
}
