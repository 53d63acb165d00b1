//! What a storage tells of its rows to who compares replicas.

use super::*;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::ring::DecoratedKey;
use crate::storage::compaction::{GcSpan, RowSink};
use crate::storage::store::{Merge, MergeNotes};
use std::collections::BTreeSet;

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Kept {
    open: RowVersion,
    rows: Vec<(String, RowVersion)>,
    most: usize,
    span: GcSpan,
}

impl RowSink for Kept {
    type Error = CompactionError;

    fn begin(&mut self, deletion: Deletion) -> Result<(), CompactionError> {
        self.open = RowVersion { deletion, cells: Vec::new() };
        Ok(())
    }

    fn push(&mut self, cell: &Cell) -> Result<(), CompactionError> {
        self.open.cells.push(cell.clone());
        Ok(())
    }

    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool, CompactionError> {
        self.span.join(span);
        self.rows.push((key.key().to_string(), std::mem::take(&mut self.open)));
        Ok(self.rows.len() < self.most)
    }
}

impl Kept {
    fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// The rows with the names of their cells, a minus before those that are deleted.
    fn names(&self) -> Vec<String> {
        let name = |cell: &Cell| {
            let sign = if cell.deletion().is_some() { "-" } else { "" };
            format!("{sign}{}", cell.name().escape_ascii())
        };
        let row = |(key, row): &(String, RowVersion)| {
            let cells: Vec<_> = row.cells.iter().map(name).collect();
            format!("{key}: {}", cells.join(" "))
        };
        self.rows.iter().map(row).collect()
    }
}

/// Deletes a column by this timestamp, in this second.
fn delete(storage: &Storage, key: &str, name: &str, timestamp: i64, second: i32) {
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    let deletion = Deletion::at(timestamp, second);
    mutation.family(FAMILY).delete_column((b"", name.as_bytes()), deletion);
    storage.apply(&mutation.finish(), true).unwrap();
}

fn range(start: &str, end: &str) -> RowRange {
    let token = |text: &str| Partitioner::OrderPreserving.token(text.as_bytes());
    RowRange { start: Bound::Excluded(token(start)), end: Bound::Included(token(end)) }
}

fn validate(storage: &Storage, ranges: &[RowRange], gc_before: i32) -> (Vec<String>, GcSpan) {
    let (mut kept, set) = (Kept::new(0), storage.validation_set(FAMILY).unwrap());
    let validated = storage.validate(&set, ranges, gc_before, &mut kept).unwrap();
    assert!(validated.rows == kept.rows.len() as u64 && validated.bytes > 0);
    (kept.names(), kept.span)
}

#[test]
fn rows_are_told_as_a_major_compaction_would_leave_them() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    for key in ["a", "b", "c", "d"] {
        insert(&storage, key, "x", 1);
        insert(&storage, key, "y", 1);
    }
    storage.flush(FAMILY).unwrap();
    delete(&storage, "b", "x", 2, 50);
    delete(&storage, "c", "y", 2, 150);
    let all = [RowRange::all()];
    let (rows, span) = validate(&storage, &all, 100);
    assert_eq!(rows, ["a: x y", "b: y", "c: x -y", "d: x y"]);
    assert_eq!((span.latest_dropped, span.earliest_kept), (50, 150));
    assert!(span.contains(50) && span.contains(149));
    assert!(!span.contains(49) && !span.contains(150));
    assert!(![i32::MIN, 0, i32::MAX].iter().any(|time| GcSpan::NONE.contains(*time)));
    assert_eq!(validate(&storage, &all, 49).0[1], "b: -x y");
    assert_eq!(validate(&storage, &all, 150).0[2], "c: x");
    // Nothing was written for it, and nothing is running.
    assert_eq!(storage.store(FAMILY).view().tables.len(), 2);
    assert!(storage.compactions().is_empty());
}

#[test]
fn only_the_rows_of_the_ranges_are_told() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        insert(&storage, key, "x", 1);
    }
    let (rows, _) = validate(&storage, &[range("a", "b"), range("c", "d")], 100);
    assert_eq!(rows, ["b: x", "d: x"]);
}

#[test]
fn a_set_has_what_was_written_before_and_is_known_by_its_sstables() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    insert(&storage, "a", "x", 1);
    let first = storage.validation_set(FAMILY).unwrap();
    assert_eq!(first.rows(), 1);
    let again = storage.validation_set(FAMILY).unwrap();
    assert_eq!(first.identities(), again.identities());
    insert(&storage, "b", "x", 1);
    let second = storage.validation_set(FAMILY).unwrap();
    assert_ne!(first.identities(), second.identities());
    // What is compacted meanwhile can still be read.
    storage.compact(FAMILY).unwrap();
    let mut kept = Kept::new(0);
    storage.validate(&second, &[RowRange::all()], 100, &mut kept).unwrap();
    assert_eq!(kept.names(), ["a: x", "b: x"]);
}

#[test]
fn rows_in_memory_are_visited_until_no_more_are_wanted() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    insert(&storage, "a", "x", 1);
    storage.flush(FAMILY).unwrap();
    for key in ["b", "c", "d"] {
        insert(&storage, key, "x", 1);
    }
    let visit = |after: Option<&str>, most| {
        let (mut kept, after) = (Kept::new(most), after.map(RowKey::from));
        let within = range("", "c");
        let done = storage.visit_rows(FAMILY, &within, after.as_ref(), 100, &mut kept).unwrap();
        (kept.names(), done)
    };
    assert_eq!(visit(None, 2), (vec!["a: x".to_owned(), "b: x".to_owned()], false));
    assert_eq!(visit(Some("b"), 2), (vec!["c: x".to_owned()], true));
}

#[test]
fn keys_of_some_sstables_are_told() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    for keys in [["a", "c"], ["b", "c"], ["d", "e"]] {
        for key in keys {
            insert(&storage, key, "x", 1);
        }
        storage.flush(FAMILY).unwrap();
    }
    let set = storage.validation_set(FAMILY).unwrap();
    let last = set.identities().into_keys().next_back().unwrap();
    let keys = |is_meant: &dyn Fn(u64) -> bool, ranges: &[RowRange]| {
        let mut keys = String::new();
        let visit = |key: &DecoratedKey| keys.push_str(&key.key().to_string());
        storage.visit_keys(&set, is_meant, ranges, visit).unwrap();
        keys
    };
    assert_eq!(keys(&|it| it != last, &[RowRange::all()]), "abc");
    assert_eq!(keys(&|it| it == last, &[RowRange::all()]), "de");
    assert_eq!(keys(&|_| true, &[range("a", "b"), range("c", "d")]), "bd");
    assert_eq!((set.rows(), set.rows_of(|it| it == last)), (6, 2));
}

#[test]
fn merges_are_told_with_the_latest_deletion_that_they_dropped() {
    let setup = Setup::default();
    let storage = setup.open(&SimFileSystem::new(1)).unwrap();
    let merges = |storage: &Storage| storage.validation_set(FAMILY).unwrap().merges().to_vec();
    insert(&storage, "a", "x", 1);
    storage.flush(FAMILY).unwrap();
    let before = storage.validation_set(FAMILY).unwrap().identities();
    insert(&storage, "b", "x", 1);
    assert_eq!(merges(&storage), [], "what is added is not merged");
    storage.compact(FAMILY).unwrap();
    let after = storage.validation_set(FAMILY).unwrap().identities();
    let told = merges(&storage);
    let [merge] = &told[..] else { panic!("{told:?}") };
    let Merge { old, new, notes } = &**merge;
    assert_eq!(*notes, MergeNotes::default());
    assert_eq!(old.len(), 2);
    assert!(before.keys().all(|table| old.contains(table)));
    assert_eq!(new.iter().copied().collect::<BTreeSet<_>>(), after.keys().copied().collect());
    // Both are of age.
    delete(&storage, "a", "x", 2, GC_BEFORE);
    delete(&storage, "b", "x", 2, GC_BEFORE - 2);
    delete(&storage, "c", "x", 2, GC_BEFORE + 1);
    storage.flush(FAMILY).unwrap();
    storage.compact(FAMILY).unwrap();
    let notes = merges(&storage)[1].notes.clone();
    assert_eq!((notes.latest_dropped, notes.keys.len()), (Some(GC_BEFORE), 0));
    // Whoever wants to know hears which rows were in which SSTable, also of those that are gone.
    storage.store(FAMILY).want_merged_keys();
    for key in ["b", "c", "d"] {
        delete(&storage, key, "x", 3, GC_BEFORE);
    }
    storage.flush(FAMILY).unwrap();
    storage.compact(FAMILY).unwrap();
    let Merge { old, notes, .. } = &*merges(&storage)[2];
    let token = |key: &&str| Partitioner::OrderPreserving.token(key.as_bytes());
    let tokens = |keys: &[&str]| keys.iter().map(token).collect::<Vec<_>>();
    assert_eq!(notes.keys[old.iter().max().unwrap()], tokens(&["b", "c", "d"]));
    assert_eq!(notes.keys[old.iter().min().unwrap()], tokens(&["c"]));
}
