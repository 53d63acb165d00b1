//! Hints that the original has left in the column family `HintsColumnFamily`, as hints of ours.
//!
//! A hint of the original has no data. It names a row that the node has, and who is to get it:
//!
//! ```text
//! row            keyspace
//! super column   key of the row
//! column         the target: its address in 4 or 16 bytes; in 0.4 as a text
//! ```
//!
//! The rows as they are now become hints, a few at a time, and are durable before the hints of the
//! original are deleted.

use super::HintStore;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::MutationBuilder;
use crate::model::position::RowPosition;
use crate::model::schema::FamilyId;
use crate::ring::RowRange;
use crate::storage::Database;
use crate::storage::database::WriteError;
use crate::storage::system::KEYSPACE;
use std::collections::BTreeSet;
use std::error::Error;
use std::net::IpAddr;
use std::ops::Bound;

/// The column family of the keyspace `system` in which the original keeps hints.
pub const FAMILY: &str = "HintsColumnFamily";

/// Bytes of hints of the original that are read at a time.
const PAGE_BYTES: usize = 64 << 10;

/// Bytes of a row that become one hint.
const HINT_BYTES: usize = 1 << 20;

/// Why hints of the original stay as they are.
type ConvertError = Box<dyn Error>;

/// Whether the original may have left hints.
pub fn has_original_hints(storage: &Database) -> bool {
    let id = storage.schema().family_id(KEYSPACE, FAMILY);
    id.is_some_and(|id| !storage.family(id).view().tables.is_empty())
}

/// Makes hints of ours of those that the original has left, but for those for the node itself.
/// Returns the number of rows.
pub fn convert(
    storage: &Database,
    hints: &HintStore,
    local: IpAddr,
) -> Result<usize, ConvertError> {
    let Some(family) = storage.schema().family_id(KEYSPACE, FAMILY) else { return Ok(0) };
    let all = RowRange { start: Bound::Unbounded, end: Bound::Unbounded };
    let (mut after, mut rows) = (None, 0);
    loop {
        let page = storage.family(family).read_piece(&all, after.as_ref(), PAGE_BYTES)?;
        for (keyspace, version) in &page.rows {
            let name = String::from_utf8_lossy(keyspace.as_bytes());
            let families = storage.schema().families();
            let families: Vec<_> =
                families.filter(|(_, it)| it.keyspace == name).map(|(id, _)| id).collect();
            let mut done = Vec::new();
            let by_row = version.cells.chunk_by(|a, b| a.super_name() == b.super_name());
            for hint in by_row.filter(|hint| hint.iter().any(Cell::is_live)) {
                let targets = hint.iter().filter(|cell| cell.is_live()).filter_map(target);
                let targets: BTreeSet<IpAddr> = targets.filter(|it| *it != local).collect();
                let row = (&*name, RowKey::new(hint[0].super_name()));
                for id in &families {
                    keep(storage, hints, (*id, &row), &targets)?;
                }
                rows += 1;
                done.extend(hint.iter().filter(|cell| cell.is_live()));
            }
            hints.sync()?;
            delete(storage, (family, keyspace), &done)?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

/// The target that a column names.
fn target(cell: &Cell) -> Option<IpAddr> {
    let name = cell.name();
    let raw = <[u8; 4]>::try_from(name).map(IpAddr::from);
    let raw = raw.or_else(|_| <[u8; 16]>::try_from(name).map(IpAddr::from));
    raw.ok().or_else(|| str::from_utf8(name).ok()?.trim_start_matches('/').parse().ok())
}

/// Keeps what the node has of a row for each target.
fn keep(
    storage: &Database,
    hints: &HintStore,
    (id, (keyspace, key)): (FamilyId, &(&str, RowKey)),
    targets: &BTreeSet<IpAddr>,
) -> Result<(), ConvertError> {
    let sought = [storage.partitioner().decorate(key.clone())];
    let mut after: Option<RowPosition> = None;
    loop {
        let page = storage.family(id).read_rows_piece(&sought, after.as_ref(), HINT_BYTES)?;
        for (_, version) in &page.rows {
            let mut row = MutationBuilder::new(storage.schema(), keyspace, key.as_bytes());
            row.family(id);
            if !version.deletion.is_none() {
                row.delete_row(version.deletion);
            }
            for cell in &version.cells {
                row.cell(cell);
            }
            let mutation = row.finish();
            for target in targets {
                hints.store(*target, &mutation)?;
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Deletes hints of the original.
fn delete(
    storage: &Database,
    (family, keyspace): (FamilyId, &RowKey),
    columns: &[&Cell],
) -> Result<(), WriteError> {
    if columns.is_empty() {
        return Ok(());
    }
    let millis = storage.now_millis();
    let secs = i32::try_from(millis / 1000).unwrap_or(i32::MAX);
    let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, keyspace.as_bytes());
    row.family(family);
    for cell in columns {
        row.delete_column(cell.place(), Deletion::at(millis.max(cell.timestamp()), secs));
    }
    storage.apply_own(&row.finish()).map(drop)
}
