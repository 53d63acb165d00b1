//! A place among the rows of a column family, for who reads them piece by piece.

use super::key::RowKey;

/// Behind what a reader goes on: a row, or a column in the middle of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPosition {
    /// The row.
    pub key: RowKey,
    /// The names of the super column, empty in a standard column family, and of the column of that
    /// row behind which it goes on; none if the row is done.
    pub cell: Option<(Vec<u8>, Vec<u8>)>,
}
