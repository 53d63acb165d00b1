//! A node of the simulated cluster: what `serve` runs, on a simulated disk, with a runtime whose
//! time only the simulator moves.

use crate::clock::NodeClock;
use crate::cluster::Setup;
use crate::defects::Defect;
use crate::kit::disk::{SimFileSystem, Survival};
use crate::local_family::{self, LocalFamily};
use crate::network::{Network, SimTransport, with_large_id};
use crate::registers::{Followed, Recorder, VALUE_NAME};
use alexandra::base::budget::Budget;
use alexandra::base::clock::Clock;
use alexandra::base::fs::FileSystem;
use alexandra::base::worker::Spawner;
use alexandra::coordinator::{Coordinator, ReadOptions};
use alexandra::model::schema::{FamilyId, Schema};
use alexandra::net::Inbound;
use alexandra::node::{Member, MemberOptions};
use alexandra::repair::{Operation, OperationError, OperationReport, StartMode, StartOptions};
use alexandra::replica::{HintOptions, HintStore, Replica, ReplicaOptions};
use alexandra::ring::{DynamicSnitch, ReplicaPlacement, ReplicationStrategy, Snitch, Token};
use alexandra::storage::commitlog::SyncPolicy;
use alexandra::storage::database::Components;
use alexandra::storage::family::ColumnFamily;
use alexandra::storage::system::local_placement::SavedPlace;
use alexandra::storage::{Database, FamilyOptions, Options, system};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

const CLUSTER: &str = "Simulated Cluster";

/// How long replicas may take to answer.
pub(crate) const RPC_TIMEOUT: Duration = Duration::from_secs(1);

/// For what shall not happen by itself.
const NEVER: Duration = Duration::from_hours(10_000);

/// Never reached in a simulation.
const ENDLESS: u64 = 1 << 40;

/// Where the commit log is.
const LOG: &str = "/log";

/// Purpose of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has a place, or is to have one.
    InUse,
    /// Its disk is empty, and nothing runs there.
    Spare,
    /// Its disk is broken, and the others still count on it.
    Broken,
    /// It runs and serves clients, and the others cannot reach it: they give it up for dead.
    CutOff,
}

/// Settings of a node from its command line and configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// `InitialToken`.
    pub(crate) token: Option<Token>,
    /// `AutoBootstrap`.
    pub(crate) bootstraps: bool,
    /// `-Dcassandra.replace_token`.
    pub(crate) replaces: Option<Token>,
}

/// The machine of a node, whether the node runs or not.
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) address: IpAddr,
    pub(crate) life: Life,
    pub(crate) config: Config,
    disk: SimFileSystem,
    skew: i64,
    uptime: Duration,
    pub(crate) running: Option<Running>,
    /// Up to when its runtime was run.
    at_ms: u64,
    pub(crate) is_paused: bool,
    starts: u64,
    local_family: LocalFamily,
    /// The values of registers that it has followed.
    pub(crate) followed: Followed,
    /// By earlier starts.
    behind: Behind,
}

/// Work of nodes behind the backs of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    hints_kept: u64,
    hints_read: u64,
    repairs: u64,
    speculations: u64,
}

impl Behind {
    pub(crate) fn add(&mut self, more: Self) {
        self.hints_kept += more.hints_kept;
        self.hints_read += more.hints_read;
        self.repairs += more.repairs;
        self.speculations += more.speculations;
    }
}

/// A node that runs. What must end first stands first.
pub(crate) struct Running {
    runtime: Runtime,
    pub(crate) member: Arc<Member>,
    pub(crate) storage: Arc<Database>,
    pub(crate) hints: Option<Arc<HintStore>>,
    clock: Arc<NodeClock>,
    generation: i32,
    /// Whether it would serve clients by now.
    is_settled: Arc<AtomicBool>,
    /// Why it could not join, so that its process ends.
    unjoined: Arc<Mutex<Option<OperationError>>>,
    has_small_ids: bool,
}

impl Node {
    pub(crate) fn new(setup: &Setup, number: usize, rng: &mut fastrand::Rng) -> Self {
        Self {
            number,
            address: address(number),
            life: if number < setup.nodes { Life::InUse } else { Life::Spare },
            config: Config { token: setup.tokens.get(number).cloned(), ..Config::default() },
            disk: SimFileSystem::new(rng.u64(..)),
            skew: rng.i64(-5_000_000..5_000_000),
            uptime: Duration::from_millis(rng.u64(1..10_000_000)),
            running: None,
            at_ms: 0,
            is_paused: false,
            starts: 0,
            local_family: LocalFamily::default(),
            followed: Followed::default(),
            behind: Behind::default(),
        }
    }

    pub(crate) fn behind_the_scenes(&self) -> Behind {
        let mut sum = self.behind;
        if let Some(running) = &self.running {
            sum.add(running.behind_the_scenes());
        }
        sum
    }

    /// Somebody sets the wall clock, by so many microseconds.
    pub(crate) fn set_clock(&mut self, by: i64) {
        self.skew += by;
        if let Some(running) = &self.running {
            running.clock.set(by);
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Whether clients can be served.
    pub(crate) fn serves(&self) -> bool {
        self.running.as_ref().is_some_and(|it| it.is_settled.load(Ordering::SeqCst))
    }

    /// Takes a new disk, and waits until it is needed.
    pub(crate) fn become_spare(&mut self) {
        assert!(self.running.is_none(), "it is stopped before");
        self.disk = SimFileSystem::new(self.starts);
        self.local_family = LocalFamily::default();
        (self.life, self.config) = (Life::Spare, Config::default());
    }

    pub(crate) fn start(
        &mut self,
        setup: &Setup,
        network: &Arc<Network>,
        now_ms: u64,
        seeds: Vec<IpAddr>,
    ) {
        assert!(self.running.is_none(), "it is stopped before");
        self.starts += 1;
        self.at_ms = now_ms;
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("the system gives a runtime");
        let clock = Arc::new(NodeClock::new(self.skew, self.uptime, now_ms));
        runtime.block_on(async { clock.start() });
        let entered = runtime.enter();
        let storage = Arc::new(self.open_storage(setup, &clock));
        let Some((identity, beginning)) = self.begin(&storage, clock.now_secs()) else {
            drop(entered);
            storage.close();
            self.become_spare();
            return;
        };
        let generation = identity.generation;
        let hints = (setup.defect != Some(Defect::HintsOff))
            .then(|| Arc::new(self.open_hints(&storage, &clock)));
        let transport = SimTransport::new(self.address, Arc::clone(network), Arc::clone(&clock));
        let replica_options = ReplicaOptions {
            concurrent_reads: 4,
            concurrent_writes: 4,
            memory: Budget::new(1 << 20),
            spawner: Spawner::Inline,
        };
        let replica = Replica::start(Arc::clone(&storage), replica_options);
        let member = Member::new(MemberOptions {
            local: self.address,
            cluster_name: CLUSTER.to_owned(),
            seeds,
            token: identity.token,
            asks_first: beginning.depends_on_memory(),
            replaced: beginning.replaced(),
            generation,
            phi_convict_threshold: 8.0,
            rpc_timeout: RPC_TIMEOUT,
            placements: [(crate::cluster::KEYSPACE.to_owned(), self.placement(setup))].into(),
            storage: Arc::clone(&storage),
            replica: Arc::new(replica.expect("it has no threads")),
            stream_bytes_per_second: None,
            hints: hints.clone(),
            hints_wait_for_sync: setup.is_batch(),
            handoff_pause: Duration::ZERO,
            reads: ReadOptions {
                speculative_percentile: setup.speculative_percentile,
                repairs: setup.defect != Some(Defect::RepairsOff),
                dynamic_snitch: setup
                    .has_dynamic_snitch
                    .then(|| Arc::new(DynamicSnitch::default())),
            },
            transport: Arc::new(transport),
            clock: Arc::clone(&clock) as _,
            seed: setup.seed ^ (self.number as u64) << 32 ^ self.starts << 48,
        });
        let member = member.expect("the saved ring can be read");
        let recorder = Recorder { start: self.starts, followed: Arc::clone(&self.followed) };
        let following = member.coordinator().follow_register(VALUE_NAME, Arc::new(recorder));
        following.expect("the disk is sound");
        let is_settled = Arc::new(AtomicBool::new(false));
        let unjoined = Arc::<Mutex<Option<OperationError>>>::default();
        runtime.spawn(Arc::clone(&member).run(CancellationToken::new()));
        let (joining, settled) = (Arc::clone(&member), Arc::clone(&is_settled));
        let (why, local, network) = (Arc::clone(&unjoined), self.address, Arc::clone(network));
        network.set_joining(local, !matches!(beginning, StartMode::Member));
        runtime.spawn(async move {
            let living = async {
                join(&joining, beginning).await?;
                network.set_joining(local, false);
                settled.store(true, Ordering::SeqCst);
                joining.operations().confirm_first_place().await
            };
            if let Err(error) = living.await {
                *why.lock().unwrap() = Some(error);
            }
        });
        drop(entered);
        let has_small_ids = setup.defect == Some(Defect::MessageIdsRepeat);
        self.running = Some(Running {
            runtime,
            member,
            storage,
            hints,
            clock,
            generation,
            is_settled,
            unjoined,
            has_small_ids,
        });
    }

    /// Its identity, and as what it starts; none if it has left the ring, and must not start again.
    fn begin(&self, storage: &Database, now_secs: i32) -> Option<(system::Identity, StartMode)> {
        let place = SavedPlace::read(storage).expect("the disk is sound");
        if place == SavedPlace::Left {
            return None;
        }
        let Config { token, bootstraps, replaces } = self.config.clone();
        let wish = StartOptions { token, bootstraps, replaces, accepts_loss: false };
        let identity = system::establish_identity(storage, CLUSTER, now_secs, wish.joins());
        let identity = identity.expect("it is the same node");
        let beginning = StartMode::new(&identity, place, wish);
        Some((identity, beginning))
    }

    /// Whether by its disk it may have told others that it has a place. It does not run.
    pub(crate) fn may_have_place(&self, setup: &Setup) -> bool {
        let storage = self.open_storage(setup, &Arc::new(NodeClock::new(0, self.uptime, 0)));
        let place = SavedPlace::read(&storage).expect("the disk is sound");
        storage.close();
        matches!(place, SavedPlace::Arriving { .. })
    }

    fn placement(&self, setup: &Setup) -> ReplicaPlacement {
        let is_wrong = setup.defect == Some(Defect::ReplicationFactorWrong) && self.number == 0;
        ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: if is_wrong { 1 } else { setup.replication_factor },
            snitch: Snitch::EndPoint,
        }
    }

    fn open_storage(&self, setup: &Setup, clock: &Arc<NodeClock>) -> Database {
        let components = Components::new(Arc::new(self.disk.clone()), clock.clone());
        let waits_for_sync = setup.is_batch() && setup.defect != Some(Defect::SyncSkipped);
        let options = Options {
            // The simulator says when.
            sync: if waits_for_sync {
                SyncPolicy::Batch { window: NEVER }
            } else {
                SyncPolicy::Periodic { every: NEVER }
            },
            // Large enough for a life: a thread in the background makes the next one.
            segment_bytes: 1 << 20,
            memtable_budget_bytes: 64 << 20,
            // One after the other, so that files always get the same numbers.
            flush_threads: Some(NonZeroUsize::MIN),
            block_cache_bytes: 1 << 20,
            ..Options::new("/data", LOG)
        };
        let family = |_: FamilyId| family_options(setup);
        let schema: Arc<Schema> = setup.schema_of_node();
        schema.add_keyspace(local_family::KEYSPACE);
        if let Some(family) = self.local_family.definition() {
            schema.insert(family.into());
        }
        let opened = Database::open(components, options, setup.partitioner, schema, family);
        let storage = opened.expect("the disk is sound");
        // A thread in the background writes what was replayed to disk, and removes the segments in
        // which it stood. When it does must not depend on the machine.
        let own = storage.schema().family_id(system::KEYSPACE, system::LOCATION_INFO);
        let own = own.expect("all nodes have it");
        let is_flushed = |family: &Arc<ColumnFamily>| {
            let now = family.statistics();
            family.id() == own || now.memtable_operations == 0 && now.memtables_flushing == 0
        };
        while !storage.families().all(is_flushed) || self.log_segments() > 1 {
            std::thread::yield_now();
        }
        // A flush may have left a note of its family there.
        storage.flush(own).expect("the disk is sound");
        self.local_family.check(&storage);
        storage
    }

    /// Adds a column family, writes to it or drops it. False if the node does not run.
    pub(crate) fn change_local_family(&mut self, setup: &Setup, drops: bool) -> bool {
        let Some(running) = self.running.as_ref().filter(|_| !self.is_paused) else { return false };
        self.local_family.change(&running.storage, drops, family_options(setup));
        true
    }

    fn log_segments(&self) -> usize {
        let found = self.disk.list(Path::new(LOG)).expect("the disk is sound");
        found.iter().filter(|entry| entry.name.starts_with("CommitLog-")).count()
    }

    fn open_hints(&self, storage: &Database, clock: &Arc<NodeClock>) -> HintStore {
        let schema = Arc::clone(storage.schema());
        let options = HintOptions {
            directory: "/hints".into(),
            max_age: NEVER,
            max_bytes_per_target: 1 << 30,
            segment_bytes: 8 << 10,
            schema,
        };
        let rng = fastrand::Rng::with_seed(self.starts);
        let fs = Arc::new(self.disk.clone());
        HintStore::open(fs, Arc::clone(clock) as _, rng, options).expect("the disk is sound")
    }

    /// Lets what the node does go on up to this time.
    pub(crate) fn run_until(&mut self, now_ms: u64) {
        if self.is_paused {
            return;
        }
        let Some(running) = &self.running else { return };
        let span = Duration::from_millis(now_ms - self.at_ms);
        if !span.is_zero() {
            running.runtime.block_on(async { tokio::time::sleep(span).await });
        }
        self.at_ms = now_ms;
        running.clock.tell(now_ms);
    }

    /// Goes on after a pause, in which its clocks have gone on.
    pub(crate) fn resume(&mut self, now_ms: u64) {
        self.is_paused = false;
        let Some(running) = &self.running else { return };
        let span = Duration::from_millis(now_ms - self.at_ms);
        running.runtime.block_on(async { tokio::time::advance(span).await });
        self.at_ms = now_ms;
        running.clock.tell(now_ms);
    }

    /// The process is killed, and the machine runs on.
    pub(crate) fn kill(&mut self) {
        let disk = self.disk.fork();
        self.disk.power_off();
        self.stop();
        self.disk = disk;
    }

    /// The machine loses power.
    pub(crate) fn lose_power(&mut self, survival: Survival, rng: &mut fastrand::Rng) {
        self.disk.power_off();
        self.stop();
        self.disk.crash_keeping(survival, rng);
    }

    /// The process is killed, and what is on the disk is gone.
    pub(crate) fn break_disk(&mut self) {
        self.disk.power_off();
        self.stop();
        self.life = Life::Broken;
    }

    /// How often it was started.
    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    /// Ends the node at once; what it would still write must have been cut off.
    pub(crate) fn stop(&mut self) {
        self.is_paused = false;
        self.behind = self.behind_the_scenes();
        if let Some(Running { runtime, member, storage, clock, .. }) = self.running.take() {
            drop(runtime);
            // Requests that are under way hold on to all of the node, until they are given up.
            clock.tell(NEVER.as_millis() as u64);
            member.coordinator().upkeep(clock.monotonic());
            drop(member);
            storage.close();
        }
    }
}

impl Running {
    /// Takes a message from the network.
    pub(crate) fn receive(&self, message: &[u8]) {
        let _entered = self.runtime.enter();
        let large = self.has_small_ids.then(|| with_large_id(message, self.generation)).flatten();
        let _ = self.member.receive(large.as_deref().unwrap_or(message));
    }

    pub(crate) fn coordinator(&self) -> Arc<Coordinator> {
        Arc::clone(self.member.coordinator())
    }

    /// Does the work of a client.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Does something at once that may begin tasks.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        work()
    }

    pub(crate) fn now_secs(&self) -> i32 {
        self.clock.now_secs()
    }

    pub(crate) fn sync(&self) {
        self.within(|| {
            self.storage.sync().expect("the disk is sound");
            if let Some(hints) = &self.hints {
                hints.sync().expect("the disk is sound");
            }
        });
    }

    fn behind_the_scenes(&self) -> Behind {
        let hints = self.hints.as_ref().map(|hints| hints.stats());
        let reads = self.member.coordinator().stats();
        Behind {
            hints_kept: hints.as_ref().map_or(0, |hints| hints.stored),
            hints_read: hints.as_ref().map_or(0, |hints| hints.read),
            repairs: reads.repairs,
            speculations: reads.speculations,
        }
    }

    /// Whether it knows the whole ring, and takes all of it for alive.
    pub(crate) fn knows_all(&self, nodes: &BTreeSet<IpAddr>) -> bool {
        self.member.with_gossip(|gossiper, membership| {
            membership.members().endpoints() == *nodes
                && nodes.iter().all(|endpoint| gossiper.is_alive(*endpoint))
        })
    }

    /// Whether nothing is left to be given to other members.
    pub(crate) fn has_hints(&self) -> bool {
        let ring = self.member.coordinator().ring();
        let waiting = self.hints.as_ref().map(|hints| hints.waiting()).unwrap_or_default();
        waiting.iter().any(|(_, recipient)| ring.token(*recipient).is_some())
    }

    /// Why it could not join, if it could not.
    pub(crate) fn unjoined(&self) -> Option<String> {
        self.unjoined.lock().unwrap().as_ref().map(ToString::to_string)
    }

    /// An operator asks for something.
    pub(crate) fn ask(&self, wish: Operation) -> Result<(), OperationError> {
        self.within(|| self.member.operations().begin(wish))
    }

    pub(crate) fn report(&self) -> Option<OperationReport> {
        self.member.operations().report()
    }

    /// The token that it owns, as it knows the ring.
    pub(crate) fn token(&self) -> Option<Token> {
        let ring = self.member.coordinator().ring();
        ring.token(self.member.local()).cloned()
    }
}

/// Does what a server does before it serves.
/// Nothing happens by itself: the simulator says when there is a flush or a compaction.
fn family_options(setup: &Setup) -> FamilyOptions {
    FamilyOptions {
        memtable_bytes: ENDLESS,
        memtable_operations: ENDLESS,
        memtable_age: NEVER,
        block_bytes: 256,
        index_interval: 4,
        min_compaction_threshold: 0,
        max_compaction_threshold: 0,
        rows_cached: setup.rows_cached,
        ..FamilyOptions::default()
    }
}

async fn join(member: &Arc<Member>, beginning: StartMode) -> Result<(), OperationError> {
    member.settle().await;
    member.operations().become_member(&beginning).await
}

pub(crate) fn address(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, number as u8 + 1])
}
