//! Settings of the storage core.

use super::commitlog::SyncPolicy;
use super::compaction::Thresholds;
use super::sstable::Compression;
use crate::config::settings::CacheSize;
pub use crate::config::settings::CompactionStrategy;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the whole storage core.
#[derive(Debug, Clone)]
pub struct Options {
    /// `DataFileDirectories`: SSTables are spread over them.
    pub data_directories: Vec<PathBuf>,
    /// `CommitLogDirectory`.
    pub commit_log_directory: PathBuf,
    /// `CommitLogArchiveDirectory`: keeps segments that the commit log has no use for any more.
    pub commit_log_archive_directory: Option<PathBuf>,
    /// Durability of the commit log.
    pub sync: SyncPolicy,
    /// `CommitLogRotationThresholdInMB`, in bytes.
    pub segment_bytes: u64,
    /// Memory of all memtables together; writers wait when it is used up.
    pub memtable_budget_bytes: u64,
    /// Most memtables that are written to disk at once; `None` for one at each data directory,
    /// within bounds.
    pub flush_threads: Option<NonZeroUsize>,
    /// `BlockCacheInMB`, in bytes.
    pub block_cache_bytes: u64,
    /// Settings of compactions.
    pub compaction: CompactionOptions,
    /// The key and row caches.
    pub caches: CacheOptions,
    /// `SnapshotBeforeCompaction`: whether each compaction takes one of its keyspace first.
    pub snapshot_before_compaction: bool,
    /// Whether a start skips a damaged part of the commit log.
    pub accept_commitlog_loss: bool,
    /// Whether a start goes on without data that the commit log shows to have been there.
    pub accept_data_loss: bool,
    /// Seed of random numbers.
    pub seed: u64,
}

impl Options {
    /// Settings for one data directory and a commit log, all else with moderate values.
    pub fn new(data_directory: impl Into<PathBuf>, commit_log: impl Into<PathBuf>) -> Self {
        Self {
            data_directories: vec![data_directory.into()],
            commit_log_directory: commit_log.into(),
            commit_log_archive_directory: None,
            sync: SyncPolicy::Periodic { every: Duration::from_secs(10) },
            segment_bytes: 128 << 20,
            memtable_budget_bytes: 1 << 30,
            flush_threads: None,
            block_cache_bytes: 1 << 30,
            compaction: CompactionOptions::default(),
            caches: CacheOptions::default(),
            accept_commitlog_loss: false,
            accept_data_loss: false,
            snapshot_before_compaction: false,
            seed: 1,
        }
    }
}

/// Settings of the compactions of all column families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionOptions {
    /// Most compactions at once; at least two, so that a long one leaves the small files to another
    /// thread.
    pub threads: usize,
    /// `CompactionThroughputInMBPerSecond`, in bytes: how fast all of them together may read;
    /// `None` for as fast as they can.
    pub bytes_per_second: Option<u64>,
    /// Niceness of its threads, above that of the threads that serve clients.
    pub niceness: i32,
}

/// Most compactions at once by default: more would only be in each other's way on the disk.
const MAX_COMPACTION_THREADS: usize = 4;

/// Half of the processor that others get, where there is not enough for all.
const COMPACTION_NICENESS: i32 = 4;

impl Default for CompactionOptions {
    /// One thread for two cores, and no throttle.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: (cores / 2).clamp(2, MAX_COMPACTION_THREADS),
            bytes_per_second: None,
            niceness: COMPACTION_NICENESS,
        }
    }
}

/// Settings of the key and row caches of all column families together.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Most bytes of all key caches together.
    pub key_bytes: u64,
    /// Most bytes of all row caches together.
    pub row_bytes: u64,
    /// `SavedCachesDirectory`: where the keys of caches are saved, and from where the caches are
    /// filled after a start; `None` for neither.
    pub saved_directory: Option<PathBuf>,
    /// `compaction_preheat_key_cache`: whether the key cache learns at the end of a compaction the
    /// new places of its rows.
    pub preheats_keys: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            key_bytes: 8 << 20,
            row_bytes: 32 << 20,
            saved_directory: None,
            preheats_keys: false,
        }
    }
}

/// Settings of one column family.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyOptions {
    /// `MemtableThroughputInMB`, in bytes: written bytes after which a memtable is flushed.
    pub memtable_bytes: u64,
    /// `MemtableOperationsInMillions`, in single operations after which a memtable is flushed.
    pub memtable_operations: u64,
    /// `MemtableFlushAfterMinutes`: age at which a memtable is flushed.
    pub memtable_age: Duration,
    /// Raw size of a data block: `ColumnIndexSizeInKB`, but not more than 16 KB.
    pub block_bytes: usize,
    /// `ColumnIndexSizeInKB`, in bytes: how rows are divided for nodes of 0.6, and in the hashes by
    /// which these compare them.
    pub column_index_bytes: u64,
    /// `IndexInterval`.
    pub index_interval: usize,
    /// Compression of blocks.
    pub compression: Compression,
    /// `CompactionStrategy`.
    pub compaction_strategy: CompactionStrategy,
    /// About the size of the SSTables of a level, in bytes.
    pub leveled_table_bytes: u64,
    /// SSTables of similar size from which on they are merged; 0 for never.
    pub min_compaction_threshold: usize,
    /// Most SSTables of one minor compaction; 0 for no minor compactions.
    pub max_compaction_threshold: usize,
    /// `RowWarningThresholdInMB`, in bytes: compaction reports larger rows.
    pub row_warning_bytes: u64,
    /// `KeysCached`.
    pub keys_cached: CacheSize,
    /// `RowsCached`.
    pub rows_cached: CacheSize,
    /// `KeyCacheSavePeriodInSeconds`; `None` for never.
    pub key_cache_save_period: Option<Duration>,
    /// `RowCacheSavePeriodInSeconds`; `None` for never.
    pub row_cache_save_period: Option<Duration>,
}

impl FamilyOptions {
    /// The configured numbers of SSTables of similar size that are merged.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds { min: self.min_compaction_threshold, max: self.max_compaction_threshold }
    }
}

impl Default for FamilyOptions {
    /// The values of the sample configuration of 0.6.
    fn default() -> Self {
        Self {
            memtable_bytes: 64 << 20,
            memtable_operations: (0.3 * f64::from(1 << 20)) as u64,
            memtable_age: Duration::from_hours(1),
            block_bytes: 16 << 10,
            column_index_bytes: 64 << 10,
            index_interval: 128,
            compression: Compression::Lz4,
            compaction_strategy: CompactionStrategy::SizeTiered,
            leveled_table_bytes: 256 << 20,
            min_compaction_threshold: 4,
            max_compaction_threshold: 32,
            row_warning_bytes: 64 << 20,
            keys_cached: CacheSize::Entries(200_000),
            rows_cached: CacheSize::Off,
            key_cache_save_period: None,
            row_cache_save_period: None,
        }
    }
}
