//! The note that this node has been given what no node of 0.6 can have: row keys that are not text,
//! values that expire, deletions of ranges and of collections. It stays, since nobody says when all
//! of them are gone.

use super::{KEYSPACE, ROW, location_info, read_row};
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::storage::database::Database;
use crate::storage::error::ReadError;

const LATER_DATA: &[u8] = b"LaterData";

/// The note.
pub fn note(storage: &Database) -> RowMutation {
    let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, ROW.as_bytes());
    row.family(location_info(storage)).insert((b"", LATER_DATA), b"", storage.now_millis());
    row.finish()
}

/// Whether it was made.
pub fn is_noted(storage: &Database) -> Result<bool, ReadError> {
    Ok(read_row(storage, ROW)?.cells.iter().any(|cell| cell.name() == LATER_DATA))
}
