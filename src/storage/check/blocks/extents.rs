//! Compares the places of the cells of a row as the row index states them, without keeping them.

use crate::base::bytes::Malformed;
use crate::base::fs::File;
use crate::storage::sstable::block::{self, BlockHandle, BlockKind};
use crate::storage::sstable::entry::{BlockCells, Extent, Extents};
use std::collections::BTreeSet;
use std::path::Path;

/// A checksum over all extents of a row in their order.
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

/// The extents of one row of the row index.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) digest: ExtentDigest,
    /// Whether a part of the column index is missing or cannot be read.
    pub(super) is_unreadable: bool,
}

/// Walks over the extents of a row, depth first in the order of the cells. Removes the blocks of
/// its column index from `unclaimed`, the ones that no row has referred to. `visit` gets the blocks
/// that hold cells of the row, and those of its column index, as far as these can be read. `bytes`
/// are those of the block of the row's entry.
pub(super) fn walk(
    file: &dyn File,
    (cells, bytes): (&BlockCells, &[u8]),
    unclaimed: &mut BTreeSet<u64>,
    visit: &mut dyn FnMut(BlockHandle),
) -> Result<Walked, Malformed> {
    let mut walked = Walked::default();
    let mut add = |extent: &Extent, bytes: &[u8], visit: &mut dyn FnMut(BlockHandle)| {
        let Extent { block, first_entry, entries, .. } = extent;
        walked.digest.add(*block, *first_entry, *entries, extent.first_place(bytes));
        visit(*block);
    };
    let mut open = Vec::new();
    match &cells.extents {
        Extents::One(extent) => add(extent, bytes, visit),
        Extents::Few(extents) => extents.iter().for_each(|extent| add(extent, bytes, visit)),
        Extents::ColumnIndex(root) => open.push((root.block, root.levels)),
    }
    while let Some((handle, levels)) = open.pop() {
        visit(handle);
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
                add(extent, block.bytes(), visit);
            }
        }
    }
    Ok(walked)
}
