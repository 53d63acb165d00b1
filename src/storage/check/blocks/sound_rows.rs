//! Streams the rows of a file that can be read, in token order.
//!
//! Data blocks name their rows, so that a sound one is of use without anything else in the file;
//! small rows stand in the row index. The other entries of the row index tell what is lost, and
//! keep the deletions of rows of which nothing else is left. A block of the row index stands after
//! the data of its rows, so a second scan of the file runs ahead to find it.

use super::rows::{UNREADABLE_ENTRY, keyed_entry};
use crate::base::fs::File;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::check::{Damage, Item};
use crate::storage::error::{FileContext, FileError};
use crate::storage::sstable::block::{Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::RowEntry;
use crate::storage::sstable::row_part::parts_of;
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use std::collections::VecDeque;
use std::path::Path;

/// The rows of a file, and the damage in between.
#[derive(Debug)]
pub struct SoundRows<'a> {
    data: DataScan<'a>,
    index: IndexScan<'a>,
    /// The row of which cells in data blocks may follow.
    row: Option<DecoratedKey>,
    /// Cells of the row that are read already.
    cells: std::vec::IntoIter<Cell>,
    damage: VecDeque<Damage>,
}

/// The cells of a row in one data block.
#[derive(Debug)]
struct Part {
    key: DecoratedKey,
    deletion: Deletion,
    cells: Vec<Cell>,
}

impl<'a> SoundRows<'a> {
    /// The rows of a file, in the order of this partitioner. It fails only if the file cannot be
    /// read at all.
    pub fn of(
        file: &'a dyn File,
        path: &Path,
        partitioner: Partitioner,
    ) -> Result<Self, FileError> {
        let frame = Frame::read(file).context("read", path)?;
        let scan = || BlockScan::within(file, &frame);
        Ok(Self {
            data: DataScan { scan: scan(), partitioner, parts: VecDeque::new() },
            index: IndexScan { scan: scan(), partitioner, block: None, head: None },
            row: None,
            cells: Vec::new().into_iter(),
            damage: VecDeque::new(),
        })
    }

    /// Number of bytes that are read.
    pub fn position(&self) -> u64 {
        self.data.scan.position()
    }

    /// The next item; `None` at the end.
    pub fn advance(&mut self) -> Option<Item> {
        loop {
            if let Some(cell) = self.cells.next() {
                return Some(Item::Cell(cell));
            }
            self.data.fill(&mut self.damage);
            self.index.fill(&mut self.damage);
            if let Some(damage) = self.damage.pop_front() {
                return Some(Item::Damage(damage));
            }
            let next = self.data.parts.front().map(|part| &part.key);
            let is_continued = next.is_some() && next == self.row.as_ref();
            if !is_continued && let Some((key, entry)) = self.index.take_before(next) {
                self.row = None;
                self.cells = entry.inline_cells().flatten().collect::<Vec<_>>().into_iter();
                return Some(row(key, entry.deletion, Some(&entry)));
            }
            let Part { key, deletion, cells } = self.data.parts.pop_front()?;
            self.cells = cells.into_iter();
            if !is_continued {
                let entry = self.index.take(&key);
                let deletion = entry.as_ref().map_or(deletion, |it| it.deletion.merge(deletion));
                self.row = Some(key.clone());
                return Some(row(key, deletion, entry.as_ref()));
            }
        }
    }
}

fn row(key: DecoratedKey, deletion: Deletion, entry: Option<&RowEntry>) -> Item {
    let stated = entry.map(|entry| (entry.cells, entry.max_timestamp()));
    Item::Row { key, deletion, stated }
}

/// The parts of rows in data blocks, one block at a time.
#[derive(Debug)]
struct DataScan<'a> {
    scan: BlockScan<'a>,
    partitioner: Partitioner,
    parts: VecDeque<Part>,
}

impl DataScan<'_> {
    /// Reads on until there is a part, and tells of damage on the way.
    fn fill(&mut self, damage: &mut VecDeque<Damage>) {
        while self.parts.is_empty()
            && let Some(piece) = self.scan.next()
        {
            match piece {
                Piece::Block { handle, kind: BlockKind::Data, block } => {
                    if let Err(reason) = self.add(&block) {
                        damage.push_back(damage_of(handle, BlockKind::Data, reason));
                    }
                }
                Piece::Block { .. } => {}
                Piece::Damage { range, kind, reason } => {
                    let part = kind.map(BlockKind::name);
                    damage.push_back(Damage::new(range, part, reason));
                }
            }
        }
    }

    fn add(&mut self, block: &Block) -> Result<(), &'static str> {
        for (part, entries) in parts_of(block)? {
            let at = entries.filter_map(|entry| block.entry(entry));
            let cells = at.filter_map(|at| Cell::decode(block.bytes(), at)).collect();
            let key = self.partitioner.decorate(RowKey::new(part.key));
            self.parts.push_back(Part { key, deletion: part.deletion, cells });
        }
        Ok(())
    }
}

fn damage_of(handle: BlockHandle, kind: BlockKind, reason: &'static str) -> Damage {
    Damage::new(handle.range(), Some(kind.name()), reason)
}

/// The rows of the row index, as far as it can be read.
#[derive(Debug)]
struct IndexScan<'a> {
    scan: BlockScan<'a>,
    partitioner: Partitioner,
    /// The open block and its next entry.
    block: Option<(BlockHandle, Block, usize)>,
    head: Option<(DecoratedKey, RowEntry)>,
}

impl IndexScan<'_> {
    /// Reads on until there is a row. Damage between the blocks is told by the scan of the data.
    fn fill(&mut self, damage: &mut VecDeque<Damage>) {
        while self.head.is_none() {
            if let Some((handle, block, next)) = &mut self.block
                && let Some(at) = block.entry(*next)
            {
                *next += 1;
                self.head = keyed_entry(self.partitioner, block, at);
                if self.head.is_none() {
                    let kind = BlockKind::RowIndex;
                    damage.push_back(damage_of(*handle, kind, UNREADABLE_ENTRY));
                }
                continue;
            }
            let next = self.scan.find_map(|piece| match piece {
                Piece::Block { handle, kind: BlockKind::RowIndex, block } => Some((handle, block)),
                _ => None,
            });
            let Some((handle, block)) = next else { return };
            self.block = Some((handle, block, 0));
        }
    }

    /// Takes the next row, if it stands before this one; any if there is none.
    fn take_before(&mut self, before: Option<&DecoratedKey>) -> Option<(DecoratedKey, RowEntry)> {
        self.head.take_if(|(key, _)| before.is_none_or(|before| *key < *before))
    }

    /// Takes the entry of this row, if it is the next one.
    fn take(&mut self, wanted: &DecoratedKey) -> Option<RowEntry> {
        self.head.take_if(|(key, _)| key == wanted).map(|(_, entry)| entry)
    }
}
