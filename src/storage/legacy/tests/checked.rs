//! Damage of SSTables of the original, as checks tell of it.

use super::in_place::{many_rows, open, walked, write};
use super::*;
use crate::storage::check::{Report, verify_original};

const PATH: &str = "Standard1-7-Data.db";
const ORDERED: Partitioner = Partitioner::OrderPreserving;

/// The three files of an SSTable, by the ends of their names.
type Files = BTreeMap<&'static str, Vec<u8>>;

fn report(files: &Files, family: &Arc<ColumnFamilySchema>, partitioner: Partitioner) -> Report {
    let fs = disk();
    for (part, bytes) in files {
        put(&*fs, &PATH.replace("Data", part), bytes);
    }
    let path = Path::new("d").join(PATH);
    verify_original(&*fs, &path, family, partitioner, &mut |_| {}).unwrap()
}

fn texts(report: &Report) -> Vec<String> {
    report.damages.iter().map(ToString::to_string).collect()
}

/// Rows of many sizes.
fn sample(is_super: bool) -> (Arc<ColumnFamilySchema>, Vec<(DecoratedKey, RowVersion)>, Files) {
    let (family, rows) = many_rows(is_super);
    let fs = disk();
    let data = write(&fs, &family, &rows, 700).display().to_string();
    let parts = ["Data", "Index", "Filter"];
    let read = |part: &str| fs.read(Path::new(&data.replace("Data", part))).unwrap();
    (family, rows, parts.into_iter().map(|part| (part, read(part))).collect())
}

#[test]
fn recorded_tables_are_sound() {
    for table in Recorded::all() {
        let Recorded { name, ref family, partitioner, .. } = table;
        let files = ["Data", "Index", "Filter"].map(|part| (part, table.part(part).to_vec()));
        let report = report(&files.into(), family, partitioner);
        assert!(report.is_sound(), "{name}: {:?}", texts(&report));
        let rows = table.json().len() as u64;
        assert_eq!(report.found.map(|(rows, _)| rows), Some(rows), "{name}");
    }
}

#[test]
fn what_was_written_is_sound() {
    for is_super in [false, true] {
        let (family, rows, files) = sample(is_super);
        let report = report(&files, &family, ORDERED);
        assert!(report.is_sound(), "{:?}", texts(&report));
        let cells: usize = rows.iter().map(|(_, row)| row.cells.len()).sum();
        assert_eq!(report.found, Some((rows.len() as u64, cells as u64)));
        let dead = |(_, row): &(_, RowVersion)| row.cells.iter().filter(|it| !it.is_live()).count();
        assert_eq!(report.tombstones, rows.iter().map(dead).sum::<usize>() as u64);
    }
}

#[test]
fn damage_is_named_and_costs_one_row() {
    let (family, rows, files) = sample(false);
    let starts: Vec<usize> = {
        let index = &files["Index"];
        let entries = index.chunks(2 + 5 + 8);
        entries.map(|it| u64::from_be_bytes(*it.last_chunk().unwrap()) as usize).collect()
    };
    let with = |part, at: usize, byte: u8| {
        let mut files = files.clone();
        files.get_mut(part).unwrap()[at] = byte;
        let report = report(&files, &family, ORDERED);
        (texts(&report).join("\n"), rows.len() as u64 - report.found.unwrap().0)
    };
    let [size, filter] = [7, 7 + 4 + 4].map(|at| starts[3] + at);
    let length = u32::from_be_bytes(*files["Data"][..filter].last_chunk().unwrap());
    let index = filter + length as usize + 4;
    for (part, at, byte, expected, lost) in [
        ("Data", size, 0x7f, "a row is longer than the rest of the file; row \"key03\"", 1),
        ("Data", size + 2, 0, "row is longer than the row; row \"key03\"", 1),
        ("Data", starts[3] + 2, 0xff, "a row key of this partitioner should stand", 1),
        (
            "Data",
            starts[3] + 6,
            b'z',
            "neither that of Index.db nor one of Filter.db; row \"key0z\"",
            1,
        ),
        ("Data", filter, 9, "the filter of the columns of a row cannot be read; row \"key03\"", 0),
        ("Data", index + 1, 9, "column index of a row is not that of its columns; row", 0),
        ("Data", starts[4] - 101, 1, "a row is longer than its columns; row \"key03\"", 0),
        ("Index", 15 * 3 + 6, b'9', "(Index.db): another row begins where it says", 0),
        ("Index", 15 * 3 + 14, 0, "(Index.db): no row begins where it says", 0),
        ("Index", 15 * 3 + 13, 0xff, "(Index.db): an offset is not after", 0),
        ("Filter", 5, 0, "(Filter.db): the filter cannot be read", 0),
    ] {
        let (text, found) = with(part, at, byte);
        assert!(text.contains(expected), "{part} {at}: {text}");
        assert_eq!(found, lost, "{part} {at}: {text}");
    }
    let mut short = files.clone();
    short.get_mut("Data").unwrap().truncate(starts[16]);
    let report_of = |files: &Files| texts(&report(files, &family, ORDERED)).join("\n");
    let text = report_of(&short);
    assert!(text.contains("its index names rows that would come here; row \"key16\""), "{text}");
    let mut bare = files.clone();
    bare.get_mut("Filter").unwrap()[76..116].fill(0);
    bare.remove("Index");
    let text = report_of(&bare);
    assert!(text.contains("cannot open d/Standard1-7-Index.db"), "{text}");
    assert!(text.contains("(Filter.db): it denies rows that are there; rows \"key"), "{text}");
}

/// Reports name damage in every file that reads refuse.
#[test]
fn a_file_that_cannot_be_read_is_not_sound() {
    let (family, _, files) = sample(true);
    for part in ["Data", "Index"] {
        for at in (0..files[part].len()).step_by(if part == "Data" { 4999 } else { 7 }) {
            let mut files = files.clone();
            files.get_mut(part).unwrap()[at] ^= 0x81;
            let fs = disk();
            for (part, bytes) in &files {
                put(&*fs, &PATH.replace("Data", part), bytes);
            }
            let path = Path::new("d").join(PATH);
            let read = open(&fs, &path, &family, ORDERED).and_then(|it| walked(&it, &family));
            let report = report(&files, &family, ORDERED);
            assert!(read.is_ok() || !report.is_sound(), "{part} {at}: {read:?}");
        }
    }
}
