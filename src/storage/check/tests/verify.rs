use crate::base::fs::FileSystem;
use crate::kit::disk::{Fault, Operation, SimFileSystem};
use crate::model::cell::Cell;
use crate::model::comparator::ComparatorRegistry;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::ring::Partitioner;
use crate::storage::check::{Expected, Report, verify};
use crate::storage::sstable::block::{self, BlockHandle, BlockKind};
use crate::storage::sstable::tests::samples::{
    self, FOLDER, blocks, disk, family, is_small, options, rows, tamper,
};
use crate::storage::sstable::{Compression, WriterOptions};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn path() -> PathBuf {
    Path::new(FOLDER).join("cf-1.sst")
}

fn sample(is_super: bool, partitioner: Partitioner) -> Arc<SimFileSystem> {
    sample_with(is_super, options(partitioner))
}

fn sample_with(is_super: bool, options: WriterOptions) -> Arc<SimFileSystem> {
    let (disk, family) = (disk(), family(is_super));
    let rows = rows(&family, options.partitioner);
    samples::write(&*disk, &path(), &family, options, &rows);
    disk
}

fn uncompressed() -> WriterOptions {
    WriterOptions { compression: Compression::None, ..options(Partitioner::OrderPreserving) }
}

fn check(fs: &dyn FileSystem) -> Report {
    check_as(fs, &Expected::default())
}

fn check_as(fs: &dyn FileSystem, expected: &Expected) -> Report {
    verify(fs, &path(), expected, &ComparatorRegistry::default(), &mut |_| {}).unwrap()
}

fn texts(report: &Report) -> Vec<String> {
    report.damages.iter().map(ToString::to_string).collect()
}

fn has(report: &Report, text: &str) -> bool {
    texts(report).iter().any(|damage| damage.contains(text))
}

#[test]
fn what_was_written_is_sound() {
    for partitioner in Partitioner::ALL {
        for is_super in [false, true] {
            let disk = sample(is_super, partitioner);
            let report = check(&*disk);
            assert!(report.is_sound(), "{:?}", texts(&report));
            assert_eq!(report.found, Some((7, 27 + u64::from(is_super))));
            let expected =
                Expected { family: Some(family(is_super)), partitioner: Some(partitioner) };
            assert!(check_as(&*disk, &expected).is_sound());
        }
    }
}

#[test]
fn the_sample_has_every_kind_of_block() {
    let disk = sample(true, Partitioner::Random);
    for kind in ["data", "column index", "row index", "summary", "filter", "properties"] {
        assert!(blocks(&*disk, &path()).iter().any(|(_, found)| found.name() == kind), "{kind}");
    }
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    let disk = sample(true, Partitioner::OrderPreserving);
    let size = disk.open(&path()).unwrap().size().unwrap();
    for offset in 0..size {
        for bit in 0..8 {
            disk.corrupt(&path(), offset, 1 << bit).unwrap();
            let report = check(&*disk);
            let named = report.damages.iter().any(|damage| damage.range.contains(&offset));
            assert!(named, "bit {bit} of byte {offset}: {:?}", texts(&report));
            disk.corrupt(&path(), offset, 1 << bit).unwrap();
        }
    }
    assert!(check(&*disk).is_sound());
}

#[test]
fn every_truncation_is_found() {
    let disk = sample(false, Partitioner::Random);
    let whole = disk.read(&path()).unwrap();
    let file = disk.open(&path()).unwrap();
    for length in (0..whole.len() as u64).rev() {
        file.set_size(length).unwrap();
        let report = check(&*disk);
        assert!(!report.is_sound(), "{length} bytes");
        assert!(has(&report, "it may be truncated"), "{length} bytes: {:?}", texts(&report));
    }
}

#[test]
fn bytes_that_are_too_many_are_found() {
    let disk = sample(false, Partitioner::Random);
    let file = disk.open(&path()).unwrap();
    let size = file.size().unwrap();
    file.write_all_at(b"more", size).unwrap();
    assert!(has(&check(&*disk), "the end is missing or damaged"));
}

/// The damages after the payload of one block was hit.
fn with_damaged(kind: BlockKind, number: usize) -> Report {
    let disk = sample(true, Partitioner::OrderPreserving);
    let found = blocks(&*disk, &path());
    let (handle, _) = found.iter().filter(|(_, found)| *found == kind).nth(number).unwrap();
    disk.corrupt(&path(), handle.offset + block::HEAD_LENGTH as u64 + 1, 0x10).unwrap();
    let report = check(&*disk);
    assert_eq!(report.damages[0].range, handle.range());
    assert_eq!(report.damages[0].part, Some(kind.name()));
    report
}

#[test]
fn damages_name_the_rows_they_concern_and_nothing_else_is_told() {
    let keys = |report: &Report| {
        assert_eq!(report.damages.len(), 1, "{:?}", texts(report));
        let keys = &report.damages[0].named.keys;
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let first = with_damaged(BlockKind::Data, 0);
    assert_eq!(keys(&first), ["also \\\"small\\\"", "another"]);
    let found = blocks(&*sample(true, Partitioner::OrderPreserving), &path());
    let data = found.iter().filter(|(_, kind)| *kind == BlockKind::Data).count();
    let mut all: Vec<_> = (0..data).flat_map(|n| keys(&with_damaged(BlockKind::Data, n))).collect();
    all.sort();
    all.dedup();
    let sample = rows(&family(true), Partitioner::OrderPreserving);
    let large = sample.iter().filter(|row| !is_small(row));
    assert_eq!(all, large.map(|row| row.0.key().to_string()).collect::<Vec<_>>());
    assert_eq!(keys(&with_damaged(BlockKind::ColumnIndex, 0)), ["wide"]);
    let index = texts(&with_damaged(BlockKind::RowIndex, 1));
    let rows = "small rows that stood there, between \"covered\" and \"wide\", are lost: ";
    assert!(index.len() == 1 && index[0].contains(rows), "{index:?}");
    for kind in [BlockKind::Summary, BlockKind::Filter, BlockKind::Properties] {
        assert_eq!(keys(&with_damaged(kind, 0)), [""; 0]);
    }
}

/// Report of a destroyed row index block, the only one, of these rows.
fn without_row_index(rows: &[samples::Row]) -> Vec<String> {
    let (disk, family) = (disk(), family(false));
    let options = WriterOptions { index_interval: 100, block_bytes: 1 << 14, ..uncompressed() };
    samples::write(&*disk, &path(), &family, options, rows);
    let found = blocks(&*disk, &path());
    let index: Vec<_> = found.iter().filter(|(_, kind)| *kind == BlockKind::RowIndex).collect();
    let [(handle, _)] = index[..] else { panic!("{index:?}") };
    // A flipped bit leaves the head of the block, so that it tells its kind.
    disk.corrupt(&path(), handle.offset + block::HEAD_LENGTH as u64 + 1, 0x10).unwrap();
    let told = texts(&check(&*disk));
    let rows_of = |text: &str| text.split_once("; ").map(|(_, rows)| rows.to_owned());
    let zeroes = vec![0; handle.length as usize];
    disk.open(&path()).unwrap().write_all_at(&zeroes, handle.offset).unwrap();
    let all = texts(&check(&*disk));
    assert!(all[0].contains("(row index block)"), "the summary tells the kind: {all:?}");
    assert_eq!(rows_of(&told[0]), rows_of(&all[0]));
    all
}

#[test]
fn of_a_lost_row_index_block_small_rows_are_lost_and_large_ones_are_not() {
    let row = |number: usize| {
        let length = if number % 7 == 6 { 1 } else { 1100 };
        let cell = Cell::live(b"", b"name", &vec![b'v'; length], 1);
        let key = RowKey::from(format!("row {number:02}").as_str());
        (Partitioner::OrderPreserving.decorate(key), Deletion::NONE, vec![cell])
    };
    let rows: Vec<samples::Row> = (0..70).map(row).collect();
    let told = without_row_index(&rows);
    assert_eq!(told.len(), 1, "{told:?}");
    let small = "; small rows that stood there are lost: 10; ";
    let large = "missing in the index, and saved by scrub from sound data blocks: \"row 00\", ";
    assert!(told[0].contains(&format!("{small}{large}")), "{told:?}");
    assert!(told[0].ends_with("\"row 22\" and 40 more"), "{told:?}");

    let large: Vec<_> = rows.into_iter().filter(|row| !is_small(row)).collect();
    let told = without_row_index(&large);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("; no row is lost; missing in the index"), "{told:?}");
}

#[test]
fn where_the_index_is_lost_as_well_the_neighbours_are_named() {
    let disk = sample(false, Partitioner::OrderPreserving);
    let found = blocks(&*disk, &path());
    let of_kind = |kind| found.iter().filter(move |(_, found)| *found == kind);
    let data = of_kind(BlockKind::Data).nth(3);
    for (handle, _) in of_kind(BlockKind::RowIndex).chain(data) {
        disk.corrupt(&path(), handle.offset + 20, 1).unwrap();
    }
    let report = check(&*disk);
    assert!(has(&report, "; rows from \"wide\" to \"wide\""), "{:?}", texts(&report));
}

#[test]
fn what_the_disk_cannot_read_is_damage() {
    let disk = sample(false, Partitioner::Random);
    let before = disk.count(Operation::Read);
    assert!(check(&*disk).is_sound());
    let reads = disk.count(Operation::Read) - before;
    // The first four are header, footer, properties and filter, which are read once more.
    let unnoticed = (4..reads).filter(|skip| {
        disk.inject(Fault::nth(Operation::Read, *skip, Errno::IO));
        check(&*disk).is_sound()
    });
    assert_eq!(unnoticed.count(), 0);
    assert!(check(&*disk).is_sound());
}

/// Report of a block with right checksums and other content.
fn with_tampered(kind: BlockKind, text: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Report {
    let disk = sample_with(false, uncompressed());
    assert!(check(&*disk).is_sound());
    let whole = disk.read(&path()).unwrap();
    let holds = |handle: &BlockHandle| {
        let range = handle.range();
        let bytes = &whole[range.start as usize..range.end as usize];
        text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
    };
    let found = blocks(&*disk, &path());
    let found = found.iter().find(|(handle, found)| *found == kind && holds(handle));
    tamper(&*disk, &path(), found.expect("a block has the text").0, kind, change);
    check(&*disk)
}

/// Report of a block in which one text is replaced by another.
fn with_replaced(kind: BlockKind, old: &[u8], new: &[u8]) -> Report {
    with_tampered(kind, old, |bytes| {
        let at = bytes.windows(old.len()).position(|window| window == old).expect("it is there");
        bytes[at..at + new.len()].copy_from_slice(new);
    })
}

#[test]
fn what_has_right_checksums_and_is_wrong_is_found() {
    let (eight, number) = ([6, 8, 0, 0, 0, 0, 0, 0, 0, 8], [6, 8, 0, 0, 0, 0, 0, 0, 0, 7]);
    // The greatest timestamp of its row.
    let (at, later) = (50_i64.to_be_bytes(), 99_i64.to_be_bytes());
    let data = BlockKind::Data;
    let cases = [
        (with_replaced(data, b"yvalue of y", b"z"), "tells another last cell of a row"),
        (
            with_tampered(BlockKind::RowIndex, b"zvalue of z", |bytes| {
                let at = bytes.windows(11).position(|window| window == b"zvalue of z").unwrap();
                // Its state.
                bytes[at - Cell::HEADER_LENGTH] = 9;
            }),
            "a cell cannot be read; row \"deleted and written\"",
        ),
        (
            with_tampered(data, b"", |bytes| *bytes.last_chunk_mut().unwrap() = [0xff; 4]),
            "the directory of a block is broken",
        ),
        (with_tampered(data, b"", |bytes| bytes.reverse()), "a cell cannot be read; rows \""),
        (with_replaced(data, b"another", b"aaother"), "rows are not in order"),
        (with_replaced(data, &at, &later), "the row index tells another greatest timestamp"),
        (with_replaced(data, b"c01", b"c00"), "a row has two cells in one place; rows \"wide\""),
        (with_replaced(data, b"c01", b"c99"), "the cells of a row are not in order"),
        (with_replaced(BlockKind::RowIndex, b"covered", b"coverer"), "a row is tagged wrongly"),
        (
            with_replaced(BlockKind::Summary, b"deleted", b"delated"),
            "the summary does not list the row index blocks",
        ),
        (
            with_tampered(BlockKind::Filter, b"", |bytes| bytes.fill(0)),
            "the filter denies a row of this block; row \"",
        ),
        (with_replaced(BlockKind::Properties, &number, &eight), "the number of rows is 7, not 8"),
    ];
    for (report, text) in cases {
        assert!(has(&report, text), "{text}: {:?}", texts(&report));
    }
}

#[test]
fn a_file_that_sorts_otherwise_is_told_apart() {
    let disk = sample(false, Partitioner::Random);
    let expected =
        Expected { family: Some(family(true)), partitioner: Some(Partitioner::OrderPreserving) };
    let report = check_as(&*disk, &expected);
    assert!(report.is_foreign);
    assert!(has(&report, "the configured partitioner is"), "{:?}", texts(&report));
}

#[test]
fn files_of_others_are_told_as_such() {
    let disk = disk();
    let large = vec![0; 200_000];
    for content in [&b""[..], b"x", &[b'x'; 3000], &large] {
        let file = disk.create(&path()).unwrap();
        file.write_all_at(content, 0).unwrap();
        let report = check(&*disk);
        let text = if content.len() < 8 { "cannot be read" } else { "does not begin like" };
        assert!(has(&report, text), "{:?}", texts(&report));
        disk.remove_file(&path()).unwrap();
    }
}
