//! The summary: where the row index blocks are, and the first key of each.
//!
//! For each row index block, in their order:
//!
//! ```text
//! varint offset and varint length of the block
//! varint: twice the number of its rows, plus 1 if cells of any stand in data blocks
//! u16 length, row key | token as ring::DecoratedKey::encode_token
//! ```

use super::block::BlockHandle;
use super::entry;
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::ring::{DecoratedKey, Partitioner};

const POINTS_ELSEWHERE: u64 = 1;

/// What the summary says of a row index block besides its first key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) struct SummaryHead {
    /// Where it stands.
    pub block: BlockHandle,
    /// Number of its rows.
    pub rows: u64,
    /// Whether it says of any row where its cells are. Else it holds the cells of all of its rows,
    /// and is worth as much memory as a data block.
    pub points_elsewhere: bool,
}

impl SummaryHead {
    /// Appends the stored form, with the first key of the block in its own.
    pub(super) fn encode(&self, first_key: &[u8], out: &mut Vec<u8>) {
        out.put_varint(self.block.offset);
        out.put_varint(u64::from(self.block.length));
        let flags = if self.points_elsewhere { POINTS_ELSEWHERE } else { 0 };
        out.put_varint(self.rows << 1 | flags);
        out.extend_from_slice(first_key);
    }
}

/// Reads a whole summary.
pub(in crate::storage) fn decode(
    partitioner: Partitioner,
    bytes: &[u8],
) -> Result<Vec<(SummaryHead, DecoratedKey)>, Malformed> {
    let mut reader = ByteReader::new(bytes);
    let mut listed = Vec::new();
    while !reader.is_empty() {
        let offset = reader.varint()?;
        let at = reader.position();
        let length = u32::try_from(reader.varint()?).map_err(|_| Malformed(at))?;
        let rows = reader.varint()?;
        let first = entry::decode_key(partitioner, &mut reader)?;
        let head = SummaryHead {
            block: BlockHandle { offset, length },
            rows: rows >> 1,
            points_elsewhere: rows & POINTS_ELSEWHERE != 0,
        };
        listed.push((head, first));
    }
    Ok(listed)
}
