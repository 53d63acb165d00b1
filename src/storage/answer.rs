//! The memory that the answer to one request takes, however many reads it needs.

use crate::base::context::{RequestContext, TooLarge};
use crate::model::cell::Cell;
use crate::model::key::RowKey;

/// What a cell of an answer takes besides its names and value, about, in memory and in the message.
const CELL_OVERHEAD: usize = 64;

/// What a row takes besides its key and cells, about, also if nothing of it is visible.
const ROW_OVERHEAD: usize = 128;

/// What cells of an answer take, in bytes.
pub fn cells_cost(cells: usize, encoded: usize) -> usize {
    encoded + cells * CELL_OVERHEAD
}

/// What a row takes before its cells, in bytes.
pub fn row_cost(key: &[u8]) -> usize {
    key.len() + ROW_OVERHEAD
}

/// Takes memory for the key of a row that was not read here.
pub fn take_key(context: &RequestContext, key: &RowKey) -> Result<(), TooLarge> {
    context.take(row_cost(key.as_bytes()))
}

/// Takes memory for a row that was not read here.
pub fn take_row(context: &RequestContext, key: &RowKey, cells: &[Cell]) -> Result<(), TooLarge> {
    let encoded = cells.iter().map(Cell::encoded_length).sum();
    context.take(row_cost(key.as_bytes()) + cells_cost(cells.len(), encoded))
}
