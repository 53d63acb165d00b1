//! Failures of the machine and panics in the background.

mod drops;
mod lost_log;
mod transfer;

use super::*;
use crate::base::context::RequestContext;
use crate::kit::clock::ManualClock;
use crate::kit::disk::{Operation as FileOperation, SimFileSystem};
use crate::kit::storage::Blog;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::MutationBuilder;
use crate::model::position::RowPosition;
use crate::model::slice::Slice;
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::FamilyOptions;
use crate::storage::family::Piece;
use crate::storage::sstable::Access;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

const FAMILIES: [FamilyId; 2] = [FamilyId(0), FamilyId(1)];

fn blog() -> Blog {
    Blog { families: &["Authors", "Editors"], ..Blog::default() }
}

fn open(fs: &SimFileSystem) -> Result<Database, StorageError> {
    blog().open(fs)
}

fn write(storage: &Database, id: FamilyId, key: &str) -> Result<Applied, WriteError> {
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    mutation.family(id).insert((b"", b"name"), b"value", 1);
    storage.apply(&mutation.finish(), true)
}

fn is_written(storage: &Database, id: FamilyId) -> bool {
    let view = storage.family(id).view();
    view.flushing.is_empty() && view.active.is_empty()
}

/// Several writers notice that a memtable is full, and one of them may ask when it is switched.
#[test]
fn who_asks_too_late_for_the_flush_of_a_full_memtable_gets_none() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    write(&storage, FAMILIES[0], "few").unwrap();
    let family = storage.family(FAMILIES[0]);
    for cause in [FlushCause::Operations, FlushCause::Throughput] {
        storage.flush_for(family, cause).unwrap();
        assert!(!is_written(&storage, FAMILIES[0]), "{cause:?}");
    }
    storage.flush_for(family, FlushCause::Memory).unwrap();
    assert!(is_written(&storage, FAMILIES[0]));
}

#[test]
fn a_start_that_gets_too_few_threads_leaves_nothing_behind() {
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    let fs = SimFileSystem::new(1);
    for threads in 0..4 {
        LEFT.store(threads, Ordering::Relaxed);
        let blog = Blog { spawner: Spawner::AtMost(&LEFT), ..blog() };
        let refused = blog.open(&fs).unwrap_err();
        assert!(matches!(refused, StorageError::Thread(_)), "{refused}");
        assert_eq!(LEFT.load(Ordering::Relaxed), 0);
        drop(open(&fs).expect("the locks are free"));
    }
}

/// On a busy machine a thread may get to run long after it was started.
#[test]
fn what_was_due_before_the_housekeeper_came_is_done() {
    let blog = blog();
    let storage = blog.open(&SimFileSystem::new(1)).unwrap();
    write(&storage, FAMILIES[0], "ada").unwrap();
    storage.flush(FAMILIES[0]).unwrap();
    let mut deletion = MutationBuilder::new(storage.schema(), "Blog", b"ada");
    deletion.family(FAMILIES[0]).delete_row(Deletion::at(2, 0));
    storage.apply(&deletion.finish(), true).unwrap();
    storage.flush(FAMILIES[0]).unwrap();
    // No look at the family is requested any more.
    storage.compactions.take_due(&mut 0, Duration::ZERO);
    blog.clock.advance(Duration::from_hours(24 * 30));
    storage.start_workers(Spawner::Threads, 1, 1, 0).unwrap();
    let is_gone = || {
        std::thread::sleep(Duration::from_millis(10));
        storage.family(FAMILIES[0]).view().tables.is_empty()
    };
    assert!((0..6000).any(|_| is_gone()), "no thread has looked");
}

#[test]
fn a_family_that_is_being_compacted_is_not_forgiven_its_last_failure() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    let shared = &storage.core;
    write(&storage, FAMILIES[0], "ada").unwrap();
    storage.flush(FAMILIES[0]).unwrap();
    assert!(shared.compactions.postpone(FAMILIES[0], Duration::ZERO));
    let claim = storage.family(FAMILIES[0]).claim(|tables| Some(tables.free.clone())).unwrap();
    let (waiting, best) = shared.choose(vec![FAMILIES[0]], u64::MAX);
    assert!(waiting.is_empty() && best.is_none());
    assert!(shared.compactions.is_failing(FAMILIES[0]), "it may fail again");
    drop(claim);
    shared.choose(vec![FAMILIES[0]], u64::MAX);
    assert!(!shared.compactions.is_failing(FAMILIES[0]), "there is nothing to merge");
}

#[test]
fn rows_in_which_nothing_is_visible_take_room_in_the_answer() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    for number in 0..10 {
        write(&storage, FAMILIES[0], &format!("row {number}")).unwrap();
    }
    let (none, all) = (Slice::range(None, b"x", b"", false, 1), RowRange::all());
    let scan = |context: &RequestContext| {
        let found = storage.family(FAMILIES[0]).scan(&all, &none, 100, context, Access::Cached);
        found.map(|rows| rows.len())
    };
    let context = RequestContext::new(2000);
    assert_eq!(scan(&context).unwrap(), 10);
    assert!(matches!(scan(&context), Err(ReadError::TooLarge(_))), "both are one answer");
    let read = |context: &RequestContext, key: &str| {
        let access = Access::CachedOnly;
        storage.family(FAMILIES[0]).read(&RowKey::from(key), &none, context, access)
    };
    let context = RequestContext::new(300);
    assert_eq!(read(&context, "row 1").unwrap().count, 0);
    assert_eq!(read(&context, "no such row").unwrap().count, 0);
    assert!(matches!(read(&context, "row 2"), Err(ReadError::TooLarge(_))));
}

/// Reads on the thread of a connection are bounded, so a read that succeeds there has
/// looked at few of its names, or at few cells of the row.
#[test]
fn a_read_by_names_costs_no_more_than_the_names_or_the_cells_of_the_row() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    let name = |number: usize| format!("{number:06}");
    for (key, columns) in [("narrow", 3), ("wide", 5_000)] {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
        let family = mutation.family(FAMILIES[0]);
        for number in 0..columns {
            family.insert((b"", name(number * 7).as_bytes()), b"value", 1);
        }
        storage.apply(&mutation.finish(), true).unwrap();
    }
    let found = |key: &str, names: &[String]| {
        let schema = storage.schema().family(FAMILIES[0]);
        let slice = Slice::names(schema, None, names.iter().map(String::as_bytes));
        let context = RequestContext::default();
        let key = RowKey::from(key);
        let (family, access) = (FAMILIES[0], Access::CachedOnly);
        // Brings blocks of files into the cache.
        storage
            .family(family)
            .read(&key, &slice, &RequestContext::default(), Access::Cached)
            .unwrap();
        let version = storage.family(family).read_version(&key, &slice, &context, access).unwrap();
        let row =
            storage.family(family).read(&key, &slice, &RequestContext::default(), access).unwrap();
        assert_eq!(version.cells.len(), row.count);
        row.count
    };
    let many: Vec<String> = (0..100_000).map(name).collect();
    let few = [name(7), name(8), name(7_000), name(34_993)];
    for _ in 0..2 {
        assert_eq!((found("narrow", &many), found("wide", &few)), (3, 3));
        storage.flush(FAMILIES[0]).unwrap();
    }
}
