//! Ranges that are read in pieces.

use super::*;
use crate::model::deletion::Deletion;
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::{Bound, RangeBounds};

/// Under the collating partitioner the first three have one token: that of a replacement character.
pub(super) const KEYS: [&[u8]; 5] = [b"\xfd", b"\xfe", b"\xff", b"ada", b"bob"];

#[derive(Debug, Clone)]
pub(super) enum Step {
    Insert { timestamp: i64 },
    DeleteColumn(Deletion),
    DeleteSuperColumn(Deletion),
    DeleteRow(Deletion),
    Flush,
}

/// A step, and the row, super column and column that it concerns.
pub(super) type Steps = Vec<(Step, usize, u8, u8)>;

fn any_step() -> impl Strategy<Value = Step> {
    let deletion = || {
        let second = prop_oneof![Just(GC_BEFORE), Just(GC_BEFORE + 1)];
        (1..9i64, second).prop_map(|(timestamp, second)| Deletion::at(timestamp, second))
    };
    prop_oneof![
        8 => (1..9i64).prop_map(|timestamp| Step::Insert { timestamp }),
        3 => deletion().prop_map(Step::DeleteColumn),
        2 => deletion().prop_map(Step::DeleteSuperColumn),
        1 => deletion().prop_map(Step::DeleteRow),
        1 => Just(Step::Flush),
    ]
}

pub(super) fn any_steps() -> impl Strategy<Value = Steps> {
    vec((any_step(), 0..KEYS.len(), 0..3u8, 0..4u8), 1..60)
}

pub(super) fn take(storage: &Database, is_super: bool, steps: &Steps) {
    for (step, row, super_column, column) in steps {
        let (super_name, name) = ([b's', *super_column], [b'c', *column]);
        let super_name = if is_super { &super_name[..] } else { b"" };
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", KEYS[*row]);
        mutation.family(FAMILY);
        match step {
            Step::Insert { timestamp } => {
                mutation.insert((super_name, &name), b"value", *timestamp);
            }
            Step::DeleteSuperColumn(deletion) if is_super => {
                mutation.delete_super_column(super_name, *deletion);
            }
            Step::DeleteColumn(deletion) | Step::DeleteSuperColumn(deletion) => {
                mutation.delete_column((super_name, &name), *deletion);
            }
            Step::DeleteRow(deletion) => {
                mutation.delete_row(*deletion);
            }
            Step::Flush => {
                storage.flush(FAMILY).unwrap();
                continue;
            }
        }
        storage.apply(&mutation.finish(), true).unwrap();
    }
}

pub(super) fn read_all(storage: &Database, range: &RowRange, max_bytes: usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    loop {
        let after = pieces.last().and_then(|piece| piece.next.as_ref());
        let piece = storage.family(FAMILY).read_piece(range, after, max_bytes).unwrap();
        assert!(piece.next.is_none() || piece.next.as_ref() != after, "it gets on");
        let is_last = piece.next.is_none();
        pieces.push(piece);
        if is_last {
            return pieces;
        }
    }
}

/// The pieces of each row put together, in their order.
pub(super) fn assembled(storage: &Database, pieces: &[Piece]) -> Vec<(RowKey, RowVersion)> {
    let mut rows: Vec<(RowKey, Vec<&RowVersion>)> = Vec::new();
    for (key, version) in pieces.iter().flat_map(|piece| &piece.rows) {
        assert!(!version.is_empty());
        match rows.last_mut() {
            Some((last, parts)) if last == key => parts.push(version),
            _ => rows.push((key.clone(), vec![version])),
        }
    }
    let family = storage.schema().family(FAMILY);
    let merged = |parts: Vec<&RowVersion>| RowVersion::merge(family, parts);
    rows.into_iter().map(|(key, parts)| (key, merged(parts))).collect()
}

pub(super) fn keys_in_order(storage: &Database) -> Vec<DecoratedKey> {
    let mut keys = KEYS.map(|key| storage.partitioner().decorate(RowKey::new(key)));
    keys.sort();
    keys.to_vec()
}

pub(super) fn expected(storage: &Database, range: &RowRange) -> Vec<(RowKey, RowVersion)> {
    let keys = keys_in_order(storage).into_iter().filter(|key| range.contains(key.token()));
    let rows = keys.map(|key| (key.key().clone(), version(storage, key.key())));
    rows.filter(|(_, version)| !version.is_empty()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_pieces_of_a_row_are_its_version(
        steps in any_steps(),
        is_super: bool,
        collates: bool,
        bounds in (0..KEYS.len(), 0..KEYS.len(), 0..5u8),
    ) {
        let partitioner =
            if collates { Partitioner::CollatingOrderPreserving } else { Partitioner::Random };
        let setup = Blog { is_super, partitioner, ..setup() };
        let storage = setup.open(&SimFileSystem::new(1)).unwrap();
        take(&storage, is_super, &steps);
        let token = |at: usize| partitioner.token(KEYS[at]);
        let (start, end) = (token(bounds.0), token(bounds.1));
        let range = match bounds.2 {
            0 => RowRange { start: Bound::Excluded(start), end: Bound::Included(end) },
            1 => RowRange { start: Bound::Included(start), end: Bound::Excluded(end) },
            2 => RowRange { start: Bound::Excluded(start), end: Bound::Unbounded },
            3 => RowRange { start: Bound::Unbounded, end: Bound::Included(end) },
            _ => RowRange::all(),
        };
        let expected = expected(&storage, &range);
        for max_bytes in [0, 1, 150, 300, 1000] {
            let pieces = read_all(&storage, &range, max_bytes);
            prop_assert_eq!(&assembled(&storage, &pieces), &expected, "{} bytes", max_bytes);
            let most = pieces.iter().map(|piece| piece.rows.iter().map(|r| r.1.cells.len()).sum());
            // A cell takes at least 81 bytes; a marker may be repeated.
            let most: usize = most.max().unwrap_or(0);
            prop_assert!(most <= max_bytes / 81 + 2, "{} cells of {} bytes", most, max_bytes);
        }
        let whole = storage.family(FAMILY).read_piece(&range, None, 1 << 20).unwrap();
        prop_assert_eq!(whole, Piece { rows: expected, next: None });
    }
}

/// Reads of files that a piece behind this position takes.
fn cost(fs: &SimFileSystem, storage: &Database, after: Option<&RowPosition>) -> u64 {
    let before = fs.count(FileOperation::Read);
    let piece = storage.family(FAMILY).read_piece(&RowRange::all(), after, 1000).unwrap();
    assert!(!piece.rows.is_empty() && piece.next.is_some());
    fs.count(FileOperation::Read) - before
}

#[test]
fn a_piece_in_the_middle_costs_no_more_than_one_at_the_beginning() {
    let fs = SimFileSystem::new(1);
    let storage = setup().open(&fs).unwrap();
    for number in 0..4000 {
        insert(&storage, "wide", &format!("{number:05}"), 1);
    }
    for number in 0..1000 {
        insert(&storage, &format!("zz{number:04}"), "name", 1);
    }
    storage.flush(FAMILY).unwrap();
    let middle = |key: &str, name: Option<&str>| RowPosition {
        key: RowKey::from(key),
        cell: name.map(|name| (Vec::new(), name.as_bytes().to_vec())),
    };
    let cached = storage.block_cache_stats().size;
    for after in [None, Some(middle("wide", Some("03000"))), Some(middle("zz0500", None))] {
        let reads = cost(&fs, &storage, after.as_ref());
        assert!(reads <= 8, "{reads} reads behind {after:?}");
    }
    assert_eq!(storage.block_cache_stats().size, cached, "it is none of the cache's business");
}
