//! Logged batches, each a row of the column family `Batches`.
//!
//! ```text
//! row                     id of the batch
//! u32 number of a write   the write, as the commit log has it; its timestamp is the time at which
//!                         the batch was written, in microseconds
//! ```

use super::KEYSPACE;
pub use crate::config::settings::BATCHES;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::{DecodeError, MutationBuilder, RowMutation};
use crate::model::schema::{FamilyId, Schema};

/// The column family of batches.
pub fn family(schema: &Schema) -> FamilyId {
    schema.family_id(KEYSPACE, BATCHES).expect("every schema has the system keyspace")
}

/// The row of a batch of these writes.
pub fn row_of(schema: &Schema, id: &str, writes: &[RowMutation], micros: i64) -> RowMutation {
    let mut row = MutationBuilder::new(schema, KEYSPACE, id.as_bytes());
    row.family(family(schema));
    for (number, write) in (0_u32..).zip(writes) {
        row.insert((b"", &number.to_be_bytes()), write.record(), micros);
    }
    row.finish()
}

/// The deletion of the row of a batch. No id is used twice, so it may cover all times.
pub fn deletion_of(schema: &Schema, id: &RowKey, now_micros: i64) -> RowMutation {
    let mut row = MutationBuilder::new(schema, KEYSPACE, id.as_bytes());
    let deletion = Deletion::at(i64::MAX, (now_micros / 1_000_000) as i32);
    row.family(family(schema)).delete_row(deletion);
    row.finish()
}

/// The writes that these cells of a batch are, without their parts for column families that are
/// gone, and for those that have forgotten the deletions of that time.
pub fn writes_of(
    cells: &[Cell],
    schema: &Schema,
    now_micros: i64,
) -> Result<Vec<RowMutation>, DecodeError> {
    let decode = |cell: &Cell| RowMutation::decode_except(cell.value(), schema, |_, _| true);
    let mut writes = cells.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    let written = cells.iter().map(Cell::timestamp).min().unwrap_or(now_micros);
    let age = now_micros.saturating_sub(written) / 1_000_000;
    let remembers = |family: FamilyId| {
        let grace = schema.family(family).gc_grace.as_secs();
        age < i64::try_from(grace).unwrap_or(i64::MAX)
    };
    writes.retain(|write| {
        !write.families.is_empty() && write.families.iter().all(|it| remembers(it.family))
    });
    Ok(writes)
}
