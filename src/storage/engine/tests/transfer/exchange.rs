//! Rows that go out as SSTables of 0.6 and come in as such.

use super::pieces::{KEYS, any_steps, take};
use super::*;
use crate::base::fs::FileSystem;
use crate::model::deletion::Deletion;
use crate::ring::RowRange;
use crate::storage::files::FileName;
use proptest::prelude::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;

static GO_ON: AtomicBool = AtomicBool::new(false);

/// All that is stored, as far as nodes of 0.6 can have it.
fn stored(storage: &Storage) -> Vec<(RowKey, RowVersion)> {
    let piece = storage.read_piece(FAMILY, &RowRange::all(), None, usize::MAX).unwrap();
    piece.rows.into_iter().filter(|(key, _)| str::from_utf8(key.as_bytes()).is_ok()).collect()
}

/// The bytes of the data file of a table.
fn data_of(table: &OutgoingTable) -> Vec<u8> {
    let (path, length) = table.table().files[2].clone();
    let mut bytes = vec![0; length as usize];
    table.open(&path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn take_in(storage: &Storage, bytes: &[u8]) -> Result<TakenIn, ExchangeError> {
    let mut spooled = storage.spool(FAMILY, bytes.len() as u64).unwrap();
    for chunk in bytes.chunks(1000) {
        spooled.append(chunk).unwrap();
    }
    storage.take_in(FAMILY, &spooled, &GO_ON)
}

/// Files besides the SSTables and the manifest.
fn left_over(fs: &SimFileSystem) -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["/data/Blog", "/data/Blog/stream"] {
        let entries = fs.list(Path::new(folder)).unwrap_or_default();
        names.extend(entries.into_iter().filter(|it| !it.is_dir).map(|it| it.name));
    }
    let counts =
        |name: &str| matches!(FileName::parse(name), FileName::SsTable(..) | FileName::Manifest(_));
    names.retain(|name| !counts(name));
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn what_goes_out_comes_in(steps in any_steps(), is_super in any::<bool>()) {
        let (fs, other) = (SimFileSystem::new(1), SimFileSystem::new(2));
        let setup = Setup { is_super, partitioner: Partitioner::Random, ..Setup::default() };
        let (source, target) = (setup.open(&fs).unwrap(), setup.open(&other).unwrap());
        take(&source, is_super, &steps);
        let table = source.write_out(FAMILY, &[RowRange::all()], &GO_ON).unwrap();
        let expected = stored(&source);
        prop_assert_eq!(table.is_none(), expected.is_empty());
        if let Some(table) = table {
            let taken = take_in(&target, &data_of(&table)).unwrap();
            prop_assert_eq!(taken.rows, expected.len() as u64);
            prop_assert_eq!(table.table().rows, taken.rows);
        }
        prop_assert_eq!(stored(&target), expected);
        prop_assert!(left_over(&fs).is_empty() && left_over(&other).is_empty());
    }
}

#[test]
fn only_rows_of_the_ranges_go_out() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        insert(&storage, key, "name", 5);
    }
    let range = |start: &str, end: &str| {
        let token = |key: &str| Partitioner::OrderPreserving.token(key.as_bytes());
        RowRange { start: Bound::Excluded(token(start)), end: Bound::Included(token(end)) }
    };
    let ranges = [range("a", "b"), range("c", "d")];
    let table = storage.write_out(FAMILY, &ranges, &GO_ON).unwrap().unwrap();
    let other = Setup::default().open(&SimFileSystem::new(2)).unwrap();
    take_in(&other, &data_of(&table)).unwrap();
    let keys: Vec<String> = stored(&other).iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(keys, ["b", "d"]);
    assert!(storage.write_out(FAMILY, &[range("x", "y")], &GO_ON).unwrap().is_none());
}

#[test]
fn a_damaged_file_leaves_nothing() {
    let (fs, other) = (SimFileSystem::new(1), SimFileSystem::new(2));
    let (source, target) =
        (Setup::default().open(&fs).unwrap(), Setup::default().open(&other).unwrap());
    for key in ["a", "b", "c"] {
        insert(&source, key, "name", 5);
    }
    let table = source.write_out(FAMILY, &[RowRange::all()], &GO_ON).unwrap().unwrap();
    let whole = data_of(&table);
    let cut = &whole[..whole.len() - 1];
    let doubled = [&whole[..], &whole].concat();
    for bad in [cut, &doubled, b"no table at all"] {
        take_in(&target, bad).unwrap_err();
        assert!(stored(&target).is_empty() && left_over(&other).is_empty());
    }
    let stop = AtomicBool::new(true);
    let given_up = source.write_out(FAMILY, &[RowRange::all()], &stop).unwrap_err();
    assert!(matches!(given_up, ExchangeError::GivenUp));
    take_in(&target, &whole).unwrap();
    assert_eq!(stored(&target), stored(&source));
}

#[test]
fn keys_that_no_node_of_0_6_can_have_stay_here() {
    let setup = Setup { partitioner: Partitioner::Random, ..Setup::default() };
    let storage = setup.open(&SimFileSystem::new(1)).unwrap();
    for key in KEYS {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key);
        mutation.family(FAMILY).delete_row(Deletion::at(5, GC_BEFORE + 1));
        storage.apply(&mutation.finish(), true).unwrap();
    }
    let table = storage.write_out(FAMILY, &[RowRange::all()], &GO_ON).unwrap().unwrap();
    assert_eq!(table.table().rows, 2);
}

#[test]
fn a_file_that_finds_no_room_is_not_begun() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    fs.set_capacity(Some(1000));
    let refused = storage.spool(FAMILY, 2000).unwrap_err();
    assert!(refused.to_string().contains("make room"), "{refused}");
    assert!(left_over(&fs).is_empty());
}

#[test]
fn what_an_earlier_process_has_left_goes() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    insert(&storage, "a", "name", 5);
    let table = storage.write_out(FAMILY, &[RowRange::all()], &GO_ON).unwrap();
    let spooled = storage.spool(FAMILY, 10).unwrap();
    assert_eq!(left_over(&fs).len(), 4);
    // As if the process were killed.
    std::mem::forget((table, spooled));
    drop(storage);
    let storage = Setup::default().open(&fs).unwrap();
    assert!(left_over(&fs).is_empty());
    drop(storage);
}
