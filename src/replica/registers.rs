//! The part of this node in decisions on registers. See [`crate::model::register`].
//!
//! A node that has lost its disk has forgotten its promises, and a new replica has never made any:
//! a change that a quorum with it accepted, and that was not yet settled, may be decided against.
//! Apache Cassandra is no better. Such a change had an unknown outcome for its client at most; what
//! was settled is in the rows, and is safe as other writes are.
//!
//! Where participants keep the value of a register, this node may follow it: it does what each
//! value says, in order. Values that a newer one has overtaken meanwhile are left out.

use super::verbs::{Answer, Replica, ReplicaError};
use crate::base::lock::{Mutex, rank};
use crate::model::key::RowKey;
use crate::model::register::{Ask, Kept, Vote};
use crate::storage::Database;
use crate::storage::database::{Applied, WriteError};
use crate::storage::system::registers::SavedRegister;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Locks among which registers are spread.
const STRIPES: u64 = 64;

/// Values that are remembered as told: more than are decided while a proposer pauses.
const MOST_TOLD: usize = 16;

/// Follows the value of a register.
pub trait Follower: fmt::Debug + Send + Sync {
    /// Does what the value says. Returns whether it was done: if not, the value comes once more
    /// when this node is told of it again, and after a restart. May wait for the disk: the vote of
    /// this node waits as long.
    fn follow(&self, kept: &Kept) -> bool;
}

#[derive(Debug)]
struct Following {
    follower: Arc<dyn Follower>,
    /// The last version that was followed.
    version: i64,
}

/// A value that was decided, in short: values may be long.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    register: RowKey,
    version: i64,
    hash: u64,
}

impl Told {
    fn new(register: &RowKey, kept: &Kept) -> Self {
        let mut hasher = DefaultHasher::new();
        kept.value.hash(&mut hasher);
        Self { register: register.clone(), version: kept.version, hash: hasher.finish() }
    }
}

/// Order of the work on registers.
#[derive(Debug)]
pub(super) struct Registers {
    /// Each held while a state of its registers changes.
    stripes: [Mutex<rank::Register, ()>; STRIPES as usize],
    /// By register. Held while a value is followed.
    followers: Mutex<rank::Following, BTreeMap<RowKey, Following>>,
    /// The versions of these registers that were followed.
    versions: Mutex<rank::Last, BTreeMap<RowKey, i64>>,
    /// The last values that this node was told to keep, the newest at the end.
    told: Mutex<rank::Last, VecDeque<Told>>,
}

impl Default for Registers {
    fn default() -> Self {
        let stripes = std::array::from_fn(|_| Mutex::new(()));
        let (followers, versions, told) = Default::default();
        Self { stripes, followers, versions, told }
    }
}

impl Registers {
    fn stripe(&self, name: &RowKey) -> &Mutex<rank::Register, ()> {
        let mut hasher = DefaultHasher::new();
        name.as_bytes().hash(&mut hasher);
        &self.stripes[(hasher.finish() % STRIPES) as usize]
    }

    /// Votes, and writes the new state, which is read by others before it is on disk.
    fn vote(
        &self,
        storage: &Database,
        name: &RowKey,
        ask: Ask,
    ) -> Result<(Vote, Applied), ReplicaError> {
        let is_value = if let Ask::Keep(kept) = &ask {
            self.note_told(Told::new(name, kept));
            true
        } else {
            false
        };
        let one_at_a_time = self.stripe(name).lock();
        let mut saved = SavedRegister::read(storage, name)?;
        let (vote, is_new) = saved.state.take(ask);
        let applied = if is_new { saved.write(storage, name)? } else { Applied::Done };
        drop(one_at_a_time);
        if is_value {
            self.follow(storage, name)?;
        }
        Ok((vote, applied))
    }

    fn note_told(&self, value: Told) {
        let mut told = self.told.lock();
        if !told.contains(&value) {
            told.push_back(value);
        }
        while told.len() > MOST_TOLD {
            told.pop_front();
        }
    }

    fn follow(&self, storage: &Database, name: &RowKey) -> Result<(), ReplicaError> {
        let mut followers = self.followers.lock();
        let Some(following) = followers.get_mut(name) else { return Ok(()) };
        let saved = SavedRegister::read(storage, name)?;
        let kept = saved.state.kept();
        if kept.version > following.version && following.follower.follow(kept) {
            following.version = kept.version;
        }
        // Not before: a node that joins collects the rows of the tables that it has.
        self.versions.lock().insert(name.clone(), following.version);
        Ok(())
    }
}

impl Replica {
    /// Follows a register from now on, beginning with the value that is kept, if there is one.
    pub fn follow_register(
        &self,
        name: &RowKey,
        follower: Arc<dyn Follower>,
    ) -> Result<(), ReplicaError> {
        let following = Following { follower, version: 0 };
        self.registers.followers.lock().insert(name.clone(), following);
        self.registers.follow(&self.storage, name)
    }

    /// The registers that this node follows, and the versions that it has followed.
    pub fn register_versions(&self) -> BTreeMap<RowKey, i64> {
        self.registers.versions.lock().clone()
    }

    /// Whether this node was told lately to keep this value: then it was decided.
    pub fn was_told_to_keep(&self, name: &RowKey, kept: &Kept) -> bool {
        self.registers.told.lock().contains(&Told::new(name, kept))
    }

    /// Takes part in a decision on a register. The answer comes when it will not be forgotten.
    pub async fn vote(&self, name: RowKey, ask: Ask) -> Answer<Vote> {
        let (sender, receiver) = oneshot::channel();
        let (storage, registers) = (Arc::clone(&self.storage), Arc::clone(&self.registers));
        let job = move || match registers.vote(&storage, &name, ask) {
            Ok((vote, Applied::Pending(position))) => {
                let tell = |durable: Result<(), _>| {
                    let durable = durable.map_err(|error| WriteError::Log(error).into());
                    // Its proposer may have given up.
                    let _ = sender.send(durable.map(|()| vote));
                };
                storage.on_durable(position, Box::new(tell));
            }
            voted => drop(sender.send(voted.map(|(vote, _)| vote))),
        };
        if self.spawner().is_inline() {
            job();
        } else if let Err(abandoned) = self.writes.submit(job).await {
            return Answer::Ready(Err(abandoned.into()));
        }
        Answer::Working(receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::budget::Budget;
    use crate::base::clock::Clock;
    use crate::base::worker::Spawner;
    use crate::kit::clock::ManualClock;
    use crate::kit::disk::SimFileSystem;
    use crate::kit::storage;
    use crate::model::register::{Ballot, Decision, Proposal, Register};
    use crate::model::schema::Schema;
    use crate::replica::ReplicaOptions;
    use crate::ring::Partitioner;
    use crate::storage::Options;
    use crate::storage::commitlog::SyncPolicy;
    use crate::storage::system::{KEYSPACE, registers::PAXOS};
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ballot(micros: i64) -> Ballot {
        Ballot { micros, number: 1 }
    }

    fn prepare(micros: i64) -> Ask {
        Ask::Prepare(ballot(micros))
    }

    fn proposal() -> Proposal {
        let decision = Decision { ballot: ballot(5), origin: ballot(5), ..Decision::default() };
        Proposal { decision, value: b"value".to_vec() }
    }

    fn promised(accepted: Option<Proposal>) -> Vote {
        Vote::Promised { settled: Decision::default(), accepted }
    }

    fn start(disk: &SimFileSystem, clock: &Arc<ManualClock>, sync: SyncPolicy) -> Replica {
        let schema = Arc::new(Schema::new(storage::system_families()));
        let options = Options { sync, ..storage::options() };
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let storage = storage::open(disk, clock, options, Partitioner::Random, &schema);
        let options = ReplicaOptions {
            concurrent_reads: 1,
            concurrent_writes: 1,
            memory: Budget::new(1 << 20),
            spawner: Spawner::Inline,
        };
        Replica::start(storage, options).unwrap()
    }

    fn periodic(disk: &SimFileSystem, clock: &Arc<ManualClock>) -> Replica {
        start(disk, clock, SyncPolicy::Periodic { every: HOUR })
    }

    async fn vote(replica: &Replica, ask: Ask) -> Vote {
        replica.vote(RowKey::from("register"), ask).await.wait().await.unwrap()
    }

    #[tokio::test]
    async fn a_killed_node_keeps_its_promises() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
        let replica = periodic(&disk, &clock);
        assert_eq!(vote(&replica, prepare(5)).await, promised(None));
        assert_eq!(vote(&replica, Ask::Propose(proposal())).await, Vote::Accepted);
        let killed = disk.fork();
        drop(replica);
        let replica = periodic(&killed, &clock);
        assert_eq!(vote(&replica, prepare(4)).await, Vote::Refused(ballot(5)));
        assert_eq!(vote(&replica, prepare(6)).await, promised(Some(proposal())));
        let other = replica.vote(RowKey::from("other"), prepare(4)).await.wait().await.unwrap();
        assert_eq!(other, promised(None));
    }

    #[tokio::test]
    async fn in_batch_mode_a_vote_waits_until_it_is_on_disk() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
        let replica = start(&disk, &clock, SyncPolicy::Batch { window: HOUR });
        let mut first = Box::pin(vote(&replica, prepare(5)));
        assert_eq!(first.as_mut().now_or_never(), None);
        let mut again = Box::pin(vote(&replica, prepare(5)));
        assert_eq!(again.as_mut().now_or_never(), None, "a repeated message");
        replica.storage.sync().unwrap();
        assert_eq!(first.await, promised(None));
        assert_eq!(again.await, promised(None));
        // This one tells of nothing that must not be forgotten.
        assert_eq!(vote(&replica, prepare(4)).now_or_never(), Some(Vote::Refused(ballot(5))));
    }

    #[tokio::test]
    async fn states_expire() {
        let now = 1 << 50;
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::at_micros(now)));
        let replica = periodic(&disk, &clock);
        let decision = Decision { ballot: ballot(now), ..Decision::default() };
        let late = Proposal { decision, value: b"value".to_vec() };
        vote(&replica, Ask::Propose(late.clone())).await;
        clock.advance(11 * HOUR);
        assert_eq!(vote(&replica, prepare(now + 1)).await, promised(Some(late)));
        clock.advance(HOUR + Duration::from_secs(1));
        let renewed = vote(&replica, prepare(now + 2)).await;
        assert_eq!(renewed, promised(None), "the change has expired though it was written again");
        clock.advance(Duration::from_secs(24 * 3600 - 1));
        assert_eq!(vote(&replica, prepare(5)).await, Vote::Refused(ballot(now + 2)));
        clock.advance(Duration::from_secs(1));
        assert_eq!(vote(&replica, prepare(5)).await, promised(None));
        assert_eq!(vote(&replica, prepare(4)).await, Vote::Refused(ballot(5)));
    }

    #[tokio::test]
    async fn compaction_drops_expired_states() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::at_micros(1 << 50)));
        let replica = periodic(&disk, &clock);
        let family = replica.storage.schema().family_id(KEYSPACE, PAXOS).unwrap();
        vote(&replica, prepare(5)).await;
        let compact = || {
            replica.storage.flush(family).unwrap();
            replica.storage.compact(family).unwrap();
            replica.storage.family(family).statistics().live_bytes
        };
        assert!(compact() > 0);
        // With the grace period of a day.
        clock.advance(49 * HOUR);
        assert_eq!(compact(), 0);
    }

    #[tokio::test]
    async fn states_of_a_clock_that_was_set_back_count() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::at_micros(1 << 50)));
        let replica = periodic(&disk, &clock);
        vote(&replica, prepare(3)).await;
        let replica = periodic(&disk.fork(), &Arc::new(ManualClock::at_micros(1 << 40)));
        vote(&replica, prepare(5)).await;
        vote(&replica, prepare(6)).await;
        assert_eq!(vote(&replica, prepare(4)).await, Vote::Refused(ballot(6)));
    }

    #[derive(Debug, Default)]
    struct Recorder {
        versions: std::sync::Mutex<Vec<i64>>,
        fails: AtomicBool,
    }

    impl Recorder {
        fn versions(&self) -> Vec<i64> {
            self.versions.lock().unwrap().clone()
        }
    }

    impl Follower for Recorder {
        fn follow(&self, kept: &Kept) -> bool {
            assert_eq!(kept.value, kept.version.to_be_bytes());
            self.versions.lock().unwrap().push(kept.version);
            !self.fails.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn a_value_counts_when_it_was_followed_and_comes_again_until_then() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
        let replica = periodic(&disk, &clock);
        let (follower, name) = (Arc::new(Recorder::default()), RowKey::from("register"));
        replica.follow_register(&name, Arc::clone(&follower) as _).unwrap();
        for (fails, version) in [(true, 0), (true, 0), (false, 3), (false, 3)] {
            follower.fails.store(fails, Ordering::Relaxed);
            let value = 3_i64.to_be_bytes().to_vec();
            vote(&replica, Ask::Keep(Kept { version: 3, value })).await;
            assert_eq!(replica.register_versions(), [(name.clone(), version)].into());
        }
        assert_eq!(follower.versions(), [3, 3, 3]);
    }

    #[tokio::test]
    async fn a_node_follows_newer_values_alone_and_begins_with_the_one_that_it_keeps() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
        let replica = periodic(&disk, &clock);
        let (first, name) = (Arc::new(Recorder::default()), RowKey::from("register"));
        replica.follow_register(&name, Arc::clone(&first) as _).unwrap();
        for version in [3, 5, 4, 5, 7] {
            let value = i64::to_be_bytes(version).to_vec();
            assert_eq!(vote(&replica, Ask::Keep(Kept { version, value })).await, Vote::Accepted);
        }
        assert_eq!(first.versions(), [3, 5, 7]);
        clock.advance(1000 * HOUR);
        let killed = disk.fork();
        drop(replica);
        let replica = periodic(&killed, &clock);
        let again = Arc::new(Recorder::default());
        replica.follow_register(&name, Arc::clone(&again) as _).unwrap();
        assert_eq!(again.versions(), [7]);
        assert_eq!(replica.register_versions(), [(name, 7)].into());
        let told = Vote::Told(Some(Kept { version: 7, value: 7_i64.to_be_bytes().to_vec() }));
        assert_eq!(vote(&replica, Ask::Tell(6)).await, told);
    }

    #[tokio::test]
    async fn a_state_that_makes_no_sense_is_no_vote() {
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
        let replica = periodic(&disk, &clock);
        let family = replica.storage.schema().family_id(KEYSPACE, PAXOS).unwrap();
        let bytes = Register::default().encode();
        for (timestamp, state) in [(0, &bytes[..]), (9, &bytes[1..])] {
            let schema = replica.storage.schema();
            let mut row =
                crate::model::mutation::MutationBuilder::new(schema, KEYSPACE, b"register");
            row.family(family).insert((b"", b"State"), state, timestamp);
            replica.storage.apply(&row.finish(), true).unwrap();
            let voted = replica.vote(RowKey::from("register"), prepare(1)).await.wait().await;
            assert_eq!(voted.is_ok(), timestamp == 0);
        }
    }
}
