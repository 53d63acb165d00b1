//! Nobody ever sees half of a row mutation. One writer gives all columns of a row one value, again
//! and again, while readers look at the row in every way there is, across flushes and compactions.
//!
//! `ALEXANDRA_ROUNDS` says how often the writer writes each row.

use crate::server::Server;
use crate::server::calls::{self, Entry, STANDARD, SUPER};
use crate::server::client::{Client, Value};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const DEFAULT_ROUNDS: i64 = 400;

/// The writer goes on until the readers have seen so many rounds, on however busy a machine,
const SEEN_ROUNDS: usize = 10;

/// but writes no more than so many times the rounds that it was to write.
const PATIENCE: i64 = 50;

const KEY: &str = "one row";

/// How a writer replaces all columns.
#[derive(Debug, Clone, Copy)]
enum Write {
    BatchInsert,
    BatchMutate,
    /// Deletes the row and writes it anew in one mutation: no reader finds it empty.
    DeleteAndInsert,
}

/// A row whose columns always agree.
#[derive(Debug, Clone, Copy)]
struct Shape {
    family: &'static str,
    super_columns: usize,
    /// In each super column, or in the row.
    columns: usize,
}

/// As many columns as the oldest promise of this kind named, more of them than stand together in
/// memory, and super columns.
const SHAPES: [Shape; 3] = [
    Shape { family: STANDARD, super_columns: 0, columns: 100 },
    Shape { family: STANDARD, super_columns: 0, columns: 700 },
    Shape { family: SUPER, super_columns: 10, columns: 10 },
];

impl Shape {
    fn columns(self) -> usize {
        self.columns * self.super_columns.max(1)
    }

    /// Every column with this value, as entries of a row.
    fn entries(self, value: &[u8], timestamp: i64) -> Vec<Value> {
        let column = |number| calls::column(&name(number), value, timestamp);
        let columns = || (0..self.columns).map(column);
        if self.super_columns == 0 {
            return columns().map(|column| calls::entry(None, vec![column])).collect();
        }
        let super_column = |number| calls::entry(Some(&name(number)), columns().collect());
        (0..self.super_columns).map(super_column).collect()
    }

    fn write(self, client: &mut Client, write: Write, round: i64) {
        let value = format!("round {round}");
        // A deletion comes with the timestamp before.
        let timestamp = round * 2;
        let entries = self.entries(value.as_bytes(), timestamp);
        let family = self.family.to_owned();
        let mutations: Vec<Value> = match write {
            Write::BatchInsert => {
                return client.batch_insert(KEY, vec![(family, entries)]).unwrap();
            }
            Write::BatchMutate => entries.into_iter().map(calls::insertion).collect(),
            Write::DeleteAndInsert => {
                let deletion = calls::deletion(None, None, timestamp - 1);
                entries.into_iter().map(calls::insertion).chain([deletion]).collect()
            }
        };
        client.batch_mutate(vec![(KEY.into(), vec![(family, mutations)])]).unwrap();
    }

    /// Reads all columns in one of several ways.
    fn read(self, client: &mut Client, way: usize) -> Vec<Entry> {
        let names: Vec<[u8; 2]> = (0..self.super_columns.max(self.columns)).map(name).collect();
        let mut rows = match way % 5 {
            0 => {
                return client
                    .get_slice(KEY, self.family, calls::first(calls::ALL, false))
                    .unwrap();
            }
            1 => {
                return client.get_slice(KEY, self.family, calls::first(calls::ALL, true)).unwrap();
            }
            2 => {
                let names = calls::by_names(names.iter().map(<[u8; 2]>::as_slice));
                return client.get_slice(KEY, self.family, names).unwrap();
            }
            3 => client.multiget(&[KEY.into()], self.family).unwrap(),
            _ => client.scan(self.family).unwrap(),
        };
        rows.pop().unwrap().1
    }
}

fn name(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap().to_be_bytes()
}

/// The round in which the row was written, which must be the same for all columns.
fn round_of(shape: Shape, entries: &[Entry]) -> i64 {
    let rounds: BTreeSet<(i64, &[u8])> =
        Entry::columns(entries).map(|c| (c.timestamp / 2, c.value.as_slice())).collect();
    assert_eq!(rounds.len(), 1, "{shape:?}: a reader saw several mutations");
    assert_eq!(Entry::columns(entries).count(), shape.columns(), "{shape:?}: columns are missing");
    let (round, value) = rounds.into_iter().next().unwrap();
    assert_eq!(value, format!("round {round}").as_bytes());
    round
}

/// Reads until told to stop, and counts the different rounds that it sees.
fn watch(server: SocketAddr, shape: Shape, is_done: &AtomicBool, seen: &AtomicUsize) {
    let mut client = Client::connect(server);
    let mut last = 0;
    for way in 0.. {
        let is_last = is_done.load(Ordering::SeqCst);
        let round = round_of(shape, &shape.read(&mut client, way));
        assert!(round >= last, "{shape:?}: round {round} was read after round {last}");
        seen.fetch_add(usize::from(round > last), Ordering::SeqCst);
        last = round;
        if is_last {
            break;
        }
    }
}

/// Sets the flag also when the writer panics, so that the readers end.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes a number of rounds from the first on, while others read. Returns the next round.
fn write_under_readers(
    server: &Server,
    shape: Shape,
    write: Write,
    (first, count): (i64, i64),
) -> i64 {
    let address = server.thrift_address();
    let (is_done, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut client = Client::connect(address);
    // There is a row from the start on, so that a reader who finds none has seen a half.
    shape.write(&mut client, write, first);
    let mut next = first + 1;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| watch(address, shape, &is_done, &seen));
        }
        let _done = SetWhenDropped(&is_done);
        let is_enough = || seen.load(Ordering::SeqCst) > SEEN_ROUNDS;
        while next < first + count || !is_enough() && next < first + count * PATIENCE {
            shape.write(&mut client, write, next);
            next += 1;
        }
    });
    let seen = seen.into_inner();
    assert!(seen > SEEN_ROUNDS, "{shape:?}, {write:?}: readers saw only {seen} rounds");
    let last = round_of(shape, &shape.read(&mut client, 0));
    assert_eq!(last, next - 1, "the last write counts");
    next
}

#[test]
fn a_reader_never_sees_half_of_a_row_mutation() {
    write_all_shapes("");
}

#[test]
fn nor_does_one_that_is_answered_from_the_row_cache() {
    write_all_shapes(r#"RowsCached="100%""#);
}

/// Writes rows of all shapes in all ways under readers. The families have these attributes.
fn write_all_shapes(attributes: &str) {
    let rounds = std::env::var("ALEXANDRA_ROUNDS").map_or(DEFAULT_ROUNDS, |r| r.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    // A memtable is full after a few mutations.
    let options = calls::families_with(attributes)
        .with("MemtableOperationsInMillions", "0.001")
        .with("MemtableThroughputInMB", "1");
    let server = Server::start(directory.path(), &options);
    let mut round = 1;
    for shape in SHAPES {
        let mut client = Client::connect(server.thrift_address());
        for write in [Write::BatchInsert, Write::BatchMutate, Write::DeleteAndInsert] {
            round = write_under_readers(&server, shape, write, (round, rounds));
        }
        // The next shape of the family begins with an empty row.
        let path = calls::Path { family: shape.family, super_column: None, column: None };
        client.remove(KEY, path, round * 2 - 1).unwrap();
        round += 1;
    }
    let log = server.log();
    assert!(log.contains("Completed flushing") && log.contains("Compacted to"), "{log}");
}
