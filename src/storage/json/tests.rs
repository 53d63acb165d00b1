use super::*;
use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;
use crate::model::cell::{Cell, Expiry};
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::range_deletion::encode_range;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::ring::Partitioner;
use crate::storage::caches::BlockCache;
use crate::storage::sstable::tests::samples::{FOLDER, Row, disk, family, options, rows, write};
use crate::storage::sstable::{SsTable, WrittenFile};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const P: Partitioner = Partitioner::OrderPreserving;

/// Output of `sstable2json` of 0.6.13 for a super column family.
const ORIGINAL_SUPER: &str = "{\n  \"super1\": { \
    \"736330\": {\"deletedAt\": -9223372036854775808, \"subColumns\": \
    [[\"636f6c30\", \"763030\", 1000, false], [\"636f6c31\", \"763031\", 1000, false]]}, \
    \"736331\": {\"deletedAt\": 2000, \"subColumns\": \
    [[\"6e6577\", \"616c697665\", 3000, false]]}, \
    \"736332\": {\"deletedAt\": -9223372036854775808, \"subColumns\": \
    [[\"636f6c30\", \"6affc2fe\", 2000, true]]}}\n}\n";

/// Its output for a standard one, in the order of `RandomPartitioner`.
const ORIGINAL_STANDARD: &str = "{
  \"emoji\u{1f600}\": [[\"656d707479\", \"\", 1001, false], [\"6e616d65\", \"76\", 1000, false]],
  \"caf\u{e9}\": [[\"656d707479\", \"\", 1001, false]],
  \"user1\": [[\"6e616d65\", \"6affc2fd\", 2000, true]],
  \"with:colon\": [[\"6e616d65\", \"76\", 1000, false]],
  \"onlytomb\": [],
  \"delrow\": [[\"78\", \"31\", 1000, false], [\"79\", \"32\", 4000, false]]
}
";

struct Rig {
    fs: Arc<dyn FileSystem>,
    disk: Arc<SimFileSystem>,
    family: Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
}

impl Rig {
    fn new(is_super: bool, partitioner: Partitioner) -> Self {
        let disk = disk();
        Self { fs: Arc::clone(&disk) as _, disk, family: family(is_super), partitioner }
    }

    fn path(number: u64) -> PathBuf {
        Path::new(FOLDER).join(format!("cf-{number}.sst"))
    }

    fn import(&self, text: &str) -> Result<Imported, ImportError> {
        self.import_in_runs_of(1 << 20, text)
    }

    fn import_in_runs_of(&self, bytes: usize, text: &str) -> Result<Imported, ImportError> {
        let importer = Importer {
            fs: &self.fs,
            family: &self.family,
            options: options(self.partitioner),
            now_micros: 1_300_000_000_000_000,
        };
        let mut number = 10;
        let mut next = || {
            number += 1;
            Ok(Self::path(number))
        };
        let mut open = || Ok(Box::new(Cursor::new(text.as_bytes().to_vec())) as Box<dyn Read>);
        importer.import_in_runs_of(bytes, &mut open, &mut next, &mut |_| {})
    }

    fn export(&self, files: &[PathBuf], selection: &Selection, shape: Shape) -> (String, Exported) {
        let cache = Arc::new(BlockCache::new(0));
        let open = |path: &PathBuf| SsTable::open(&self.fs, path, 0, self.partitioner, &cache);
        let tables: Vec<_> = files.iter().map(|path| open(path).unwrap()).collect();
        let (what, mut out) = ((&*self.family, self.partitioner), Vec::new());
        let exported = export(&tables, what, (selection, shape), &mut out, &mut |_| {}).unwrap();
        (String::from_utf8(out).unwrap(), exported)
    }

    fn export_all(&self, file: &WrittenFile) -> String {
        let (text, exported) =
            self.export(std::slice::from_ref(&file.path), &Selection::default(), Shape::Full);
        assert_eq!(exported.damaged.len(), 0);
        text
    }

    fn write(&self, number: u64, rows: &[Row]) -> PathBuf {
        let path = Self::path(number);
        write(&*self.fs, &path, &self.family, options(self.partitioner), rows);
        path
    }
}

fn refusal(rig: &Rig, text: &str) -> String {
    let text = rig.import(text).unwrap_err().to_string();
    let files = rig.disk.list(Path::new(FOLDER)).unwrap();
    assert_eq!(files, [], "nothing is left of what was refused");
    text
}

#[test]
fn raw_control_characters_in_keys_are_taken_as_the_original_takes_them() {
    let rig = Rig::new(false, Partitioner::OrderPreserving);
    let text = "{\"a\tb\\\"\0\": [[\"61\", \"62\", 1, false]], \"c\": []}";
    let imported = rig.import(text).unwrap();
    let text = rig.export_all(&imported.file.unwrap());
    assert!(text.contains(r#""a\tb\"\u0000": ["#), "{text}");
}

#[test]
fn backslashes_in_keys_that_begin_no_escape_are_taken_as_the_original_takes_them() {
    for (key, exported) in [
        (r"C:\dir\x", r"C:\\dir\\x"),
        (r"u\u12", r"u\\u12"),
        (r"u\u00e4\u00E", r"uä\\u00E"),
        (r"\\d\/\q", r"\\d/\\q"),
        ("a\\\tb", r"a\\\tb"),
    ] {
        let rig = Rig::new(false, Partitioner::OrderPreserving);
        let text = format!("{{\"{key}\": [[\"61\", \"62\", 1, false]]}}");
        let imported = rig.import(&text).unwrap();
        let text = rig.export_all(&imported.file.unwrap());
        assert!(text.contains(&format!("\"{exported}\": [")), "{text}");
    }
    let rig = Rig::new(false, Partitioner::OrderPreserving);
    assert!(refusal(&rig, r#"{"a\""#).contains("EOF"));
}

#[test]
fn what_the_original_has_written_is_imported_and_written_alike() {
    let rig = Rig::new(true, Partitioner::Random);
    let imported = rig.import(ORIGINAL_SUPER).unwrap();
    assert_eq!((imported.rows, imported.cells), (1, 5));
    let file = imported.file.unwrap();
    let (text, exported) =
        rig.export(std::slice::from_ref(&file.path), &Selection::default(), Shape::Original);
    assert_eq!(text, ORIGINAL_SUPER);
    assert_eq!(exported.left_out, 1);
    let full = rig.export_all(&file);
    let now = "{\"deletedAt\": 2000, \"localDeletionTime\": 1300000000, \"subColumns\"";
    assert!(full.contains(now), "{full}");

    let rig = Rig::new(false, Partitioner::Random);
    let imported = rig.import(ORIGINAL_STANDARD).unwrap();
    assert_eq!((imported.rows, imported.cells), (6, 7));
    let expected = ORIGINAL_STANDARD.replace("  \"onlytomb\": [],\n", "");
    assert_eq!(rig.export_all(&imported.file.unwrap()), expected);
}

#[test]
fn everything_comes_back_through_json() {
    for partitioner in Partitioner::ALL {
        for is_super in [false, true] {
            let rig = Rig::new(is_super, partitioner);
            let path = rig.write(1, &rows(&rig.family, partitioner));
            let (text, exported) = rig.export(&[path], &Selection::default(), Shape::Full);
            assert_eq!((exported.rows, exported.left_out), (7, 0));
            let imported = rig.import(&text).unwrap().file.unwrap();
            assert_eq!(rig.export_all(&imported), text);
            let properties = &imported.properties;
            assert_eq!((properties.rows, properties.cells), (7, 27 + u64::from(is_super)));
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }
}

#[test]
fn the_shape_is_this() {
    let rig = Rig::new(false, P);
    let row = |key: &[u8], deletion, cells| (P.decorate(RowKey::new(key)), deletion, cells);
    let rows = [
        row(b"a \"b\"\n", Deletion::NONE, vec![Cell::live(b"", b"n", b"v", -1)]),
        row(b"d", Deletion::at(5, 6), vec![Cell::tombstone(b"", b"n", Deletion::at(7, 8))]),
        row(b"e", Deletion::at(9, 10), vec![]),
        row(b"\xff", Deletion::NONE, vec![Cell::live(b"", b"n", b"", 1)]),
    ];
    let path = rig.write(1, &rows);
    let (text, _) = rig.export(std::slice::from_ref(&path), &Selection::default(), Shape::Full);
    let expected = "{
  \"a \\\"b\\\"\\n\": [[\"6e\", \"76\", -1, false]],
  \"d\": [{\"deletedAt\": 5, \"localDeletionTime\": 6}, [\"6e\", \"00000008\", 7, true]],
  \"e\": [{\"deletedAt\": 9, \"localDeletionTime\": 10}],
  \"\\u0000hex:ff\": [[\"6e\", \"\", 1, false]]
}
";
    assert_eq!(text, expected);
    let (text, exported) = rig.export(&[path], &Selection::default(), Shape::Original);
    assert!(text.contains("\"e\": [],"), "{text}");
    assert_eq!(exported.left_out, 2);

    let rig = Rig::new(true, P);
    let cells =
        vec![Cell::super_tombstone(b"s", Deletion::at(1, 2)), Cell::live(b"t", b"", b"", 3)];
    let path = rig.write(1, &[row(b"k", Deletion::at(5, 6), cells)]);
    let (text, _) = rig.export(&[path], &Selection::default(), Shape::Full);
    let expected = "{
  \"k\": { \"deletedAt\": 5, \"localDeletionTime\": 6, \"73\": {\"deletedAt\": 1, \
                    \"localDeletionTime\": 2, \"subColumns\": []}, \
                    \"74\": {\"deletedAt\": -9223372036854775808, \
                    \"subColumns\": [[\"\", \"\", 3, false]]}}
}
";
    assert_eq!(text, expected);
    assert_eq!(rig.export_all(&rig.import(&text).unwrap().file.unwrap()), text);
}

#[test]
fn cells_that_0_6_does_not_have_come_back() {
    for (is_super, within, ranges) in [(false, &b""[..], &b"\0"[..]), (true, b"s", b"")] {
        let rig = Rig::new(is_super, P);
        let range = encode_range((Bound::Excluded(b"b"), Bound::Unbounded));
        let mut cells = vec![Cell::range_tombstone((ranges, &range), Deletion::at(3, 4))];
        if is_super {
            cells.push(Cell::super_tombstone(b"", Deletion::at(1, 2)));
        }
        cells.push(Cell::prefix_tombstone((within, b"c"), Deletion::at(5, 6)));
        let expiry = Expiry { ttl: 60, at: 1 << 33 };
        cells.push(Cell::expiring((within, b"c\0e"), b"v", 7, expiry));
        let row = (P.decorate("k".into()), Deletion::NONE, cells.clone());
        let path = [rig.write(1, &[row])];
        let (text, _) = rig.export(&path, &Selection::default(), Shape::Full);
        let imported = rig.import(&text).unwrap().file.unwrap();
        assert_eq!(rig.export_all(&imported), text);
        assert_eq!(imported.properties.cells, cells.len() as u64);
        assert!(text.contains("[\"630065\", \"76\", 7, false, 60, 8589934592]"), "{text}");
        let (text, exported) = rig.export(&path, &Selection::default(), Shape::Original);
        assert!(!text.contains("630065"), "{text}");
        assert_eq!(exported.left_out, cells.len() as u64);
    }
}

#[test]
fn rows_are_chosen_by_their_exact_keys() {
    let rig = Rig::new(false, Partitioner::Random);
    let path = [rig.write(1, &rows(&rig.family, Partitioner::Random))];
    let keys = |text: &str| -> BTreeSet<String> {
        let rows: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        rows.keys().cloned().collect()
    };
    let set = |keys: &[&str]| keys.iter().map(|key| RowKey::from(*key)).collect();
    let chosen = |wanted: &[&str], excluded: &[&str]| {
        let selection = Selection { keys: set(wanted), excluded: set(excluded) };
        keys(&rig.export(&path, &selection, Shape::Full).0)
    };
    assert_eq!(chosen(&["wide", "no such row", "small"], &[]).len(), 2);
    assert_eq!(chosen(&["no such row"], &[]).len(), 0);
    assert_eq!(chosen(&["wide", "small"], &["small"]), BTreeSet::from(["wide".to_owned()]));
    assert_eq!(chosen(&[], &["small", "wide"]).len(), 5);
}

#[test]
fn several_files_are_merged_as_reads_merge_them() {
    let rig = Rig::new(false, P);
    let row = |value: &[u8], at, deletion| {
        (P.decorate("k".into()), deletion, vec![Cell::live(b"", b"n", value, at)])
    };
    let files = [
        rig.write(1, &[row(b"old", 1, Deletion::NONE)]),
        rig.write(2, &[row(b"new", 2, Deletion::at(1, 9))]),
    ];
    let (text, exported) = rig.export(&files, &Selection::default(), Shape::Full);
    assert_eq!(exported.rows, 1);
    let column = "[\"6e\", \"6e6577\", 2, false]";
    assert!(text.contains(&format!("[{{\"deletedAt\": 1, \"localDeletionTime\": 9}}, {column}]")));
}

#[test]
fn a_row_that_cannot_be_read_is_told_and_the_others_are_written() {
    let rig = Rig::new(true, P);
    let path = rig.write(1, &rows(&rig.family, P));
    let blocks = crate::storage::sstable::tests::samples::blocks(&*rig.fs, &path);
    let mut data = blocks.iter().filter(|(_, kind)| kind.name() == "data");
    let (handle, _) = data.next_back().unwrap();
    rig.disk.corrupt(&path, handle.offset + 30, 1).unwrap();
    let (text, exported) = rig.export(&[path], &Selection::default(), Shape::Full);
    assert_eq!(exported.damaged.len(), 1);
    assert_eq!(exported.damaged[0].0, RowKey::from("wide"));
    let rows: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.len(), 7);
}

#[test]
fn what_has_another_shape_is_refused_with_its_line() {
    let (standard, sup) = (Rig::new(false, P), Rig::new(true, P));
    let cases = [
        (&standard, ORIGINAL_SUPER, 2, "an array of columns"),
        (&sup, ORIGINAL_STANDARD, 2, "an object of super columns"),
        (&standard, "[]", 1, "an object of rows"),
        (&standard, "{\n\n\"k\": [[\"6e\", \"76\", 1]]}", 3, "[name, value, timestamp, deleted]"),
        (&standard, "{\"k\": [[\"6e\", \"76\", 1, false, 7]]}", 1, "a column is [name"),
        (&standard, "{\"k\": [[\"6e\", \"76\", 1.5, false]]}", 1, "invalid type: floating point"),
        (&standard, "{\"k\": [[\"6e\", \"76\", 9223372036854775808, false]]}", 1, "invalid value"),
        (&standard, "{\"k\": [[\"6e\", \"7\", 1, false]]}", 1, "a value is hexadecimal"),
        (&standard, "{\"k\": [[\"xx\", \"76\", 1, false]]}", 1, "a name is hexadecimal"),
        (&standard, "{\"k\": [[\"6e\", \"76\", 1, true]]}", 1, "its local deletion time, 4 bytes"),
        (&standard, "{\"\": []}", 1, "a row cannot have this key"),
        (
            &standard,
            "{\"k\": [[\"6e\", \"76\", 1, false], {\"deletedAt\": 1, \
            \"localDeletionTime\": 1}]}",
            1,
            "stands before its columns",
        ),
        (&standard, "{\"k\": [[\"6e\", \"76\", 1, false]", 1, "EOF while parsing"),
        (&standard, "{\"k\": []} x", 1, "trailing characters"),
        (&sup, "{\"k\": {\"73\": {\"columns\": []}}}", 1, "unknown field `columns`"),
        (&sup, "{\"k\": {\"\": {\"subColumns\": [[\"6e\", \"\", 1, false]]}}}", 1, "this name"),
    ];
    for (rig, text, line, reason) in cases {
        let refusal = refusal(rig, text);
        let start = format!("Invalid JSON input, or incorrect column family. Line {line}, ");
        assert!(refusal.starts_with(&start) && refusal.contains(reason), "{reason}: {refusal}");
    }
}

#[test]
fn names_are_checked_by_the_comparator() {
    let mut rig = Rig::new(false, P);
    let (keyspace, name) = ("ks".to_owned(), "cf".to_owned());
    let kind = ColumnFamilyKind::Standard { columns: Comparator::Long };
    rig.family = Arc::new(ColumnFamilySchema::new(keyspace, name, kind));
    let text = refusal(&rig, "{\"k\": [[\"6e\", \"76\", 1, false]]}");
    assert!(text.ends_with("A long is exactly 8 bytes"), "{text}");
    rig.import("{\"k\": [[\"0000000000000001\", \"76\", 1, false]]}").unwrap();
}

#[test]
fn rows_that_hold_nothing_leave_nothing() {
    let rig = Rig::new(false, P);
    for text in ["{}", "{\"k\": []}", "{\n}\n"] {
        assert!(rig.import(text).unwrap().file.is_none());
    }
    assert_eq!(rig.disk.list(Path::new(FOLDER)).unwrap(), []);
}

#[test]
fn a_full_disk_leaves_nothing_and_says_so() {
    let rig = Rig::new(false, P);
    rig.disk.set_capacity(Some(100));
    for bytes in [1 << 20, 1] {
        let error = rig.import_in_runs_of(bytes, ORIGINAL_STANDARD).unwrap_err();
        assert!(matches!(error, ImportError::Output(_)), "{error}");
        assert_eq!(rig.disk.list(Path::new(FOLDER)).unwrap(), []);
    }
}

/// Rows and columns as somebody else may have written them: in any order, and more than once.
fn shuffled() -> impl Strategy<Value = Vec<(u8, Vec<(u8, i64)>)>> {
    let columns = proptest::collection::vec((0u8..9, 0i64..5), 0..8);
    proptest::collection::vec((0u8..9, columns), 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_gives_what_the_order_gives(rows in shuffled(), run_bytes in 1usize..4000) {
        let text = |rows: &[(u8, Vec<(u8, i64)>)]| {
            let rows: Vec<String> = rows.iter().map(|(key, columns)| {
                let columns: Vec<String> = columns
                    .iter()
                    .map(|(name, at)| format!("[\"{name:02x}\", \"{at:02x}\", {at}, false]"))
                    .collect();
                format!("\"{key}\": [{}]", columns.join(", "))
            }).collect();
            format!("{{{}}}", rows.join(", "))
        };
        let rig = Rig::new(false, Partitioner::Random);
        let imported = rig.import_in_runs_of(run_bytes, &text(&rows)).unwrap();
        let mut expected = std::collections::BTreeMap::<(u8, u8), i64>::new();
        for (key, columns) in &rows {
            for (name, at) in columns {
                let newest = expected.entry((*key, *name)).or_insert(*at);
                *newest = (*newest).max(*at);
            }
        }
        let mut found = std::collections::BTreeMap::new();
        if let Some(file) = &imported.file {
            let text = rig.export_all(file);
            let rows: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&text).unwrap();
            for (key, columns) in &rows {
                for column in columns.as_array().unwrap() {
                    let name = u8::from_str_radix(column[0].as_str().unwrap(), 16).unwrap();
                    found.insert((key.parse().unwrap(), name), column[2].as_i64().unwrap());
                }
            }
            let files = rig.disk.list(Path::new(FOLDER)).unwrap();
            prop_assert_eq!(files.len(), 1, "runs that were merged are gone");
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_text_does_harm(text: String, at in 0usize..400, with in ".{0,3}") {
        let rig = Rig::new(true, Partitioner::Random);
        let _ = rig.import(&text);
        let mut damaged = ORIGINAL_SUPER.to_owned();
        let at = at % damaged.len();
        damaged.replace_range(at..(at + with.len()).min(damaged.len()), &with);
        let _ = rig.import(&damaged);
    }
}
