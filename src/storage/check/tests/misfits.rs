use crate::model::cell::Cell;
use crate::model::comparator::{ComparatorRegistry, composite};
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::table::{Column, ColumnKind, Table};
use crate::model::types::Native;
use crate::ring::Partitioner;
use crate::storage::check::{Expected, find_misfits, verify};
use crate::storage::sstable::tests::samples::{self, FOLDER, Row, disk, family, options};
use std::path::Path;
use std::sync::Arc;

#[test]
fn each_part_of_a_key_and_each_value_of_a_table_made_over_cql_has_its_type() {
    let columns = [
        ("a", Native::Int, ColumnKind::PartitionKey),
        ("b", Native::Text, ColumnKind::PartitionKey),
        ("v", Native::Int, ColumnKind::Regular),
    ];
    let columns = columns.map(|(name, native, kind)| Column::new(name, native.into(), kind));
    let table = Arc::new(Table::of_columns(columns.into(), false));
    let family = Arc::new(ColumnFamilySchema { table, ..(*family(false)).clone() });
    let partitioner = Partitioner::Random;
    let row = |parts: &[&[u8]], value: &[u8]| {
        let key = RowKey::new(&composite::encode(parts.iter().copied(), 0));
        let cells = vec![Cell::live(b"", b"\0", b"", 1), Cell::live(b"", b"v", value, 1)];
        (partitioner.decorate(key), Deletion::NONE, cells)
    };
    let int = 7_i32.to_be_bytes();
    let mut rows: Vec<Row> = vec![
        row(&[&int, b"fits"], &int),
        row(&[b"no", b"key"], &int),
        row(&[&int], &int),
        row(&[&int, b"value"], b"no"),
    ];
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let (disk, path) = (disk(), Path::new(FOLDER).join("cf-1.sst"));
    samples::write(&*disk, &path, &family, options(partitioner), &rows);
    let registry = ComparatorRegistry::default();
    let report = verify(&*disk, &path, &Expected::default(), &registry, &mut |_| {}).unwrap();
    let found = find_misfits(&*disk, &report, (&family, partitioner), &mut |_| {}).unwrap();
    let mut texts: Vec<String> = found
        .listed
        .iter()
        .map(|it| format!("{} {}: {}", it.cell.is_some(), it.of_type, it.reason))
        .collect();
    texts.sort();
    let expected = [
        "false frozen<tuple<int, text>>: It does not have a part for each column",
        "false int: Expected 4 or 0 byte int (2)",
        "true int: Expected 4 or 0 byte int (2)",
    ];
    assert_eq!(texts, expected);
}
