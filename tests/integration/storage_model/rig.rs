//! A storage core on a simulated disk, with small thresholds, so that a few writes make files.

use crate::kit::clock::ManualClock;
use crate::kit::disk::{SimFileSystem, Survival};
use crate::kit::events::Heard;
use crate::storage_model::model::{Family, Filter, Order, Query, Target, Visible, Write};
use crate::storage_model::uneven::Uneven;
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::context::RequestContext;
use alexandra::base::events::Events;
use alexandra::base::fs::FileSystem;
use alexandra::config::settings::CacheSize;
use alexandra::model::comparator::Comparator;
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::ring::Partitioner;
use alexandra::storage::commitlog::{LogError, SyncPolicy};
use alexandra::storage::database::{Applied, Components, StorageError, WriteError};
use alexandra::storage::error::ReadError;
use alexandra::storage::restore::{self, Report, Request, RestoreError};
use alexandra::storage::sstable::{Access, Compression};
use alexandra::storage::{CacheOptions, CompactionStrategy, Database, FamilyOptions, Options};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Long enough for anything that the threads in the background do, short enough for a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Two of the families, with columns of one level.
pub(crate) const FLUSHABLE: [u32; 2] = [0, 2];

pub(crate) const KEYSPACE: &str = "Blog";

/// Where the commit log is.
pub(crate) const LOG: &str = "/var/commitlog";

pub(crate) const ARCHIVE: &str = "/var/archive";

/// Contents of the three column families in the model, by number.
pub(crate) const FAMILIES: [Family; 3] = [
    Family { is_super: false, order: Order::Bytes, suborder: Order::Bytes },
    Family { is_super: true, order: Order::Long, suborder: Order::Bytes },
    Family { is_super: false, order: Order::Long, suborder: Order::Bytes },
];

pub(crate) fn schema(gc_grace_seconds: i32) -> Arc<Schema> {
    let gc_grace = Duration::from_secs(gc_grace_seconds as u64);
    let kinds = [
        ColumnFamilyKind::Standard { columns: Comparator::Utf8 },
        ColumnFamilyKind::Super { super_columns: Comparator::Long, columns: Comparator::Bytes },
        ColumnFamilyKind::Standard { columns: Comparator::Long },
    ];
    let named = ["Authors", "Comments", "Entries"].into_iter().zip(kinds);
    let families = named.map(|(name, kind)| {
        let (keyspace, name) = (KEYSPACE.to_owned(), name.to_owned());
        Arc::new(ColumnFamilySchema { gc_grace, ..ColumnFamilySchema::new(keyspace, name, kind) })
    });
    Arc::new(Schema::new(families))
}

/// How a rig is set up.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Setup {
    pub(crate) partitioner: Partitioner,
    pub(crate) sync: SyncPolicy,
    pub(crate) gc_grace_seconds: i32,
    pub(crate) strategy: CompactionStrategy,
    pub(crate) min_compaction_threshold: usize,
    pub(crate) data_directories: usize,
    /// So many of them do not tell how much room they have.
    pub(crate) unmeasured_directories: usize,
    /// The commit log has a partition of its own, of so many bytes.
    pub(crate) log_bytes: Option<u64>,
    pub(crate) memtable_operations: u64,
    pub(crate) memtable_budget_bytes: u64,
    pub(crate) compression: Compression,
    /// A quarter of it is what a small row may have.
    pub(crate) block_bytes: usize,
    pub(crate) block_cache_bytes: u64,
    pub(crate) keys_cached: CacheSize,
    pub(crate) rows_cached: CacheSize,
    pub(crate) row_cache_bytes: u64,
    /// Whether the keys of caches are saved, every hour and at the end.
    pub(crate) saves_caches: bool,
    pub(crate) preheats_keys: bool,
    /// Whether the commit log has an archive.
    pub(crate) archives: bool,
    pub(crate) snapshot_before_compaction: bool,
}

/// Where keys of caches are saved.
pub(crate) const SAVED_CACHES: &str = "/var/saved_caches";

pub(crate) const BATCH: SyncPolicy = SyncPolicy::Batch { window: Duration::ZERO };
pub(crate) const PERIODIC: SyncPolicy = SyncPolicy::Periodic { every: Duration::from_hours(1) };

impl Setup {
    pub(crate) const DEFAULT: Self = Self {
        partitioner: Partitioner::Random,
        sync: BATCH,
        gc_grace_seconds: 10,
        strategy: CompactionStrategy::SizeTiered,
        min_compaction_threshold: 3,
        data_directories: 1,
        unmeasured_directories: 0,
        log_bytes: None,
        memtable_operations: 20,
        memtable_budget_bytes: 1 << 20,
        compression: Compression::Lz4,
        block_bytes: 200,
        block_cache_bytes: 1 << 14,
        keys_cached: CacheSize::Entries(200_000),
        rows_cached: CacheSize::Off,
        row_cache_bytes: 1 << 20,
        saves_caches: false,
        preheats_keys: false,
        archives: false,
        snapshot_before_compaction: false,
    };
}

impl Default for Setup {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A storage core, its disk and its clock.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) setup: Setup,
    seed: u64,
    pub(crate) disk: SimFileSystem,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) schema: Arc<Schema>,
    events: Events,
    /// Lines told so far.
    pub(crate) heard: Arc<Heard>,
    storage: Option<Database>,
}

/// Outcome of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Acknowledged.
    Done,
    /// Refused, and surely not there.
    Refused(#[allow(dead_code, reason = "printed")] WriteError),
    /// Not acknowledged: it may be there.
    Unknown(#[allow(dead_code, reason = "printed")] LogError),
}

impl Rig {
    /// A rig on an empty disk.
    pub(crate) fn new(setup: Setup, seed: u64) -> Self {
        let mut rig = Self::unopened(setup, seed);
        rig.open().expect("an empty disk can be opened");
        rig
    }

    /// A rig on an empty disk whose storage was never started.
    pub(crate) fn unopened(setup: Setup, seed: u64) -> Self {
        let disk = SimFileSystem::new(seed);
        let clock = Arc::new(ManualClock::at_micros(1_000_000_000));
        let (events, heard) = Heard::events();
        Self {
            setup,
            seed,
            disk,
            clock,
            schema: schema(setup.gc_grace_seconds),
            events,
            heard,
            storage: None,
        }
    }

    /// Starts the storage.
    pub(crate) fn open(&mut self) -> Result<(), StorageError> {
        self.open_with(self.options(), &self.family_options())
    }

    /// Starts the storage with other options than those of the setup.
    pub(crate) fn open_with(
        &mut self,
        options: Options,
        family_options: &FamilyOptions,
    ) -> Result<(), StorageError> {
        assert!(self.storage.is_none(), "it is stopped before");
        let family_options = |_| family_options.clone();
        let families = self.schema.families().map(|(_, family)| Arc::clone(family));
        self.schema = Arc::new(Schema::new(families));
        let (partitioner, schema) = (self.setup.partitioner, Arc::clone(&self.schema));
        self.storage =
            Some(Database::open(self.components(), options, partitioner, schema, family_options)?);
        Ok(())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.storage.is_some()
    }

    /// From now on the disk has room for so many bytes more.
    pub(crate) fn leave_room(&self, bytes: u64) {
        const LARGE: u64 = 1 << 40;
        self.disk.set_capacity(Some(LARGE));
        let used = LARGE - self.disk.available_space("/".as_ref()).unwrap();
        self.disk.set_capacity(Some(used + bytes));
    }

    fn options(&self) -> Options {
        let setup = self.setup;
        let names = (0..setup.data_directories).map(|i| format!("/var/data{i}").into());
        Options {
            data_directories: names.collect(),
            commit_log_archive_directory: setup.archives.then(|| ARCHIVE.into()),
            sync: setup.sync,
            segment_bytes: 4096,
            memtable_budget_bytes: setup.memtable_budget_bytes,
            block_cache_bytes: setup.block_cache_bytes,
            caches: CacheOptions {
                key_bytes: 1 << 20,
                row_bytes: setup.row_cache_bytes,
                saved_directory: setup.saves_caches.then(|| SAVED_CACHES.into()),
                preheats_keys: setup.preheats_keys,
            },
            snapshot_before_compaction: setup.snapshot_before_compaction,
            seed: self.seed,
            ..Options::new("/", LOG)
        }
    }

    fn family_options(&self) -> FamilyOptions {
        let setup = self.setup;
        FamilyOptions {
            memtable_operations: setup.memtable_operations,
            block_bytes: setup.block_bytes,
            index_interval: 3,
            compression: setup.compression,
            compaction_strategy: setup.strategy,
            // So that levels are full soon, and rows do not fit one.
            leveled_table_bytes: 1000,
            min_compaction_threshold: setup.min_compaction_threshold,
            keys_cached: setup.keys_cached,
            rows_cached: setup.rows_cached,
            key_cache_save_period: setup.saves_caches.then_some(Duration::from_hours(1)),
            row_cache_save_period: setup.saves_caches.then_some(Duration::from_hours(1)),
            ..FamilyOptions::default()
        }
    }

    fn components(&self) -> Components {
        let Setup { unmeasured_directories, log_bytes, .. } = self.setup;
        let fs = Arc::new(Uneven::new(self.disk.clone(), unmeasured_directories, log_bytes));
        Components { events: self.events.clone(), ..Components::new(fs, self.clock.clone()) }
    }

    /// Takes a snapshot with a tag and returns its whole name.
    pub(crate) fn snapshot(&self, tag: &str) -> String {
        let taken = self.storage().snapshot(None, Some(tag)).unwrap();
        assert_eq!(taken.len(), 1, "{taken:?}");
        taken[0].name.to_string()
    }

    /// The newest folder of the archive.
    pub(crate) fn archive_folder(&self) -> PathBuf {
        let entries = self.disk.list(ARCHIVE.as_ref()).unwrap();
        let numbers = entries.into_iter().filter_map(|entry| entry.name.parse::<u64>().ok());
        Path::new(ARCHIVE).join(numbers.max().unwrap().to_string())
    }

    /// Restores, while it is stopped.
    pub(crate) fn restore(
        &self,
        request: &Request,
        accept_commitlog_loss: bool,
    ) -> Result<Report, RestoreError> {
        assert!(self.storage.is_none(), "it is stopped before");
        let setup = restore::Setup {
            components: self.components(),
            options: Options { accept_commitlog_loss, ..self.options() },
            partitioner: self.setup.partitioner,
            schema: Arc::clone(&self.schema),
            families: vec![self.family_options(); FAMILIES.len()],
        };
        restore::restore(&setup, request)
    }

    /// The same disk as it is now, for another storage that is not open.
    pub(crate) fn fork(&self) -> Self {
        let mut fork = Self::unopened(self.setup, self.seed);
        fork.disk = self.disk.fork();
        fork.clock = Arc::new(ManualClock::at_micros(self.clock.now_micros()));
        fork
    }

    pub(crate) fn storage(&self) -> &Database {
        self.storage.as_ref().expect("the storage is open")
    }

    /// Seconds on the clock.
    pub(crate) fn now(&self) -> i32 {
        self.clock.now_secs()
    }

    /// Stops it cleanly.
    pub(crate) fn close(&mut self) {
        drop(self.storage.take());
    }

    /// The process is killed and the machine runs on: nothing is lost, and no more is durable than
    /// was before.
    pub(crate) fn kill(&mut self) {
        let disk = self.disk.fork();
        self.close();
        self.disk = disk;
    }

    /// The machine stops at once and comes back. With [`Survival::Everything`] it is as if only the
    /// process had been killed.
    pub(crate) fn crash(&mut self, survival: Survival, rng: &mut fastrand::Rng) {
        self.disk.power_off();
        self.close();
        self.disk.crash_keeping(survival, rng);
    }

    /// One mutation of one row.
    pub(crate) fn mutation(&self, key: &[u8], parts: &[(u32, Vec<Write>)]) -> RowMutation {
        let mut builder = MutationBuilder::new(&self.schema, KEYSPACE, key);
        for (family, writes) in parts {
            builder.family(FamilyId(*family));
            for Write { target, value, timestamp, deleted_at, .. } in writes {
                let deletion = Deletion::at(*timestamp, *deleted_at);
                match (target, value) {
                    (Target::Row, _) => builder.delete_row(deletion),
                    (Target::SuperColumn(name), _) => builder.delete_super_column(name, deletion),
                    (Target::Column(s, n), None) => builder.delete_column((s, n), deletion),
                    (Target::Column(s, n), Some(value)) => {
                        builder.insert((s, n), value, *timestamp)
                    }
                };
            }
        }
        builder.finish()
    }

    /// Writes, and in batch mode waits until it is durable.
    pub(crate) fn write(&self, key: &[u8], parts: &[(u32, Vec<Write>)]) -> Outcome {
        self.apply(&self.mutation(key, parts))
    }

    /// The same of any mutation.
    pub(crate) fn apply(&self, mutation: &RowMutation) -> Outcome {
        match self.storage().apply(mutation, true) {
            Ok(Applied::Done) => Outcome::Done,
            Ok(Applied::Pending(position)) => {
                let (tell, told) = mpsc::channel();
                let callback = Box::new(move |result| tell.send(result).unwrap());
                self.storage().on_durable(position, callback);
                match told.recv().expect("every callback is called") {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Unknown(error),
                }
            }
            Err(WriteError::Log(error @ LogError::Failed { .. })) => Outcome::Unknown(error),
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Writes a column of a standard family; it must be acknowledged.
    pub(crate) fn insert(&self, family: u32, key: &str, column: (&str, i64), value: &[u8]) {
        let (name, timestamp) = column;
        let outcome =
            self.write(key.as_bytes(), &[(family, vec![insertion(name, timestamp, value)])]);
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    }

    /// Deletes a column of a standard family.
    pub(crate) fn delete(&self, family: u32, key: &str, name: &str, timestamp: i64) {
        let deletion =
            Write { value: None, deleted_at: self.now(), ..insertion(name, timestamp, b"") };
        let outcome = self.write(key.as_bytes(), &[(family, vec![deletion])]);
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    }

    /// The value of a column of a standard family.
    pub(crate) fn get(&self, family: u32, key: &str, name: &str) -> Option<Vec<u8>> {
        let query =
            Query { super_name: None, filter: Filter::Names(vec![name.as_bytes().to_vec()]) };
        let slice = self.slice(family, &query);
        let answer = self.read(family, key.as_bytes(), &slice).unwrap();
        answer.cells.first().map(|cell| cell.value().to_vec())
    }

    /// Names of the files in the folder of the keyspace of the first data directory, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let folder = format!("/var/data0/{KEYSPACE}");
        let entries = self.disk.list(folder.as_ref()).unwrap();
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    /// The slice that a query stands for.
    pub(crate) fn slice(&self, family: u32, query: &Query) -> Slice {
        let super_name = query.super_name.as_deref();
        match &query.filter {
            Filter::Names(names) => {
                let family = self.schema.family(FamilyId(family));
                Slice::names(family, super_name, names.iter().map(Vec::as_slice))
            }
            Filter::Range { start, finish, reversed, limit } => {
                Slice::range(super_name, start, finish, *reversed, *limit)
            }
        }
    }

    /// Reads a slice of a row, first from memory alone.
    pub(crate) fn read(
        &self,
        family: u32,
        key: &[u8],
        slice: &Slice,
    ) -> Result<RowSlice, ReadError> {
        let (family, key) = (FamilyId(family), RowKey::new(key));
        match self.storage().family(family).read(
            &key,
            slice,
            &RequestContext::default(),
            Access::CachedOnly,
        ) {
            Err(ReadError::WouldBlock) => self.storage().family(family).read(
                &key,
                slice,
                &RequestContext::default(),
                Access::Cached,
            ),
            answer => answer,
        }
    }
}

/// A column of a standard family.
pub(crate) fn insertion(name: &str, timestamp: i64, value: &[u8]) -> Write {
    let target = Target::Column(Vec::new(), name.as_bytes().to_vec());
    Write { target, value: Some(value.to_vec()), timestamp, deleted_at: 0, number: 0 }
}

/// Waits for threads in the background: looks again and again.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The cells of an answer in the terms of the model.
pub(crate) fn visible(answer: &RowSlice) -> Vec<Visible> {
    let parts = answer.cells.iter().map(|cell| {
        let (super_name, name) = cell.place();
        (super_name.to_vec(), name.to_vec(), cell.value().to_vec(), cell.timestamp())
    });
    parts.collect()
}
