//! The hints of a node, for all its targets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use log::warn;

use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::mutation::RowMutation;
use crate::model::schema::Schema;
use crate::storage::directory::{self, DirectorySync};
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::LOCK_FILE;

use super::delivery::{Hint, HintBatch};
use super::error::HintError;
use super::files;
use super::format::hint_bytes;
use super::opening;
use super::stats::{Counters, HintStats, TargetStats, count};
use super::target::{HintPosition, State, TargetLog};
use super::terms::Terms;
use super::upkeep::DurableCallback;

/// Size of a segment, unless one hint is larger. It is what stays on the disk of hints that are
/// delivered already, at most.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// How often a log tells that hints for one target are not kept.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// What a [`HintStore`] is made for.
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

/// What all logs of a store use.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) directory: PathBuf,
    pub(super) max_bytes_per_target: u64,
    pub(super) segment_bytes: u64,
    pub(super) terms: Terms,
    pub(super) counters: Counters,
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
}

/// What a node keeps for others that could not take it. Any number of threads may use it; none of
/// them waits for a sync, but those that ask for one.
#[derive(Debug)]
pub struct HintStore {
    shared: Arc<Shared>,
    /// The logs of all targets that there were hints for. An empty one has no files.
    logs: Mutex<rank::State, BTreeMap<IpAddr, Arc<TargetLog>>>,
}

impl HintStore {
    /// Opens the hints in a directory, which is made if it is not there. An error means that the
    /// directory or one in it cannot be made or looked at, never that what it holds is damaged.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        rng: fastrand::Rng,
        options: HintOptions,
    ) -> Result<Self, FileError> {
        let HintOptions { directory, max_age, max_bytes_per_target, segment_bytes, .. } = options;
        directory::create(&*fs, &directory).context("create", &directory)?;
        let refusals = LimitedLog::new("alexandra::hints", Arc::clone(&clock), WARNING_PERIOD);
        let shared = Arc::new(Shared {
            fs,
            clock,
            directory,
            max_bytes_per_target,
            segment_bytes,
            terms: Terms::new(options.schema, max_age),
            counters: Counters::default(),
            names: DirectorySync::default(),
            refusals,
            rng: Mutex::new(rng),
        });
        let mut logs = BTreeMap::new();
        let mut entries = shared.fs.list(&shared.directory).context("list", &shared.directory)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            match files::target_of(&entry.name) {
                Some(target) if entry.is_dir => {
                    logs.insert(target, Arc::new(opening::open(&shared, target)?));
                }
                _ if entry.name == LOCK_FILE => {}
                _ => {
                    let path = shared.directory.join(&entry.name);
                    warn!("{} is none of the hints and is left alone", path.display());
                }
            }
        }
        Ok(Self { shared, logs: Mutex::new(logs) })
    }

    /// Keeps a mutation for a target, unless no message can hold it. It is durable after the next
    /// [`HintStore::sync`].
    pub fn store(&self, target: IpAddr, mutation: &RowMutation) -> Result<HintPosition, HintError> {
        let log = self.log_or_new(target.to_canonical());
        let (now_ms, limit) = (self.shared.clock.coarse_millis(), self.shared.max_bytes_per_target);
        let is_sendable = self.shared.terms.check_size(mutation);
        let stored = is_sendable.and_then(|()| log.append(mutation.record(), now_ms, limit));
        let counters = &self.shared.counters;
        match &stored {
            Ok(_) => {
                count(&counters.stored, 1);
                count(&counters.stored_bytes, hint_bytes(mutation.record()));
            }
            Err(error) => {
                count(
                    match error {
                        HintError::Full { .. } => &counters.refused_full,
                        HintError::NoSpace(_) => &counters.refused_no_space,
                        _ => &counters.failed,
                    },
                    1,
                );
                let target = log.target;
                self.shared.refusals.warn(
                    target,
                    format_args!(
                        "{target} misses writes until reads at QUORUM or ALL repair them: {error}"
                    ),
                );
            }
        }
        stored
    }

    /// Makes durable what was stored, writes down what was delivered, and throws away what is too
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

    /// Makes a hint durable. Threads that wait at the same time share syncs.
    pub fn wait_durable(&self, position: HintPosition) -> Result<(), HintError> {
        let log = self.log(position.target);
        log.map_or(Ok(()), |log| log.wait_durable((position.segment, position.offset)))
    }

    /// Whether there are hints for a target. To be asked often: no other log is looked at.
    pub fn has(&self, target: IpAddr) -> bool {
        self.log(target.to_canonical()).is_some_and(|log| !log.lock().segments.is_empty())
    }

    /// Targets that there are hints for, in the order of their addresses.
    pub fn targets(&self) -> Vec<TargetStats> {
        self.all().iter().filter_map(|log| log.stats()).collect()
    }

    /// The next hints for a target that are not acknowledged, oldest first: one, or some that take
    /// about so many bytes. None if nothing is left. Without [`HintStore::acknowledge`] the same
    /// hints come again.
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

    /// Takes hints that the target does not accept out of the way of those behind them: each is
    /// appended once more, as old as it is, whatever the limit of the log is. Returns where the
    /// first of them begins now. When all are there the batch that they come from is to be
    /// acknowledged; it does not go from the disk before they are durable at their new place. After
    /// an error, and after a crash, some may be there twice.
    pub fn put_aside(&self, target: IpAddr, hints: &[Hint]) -> Result<HintPosition, HintError> {
        self.log_or_new(target.to_canonical()).put_aside(hints)
    }

    /// Throws away all hints for a target, because it will not come back. Waits for no sync.
    pub fn discard(&self, target: IpAddr) {
        if let Some(log) = self.log(target.to_canonical()) {
            log.discard();
        }
    }

    /// Ends all files in order and makes everything durable, as the node stops. What is stored
    /// later goes to further files.
    pub fn close(&self) -> Result<(), HintError> {
        for log in self.all() {
            let mut state = log.lock();
            if state.is_open {
                log.seal(&mut state);
            }
        }
        self.sync()
    }

    /// What became of hints since the start.
    pub fn stats(&self) -> HintStats {
        self.shared.counters.read_all()
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
    /// What is kept; none if nothing is.
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
