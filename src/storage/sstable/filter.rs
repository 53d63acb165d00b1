//! The Bloom filter over the row keys of an SSTable: "surely not here" without touching the disk.
//!
//! A key is hashed to 64 bits ([`hash`]). The upper half chooses a group of 512 bits, one line of
//! the processor's cache; the lower half gives one bit of each of the eight words of that group. So
//! an answer costs one access to memory, and no bit depends on another: the split block filter of
//! Apache Parquet, with longer words.
//!
//! Stored form: the groups one after the other, each as eight big-endian u64 words.

use crate::base::bytes::{ByteReader, Malformed};

/// Bits for each key: about 1 of 200 absent keys is taken for present.
const BITS_PER_KEY: u64 = 12;

/// Words of a group.
const GROUP_WORDS: usize = 8;

/// Factors of the lower half of a hash for each word of a group; the upper bits of the
/// product, the well-mixed ones, are the number of the bit. They are those of Parquet.
const SALTS: [u32; GROUP_WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

type Group = [u64; GROUP_WORDS];

/// A set of keys that may say yes wrongly, never no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    groups: Vec<Group>,
}

impl Filter {
    /// An empty filter that suits this many keys.
    pub fn for_keys(keys: u64) -> Self {
        let groups = (keys * BITS_PER_KEY).div_ceil(GROUP_WORDS as u64 * 64).max(1);
        Self { groups: vec![[0; GROUP_WORDS]; groups as usize] }
    }

    /// The group of a hash: as far into the filter as the hash is into the 64-bit numbers.
    fn group_index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.groups.len() as u128) >> 64) as usize
    }

    /// Adds the keys of these hashes. Each goes to another place in memory: of many at a time the
    /// processor waits for several at once.
    pub fn insert_all(&mut self, hashes: &[u64]) {
        for &hash in hashes {
            let at = self.group_index(hash);
            for (word, more) in self.groups[at].iter_mut().zip(mask(hash)) {
                *word |= more;
            }
        }
    }

    /// Whether the key of this hash may have been added.
    pub fn may_contain(&self, hash: u64) -> bool {
        let group = &self.groups[self.group_index(hash)];
        let missing = group.iter().zip(mask(hash)).map(|(word, wanted)| wanted & !word);
        missing.fold(0, |all, missing| all | missing) == 0
    }

    /// Bytes in memory.
    pub fn size_bytes(&self) -> usize {
        self.groups.len() * GROUP_WORDS * 8
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for word in self.groups.iter().flatten() {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let mut groups = Vec::with_capacity(bytes.len() / (GROUP_WORDS * 8));
        while !reader.is_empty() {
            let mut group = [0; GROUP_WORDS];
            for word in &mut group {
                *word = reader.u64()?;
            }
            groups.push(group);
        }
        if groups.is_empty() {
            return Err(Malformed(0));
        }
        Ok(Self { groups })
    }
}

/// The bits of a hash within its group.
fn mask(hash: u64) -> Group {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 26))
}

/// Returns the tag that tells the rows of one row index block apart: a part of the key's hash.
pub fn tag(hash: u64) -> u16 {
    hash as u16
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
            let hashes = (0..keys).map(|i| hash(format!("key{i:010}").as_bytes()));
            filter.insert_all(&hashes.collect::<Vec<_>>());
            let mut stored = Vec::new();
            filter.encode(&mut stored);
            assert_eq!(Filter::decode(&stored).as_ref(), Ok(&filter));
            let has = |key: String| filter.may_contain(hash(key.as_bytes()));
            assert!((0..keys).all(|i| has(format!("key{i:010}"))));
            let wrong = (0..100_000).filter(|i| has(format!("no{i}"))).count();
            assert!(wrong < 800, "{wrong} of 100,000 absent keys look present");
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
        assert!(Filter::decode(&[0; 63]).is_err());
        assert!(Filter::decode(&[0; 65]).is_err());
        assert!(Filter::decode(&[0; 64]).is_ok());
    }
}
