//! A column family that is added to a running node, written, and dropped again: it always holds
//! what was written since it was added last, also after kills and losses of power.

use alexandra::base::context::RequestContext;
use alexandra::model::comparator::Comparator;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use alexandra::model::slice::Slice;
use alexandra::ring::RowRange;
use alexandra::storage::sstable::Access;
use alexandra::storage::{Database, FamilyOptions};
use std::collections::BTreeSet;

/// A keyspace that each node keeps for itself.
pub(crate) const KEYSPACE: &str = "Local";
const NAME: &str = "Later";

/// Rows that are written when the family is looked at.
const ROWS: u8 = 3;

/// The definition that the operator has noted, with the rows that were acknowledged.
#[derive(Debug, Default)]
pub(crate) struct LocalFamily {
    rows: Option<BTreeSet<Vec<u8>>>,
    written: u8,
}

impl LocalFamily {
    /// The family as the configuration has it.
    pub(crate) fn definition(&self) -> Option<ColumnFamilySchema> {
        self.rows.as_ref().map(|_| definition())
    }

    /// Checks what the family holds, then writes to it or drops it; adds it if there is none.
    pub(crate) fn change(&mut self, storage: &Database, drops: bool, options: FamilyOptions) {
        self.check(storage);
        match &mut self.rows {
            None => {
                storage.add_family(definition(), options).expect("there is none of this name");
                self.rows = Some(BTreeSet::new());
            }
            Some(_) if drops => {
                let id = storage.schema().family_id(KEYSPACE, NAME).expect("it was added");
                storage.drop_family(id).expect("the disk is sound");
                self.rows = None;
            }
            Some(rows) => {
                let id = storage.schema().family_id(KEYSPACE, NAME).expect("it was added");
                for _ in 0..ROWS {
                    self.written = self.written.wrapping_add(1);
                    let key = [b'k', self.written];
                    let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, &key);
                    row.family(id).insert((b"", b"name"), b"value", 1);
                    storage.apply(&row.finish(), true).expect("the disk is sound");
                    rows.insert(key.to_vec());
                }
                storage.sync().expect("the disk is sound");
                if self.written.is_multiple_of(2) {
                    storage.flush(id).expect("the disk is sound");
                }
            }
        }
    }

    /// Checks that the family holds what was acknowledged, and nothing from before it was dropped.
    pub(crate) fn check(&self, storage: &Database) {
        let id = storage.schema().family_id(KEYSPACE, NAME);
        assert_eq!(id.is_some(), self.rows.is_some(), "the family exists while it is defined");
        let (Some(id), Some(expected)) = (id, &self.rows) else { return };
        let (all, range) = (Slice::all(None), RowRange::all());
        let rows = storage.family(id).scan(
            &range,
            &all,
            usize::MAX,
            &RequestContext::default(),
            Access::Cached,
        );
        let rows = rows.expect("the disk is sound");
        let bytes = |key: &RowKey| key.as_bytes().to_vec();
        let found: BTreeSet<Vec<u8>> = rows.iter().map(|(key, _)| bytes(key)).collect();
        assert_eq!(found, *expected, "rows of a family that was added at run time");
    }
}

fn definition() -> ColumnFamilySchema {
    let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
    ColumnFamilySchema::new(KEYSPACE.to_owned(), NAME.to_owned(), kind)
}
