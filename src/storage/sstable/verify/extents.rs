//! What the row index says of where the cells of a row are, compared without keeping it.

use crate::base::bytes::Malformed;
use crate::base::fs::File;
use crate::storage::sstable::block::{self, BlockHandle, BlockKind};
use crate::storage::sstable::entry::{BlockCells, Extent, Extents, IndexRoot};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// The extents of a row, as a checksum over all of them in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtentDigest {
    hasher: crc32fast::Hasher,
    extents: u64,
}

impl ExtentDigest {
    pub(super) fn add(
        &mut self,
        block: BlockHandle,
        first_entry: u32,
        entries: u32,
        (super_name, name): (&[u8], &[u8]),
    ) {
        self.extents += 1;
        self.hasher.update(&block.offset.to_be_bytes());
        let numbers =
            [block.length, first_entry, entries, super_name.len() as u32, name.len() as u32];
        for number in numbers {
            self.hasher.update(&number.to_be_bytes());
        }
        self.hasher.update(super_name);
        self.hasher.update(name);
    }

    pub(super) fn value(&self) -> (u64, u32) {
        (self.extents, self.hasher.clone().finalize())
    }
}

/// What was found behind an entry of the row index.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// The extents.
    pub(super) digest: ExtentDigest,
    /// The blocks that hold cells of the row, and those of its column index, as far as these can
    /// be read.
    pub(super) blocks: Vec<Range<u64>>,
    /// Whether a part of its column index is not there, or cannot be read.
    pub(super) is_unreadable: bool,
}

/// Walks over the extents of a row, and takes the blocks of its column index from those that no row
/// refers to so far. The ranges of blocks are only collected if `with_blocks`: they
/// take memory that grows with the row. `bytes` are those of the block of the row's entry.
pub(super) fn walk(
    file: &dyn File,
    (cells, bytes): (&BlockCells, &[u8]),
    unclaimed: &mut BTreeSet<u64>,
    with_blocks: bool,
) -> Result<Walked, Malformed> {
    let mut walked = Walked::default();
    let mut visit = |extent: &Extent, bytes: &[u8], walked: &mut Walked| {
        let (block, first, entries) = (extent.block, extent.first_entry, extent.entries);
        walked.digest.add(block, first, entries, extent.first_place(bytes));
        if with_blocks {
            walked.blocks.push(super::range_of(block));
        }
    };
    match &cells.extents {
        Extents::One(extent) => visit(extent, bytes, &mut walked),
        Extents::Few(extents) => {
            for extent in extents {
                visit(extent, bytes, &mut walked);
            }
        }
        Extents::ColumnIndex(root) => {
            walk_column_index(file, *root, unclaimed, &mut walked, &mut visit)?;
        }
    }
    Ok(walked)
}

/// Depth first, in the order of the cells.
fn walk_column_index(
    file: &dyn File,
    root: IndexRoot,
    unclaimed: &mut BTreeSet<u64>,
    walked: &mut Walked,
    visit: &mut impl FnMut(&Extent, &[u8], &mut Walked),
) -> Result<(), Malformed> {
    let mut open = vec![(root.block, root.levels)];
    while let Some((handle, levels)) = open.pop() {
        walked.blocks.push(super::range_of(handle));
        let read = block::read(file, Path::new(""), handle, BlockKind::ColumnIndex);
        // Each belongs to one row, and once: nonsense cannot lead in circles.
        let is_claimed = unclaimed.remove(&handle.offset);
        let (Ok(block), true) = (read, is_claimed) else {
            walked.is_unreadable = true;
            continue;
        };
        let extents = (0..block.len()).map(|index| {
            let at = block.entry(index).ok_or(Malformed(0))?;
            Extent::decode(block.bytes(), at)
        });
        let extents = extents.collect::<Result<Vec<_>, _>>()?;
        if levels > 1 {
            open.extend(extents.iter().rev().map(|extent| (extent.block, levels - 1)));
        } else {
            for extent in &extents {
                visit(extent, block.bytes(), walked);
            }
        }
    }
    Ok(())
}
