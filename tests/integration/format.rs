//! Data that an earlier version has written are served by this one. The formats of SSTables,
//! manifests and the commit log are frozen: a change of any of them needs another version number,
//! and code that still reads the old one.
//!
//! `cargo test --test integration format -- --ignored` writes `tests/data/format-3.gz` again, which
//! is right only as long as nobody has data of this version.
//!
//! In format 2 a manifest has version 2, and names its column family and node. All else is as in
//! format 1. In format 3 SSTables have version 2, the commit log has version 3, and both may hold
//! cells that 0.6 does not have.

use crate::server::calls::{self, Column, Entry, Path as ColumnPath, STANDARD, SUPER};
use crate::server::client::Client;
use crate::server::{Options, Server, program};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All formats, the present one last.
const FORMATS: [&str; 3] =
    ["tests/data/format-1.gz", "tests/data/format-2.gz", "tests/data/format-3.gz"];

/// Parts of a server's directory that are data.
const FOLDERS: [&str; 2] = ["data", "commitlog"];

fn configuration() -> Options {
    calls::plain_families().with("CommitLogRotationThresholdInMB", "1")
}

/// A row as its readers get it.
struct Row {
    key: String,
    family: &'static str,
    entries: Vec<Entry>,
}

fn columns(count: usize, value: &str) -> Vec<Column> {
    let column = |number| Column {
        name: format!("column {number:05}").into_bytes(),
        value: format!("{value} {number}").into_bytes(),
        timestamp: 1000 + number as i64,
    };
    (0..count).map(column).collect()
}

fn row(key: &str, count: usize, value: &str) -> Row {
    let entries = columns(count, value).into_iter().map(Entry::Column).collect();
    Row { key: key.into(), family: STANDARD, entries }
}

/// Rows to flush: small ones, one with a column index, one of super columns.
fn flushed() -> Vec<Row> {
    let super_column = |number: usize| {
        let name = format!("super column {number:03}").into_bytes();
        Entry::Super(name, columns(1 + number % 5, "below"))
    };
    let entries = (0..100).map(super_column).collect();
    let mut rows: Vec<Row> = (0..40).map(|n| row(&format!("small {n}"), 1 + n, "little")).collect();
    rows.push(row("wide", 3000, "one of many values, each of them of some length"));
    rows.push(Row { key: "super".into(), family: SUPER, entries });
    rows
}

/// Rows that stay in the commit log alone.
fn logged() -> Vec<Row> {
    (0..20).map(|n| row(&format!("logged {n}"), 1 + n, "not flushed")).collect()
}

/// A column that expires in the year 2242, and what the deletions of a range and of a prefix hide.
const LATER_CELLS: &str = r#"{ "later": [
    ["0500016161", "00000001", 9, "range"], ["61", "76", 5, false],
    ["63", "00000001", 9, "prefix"], ["630061", "76", 5, false],
    ["65", "76", 5, false, 60, 8589934592]
] }"#;

/// Columns that are seen of that.
fn later() -> [Row; 1] {
    let column = Column { name: b"e".to_vec(), value: b"v".to_vec(), timestamp: 5 };
    [Row { key: "later".into(), family: STANDARD, entries: vec![Entry::Column(column)] }]
}

fn import_later_cells(directory: &Path) {
    fs::write(directory.join("rows.json"), LATER_CELLS).unwrap();
    let import = ["sstable", "import", "--config", ".", "-K", calls::KEYSPACE, "-c", STANDARD];
    let mut command = Command::new(program());
    let imported = command.args(import).arg("rows.json").current_dir(directory).output().unwrap();
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
}

fn write(client: &mut Client, rows: &[Row]) {
    for Row { key, family, entries } in rows {
        for some in entries.chunks(500) {
            let value =
                |column: &Column| calls::column(&column.name, &column.value, column.timestamp);
            let insertion = |entry: &Entry| {
                calls::insertion(match entry {
                    Entry::Column(column) => calls::entry(None, vec![value(column)]),
                    Entry::Super(name, columns) => {
                        calls::entry(Some(name), columns.iter().map(value).collect())
                    }
                })
            };
            let mutations = some.iter().map(insertion).collect();
            let families = vec![((*family).to_owned(), mutations)];
            client.batch_mutate(vec![(key.clone(), families)]).unwrap();
        }
    }
}

/// Writes what will not be there any more: whole rows, columns, and a super column.
fn write_what_goes(client: &mut Client) {
    let gone = [row("gone", 3, "gone"), row("small 7", 1, "before")];
    write(client, &gone);
    let more = calls::insertion(calls::entry(None, vec![calls::column(b"zz", b"gone", 5)]));
    client.batch_mutate(vec![("small 3".into(), vec![(STANDARD.into(), vec![more])])]).unwrap();
    let below = calls::entry(Some(b"zz"), vec![calls::column(b"zz", b"gone", 5)]);
    let families = vec![(SUPER.to_owned(), vec![calls::insertion(below)])];
    client.batch_mutate(vec![("super".into(), families)]).unwrap();
}

fn remove_what_goes(client: &mut Client) {
    let whole = |family, super_column| ColumnPath { family, super_column, column: None };
    client.remove("gone", whole(STANDARD, None), 9999).unwrap();
    client.remove("small 3", ColumnPath::column(STANDARD, b"zz"), 6).unwrap();
    client.remove("super", whole(SUPER, Some(b"zz")), 6).unwrap();
}

#[track_caller]
fn check(client: &mut Client, rows: &[Row]) {
    for Row { key, family, entries } in rows {
        let found = client.get_slice(key, family, calls::first(calls::ALL, false)).unwrap();
        assert_eq!(&found, entries, "{key}");
    }
    let gone = client.get_slice("gone", STANDARD, calls::first(calls::ALL, false)).unwrap();
    assert_eq!(gone, []);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// All files one after the other: a line with name and length, and the content.
fn pack(directory: &Path, to: &Path) {
    let mut packed = GzEncoder::new(fs::File::create(to).unwrap(), Compression::best());
    for path in FOLDERS.iter().flat_map(|folder| files(&directory.join(folder))) {
        let content = fs::read(&path).unwrap();
        let name = path.strip_prefix(directory).unwrap();
        writeln!(packed, "{} {}", content.len(), name.display()).unwrap();
        packed.write_all(&content).unwrap();
    }
    packed.finish().unwrap();
}

fn unpack(from: &Path, directory: &Path) {
    let mut packed = BufReader::new(GzDecoder::new(fs::File::open(from).unwrap()));
    let mut line = String::new();
    while packed.read_line(&mut line).unwrap() > 0 {
        let (length, name) = line.trim_end().split_once(' ').unwrap();
        let mut content = vec![0; length.parse().unwrap()];
        packed.read_exact(&mut content).unwrap();
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        line.clear();
    }
}

fn fixture(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format)
}

#[test]
fn data_of_every_format_are_served() {
    for format in FORMATS {
        check_format(format);
    }
}

fn check_format(format: &str) {
    let directory = tempfile::tempdir().unwrap();
    unpack(&fixture(format), directory.path());
    let is_table = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sst");
    let tables: Vec<_> =
        files(&directory.path().join("data")).into_iter().filter(is_table).collect();
    assert!(tables.len() > 3, "{tables:?}");
    let verified = Command::new(program()).args(["sstable", "verify"]).args(&tables).output();
    let verified = verified.unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let mut server = Server::start(directory.path(), &configuration());
    for _ in 0..2 {
        let mut client = Client::connect(server.thrift_address());
        check(&mut client, &flushed());
        check(&mut client, &logged());
        if format == FORMATS[2] {
            check(&mut client, &later());
        }
        // From files that this version has written, the second time.
        assert!(server.stop().success());
        server.restart();
    }
}

#[test]
#[ignore = "writes the data that the other test reads"]
fn write_the_present_format() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &configuration());
    // An orderly stop flushes everything.
    let flush = |server: &mut Server| {
        assert!(server.stop().success());
        server.restart();
        Client::connect(server.thrift_address())
    };
    let mut client = Client::connect(server.thrift_address());
    write_what_goes(&mut client);
    drop(client);
    assert!(server.stop().success());
    import_later_cells(directory.path());
    server.restart();
    client = Client::connect(server.thrift_address());
    write(&mut client, &flushed());
    remove_what_goes(&mut client);
    client = flush(&mut server);
    write(&mut client, &logged());
    check(&mut client, &flushed());
    check(&mut client, &logged());
    check(&mut client, &later());
    server.kill();
    pack(directory.path(), &fixture(FORMATS[2]));
}
