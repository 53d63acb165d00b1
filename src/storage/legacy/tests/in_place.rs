//! SSTables of the original as ours: the same rows by all ways that lead to them.

use super::*;
use crate::model::slice::{CellBound, CellRange};
use crate::storage::caches::BlockCache;
use crate::storage::row::{FoundRow, RowReader};
use crate::storage::rows::MergedRows;
use crate::storage::sstable::{Access, Blocks, CellCursor, SsTable, filter};
use std::collections::BTreeMap;

pub(super) type Rows = BTreeMap<DecoratedKey, (Deletion, Vec<Cell>)>;

/// Rows for each run, in these tests.
const INTERVAL: usize = 5;

pub(super) fn open(
    fs: &Arc<dyn FileSystem>,
    data: &Path,
    family: &Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
) -> Result<SsTable, ReadError> {
    let cache = Arc::new(BlockCache::new(1 << 20));
    SsTable::open_legacy(fs, data, 1, partitioner, &cache, (family, INTERVAL))
}

/// All rows, one after the other.
pub(super) fn walked(table: &SsTable, family: &ColumnFamilySchema) -> Result<Rows, ReadError> {
    let mut rows = Rows::new();
    let mut walk = MergedRows::of_whole(std::slice::from_ref(table))?;
    while let Some((key, sources)) = walk.advance()? {
        let key = key.clone();
        let reader = RowReader::of_everything(family, sources);
        let mut cells = reader.cells(CellRange::ALL, false)?;
        let mut row = (reader.deletion(), Vec::new());
        while let Some(cell) = cells.advance()? {
            row.1.push(cell);
        }
        assert!(rows.insert(key, row).is_none());
    }
    Ok(rows)
}

/// The cells of a row within a range, found by its key.
fn found(
    table: &SsTable,
    family: &ColumnFamilySchema,
    key: &DecoratedKey,
    (range, reversed): (CellRange<'_>, bool),
    access: Access,
) -> Result<Option<Vec<Cell>>, ReadError> {
    let hash = filter::hash(key.key().as_bytes());
    if !table.may_contain(key, hash) {
        return Ok(None);
    }
    let blocks = [Blocks::new(table, access)];
    let rows = FoundRow::find_all(&blocks, key, hash)?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut cursor = CellCursor::new(family, &row.entry, range, reversed, &blocks[0]);
    Ok(Some(std::iter::from_fn(|| cursor.advance().transpose()).collect::<Result<_, _>>()?))
}

/// Every recorded file, with its index, with none, and with a wrong one.
#[test]
fn recorded_tables_are_read_where_they_lie() {
    for recorded in Recorded::all() {
        let Recorded { name, file, ref family, partitioner } = recorded;
        let (index, export) = (recorded.part("Index"), recorded.json());
        let mut identities = Vec::new();
        for index in [Some(index), None, Some(&index[..index.len() - 1])] {
            let fs = disk();
            let path = put(&*fs, file, recorded.part("Data"));
            if let Some(index) = index {
                put(&*fs, &file.replace("Data", "Index"), index);
            }
            let table = open(&fs, &path, family, partitioner).unwrap();
            let rows = walked(&table, family).unwrap();
            let json: BTreeMap<String, Value> = rows
                .iter()
                .map(|(key, (_, cells))| (key.key().to_string(), exported(family, cells)))
                .collect();
            assert!(json == export, "{name}");
            for (key, (_, cells)) in &rows {
                let all = (CellRange::ALL, false);
                let row = found(&table, family, key, all, Access::Cached).unwrap();
                assert_eq!(row.as_ref(), Some(cells));
            }
            assert_eq!(table.rows(), rows.len() as u64);
            assert_eq!(table.last_key(), rows.keys().next_back());
            identities.push(table.identity());
        }
        identities.dedup();
        assert_eq!(identities.len(), 1, "the index follows from the data");
    }
}

/// Rows of many sizes: in their entries, in blocks, with a column index, alone in a run.
pub(super) fn many_rows(
    is_super: bool,
) -> (Arc<ColumnFamilySchema>, Vec<(DecoratedKey, RowVersion)>) {
    let family = family("Keyspace1", if is_super { "Super1" } else { "Standard1" });
    let sizes = [0, 1, 3, 40, 200, 1, 2, 900, 2000, 5, 5, 5, 5, 5, 5, 5, 300];
    let row = |(number, columns): (usize, &u16)| {
        let key = Partitioner::OrderPreserving.decorate(format!("key{number:02}").as_str().into());
        let mut cells = Vec::new();
        for column in 0..*columns {
            let (name, value) = (column.to_be_bytes(), vec![column as u8; 100]);
            let super_name: &[u8] = if is_super { &name[..1] } else { b"" };
            if is_super && column % 256 == 0 && column % 512 == 0 {
                cells.push(Cell::super_tombstone(super_name, Deletion::at(column.into(), 9)));
            }
            cells.push(match column % 7 {
                3 => Cell::tombstone(super_name, &name, Deletion::at(5, 7)),
                _ => Cell::live(super_name, &name, &value, column.into()),
            });
        }
        let deletion = if number % 3 == 0 { Deletion::at(2, 3) } else { Deletion::NONE };
        (key, RowVersion { deletion, cells })
    };
    (family, sizes.iter().enumerate().map(row).collect())
}

pub(super) fn write(
    fs: &Arc<dyn FileSystem>,
    family: &Arc<ColumnFamilySchema>,
    rows: &[(DecoratedKey, RowVersion)],
    block_bytes: u64,
) -> PathBuf {
    let options = options(Partitioner::OrderPreserving, block_bytes);
    let mut writer = TableWriter::create(Arc::clone(fs), Arc::clone(family), options).unwrap();
    for (key, version) in rows {
        writer.push(key, version).unwrap();
    }
    let [.., (data, _)] = writer.finish().unwrap().unwrap().files;
    data
}

#[test]
fn rows_of_all_sizes_are_found_whole_and_in_parts() {
    for is_super in [false, true] {
        let (family, rows) = many_rows(is_super);
        for block_bytes in [1, 700, 5000, 64 << 10] {
            let fs = disk();
            let path = write(&fs, &family, &rows, block_bytes);
            let table = open(&fs, &path, &family, Partitioner::OrderPreserving).unwrap();
            let expected: Rows = rows
                .iter()
                .map(|(key, row)| (key.clone(), (row.deletion, row.cells.clone())))
                .collect();
            assert!(walked(&table, &family).unwrap() == expected, "{block_bytes}");
            for (key, row) in &rows {
                for reversed in [false, true] {
                    for (from, to) in [(0, 1), (1, 2), (0, row.cells.len()), (30, 45), (250, 600)] {
                        let to = to.min(row.cells.len());
                        let wanted = row.cells.get(from..to).unwrap_or_default();
                        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
                            continue;
                        };
                        let range = CellRange {
                            from: CellBound::Before(first.super_name(), first.name()),
                            to: CellBound::After(last.super_name(), last.name()),
                        };
                        let mut wanted = wanted.to_vec();
                        if reversed {
                            wanted.reverse();
                        }
                        let range = (range, reversed);
                        let cells = found(&table, &family, key, range, Access::Cached).unwrap();
                        assert!(cells == Some(wanted), "{key:?} {from}..{to} {block_bytes}");
                    }
                }
            }
            let absent = Partitioner::OrderPreserving.decorate("absent".into());
            let all = (CellRange::ALL, false);
            assert_eq!(found(&table, &family, &absent, all, Access::Cached).unwrap(), None);
        }
    }
}

/// Any byte of a file may be another one: what is read is what was written, but for the content of
/// cells, or it is told that the file is damaged.
#[test]
fn nothing_wrong_is_read_in_silence() {
    let (family, rows) = many_rows(true);
    let rows = &rows[..5];
    let fs = disk();
    let path = write(&fs, &family, rows, 700);
    let (data, index) =
        (fs.read(&path).unwrap(), fs.read(&path.with_file_name("Super1-7-Index.db")));
    let keys: Vec<_> = rows.iter().map(|(key, _)| key.clone()).collect();
    let check = |data: &[u8], index: &[u8], what: &str| {
        let fs = disk();
        let path = put(&*fs, "Super1-7-Data.db", data);
        put(&*fs, "Super1-7-Index.db", index);
        let read = open(&fs, &path, &family, Partitioner::OrderPreserving)
            .and_then(|table| walked(&table, &family));
        match read {
            Ok(read) => assert!(read.keys().eq(&keys), "{what}"),
            Err(ReadError::Corrupt(corrupt)) => assert_eq!(corrupt.file, path, "{what}"),
            Err(error) => panic!("{what}: {error}"),
        }
    };
    let index = index.unwrap();
    let changed = |bytes: &[u8], at: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        bytes
    };
    for at in (0..data.len()).filter(|at| *at < 500 || at % 7 == 0) {
        for byte in [0, 0x41, 0x7f, 0x80, 0xff] {
            check(&changed(&data, at, byte), &index, &format!("data {at} {byte}"));
        }
        check(&data[..at], &index, &format!("data up to {at}"));
    }
    for at in 0..index.len() {
        for byte in [0, 0x41, 0x7f, 0x80, 0xff] {
            check(&data, &changed(&index, at, byte), &format!("index {at} {byte}"));
        }
        check(&data, &index[..at], &format!("index up to {at}"));
    }
}

/// A change to a file: bytes that were written over, lost, or put in from elsewhere in it.
#[derive(Debug, Clone)]
enum Edit {
    Overwrite(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize, usize),
}

impl Edit {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            (any::<usize>(), vec(any::<u8>(), 1..9)).prop_map(|(at, new)| Self::Overwrite(at, new)),
            (any::<usize>(), 1usize..200).prop_map(|(at, length)| Self::Remove(at, length)),
            (any::<usize>(), 1usize..200, any::<usize>())
                .prop_map(|(from, length, to)| Self::Repeat(from, length, to)),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let all = bytes.len().max(1);
        let range = |at: usize, length: usize| at % all..(at % all + length).min(bytes.len());
        match self {
            Self::Overwrite(at, new) => {
                let range = range(*at, new.len());
                let length = range.len();
                bytes[range].copy_from_slice(&new[..length]);
            }
            Self::Remove(at, length) => drop(bytes.drain(range(*at, *length))),
            Self::Repeat(from, length, to) => {
                let copy = bytes[range(*from, *length)].to_vec();
                let to = to % (bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
        }
    }
}

proptest! {
    /// Whatever happens to the files, reads end, and with rows in order or with the damage.
    #[test]
    fn changed_files_are_read_or_named(
        at in any::<proptest::sample::Index>(),
        of_data in vec(Edit::any(), 0..4),
        of_index in vec(Edit::any(), 0..3),
    ) {
        let tables = Recorded::all();
        let recorded = at.get(&tables);
        let Recorded { file, ref family, partitioner, .. } = *recorded;
        let (mut data, mut index) =
            (recorded.part("Data").to_vec(), recorded.part("Index").to_vec());
        for edit in of_data {
            edit.apply(&mut data);
        }
        for edit in of_index {
            edit.apply(&mut index);
        }
        let fs = disk();
        let path = put(&*fs, file, &data);
        put(&*fs, &file.replace("Data", "Index"), &index);
        let read = open(&fs, &path, family, partitioner).and_then(|table| {
            let rows = walked(&table, family)?;
            for (key, (_, cells)) in &rows {
                let row = found(&table, family, key, (CellRange::ALL, false), Access::Cached)?;
                assert_eq!(row.as_ref(), Some(cells));
                found(&table, family, key, (CellRange::ALL, true), Access::Cached)?;
            }
            Ok(())
        });
        match read {
            Ok(()) => {}
            Err(ReadError::Corrupt(damage)) => prop_assert_eq!(damage.file, path),
            Err(error) => panic!("{error}"),
        }
    }
}
