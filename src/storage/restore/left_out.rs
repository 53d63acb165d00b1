//! What a restore leaves out because an earlier one has left it behind. Who asks for a later time
//! than last time, or has forgotten the archive, has to hear of it.

use super::check::{ArchivePlan, Plan};
use super::{LeftOut, Request, RestoreError, Setup};
use crate::model::mutation::RowMutation;
use crate::model::schema::FamilyId;
use crate::storage::commitlog::Position;
use crate::storage::commitlog::archive::records_between;
use crate::storage::error::FileContext;
use std::collections::{BTreeMap, BTreeSet};

/// A part that some column families leave out: its two ends, and when the restore happened that
/// left it behind.
type Part = (Position, Position, u64);

/// Looks into the archive for what the plan leaves out though it was written in time.
pub(super) fn find(
    setup: &Setup,
    request: &Request,
    plan: &Plan,
    archived: &ArchivePlan,
) -> Result<Vec<LeftOut>, RestoreError> {
    let archive = &archived.archive;
    let mut found = Vec::new();
    for ((start, end, restored_millis), families) in parts(plan, archived) {
        let mut left = LeftOut { restored_millis, ..LeftOut::default() };
        let mut is_too_late = false;
        let mut look = |millis: Option<u64>, record: &[u8]| {
            is_too_late |= millis > request.until_millis && request.until_millis.is_some();
            let Ok(mutation) = RowMutation::decode(record, &setup.schema) else { return };
            let numbers = mutation.families.iter().map(|it| it.family);
            let concerned: Vec<_> = numbers.filter(|it| families.contains(it)).collect();
            if is_too_late || concerned.is_empty() {
                return;
            }
            let names = concerned.into_iter().map(|id| setup.schema.family(id).keyspace.clone());
            left.keyspaces.extend(names);
            left.mutations += 1;
            left.first_millis = left.first_millis.or(millis);
            left.last_millis = millis.or(left.last_millis);
        };
        records_between(&*setup.components.fs, archive, (start, end), &mut look)
            .context("read", archive)?;
        if left.mutations > 0 {
            found.push(left);
        }
    }
    Ok(found)
}

/// The parts that are left out, each with the column families that do.
fn parts(plan: &Plan, archived: &ArchivePlan) -> BTreeMap<Part, BTreeSet<FamilyId>> {
    let ArchivePlan { history, timelines, .. } = archived;
    let mut parts: BTreeMap<Part, BTreeSet<FamilyId>> = BTreeMap::new();
    for family in &plan.families {
        for (start, end) in timelines.get(&family.id).into_iter().flat_map(|it| it.gaps()) {
            let restored = history.restored.iter().rev().find(|it| {
                it.from == end && it.keyspace == family.keyspace && it.family == family.name
            });
            let millis = restored.map_or(0, |restored| restored.millis);
            parts.entry((start, end, millis)).or_default().insert(family.id);
        }
    }
    parts
}
