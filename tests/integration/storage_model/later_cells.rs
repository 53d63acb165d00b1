//! Values that expire, and deletions of prefixes and ranges, in random order with all others and
//! with a clock that moves. The model keeps every write, and works each answer out anew.

use crate::storage_model::model::{Filter, Query, Row, Target, Visible, Write};
use crate::storage_model::rig::{FAMILIES, KEYSPACE, PERIODIC, Rig, Setup, visible};
use alexandra::base::clock::Clock;
use alexandra::base::context::RequestContext;
use alexandra::config::settings::CacheSize;
use alexandra::model::cell::{Cell, Expiry};
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::Slice;
use alexandra::model::version::RowVersion;
use alexandra::ring::RowRange;
use alexandra::storage::CompactionStrategy;
use alexandra::storage::sstable::Access;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

const CASES: u64 = 120;
const STEPS: usize = 150;

/// Column names that are not prefixes, and prefixes that are no columns.
const NAMES: [&[u8]; 8] = [b"a", b"c\0a", b"c\0b", b"c\0b\0x", b"cc\0z", b"cd", b"d\0x", b"e"];
const PREFIXES: [&[u8]; 3] = [b"c", b"cc", b"d"];

/// Super columns.
const GROUPS: i64 = 5;

#[derive(Debug, Clone)]
enum Op {
    Row,
    Group(Vec<u8>),
    Prefix(Vec<u8>, &'static [u8]),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Column(Vec<u8>, &'static [u8]),
    Value(Vec<u8>, &'static [u8], Vec<u8>, Option<Expiry>),
}

/// An operation, its timestamp and the second of a deletion.
#[derive(Debug, Clone)]
struct Done {
    op: Op,
    at: i64,
    time: i32,
}

impl Done {
    fn deletes(&self, (group, name): Place<'_>) -> bool {
        match &self.op {
            Op::Row => true,
            Op::Group(deleted) => deleted == group,
            Op::Prefix(within, prefix) => {
                within == group && name.starts_with(&[prefix, &b"\0"[..]].concat())
            }
            Op::Range(start, end) => {
                // Names without a group are those of a standard family.
                let name = if group.is_empty() { name } else { group };
                (start.clone(), end.clone()).contains(&name.to_vec())
            }
            Op::Column(..) | Op::Value(..) => false,
        }
    }

    /// The place of a column, and the rank of what is said of it.
    fn said(&self) -> Option<(Place<'_>, Rank)> {
        match &self.op {
            Op::Column(group, name) => Some(((group, name), (self.at, None))),
            Op::Value(group, name, value, end) => {
                let end = end.map_or((i64::MAX, u32::MAX), |end| (end.at, end.ttl));
                Some(((group, name), (self.at, Some((value.clone(), end)))))
            }
            _ => None,
        }
    }

    /// The second in which it was, or will be, a deletion.
    fn deletion_time(&self) -> Option<i64> {
        match &self.op {
            Op::Value(.., end) => end.map(|end| end.at),
            _ => Some(self.time.into()),
        }
    }
}

/// Super column name and column name.
type Place<'a> = (&'a [u8], &'a [u8]);

/// Timestamp, then nothing for a deletion, else the value and its end.
type Rank = (i64, Option<(Vec<u8>, (i64, u32))>);

/// Whether what has this rank comes before the other: a deletion before a value.
fn is_greater(a: &Rank, b: &Rank) -> bool {
    (a.0, a.1.is_none(), &a.1) > (b.0, b.1.is_none(), &b.1)
}

/// The columns that can be seen in this second, as a row without deletions.
fn seen(done: &[Done], now: i64) -> Row {
    let mut winners: BTreeMap<Place<'_>, Rank> = BTreeMap::new();
    for (place, rank) in done.iter().filter_map(Done::said) {
        let winner = winners.entry(place).or_insert_with(|| rank.clone());
        if is_greater(&rank, winner) {
            *winner = rank;
        }
    }
    let mut writes = Vec::new();
    for (place, (timestamp, value)) in winners {
        let Some((value, _)) = value.filter(|(_, (end, _))| now < *end) else { continue };
        if !done.iter().any(|it| it.at >= timestamp && it.deletes(place)) {
            let target = Target::Column(place.0.to_vec(), place.1.to_vec());
            writes.push(Write { target, value: Some(value), timestamp, deleted_at: 0, number: 0 });
        }
    }
    Row { writes }
}

struct Case {
    rng: Rng,
    rig: Rig,
    rows: BTreeMap<(u32, u8), Vec<Done>>,
    /// Deletions up to this timestamp may be purged.
    floor: i64,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let setup = Setup {
            sync: PERIODIC,
            gc_grace_seconds: [0, 10, 100_000][rng.usize(..3)],
            strategy: [CompactionStrategy::SizeTiered, CompactionStrategy::Leveled][rng.usize(..2)],
            min_compaction_threshold: [0, 3][rng.usize(..2)],
            memtable_operations: [10, 60][rng.usize(..2)],
            block_bytes: [200, 600][rng.usize(..2)],
            rows_cached: [CacheSize::Off, CacheSize::Entries(100)][rng.usize(..2)],
            ..Setup::default()
        };
        Self { rng, rig: Rig::new(setup, seed), rows: BTreeMap::new(), floor: 0 }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            let family = FamilyId(self.rng.u32(..2));
            match self.rng.u32(..100) {
                0..45 => self.write(family.0),
                45..75 => self.read(family.0),
                75..80 => self.read_pieces(family.0),
                80..86 => self.rig.storage().flush(family).unwrap(),
                86..92 => self.rig.storage().compact(family).unwrap(),
                92..97 => self.pass_time(),
                _ => {
                    self.rig.close();
                    self.rig.open().unwrap();
                }
            }
        }
        self.purge_all();
    }

    fn now(&self) -> i64 {
        self.rig.clock.now_secs().into()
    }

    /// Whether deletions may be forgotten.
    fn is_purging(&self) -> bool {
        self.now() > self.rig.setup.gc_grace_seconds.into()
    }

    fn group(&mut self, family: u32) -> Vec<u8> {
        match family {
            0 => Vec::new(),
            _ => self.rng.i64(0..GROUPS).to_be_bytes().to_vec(),
        }
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[self.rng.usize(..NAMES.len())]
    }

    fn prefix(&mut self) -> &'static [u8] {
        PREFIXES[self.rng.usize(..PREFIXES.len())]
    }

    fn bound(&mut self, family: u32) -> Bound<Vec<u8>> {
        let name = match family {
            0 if self.rng.bool() => self.prefix().to_vec(),
            0 => self.name().to_vec(),
            _ => self.group(family),
        };
        match self.rng.u32(..4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(name),
            _ => Bound::Included(name),
        }
    }

    fn op(&mut self, family: u32) -> Op {
        let group = self.group(family);
        match self.rng.u32(..40) {
            0 => Op::Row,
            1..4 if family == 1 => Op::Group(group),
            4..7 => Op::Prefix(group, self.prefix()),
            7..10 => loop {
                let (start, end) = (self.bound(family), self.bound(family));
                let is_sound = match (&start, &end) {
                    (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
                    (Bound::Included(start), Bound::Included(end)) => start <= end,
                    (
                        Bound::Included(start) | Bound::Excluded(start),
                        Bound::Included(end) | Bound::Excluded(end),
                    ) => start < end,
                };
                if is_sound {
                    return Op::Range(start, end);
                }
            },
            10..14 => Op::Column(group, self.name()),
            _ => {
                let value = vec![self.rng.u8(b'a'..b'd'); self.rng.usize(..40)];
                let ttl = self.rng.u32(1..20);
                let end = Expiry { ttl, at: self.now() + i64::from(self.rng.u32(1..20)) };
                let end = Some(end).filter(|_| self.rng.bool());
                Op::Value(group, self.name(), value, end)
            }
        }
    }

    fn write(&mut self, family: u32) {
        let key = self.rng.u8(b'a'..b'd');
        let schema = self.rig.schema.clone();
        let mut builder = MutationBuilder::new(&schema, KEYSPACE, &[key]);
        builder.family(FamilyId(family));
        for _ in 0..self.rng.usize(1..4) {
            let (op, at) = (self.op(family), self.floor + self.rng.i64(1..7));
            let time = self.rig.now();
            let deletion = Deletion::at(at, time);
            match &op {
                Op::Row => builder.delete_row(deletion),
                Op::Group(name) => builder.delete_super_column(name, deletion),
                Op::Prefix(group, name) => builder.delete_prefix((group, name), deletion),
                Op::Range(start, end) => {
                    let [start, end] = [start, end].map(|it| it.as_ref().map(Vec::as_slice));
                    builder.delete_range((start, end), deletion)
                }
                Op::Column(group, name) => builder.delete_column((group, name), deletion),
                Op::Value(group, name, value, Some(end)) => {
                    builder.insert_expiring((group, name), value, at, *end)
                }
                Op::Value(group, name, value, None) => builder.insert((group, name), value, at),
            };
            self.rows.entry((family, key)).or_default().push(Done { op, at, time });
        }
        self.rig.storage().apply(&builder.finish(), true).unwrap();
        self.raise_floor();
    }

    fn query(&mut self, family: u32) -> Query {
        let super_name = (family == 1 && self.rng.u32(..3) > 0).then(|| self.group(family));
        let is_grouped = family == 1 && super_name.is_none();
        let filter = if self.rng.bool() {
            Filter::Names((0..4).map(|_| self.any_name(family, is_grouped)).collect())
        } else {
            let [start, finish] = [(); 2].map(|()| match self.rng.u32(..3) {
                0 => Vec::new(),
                _ => self.any_name(family, is_grouped),
            });
            let limit = [0, 1, 2, 5, usize::MAX, usize::MAX][self.rng.usize(..6)];
            Filter::Range { start, finish, reversed: self.rng.bool(), limit }
        };
        Query { super_name, filter }
    }

    fn any_name(&mut self, family: u32, is_grouped: bool) -> Vec<u8> {
        match self.rng.u32(..4) {
            _ if is_grouped => self.group(family),
            0 => self.prefix().to_vec(),
            _ => self.name().to_vec(),
        }
    }

    fn read(&mut self, family: u32) {
        let (key, query) = (self.rng.u8(b'a'..b'd'), self.query(family));
        let slice = self.rig.slice(family, &query);
        let done = self.rows.get(&(family, key)).cloned().unwrap_or_default();
        let now = self.now();
        let expected = seen(&done, now).answer(FAMILIES[family as usize], &query);
        let answer = self.rig.read(family, &[key], &slice).unwrap();
        let case = || format!("{family} {} {query:?} in {now} of {done:#?}", key as char);
        assert_eq!((visible(&answer), answer.count), expected, "{}", case());
        let (store, context) =
            (self.rig.storage().family(FamilyId(family)), &RequestContext::default());
        let row = RowKey::new(&[key]);
        let count = store.count(&row, &slice, context, Access::Cached).unwrap();
        assert_eq!(count, expected.1, "{}", case());
        let version = store.read_version(&row, &slice, context, Access::Cached).unwrap();
        let schema = self.rig.schema.family(FamilyId(family));
        assert_eq!(version.resolve(schema, &slice, now), answer, "{version:?} {}", case());
        let mut within = version.clone();
        within.keep_within(schema, &slice);
        assert_eq!(within, version, "{}", case());
        self.read_beside_one_that_misses_deletions((family, &done), (&slice, version), &expected);
    }

    /// Another replica knows all columns, and no deletion.
    fn read_beside_one_that_misses_deletions(
        &self,
        (family, done): (u32, &[Done]),
        (slice, version): (&Slice, RowVersion),
        expected: &(Vec<Visible>, usize),
    ) {
        if self.is_purging() || slice.limit() != usize::MAX {
            return;
        }
        let schema = self.rig.schema.family(FamilyId(family));
        let cell = |it: &Done| match &it.op {
            Op::Value(group, name, value, Some(end)) => {
                Some(Cell::expiring((group, name), value, it.at, *end))
            }
            Op::Value(group, name, value, None) => Some(Cell::live(group, name, value, it.at)),
            _ => None,
        };
        let of = |cell| RowVersion { deletion: Deletion::NONE, cells: vec![cell] };
        let cells: Vec<RowVersion> = done.iter().filter_map(cell).map(of).collect();
        let mut stale = RowVersion::merge(schema, &cells);
        stale.keep_within(schema, slice);
        let merged = RowVersion::merge(schema, [&stale, &version]);
        let answer = merged.resolve(schema, slice, self.now());
        assert_eq!((visible(&answer), answer.count), *expected, "{slice:?} {version:?} {done:#?}");
        if let Some(lacking) = stale.lacks(schema, &merged) {
            let repaired = RowVersion::merge(schema, [&stale, &lacking]);
            assert_eq!(repaired, merged);
        }
        let lacking = version.lacks(schema, &merged);
        assert_eq!(lacking, None, "{slice:?} {version:?} {done:#?}");
    }

    /// The row in small pieces, as other nodes collect it.
    fn read_pieces(&mut self, family: u32) {
        let store = self.rig.storage().family(FamilyId(family));
        let (bytes, mut after) = (self.rng.usize(1..400), None);
        let mut parts: BTreeMap<RowKey, Vec<RowVersion>> = BTreeMap::new();
        loop {
            let piece = store.read_piece(&RowRange::all(), after.as_ref(), bytes).unwrap();
            for (key, version) in piece.rows {
                parts.entry(key).or_default().push(version);
            }
            after = piece.next;
            if after.is_none() {
                break;
            }
        }
        let (schema, all) = (self.rig.schema.family(FamilyId(family)), Slice::all(None));
        let filter =
            Filter::Range { start: vec![], finish: vec![], reversed: false, limit: usize::MAX };
        let query = Query { super_name: None, filter };
        let now = self.now();
        for key in b'a'..b'd' {
            let done = self.rows.get(&(family, key)).cloned().unwrap_or_default();
            let expected = seen(&done, now).answer(FAMILIES[family as usize], &query);
            let row = RowKey::new(&[key]);
            let merged = RowVersion::merge(schema, parts.get(&row).into_iter().flatten());
            let answer = merged.resolve(schema, &all, now);
            assert_eq!((visible(&answer), answer.count), expected, "{parts:?} {done:#?}");
            let context = RequestContext::default();
            let mut whole = store.read_version(&row, &all, &context, Access::Cached).unwrap();
            whole.drop_hidden(schema);
            // A compaction may have come in between.
            assert!(self.is_purging() || merged == whole, "{merged:?} {whole:?} {done:#?}");
        }
    }

    fn pass_time(&mut self) {
        self.rig.clock.advance(Duration::from_secs(self.rng.u64(1..15)));
        self.raise_floor();
    }

    /// Writes from now on are newer than all that may be purged.
    fn raise_floor(&mut self) {
        let gc_before = self.now() - i64::from(self.rig.setup.gc_grace_seconds);
        let purged = |it: &&Done| it.deletion_time().is_some_and(|time| time <= gc_before);
        let greatest = self.rows.values().flatten().filter(purged).map(|it| it.at).max();
        self.floor = self.floor.max(greatest.unwrap_or(0));
    }

    /// In the end nothing is left of what is deleted or has expired.
    fn purge_all(mut self) {
        self.rig.clock.advance(Duration::from_secs(200_000));
        for family in 0..2 {
            let id = FamilyId(family);
            for _ in 0..2 {
                self.rig.storage().flush(id).unwrap();
                self.rig.storage().compact(id).unwrap();
            }
            (0..10).for_each(|_| self.read(family));
            self.read_pieces(family);
            let rows = self.rows.iter().filter(|((of, _), _)| *of == family);
            let seen: usize = rows.map(|(_, done)| seen(done, self.now()).writes.len()).sum();
            let view = self.rig.storage().family(id).view();
            let cells: u64 = view.tables.iter().map(|table| table.properties().cells).sum();
            assert_eq!(cells, seen as u64, "{:#?}", self.rows);
        }
    }
}

#[test]
fn every_deletion_hides_what_it_should_and_values_expire() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("ALEXANDRA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ALEXANDRA_CASES").unwrap_or(CASES),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| Case::new(seed).run());
        if let Err(panic) = result {
            eprintln!("ALEXANDRA_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}
