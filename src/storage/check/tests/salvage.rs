use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;
use crate::model::cell::Cell;
use crate::model::comparator::ComparatorRegistry;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::Partitioner;
use crate::storage::check::{Expected, Item, Loss, Report, Salvaged, SoundRows, salvage, verify};
use crate::storage::error::FileError;
use crate::storage::sstable::block::{BlockKind, HEAD_LENGTH};
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use crate::storage::sstable::tests::samples::{
    self, FOLDER, Row, blocks, disk, family, is_small, options, rows,
};
use crate::storage::sstable::{self, OutputOptions, Outputs, SplitWriter};
use proptest::prelude::*;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const P: Partitioner = Partitioner::OrderPreserving;

fn path() -> PathBuf {
    Path::new(FOLDER).join("cf-1.sst")
}

fn sample(is_super: bool) -> (Arc<SimFileSystem>, Vec<Row>) {
    let (disk, family) = (disk(), family(is_super));
    let rows = rows(&family, P);
    samples::write(&*disk, &path(), &family, options(P), &rows);
    (disk, rows)
}

/// Saves the file, and reads all that was saved, which must be sound.
fn save(disk: &Arc<SimFileSystem>, is_super: bool) -> (Salvaged, Vec<Row>) {
    let family = family(is_super);
    let expected = Expected { family: Some(Arc::clone(&family)), partitioner: Some(P) };
    let report = check(disk, &path(), &expected);
    let mut number = 1;
    let paths = || {
        number += 1;
        Ok(Path::new(FOLDER).join(format!("cf-{number}.sst")))
    };
    let mut sink = split_writer(disk, &family, paths);
    let salvaged = salvage(&**disk, &report, (&family, P), &mut sink, &mut |_| {}).unwrap();
    let mut saved = Vec::new();
    for file in sink.finish().unwrap() {
        saved.extend(read(disk, &file.path));
        disk.remove_file(&file.path).unwrap();
    }
    (salvaged, saved)
}

fn split_writer<'a>(
    disk: &Arc<SimFileSystem>,
    family: &Arc<ColumnFamilySchema>,
    paths: impl FnMut() -> Result<PathBuf, FileError> + Send + 'a,
) -> SplitWriter<'a> {
    let (fs, options) = (Arc::clone(disk) as _, OutputOptions::unsplit(options(P), 7, 0));
    SplitWriter::new(Outputs::new(&fs, family, options, paths))
}

fn check(disk: &SimFileSystem, path: &Path, expected: &Expected) -> Report {
    verify(disk, path, expected, &ComparatorRegistry::default(), &mut |_| {}).unwrap()
}

fn read(disk: &SimFileSystem, path: &Path) -> Vec<Row> {
    let report = check(disk, path, &Expected::default());
    assert!(report.is_sound(), "{:?}", report.damages);
    let file = disk.open(path).unwrap();
    let (mut stream, mut rows) = (SoundRows::of(&*file, path, P).unwrap(), Vec::<Row>::new());
    while let Some(item) = stream.advance() {
        match item {
            Item::Row { key, deletion, .. } => rows.push((key, deletion, Vec::new())),
            Item::Cell(cell) => rows.last_mut().unwrap().2.push(cell),
            Item::Damage(damage) => panic!("{damage}"),
        }
    }
    rows
}

#[test]
fn a_sound_file_streams_its_rows_in_order() {
    for is_super in [false, true] {
        let (disk, rows) = sample(is_super);
        assert_eq!(read(&disk, &path()), rows);
    }
}

#[test]
fn only_data_and_small_rows_cannot_be_made_anew() {
    for is_super in [false, true] {
        let (disk, rows) = sample(is_super);
        let mut lost_something = [0; 2];
        for (handle, kind) in blocks(&*disk, &path()) {
            for offset in [handle.offset + 1, handle.offset + HEAD_LENGTH as u64 + 1] {
                disk.corrupt(&path(), offset, 0x20).unwrap();
                let (salvaged, saved) = save(&disk, is_super);
                disk.corrupt(&path(), offset, 0x20).unwrap();
                match kind {
                    BlockKind::Data => check_subset(&salvaged, &saved, &rows),
                    BlockKind::RowIndex => check_small_rows_lost(&salvaged, &saved, &rows),
                    _ => {
                        assert_eq!(salvaged.losses, [], "{kind:?}");
                        assert_eq!(saved, rows, "{kind:?}");
                    }
                }
                lost_something[usize::from(kind == BlockKind::RowIndex)] +=
                    usize::from(!salvaged.losses.is_empty());
            }
        }
        assert!(lost_something.iter().all(|times| *times > 1), "{lost_something:?}");
    }
}

/// Saved rows were written, and every row that is not there is a small one between those that
/// are told.
fn check_small_rows_lost(salvaged: &Salvaged, saved: &[Row], rows: &[Row]) {
    assert!(saved.iter().all(|row| rows.contains(row)));
    let lost: Vec<_> = rows.iter().filter(|row| !saved.contains(row)).collect();
    let [Loss::Unknown { after, before, .. }, Loss::Counted { rows, cells }] = &salvaged.losses[..]
    else {
        assert_eq!((lost, &*salvaged.losses), (vec![], &[][..]));
        return;
    };
    let of_lost: usize = lost.iter().map(|row| row.2.len()).sum();
    assert_eq!((*rows, *cells), (lost.len() as u64, of_lost as u64));
    for row in lost {
        let key = row.0.key();
        assert!(is_small(row));
        assert!(after.as_ref().is_none_or(|after| after < key), "{key} after {after:?}");
        assert!(before.as_ref().is_none_or(|before| key < before), "{key} before {before:?}");
    }
}

/// Saved cells were written, every lost cell is counted, and every deletion is there.
fn check_subset(salvaged: &Salvaged, saved: &[Row], rows: &[Row]) {
    let cells = |rows: &[Row]| rows.iter().map(|(.., cells)| cells.len() as u64).sum::<u64>();
    for (key, deletion, saved_cells) in saved {
        let (_, written, written_cells) = rows.iter().find(|row| row.0 == *key).unwrap();
        assert_eq!(deletion, written);
        assert!(saved_cells.iter().all(|cell| written_cells.contains(cell)));
    }
    let deleted = |rows: &[Row]| rows.iter().filter(|row| !row.1.is_none()).count();
    assert_eq!(deleted(saved), deleted(rows));
    let lost = salvaged.losses.iter().map(|loss| match loss {
        Loss::Cells { lost, .. } => *lost,
        Loss::Unknown { .. } | Loss::Counted { .. } => 0,
    });
    assert_eq!(cells(saved) + lost.sum::<u64>(), cells(rows), "{:?}", salvaged.losses);
    assert_eq!(salvaged.cells, cells(saved));
}

#[test]
fn the_footer_and_what_stands_before_it_can_be_missing() {
    let (disk, rows) = sample(true);
    let found = blocks(&*disk, &path());
    let file = disk.open(&path()).unwrap();
    let size = file.size().unwrap();
    let length = 48;
    file.write_all_at(&vec![0xee; length], size - length as u64).unwrap();
    let (salvaged, saved) = save(&disk, true);
    assert_eq!((salvaged.losses, saved), (vec![], rows.clone()));
    // Where the properties are missing as well nobody can tell whether there was more.
    for kind in [BlockKind::Properties, BlockKind::Filter, BlockKind::Summary] {
        let (handle, _) = found.iter().find(|(_, found)| *found == kind).unwrap();
        file.set_size(handle.offset).unwrap();
        let (salvaged, saved) = save(&disk, true);
        assert_eq!(saved, rows);
        assert!(matches!(&salvaged.losses[..], [Loss::Unknown { after: Some(_), .. }]));
    }
}

#[test]
fn without_its_index_a_lost_block_is_told_by_its_neighbours() {
    let (disk, rows) = sample(false);
    let found = blocks(&*disk, &path());
    let hit = |kind: BlockKind| {
        for (handle, _) in found.iter().filter(|(_, found)| *found == kind) {
            disk.corrupt(&path(), handle.offset + 25, 1).unwrap();
        }
    };
    hit(BlockKind::RowIndex);
    hit(BlockKind::Properties);
    // Nobody can tell any more how many small rows there were.
    let (salvaged, saved) = save(&disk, false);
    let large: Vec<_> = rows.iter().filter(|row| !is_small(row)).cloned().collect();
    assert_eq!(saved, large);
    assert!(salvaged.losses.iter().all(|loss| matches!(loss, Loss::Unknown { .. })));
    let data: Vec<_> = found.iter().filter(|(_, kind)| *kind == BlockKind::Data).collect();
    // Not beside a block of the index, which is damaged as well.
    let lost = data[3].0.offset;
    disk.corrupt(&path(), lost + 25, 1).unwrap();
    let (salvaged, saved) = save(&disk, false);
    let is_that = |loss: &&Loss| matches!(loss, Loss::Unknown { range, .. } if range.start == lost);
    let told = salvaged.losses.iter().find(is_that).unwrap();
    let Loss::Unknown { after: Some(after), before: Some(before), .. } = told else {
        panic!("{told:?}");
    };
    assert!(after <= before && saved != large);
    assert!(told.to_string().contains("what was there of rows from"));
}

#[test]
fn blocks_of_another_file_within_a_value_are_not_taken_for_blocks() {
    let (inner, _) = sample(false);
    let inner = inner.read(&path()).unwrap();
    let (disk, family) = (disk(), family(false));
    let cells = vec![Cell::live(b"", b"n", &inner, 1)];
    let row = (P.decorate("k".into()), Deletion::NONE, cells);
    let options = sstable::WriterOptions { compression: sstable::Compression::None, ..options(P) };
    samples::write(&*disk, &path(), &family, options, &[row]);
    disk.corrupt(&path(), 8 + 3, 1).unwrap();
    let file = disk.open(&path()).unwrap();
    let scanned: Vec<_> = BlockScan::within(&*file, &Frame::read(&*file).unwrap()).collect();
    let is_skipped = |range: &Range<u64>| range.end - range.start > inner.len() as u64;
    assert!(matches!(&scanned[0], Piece::Damage { range, .. } if is_skipped(range)));
    assert_eq!(scanned.len(), 5, "row index, summary, filter and properties are behind it");
    let (salvaged, saved) = save(&disk, false);
    assert_eq!(saved, []);
    let [Loss::Cells { lost: 1, of: 1, .. }, Loss::Counted { rows: 1, cells: 1 }] =
        &salvaged.losses[..]
    else {
        panic!("{:?}", salvaged.losses);
    };
}

#[test]
fn rows_and_cells_out_of_order_go_to_further_files() {
    let (disk, family) = (disk(), family(false));
    let mut number = 0;
    let paths = || {
        number += 1;
        Ok(Path::new(FOLDER).join(format!("cf-{number}.sst")))
    };
    let mut writer = split_writer(&disk, &family, paths);
    let [a, b] = ["a", "b"].map(|key| P.decorate(key.into()));
    let cell = |name: &str| Cell::live(b"", name.as_bytes(), b"", 1);
    for (key, names) in [(&b, "pqo"), (&a, "x"), (&b, "yy")] {
        writer.begin_row(key, Deletion::at(1, 2)).unwrap();
        names.chars().for_each(|name| writer.push(&cell(&name.to_string())).unwrap());
        writer.end_row().unwrap();
    }
    let files = writer.finish().unwrap();
    let contents: Vec<Vec<(String, usize)>> = files
        .iter()
        .map(|file| read(&disk, &file.path))
        .map(|rows| rows.iter().map(|row| (row.0.key().to_string(), row.2.len())).collect())
        .collect();
    let row = |key: &str, cells| (key.to_owned(), cells);
    let expected =
        [vec![row("b", 2)], vec![row("b", 1)], vec![row("a", 1), row("b", 1)], vec![row("b", 1)]];
    assert_eq!(contents, expected);
}

#[test]
fn files_that_are_not_finished_go_again() {
    let (disk, family) = (disk(), family(false));
    let first = Path::new(FOLDER).join("cf-1.sst");
    let mut paths = [first.clone(), Path::new(FOLDER).join("cf-2.sst")].into_iter();
    let paths = move || Ok(paths.next().unwrap());
    let mut writer = split_writer(&disk, &family, paths);
    for _ in 0..2 {
        writer.begin_row(&P.decorate("k".into()), Deletion::at(1, 2)).unwrap();
        writer.end_row().unwrap();
    }
    assert!(disk.exists(&first));
    drop(writer);
    assert_eq!(disk.list(Path::new(FOLDER)).unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_is_damaged_nothing_is_invented(
        hits in proptest::collection::vec((0usize..10_000, 1usize..200, any::<u8>()), 1..5),
        is_super: bool,
        cut in proptest::option::of(0usize..10_000),
    ) {
        let (disk, rows) = sample(is_super);
        let file = disk.open(&path()).unwrap();
        let size = file.size().unwrap() as usize;
        for (at, length, byte) in hits {
            let at = at % size;
            file.write_all_at(&vec![byte; length.min(size - at)], at as u64).unwrap();
        }
        if let Some(cut) = cut {
            file.set_size((cut % size) as u64).unwrap();
        }
        let (salvaged, saved) = save(&disk, is_super);
        for (key, deletion, cells) in &saved {
            let (_, written, written_cells) = rows.iter().find(|row| row.0 == *key).unwrap();
            prop_assert_eq!(deletion, written);
            prop_assert!(cells.iter().all(|cell| written_cells.contains(cell)));
        }
        let is_whole = saved == rows;
        prop_assert!(is_whole || !salvaged.losses.is_empty(), "a loss is not told");
    }
}
