//! The last bytes of a file: where summary, filter and properties are.

use super::block::BlockHandle;
use super::{FOOTER_LENGTH, MAGIC, VERSION};
use crate::base::bytes::ByteReader;

/// Bytes of the three handles, which the checksum covers.
const HANDLES_LENGTH: usize = 3 * 12;

/// Where summary, filter and properties are, from a footer that stands at this offset; `None` if
/// it is damaged.
pub(super) fn decode(footer: &[u8; FOOTER_LENGTH], start: u64) -> Option<[BlockHandle; 3]> {
    let (checked, rest) = footer.split_at(HANDLES_LENGTH);
    let (crc, end) = rest.split_at(4);
    let (magic, version) = end.split_at(MAGIC.len());
    if crc != crc32fast::hash(checked).to_be_bytes() || magic != MAGIC || version != [VERSION] {
        return None;
    }
    let mut reader = ByteReader::new(checked);
    let mut handle = || {
        let (offset, length) = (reader.u64().ok()?, reader.u32().ok()?);
        let end = offset.checked_add(u64::from(length))?;
        (end <= start).then_some(BlockHandle { offset, length })
    };
    Some([handle()?, handle()?, handle()?])
}
