//! What the compaction thread does: merges SSTables, and removes those that were replaced.

use super::super::background::{Next, Work};
use super::super::compaction::{self, CompactionError};
use super::Shared;
use crate::base::events::{CompactionEvent, CompactionKind};
use crate::model::schema::FamilyId;
use std::time::Duration;

/// How often it looks whether somebody has let go of a replaced SSTable.
const IDLE: Duration = Duration::from_secs(1);

impl Shared {
    pub(super) fn run_compactions(&self) {
        loop {
            match self.compactions.next(IDLE) {
                Next::Closed => return,
                Next::Work(Work::Compact(family)) => self.guarded(family, "compaction", || {
                    self.compact_minor(family);
                }),
                Next::Idle | Next::Work(_) => {}
            }
            self.stores.iter().for_each(|store| store.remove_replaced());
        }
    }

    fn compact_minor(&self, family_id: FamilyId) {
        let store = self.store(family_id);
        let _one_at_a_time = store.compaction_lock();
        let Some(inputs) = compaction::next_minor(&store.view().tables, store.options()) else {
            return;
        };
        match compaction::compact(store, &inputs, CompactionKind::Minor, &self.stopping) {
            Ok(()) => self.compactions.push(Work::Compact(family_id)),
            Err(CompactionError::Stopped) => {}
            Err(CompactionError::Failed(error)) => {
                let (family, reason) = (store.event_family(), error.to_string());
                self.environment.events.emit(CompactionEvent::Failed { family, reason });
                if inputs.iter().any(|table| table.is_damaged()) {
                    // The others may still be enough for a compaction.
                    self.compactions.push(Work::Compact(family_id));
                }
            }
        }
    }
}
