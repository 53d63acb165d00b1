//! A first look at a damaged file: where its row index is, and what is damaged between which rows.

use super::Loss;
use crate::base::fs::File;
use crate::model::key::RowKey;
use crate::ring::Partitioner;
use crate::storage::sstable::block::{Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::RowEntry;
use crate::storage::sstable::neighbours::Neighbours;
use crate::storage::sstable::row_part::parts_of;
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use std::ops::Range;

/// What the first look has found.
#[derive(Debug)]
pub(super) struct Survey {
    /// The sound row index blocks, in their order.
    pub(super) row_index: Vec<BlockHandle>,
    /// What may be lost at each damaged place.
    pub(super) losses: Vec<Loss>,
}

impl Survey {
    pub(super) fn of(file: &dyn File, frame: &Frame, partitioner: Partitioner) -> Self {
        let mut walk = Walk {
            partitioner,
            row_index: Vec::new(),
            damages: Vec::new(),
            neighbours: Neighbours::default(),
        };
        let mut is_complete = frame.footer.is_some();
        for piece in BlockScan::within(file, frame) {
            match piece {
                Piece::Block { handle, kind, block } => {
                    // Without a footer the properties are what comes last.
                    is_complete |= kind == BlockKind::Properties;
                    walk.block(handle, kind, &block);
                }
                Piece::Damage { offset, length, kind, reason } => {
                    if frame.may_hold_data(offset) {
                        walk.damage(offset..offset + length, kind, reason);
                    }
                }
            }
        }
        if !is_complete && walk.damages.is_empty() {
            let end = frame.blocks.end;
            walk.damage(end..end, None, "the end of the file is missing");
        }
        walk.finish()
    }
}

struct Walk {
    partitioner: Partitioner,
    row_index: Vec<BlockHandle>,
    damages: Vec<(Range<u64>, &'static str)>,
    neighbours: Neighbours,
}

impl Walk {
    fn damage(&mut self, range: Range<u64>, kind: Option<BlockKind>, reason: &'static str) {
        self.neighbours.damage(self.damages.len(), kind);
        self.damages.push((range, reason));
    }

    fn block(&mut self, handle: BlockHandle, kind: BlockKind, block: &Block) {
        let range = handle.offset..handle.offset + u64::from(handle.length);
        match kind {
            BlockKind::Data => match parts_of(block) {
                Ok(parts) => {
                    for (part, _) in parts {
                        let key = self.partitioner.decorate(RowKey::new(part.key));
                        self.neighbours.data_row(&key);
                    }
                }
                Err(reason) => self.damage(range, Some(kind), reason),
            },
            BlockKind::RowIndex => {
                self.row_index.push(handle);
                for entry in (0..block.len()).filter_map(|index| block.entry(index)) {
                    let entry = RowEntry::decode(self.partitioner, block, entry);
                    let key = entry.and_then(|entry| entry.decorated_key(self.partitioner));
                    if let Ok(key) = key {
                        self.neighbours.index_row(&key);
                    } else {
                        let reason = "an entry of the row index cannot be read";
                        self.damage(range.clone(), Some(kind), reason);
                    }
                }
            }
            BlockKind::ColumnIndex
            | BlockKind::Summary
            | BlockKind::Filter
            | BlockKind::Properties => {}
        }
    }

    fn finish(self) -> Survey {
        let Self { damages, neighbours, row_index, .. } = self;
        let losses = neighbours.finish().map(|(number, after, before)| {
            let (range, reason) = damages[number].clone();
            Loss::Unknown { range, reason, after, before }
        });
        Survey { row_index, losses: losses.collect() }
    }
}
