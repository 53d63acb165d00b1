//! Clients write, delete and read at QUORUM while one node after the other is killed, paused or
//! stopped in order.
//! What was acknowledged is never missed, and what was read once is never unread.
//!
//! `ALEXANDRA_DISTURBANCES` says how many, `ALEXANDRA_SEED` repeats the choices of a run.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::server::calls::{Entry, Path, STANDARD, first};
use crate::server::client::{CallError, Client, Level};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const DEFAULT_DISTURBANCES: usize = 2;

const CLIENTS: usize = 3;

/// Rows of each client: few, so that most writes are overwrites.
const ROWS: usize = 10;

/// Calls that clients make while one node is disturbed, and after it is back.
const CALLS: u64 = 1500;

/// Failed calls in a row after which a node that is not disturbed has failed. On a busy machine
/// nodes take each other for dead for a moment.
const MAX_FAILURES: u32 = 100;

/// Event that may happen to a node.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    Kill,
    Pause,
    Stop,
}

/// No node.
const NOBODY: usize = usize::MAX;

const NAME: Path<'static> =
    Path { family: STANDARD, super_column: None, column: Some(b"name".as_slice()) };

/// All that was done to a row by the one client that writes it, from the start on. A write has its
/// place in here as its timestamp.
#[derive(Debug, Default)]
struct History {
    /// The value, or none for a deletion. The first is the row before it was written.
    states: Vec<Option<Vec<u8>>>,
    /// The oldest that may still be read: it was acknowledged, or read before.
    floor: usize,
}

impl History {
    fn new() -> Self {
        Self { states: vec![None], floor: 0 }
    }

    fn check(&mut self, found: Option<&[u8]>, key: &str, node: usize) {
        let states = self.states.iter().map(Option::as_deref).enumerate().skip(self.floor);
        let matching = states.filter(|(_, state)| *state == found).map(|(place, _)| place).next();
        let Some(place) = matching else {
            let (text, floor) = (found.map(String::from_utf8_lossy), self.floor);
            let allowed = &self.states[floor..];
            panic!("{key} by node {node}: {text:?} is older than state {floor} of {allowed:?}");
        };
        self.floor = place;
    }
}

/// Which node is being disturbed, and how much was done meanwhile.
#[derive(Debug)]
struct Course {
    servers: Vec<SocketAddr>,
    disturbed: AtomicUsize,
    calls: AtomicU64,
    /// Grows with each disturbance; odd while there is one.
    phase: AtomicUsize,
    disturbances: usize,
}

impl Course {
    fn is_over(&self) -> bool {
        self.phase.load(Ordering::SeqCst) >= 2 * self.disturbances
    }
}

/// Ends the course however the test ends, so that clients do not go on forever.
struct Referee<'a>(&'a Course);

impl Drop for Referee<'_> {
    fn drop(&mut self) {
        self.0.phase.store(usize::MAX, Ordering::SeqCst);
    }
}

struct Writer<'a> {
    course: &'a Course,
    rng: fastrand::Rng,
    node: usize,
    client: Client,
    rows: Vec<(String, History)>,
    /// Calls in a row that failed by nodes that were not disturbed.
    failures: u32,
}

impl<'a> Writer<'a> {
    fn new(course: &'a Course, number: usize, seed: u64) -> Self {
        let rows = (0..ROWS).map(|row| (format!("client {number}, row {row}"), History::new()));
        let client = Client::connect(course.servers[number]).at(Level::Quorum);
        let rng = fastrand::Rng::with_seed(seed + number as u64);
        Self { course, rng, node: number, client, rows: rows.collect(), failures: 0 }
    }

    fn run(&mut self) {
        while !self.course.is_over() {
            let (row, choice) = (self.rng.usize(..ROWS), self.rng.u8(..20));
            if choice == 19 {
                self.turn_to_another();
            }
            let before = self.course.disturbed.load(Ordering::SeqCst);
            let result = if choice < 10 { self.read(row) } else { self.write(row, choice == 10) };
            self.course.calls.fetch_add(1, Ordering::SeqCst);
            let Err(error) = result else {
                self.failures = 0;
                continue;
            };
            let after = self.course.disturbed.load(Ordering::SeqCst);
            if ![before, after].contains(&self.node) {
                self.failures += 1;
                let (node, failures) = (self.node, self.failures);
                assert!(failures < MAX_FAILURES, "node {node} is not disturbed: {error}");
                thread::sleep(Duration::from_millis(50));
            }
            self.turn_to_another();
        }
    }

    fn read(&mut self, row: usize) -> Result<(), CallError> {
        let (key, history) = &mut self.rows[row];
        let entries = self.client.get_slice(key, STANDARD, first(10, false))?;
        let found = Entry::columns(&entries).next().map(|column| column.value.as_slice());
        history.check(found, key, self.node);
        Ok(())
    }

    fn write(&mut self, row: usize, deletes: bool) -> Result<(), CallError> {
        let (key, history) = &mut self.rows[row];
        let place = history.states.len();
        let value = format!("state {place}").into_bytes();
        let timestamp = place as i64;
        if deletes {
            history.states.push(None);
            self.client.remove(key, NAME, timestamp)?;
        } else {
            history.states.push(Some(value.clone()));
            self.client.insert(key, NAME, &value, timestamp)?;
        }
        history.floor = place;
        Ok(())
    }

    /// Goes on with a node that is not being disturbed.
    fn turn_to_another(&mut self) {
        loop {
            self.node = (self.node + 1) % self.course.servers.len();
            let server = self.course.servers[self.node];
            let is_disturbed = self.course.disturbed.load(Ordering::SeqCst) == self.node;
            if !is_disturbed && TcpStream::connect(server).is_ok() {
                self.client = Client::connect(server).at(Level::Quorum);
                return;
            }
        }
    }
}

/// Disturbs one node after the other while clients go on.
fn disturb(cluster: &mut Cluster, course: &Course, rng: &mut fastrand::Rng) {
    let await_calls = || {
        let before = course.calls.load(Ordering::SeqCst);
        wait_until("clients go on", || course.calls.load(Ordering::SeqCst) > before + CALLS);
    };
    let mut kinds = [Disturbance::Kill, Disturbance::Pause, Disturbance::Stop];
    rng.shuffle(&mut kinds);
    for kind in kinds.into_iter().cycle().take(course.disturbances) {
        let node = rng.usize(..3);
        await_calls();
        course.disturbed.store(node, Ordering::SeqCst);
        course.phase.fetch_add(1, Ordering::SeqCst);
        match kind {
            Disturbance::Kill => cluster.kill(node),
            Disturbance::Pause => cluster.server(node).pause(),
            Disturbance::Stop => cluster.stop(node),
        }
        await_calls();
        // Half of the time nobody has noticed that it was away.
        if rng.bool() {
            cluster.wait_until_seen((node + 1) % 3, node, false);
            await_calls();
        }
        match kind {
            Disturbance::Pause => cluster.server(node).resume(),
            Disturbance::Kill | Disturbance::Stop => cluster.launch(&[node]),
        }
        await_calls();
        for (observer, target) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            cluster.wait_until_seen(observer, target, true);
        }
        // After a pause it refuses requests until it has heard how the ring is now.
        let mut client = cluster.client(node).at(Level::One);
        wait_until("the node serves", || {
            client.get_slice("any", STANDARD, first(1, false)).is_ok()
        });
        course.disturbed.store(NOBODY, Ordering::SeqCst);
        course.phase.fetch_add(1, Ordering::SeqCst);
    }
}

fn from_environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn quorum_holds_through_disturbances() {
    let disturbances = from_environment("ALEXANDRA_DISTURBANCES").unwrap_or(DEFAULT_DISTURBANCES);
    let seed = from_environment("ALEXANDRA_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    eprintln!("ALEXANDRA_SEED={seed}");
    let mut cluster = Cluster::start(3, replicated(3));
    let course = Course {
        servers: cluster.nodes.iter().map(|node| node.thrift()).collect(),
        disturbed: AtomicUsize::new(NOBODY),
        calls: AtomicU64::new(0),
        phase: AtomicUsize::new(0),
        disturbances,
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let histories = thread::scope(|scope| {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut writer = Writer::new(&course, number, seed);
                scope.spawn(move || {
                    writer.run();
                    writer.rows
                })
            })
            .collect();
        let referee = Referee(&course);
        disturb(&mut cluster, &course, &mut rng);
        drop(referee);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    // In the end all nodes tell the same, and it is allowed.
    cluster.wait_for_hints(&[0, 1, 2]);
    for (key, mut history) in histories {
        for node in 0..3 {
            let mut client = cluster.client(node).at(Level::All);
            let entries = client.get_slice(&key, STANDARD, first(10, false)).unwrap();
            let found = Entry::columns(&entries).next().map(|column| column.value.as_slice());
            history.check(found, &key, node);
        }
    }
}
