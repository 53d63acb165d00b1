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
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::service::{ConsistencyLevel, RowQuery, Service};
use std::collections::BTreeMap;

/// A change with the values of its markers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'i> {
    pub(super) plan: &'i ModificationPlan,
    pub(super) values: Values<'i>,
}

/// A change of one row key.
struct Part<'i, 'v> {
    item: usize,
    family: FamilyId,
    /// Cells of the row that the change depends on.
    read: Vec<Cell>,
    targets: &'i Targets<'v>,
}

/// The mutations of these changes.
pub(super) async fn mutations(
    service: &Service,
    items: &[Item<'_>],
    stamp: Stamp<'_>,
    level: ConsistencyLevel,
) -> Result<MostlyOne<RowMutation>, CqlError> {
    // Most requests change one row, and need none of the lists and maps below.
    if let ([item], Some((family, _))) = (items, items.first().and_then(Item::stored))
        && !item.plan.reads()
    {
        let targets = item.plan.targets(&item.values)?;
        if let [key] = &targets.keys[..] {
            let part = Part { item: 0, family, read: Vec::new(), targets: &targets };
            let one = mutation(service, items, stamp, (item.keyspace(), key), &[part])?;
            return Ok(one.into_iter().collect());
        }
    }
    let targets: Vec<Targets<'_>> =
        items.iter().map(|item| item.plan.targets(&item.values)).collect::<Result<_, _>>()?;
    // By keyspace and key, in the order of the statements.
    let mut rows: BTreeMap<(&str, &RowKey), Vec<Part<'_, '_>>> = BTreeMap::new();
    for (at, (item, targets)) in items.iter().zip(&targets).enumerate() {
        let Some((family, _)) = item.stored() else { continue };
        for key in &targets.keys {
            let read = if item.plan.reads() {
                Box::pin(read_row(service, item.plan, (key, &targets.rows), level)).await?
            } else {
                Vec::new()
            };
            let part = Part { item: at, family, read, targets };
            rows.entry((item.keyspace(), key)).or_default().push(part);
        }
    }
    let mut mutations = MostlyOne::with_capacity(rows.len());
    for (row, mut parts) in rows {
        parts.sort_by_key(|part| part.family);
        mutations.extend(mutation(service, items, stamp, row, &parts)?);
    }
    Ok(mutations)
}

impl<'i> Item<'i> {
    fn keyspace(&self) -> &'i str {
        &self.plan.table.keyspace
    }

    fn stored(&self) -> Option<(FamilyId, &'i ColumnFamilySchema)> {
        self.plan.table.stored()
    }
}

/// The mutation of a row key, whose parts stand in the order of their families; `None` if nothing
/// changes.
fn mutation(
    service: &Service,
    items: &[Item<'_>],
    stamp: Stamp<'_>,
    (keyspace, key): (&str, &RowKey),
    parts: &[Part<'_, '_>],
) -> Result<Option<RowMutation>, CqlError> {
    let mut builder = MutationBuilder::new(service.schema(), keyspace, key.as_bytes());
    let mut family = None;
    for part in parts {
        if family.replace(part.family) != Some(part.family) {
            builder.family(part.family);
        }
        let Item { plan, values } = items[part.item];
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
