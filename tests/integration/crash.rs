//! The server is killed with `kill -9` at random moments while several clients write. Every time it
//! starts again by itself, and everything that it acknowledged is there, in both sync modes.
//!
//! `ALEXANDRA_KILLS` says how often per sync mode, `ALEXANDRA_SEED` repeats the choices of a run.

use crate::server::calls::{self, Entry, OTHER_STANDARD, Path, RowMutations, STANDARD, SUPER};
use crate::server::client::{CallError, Client};
use crate::server::{Options, Server};
use rustix::process::{Resource, Rlimit, prlimit};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

const DEFAULT_KILLS: usize = 4;

/// Clients that write at a time, each to rows of its own.
const WRITERS: usize = 4;

/// Rows of each writer: few, so that nearly all writes are overwrites.
const ROWS: usize = 40;

/// Names of columns in a family, or below a super column.
const COLUMNS: u8 = 24;
const SUPER_COLUMNS: u8 = 4;

/// Acknowledgements between two kills: some hundred memtables, or less than one.
const ACKNOWLEDGED: std::ops::Range<usize> = 50..6000;

/// A server that acknowledges nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time enough for a start, so that a kill within it comes before, during and after the replay.
const LONGEST_START_MS: u64 = 120;

/// One column's place in a row: column family, super column (empty in a standard family), column.
type Place = (&'static str, Vec<u8>, Vec<u8>);

/// All columns of a row, in all column families, with timestamp and value.
type Row = BTreeMap<Place, (i64, Vec<u8>)>;

/// Change of a row by a write.
#[derive(Debug, Clone)]
enum Change {
    Put(Place, Vec<u8>),
    DeleteColumn(Place),
    DeleteSuperColumn(&'static str, Vec<u8>),
    DeleteRow(&'static str),
}

impl Change {
    fn random(rng: &mut fastrand::Rng) -> Self {
        let family = *rng.choice(&[STANDARD, OTHER_STANDARD, SUPER]).unwrap();
        let super_column = match family {
            SUPER => vec![b's', rng.u8(..SUPER_COLUMNS)],
            _ => vec![],
        };
        let place = (family, super_column, vec![b'c', rng.u8(..COLUMNS)]);
        match rng.u8(..40) {
            0 => Self::DeleteRow(family),
            1..3 if family == SUPER => Self::DeleteSuperColumn(family, place.1),
            3..9 => Self::DeleteColumn(place),
            _ => Self::Put(place, (0..rng.usize(..300)).map(|_| rng.u8(..)).collect()),
        }
    }

    /// Does to a row what a write with a timestamp above all earlier ones does.
    fn apply(&self, row: &mut Row, timestamp: i64) {
        match self {
            Self::Put(place, value) => {
                row.insert(place.clone(), (timestamp, value.clone()));
            }
            Self::DeleteColumn(place) => {
                row.remove(place);
            }
            Self::DeleteSuperColumn(family, name) => {
                row.retain(|place, _| (place.0, &place.1) != (*family, name));
            }
            Self::DeleteRow(family) => row.retain(|place, _| place.0 != *family),
        }
    }

    /// The column family, and the `Mutation`.
    fn to_mutation(&self, timestamp: i64) -> (&'static str, crate::server::client::Value) {
        match self {
            Self::Put(place, value) => {
                let column = calls::column(&place.2, value, timestamp);
                let entry = calls::entry(super_column(place), vec![column]);
                (place.0, calls::insertion(entry))
            }
            Self::DeleteColumn(place) => {
                (place.0, calls::deletion(super_column(place), Some(&place.2), timestamp))
            }
            Self::DeleteSuperColumn(family, name) => {
                (family, calls::deletion(Some(name), None, timestamp))
            }
            Self::DeleteRow(family) => (family, calls::deletion(None, None, timestamp)),
        }
    }

    /// The path of the `insert` or the `remove` that does the same.
    fn path(&self) -> Path<'_> {
        let (family, super_column, column) = match self {
            Self::Put(place, _) | Self::DeleteColumn(place) => {
                (place.0, super_column(place), Some(place.2.as_slice()))
            }
            Self::DeleteSuperColumn(family, name) => (*family, Some(name.as_slice()), None),
            Self::DeleteRow(family) => (*family, None, None),
        };
        Path { family, super_column, column }
    }
}

fn super_column(place: &Place) -> Option<&[u8]> {
    (place.0 == SUPER).then_some(place.1.as_slice())
}

/// A client that knows what its rows must hold.
#[derive(Debug)]
struct Writer {
    rng: fastrand::Rng,
    keys: Vec<String>,
    last_timestamp: i64,
    /// As acknowledged.
    rows: HashMap<String, Row>,
    /// Values that the call under way gives to the rows that it changes.
    pending: HashMap<String, Row>,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        let keys: Vec<String> =
            (0..ROWS).map(|row| format!("writer {number}, row {row}")).collect();
        Self {
            rng: fastrand::Rng::with_seed(seed),
            rows: keys.iter().map(|key| (key.clone(), Row::new())).collect(),
            keys,
            last_timestamp: 0,
            pending: HashMap::new(),
        }
    }

    /// Writes until the connection breaks, and tells of each acknowledgement.
    fn write(&mut self, mut client: Client, acknowledged: &Sender<()>) {
        loop {
            match self.write_once(&mut client) {
                Ok(()) => {
                    self.rows.extend(self.pending.drain());
                    // Nobody counts any more when the kill is on its way.
                    let _ = acknowledged.send(());
                }
                Err(CallError::Broken(_)) => return,
                Err(error) => panic!("a write is refused: {error}"),
            }
        }
    }

    fn write_once(&mut self, client: &mut Client) -> Result<(), CallError> {
        match self.rng.u8(..10) {
            0..6 => {
                let (key, change) = (self.any_key(), Change::random(&mut self.rng));
                let timestamp = self.plan(&key, &change);
                match &change {
                    Change::Put(_, value) => client.insert(&key, change.path(), value, timestamp),
                    _ => client.remove(&key, change.path(), timestamp),
                }
            }
            6..8 => {
                let key = self.any_key();
                let families = self.plan_entries(&key);
                client.batch_insert(&key, families)
            }
            _ => {
                let mut rows = BTreeMap::new();
                for _ in 0..self.rng.usize(1..6) {
                    let key = self.any_key();
                    let mutations = self.plan_mutations(&key);
                    rows.insert(key, mutations);
                }
                client.batch_mutate(rows.into_iter().collect())
            }
        }
    }

    fn any_key(&mut self) -> String {
        self.rng.choice(&self.keys).unwrap().clone()
    }

    /// Notes what a change will do, and gives it its timestamp.
    fn plan(&mut self, key: &str, change: &Change) -> i64 {
        self.last_timestamp += 1;
        let row = self.pending.entry(key.to_owned()).or_insert_with(|| self.rows[key].clone());
        change.apply(row, self.last_timestamp);
        self.last_timestamp
    }

    /// One column in each of some families, for `batch_insert`.
    fn plan_entries(&mut self, key: &str) -> RowMutations {
        let mut families = BTreeMap::new();
        while families.is_empty() {
            for change in (0..3).map(|_| Change::random(&mut self.rng)).collect::<Vec<_>>() {
                if let Change::Put(place, value) = &change {
                    let timestamp = self.plan(key, &change);
                    let column = calls::column(&place.2, value, timestamp);
                    let entry = calls::entry(super_column(place), vec![column]);
                    families.entry(place.0.to_owned()).or_insert_with(Vec::new).push(entry);
                }
            }
        }
        families.into_iter().collect()
    }

    /// Insertions and deletions for `batch_mutate`. A row that comes up twice starts over: only the
    /// last mutations for it are sent.
    fn plan_mutations(&mut self, key: &str) -> RowMutations {
        self.pending.remove(key);
        let mut families = BTreeMap::new();
        for _ in 0..self.rng.usize(1..12) {
            let change = Change::random(&mut self.rng);
            let timestamp = self.plan(key, &change);
            let (family, mutation) = change.to_mutation(timestamp);
            families.entry(family.to_owned()).or_insert_with(Vec::new).push(mutation);
        }
        families.into_iter().collect()
    }

    /// Every row is as it was acknowledged, or as the call under way would have left it; nothing
    /// in between. From here on that is what it must be. An error describes the first other row.
    fn check(&mut self, stored: &HashMap<String, Row>) -> Result<(), String> {
        for key in &self.keys {
            let row = stored.get(key).cloned().unwrap_or_default();
            let acknowledged = &self.rows[key];
            if row == *acknowledged {
                continue;
            }
            let pending = self.pending.get(key);
            if pending != Some(&row) {
                return Err(format!(
                    "{key} is not as acknowledged ({}), nor as the call under way made it ({})",
                    difference(acknowledged, &row),
                    pending.map_or("none".into(), |pending| difference(pending, &row)),
                ));
            }
            self.rows.insert(key.clone(), row);
        }
        self.pending.clear();
        Ok(())
    }
}

/// How a row differs from what it should be.
fn difference(expected: &Row, found: &Row) -> String {
    let show = |row: &Row, place: &Place| {
        row.get(place).map_or("nothing".into(), |(timestamp, value)| {
            format!("timestamp {timestamp} and {} bytes", value.len())
        })
    };
    let places = expected.keys().chain(found.keys()).collect::<std::collections::BTreeSet<_>>();
    let differing = places.into_iter().filter(|place| expected.get(place) != found.get(place));
    let lines =
        differing.map(|p| format!("{p:?} has {} instead of {}", show(found, p), show(expected, p)));
    lines.collect::<Vec<_>>().join("; ")
}

/// Reads the rows of all writers, each column family once key by key and once in a scan.
fn read_all(server: SocketAddr, writers: &[Writer]) -> HashMap<String, Row> {
    let keys: Vec<String> = writers.iter().flat_map(|writer| writer.keys.clone()).collect();
    let mut client = Client::connect(server);
    let mut read = [HashMap::new(), HashMap::new()];
    for family in [STANDARD, OTHER_STANDARD, SUPER] {
        let slices = [client.multiget(&keys, family).unwrap(), client.scan(family).unwrap()];
        for (rows, slices) in read.iter_mut().zip(slices) {
            for (key, slice) in slices {
                add_columns(rows.entry(key).or_insert_with(Row::new), family, slice);
            }
        }
    }
    let [by_key, by_scan] = read;
    for key in &keys {
        let scanned = by_scan.get(key).cloned().unwrap_or_default();
        assert!(by_key[key] == scanned, "{key}: {}", difference(&by_key[key], &scanned));
    }
    by_key
}

fn add_columns(row: &mut Row, family: &'static str, slice: Vec<Entry>) {
    for entry in slice {
        let (super_column, columns) = match entry {
            Entry::Column(column) => (vec![], vec![column]),
            Entry::Super(name, columns) => (name, columns),
        };
        for column in columns {
            let place = (family, super_column.clone(), column.name);
            row.insert(place, (column.timestamp, column.value));
        }
    }
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("it is a number"))
}

/// Memtables and segments so small, and tombstones so short-lived, that flushes, compactions, the
/// purge of tombstones and the removal of segments go on all the time.
fn with_small_thresholds(options: Options) -> Options {
    options
        .with("MemtableOperationsInMillions", "0.0005")
        .with("MemtableThroughputInMB", "1")
        .with("CommitLogRotationThresholdInMB", "1")
        .with("GCGraceSeconds", "0")
}

fn survive_kills(options: Options) {
    let kills = setting("ALEXANDRA_KILLS").map_or(DEFAULT_KILLS, |kills| kills as usize);
    let seed = setting("ALEXANDRA_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("ALEXANDRA_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &with_small_thresholds(options));
    let mut writers: Vec<Writer> = (0..WRITERS).map(|w| Writer::new(w, rng.u64(..))).collect();
    let mut acknowledged = 0;
    for kill in 1..=kills {
        let until = rng.usize(ACKNOWLEDGED);
        write_until(&mut server, &mut writers, until, Server::kill);
        acknowledged += until;
        if rng.bool() {
            server.kill_within_restart(Duration::from_millis(rng.u64(..LONGEST_START_MS)));
        }
        server.restart();
        let stored = read_all(server.thrift_address(), &writers);
        for writer in &mut writers {
            if let Err(difference) = writer.check(&stored) {
                server.kill();
                let data = directory.keep();
                panic!("after kill {kill}: {difference}; the data are in {}", data.display());
            }
        }
    }
    let log = server.log();
    let count = |text: &str| log.matches(text).count();
    let (flushes, compactions) = (count("Completed flushing"), count("Compacted to"));
    println!("{kills} kills, {acknowledged} writes, {flushes} flushes, {compactions} compactions");
    assert!(flushes > kills && compactions > 0, "memtables were not small enough");
}

/// Lets all writers write until so many calls are acknowledged, ends the server under them, and
/// waits until each has noticed.
fn write_until(
    server: &mut Server,
    writers: &mut [Writer],
    until: usize,
    end: impl FnOnce(&mut Server),
) {
    let address = server.thrift_address();
    let (acknowledge, acknowledged) = mpsc::channel();
    thread::scope(|scope| {
        for writer in writers {
            // Here, because a server that is killed early refuses whoever comes late.
            let client = Client::connect(address);
            let acknowledge = acknowledge.clone();
            scope.spawn(move || writer.write(client, &acknowledge));
        }
        drop(acknowledge);
        for count in 0..until {
            if let Err(error) = acknowledged.recv_timeout(PATIENCE) {
                server.kill();
                panic!("after {count} writes: {error}\n{}", server.log_end());
            }
        }
        end(server);
    });
}

#[test]
fn a_kill_takes_nothing_acknowledged_in_periodic_mode() {
    survive_kills(calls::plain_families());
}

#[test]
fn a_kill_takes_nothing_acknowledged_in_batch_mode() {
    let batch = calls::plain_families()
        .with("CommitLogSync", "batch")
        .with("CommitLogSyncPeriodInMS", "")
        .with("CommitLogSyncBatchWindowInMS", "1");
    survive_kills(batch);
}

#[test]
fn an_orderly_end_under_writers_leaves_nothing_to_replay() {
    let directory = tempfile::tempdir().unwrap();
    let options = with_small_thresholds(calls::plain_families());
    let mut server = Server::start(directory.path(), &options);
    let mut writers: Vec<Writer> = (0..WRITERS).map(|w| Writer::new(w, w as u64)).collect();
    for _ in 0..3 {
        write_until(&mut server, &mut writers, 2000, |server| {
            let status = server.stop();
            assert!(status.success(), "{status}: {}", server.log_end());
        });
        server.restart();
        let stored = read_all(server.thrift_address(), &writers);
        for writer in &mut writers {
            writer.check(&stored).unwrap();
        }
    }
    let log = server.log();
    let replays: Vec<&str> = log.lines().filter(|line| line.contains("Log replay")).collect();
    assert!(replays.is_empty(), "{replays:?}");
}

/// `ulimit -f` ends a process that takes no notice of its signal. The node takes the limit for a
/// full disk: the flush that meets it is tried again until there is room.
#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        with_small_thresholds(calls::plain_families()).with("MemtableThroughputInMB", "4");
    let server = Server::start(directory.path(), &options);
    limit_file_size(&server, Some(2 << 20));
    let mut client = Client::connect(server.thrift_address());
    let mut rng = fastrand::Rng::with_seed(1);
    let mut random_value = || -> Vec<u8> { (0..256 << 10).map(|_| rng.u8(..)).collect() };
    for row in 0..20 {
        let path = Path::column(STANDARD, b"c");
        client.insert(&row.to_string(), path, &random_value(), 1).unwrap();
    }
    wait_for_line(&server, "File too large");
    limit_file_size(&server, None);
    wait_for_line(&server, "Completed flushing");
    let row = client.get_slice("0", STANDARD, calls::first(1, false)).unwrap();
    assert_eq!(Entry::columns(&row).count(), 1);
}

/// Limits the size of the files that the server may write, in bytes.
fn limit_file_size(server: &Server, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(server.pid()), Resource::Fsize, limit).unwrap();
}

/// Waits until the server has written a line with this part.
fn wait_for_line(server: &Server, part: &str) {
    let pause = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if server.log().contains(part) {
            return;
        }
        thread::sleep(pause);
    }
    panic!("no line with {part}:\n{}", server.log_end());
}
