//! Walks over the cells of one row of an SSTable, within a range, in either direction.

use super::block::{Block, BlockHandle, BlockKind};
use super::blocks::Blocks;
use super::entry::{BlockCells, Extent, Extents, RowEntry, WHOLE_BLOCK};
use super::reader::SsTable;
use crate::base::bytes::Malformed;
use crate::model::cell::Cell;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellBound, CellRange};
use crate::storage::error::ReadError;
use std::ops::Range;

/// The cells of a row within a range.
#[derive(Debug)]
pub struct CellCursor<'a>(Form<'a>);

#[derive(Debug)]
enum Form<'a> {
    /// The row is small, and stands in the row index.
    Inline(InlineCursor<'a>),
    /// It stands in data blocks. Apart, so that the cursor of a small row is small.
    Extents(Box<ExtentCursor<'a>>),
}

impl<'a> CellCursor<'a> {
    /// The cells of a row that the reader's SSTable has.
    #[inline]
    pub fn new(
        family: &'a ColumnFamilySchema,
        entry: &'a RowEntry,
        range: CellRange<'a>,
        reversed: bool,
        blocks: &'a Blocks<'a>,
    ) -> Self {
        Self(match entry.block_cells() {
            None => {
                let table = blocks.table();
                Form::Inline(InlineCursor::new(table, family, entry, range, reversed))
            }
            Some(cells) => {
                let cells = (cells, entry.block());
                Form::Extents(Box::new(ExtentCursor::new(family, cells, range, reversed, blocks)))
            }
        })
    }

    /// Returns the next cell. After [`ReadError::WouldBlock`] the read is repeated on another
    /// thread.
    pub fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        match &mut self.0 {
            Form::Inline(cursor) => cursor.advance(),
            Form::Extents(cursor) => cursor.advance(),
        }
    }
}

/// Super column name and column name.
type Place<'a> = (&'a [u8], &'a [u8]);

/// The cells of a small row within a range. It has few: they are looked at one by one.
#[derive(Debug)]
struct InlineCursor<'a> {
    table: &'a SsTable,
    family: &'a ColumnFamilySchema,
    entry: &'a RowEntry,
    range: CellRange<'a>,
    /// Range of the remaining cells.
    bytes: Range<usize>,
    /// Whether the walk has passed the beginning of the range.
    is_within: bool,
    /// For a walk backwards: starts of the remaining cells, ascending.
    starts: Option<Vec<usize>>,
}

impl<'a> InlineCursor<'a> {
    #[inline]
    fn new(
        table: &'a SsTable,
        family: &'a ColumnFamilySchema,
        entry: &'a RowEntry,
        range: CellRange<'a>,
        reversed: bool,
    ) -> Self {
        let bytes = entry.inline_range().unwrap_or_default();
        let starts = reversed.then(Vec::new);
        Self { table, family, entry, range, bytes, is_within: false, starts }
    }

    fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        if self.starts.is_some() { self.advance_backwards() } else { self.advance_forwards() }
    }

    fn advance_forwards(&mut self) -> Result<Option<Cell>, ReadError> {
        self.enter()?;
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let cell = self.cell_at(self.bytes.start)?;
        if self.range.to.is_before(self.family, cell.place()) {
            self.bytes.start = self.bytes.end;
            return Ok(None);
        }
        self.bytes.start += cell.encoded_length();
        Ok(Some(cell))
    }

    fn advance_backwards(&mut self) -> Result<Option<Cell>, ReadError> {
        if !self.is_within {
            self.enter()?;
            let mut starts = Vec::new();
            while !self.bytes.is_empty() {
                let (place, end) = self.place_at(self.bytes.start)?;
                if self.range.to.is_before(self.family, place) {
                    break;
                }
                starts.push(self.bytes.start);
                self.bytes.start = end;
            }
            self.starts = Some(starts);
        }
        let last = self.starts.as_mut().and_then(Vec::pop);
        last.map(|at| self.cell_at(at)).transpose()
    }

    /// Passes the cells before the range.
    fn enter(&mut self) -> Result<(), ReadError> {
        self.is_within |= self.range.from == CellBound::First;
        while !self.is_within && !self.bytes.is_empty() {
            let (place, end) = self.place_at(self.bytes.start)?;
            if self.range.from.is_before(self.family, place) {
                break;
            }
            self.bytes.start = end;
        }
        self.is_within = true;
        Ok(())
    }

    /// The place of the cell here, and where it ends.
    fn place_at(&self, at: usize) -> Result<(Place<'a>, usize), ReadError> {
        let bytes: &'a [u8] = self.entry.block().bytes();
        let end = Cell::length_at(bytes, at).map(|length| at.saturating_add(length));
        let place = Cell::place_at(bytes, at).zip(end.filter(|end| *end <= self.bytes.end));
        place.ok_or_else(|| self.table.malformed_entry(self.entry))
    }

    fn cell_at(&self, at: usize) -> Result<Cell, ReadError> {
        // Of the block all is there that a length could claim; of the row perhaps not.
        let cell = Cell::decode(self.entry.block().bytes(), at);
        let end = self.entry.inline_range().map_or(0, |range| range.end);
        let cell = cell.filter(|cell| cell.encoded_length() <= end - at);
        cell.ok_or_else(|| self.table.malformed_entry(self.entry))
    }
}

/// The cells of a row within a range. Reads only blocks that the range touches.
#[derive(Debug)]
struct ExtentCursor<'a> {
    table: &'a SsTable,
    family: &'a ColumnFamilySchema,
    cells: &'a BlockCells,
    /// The block of the row's entry, to which the places of its extents refer.
    index: &'a Block,
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

/// Place of an extent in the row.
#[derive(Debug, Default)]
struct Position {
    /// The way through the column index, from its root down to a block of extents of data blocks.
    /// Empty for a row without one.
    path: Vec<Step>,
    /// Number of the extent among the inline ones, for a row without a column index.
    inline: usize,
}

/// A place in a block of the column index.
#[derive(Debug)]
struct Step {
    handle: BlockHandle,
    block: Block,
    index: usize,
}

impl<'a> ExtentCursor<'a> {
    /// `index` is the block of the row index in which `cells` was found.
    fn new(
        family: &'a ColumnFamilySchema,
        (cells, index): (&'a BlockCells, &'a Block),
        range: CellRange<'a>,
        reversed: bool,
        blocks: &'a Blocks<'a>,
    ) -> Self {
        // The row index has the last place: a slice after it does not touch the file. That of the
        // original has only the super column of it.
        let knows_last = !(family.is_super() && blocks.table().is_legacy());
        let nothing = knows_last && !range.from.is_before(family, cells.last_place(index.bytes()));
        let state = if nothing { State::Ended } else { State::Unopened };
        let table = blocks.table();
        Self { table, family, cells, index, range, reversed, blocks, state }
    }

    /// Returns the next cell. After [`ReadError::WouldBlock`] the read is repeated on another
    /// thread.
    fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        loop {
            match &mut self.state {
                State::Ended => return Ok(None),
                State::Unopened => {
                    let position = self.seek()?;
                    self.state = self.open(position, true)?;
                }
                State::Open(run) if run.first == run.end => {
                    let position = std::mem::take(&mut run.position);
                    let next = self.step(position)?;
                    self.state = self.open(next, false)?;
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
                    let cell = cell.ok_or_else(|| self.table.malformed(run.handle))?;
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
        match &self.cells.extents {
            Extents::Few(extents) => {
                let bytes = self.index.bytes();
                let before =
                    extents.partition_point(|e| !self.edge_is_before(e.first_place(bytes)));
                let inline = before.saturating_sub(1);
                Ok(Some(Position { path: Vec::new(), inline }))
            }
            Extents::ColumnIndex(root) => {
                let mut position = Position { path: Vec::new(), inline: 0 };
                let search = |step: &Step| self.search(step.handle, &step.block);
                self.descend(&mut position, root.block, root.levels, search)?;
                Ok(Some(position))
            }
        }
    }

    /// Follows the column index from a block down to extents of data blocks. `choose` says where to
    /// go on in each block.
    fn descend(
        &self,
        position: &mut Position,
        mut handle: BlockHandle,
        levels: u8,
        choose: impl Fn(&Step) -> Result<usize, ReadError>,
    ) -> Result<(), ReadError> {
        while position.path.len() < levels as usize {
            let block = self.blocks.block(handle, BlockKind::ColumnIndex)?;
            let mut step = Step { handle, block, index: 0 };
            step.index = choose(&step)?;
            handle = self.extent_at(handle, &step.block, step.index)?.block;
            position.path.push(step);
        }
        Ok(())
    }

    /// Finds the last extent of a column index block that begins before the edge, or the first.
    fn search(&self, handle: BlockHandle, block: &Block) -> Result<usize, ReadError> {
        let found = block.partition_point(0..block.len(), |at| {
            let extent = Extent::decode(block.bytes(), at)?;
            Ok(!self.edge_is_before(extent.first_place(block.bytes())))
        });
        Ok(found.map_err(|_| self.table.malformed(handle))?.saturating_sub(1))
    }

    fn extent_at(
        &self,
        handle: BlockHandle,
        block: &Block,
        index: usize,
    ) -> Result<Extent, ReadError> {
        let at = block.entry(index).ok_or(Malformed(0));
        let extent = at.and_then(|at| Extent::decode(block.bytes(), at));
        extent.map_err(|_| self.table.malformed(handle))
    }

    /// The neighbouring extent in the direction of the walk.
    fn step(&self, mut position: Position) -> Result<Option<Position>, ReadError> {
        let neighbour = |at: usize, length: usize| {
            let next = if self.reversed { at.checked_sub(1) } else { Some(at + 1) };
            next.filter(|next| *next < length)
        };
        let root = match &self.cells.extents {
            Extents::ColumnIndex(root) => root,
            Extents::Few(extents) => {
                let next = neighbour(position.inline, extents.len());
                return Ok(next.map(|inline| Position { inline, ..position }));
            }
        };
        // Up to the first block that has a neighbour, and down again along its edge.
        while let Some(mut step) = position.path.pop() {
            if let Some(index) = neighbour(step.index, step.block.len()) {
                step.index = index;
                let next = self.extent_at(step.handle, &step.block, index)?.block;
                position.path.push(step);
                let at_edge = |step: &Step| {
                    Ok(if self.reversed { step.block.len().saturating_sub(1) } else { 0 })
                };
                self.descend(&mut position, next, root.levels, at_edge)?;
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Reads the data block of an extent; at the beginning of the walk also finds the first cell.
    fn open(&self, position: Option<Position>, seek: bool) -> Result<State, ReadError> {
        let Some(position) = position else { return Ok(State::Ended) };
        let extent = match (position.path.last(), &self.cells.extents) {
            (Some(step), _) => self.extent_at(step.handle, &step.block, step.index)?,
            (None, Extents::Few(extents)) if position.inline < extents.len() => {
                extents[position.inline].clone()
            }
            (None, _) => return Ok(State::Ended),
        };
        let block = self.blocks.block(extent.block, BlockKind::Data)?;
        let mut first = extent.first_entry as usize;
        let mut end = match extent.entries {
            WHOLE_BLOCK => block.len(),
            entries => first + entries as usize,
        };
        if end > block.len() {
            return Err(self.table.malformed(extent.block));
        }
        // A walk that begins at an end of the row begins at an end of the extent.
        let at_end = if self.reversed {
            self.range.to == CellBound::Last
        } else {
            self.range.from == CellBound::First
        };
        if seek && !at_end {
            let at = block.partition_point(first..end, |at| {
                let place = Cell::place_at(block.bytes(), at).ok_or(Malformed(at))?;
                Ok(!self.edge_is_before(place))
            });
            let at = at.map_err(|_| self.table.malformed(extent.block))?;
            if self.reversed {
                end = at;
            } else {
                first = at;
            }
        }
        Ok(State::Open(Run { position, handle: extent.block, block, first, end }))
    }
}
