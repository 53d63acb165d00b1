//! SSTables for tests: small, and with everything that a file can have in it.

use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::sstable::block::{self, BlockHandle, BlockKind, Compression};
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use crate::storage::sstable::{SsTableWriter, WriterOptions};
use std::path::Path;
use std::sync::Arc;

/// A row: its deletion and its cells.
pub(in crate::storage) type Row = (DecoratedKey, Deletion, Vec<Cell>);

/// Folder of samples.
pub(in crate::storage) const FOLDER: &str = "/data/ks";

/// A file system in memory with the folder of the samples.
pub(in crate::storage) fn disk() -> Arc<SimFileSystem> {
    let disk = SimFileSystem::new(1);
    disk.create_dir_all(Path::new(FOLDER)).unwrap();
    disk.sync_everything();
    Arc::new(disk)
}

/// A column family of names that are bytes.
pub(in crate::storage) fn family(is_super: bool) -> Arc<ColumnFamilySchema> {
    let columns = Comparator::Bytes;
    let kind = if is_super {
        ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns }
    } else {
        ColumnFamilyKind::Standard { columns }
    };
    let (keyspace, name) = ("ks".to_owned(), "cf".to_owned());
    Arc::new(ColumnFamilySchema::new(keyspace, name, kind))
}

/// Very small blocks, so that there are many.
pub(in crate::storage) fn options(partitioner: Partitioner) -> WriterOptions {
    let compression = Compression::Lz4;
    WriterOptions { block_bytes: 128, index_interval: 3, compression, partitioner }
}

/// A row with a column index, small rows, rows that are deleted with and without cells, and
/// tombstones of columns and super columns.
pub(in crate::storage) fn rows(family: &ColumnFamilySchema, partitioner: Partitioner) -> Vec<Row> {
    let is_super = family.is_super();
    let sup = |name: &str| if is_super { name.to_owned() } else { String::new() };
    let live = |sup: &str, name: &str, at| {
        Cell::live(sup.as_bytes(), name.as_bytes(), format!("value of {name}").as_bytes(), at)
    };
    let mut wide: Vec<Cell> =
        (0..20).map(|i| live(&sup(&format!("s{}", i / 8)), &format!("c{i:02}"), i)).collect();
    if is_super {
        wide.insert(8, Cell::super_tombstone(b"s1", Deletion::at(3, 1_300_000_000)));
    }
    let dead = |name: &str| {
        Cell::tombstone(sup("s").as_bytes(), name.as_bytes(), Deletion::at(40, 1_300_000_007))
    };
    let drafts = [
        ("wide", Deletion::NONE, wide),
        ("small", Deletion::NONE, vec![live(&sup("s"), "name", 50)]),
        ("also \"small\"", Deletion::NONE, vec![dead("a"), live(&sup("s"), "b", -5)]),
        ("deleted", Deletion::at(60, 1_300_000_001), vec![]),
        ("deleted and written", Deletion::at(70, 1_300_000_002), vec![live(&sup("s"), "z", 71)]),
        ("covered", Deletion::at(80, 1_300_000_003), vec![live(&sup("s"), "old", 9)]),
        ("another", Deletion::NONE, vec![live(&sup("s"), "x", 1), live(&sup("s"), "y", 2)]),
    ];
    let row = |(key, deletion, cells): (&str, _, _)| {
        (partitioner.decorate(RowKey::from(key)), deletion, cells)
    };
    let mut rows: Vec<Row> = drafts.into_iter().map(row).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

/// Whether a row stands in the row index, under these options.
pub(in crate::storage) fn is_small(row: &Row) -> bool {
    let bytes: usize = row.2.iter().map(Cell::encoded_length).sum();
    bytes <= 128 / 4
}

/// Writes rows to a file.
pub(in crate::storage) fn write(
    fs: &dyn FileSystem,
    path: &Path,
    family: &ColumnFamilySchema,
    options: WriterOptions,
    rows: &[Row],
) {
    let count = rows.len() as u64;
    let mut writer = SsTableWriter::create(fs, path, family, options, count, 7).unwrap();
    for (key, deletion, cells) in rows {
        writer.begin_row(key, *deletion);
        for cell in cells {
            writer.push(cell).unwrap();
        }
        writer.end_row().unwrap();
    }
    writer.finish().unwrap();
}

/// The blocks of a sound file.
pub(in crate::storage) fn blocks(
    fs: &dyn FileSystem,
    path: &Path,
) -> Vec<(BlockHandle, BlockKind)> {
    let file = fs.open(path).unwrap();
    let blocks =
        BlockScan::within(&*file, &Frame::read(&*file).unwrap()).map(|piece| match piece {
            Piece::Block { handle, kind, .. } => (handle, kind),
            damage @ Piece::Damage { .. } => panic!("{damage:?}"),
        });
    blocks.collect()
}

/// Changes the payload of a block that is not compressed, and makes its checksums right again.
pub(in crate::storage) fn tamper(
    fs: &dyn FileSystem,
    path: &Path,
    handle: BlockHandle,
    kind: BlockKind,
    change: impl FnOnce(&mut Vec<u8>),
) {
    let file = fs.open(path).unwrap();
    let length = handle.length as usize - block::FRAME_LENGTH;
    let mut payload = vec![0; length];
    file.read_exact_at(&mut payload, handle.offset + block::HEAD_LENGTH as u64).unwrap();
    change(&mut payload);
    let mut sealed = Vec::new();
    block::Sealer::default().seal(kind, Compression::None, &payload, handle.offset, &mut sealed);
    assert_eq!(sealed.len(), handle.length as usize, "the block keeps its length");
    file.write_all_at(&sealed, handle.offset).unwrap();
}
