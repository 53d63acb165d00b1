//! All column families of a node together with the commit log: what the rest of the server uses.
//!
//! Locks: the gate before everything else; then as [`super::store`] and [`super::memtable`] say.

use super::background::{Next, Work, WorkQueue};
use super::cache::BlockCache;
use super::commitlog::{self, CommitLog, LogError, LogOptions, Position, SyncPolicy};
use super::compaction::{self, CompactionError};
use super::directory::{self, DirectorySync};
use super::error::{FileContext, FileError, ReadError};
use super::files;
use super::options::{FamilyOptions, Options};
use super::sstable::Access;
use super::store::{Environment, OpenError, Store};
use crate::base::clock::Clock;
use crate::base::events::{CompactionEvent, CompactionKind, Events, FlushCause, FlushEvent};
use crate::base::fs::{FileSystem, Lock};
use crate::model::key::RowKey;
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::{RowSlice, Slice};
use crate::ring::{Partitioner, RowRange, Token};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the flush thread looks for memtables that have become too old.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Pause before a flush or compaction is tried again for which there was no room on the disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The outer world of a storage core.
#[derive(Debug, Clone)]
pub struct Components {
    /// Where files are.
    pub fs: Arc<dyn FileSystem>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who hears of what happens.
    pub events: Events,
}

/// Why the storage cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another server uses the directory.
    #[error("{path} is used by another server: stop it first", path = .0.display())]
    Locked(PathBuf),
    /// A directory or file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A column family cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The commit log cannot be replayed.
    #[error(
        "the commit log cannot be replayed: {0}. Start with --accept-commitlog-loss to go on \
         without what is damaged"
    )]
    Replay(String),
    /// There are writes of the original that would seem to be lost.
    #[error(
        "{path} is a commit log of Apache Cassandra, which this version cannot read: name an empty \
         directory in CommitLogDirectory",
        path = .0.display()
    )]
    LogOfTheOriginal(PathBuf),
    /// The commit log cannot be opened.
    #[error("the commit log cannot be opened: {0}")]
    Log(#[from] LogError),
    /// A flush during replay failed.
    #[error(transparent)]
    Flush(#[from] ReadError),
    /// The operating system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Why a write was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Memtables are at their bound and the caller must not wait. Nothing happened.
    #[error("memtables are at their bound")]
    WouldBlock,
    /// The store has failed and takes no more writes. Nothing happened.
    #[error("{family} takes no more writes: {reason}")]
    Failed {
        /// The column family.
        family: String,
        /// What went wrong.
        reason: String,
    },
    /// The commit log did not take it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The node is stopping. Nothing happened.
    #[error("the node is stopping")]
    Closed,
}

/// When a write may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Now.
    Done,
    /// When [`Storage::on_durable`] has called back for this position.
    Pending(Position),
}

/// All column families of a node.
#[derive(Debug)]
pub struct Storage {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the caller and the threads in the background share.
#[derive(Debug)]
struct Shared {
    schema: Arc<Schema>,
    stores: Vec<Arc<Store>>,
    environment: Arc<Environment>,
    log: CommitLog,
    log_directory: PathBuf,
    waits_for_sync: bool,
    /// Shared by writers, exclusive for who switches a memtable: a position of the log then tells
    /// what the old memtable holds.
    gate: RwLock<()>,
    flushes: WorkQueue,
    compactions: WorkQueue,
    memtable_budget: u64,
    /// Woken when a flush has freed memory.
    memory_freed: (Mutex<()>, Condvar),
    stopping: AtomicBool,
    /// Keep other servers out of the directories.
    _locks: Vec<Box<dyn Lock>>,
}

impl Storage {
    /// Opens all column families and replays the commit log.
    pub fn open(
        components: Components,
        options: Options,
        partitioner: Partitioner,
        schema: Arc<Schema>,
        family_options: impl Fn(FamilyId) -> FamilyOptions,
    ) -> Result<Self, StorageError> {
        let Components { fs, clock, events } = components;
        let locks = prepare_directories(&*fs, &options, &schema)?;
        let environment = Arc::new(Environment {
            fs: Arc::clone(&fs),
            clock: Arc::clone(&clock),
            events,
            cache: Arc::new(BlockCache::new(options.block_cache_bytes)),
            partitioner,
            memtable_memory: AtomicU64::new(0),
            directory_sync: DirectorySync::default(),
        });
        let mut stores = Vec::new();
        for (id, family) in schema.families() {
            let folders = options
                .data_directories
                .iter()
                .map(|d| files::keyspace_folder(d, &family.keyspace));
            let folders = folders.collect();
            let store = Store::open(&environment, id, family, family_options(id), folders)?;
            stores.push(Arc::new(store));
        }
        let replayed = replay(&*fs, &options, &schema, &environment, &stores)?;
        if let Some(path) = replayed.segment_of_the_original() {
            return Err(StorageError::LogOfTheOriginal(path.to_owned()));
        }
        let flushed = stores.iter().map(|store| store.flushed_position()).max();
        let flushed = flushed.unwrap_or_default();
        let log_options = LogOptions {
            dir: options.commit_log_directory.clone(),
            segment_bytes: options.segment_bytes,
            sync: options.sync,
            first_segment: flushed.segment + 1,
        };
        let rng = fastrand::Rng::with_seed(options.seed);
        let has_replayed = !replayed.segments.is_empty();
        let log = CommitLog::open(fs, clock, rng, log_options, replayed)?;
        let shared = Arc::new(Shared {
            schema,
            stores,
            environment,
            log,
            log_directory: options.commit_log_directory,
            waits_for_sync: matches!(options.sync, SyncPolicy::Batch { .. }),
            gate: RwLock::new(()),
            flushes: WorkQueue::default(),
            compactions: WorkQueue::default(),
            memtable_budget: options.memtable_budget_bytes,
            memory_freed: (Mutex::new(()), Condvar::new()),
            stopping: AtomicBool::new(false),
            _locks: locks,
        });
        if has_replayed {
            shared.request_all(FlushCause::Replay);
            shared.flushes.push(Work::ReplayIsFlushed);
        }
        for store in &shared.stores {
            shared.compactions.push(Work::Compact(store.id()));
        }
        let threads = vec![
            spawn("flush", &shared, Shared::run_flushes)?,
            spawn("compaction", &shared, Shared::run_compactions)?,
        ];
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// The column families.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.shared.schema
    }

    /// Decides on the order of rows.
    pub fn partitioner(&self) -> Partitioner {
        self.shared.environment.partitioner
    }

    /// Writes to the log and to the memtables. With `may_block` it waits when memtables are at
    /// their bound, else that is [`WriteError::WouldBlock`].
    pub fn apply(&self, mutation: &RowMutation, may_block: bool) -> Result<Applied, WriteError> {
        self.apply_all(std::slice::from_ref(mutation), may_block)
    }

    /// [`Storage::apply`] for several rows, logged by one write. After an error of the log some of
    /// the rows may be written at the next start, each whole or not at all.
    pub fn apply_all(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        self.shared.apply(mutations, may_block)
    }

    /// Calls back, on a thread that must not be kept, when everything up to the position is
    /// durable or never will be.
    pub fn on_durable(
        &self,
        position: Position,
        callback: Box<dyn FnOnce(Result<(), LogError>) + Send>,
    ) {
        self.shared.log.on_synced(position, callback);
    }

    /// The visible part of a slice of one row.
    pub fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        let key = self.partitioner().decorate(key.clone());
        self.shared.store(family).read(&key, slice, false, access)
    }

    /// How many columns or super columns of the slice are visible.
    pub fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        access: Access,
    ) -> Result<usize, ReadError> {
        let key = self.partitioner().decorate(key.clone());
        Ok(self.shared.store(family).read(&key, slice, true, access)?.count)
    }

    /// The slice of each row of a range, in token order, rows without visible columns included.
    pub fn scan(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        self.shared.store(family).scan(range, slice, max_rows, access)
    }

    /// Tokens of every so many-th row on disk, of all column families, in no order.
    pub fn sampled_tokens(&self) -> Vec<Token> {
        let views = self.shared.stores.iter().map(|store| store.view());
        views
            .flat_map(|view| view.tables.clone())
            .flat_map(|table| table.sampled_tokens().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// One column family.
    pub fn store(&self, family: FamilyId) -> &Arc<Store> {
        self.shared.store(family)
    }

    /// Writes what is in the memtable of a column family to disk before it returns.
    pub fn flush(&self, family: FamilyId) -> Result<(), ReadError> {
        self.shared.flush(self.shared.store(family), FlushCause::Request)
    }

    /// Merges all SSTables of a column family into one before it returns. Nothing happens if there
    /// is none.
    pub fn compact(&self, family: FamilyId) -> Result<(), CompactionError> {
        let store = self.shared.store(family);
        let _one_at_a_time = store.compaction_lock();
        let tables = store.view().tables.clone();
        if tables.is_empty() {
            return Ok(());
        }
        compaction::compact(store, &tables, CompactionKind::Major, &self.shared.stopping)
    }

    /// Makes everything durable that was written so far.
    pub fn sync(&self) -> Result<(), LogError> {
        self.shared.log.sync_now()
    }

    /// Stops the threads, writes memtables to disk, and closes the log. What cannot be flushed
    /// stays in the log.
    pub fn close(&self) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.flushes.close();
        self.shared.compactions.close();
        self.shared.memory_freed.1.notify_all();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                log::error!("a background thread of the storage ended by a panic");
            }
        }
        for store in &self.shared.stores {
            if let Err(error) = self.shared.flush(store, FlushCause::Shutdown) {
                log::warn!("{} stays in the commit log: {error}", store.schema());
            }
        }
        // The flush thread may not have come to it.
        self.shared.forget_replayed();
        if let Err(error) = self.shared.log.close() {
            log::error!("the commit log was not closed cleanly: {error}");
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn store(&self, family: FamilyId) -> &Arc<Store> {
        &self.stores[family.0 as usize]
    }

    fn apply(&self, mutations: &[RowMutation], may_block: bool) -> Result<Applied, WriteError> {
        self.wait_for_memory(may_block)?;
        for family in mutations.iter().flat_map(|mutation| &mutation.families) {
            if let Some(refusal) = refusal(self.store(family.family)) {
                return Err(refusal);
            }
        }
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.stopping.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        let records = mutations.iter().map(|m| (m.record(), m.family_numbers()));
        let position = self.log.append_all(records)?;
        for mutation in mutations {
            let key = self.environment.partitioner.decorate(mutation.key.clone());
            for family in &mutation.families {
                self.store(family.family).apply(&key, family);
            }
        }
        drop(gate);
        let mut last = None;
        for family in mutations.iter().flat_map(|mutation| &mutation.families) {
            // The rows of a batch are mostly of one family.
            if last.replace(family.family) != Some(family.family) {
                let store = self.store(family.family);
                if let Some(cause) = store.full_cause() {
                    self.flushes.push(Work::Flush(store.id(), cause));
                }
            }
        }
        Ok(match position {
            Some(position) if self.waits_for_sync => Applied::Pending(position),
            _ => Applied::Done,
        })
    }

    /// Memtables being full is no reason to fail: writers go as fast as the disk does.
    fn wait_for_memory(&self, may_block: bool) -> Result<(), WriteError> {
        let used = || self.environment.memtable_memory.load(Ordering::Relaxed);
        if used() * 2 > self.memtable_budget {
            self.request_largest();
        }
        if used() <= self.memtable_budget {
            return Ok(());
        }
        if !may_block {
            return Err(WriteError::WouldBlock);
        }
        let (lock, freed) = &self.memory_freed;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while used() > self.memtable_budget {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(WriteError::Closed);
            }
            if !self.can_free_memory()
                && let Some(refusal) = self.stores.iter().find_map(|store| refusal(store))
            {
                return Err(refusal);
            }
            self.request_largest();
            guard =
                freed.wait_timeout(guard, RETRY_PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Asks for a flush of the largest memtable, unless flushes are waiting already.
    fn request_largest(&self) {
        if !self.flushes.is_empty() {
            return;
        }
        let sound = self.stores.iter().filter(|store| store.failure().is_none());
        let largest = sound.max_by_key(|store| store.view().active.memory());
        if let Some(store) = largest.filter(|store| !store.view().active.is_empty()) {
            self.flushes.push(Work::Flush(store.id(), FlushCause::Memory));
        }
    }

    /// Whether a flush may free memory. What a failed family holds stays in memory, and readable.
    fn can_free_memory(&self) -> bool {
        let mut sound = self.stores.iter().filter(|store| store.failure().is_none());
        sound.any(|store| store.view().memtables().any(|memtable| !memtable.is_empty()))
    }

    fn request_all(&self, cause: FlushCause) {
        for store in &self.stores {
            if !store.view().active.is_empty() {
                self.flushes.push(Work::Flush(store.id(), cause));
            }
        }
    }

    /// Switches the memtable and writes the old one to disk.
    fn flush(&self, store: &Arc<Store>, cause: FlushCause) -> Result<(), ReadError> {
        let _one_at_a_time = store.flush_lock();
        // What an earlier flush could not write goes first: the log forgets in order.
        for memtable in store.view().flushing.clone() {
            store.flush(&memtable)?;
        }
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let position = self.log.position();
        let switched = store.switch_memtable(position);
        drop(gate);
        if let Some(memtable) = switched {
            self.environment.events.emit(FlushEvent::Switched {
                memtable: store.memtable_event(&memtable, position.segment),
                cause,
                log_file: commitlog::segment_file(&self.log_directory, position),
                log_position: position.offset,
            });
            // Else a power loss could leave a mutation of two families by half: in the SSTable of
            // the one, and not in the log for the other. A log that has failed is no reason to
            // keep from the disk what was acknowledged.
            if let Err(error) = self.log.sync_now() {
                log::warn!("{} is flushed, but not the commit log: {error}", store.schema());
            }
            store.flush(&memtable)?;
        }
        if let Err(error) = self.log.discard_completed(store.id().0, position) {
            log::warn!("commit log segments stay longer than needed: {error}");
        }
        self.memory_freed.1.notify_all();
        self.compactions.push(Work::Compact(store.id()));
        Ok(())
    }

    fn run_flushes(&self) {
        loop {
            match self.flushes.next(AGE_CHECK) {
                Next::Closed => return,
                Next::Idle => self.request_oldest(),
                Next::Work(Work::Flush(family, cause)) => self.flush_until_done(family, cause),
                Next::Work(Work::ReplayIsFlushed) => self.forget_replayed(),
                Next::Work(Work::Compact(_)) => {}
            }
        }
    }

    /// Flushes; a full disk is waited for, any other failure stops writing to the family.
    fn flush_until_done(&self, family: FamilyId, cause: FlushCause) {
        let store = self.store(family);
        while let Err(error) = self.flush(store, cause) {
            if !is_disk_full(&error) {
                store.fail(format!("its memtable cannot be written to disk: {error}"));
                return;
            }
            log::error!("{}: no room to write its memtable: {error}", store.schema());
            std::thread::park_timeout(RETRY_PAUSE);
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn forget_replayed(&self) {
        if self.stores.iter().any(|store| !store.view().flushing.is_empty()) {
            // A flush failed. The segments stay for the next start.
            return;
        }
        if let Err(error) = self.log.delete_replayed() {
            log::warn!("replayed commit log segments cannot be removed: {error}");
        }
    }

    /// One memtable at a time, so that those which began together do not all end together.
    fn request_oldest(&self) {
        let now = self.environment.clock.monotonic();
        let age = |store: &Store| {
            let active = Arc::clone(&store.view().active);
            let age = now.saturating_sub(active.created_at());
            (!active.is_empty() && age >= store.options().memtable_age).then_some(age)
        };
        let aged = self.stores.iter().filter_map(|store| Some((age(store)?, store.id())));
        if let Some((_, family)) = aged.max() {
            self.flushes.push(Work::Flush(family, FlushCause::Age));
        }
    }

    fn run_compactions(&self) {
        loop {
            match self.compactions.next(AGE_CHECK) {
                Next::Closed => return,
                Next::Work(Work::Compact(family)) => self.compact_minor(family),
                Next::Idle | Next::Work(_) => {}
            }
        }
    }

    fn compact_minor(&self, family_id: FamilyId) {
        let store = self.store(family_id);
        let _one_at_a_time = store.compaction_lock();
        let Some(inputs) = compaction::next_minor(&store.view().tables, store.options()) else {
            return;
        };
        match compaction::compact(store, &inputs, CompactionKind::Minor, &self.stopping) {
            Ok(()) => self.compactions.push(Work::Compact(family_id)),
            Err(CompactionError::Stopped) => {}
            Err(CompactionError::Failed(error)) => {
                let (family, reason) = (store.event_family(), error.to_string());
                self.environment.events.emit(CompactionEvent::Failed { family, reason });
                if inputs.iter().any(|table| table.is_damaged()) {
                    // The others may still be enough for a compaction.
                    self.compactions.push(Work::Compact(family_id));
                }
            }
        }
    }
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    run: fn(&Shared),
) -> Result<JoinHandle<()>, StorageError> {
    let shared = Arc::clone(shared);
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(move || run(&shared)).map_err(StorageError::Thread)
}

/// What a writer to the family is told if it has failed.
fn refusal(store: &Store) -> Option<WriteError> {
    let reason = store.failure()?.to_owned();
    Some(WriteError::Failed { family: store.schema().to_string(), reason })
}

fn is_disk_full(error: &ReadError) -> bool {
    let ReadError::Io(file) = error else { return false };
    matches!(file.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Creates the directories and keeps other servers out of them.
fn prepare_directories(
    fs: &dyn FileSystem,
    options: &Options,
    schema: &Schema,
) -> Result<Vec<Box<dyn Lock>>, StorageError> {
    let mut locks = Vec::new();
    let directories = options.data_directories.iter().chain([&options.commit_log_directory]);
    for directory in directories {
        directory::create(fs, directory).context("create", directory)?;
        let path = directory.join(files::LOCK_FILE);
        match fs.lock(&path) {
            Ok(lock) => locks.push(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(StorageError::Locked(directory.clone()));
            }
            Err(error) => return Err(FileError::new("lock", &path, error).into()),
        }
    }
    for directory in &options.data_directories {
        for keyspace in schema.keyspaces() {
            let folder = files::keyspace_folder(directory, keyspace);
            directory::create(fs, &folder).context("create", &folder)?;
        }
        fs.sync_dir(directory).context("sync", directory)?;
    }
    Ok(locks)
}

/// Applies what the commit log holds to the memtables.
fn replay(
    fs: &dyn FileSystem,
    options: &Options,
    schema: &Schema,
    environment: &Environment,
    stores: &[Arc<Store>],
) -> Result<commitlog::Replayed, StorageError> {
    let mut apply = |position: Position, record: &[u8]| -> Result<(), StorageError> {
        let mutation = match RowMutation::decode(record, schema) {
            Ok(mutation) => mutation,
            Err(error @ DecodeError::UnknownFamily { .. }) if options.accept_commitlog_loss => {
                log::warn!("a replayed mutation is dropped: {error}");
                return Ok(());
            }
            Err(error) => {
                let Position { segment, offset } = position;
                let place = format!("segment {segment}, record ending at {offset}: {error}");
                return Err(StorageError::Replay(place));
            }
        };
        let key = environment.partitioner.decorate(mutation.key.clone());
        for family in &mutation.families {
            let store = &stores[family.family.0 as usize];
            // A segment stays as long as any family needs it. What others have flushed may have
            // been deleted and purged since, and would come back.
            if position > store.flushed_position() {
                store.apply(&key, family);
            }
        }
        if environment.memtable_memory.load(Ordering::Relaxed) > options.memtable_budget_bytes {
            for store in stores {
                if let Some(memtable) = store.switch_memtable(position) {
                    store.flush(&memtable)?;
                }
            }
        }
        Ok(())
    };
    let accept_loss = options.accept_commitlog_loss;
    commitlog::replay(&options.commit_log_directory, fs, accept_loss, &mut apply).map_err(|error| {
        match error {
            commitlog::ReplayError::Apply { source, .. } => source,
            other => StorageError::Replay(other.to_string()),
        }
    })
}
