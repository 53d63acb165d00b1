//! Walks over the cells of one row of an SSTable, within a range, in either direction.

use super::block::{Block, BlockHandle, BlockKind};
use super::entry::{Extent, Extents, RowEntry};
use super::reader::{Blocks, SsTable};
use crate::base::bytes::Malformed;
use crate::model::cell::Cell;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellBound, CellRange};
use crate::storage::error::ReadError;

/// The cells of a row within a range. Reads only blocks that the range touches.
#[derive(Debug)]
pub struct CellCursor<'a> {
    table: &'a SsTable,
    family: &'a ColumnFamilySchema,
    entry: &'a RowEntry,
    range: CellRange<'a>,
    reversed: bool,
    blocks: &'a Blocks<'a>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was read yet.
    Unopened,
    /// At a cell of an extent.
    Open(Run),
    /// There are no more cells.
    Ended,
}

/// The extent that is being walked.
#[derive(Debug)]
struct Run {
    position: Position,
    handle: BlockHandle,
    block: Block,
    /// Entries of the block that are still to come: `first..end`.
    first: usize,
    end: usize,
}

/// Which extent of the row.
#[derive(Debug, Clone)]
struct Position {
    /// Number within the inline extents, or within the column index block.
    index: usize,
    /// For a column index: its root, the number of the block within it, and the block.
    column_index: Option<(Block, usize, Block)>,
}

impl<'a> CellCursor<'a> {
    pub(super) fn new(
        table: &'a SsTable,
        family: &'a ColumnFamilySchema,
        entry: &'a RowEntry,
        range: CellRange<'a>,
        reversed: bool,
        blocks: &'a Blocks<'a>,
    ) -> Self {
        // The row index knows the last place: a slice behind it does not touch the file.
        let nothing = entry.cells == 0 || !range.from.is_before(family, entry.last_place());
        let state = if nothing { State::Ended } else { State::Unopened };
        Self { table, family, entry, range, reversed, blocks, state }
    }

    /// The next cell. After [`ReadError::WouldBlock`] the read begins anew elsewhere.
    pub fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        loop {
            match &mut self.state {
                State::Ended => return Ok(None),
                State::Unopened => {
                    let position = self.seek()?;
                    self.state = self.open(position, true)?;
                }
                State::Open(run) if run.first == run.end => {
                    let position = run.position.clone();
                    self.state = match self.step(position)? {
                        Some(position) => self.open(Some(position), false)?,
                        None => State::Ended,
                    };
                }
                State::Open(run) => {
                    let index = if self.reversed {
                        run.end -= 1;
                        run.end
                    } else {
                        run.first += 1;
                        run.first - 1
                    };
                    let at = run.block.entry(index);
                    let cell = at.and_then(|at| Cell::decode(run.block.bytes(), at));
                    let Some(cell) = cell else {
                        return Err(self.table.malformed(run.handle, Malformed(0)));
                    };
                    let outside = if self.reversed {
                        !self.range.from.is_before(self.family, cell.place())
                    } else {
                        self.range.to.is_before(self.family, cell.place())
                    };
                    if outside {
                        self.state = State::Ended;
                        return Ok(None);
                    }
                    return Ok(Some(cell));
                }
            }
        }
    }

    /// The bound where the walk begins.
    fn edge_is_before(&self, place: (&[u8], &[u8])) -> bool {
        let edge = if self.reversed { &self.range.to } else { &self.range.from };
        edge.is_before(self.family, place)
    }

    /// The extent in which the walk begins: the last that begins before the edge.
    fn seek(&self) -> Result<Option<Position>, ReadError> {
        match &self.entry.extents {
            Extents::None => Ok(None),
            Extents::One(_) => Ok(Some(Position { index: 0, column_index: None })),
            Extents::Few(extents) => {
                let bytes = self.entry.bytes();
                let before =
                    extents.partition_point(|e| !self.edge_is_before(e.first_place(bytes)));
                Ok(Some(Position { index: before.saturating_sub(1), column_index: None }))
            }
            Extents::ColumnIndex(handle) => {
                let root = self.blocks.block(*handle, BlockKind::ColumnIndex)?;
                let in_root = self.search(*handle, &root)?;
                let (child, block) = self.column_index_block(*handle, &root, in_root)?;
                let index = self.search(child, &block)?;
                Ok(Some(Position { index, column_index: Some((root, in_root, block)) }))
            }
        }
    }

    /// The last extent of a column index block that begins before the edge, or the first.
    fn search(&self, handle: BlockHandle, block: &Block) -> Result<usize, ReadError> {
        let (mut low, mut high) = (0, block.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let extent = self.extent_at(handle, block, middle)?;
            if self.edge_is_before(extent.first_place(block.bytes())) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low.saturating_sub(1))
    }

    fn extent_at(
        &self,
        handle: BlockHandle,
        block: &Block,
        index: usize,
    ) -> Result<Extent, ReadError> {
        let at = block.entry(index).ok_or(Malformed(0));
        let extent = at.and_then(|at| Extent::decode(block.bytes(), at));
        extent.map_err(|malformed| self.table.malformed(handle, malformed))
    }

    fn column_index_block(
        &self,
        handle: BlockHandle,
        root: &Block,
        index: usize,
    ) -> Result<(BlockHandle, Block), ReadError> {
        let child = self.extent_at(handle, root, index)?.block;
        Ok((child, self.blocks.block(child, BlockKind::ColumnIndex)?))
    }

    /// The neighbouring extent in the direction of the walk.
    fn step(&self, position: Position) -> Result<Option<Position>, ReadError> {
        let neighbour = |at: usize, length: usize| {
            let next = if self.reversed { at.checked_sub(1) } else { Some(at + 1) };
            next.filter(|next| *next < length)
        };
        let Some((root, in_root, block)) = position.column_index else {
            let length =
                if let Extents::Few(extents) = &self.entry.extents { extents.len() } else { 1 };
            let next = neighbour(position.index, length);
            return Ok(next.map(|index| Position { index, column_index: None }));
        };
        if let Some(index) = neighbour(position.index, block.len()) {
            return Ok(Some(Position { index, column_index: Some((root, in_root, block)) }));
        }
        let (Some(in_root), Extents::ColumnIndex(handle)) =
            (neighbour(in_root, root.len()), &self.entry.extents)
        else {
            return Ok(None);
        };
        let (_, block) = self.column_index_block(*handle, &root, in_root)?;
        let index = if self.reversed { block.len().saturating_sub(1) } else { 0 };
        Ok(Some(Position { index, column_index: Some((root, in_root, block)) }))
    }

    /// Reads the data block of an extent; at the beginning of the walk also finds the first cell.
    fn open(&self, position: Option<Position>, seek: bool) -> Result<State, ReadError> {
        let Some(position) = position else { return Ok(State::Ended) };
        let extent = match (&position.column_index, &self.entry.extents) {
            (Some((_, _, block)), Extents::ColumnIndex(handle)) => {
                self.extent_at(*handle, block, position.index)?
            }
            (_, Extents::One(extent)) => extent.clone(),
            (_, Extents::Few(extents)) => match extents.get(position.index) {
                Some(extent) => extent.clone(),
                None => return Ok(State::Ended),
            },
            _ => return Ok(State::Ended),
        };
        let block = self.blocks.block(extent.block, BlockKind::Data)?;
        let (mut first, mut end) =
            (extent.first_entry as usize, extent.first_entry as usize + extent.entries as usize);
        if end > block.len() {
            return Err(self.table.malformed(extent.block, Malformed(0)));
        }
        // A walk that begins at an end of the row begins at an end of the extent.
        let at_end = if self.reversed {
            self.range.to == CellBound::Last
        } else {
            self.range.from == CellBound::First
        };
        if seek && !at_end {
            let at = self.first_behind_edge(extent.block, &block, first, end)?;
            if self.reversed {
                end = at;
            } else {
                first = at;
            }
        }
        Ok(State::Open(Run { position, handle: extent.block, block, first, end }))
    }

    /// Halving: the first entry of `low..high` that lies behind the edge.
    fn first_behind_edge(
        &self,
        handle: BlockHandle,
        block: &Block,
        mut low: usize,
        mut high: usize,
    ) -> Result<usize, ReadError> {
        while low < high {
            let middle = usize::midpoint(low, high);
            let at = block.entry(middle);
            let place = at.and_then(|at| Cell::place_at(block.bytes(), at));
            let Some(place) = place else {
                return Err(self.table.malformed(handle, Malformed(0)));
            };
            if self.edge_is_before(place) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}
