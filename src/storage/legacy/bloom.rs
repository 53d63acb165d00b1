//! The Bloom filters of 0.6: of the rows of an SSTable, and of the columns of a row.
//!
//! ```text
//! i32  number of hashes
//!      a java.util.BitSet by the object serialization of Java: 68 constant bytes,
//!      i32 number of words, each i64 (bit n is the bit n % 64 of word n / 64), 0x78
//! ```
//!
//! The hash is MurmurHash2 with a mistake: the last one to three bytes are taken in reverse order,
//! and as signed numbers.

use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::JavaReader;

/// Bytes before the number of words.
const BIT_SET_HEAD: &[u8; 68] = b"\xac\xed\0\x05sr\0\x10java.util.BitSet\
    \x6e\xfd\x88\x7e\x39\x34\xab\x21\x03\0\x01[\0\x04bitst\0\x02[Jxpur\0\x02[J\
    \x78\x20\x04\xb5\x12\xb1\x75\x93\x02\0\0xp";

/// End of the data, which there is since Java 6: the class writes itself.
const END_OF_DATA: u8 = 0x78;

/// Offset of the flags in the head, and their values: Java 5 wrote fields alone.
const FLAGS_AT: usize = 32;
const WRITES_ITSELF: u8 = 3;
const WRITTEN_BY_FIELDS: u8 = 2;

/// Most hashes that a filter from outside may ask for. The original has none with more than 14.
const MOST_HASHES: u32 = 64;

/// Bits for each row, and for each column.
const BITS_PER_ROW: u64 = 15;
const BITS_PER_COLUMN: u64 = 4;

/// Bits that a filter has besides.
const EXCESS_BITS: u64 = 20;

/// Most bits: Java counts them with 31.
const MOST_BITS: u64 = (1 << 31) - 64;

/// Numbers of hashes by bits for each element, since 0.6.5.
const HASHES: [u32; 16] = [1, 1, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 8, 9, 10, 10];

/// A set of names that may say yes wrongly, never no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BloomFilter {
    hashes: u32,
    words: Vec<u64>,
}

/// The two hashes of an element, from which all its bits follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementHash {
    first: i32,
    second: i32,
}

impl BloomFilter {
    /// An empty filter for this number of rows of an SSTable.
    pub fn for_rows(rows: u64) -> Self {
        Self::sized(rows, BITS_PER_ROW)
    }

    /// An empty filter for this number of columns, super columns and columns within these.
    pub fn for_columns(columns: u64) -> Self {
        Self::sized(columns, BITS_PER_COLUMN)
    }

    fn sized(elements: u64, wanted: u64) -> Self {
        let most = (MOST_BITS - EXCESS_BITS) / elements.max(1);
        let per_element = wanted.min(most);
        let bits = (elements.saturating_mul(per_element) + EXCESS_BITS).min(MOST_BITS);
        Self { hashes: HASHES[per_element as usize], words: vec![0; bits.div_ceil(64) as usize] }
    }

    /// The numbers of the bits of an element.
    fn bits(&self, element: ElementHash) -> impl Iterator<Item = usize> + use<> {
        let ElementHash { first, second } = element;
        // There are no more than Java can count.
        let count = (self.words.len() * 64) as i32;
        (0..self.hashes as i32).map(move |i| {
            let sum = first.wrapping_add(second.wrapping_mul(i));
            sum.wrapping_rem(count).unsigned_abs() as usize
        })
    }

    /// Adds an element.
    pub fn add(&mut self, element: ElementHash) {
        for bit in self.bits(element) {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Bytes that [`Self::encode`] appends.
    pub fn encoded_length(&self) -> usize {
        4 + BIT_SET_HEAD.len() + 4 + 8 * self.words.len() + 1
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_length());
        out.extend_from_slice(&self.hashes.to_be_bytes());
        out.extend_from_slice(BIT_SET_HEAD);
        out.extend_from_slice(&(self.words.len() as u32).to_be_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.push(END_OF_DATA);
    }

    /// Whether the element may have been added.
    pub(in crate::storage) fn may_contain(&self, element: ElementHash) -> bool {
        self.bits(element).all(|bit| self.words[bit / 64] & 1 << (bit % 64) != 0)
    }

    /// Reads a filter that is all of these bytes, also one that Java 5 wrote.
    pub(in crate::storage) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let hashes = reader.u32()?;
        if !(1..=MOST_HASHES).contains(&hashes) {
            return Err(Malformed(0));
        }
        let at = reader.position();
        let mut head = reader.array::<68>()?;
        let flags = std::mem::replace(&mut head[FLAGS_AT], BIT_SET_HEAD[FLAGS_AT]);
        if head != *BIT_SET_HEAD || ![WRITES_ITSELF, WRITTEN_BY_FIELDS].contains(&flags) {
            return Err(Malformed(at));
        }
        let at = reader.position();
        let count = reader.count(8)?;
        if count == 0 || count as u64 > MOST_BITS / 64 {
            return Err(Malformed(at));
        }
        let words = (0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?;
        let ends = flags == WRITTEN_BY_FIELDS || reader.u8()? == END_OF_DATA;
        if !ends || !reader.is_empty() {
            return Err(Malformed(reader.position()));
        }
        Ok(Self { hashes, words })
    }
}

impl ElementHash {
    /// Bytes of [`Self::to_bytes`].
    pub const LENGTH: usize = 8;

    /// Of a column by its name.
    pub fn of_column(name: &[u8]) -> Self {
        let first = murmur(name, 0);
        Self { first, second: murmur(name, first) }
    }

    /// Of a row by its disk key.
    pub fn of_row(disk_key: &str) -> Self {
        let mut bytes = vec![0xfe, 0xff];
        bytes.extend(disk_key.encode_utf16().flat_map(u16::to_be_bytes));
        Self::of_column(&bytes)
    }

    /// A form to keep them in for a while.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        (u64::from(self.first as u32) << 32 | u64::from(self.second as u32)).to_be_bytes()
    }

    /// Reads what [`Self::to_bytes`] has returned.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let both = u64::from_be_bytes(bytes);
        Self { first: (both >> 32) as i32, second: both as i32 }
    }
}

fn murmur(bytes: &[u8], seed: i32) -> i32 {
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = seed as u32 ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (place, &byte) in tail.iter().rev().enumerate() {
            hash ^= i32::from(byte as i8).cast_unsigned() << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ hash >> 15) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn hashes_are_those_of_the_original() {
        let column = ElementHash::of_column(b"col");
        assert_eq!(column, ElementHash { first: 714_768_008, second: 2_036_963_908 });
        assert_eq!(BloomFilter::for_columns(1).bits(column).collect::<Vec<_>>(), [8, 52, 16]);
        assert_eq!(murmur(&[0xff, 0x80, 0x81], 0), -1_463_766_491);
        let row = ElementHash::of_row("110673303387115207421586718101067225896:foo");
        assert_eq!(row, ElementHash { first: -75_409_016, second: -324_190_811 });
        let filter = BloomFilter { hashes: 10, words: vec![0; 30] };
        let bits: Vec<_> = filter.bits(row).collect();
        assert_eq!(bits, [1016, 1747, 558, 1289, 100, 831, 1562, 1803, 1072, 341]);
        assert_eq!(ElementHash::from_bytes(row.to_bytes()), row);
    }

    #[test]
    fn sizes_are_those_of_the_original() {
        let size = |filter: BloomFilter| (filter.hashes, filter.words.len());
        assert_eq!(size(BloomFilter::for_rows(11)), (10, 3));
        assert_eq!(size(BloomFilter::for_rows(0)), (10, 1));
        assert_eq!(size(BloomFilter::for_columns(300)), (3, 20));
        // More rows than there are bits for: fewer for each.
        assert_eq!(BloomFilter::for_columns(1 << 30).hashes, 1);
        let one = BloomFilter::for_columns(0);
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        assert_eq!((bytes.len(), one.encoded_length()), (85, 85));
    }

    #[test]
    fn the_form_of_java_5_is_read() {
        let mut filter = BloomFilter::for_rows(3);
        filter.add(ElementHash::of_row("a"));
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        bytes.pop();
        assert_eq!(BloomFilter::decode(&bytes), Err(Malformed(bytes.len())));
        bytes[4 + FLAGS_AT] = WRITTEN_BY_FIELDS;
        assert_eq!(BloomFilter::decode(&bytes), Ok(filter));
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let mut bytes = Vec::new();
        BloomFilter::for_rows(3).encode(&mut bytes);
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            BloomFilter::decode(&bytes)
        };
        assert_eq!(changed(0, 1), Err(Malformed(0)), "too many hashes");
        assert_eq!(changed(3, 0), Err(Malformed(0)), "no hashes");
        assert_eq!(changed(9, 0), Err(Malformed(4)), "another class");
        assert_eq!(changed(72, 0x7f), Err(Malformed(72)), "more words than bytes");
        assert_eq!(changed(75, 0), Err(Malformed(72)), "no words");
    }

    proptest! {
        #[test]
        fn what_was_added_is_found_after_reading(names in vec(vec(0u8.., 0..20), 0..200)) {
            let mut filter = BloomFilter::for_columns(names.len() as u64);
            for name in &names {
                filter.add(ElementHash::of_column(name));
            }
            let mut bytes = Vec::new();
            filter.encode(&mut bytes);
            let read = BloomFilter::decode(&bytes).unwrap();
            prop_assert!(names.iter().all(|name| read.may_contain(ElementHash::of_column(name))));
            prop_assert_eq!(read, filter);
            let _ = BloomFilter::decode(&bytes[names.len() % bytes.len()..]);
        }
    }
}
