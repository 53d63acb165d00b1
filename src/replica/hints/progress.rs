//! How far a log was delivered, on disk.
//!
//! ```text
//! alexandra hints delivered 1
//! segment <number> <salt in hexadecimal>
//! offset <bytes>             everything of the segment before it was delivered
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```
//!
//! It counts only for the segment that has this salt: numbers may be given again after a log was
//! empty.

use crate::storage::checked_file::{CheckedState, field};

/// A place in a log before which everything was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of the segment.
    pub(super) segment: u64,
    /// The salt of the segment.
    pub(super) salt: u64,
    /// The offset in the segment.
    pub(super) offset: u64,
}

impl CheckedState for Progress {
    const KIND: &'static str = "hints delivered";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let Self { segment, salt, offset } = self;
        format!("segment {segment} {salt:016x}\noffset {offset}\n")
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let (segment, salt) = field(lines, "segment")?.split_once(' ')?;
        let salt = u64::from_str_radix(salt, 16).ok()?;
        let offset = field(lines, "offset")?.parse().ok()?;
        Some(Self { segment: segment.parse().ok()?, salt, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::checked_file::tests::check_codec;

    #[test]
    fn progress_comes_back_and_no_changed_bit_passes() {
        check_codec(&Progress { segment: 12, salt: 0xFEDC_BA98_7654_3210, offset: 4711 });
    }
}
