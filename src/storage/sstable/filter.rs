//! The Bloom filter over the row keys of an SSTable: "surely not here" without touching the disk.
//!
//! Stored form: u32 number of probes, then the bits as u64 words, little-endian bit order within a
//! word, all numbers big-endian. A key is hashed to 64 bits ([`hash`]); probe i looks at the bit
//! that stands as far into the filter as `hash + i * step` does into the 64-bit numbers, where step
//! is the hash with its halves swapped, made odd.

use crate::base::bytes::{ByteReader, Malformed};

/// Bits for each key; with [`PROBES`] about 1 of 300 absent keys is taken for present.
const BITS_PER_KEY: u64 = 12;

/// Bits that are looked at for a key.
const PROBES: u32 = 8;

/// A set of keys that may say yes wrongly, never no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    probes: u32,
    words: Vec<u64>,
}

impl Filter {
    /// An empty filter that suits this many keys.
    pub fn for_keys(keys: u64) -> Self {
        let words = (keys * BITS_PER_KEY).div_ceil(64).max(1);
        Self { probes: PROBES, words: vec![0; words as usize] }
    }

    /// Adds a key.
    pub fn insert(&mut self, key: &[u8]) {
        let bits = self.words.len() as u64 * 64;
        for bit in probes(hash(key), self.probes, bits) {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Whether the key may have been added.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hash(hash(key))
    }

    /// As [`Filter::may_contain`], for who looks into many filters.
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let bits = self.words.len() as u64 * 64;
        probes(hash, self.probes, bits)
            .all(|bit| self.words[(bit / 64) as usize] & 1 << (bit % 64) != 0)
    }

    /// Bytes in memory.
    pub fn size_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.probes.to_be_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let probes = reader.u32()?;
        let mut words = Vec::with_capacity(bytes.len() / 8);
        while !reader.is_empty() {
            words.push(reader.u64()?);
        }
        if words.is_empty() || !(1..=64).contains(&probes) {
            return Err(Malformed(0));
        }
        Ok(Self { probes, words })
    }
}

fn probes(hash: u64, count: u32, bits: u64) -> impl Iterator<Item = u64> {
    let step = hash.rotate_left(32) | 1;
    (0..u64::from(count)).map(move |i| {
        let point = hash.wrapping_add(i.wrapping_mul(step));
        ((u128::from(point) * u128::from(bits)) >> 64) as u64
    })
}

/// A 64-bit hash of a row key. Stored filters depend on it: do not change it.
///
/// Eight bytes at a time are mixed in by a multiplication to 128 bits whose halves are folded.
pub fn hash(key: &[u8]) -> u64 {
    const SEEDS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = SEEDS[0] ^ key.len() as u64;
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks have eight bytes"));
        state = fold(state ^ word, SEEDS[1]);
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    state = fold(state ^ u64::from_le_bytes(last), SEEDS[1]);
    fold(state ^ SEEDS[0], SEEDS[1] ^ state >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_and_little_else() {
        for keys in [0u64, 1, 10, 1000, 100_000] {
            let mut filter = Filter::for_keys(keys);
            for i in 0..keys {
                filter.insert(format!("key{i:010}").as_bytes());
            }
            let mut stored = Vec::new();
            filter.encode(&mut stored);
            assert_eq!(Filter::decode(&stored).as_ref(), Ok(&filter));
            assert!((0..keys).all(|i| filter.may_contain(format!("key{i:010}").as_bytes())));
            let wrong = (0..100_000).filter(|i| filter.may_contain(format!("no{i}").as_bytes()));
            assert!(wrong.count() < 1000, "more than 1 % of absent keys look present");
        }
    }

    #[test]
    fn the_hash_stays_what_it_is() {
        let known = [hash(b""), hash(b"a"), hash(b"jsmith"), hash(b"a longer key of a row")];
        assert_eq!(known, KNOWN);
    }

    const KNOWN: [u64; 4] = [
        5_685_194_844_657_241_034,
        8_042_963_576_437_384_518,
        7_493_007_495_638_393_490,
        1_159_622_009_368_932_505,
    ];

    #[test]
    fn damaged_filters_are_refused() {
        assert!(Filter::decode(b"").is_err());
        assert!(Filter::decode(&[0, 0, 0, 8]).is_err());
        assert!(Filter::decode(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).is_err());
        assert!(Filter::decode(&[0, 0, 0, 8, 1, 2, 3]).is_err());
    }
}
