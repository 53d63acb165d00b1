//! The mutations of one or several changes. Changes of one row key become one mutation, which is
//! atomic.

use super::error::CqlError;
use super::modify::{ModificationPlan, Stamp, Targets};
use super::rows::{Partition, Row, drop_hidden};
use super::terms::Values;
use super::windows::{MostlyOne, RowSet, slice_of_rows};
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::mutation::{FamilyMutation, MutationBuilder, RowMutation};
use crate::model::schema::{FamilyId, Schema};
use crate::service::{ConsistencyLevel, RowQuery, Service};
use std::collections::BTreeSet;

/// A change with the values of its markers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'i> {
    pub(super) plan: &'i ModificationPlan,
    pub(super) values: Values<'i>,
}

/// A change of one row key.
struct Part<'t, 'i, 'v> {
    item: &'t Item<'i>,
    /// Keyspace and key.
    row: (&'t str, &'t RowKey),
    family: FamilyId,
    /// Cells of the row that the change depends on.
    read: Vec<Cell>,
    targets: &'t Targets<'v>,
}

/// The mutations of these changes.
pub(super) async fn mutations(
    service: &Service,
    items: &[Item<'_>],
    stamp: Stamp<'_>,
    level: ConsistencyLevel,
) -> Result<MostlyOne<RowMutation>, CqlError> {
    let targets: MostlyOne<Targets<'_>> =
        items.iter().map(|item| item.plan.targets(&item.values)).collect::<Result<_, _>>()?;
    let mut parts: MostlyOne<Part<'_, '_, '_>> = MostlyOne::new();
    for (item, targets) in items.iter().zip(&targets) {
        let Some((family, _)) = item.plan.table.stored() else { continue };
        for key in &targets.keys {
            let read = if item.plan.reads() {
                Box::pin(read_row(service, item.plan, (key, &targets.rows), level)).await?
            } else {
                Vec::new()
            };
            let row = (&*item.plan.table.keyspace, key);
            parts.push(Part { item, row, family, read, targets });
        }
    }
    // Changes of one family keep the order of the statements.
    parts.sort_by(|a, b| (a.row, a.family).cmp(&(b.row, b.family)));
    let rows = parts.chunk_by(|a, b| a.row == b.row);
    rows.filter_map(|parts| mutation(service, stamp, parts).transpose()).collect()
}

/// The mutation of a row key, whose parts stand in the order of their families; `None` if nothing
/// changes.
fn mutation(
    service: &Service,
    stamp: Stamp<'_>,
    parts: &[Part<'_, '_, '_>],
) -> Result<Option<RowMutation>, CqlError> {
    let Some(Part { row: (keyspace, key), .. }) = parts.first() else { return Ok(None) };
    let mut builder = MutationBuilder::new(service.schema(), keyspace, key.as_bytes());
    let mut family = None;
    for part in parts {
        if family.replace(part.family) != Some(part.family) {
            builder.family(part.family);
        }
        let Item { plan, values } = *part.item;
        let own = plan.timestamp(&values)?;
        let stamp = Stamp { timestamp: own.unwrap_or(stamp.timestamp), ..stamp };
        let row = plan.reads().then(|| present_row(plan, key, &part.read)).flatten();
        plan.apply(&mut builder, part.targets, (&values, stamp), row.as_ref())?;
    }
    if builder.is_empty() {
        return Ok(None);
    }
    checked(builder.finish(), service.schema()).map(Some)
}

/// Refuses what the column families cannot hold: it must not get into a log.
pub(super) fn checked(mutation: RowMutation, schema: &Schema) -> Result<RowMutation, CqlError> {
    let can_hold = |part: &FamilyMutation| {
        let family = schema.family(part.family);
        part.cells.iter().all(|cell| family.can_hold(cell.state(), cell.place()))
    };
    if mutation.families.iter().all(can_hold) {
        return Ok(mutation);
    }
    Err(CqlError::invalid("Invalid empty value for a clustering column"))
}

/// A warning if there are tables whose logged batches are not replayed.
pub(super) fn warning(items: &[Item<'_>]) -> Option<String> {
    let tables =
        items.iter().filter_map(|Item { plan: ModificationPlan { table, .. }, .. }| {
            let (_, family) = table.stored()?;
            family.gc_grace.is_zero().then(|| format!("{}.{}", table.keyspace, table.name))
        });
    let tables: Vec<String> = tables.collect::<BTreeSet<_>>().into_iter().collect();
    (!tables.is_empty()).then(|| {
        format!(
            "Logged batch with tables whose gc_grace_seconds is 0: {}. If its coordinator fails \
             all of the batch may be lost",
            tables.join(", ")
        )
    })
}

/// The row of cells that were read.
fn present_row<'r>(
    plan: &'r ModificationPlan,
    key: &'r RowKey,
    cells: &'r [Cell],
) -> Option<Row<'r>> {
    let (_, family) = plan.table.stored()?;
    let (statics, cells) = cells.split_at(super::select::count_statics(&plan.table.table, cells));
    let partition = Partition { table: &plan.table.table, family, key, statics, cells };
    Some(partition.row(0..cells.len()))
}

async fn read_row(
    service: &Service,
    plan: &ModificationPlan,
    (key, rows): (&RowKey, &RowSet<'_>),
    level: ConsistencyLevel,
) -> Result<Vec<Cell>, CqlError> {
    let Some((id, family)) = plan.table.stored() else { return Ok(Vec::new()) };
    let table = &plan.table.table;
    let places = rows.places(table);
    if places.len() > 1 {
        return Err(CqlError::invalid(
            "An element of a list can be changed by its place or value in one row at a time",
        ));
    }
    let has_row = rows.row(table).is_some();
    let named = if has_row { &places[..] } else { &[] };
    let slice = slice_of_rows((table, family), named, !table.statics().is_empty());
    let mut request = service.request();
    let query = RowQuery { family: id, key, slice: &slice };
    let read = service.read(query, level, &mut request);
    let mut cells = service.in_time(read).await?.cells;
    drop_hidden(table, &mut cells);
    Ok(cells.into_vec())
}
