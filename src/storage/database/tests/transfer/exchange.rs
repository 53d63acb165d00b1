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
fn stored(storage: &Database) -> Vec<(RowKey, RowVersion)> {
    let piece = storage.family(FAMILY).read_piece(&RowRange::all(), None, usize::MAX).unwrap();
    piece.rows.into_iter().filter(|(key, _)| str::from_utf8(key.as_bytes()).is_ok()).collect()
}

/// The bytes of the data file of a table.
fn data_of(table: &OutgoingTable) -> Vec<u8> {
    let (path, length) = table.table().files[2].clone();
    let mut bytes = vec![0; length as usize];
    table.open(&path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn take_in(storage: &Database, bytes: &[u8]) -> Result<TakenIn, ExchangeError> {
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
        let setup = Blog { is_super, partitioner: Partitioner::Random, ..setup() };
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
fn keys_that_no_node_of_0_6_can_have_stay_here() {
    let setup = Blog { partitioner: Partitioner::Random, ..setup() };
    let storage = setup.open(&SimFileSystem::new(1)).unwrap();
    for key in KEYS {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key);
        mutation.family(FAMILY).delete_row(Deletion::at(5, GC_BEFORE + 1));
        storage.apply(&mutation.finish(), true).unwrap();
    }
    let table = storage.write_out(FAMILY, &[RowRange::all()], &GO_ON).unwrap().unwrap();
    assert_eq!(table.table().rows, 2);
}
