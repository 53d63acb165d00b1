//! Walks over the cells of one row of an SSTable, within a range, in either direction.

mod extents;
mod inline;

use super::blocks::Blocks;
use super::entry::RowEntry;
use crate::model::cell::Cell;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::CellRange;
use crate::storage::error::ReadError;
use extents::ExtentCursor;
use inline::InlineCursor;

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
    #[inline]
    pub(super) fn new(
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

    /// The next cell. After [`ReadError::WouldBlock`] the read begins anew elsewhere.
    pub fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        match &mut self.0 {
            Form::Inline(cursor) => cursor.advance(),
            Form::Extents(cursor) => cursor.advance(),
        }
    }
}
