//! Reports of a storage on its rows to a node that compares replicas.

use super::*;
use crate::model::deletion::Deletion;
use crate::storage::family::{Merge, MergeNotes};
use std::collections::BTreeSet;

/// Deletes a column by this timestamp, in this second.
fn delete(storage: &Database, key: &str, name: &str, timestamp: i64, second: i32) {
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    let deletion = Deletion::at(timestamp, second);
    mutation.family(FAMILY).delete_column((b"", name.as_bytes()), deletion);
    storage.apply(&mutation.finish(), true).unwrap();
}

#[test]
fn merges_are_told_with_the_latest_deletion_that_they_dropped() {
    let setup = setup();
    let storage = setup.open(&SimFileSystem::new(1)).unwrap();
    let merges = |storage: &Database| storage.validation_set(FAMILY).unwrap().now.merges.clone();
    insert(&storage, "a", "x", 1);
    storage.flush(FAMILY).unwrap();
    let before = storage.validation_set(FAMILY).unwrap().now.identities();
    insert(&storage, "b", "x", 1);
    assert_eq!(merges(&storage), [], "what is added is not merged");
    storage.compact(FAMILY).unwrap();
    let after = storage.validation_set(FAMILY).unwrap().now.identities();
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
    storage.family(FAMILY).want_merged_keys();
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
