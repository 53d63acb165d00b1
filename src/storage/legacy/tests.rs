//! Tables that 0.6.13 wrote, and laws for all others.

mod checked;
mod in_place;

use super::*;
use crate::base::fs::FileSystem;
use crate::base::hex::hex;
use crate::kit::disk::{Fault, Operation, SimFileSystem};
use crate::model::cell::{Cell, CellState};
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::Corrupt;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const BLOCK_BYTES: u64 = 64 << 10;

/// Files of data directories of 0.6.13 and their JSON exports, by cluster, keyspace and name.
fn recorded() -> &'static BTreeMap<String, Vec<u8>> {
    static RECORDED: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(unpack);
    &RECORDED
}

fn unpack() -> BTreeMap<String, Vec<u8>> {
    let packed = include_bytes!("../../../tests/data/sstables-0.6.13.txt.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    let file = |line: &str| {
        let (name, hex) = line.split_once(' ').unwrap();
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        let bytes = pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect();
        (name.to_owned(), bytes)
    };
    text.lines().map(file).collect()
}

/// An SSTable that 0.6.13 wrote.
struct Recorded {
    /// Cluster, keyspace and data file.
    name: &'static str,
    file: &'static str,
    family: Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
}

impl Recorded {
    fn all() -> Vec<Self> {
        let tables = recorded().keys().filter(|name| name.ends_with("-Data.db"));
        let table = |name: &'static String| {
            let [cluster, keyspace, file] = name.splitn(3, '/').collect::<Vec<_>>()[..] else {
                panic!("{name}")
            };
            let family = family(keyspace, file.split('-').next().unwrap());
            Self { name, file, family, partitioner: partitioner(cluster) }
        };
        tables.map(table).collect()
    }

    fn part(&self, part: &str) -> &'static [u8] {
        &recorded()[&self.name.replace("Data", part)]
    }

    /// Output of `sstable2json` for it.
    fn json(&self) -> BTreeMap<String, Value> {
        serde_json::from_slice(&recorded()[&self.name.replace(".db", ".json")]).unwrap()
    }
}

fn family(keyspace: &str, name: &str) -> Arc<ColumnFamilySchema> {
    let bytes = Comparator::Bytes;
    let text = Comparator::Utf8;
    let kind = match name {
        "Super1" => ColumnFamilyKind::Super { super_columns: bytes.clone(), columns: bytes },
        "HintsColumnFamily" => ColumnFamilyKind::Super { super_columns: text, columns: bytes },
        "Standard2" | "LocationInfo" => ColumnFamilyKind::Standard { columns: text },
        _ => ColumnFamilyKind::Standard { columns: bytes },
    };
    Arc::new(ColumnFamilySchema::new(keyspace.into(), name.into(), kind))
}

fn partitioner(cluster: &str) -> Partitioner {
    match cluster {
        "opp" => Partitioner::OrderPreserving,
        "copp" => Partitioner::CollatingOrderPreserving,
        _ => Partitioner::Random,
    }
}

/// A disk with a folder `d`.
fn disk() -> Arc<dyn FileSystem> {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all(Path::new("d")).unwrap();
    Arc::new(fs)
}

fn put(fs: &dyn FileSystem, name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new("d").join(name);
    fs.create(&path).unwrap().write_all_at(bytes, 0).unwrap();
    path
}

fn options(partitioner: Partitioner, column_index_bytes: u64) -> TableOptions {
    TableOptions { folder: "d".into(), generation: 7, partitioner, column_index_bytes }
}

/// All of a file, in parts of about so many bytes.
fn parts(
    fs: &dyn FileSystem,
    path: &Path,
    family: &Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
    max_bytes: usize,
) -> Result<Vec<RowPart>, ReadError> {
    let mut reader = TableReader::open(fs, path, Arc::clone(family), partitioner)?;
    std::iter::from_fn(|| reader.next_part(max_bytes).transpose()).collect()
}

/// The cells as `sstable2json` shows them.
fn exported(family: &ColumnFamilySchema, cells: &[Cell]) -> Value {
    let column = |cell: &Cell| {
        json!([hex(cell.name()), hex(cell.value()), cell.timestamp(), !cell.is_live()])
    };
    if !family.is_super() {
        return cells.iter().map(column).collect();
    }
    let mut row = serde_json::Map::new();
    for group in cells.chunk_by(|a, b| a.super_name() == b.super_name()) {
        let is_marker = |cell: &&Cell| cell.state() == CellState::SuperTombstone;
        let deleted_at = group.iter().find(is_marker).map_or(i64::MIN, Cell::timestamp);
        let columns: Vec<_> = group.iter().filter(|cell| !is_marker(cell)).map(column).collect();
        let shown = json!({"deletedAt": deleted_at, "subColumns": columns});
        row.insert(hex(group[0].super_name()), shown);
    }
    Value::Object(row)
}

/// Read, compared with what 0.6.13 itself exported, and written again.
#[test]
fn recorded_tables_are_read_and_written_alike() {
    let mut tables = 0;
    for table in Recorded::all() {
        let Recorded { name, file, ref family, partitioner } = table;
        let (fs, export) = (disk(), table.json());
        let path = put(&*fs, file, table.part("Data"));
        for (time, max_bytes) in [1, 1000, usize::MAX].into_iter().enumerate() {
            let parts = parts(&*fs, &path, family, partitioner, max_bytes).unwrap();
            let mut options = options(partitioner, BLOCK_BYTES);
            options.generation = 100 + time as u64;
            let mut writer =
                TableWriter::create(Arc::clone(&fs), Arc::clone(family), options).unwrap();
            let mut rows: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
            for part in parts {
                let version = RowVersion { deletion: part.deletion, cells: part.cells.clone() };
                writer.push(&part.key, &version).unwrap();
                let row = rows.entry(part.key.key().to_string()).or_default();
                let has = |cell: &Cell| row.iter().any(|other| other.place() == cell.place());
                let repeats = part.cells.first().is_some_and(has);
                row.extend(part.cells.into_iter().skip(usize::from(repeats)));
            }
            let rows: BTreeMap<String, Value> =
                rows.into_iter().map(|(key, cells)| (key, exported(family, &cells))).collect();
            assert!(rows == export, "{name}");
            let written = writer.finish().unwrap().unwrap();
            for ((path, size), part) in written.files.iter().zip(["Index", "Filter", "Data"]) {
                let bytes = fs.read(path).unwrap();
                assert_eq!(*size, bytes.len() as u64);
                assert!(bytes == table.part(part), "{name} {part}");
            }
            assert_eq!(fs.list(Path::new("d")).unwrap().len(), 1 + 3 * (time + 1));
            tables += 1;
        }
    }
    assert_eq!(tables, 18 * 3);
}

/// Reads the next row, which fits one part, without what it deletes itself.
fn next_row(
    reader: &mut TableReader,
    family: &ColumnFamilySchema,
) -> Result<Option<(DecoratedKey, RowVersion)>, ReadError> {
    let Some(part) = reader.next_part(usize::MAX)? else { return Ok(None) };
    assert!(part.is_last);
    Ok(Some((part.key.clone(), part.into_version(family))))
}

#[test]
fn rows_are_what_is_left_of_them() {
    let recorded = recorded();
    let (fs, family) = (disk(), family("Keyspace1", "Standard1"));
    let path = put(&*fs, "x", &recorded["rp/Keyspace1/Standard1-1-Data.db"]);
    let mut reader =
        TableReader::open(&*fs, &path, Arc::clone(&family), Partitioner::Random).unwrap();
    let mut rows = BTreeMap::new();
    while let Some((key, version)) = next_row(&mut reader, &family).unwrap() {
        rows.insert(key.key().to_string(), version);
    }
    let size = fs.read(&path).unwrap().len() as u64;
    assert_eq!(reader.progress(), (size, size));
    let names = |key: &str| {
        let cells = rows[key].cells.iter();
        cells.map(|cell| str::from_utf8(cell.name()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((names("delrow"), rows["delrow"].deletion.marked_for_delete_at), (vec!["y"], 3000));
    assert_eq!(names("onlytomb").len(), 0);
    assert_eq!(names("wide").len(), 300);
    assert!(rows.contains_key("with:colon") && rows.contains_key("café"));
}

/// Two rows of columns, and where the second begins.
fn two_rows() -> (Arc<ColumnFamilySchema>, Vec<u8>, usize) {
    let family = family("Keyspace1", "Standard1");
    let (fs, ordered) = (disk(), Partitioner::OrderPreserving);
    let mut writer =
        TableWriter::create(Arc::clone(&fs), Arc::clone(&family), options(ordered, BLOCK_BYTES))
            .unwrap();
    for key in ["a", "b"] {
        let cells = vec![Cell::live(b"", b"n", b"value", 1), Cell::live(b"", b"o", b"value", 1)];
        let version = RowVersion { deletion: Deletion::NONE, cells };
        writer.push(&ordered.decorate(key.into()), &version).unwrap();
    }
    let written = writer.finish().unwrap().unwrap();
    let data = fs.read(&written.files[2].0).unwrap();
    let second = data.len() / 2;
    (family, data, second)
}

#[test]
fn damage_is_told_with_its_place_and_costs_one_row() {
    let (family, data, second) = two_rows();
    let ordered = Partitioner::OrderPreserving;
    let read = |at: usize, byte: u8| {
        let mut data = data.clone();
        data[at] = byte;
        let fs = disk();
        let path = put(&*fs, "A-1-Data.db", &data);
        let mut reader = TableReader::open(&*fs, &path, Arc::clone(&family), ordered).unwrap();
        let error = loop {
            match next_row(&mut reader, &family) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no damage was found at {at}"),
                Err(ReadError::Corrupt(error)) => break error,
                Err(error) => panic!("{error}"),
            }
        };
        let mut left = 0;
        while next_row(&mut reader, &family).unwrap().is_some() {
            left += 1;
        }
        (error, left)
    };
    let path = Path::new("d/A-1-Data.db");
    let (error, left) = read(3, 0x80);
    assert_eq!(error, Corrupt::new(path, 7, "a row is longer than the rest of the file"));
    assert_eq!(left, 0, "nobody knows where the next row begins");
    let (error, left) = read(data.len() - 5 - 4, 0x80);
    let offset = data.len() as u64 - 5 - 4 - 8 - 1 - 3;
    let row = Some("b".into());
    assert_eq!(error, Corrupt { row, ..Corrupt::new(path, offset, "this is no column") });
    assert_eq!(left, 0);
    // The first name of the first row is behind the second then.
    let name_at = second - 2 * (3 + 1 + 8 + 4 + 5) + 2;
    let (error, left) = read(name_at, b'z');
    assert_eq!(error.to_string().rsplit(": ").next(), Some("columns are not in their order"));
    assert_eq!((error.row, left), (Some("a".into()), 1));
}

#[test]
fn damaged_files_are_read_without_panic_or_endless_memory() {
    let (family, data, _) = two_rows();
    let fs = disk();
    for at in 0..data.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut data = data.clone();
            data[at] = byte;
            let name = format!("{at}-{byte}");
            let path = put(&*fs, &name, &data);
            let ordered = Partitioner::OrderPreserving;
            let mut reader = TableReader::open(&*fs, &path, Arc::clone(&family), ordered).unwrap();
            let ends = (0..10).any(|_| matches!(reader.next_part(1), Ok(None)));
            assert!(ends, "{name}");
            fs.remove_file(&path).unwrap();
        }
        let path = put(&*fs, "cut", &data[..at]);
        let read = parts(&*fs, &path, &family, Partitioner::OrderPreserving, 1);
        assert_eq!(read.is_ok(), at == 0 || at == data.len() / 2, "{at}");
        fs.remove_file(&path).unwrap();
    }
}

#[test]
fn what_is_out_of_order_is_refused_and_leaves_no_files() {
    let (fs, ordered) = (disk(), Partitioner::OrderPreserving);
    let create = || {
        let family = family("Keyspace1", "Standard1");
        TableWriter::create(Arc::clone(&fs), family, options(ordered, 1)).unwrap()
    };
    let version = |name: &[u8]| RowVersion {
        deletion: Deletion::NONE,
        cells: vec![Cell::live(b"", name, b"v", 1)],
    };
    let key = |key: &str| ordered.decorate(key.into());
    let mut writer = create();
    writer.push(&key("b"), &version(b"n")).unwrap();
    assert!(matches!(writer.push(&key("a"), &version(b"n")), Err(WriteError::OutOfOrder)));
    assert!(matches!(writer.finish(), Err(WriteError::Incomplete)));
    let mut writer = create();
    writer.push(&key("b"), &version(b"n")).unwrap();
    assert!(matches!(writer.push(&key("b"), &version(b"n")), Err(WriteError::OutOfOrder)));
    drop(writer);
    let mut writer = create();
    writer.push(&key("b"), &RowVersion::default()).unwrap();
    assert_eq!(writer.finish().unwrap(), None, "there is nothing to say of the row");
    assert_eq!(fs.list(Path::new("d")).unwrap(), []);
}

/// Wider than what is kept in memory. A super column that began in the file ends in memory.
#[test]
fn a_wide_row_waits_in_a_file() {
    let (fs, family) = (disk(), family("Keyspace1", "Super1"));
    let ordered = Partitioner::OrderPreserving;
    let create = Arc::clone(&fs);
    let mut writer =
        TableWriter::create(create, Arc::clone(&family), options(ordered, BLOCK_BYTES)).unwrap();
    let key = ordered.decorate("wide".into());
    let mut row = RowBuilder::in_memory(Arc::clone(&family), BLOCK_BYTES);
    let value = vec![b'v'; 100_000];
    for i in 0..100u32 {
        let super_name = if i < 2 { b"a" } else { b"b" };
        let cells = vec![
            Cell::super_tombstone(super_name, Deletion::at(1, 7)),
            Cell::live(super_name, &i.to_be_bytes(), &value, 2),
        ];
        let version = RowVersion { deletion: Deletion::NONE, cells };
        writer.push(&key, &version).unwrap();
        row.push_version(&version).unwrap();
    }
    let has_spool = |fs: &dyn FileSystem| {
        fs.list(Path::new("d")).unwrap().iter().any(|entry| entry.name.contains("Columns"))
    };
    assert!(has_spool(&*fs));
    let written = writer.finish().unwrap().unwrap();
    assert!(!has_spool(&*fs));
    let mut expected = Vec::new();
    let body = row.finish().unwrap();
    let mut take = |bytes: &[u8]| {
        expected.extend_from_slice(bytes);
        Ok::<_, WriteError>(())
    };
    body.read(&mut take).unwrap();
    assert_eq!(expected.len() as u64, body.length());
    assert!(fs.read(&written.files[2].0).unwrap().ends_with(&expected));
    let parts = parts(&*fs, &written.files[2].0, &family, ordered, 1).unwrap();
    let cells: Vec<usize> = parts.iter().map(|part| part.cells.len()).collect();
    // The deletions alone first, then each column with that of its super column.
    assert_eq!((cells.len(), cells.iter().sum::<usize>()), (102, 202));
}

#[test]
fn a_table_that_cannot_be_finished_leaves_no_files() {
    let (family, _, _) = two_rows();
    let ordered = Partitioner::OrderPreserving;
    let cells = vec![Cell::live(b"", b"n", b"value", 1)];
    let version = RowVersion { deletion: Deletion::NONE, cells };
    let write = |fs: &SimFileSystem| {
        let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
        let mut writer =
            TableWriter::create(fs, Arc::clone(&family), options(ordered, BLOCK_BYTES))?;
        writer.push(&ordered.decorate("a".into()), &version)?;
        writer.finish()
    };
    for operation in [
        Operation::Create,
        Operation::Write,
        Operation::Read,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncDir,
    ] {
        for skip in 0.. {
            let fs = SimFileSystem::new(1);
            fs.create_dir_all(Path::new("d")).unwrap();
            fs.inject(Fault::nth(operation, skip, Errno::IO));
            let written = write(&fs);
            let left = fs.list(Path::new("d")).unwrap().len();
            if written.is_ok() {
                assert!(skip > 0 && left == 3, "{operation:?} {skip}");
                break;
            }
            assert_eq!(left, 0, "{operation:?} {skip}");
        }
    }
}

fn cells(is_super: bool) -> impl Strategy<Value = Vec<Cell>> {
    let name = || vec(b'a'..b'd', 1..3);
    let cell = (name(), name(), 0i64..5, 1i32..5, vec(0u8.., 0..30), 0..4u8);
    let cell = cell.prop_map(move |(super_name, name, at, time, value, kind)| {
        let super_name = if is_super { super_name } else { Vec::new() };
        match kind {
            0 if is_super => Cell::super_tombstone(&super_name, Deletion::at(at, time)),
            1 => Cell::tombstone(&super_name, &name, Deletion::at(at, time)),
            _ => Cell::live(&super_name, &name, &value, at),
        }
    });
    vec(cell, 0..30).prop_map(|mut cells| {
        let place = |cell: &Cell| (cell.super_name().to_vec(), cell.name().to_vec());
        cells.sort_by_key(place);
        cells.dedup_by_key(|cell| place(cell));
        cells
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the parts, in which rows are written and read, the bytes are the same and so are
    /// the rows.
    #[test]
    fn rows_are_read_back(
        (name, rows) in prop_oneof![
            (Just("Standard1"), vec(cells(false), 1..4)),
            (Just("Super1"), vec(cells(true), 1..4)),
        ],
        deletions in vec((0..3i64, 0..3i32), 4),
        cut in 1usize..5,
        block_bytes in 1u64..100,
        max_bytes in 1usize..200,
    ) {
        let (fs, family) = (disk(), family("Keyspace1", name));
        let ordered = Partitioner::OrderPreserving;
        let mut written = Vec::new();
        for chunk in [usize::MAX, cut] {
            let mut options = options(ordered, block_bytes);
            options.generation = chunk.min(100) as u64;
            let mut writer =
                TableWriter::create(Arc::clone(&fs), Arc::clone(&family), options).unwrap();
            for (i, (cells, (at, time))) in rows.iter().zip(&deletions).enumerate() {
                let key = ordered.decorate(format!("key{i}").as_str().into());
                let deletion = Deletion::at(*at, *time);
                writer.push(&key, &RowVersion { deletion, cells: Vec::new() }).unwrap();
                for cells in cells.chunks(chunk) {
                    let version = RowVersion { deletion, cells: cells.to_vec() };
                    writer.push(&key, &version).unwrap();
                }
            }
            let table = writer.finish().unwrap().unwrap();
            prop_assert_eq!(table.rows, rows.len() as u64);
            written.push(table.files.map(|(path, _)| fs.read(&path).unwrap()));
        }
        prop_assert_eq!(&written[0], &written[1]);
        let path = put(&*fs, "x", &written[0][2]);
        let mut reader =
            TableReader::open(&*fs, &path, Arc::clone(&family), ordered).unwrap();
        let (mut whole, mut key): (Vec<(RowVersion, bool)>, Option<DecoratedKey>) =
            (Vec::new(), None);
        while let Some(part) = reader.next_part(max_bytes).unwrap() {
            if key.replace(part.key.clone()) != Some(part.key) {
                whole.push((RowVersion::default(), false));
            }
            let (row, is_last) = whole.last_mut().unwrap();
            let one = RowVersion { deletion: part.deletion, cells: part.cells };
            prop_assert!(!*is_last);
            *is_last = part.is_last;
            *row = RowVersion::merge(&family, [&*row, &one]);
        }
        let expected: Vec<_> = rows
            .into_iter()
            .zip(deletions)
            .map(|(cells, (at, time))| {
                let version = RowVersion { deletion: Deletion::at(at, time), cells };
                (RowVersion::merge(&family, [&version]), true)
            })
            .collect();
        prop_assert_eq!(whole, expected);
    }
}
