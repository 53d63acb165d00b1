//! Hashes of ranges.

use std::fmt;

/// Most bytes of a hash: those of SHA-256.
const MOST_BYTES: usize = 32;

/// The hash of the rows of a range: nothing where there are no rows, else mostly 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TreeHash {
    length: u8,
    /// Zeroes after the length.
    bytes: [u8; MOST_BYTES],
}

impl TreeHash {
    /// A hash of these bytes; `None` if there are more than 32.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let mut hash = Self { length: u8::try_from(bytes.len()).ok()?, ..Self::default() };
        hash.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(hash)
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(MOST_BYTES)]
    }

    /// Adds the rows of another range, or takes them out again. What is longer keeps its end, as
    /// in 0.6.
    pub(crate) fn combine(&mut self, other: &Self) {
        self.length = self.length.max(other.length);
        for (byte, other) in self.bytes.iter_mut().zip(other.bytes) {
            *byte ^= other;
        }
    }
}

impl From<[u8; MOST_BYTES]> for TreeHash {
    fn from(bytes: [u8; MOST_BYTES]) -> Self {
        Self { length: MOST_BYTES as u8, bytes }
    }
}

impl fmt::Debug for TreeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_combine_as_in_0_6() {
        let hash = |bytes: &[u8]| TreeHash::new(bytes).unwrap();
        let mut sum = TreeHash::default();
        sum.combine(&hash(&[1, 2]));
        assert_eq!(sum, hash(&[1, 2]));
        sum.combine(&hash(&[3, 3, 3, 3]));
        assert_eq!(sum, hash(&[2, 1, 3, 3]));
        assert_eq!(TreeHash::new(&[0; 33]), None);
        assert_eq!(TreeHash::new(&[7; 32]), Some(TreeHash::from([7; 32])));
    }
}
