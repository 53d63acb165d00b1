//! The hints of a node, for all its targets.

use super::added::{self, Added};
use super::delivery::{Hint, HintBatch};
use super::format::{self, hint_bytes};
use super::opening;
use super::target::{DurableCallback, HintPosition, State, TargetLog};
use crate::base::clock::Clock;
use crate::base::fs::{FileSystem, is_disk_full};
use crate::base::latest::Latest;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::mutation::RowMutation;
use crate::model::schema::Schema;
use crate::storage::directory::{self, DirectorySync};
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::LOCK_FILE;
use log::warn;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Size of a segment, unless one hint is larger. At most this much of delivered hints stays on the
/// disk.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Shortest time between two warnings about one target.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// Settings of a [`HintStore`].
#[derive(Debug, Clone)]
pub struct HintOptions {
    /// `HintsDirectory`.
    pub directory: PathBuf,
    /// Older hints are not delivered.
    pub max_age: Duration,
    /// Most bytes that are kept for one target.
    pub max_bytes_per_target: u64,
    /// Size of a segment; [`SEGMENT_BYTES`].
    pub segment_bytes: u64,
    /// The column families that hints can be for.
    pub schema: Arc<Schema>,
}

/// State that all logs of a store use.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: HintOptions,
    /// The limits of the options, which may change.
    pub(super) max_age: Latest<Duration>,
    max_bytes_per_target: Latest<u64>,
    /// When families of the configuration were added.
    pub(super) added: Mutex<rank::State, Added>,
    /// Families that a warning was written about.
    pub(super) warned: Mutex<rank::State, BTreeSet<(String, String)>>,
    stats: Mutex<rank::Last, HintStats>,
    /// Makes the names of files durable.
    pub(super) names: DirectorySync,
    /// Warnings about hints that are not kept.
    refusals: LimitedLog<IpAddr>,
    rng: Mutex<rank::Last, fastrand::Rng>,
}

impl Shared {
    /// A salt.
    pub(super) fn draw(&self) -> u64 {
        self.rng.lock().u64(..)
    }

    /// Updates the counters.
    pub(super) fn count(&self, update: impl FnOnce(&mut HintStats)) {
        update(&mut self.stats.lock());
    }
}

/// Hints for other nodes. Any number of threads may use it; only those that ask for a sync wait for
/// one.
#[derive(Debug)]
pub struct HintStore {
    pub(super) shared: Arc<Shared>,
    /// The logs of all targets that there were hints for. An empty one has no files.
    logs: Mutex<rank::State, BTreeMap<IpAddr, Arc<TargetLog>>>,
}

impl HintStore {
    /// Opens the hints in a directory, which is made if it is missing. Fails if the directory or
    /// one in it cannot be made or listed, never for damaged content.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        rng: fastrand::Rng,
        options: HintOptions,
    ) -> Result<Self, FileError> {
        let directory = options.directory.clone();
        directory::create(&*fs, &directory).context("create", &directory)?;
        let added = Added::read(&*fs, &directory)?;
        let refusals = LimitedLog::new("alexandra::hints", Arc::clone(&clock), WARNING_PERIOD);
        let shared = Arc::new(Shared {
            fs,
            clock,
            max_age: Latest::new(options.max_age),
            max_bytes_per_target: Latest::new(options.max_bytes_per_target),
            added: Mutex::new(added),
            options,
            warned: Mutex::default(),
            stats: Mutex::default(),
            names: DirectorySync::default(),
            refusals,
            rng: Mutex::new(rng),
        });
        let mut logs = BTreeMap::new();
        let mut entries = shared.fs.list(&directory).context("list", &directory)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            match format::target_of(&entry.name) {
                Some(target) if entry.is_dir => {
                    logs.insert(target, Arc::new(opening::open(&shared, target)?));
                }
                _ if entry.name == LOCK_FILE || entry.name == added::FILE => {}
                _ => {
                    let path = directory.join(&entry.name);
                    warn!("{} is none of the hints and is left alone", path.display());
                }
            }
        }
        Ok(Self { shared, logs: Mutex::new(logs) })
    }

    /// Sets `HintMaxAgeHours`, and `HintMaxSizeInMB` in bytes.
    pub fn set_limits(&self, max_age: Duration, max_bytes_per_target: u64) {
        self.shared.max_age.set(max_age);
        self.shared.max_bytes_per_target.set(max_bytes_per_target);
    }

    /// Keeps a mutation for a target, unless no message can hold it. It is durable after the next
    /// [`HintStore::sync`].
    pub fn store(&self, target: IpAddr, mutation: &RowMutation) -> Result<HintPosition, HintError> {
        // It would be one for a later family of the name of one that was dropped meanwhile.
        if !mutation.has_families(&self.shared.options.schema) {
            return Err(HintError::Discarded { target });
        }
        let log = self.log_or_new(target.to_canonical());
        let now_ms = self.shared.clock.coarse_millis();
        let limit = *self.shared.max_bytes_per_target;
        let is_sendable = self.shared.check_size(mutation);
        let stored = is_sendable.and_then(|()| log.append(mutation.record(), now_ms, limit));
        self.shared.count(|stats| match &stored {
            Ok(_) => {
                stats.stored += 1;
                stats.stored_bytes += hint_bytes(mutation.record());
            }
            Err(HintError::Full { .. }) => stats.refused_full += 1,
            Err(HintError::NoSpace(_)) => stats.refused_no_space += 1,
            Err(_) => stats.failed += 1,
        });
        stored.inspect_err(|error| {
            let target = log.target;
            let line = "misses writes until reads at QUORUM or ALL repair them";
            self.shared.refusals.warn(target, format_args!("{target} {line}: {error}"));
        })
    }

    /// Makes stored hints durable, saves the progress of deliveries, and drops hints that are too
    /// old. To be called every period of the commit log. Returns the first failure, and does the
    /// rest all the same.
    pub fn sync(&self) -> Result<(), HintError> {
        let mut result = Ok(());
        for log in self.all() {
            log.drop_expired();
            result = result.and(log.sync());
        }
        result
    }

    /// Calls back when a hint is durable, or cannot be: at once, or from within a later sync.
    pub fn on_durable(&self, position: HintPosition, callback: DurableCallback) {
        match self.log(position.target) {
            Some(log) => log.on_durable((position.segment, position.offset), callback),
            None => callback(Ok(())),
        }
    }

    /// Whether there are hints for a target. To be asked often: no other log is looked at.
    pub fn has(&self, target: IpAddr) -> bool {
        self.log(target.to_canonical()).is_some_and(|log| !log.lock().segments.is_empty())
    }

    /// Targets that there are hints for, in the order of their addresses.
    pub fn targets(&self) -> Vec<TargetStats> {
        self.all().iter().filter_map(|log| log.stats()).collect()
    }

    /// The next unacknowledged hints for a target, oldest first: at least one, and about
    /// `max_bytes`. `None` if nothing is left. Without [`HintStore::acknowledge`] the same hints
    /// come again.
    pub fn read_batch(
        &self,
        target: IpAddr,
        max_bytes: u64,
    ) -> Result<Option<HintBatch>, HintError> {
        self.log(target.to_canonical()).map_or(Ok(None), |log| log.read_batch(max_bytes))
    }

    /// Everything up to the end of this batch was delivered, and goes; its files do with the next
    /// [`HintStore::sync`], which is not waited for. After a crash some of it may be there again.
    pub fn acknowledge(&self, end: HintPosition) {
        if let Some(log) = self.log(end.target) {
            log.acknowledge((end.segment, end.offset));
        }
    }

    /// Moves hints that the target does not accept to the end of the log: each is appended once
    /// more, with its age, whatever the limit of the log is. Returns where the first of them begins
    /// now. Afterwards the batch that they come from is to be acknowledged; it stays on disk until
    /// they are durable at their new place. After an error or a crash, some may be there twice.
    pub fn put_aside(&self, target: IpAddr, hints: &[Hint]) -> Result<HintPosition, HintError> {
        self.log_or_new(target.to_canonical()).put_aside(hints)
    }

    /// Throws away all hints for a target, because it will not come back. Waits for no sync.
    pub fn discard(&self, target: IpAddr) {
        if let Some(log) = self.log(target.to_canonical()) {
            log.discard();
        }
    }

    /// Seals all files and makes everything durable, as the node stops. Later hints go to further
    /// files.
    pub fn close(&self) -> Result<(), HintError> {
        for log in self.all() {
            let mut state = log.lock();
            if state.is_open {
                log.seal(&mut state);
            }
        }
        self.sync()
    }

    /// Counters since the start.
    pub fn stats(&self) -> HintStats {
        *self.shared.stats.lock()
    }

    pub(super) fn log(&self, target: IpAddr) -> Option<Arc<TargetLog>> {
        self.lock().get(&target).cloned()
    }

    pub(super) fn log_or_new(&self, target: IpAddr) -> Arc<TargetLog> {
        match self.lock().entry(target) {
            Entry::Occupied(log) => log.get().clone(),
            Entry::Vacant(vacant) => {
                let log = TargetLog::new(self.shared.clone(), target, State::default());
                vacant.insert(Arc::new(log)).clone()
            }
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<TargetLog>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<TargetLog>>> {
        self.logs.lock()
    }
}

impl TargetLog {
    /// State for operators; `None` without hints.
    fn stats(&self) -> Option<TargetStats> {
        let state = self.lock();
        let first = state.segments.first()?;
        let (number, offset) = state.delivered;
        let delivered = if number == first.extent.number { offset } else { 0 };
        let others: u64 = state.segments.iter().skip(1).map(|segment| segment.extent.hints).sum();
        Some(TargetStats {
            target: self.target,
            bytes: state.bytes.saturating_sub(delivered),
            hints: first.extent.hints_from(delivered) + others,
            // Those that were put aside are not in the first one.
            oldest_ms: state.segments.iter().map(|segment| segment.extent.oldest_ms).min(),
        })
    }
}

/// Hints of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetStats {
    /// Whom it is kept for.
    pub target: IpAddr,
    /// Bytes that are not delivered.
    pub bytes: u64,
    /// About how many hints these are.
    pub hints: u64,
    /// Time of the oldest undelivered hint, or of one delivered shortly before, in milliseconds
    /// since the Unix epoch.
    pub oldest_ms: Option<u64>,
}

/// Counters of hints since the start of the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintStats {
    /// Hints that were stored.
    pub stored: u64,
    /// Bytes of these hints.
    pub stored_bytes: u64,
    /// Hints that were not stored because the log of the target had reached its limit.
    pub refused_full: u64,
    /// Hints that were not stored because the disk had no room.
    pub refused_no_space: u64,
    /// Hints that were not stored for another reason.
    pub failed: u64,
    /// Hints that were handed out for delivery, each counted once, and again when it was put aside.
    pub read: u64,
    /// Hints too old to be delivered; estimated where whole segments expire.
    pub expired: u64,
    /// Hints of column families that are not configured any more. One that concerns several is
    /// not delivered if it concerns such a one.
    pub unconfigured: u64,
    /// Bytes that were damaged and passed over, and those of whole files that cannot be read.
    pub damaged_bytes: u64,
    /// Bytes at the ends of logs that a crash had cut.
    pub torn_bytes: u64,
    /// Bytes of hints that were thrown away on request.
    pub discarded_bytes: u64,
}

/// Why a hint was not stored, made durable or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HintError {
    /// The log of this target is as large as it may get. Nothing was stored; it will take hints
    /// again when some are delivered or have expired.
    #[error("the hints for {target} have reached their limit of {limit} bytes (HintMaxSizeInMB)")]
    Full {
        /// Whom the hint is for.
        target: IpAddr,
        /// Most bytes of its log.
        limit: u64,
    },
    /// The disk is full. Nothing was stored; a later hint is once there is space.
    #[error("no space for hints: {0}")]
    NoSpace(FileError),
    /// The mutation is larger than a message to its target, or the format, can hold: it could never
    /// be delivered.
    #[error(
        "a write of {bytes} bytes to one row is larger than the {limit} that a message between \
         nodes can hold"
    )]
    TooLarge {
        /// Size of the mutation.
        bytes: u64,
        /// Largest size of one.
        limit: u64,
    },
    /// The system refused. When storing: the hint is not stored, and the next one goes to another
    /// file. When syncing: what was not durable before may be lost. When reading: may be tried
    /// again.
    #[error("hints: {0}")]
    Io(#[from] FileError),
    /// The hints for this target were thrown away before they were durable.
    #[error("the hints for {target} were discarded")]
    Discarded {
        /// Whom they were for.
        target: IpAddr,
    },
}

impl HintError {
    /// An error of the system. A full disk is a variant of its own because it passes.
    pub(super) fn of(action: &'static str, path: &Path, source: io::Error) -> Self {
        let is_full = is_disk_full(&source);
        let error = FileError::new(action, path, source);
        if is_full { Self::NoSpace(error) } else { Self::Io(error) }
    }
}
