//! Reads of rows that differ, over replicas that answer in any order, or not at all.

use super::*;
use crate::base::budget::Budget;
use crate::base::context::RequestContext;
use crate::base::worker::Spawner;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::kit::storage;
use crate::model::cell::Expiry;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, FamilyId, Schema};
use crate::replica::{Answer, PendingRead, Replica, ReplicaOptions, RowQuery};
use crate::ring::Partitioner;
use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Bound;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Has the rows of all replicas of all cases.
static STORE: LazyLock<Replica> = LazyLock::new(|| {
    let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
    let (options, ordered) = (storage::options(), Partitioner::OrderPreserving);
    let storage = storage::open(&disk, clock, options, ordered, &Arc::clone(&SCHEMA));
    let options = ReplicaOptions {
        concurrent_reads: 1,
        concurrent_writes: 1,
        memory: Budget::new(1 << 20),
        spawner: Spawner::Inline,
    };
    Replica::start(storage, options).unwrap()
});

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(schema()));

/// Event of a row at one replica: a kind, a super column, a column and a timestamp.
type Change = (u8, u8, u8, i64);

#[derive(Debug, Clone)]
struct Case {
    family: FamilyId,
    /// Events that each replica knows, and whether it takes full digests.
    replicas: Vec<(Vec<Change>, bool)>,
    needed: usize,
    slice: Slice,
    /// Decide which message is next, and which are lost.
    choices: Vec<u8>,
}

fn schema() -> Schema {
    let columns = Comparator::Bytes;
    let supers =
        ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns: columns.clone() };
    let kinds = [ColumnFamilyKind::Standard { columns }, supers];
    let rows = kinds.into_iter().zip(["Rows", "Supers"]).map(|(kind, name)| {
        let (keyspace, name) = ("Blog".to_owned(), name.to_owned());
        Arc::new(ColumnFamilySchema::new(keyspace, name, kind))
    });
    Schema::new(rows.chain(storage::system_families()))
}

fn slices(is_super: bool) -> BoxedStrategy<Slice> {
    let parent = proptest::option::of(0..2u8)
        .prop_map(move |name| name.filter(|_| is_super).map(|name| vec![b's', name]));
    let range = (any::<bool>(), 0..5usize, proptest::option::of((0..3u8, 0..3u8)));
    (parent, range, proptest::option::weighted(0.2, vec(0..3u8, 0..3)))
        .prop_map(move |(parent, (reversed, limit, bounds), names)| {
            let is_grouped = is_super && parent.is_none();
            let place = |name| if is_grouped { vec![b's', name] } else { column(name).to_vec() };
            let parent = parent.as_deref();
            if let Some(names) = names {
                let names: Vec<Vec<u8>> = names.into_iter().map(place).collect();
                let family = schema();
                let family = family.family(FamilyId(u32::from(is_super)));
                return Slice::names(family, parent, names.iter().map(|name| &name[..]));
            }
            let (mut start, mut finish) =
                bounds.map_or((vec![], vec![]), |(a, b)| (place(a.min(b)), place(a.max(b))));
            if reversed {
                std::mem::swap(&mut start, &mut finish);
            }
            Slice::range(parent, &start, &finish, reversed, limit)
        })
        .boxed()
}

/// The name of a column: the elements of two collections.
fn column(number: u8) -> [u8; 3] {
    [if number < 2 { b'n' } else { b'o' }, 0, number]
}

fn cases() -> impl Strategy<Value = Case> {
    let change = || (0..14u8, 0..2u8, 0..3u8, 0..5i64);
    // Most have heard of most: else digests are never alike.
    let replicas = (vec(change(), 0..10), vec((vec(change(), 0..3), any::<bool>()), 1..5));
    let rest = (1..4usize, vec(any::<u8>(), 1..40));
    (any::<bool>(), replicas, rest).prop_flat_map(|(is_super, (common, own), (needed, choices))| {
        let replicas: Vec<_> = own
            .into_iter()
            .map(|(own, full)| (common.iter().copied().chain(own).collect::<Vec<_>>(), full))
            .collect();
        let needed = needed.min(replicas.len());
        let family = FamilyId(u32::from(is_super));
        slices(is_super).prop_map(move |slice| {
            let (replicas, choices) = (replicas.clone(), choices.clone());
            Case { family, replicas, needed, slice, choices }
        })
    })
}

fn endpoint(place: usize) -> IpAddr {
    [127, 0, 0, place as u8].into()
}

/// The row as one replica has it.
struct Copy {
    family: FamilyId,
    key: RowKey,
}

impl Copy {
    fn new(family: FamilyId, changes: &[Change]) -> Self {
        static ROWS: AtomicUsize = AtomicUsize::new(0);
        let row = ROWS.fetch_add(1, Ordering::Relaxed);
        let copy = Self { family, key: RowKey::from(&*row.to_string()) };
        for change in changes {
            copy.change(*change);
        }
        copy
    }

    fn change(&self, (kind, group, name, at): Change) {
        let schema = &SCHEMA;
        let is_super = schema.family(self.family).is_super();
        let super_name: &[u8] = if is_super { &[b's', group] } else { b"" };
        let column = column(name);
        let place = (super_name, &column[..]);
        let mut builder = MutationBuilder::new(schema, "Blog", self.key.as_bytes());
        let row = builder.family(self.family);
        match kind {
            0 => row.delete_row(Deletion::at(at, 1)),
            1 if is_super => row.delete_super_column(super_name, Deletion::at(at, 1)),
            2..4 => row.delete_column(place, Deletion::at(at, i32::from(kind))),
            4 => row.delete_prefix((super_name, &column[..1]), Deletion::at(at, 1)),
            5 | 6 => {
                let group = [b's', group];
                let bound = if is_super { &group[..] } else { &column };
                let range = if kind == 5 {
                    (Bound::Included(bound), Bound::Included(bound))
                } else {
                    (Bound::Unbounded, Bound::Excluded(bound))
                };
                row.delete_range(range, Deletion::at(at, 1))
            }
            7 => {
                // In the first second since 1970 some are there, and some are not any more.
                let expiry = Expiry { ttl: 1, at: i64::from(name % 2) * 1_000_000 };
                row.insert_expiring(place, &[kind], at, expiry)
            }
            kind => row.insert(place, &[kind], at),
        };
        Self::apply(&builder.finish());
    }

    fn version(&self, slice: &Slice) -> RowVersion {
        let row = RowQuery { family: self.family, key: &self.key, slice };
        let mut context = RequestContext::default();
        let read = async { STORE.read_version(row, &mut context).await };
        match read.now_or_never() {
            Some(PendingRead::Ready(version)) => version.unwrap(),
            _ => unreachable!("it is in memory"),
        }
    }

    fn repair(&self, lacking: &RowVersion) {
        Self::apply(&lacking.to_mutation(&SCHEMA, self.family, &self.key));
    }

    fn apply(mutation: &RowMutation) {
        let applied = STORE.apply(std::slice::from_ref(mutation)).now_or_never();
        assert!(matches!(applied, Some(Answer::Ready(Ok(())))));
    }
}

/// Carries messages until the read is done, or nothing helps any more.
fn carry(case: &Case, copies: &[Copy]) -> (Option<Resolved>, bool) {
    let family = SCHEMA.family(case.family);
    let candidates = case.replicas.iter().enumerate();
    let candidates = candidates.map(|(place, (_, full))| (endpoint(place), *full));
    let requirement = Requirement::any(case.needed);
    let mut read =
        RowRead::new(Arc::clone(family), (case.slice.clone(), 0), requirement, candidates);
    let (mut on_its_way, mut is_any_lost) = (read.begin(), false);
    let mut choices = case.choices.iter().cycle().map(|choice| usize::from(*choice));
    for _ in 0..200 {
        if let Some(resolved) = read.take_answer() {
            return (Some(resolved), is_any_lost);
        }
        let choice = choices.next().unwrap();
        if on_its_way.is_empty() || choice % 5 == 0 {
            on_its_way.extend(read.on_slow());
            if on_its_way.is_empty() {
                break;
            }
        }
        let Request { to, round, what: RowPart { ask, slice } } =
            on_its_way.swap_remove(choice % on_its_way.len());
        if choice % 11 == 10 {
            is_any_lost = true;
            continue;
        }
        let place = (0..copies.len()).position(|place| endpoint(place) == to).unwrap();
        let version = copies[place].version(&slice);
        let reply = match ask {
            Ask::Data => Reply::Data(version),
            Ask::Digest if case.replicas[place].1 => Reply::Digest(version.full_digest(family)),
            Ask::Digest => Reply::Digest(version.digest(family)),
        };
        if round == read.round() {
            on_its_way.extend(read.on_reply(to, reply));
        }
    }
    (None, is_any_lost)
}

#[test]
fn all_answers_but_one_count_while_replicas_that_differ_are_asked_again() {
    let family = Arc::clone(SCHEMA.family(FamilyId(0)));
    let candidates = (0..2).map(|place| (endpoint(place), true));
    let mut read = RowRead::new(family, (Slice::all(None), 0), Requirement::any(2), candidates);
    let counts = |present, has_data| ReplicaCounts { required: 2, present, has_data };
    read.begin();
    assert_eq!(read.counts(), counts(0, false));
    read.on_reply(endpoint(1), Reply::Digest([7; 16]));
    assert_eq!(read.counts(), counts(1, false));
    let again = read.on_reply(endpoint(0), Reply::Data(RowVersion::default()));
    assert_eq!((again.len(), read.counts()), (2, counts(1, true)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_read_sees_all_that_those_know_who_took_part(case in cases()) {
        let family = SCHEMA.family(case.family);
        let copies: Vec<Copy> =
            case.replicas.iter().map(|(changes, _)| Copy::new(case.family, changes)).collect();
        let (resolved, is_any_lost) = carry(&case, &copies);
        let Some(Resolved { version, consistent, repairs, .. }) = resolved else {
            prop_assert!(is_any_lost, "all have answered");
            return Ok(());
        };
        let repaired = repairs.iter().map(|(endpoint, _)| *endpoint);
        let took_part: Vec<IpAddr> = consistent.iter().copied().chain(repaired).collect();
        prop_assert!(took_part.len() >= case.needed);
        let at = |of: &IpAddr| copies.iter().zip(0..).find(|(_, it)| endpoint(*it) == *of);
        let copy = |of: &IpAddr| at(of).unwrap().0;
        let all: Vec<RowVersion> =
            took_part.iter().map(|it| copy(it).version(&Slice::all(None))).collect();
        let seen = version.resolve(family, &case.slice, 0);
        let mut whole = RowVersion::merge(family, &all);
        whole.keep_within(family, &case.slice);
        prop_assert_eq!(&seen, &whole.resolve(family, &case.slice, 0));
        for (endpoint, lacking) in &repairs {
            copy(endpoint).repair(lacking);
        }
        for endpoint in &took_part {
            let own = copy(endpoint).version(&case.slice);
            prop_assert_eq!(&own.resolve(family, &case.slice, 0), &seen, "{}", endpoint);
        }
    }
}
