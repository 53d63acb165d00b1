//! A walk over the cells of a row that stand in data blocks.

use crate::base::bytes::Malformed;
use crate::model::cell::Cell;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellBound, CellRange};
use crate::storage::error::ReadError;
use crate::storage::sstable::block::{Block, BlockHandle, BlockKind};
use crate::storage::sstable::blocks::Blocks;
use crate::storage::sstable::entry::{BlockCells, Extent, Extents};
use crate::storage::sstable::reader::SsTable;

/// The cells of a row within a range. Reads only blocks that the range touches.
#[derive(Debug)]
pub(super) struct ExtentCursor<'a> {
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

/// Which extent of the row.
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
    pub(super) fn new(
        family: &'a ColumnFamilySchema,
        (cells, index): (&'a BlockCells, &'a Block),
        range: CellRange<'a>,
        reversed: bool,
        blocks: &'a Blocks<'a>,
    ) -> Self {
        // The row index knows the last place: a slice behind it does not touch the file.
        let nothing = !range.from.is_before(family, cells.last_place(index.bytes()));
        let state = if nothing { State::Ended } else { State::Unopened };
        let table = blocks.table();
        Self { table, family, cells, index, range, reversed, blocks, state }
    }

    /// The next cell. After [`ReadError::WouldBlock`] the read begins anew elsewhere.
    pub(super) fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
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
        match &self.cells.extents {
            Extents::One(_) => Ok(Some(Position::default())),
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
            Extents::One(_) => return Ok(None),
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
            (None, Extents::One(extent)) => extent.clone(),
            (None, Extents::Few(extents)) => match extents.get(position.inline) {
                Some(extent) => extent.clone(),
                None => return Ok(State::Ended),
            },
            (None, _) => return Ok(State::Ended),
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
