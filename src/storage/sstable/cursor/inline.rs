//! A walk over the cells of a small row, which stand in the row's entry.

use crate::base::bytes::Malformed;
use crate::model::cell::Cell;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellBound, CellRange};
use crate::storage::error::ReadError;
use crate::storage::sstable::entry::RowEntry;
use crate::storage::sstable::reader::SsTable;
use std::ops::Range;

/// Super column name and column name.
type Place<'a> = (&'a [u8], &'a [u8]);

/// The cells of a small row within a range. It has few: they are looked at one by one.
#[derive(Debug)]
pub(super) struct InlineCursor<'a> {
    table: &'a SsTable,
    family: &'a ColumnFamilySchema,
    entry: &'a RowEntry,
    range: CellRange<'a>,
    /// Where the cells are that are still to come.
    bytes: Range<usize>,
    /// Whether all of them lie behind the beginning of the range.
    is_within: bool,
    /// For a walk backwards: where each cell begins that is still to come, the last one at the end.
    starts: Option<Vec<usize>>,
}

impl<'a> InlineCursor<'a> {
    #[inline]
    pub(super) fn new(
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

    pub(super) fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
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
        place.ok_or_else(|| self.table.malformed_entry(self.entry, Malformed(at)))
    }

    fn cell_at(&self, at: usize) -> Result<Cell, ReadError> {
        // Of the block all is there that a length could claim; of the row perhaps not.
        let cell = Cell::decode(self.entry.block().bytes(), at);
        let end = self.entry.inline_range().map_or(0, |range| range.end);
        let cell = cell.filter(|cell| cell.encoded_length() <= end - at);
        cell.ok_or_else(|| self.table.malformed_entry(self.entry, Malformed(at)))
    }
}
