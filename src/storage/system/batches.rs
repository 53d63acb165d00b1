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
/// gone. None if one of the others has forgotten the deletions of that time: no part of a batch is
/// written without the rest.
pub fn writes_of(
    cells: &[Cell],
    schema: &Schema,
    now_micros: i64,
) -> Result<Vec<RowMutation>, DecodeError> {
    let decode = |cell: &Cell| RowMutation::decode_except(cell.value(), schema, |_, _| true);
    let mut writes = cells.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    let written = cells.iter().map(Cell::timestamp).min().unwrap_or(now_micros);
    let age = now_micros.saturating_sub(written) / 1_000_000;
    writes.retain(|write| !write.families.is_empty());
    let families = writes.iter().flat_map(|write| &write.families);
    let grace = families.map(|it| schema.family(it.family).gc_grace.as_secs()).min();
    if grace.is_some_and(|grace| age >= i64::try_from(grace).unwrap_or(i64::MAX)) {
        writes.clear();
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use std::sync::Arc;
    use std::time::Duration;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_batch_is_replayed_or_dropped_as_a_whole_by_the_least_grace_of_its_tables() {
        let family = |name: &str, seconds| {
            let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
            let family = ColumnFamilySchema::new("k".into(), name.into(), kind);
            Arc::new(ColumnFamilySchema { gc_grace: Duration::from_secs(seconds), ..family })
        };
        let schema = Schema::new([family("long", 1000), family("short", 60)]);
        let write = |number: u32, name: &str| {
            let mut row = MutationBuilder::new(&schema, "k", b"key");
            row.family(schema.family_id("k", name).unwrap()).insert((b"", b"c"), b"v", 1);
            Cell::live(b"", &number.to_be_bytes(), row.finish().record(), 5 * SECOND)
        };
        let count = |cells: &[Cell], seconds: i64| {
            writes_of(cells, &schema, seconds * SECOND).unwrap().len()
        };
        let both = [write(0, "long"), write(1, "short")];
        assert_eq!([6, 64, 65, 2000].map(|at| count(&both, at)), [2, 2, 0, 0]);
        assert_eq!([65, 1004, 1005].map(|at| count(&both[..1], at)), [1, 1, 0]);
    }
}
