//! Single rows that are read in pieces.

use super::pieces::{any_steps, assembled, expected, keys_in_order, take};
use super::*;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use fastrand::Rng;
use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

/// Reads these rows as who collects them does: behind each piece those that are left.
fn read_rows(storage: &Database, keys: &[DecoratedKey], max_bytes: usize) -> Vec<Piece> {
    let (mut left, mut after, mut pieces) = (keys, None, Vec::new());
    loop {
        let piece =
            storage.family(FAMILY).read_rows_piece(left, after.as_ref(), max_bytes).unwrap();
        if let Some(RowPosition { key, cell }) = &piece.next {
            let at = left.iter().position(|it| it.key() == key).unwrap();
            let is_further = at > 0 || cell.is_none() || after != piece.next;
            assert!(is_further, "it gets on");
            left = &left[at + usize::from(cell.is_none())..];
        }
        after = piece.next.clone();
        pieces.push(piece);
        if after.is_none() {
            return pieces;
        }
        after = after.filter(|after| after.cell.is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_pieces_of_a_row_are_its_version(
        steps in any_steps(),
        is_super: bool,
        collates: bool,
        chosen: [bool; 5],
    ) {
        let partitioner =
            if collates { Partitioner::CollatingOrderPreserving } else { Partitioner::Random };
        let setup = Blog { is_super, partitioner, ..setup() };
        let storage = setup.open(&SimFileSystem::new(1)).unwrap();
        take(&storage, is_super, &steps);
        let keys = keys_in_order(&storage).into_iter().zip(chosen);
        let keys: Vec<_> = keys.filter(|(_, is_chosen)| *is_chosen).map(|(key, _)| key).collect();
        let mut expected = expected(&storage, &RowRange::all());
        expected.retain(|(key, _)| keys.iter().any(|chosen| chosen.key() == key));
        for max_bytes in [0, 1, 150, 300, 1000] {
            let pieces = read_rows(&storage, &keys, max_bytes);
            prop_assert_eq!(&assembled(&storage, &pieces), &expected, "{} bytes", max_bytes);
        }
        let whole = storage.family(FAMILY).read_rows_piece(&keys, None, 1 << 20).unwrap();
        prop_assert_eq!(whole, Piece { rows: expected, next: None });
    }
}

const ROWS: usize = 3000;

fn key(number: usize) -> DecoratedKey {
    Partitioner::OrderPreserving.decorate(RowKey::from(&*format!("{number:05}")))
}

/// Rows on several levels and in memory, of which each seventh is missing.
fn fill(storage: &Database) {
    for part in 0..4 {
        for number in (0..ROWS).filter(|number| number % 7 != 0 && number % 4 == part) {
            insert(storage, &format!("{number:05}"), "name", 1);
        }
        if part < 3 {
            storage.flush(FAMILY).unwrap();
        }
        if part == 1 {
            storage.compact(FAMILY).unwrap();
        }
    }
}

#[test]
fn rows_are_found_over_gaps_of_any_width() {
    let storage = leveled(4 << 10).open(&SimFileSystem::new(1)).unwrap();
    fill(&storage);
    let view = storage.family(FAMILY).view();
    assert!(view.tables.iter().filter(|table| table.level() > 0).count() > 2, "a chain of files");
    for step in [1, 2, 3, 13, 150, 1100, ROWS - 1] {
        for start in [0, 1, 5] {
            let numbers: Vec<usize> = (start..ROWS).step_by(step).collect();
            let keys: Vec<DecoratedKey> = numbers.iter().map(|number| key(*number)).collect();
            let pieces = read_rows(&storage, &keys, 2000);
            let found = pieces.iter().flat_map(|piece| &piece.rows).map(|(key, _)| key.clone());
            let expected = numbers.iter().filter(|number| *number % 7 != 0);
            let expected = expected.map(|number| key(*number).into_key());
            assert!(found.eq(expected), "each {step} from {start} on");
        }
    }
}

/// A row is not read by itself where many are wanted, nor are all where few are.
#[test]
fn no_block_is_read_twice_or_without_need() {
    let fs = SimFileSystem::new(1);
    let storage = setup().open(&fs).unwrap();
    let (mut rng, mut ingest) = (Rng::with_seed(1), storage.ingest(FAMILY).unwrap());
    for number in 0..2000 {
        let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1000).collect();
        let cells = vec![Cell::live(b"", b"name", &value, 1)];
        let version = RowVersion { deletion: Deletion::NONE, cells };
        ingest.push(key(number).key(), &version).unwrap();
    }
    ingest.finish().unwrap();
    let reads = |read: &dyn Fn() -> Piece| {
        let before = fs.count(FileOperation::Read);
        let rows = read().rows.len();
        (rows, fs.count(FileOperation::Read) - before)
    };
    let of_range =
        reads(&|| storage.family(FAMILY).read_piece(&RowRange::all(), None, usize::MAX).unwrap());
    let of_rows = |keys: &[DecoratedKey]| {
        reads(&|| storage.family(FAMILY).read_rows_piece(keys, None, usize::MAX).unwrap())
    };
    let all: Vec<DecoratedKey> = (0..2000).map(key).collect();
    assert_eq!(of_rows(&all), of_range);
    let (rows, few) = of_rows(&[key(10), key(1000), key(1990)]);
    assert_eq!(rows, 3);
    assert!(few <= 6 && few < of_range.1 / 2, "{few} of {} reads", of_range.1);
}
