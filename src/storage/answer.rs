//! The memory that the answer to one request takes, however many reads it needs.

use crate::base::context::{RequestContext, TooLarge};
use crate::model::cell::Cell;
use crate::model::key::RowKey;

/// Approximate memory of a cell of an answer besides its names and value.
const CELL_OVERHEAD: usize = 64;

/// Approximate memory of a row besides its key and cells, also if nothing of it is visible.
const ROW_OVERHEAD: usize = 128;

/// Memory of cells of an answer, in bytes.
pub fn cells_cost(cells: usize, encoded: usize) -> usize {
    encoded + cells * CELL_OVERHEAD
}

/// Memory of a row without its cells, in bytes.
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
