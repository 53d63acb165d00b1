//! Whole SSTables, written and read back in every way.

use super::entry::Extents;
use super::scan::{BlockScan, Frame, Piece};
pub(in crate::storage) mod samples;

use super::*;
use crate::base::fs::{FileSystem, OsFileSystem};
use crate::kit::disk::SimFileSystem;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::model::slice::{CellBound, CellRange};
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::caches::BlockCache;
use crate::storage::error::ReadError;
use proptest::prelude::*;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Rows = Vec<(DecoratedKey, Deletion, Vec<Cell>)>;

struct Fixture {
    directory: tempfile::TempDir,
    fs: Arc<dyn FileSystem>,
    cache: Arc<BlockCache>,
    family: ColumnFamilySchema,
    partitioner: Partitioner,
}

fn options(partitioner: Partitioner) -> WriterOptions {
    let compression = Compression::Lz4;
    WriterOptions { block_bytes: 256, index_interval: 4, compression, partitioner }
}

impl Fixture {
    fn new(is_super: bool, partitioner: Partitioner) -> Self {
        let columns = Comparator::Bytes;
        let kind = if is_super {
            ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns }
        } else {
            ColumnFamilyKind::Standard { columns }
        };
        Self {
            directory: tempfile::tempdir().unwrap(),
            fs: Arc::new(OsFileSystem),
            cache: Arc::new(BlockCache::new(1 << 20)),
            family: ColumnFamilySchema::new("ks".into(), "cf".into(), kind),
            partitioner,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("cf-1.sst")
    }

    fn write(&self, rows: &Rows) -> Properties {
        let options = options(self.partitioner);
        let (fs, count) = (&*self.fs, rows.len() as u64);
        let mut writer =
            SsTableWriter::create(fs, &self.path(), &self.family, options, count, 0).unwrap();
        for (key, deletion, cells) in rows {
            writer.begin_row(key, *deletion);
            for cell in cells {
                writer.push(cell).unwrap();
            }
            writer.end_row().unwrap();
        }
        let WrittenFile { properties, bytes, .. } = writer.finish().unwrap();
        assert_eq!(bytes, fs.open(&self.path()).unwrap().size().unwrap());
        properties
    }

    fn open(&self) -> Result<SsTable, ReadError> {
        SsTable::open(&self.fs, &self.path(), 1, self.partitioner, &self.cache)
    }

    fn key(&self, key: &str) -> DecoratedKey {
        self.partitioner.decorate(RowKey::from(key))
    }

    fn cells(
        &self,
        table: &SsTable,
        entry: &RowEntry,
        range: CellRange<'_>,
        reversed: bool,
    ) -> Result<Vec<Cell>, ReadError> {
        let blocks = Blocks::new(table, Access::Cached);
        let mut cursor = CellCursor::new(&self.family, entry, range, reversed, &blocks);
        let mut cells = Vec::new();
        while let Some(cell) = cursor.advance()? {
            cells.push(cell);
        }
        Ok(cells)
    }
}

/// Rows of very different widths: from a mere deletion to some with a column index of two levels.
fn any_rows() -> impl Strategy<Value = Vec<(u16, bool, usize, u8)>> {
    let width = prop_oneof![4 => 0usize..6, 2 => 0usize..60, 1 => 200usize..3000];
    proptest::collection::vec((0u16..500, any::<bool>(), width, 0u8..40), 0..40)
}

fn build(fixture: &Fixture, drafts: Vec<(u16, bool, usize, u8)>) -> Rows {
    let is_super = fixture.family.is_super();
    let mut rows: Rows = drafts
        .into_iter()
        .map(|(number, deleted, width, value)| {
            let deleted = deleted || width == 0;
            let deletion = if deleted { Deletion::at(5, 77) } else { Deletion::NONE };
            let cells = (0..width).map(|i| {
                // Even numbers, so that the odd ones fall between cells.
                let name = format!("{:06}", i * 2);
                let (super_name, name) =
                    if is_super { name.split_at(4) } else { ("", name.as_str()) };
                let value = vec![value; value as usize];
                Cell::live(super_name.as_bytes(), name.as_bytes(), &value, i as i64)
            });
            (fixture.key(&format!("row{number}")), deletion, cells.collect())
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.dedup_by(|a, b| a.0 == b.0);
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_is_found_again(
        drafts in any_rows(),
        partitioner in prop::sample::select(Partitioner::ALL.to_vec()),
        is_super: bool,
        (from, to) in (0usize..6100, 0usize..6100),
    ) {
        let fixture = Fixture::new(is_super, partitioner);
        let rows = build(&fixture, drafts);
        let properties = fixture.write(&rows);
        prop_assert_eq!(properties.rows, rows.len() as u64);
        let table = fixture.open().unwrap();
        let [low, high] = [from.min(to), from.max(to)].map(|n| format!("{n:06}"));
        let split = |name: &str| -> (Vec<u8>, Vec<u8>) {
            if is_super {
                (name.as_bytes()[..4].to_vec(), name.as_bytes()[4..].to_vec())
            } else {
                (Vec::new(), name.as_bytes().to_vec())
            }
        };
        let (low, high) = (split(&low), split(&high));
        let range = CellRange {
            from: CellBound::Before(&low.0, &low.1),
            to: CellBound::After(&high.0, &high.1),
        };
        for (key, deletion, cells) in &rows {
            let blocks = Blocks::new(&table, Access::Cached);
            let hash = filter::hash(key.key().as_bytes());
            let entry = table.find(key, hash, &blocks).unwrap().expect("the row was written");
            prop_assert_eq!(entry.deletion, *deletion);
            prop_assert_eq!(entry.cells, cells.len() as u64);
            prop_assert_eq!(&entry.decorated_key(partitioner).unwrap(), key);
            prop_assert_eq!(&fixture.cells(&table, &entry, CellRange::ALL, false).unwrap(), cells);
            let within: Vec<_> = cells
                .iter()
                .filter(|c| (&low.0[..], &low.1[..]) <= c.place())
                .filter(|c| c.place() <= (&high.0[..], &high.1[..]))
                .cloned()
                .collect();
            prop_assert_eq!(&fixture.cells(&table, &entry, range, false).unwrap(), &within);
            let mut backwards = fixture.cells(&table, &entry, range, true).unwrap();
            backwards.reverse();
            prop_assert_eq!(&backwards, &within);
        }
        let absent = fixture.key("no such row");
        let hash = filter::hash(absent.key().as_bytes());
        let found = table.find(&absent, hash, &Blocks::new(&table, Access::Cached));
        prop_assert!(found.unwrap().is_none());
    }

    #[test]
    fn rows_are_walked_in_order_from_any_place(
        drafts in any_rows(), from in 0u16..500, excluded: bool,
    ) {
        let fixture = Fixture::new(false, Partitioner::Random);
        let rows = build(&fixture, drafts);
        fixture.write(&rows);
        let table = fixture.open().unwrap();
        let from = fixture.key(&format!("row{from}"));
        let expected: Vec<_> = rows
            .iter()
            .map(|(key, ..)| key.clone())
            .filter(|key| *key > from || *key == from && !excluded)
            .collect();
        let bound = if excluded { Bound::Excluded(from) } else { Bound::Included(from) };
        let blocks = Blocks::new(&table, Access::Bypass);
        let mut walk = table.rows_from(bound);
        let mut found = Vec::new();
        while let Some(entry) = walk.advance(&blocks).unwrap() {
            found.push(entry.decorated_key(Partitioner::Random).unwrap());
        }
        prop_assert_eq!(found, expected);
    }
}

fn sample_rows(fixture: &Fixture) -> Rows {
    let draft = |i: u16| (i, i.is_multiple_of(7), usize::from(i.saturating_sub(10)) * 5, 9);
    build(fixture, (0..50).map(draft).collect())
}

#[test]
fn cached_reads_say_when_the_disk_is_needed() {
    let disk = SimFileSystem::new(1);
    let fixture = Fixture { fs: Arc::new(disk), ..Fixture::new(false, Partitioner::Random) };
    fixture.fs.create_dir_all(fixture.directory.path()).unwrap();
    let rows = sample_rows(&fixture);
    fixture.write(&rows);
    let table = fixture.open().unwrap();
    let (key, _, cells) = &rows[20];
    let read = |access| -> Result<Vec<Cell>, ReadError> {
        let blocks = Blocks::new(&table, access);
        let hash = filter::hash(key.key().as_bytes());
        let entry = table.find(key, hash, &blocks)?.expect("the row was written");
        let mut cursor = CellCursor::new(&fixture.family, &entry, CellRange::ALL, false, &blocks);
        let mut found = Vec::new();
        while let Some(cell) = cursor.advance()? {
            found.push(cell);
        }
        Ok(found)
    };
    assert!(matches!(read(Access::CachedOnly), Err(ReadError::WouldBlock)));
    assert_eq!(&read(Access::Bypass).unwrap(), cells);
    assert!(matches!(read(Access::CachedOnly), Err(ReadError::WouldBlock)));
    assert_eq!(&read(Access::Cached).unwrap(), cells);
    assert_eq!(&read(Access::CachedOnly).unwrap(), cells);
}

/// Flips one bit of the file and reads everything: an error, or exactly what was written.
fn read_with_flipped_bit(fixture: &Fixture, rows: &Rows, bit: usize) -> Result<bool, ReadError> {
    let original = std::fs::read(fixture.path()).unwrap();
    let mut damaged = original.clone();
    damaged[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(fixture.path(), &damaged).unwrap();
    let check = || -> Result<bool, ReadError> {
        let table = fixture.open()?;
        for (key, deletion, cells) in rows {
            let blocks = Blocks::new(&table, Access::Bypass);
            let hash = filter::hash(key.key().as_bytes());
            let Some(entry) = table.find(key, hash, &blocks)? else { return Ok(false) };
            let found = fixture.cells(&table, &entry, CellRange::ALL, false)?;
            if entry.deletion != *deletion || &found != cells {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let result = check();
    std::fs::write(fixture.path(), &original).unwrap();
    result
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_place_and_never_data() {
    let fixture = Fixture::new(true, Partitioner::OrderPreserving);
    let rows = sample_rows(&fixture);
    fixture.write(&rows);
    let bits = std::fs::metadata(fixture.path()).unwrap().len() as usize * 8;
    for bit in (0..bits).step_by(509) {
        match read_with_flipped_bit(&fixture, &rows, bit) {
            Ok(sound) => assert!(sound, "bit {bit} changed the data"),
            Err(ReadError::Corrupt(corrupt)) => assert_eq!(corrupt.file, fixture.path()),
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
}

#[test]
fn truncated_and_foreign_files_are_refused() {
    let fixture = Fixture::new(false, Partitioner::Random);
    fixture.write(&sample_rows(&fixture));
    let whole = std::fs::read(fixture.path()).unwrap();
    for length in [0, 1, 7, 8, 55, 56, whole.len() / 2, whole.len() - 1] {
        std::fs::write(fixture.path(), &whole[..length]).unwrap();
        assert!(matches!(fixture.open(), Err(ReadError::Corrupt(_))), "{length} bytes");
    }
    std::fs::write(fixture.path(), vec![b'x'; 1000]).unwrap();
    let error = fixture.open().unwrap_err().to_string();
    assert!(error.contains("does not begin like an SSTable"), "{error}");
    std::fs::write(fixture.path(), &whole).unwrap();
    let other = Fixture { partitioner: Partitioner::OrderPreserving, ..fixture };
    assert!(matches!(other.open(), Err(ReadError::OtherPartitioner { .. })));
}

#[test]
fn an_obsolete_file_goes_with_its_last_reader() {
    let fixture = Fixture::new(false, Partitioner::Random);
    fixture.write(&sample_rows(&fixture));
    let table = Arc::new(fixture.open().unwrap());
    let reader = Arc::clone(&table);
    table.mark_obsolete();
    drop(table);
    assert!(Path::exists(&fixture.path()));
    drop(reader);
    assert!(!Path::exists(&fixture.path()));
}

#[test]
fn a_row_of_long_names_has_an_index_of_many_levels() {
    let fixture = Fixture::new(false, Partitioner::OrderPreserving);
    let key = fixture.key("wide");
    let name = |i: usize| format!("{}{i:06}", "n".repeat(3000)).into_bytes();
    let cells: Vec<_> = (0..2000).map(|i| Cell::live(b"", &name(2 * i), b"v", 1)).collect();
    fixture.write(&vec![(key.clone(), Deletion::NONE, cells.clone())]);
    let table = fixture.open().unwrap();
    let blocks = Blocks::new(&table, Access::Cached);
    let entry = table.find(&key, filter::hash(b"wide"), &blocks).unwrap().unwrap();
    let extents = &entry.block_cells().unwrap().extents;
    let Extents::ColumnIndex(root) = extents else { panic!("{extents:?}") };
    assert!(root.levels >= 4, "{root:?}");
    assert_eq!(fixture.cells(&table, &entry, CellRange::ALL, false).unwrap(), cells);
    for at in [0, 1, 2, 777, 1998, 1999] {
        for (exact, first) in [(2 * at, at), (2 * at + 1, at + 1)] {
            let from = name(exact);
            let range = CellRange { from: CellBound::Before(b"", &from), to: CellBound::Last };
            let found = fixture.cells(&table, &entry, range, false).unwrap();
            assert_eq!(found, &cells[first..], "from {exact}");
            let range = CellRange { from: CellBound::First, to: CellBound::After(b"", &from) };
            let mut found = fixture.cells(&table, &entry, range, true).unwrap();
            found.reverse();
            assert_eq!(found, &cells[..=at], "up to {exact}");
        }
    }
}

/// All pieces of a file of these rows, after these bytes of it were changed.
fn scan(fixture: &Fixture, damage: &[usize]) -> Vec<Piece> {
    let mut bytes = std::fs::read(fixture.path()).unwrap();
    for at in damage {
        bytes[*at] ^= 0x10;
    }
    std::fs::write(fixture.path(), bytes).unwrap();
    let file = fixture.fs.open(&fixture.path()).unwrap();
    BlockScan::within(&*file, &Frame::read(&*file).unwrap()).collect()
}

#[test]
fn a_scan_finds_every_block_and_goes_on_behind_damage() {
    let fixture = Fixture::new(false, Partitioner::Random);
    fixture.write(&sample_rows(&fixture));
    let pieces = scan(&fixture, &[]);
    let ends = |pieces: &[Piece]| -> Vec<_> {
        let end = |piece: &Piece| match piece {
            Piece::Block { handle, .. } => handle.range().end,
            Piece::Damage { range, .. } => range.end,
        };
        pieces.iter().map(end).collect()
    };
    assert!(pieces.iter().all(|piece| matches!(piece, Piece::Block { .. })));
    let size = std::fs::metadata(fixture.path()).unwrap().len();
    assert_eq!(*ends(&pieces).last().unwrap(), size - FOOTER_LENGTH as u64);
    let Piece::Block { handle, .. } = &pieces[3] else { panic!("{:?}", pieces[3]) };
    // In its head, so that it does not even tell its length any more.
    let damaged = scan(&fixture, &[handle.offset as usize + 3]);
    assert_eq!(ends(&damaged), ends(&pieces));
    assert!(matches!(&damaged[3], Piece::Damage { range, .. } if range.start == handle.offset));
}

#[test]
fn rows_that_are_copied_make_the_same_file() {
    for partitioner in [Partitioner::Random, Partitioner::OrderPreserving] {
        let family = samples::family(false);
        let rows = samples::rows(&family, partitioner);
        let (disk, options) = (samples::disk(), samples::options(partitioner));
        let [written, copied] =
            ["cf-1.sst", "cf-2.sst"].map(|name| Path::new(samples::FOLDER).join(name));
        samples::write(&*disk, &written, &family, options.clone(), &rows);
        let count = rows.len() as u64;
        let mut writer =
            SsTableWriter::create(&*disk, &copied, &family, options, count, 7).unwrap();
        let mut stored_rows = 0;
        for row @ (key, deletion, cells) in &rows {
            writer.begin_row(key, *deletion);
            let mut stored = Vec::new();
            for cell in cells {
                cell.encode(&mut stored);
            }
            let is_copied = writer.push_stored(&stored);
            let is_live = cells.iter().all(Cell::is_live);
            assert_eq!(is_copied, samples::is_small(row) && is_live, "{row:?}");
            stored_rows += usize::from(is_copied && !cells.is_empty());
            // What is cut off is no cell, and nothing of it is taken.
            assert!(stored.is_empty() || !writer.push_stored(&stored[..stored.len() - 1]));
            for cell in cells.iter().filter(|_| !is_copied) {
                writer.push(cell).unwrap();
            }
            writer.end_row().unwrap();
        }
        writer.finish().unwrap();
        assert!(stored_rows > 0);
        assert_eq!(disk.read(&copied).unwrap(), disk.read(&written).unwrap());
    }
}
