//! Random operations.

use crate::kit::disk::Survival;
use crate::storage_model::model::{Filter, Model, Query, Row, Target, Write};
use crate::storage_model::rig::{ARCHIVE, BATCH, FAMILIES, Outcome, PERIODIC, Rig, Setup, visible};
use alexandra::base::clock::Clock;
use alexandra::base::context::RequestContext;
use alexandra::config::settings::CacheSize;
use alexandra::model::key::RowKey;
use alexandra::model::schema::FamilyId;
use alexandra::ring::{DecoratedKey, Partitioner, RowRange, Token};
use alexandra::storage::CompactionStrategy;
use alexandra::storage::restore::{Request, RestoreError};
use alexandra::storage::sstable::Access;
use fastrand::Rng;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::time::Duration;

/// Cases by default; `ALEXANDRA_CASES` says otherwise.
const CASES: u64 = 300;

/// Operations of a case.
const STEPS: usize = 150;

/// Timestamps above the floor from which writes choose, so that ties are frequent.
const TIMESTAMPS: i64 = 6;

/// A column that shows whether a mutation survived is newer than any deletion.
const MARKER_TIMESTAMP: i64 = i64::MAX - 1;

/// Events of a case besides reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Batch mode; power fails. Nothing acknowledged may be missing.
    Batch,
    /// Periodic mode; the process is killed. Nothing acknowledged may be missing.
    Kill,
    /// Periodic mode; power fails. What was not synced is there whole or not at all.
    PowerLoss,
}

/// A row key, and what is written there by column family.
type Mutation = (Vec<u8>, Vec<(u32, Vec<Write>)>);

struct Case {
    rng: Rng,
    mode: Mode,
    rarely_deletes: bool,
    rig: Rig,
    model: Model,
    /// The model with what was purged: a replay of the archive brings it back, until it is purged
    /// once more. It is all deleted.
    unpurged: Model,
    /// No tombstone that may be purged is newer: what is written above it is not shadowed by
    /// tombstones of which it cannot be known whether they still exist.
    floor: i64,
    /// Mutations since the last sync, each with the number of its marker. Only for power loss.
    unsynced: Vec<(u64, Mutation)>,
    /// How many single writes there were.
    numbers: u64,
    /// Snapshots and what they hold.
    moments: Vec<Moment>,
    /// Times to which the archive leads.
    times: Vec<Time>,
    /// The folders of the histories that restores have ended, and what was there at their ends.
    ends: Vec<(PathBuf, Model)>,
}

/// A moment between two that the clock can tell apart.
struct Time {
    number: usize,
    /// Number of the history.
    history: usize,
    millis: u64,
    /// Power has failed later, and may have taken the note of the time: then nobody can tell what
    /// survived from before it and what from behind it.
    is_torn: bool,
    unpurged: Model,
}

/// A snapshot.
struct Moment {
    number: usize,
    /// Number of the history.
    history: usize,
    name: String,
    model: Model,
    unpurged: Model,
}

/// Most snapshots of a case.
const MAX_MOMENTS: usize = 6;

/// Most times of a case.
const MAX_TIMES: usize = 10;

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn run(mode: Mode) {
    let seeds = match env("ALEXANDRA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..env("ALEXANDRA_CASES").unwrap_or(CASES) / 3,
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| Case::new(mode, seed).run());
        if let Err(panic) = result {
            eprintln!("{mode:?} fails: ALEXANDRA_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn acknowledged_writes_survive_power_loss_in_batch_mode() {
    run(Mode::Batch);
}

#[test]
fn acknowledged_writes_survive_a_kill_in_periodic_mode() {
    run(Mode::Kill);
}

#[test]
fn mutations_are_whole_or_absent_after_power_loss_in_periodic_mode() {
    run(Mode::PowerLoss);
}

fn any_size(rng: &mut Rng) -> CacheSize {
    match rng.u32(..4) {
        0 => CacheSize::Off,
        1 => CacheSize::Entries(rng.u64(1..8)),
        2 => CacheSize::Fraction(0.5),
        _ => CacheSize::Entries(200_000),
    }
}

impl Case {
    fn new(mode: Mode, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let partitioners = [
            Partitioner::Random,
            Partitioner::OrderPreserving,
            Partitioner::CollatingOrderPreserving,
        ];
        let setup = Setup {
            partitioner: partitioners[rng.usize(..3)],
            sync: if mode == Mode::Batch { BATCH } else { PERIODIC },
            gc_grace_seconds: [0, 10, 10, 1000][rng.usize(..4)],
            strategy: [CompactionStrategy::SizeTiered, CompactionStrategy::Leveled][rng.usize(..2)],
            min_compaction_threshold: [0, 2, 3, 4][rng.usize(..4)],
            data_directories: rng.usize(1..=2),
            memtable_operations: [10, 20, 60][rng.usize(..3)],
            block_bytes: [200, 600, 2000][rng.usize(..3)],
            // With little room for index blocks the key cache has more to do.
            block_cache_bytes: [1 << 14, 1 << 10][rng.usize(..2)],
            keys_cached: any_size(&mut rng),
            rows_cached: any_size(&mut rng),
            row_cache_bytes: [1 << 20, 1 << 12][rng.usize(..2)],
            saves_caches: rng.u32(..4) == 0,
            preheats_keys: rng.bool(),
            archives: rng.bool(),
            ..Setup::default()
        };
        let rig = Rig::new(setup, seed);
        let (model, unsynced) = (Model::default(), Vec::new());
        let unpurged = Model::default();
        let rarely_deletes = rng.u32(..3) == 0;
        let mut case = Self {
            rng,
            mode,
            rarely_deletes,
            rig,
            model,
            unpurged,
            floor: 0,
            unsynced,
            numbers: 0,
            moments: Vec::new(),
            times: Vec::new(),
            ends: Vec::new(),
        };
        case.note_history();
        case
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        self.check_all();
        self.rig.close();
        self.rig.open().unwrap();
        self.check_all();
    }

    fn step(&mut self) {
        let family = FamilyId(self.rng.u32(..3));
        match self.rng.u32(..100) {
            0..44 => self.write(),
            44..45 => self.change_caches(family),
            45..70 => self.read(family.0),
            70..81 => self.scan(family.0),
            81 => self.take_snapshot(),
            82 if self.rng.bool() => self.look_at_snapshot(),
            82 => self.look_at_time(),
            83 => self.restore(),
            84..88 => self.rig.storage().flush(family).unwrap(),
            88..91 => self.rig.storage().compact(family).unwrap(),
            91..93 => self.sync(),
            93..96 => self.pass_time(),
            96..97 => self.restart(),
            97..99 => self.crash(),
            _ => self.check_all(),
        }
    }

    fn change_caches(&mut self, family: FamilyId) {
        let mut entries = || [0, 1, 5, 1000][self.rng.usize(..4)];
        let (keys, rows) = (entries(), entries());
        self.rig.storage().family(family).set_cache_capacity(keys, rows);
    }

    fn next_number(&self) -> usize {
        self.moments.len() + self.times.len()
    }

    fn take_snapshot(&mut self) {
        if self.moments.len() < MAX_MOMENTS {
            let name = self.rig.snapshot(&format!("number {}", self.next_number()));
            self.note_snapshot(name);
        }
    }

    fn note_snapshot(&mut self, name: String) {
        let (number, history) = (self.next_number(), self.ends.len());
        let (model, unpurged) = (self.model.clone(), self.unpurged.clone());
        self.moments.push(Moment { number, history, name, model, unpurged });
    }

    /// A history of the archive has begun, with a snapshot.
    fn note_history(&mut self) {
        if self.rig.setup.archives {
            let folder = self.rig.archive_folder();
            let name = folder.file_name().unwrap().to_str().unwrap();
            self.note_snapshot(format!("archive-{name}"));
        }
    }

    /// A snapshot to restore, and whether upon it the archive is replayed: its newest folder, which
    /// is that of the present history.
    fn request(&mut self) -> Option<(usize, Request)> {
        let at = self.rng.choice(0..self.moments.len())?;
        let replays = self.rig.setup.archives && self.rng.bool();
        let snapshot = self.moments[at].name.clone();
        let archive = replays.then(|| ARCHIVE.into());
        Some((at, Request { snapshot, archive, ..Request::default() }))
    }

    /// Outcome of a restore. Names the folder in the request if it is of an earlier history.
    fn goal(&self, at: usize, request: &mut Request) -> (Model, Model) {
        let moment = &self.moments[at];
        if request.archive.is_none() {
            return (moment.model.clone(), moment.unpurged.clone());
        }
        let Some((folder, end)) = self.ends.get(moment.history) else {
            return (self.unpurged.clone(), self.unpurged.clone());
        };
        request.archive = Some(folder.clone());
        (end.clone(), end.clone())
    }

    /// Restores a copy of the disk as it is at this moment, without an end in order.
    fn look_at_snapshot(&mut self) {
        let Some((at, mut request)) = self.request() else { return };
        let copy = self.rig.fork();
        let is_past = self.moments[at].history < self.ends.len();
        if request.archive.is_some() && is_past && self.rng.bool() {
            let restored = copy.restore(&request, false);
            assert!(matches!(restored, Err(RestoreError::Missing(_))), "{restored:?}");
            return;
        }
        let (model, _) = self.goal(at, &mut request);
        let restored = copy.restore(&request, false);
        restored.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        self.check_copy(copy, model);
    }

    /// Restores a copy of the disk to a time.
    fn look_at_time(&mut self) {
        let times: Vec<_> = self.times.iter().filter(|time| !time.is_torn).collect();
        let Some(time) = self.rng.choice(times) else { return };
        let is_before = |it: &&Moment| it.history == time.history && it.number < time.number;
        let snapshots: Vec<_> = self.moments.iter().filter(is_before).collect();
        let Some(snapshot) = self.rng.choice(snapshots) else { return };
        let past = self.ends.get(time.history).map(|(folder, _)| folder.clone());
        let request = Request {
            snapshot: snapshot.name.clone(),
            archive: Some(past.unwrap_or_else(|| ARCHIVE.into())),
            until_millis: Some(time.millis),
            ..Request::default()
        };
        let (copy, model) = (self.rig.fork(), time.unpurged.clone());
        let restored = copy.restore(&request, false);
        restored.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        self.check_copy(copy, model);
    }

    fn check_copy(&mut self, copy: Rig, model: Model) {
        let present = std::mem::replace(&mut self.rig, copy);
        let present_model = std::mem::replace(&mut self.model, model);
        self.rig.open().unwrap();
        self.check_all();
        self.rig = present;
        self.model = present_model;
    }

    /// Goes on from a snapshot.
    fn restore(&mut self) {
        let Some((at, mut request)) = self.request() else { return };
        let goal = self.goal(at, &mut request);
        if self.rng.bool() {
            self.rig.close();
        } else {
            self.rig.kill();
        }
        let is_archived = self.rig.setup.archives;
        let folder = if is_archived { self.rig.archive_folder() } else { PathBuf::new() };
        let restored = self.rig.restore(&request, false);
        restored.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        self.ends.push((folder, std::mem::take(&mut self.unpurged)));
        (self.model, self.unpurged) = goal;
        self.unsynced.clear();
        self.rig.open().unwrap();
        self.note_history();
        self.check_all();
    }

    fn sync(&mut self) {
        self.rig.storage().sync().unwrap();
        self.unsynced.clear();
    }

    fn pass_time(&mut self) {
        if self.rig.setup.archives && self.times.len() < MAX_TIMES {
            let (number, history) = (self.next_number(), self.ends.len());
            // Names of snapshots may be ahead of the clock by as many milliseconds as there are.
            let millis = self.rig.clock.coarse_millis() + 500;
            self.times.push(Time {
                number,
                history,
                millis,
                is_torn: false,
                unpurged: self.unpurged.clone(),
            });
        }
        self.rig.clock.advance(Duration::from_secs(self.rng.u64(1..15)));
        self.raise_floor();
    }

    fn gc_before(&self) -> i32 {
        self.rig.now() - self.rig.setup.gc_grace_seconds
    }

    fn raise_floor(&mut self) {
        let gc_before = self.gc_before();
        let writes = self.model.rows.values().flat_map(|row| &row.writes);
        let expired = writes.filter(|w| w.value.is_none() && w.deleted_at <= gc_before);
        self.floor = expired.map(|w| w.timestamp).chain([self.floor]).max().unwrap();
    }

    fn restart(&mut self) {
        self.rig.close();
        self.rig.open().unwrap();
        self.unsynced.clear();
    }

    fn crash(&mut self) {
        let survival = match self.mode {
            Mode::Kill => Survival::Everything,
            _ if self.rng.bool() => Survival::Partly,
            _ => Survival::Nothing,
        };
        self.rig.crash(survival, &mut self.rng);
        self.rig.open().unwrap();
        let is_torn = !self.unsynced.is_empty();
        let present = self.times.iter_mut().filter(|time| time.history == self.ends.len());
        present.for_each(|time| time.is_torn |= is_torn);
        for (marker, mutation) in std::mem::take(&mut self.unsynced) {
            self.find_survivor(marker, mutation);
        }
        self.check_all();
    }

    /// Finds out whether a mutation that was not synced is there, and tells the model.
    fn find_survivor(&mut self, marker: u64, (key, parts): Mutation) {
        let found = parts.iter().map(|(family, _)| {
            let Target::Column(super_name, name) = marker_target(*family, marker) else {
                unreachable!("markers are columns")
            };
            let super_name = FAMILIES[*family as usize].is_super.then_some(super_name);
            let query = Query { super_name, filter: Filter::Names(vec![name]) };
            let slice = self.rig.slice(*family, &query);
            self.rig.read(*family, &key, &slice).unwrap().count == 1
        });
        let found: Vec<bool> = found.collect();
        assert!(found.iter().all(|f| *f == found[0]), "half of {marker} {parts:?} is there");
        if !found[0] {
            let gone: Vec<u64> = parts.iter().flat_map(|(_, w)| w).map(|w| w.number).collect();
            let times = self.times.iter_mut().map(|time| &mut time.unpurged);
            for model in [&mut self.model, &mut self.unpurged].into_iter().chain(times) {
                for row in model.rows.values_mut() {
                    row.writes.retain(|w| !gone.contains(&w.number));
                }
                model.rows.retain(|_, row| !row.writes.is_empty());
            }
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let keys = ["a", "b", "ada", "Ada", "zoë", "key 1", "key 2", "key 3", "key 4", "key 5"];
        keys[self.rng.usize(..keys.len())].as_bytes().to_vec()
    }

    /// A name of a column, or of a super column.
    fn name(&mut self, long: bool) -> Vec<u8> {
        // Some rows become wide enough for a column index.
        let number = if self.rng.bool() { self.rng.i64(-3..3) } else { self.rng.i64(-50..50) };
        if long { number.to_be_bytes().to_vec() } else { format!("name {number}").into_bytes() }
    }

    fn target(&mut self, family: u32) -> Target {
        let kind = self.rng.u32(..20);
        match family {
            _ if kind == 0 => Target::Row,
            1 if kind < 4 => Target::SuperColumn(self.name(true)),
            1 => Target::Column(self.name(true), self.name(false)),
            _ => Target::Column(Vec::new(), self.name(family == 2)),
        }
    }

    fn write(&mut self) {
        let key = self.key();
        let mut parts = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let family = self.rng.u32(..3);
            let count = self.rng.usize(1..5);
            let writes: Vec<_> = (0..count).map(|_| self.single_write(family)).collect();
            parts.push((family, writes));
        }
        let marker = self.numbers;
        if self.mode == Mode::PowerLoss {
            for (family, writes) in &mut parts {
                let (target, value) = (marker_target(*family, marker), Some(Vec::new()));
                let timestamp = MARKER_TIMESTAMP;
                writes.push(Write { target, value, timestamp, deleted_at: 0, number: 0 });
            }
        }
        for write in parts.iter_mut().flat_map(|(_, writes)| writes) {
            self.numbers += 1;
            write.number = self.numbers;
        }
        let outcome = self.rig.write(&key, &parts);
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        for (family, writes) in &parts {
            for write in writes {
                self.model.write(*family, &key, write.clone());
                self.unpurged.write(*family, &key, write.clone());
            }
        }
        if self.mode == Mode::PowerLoss {
            self.unsynced.push((marker, (key, parts)));
        }
        self.raise_floor();
    }

    fn single_write(&mut self, family: u32) -> Write {
        let mut target = self.target(family);
        let (mut one_in, is_column) = (4, |target: &Target| matches!(target, Target::Column(..)));
        if self.rarely_deletes {
            // Then there are SSTables in which nothing is deleted.
            one_in = 100;
            while !is_column(&target) && self.rng.u32(..20) > 0 {
                target = self.target(family);
            }
        }
        let deletes = !is_column(&target) || self.rng.u32(..one_in) == 0;
        let value = vec![self.rng.u8(b'a'..b'd'); self.rng.usize(..40)];
        let timestamp = match self.rng.u32(..100) {
            0 => i64::MIN,
            _ => self.floor + self.rng.i64(1..=TIMESTAMPS),
        };
        let deleted_at = self.rig.now();
        Write { target, value: (!deletes).then_some(value), timestamp, deleted_at, number: 0 }
    }

    fn query(&mut self, family: u32) -> Query {
        let is_super = FAMILIES[family as usize].is_super;
        let super_name = (is_super && self.rng.bool()).then(|| self.name(true));
        let long = family == 2 || is_super && super_name.is_none();
        let filter = if self.rng.u32(..3) == 0 {
            let count = self.rng.usize(1..6);
            Filter::Names((0..count).map(|_| self.name(long)).collect())
        } else {
            let mut bound = || if self.rng.bool() { Vec::new() } else { self.name(long) };
            let (start, finish) = (bound(), bound());
            let limit = [0, 1, 2, 5, 20, usize::MAX][self.rng.usize(..6)];
            Filter::Range { start, finish, reversed: self.rng.bool(), limit }
        };
        Query { super_name, filter }
    }

    fn read(&mut self, family: u32) {
        let (key, query) = (self.key(), self.query(family));
        let slice = self.rig.slice(family, &query);
        let answer = self.rig.read(family, &key, &slice).unwrap();
        let empty = Row::default();
        let row = self.model.rows.get(&(family, key.clone())).unwrap_or(&empty);
        let expected = row.answer(FAMILIES[family as usize], &query);
        assert_eq!((visible(&answer), answer.count), expected, "{family} {key:?} {query:?}");
        let (id, row_key) = (FamilyId(family), RowKey::new(&key));
        let context = RequestContext::default();
        let storage = self.rig.storage();
        let version =
            storage.family(id).read_version(&row_key, &slice, &context, Access::Cached).unwrap();
        let resolved = version.resolve(storage.schema().family(id), &slice, self.rig.now().into());
        assert_eq!(resolved, answer, "{family} {key:?} {query:?} {version:?}");
        let count = self
            .rig
            .storage()
            .family(id)
            .count(&row_key, &slice, &context, Access::Cached)
            .unwrap();
        assert_eq!(count, expected.1, "count of {family} {key:?} {query:?}");
    }

    fn check_all(&mut self) {
        for family in 0..3 {
            let filter = Filter::Range {
                start: Vec::new(),
                finish: Vec::new(),
                reversed: false,
                limit: usize::MAX,
            };
            let all = Query { super_name: None, filter };
            self.check_scan(family, &RowRange::all(), &all, usize::MAX);
        }
    }

    fn scan(&mut self, family: u32) {
        let query = self.query(family);
        let partitioner = self.rig.setup.partitioner;
        let mut bound = || {
            let token: Token = partitioner.token(&self.key());
            match self.rng.u32(..3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(token),
                _ => Bound::Excluded(token),
            }
        };
        let range = RowRange { start: bound(), end: bound() };
        let max_rows = [1, 2, 3, 100, usize::MAX][self.rng.usize(..5)];
        self.check_scan(family, &range, &query, max_rows);
    }

    fn check_scan(&mut self, family: u32, range: &RowRange, query: &Query, max_rows: usize) {
        let slice = self.rig.slice(family, query);
        let storage = self.rig.storage();
        let found = storage
            .family(FamilyId(family))
            .scan(range, &slice, max_rows, &RequestContext::default(), Access::Cached)
            .unwrap();
        assert!(found.len() <= max_rows);
        let partitioner = self.rig.setup.partitioner;
        let decorate = |key: &[u8]| partitioner.decorate(RowKey::new(key));
        let rows = self.model.family(family).map(|(key, row)| (decorate(key), row));
        let mut rows: Vec<(DecoratedKey, &Row)> =
            rows.filter(|(key, _)| range.contains(key.token())).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        for (key, _) in &found {
            let known = rows.iter().any(|(other, _)| other.key() == key);
            assert!(known, "{family} {key:?} was not written, or is purged and came back");
        }
        let mut found = found.into_iter().peekable();
        let mut left = max_rows;
        let mut gone = Vec::new();
        for (key, row) in rows {
            if left == 0 {
                break;
            }
            if let Some((_, slice)) = found.next_if(|(found, _)| found == key.key()) {
                left -= 1;
                let expected = row.answer(FAMILIES[family as usize], query);
                assert_eq!((visible(&slice), slice.count), expected, "{family} {key:?} {query:?}");
            } else {
                let must = row.must_be_stored(self.gc_before());
                assert!(!must, "{family} {key:?} is missing: {row:?}");
                gone.push((family, key.key().as_bytes().to_vec()));
            }
        }
        assert_eq!(found.next(), None, "not in its place");
        // Nothing of them is stored any more, so that nothing may ever come back.
        for row in gone {
            self.model.rows.remove(&row);
        }
    }
}

fn marker_target(family: u32, marker: u64) -> Target {
    let number = 1000 + marker as i64;
    match family {
        1 => Target::Column(number.to_be_bytes().to_vec(), b"marker".to_vec()),
        2 => Target::Column(Vec::new(), number.to_be_bytes().to_vec()),
        _ => Target::Column(Vec::new(), format!("marker {number}").into_bytes()),
    }
}
