//! Options of the storage core, from the settings: directories, thresholds, and shares of memory.

use super::NodeOptions;
use crate::base::machine;
use crate::config::settings::{ColumnFamilySettings, CommitLogSync, Compression};
use crate::config::{ConfigError, Settings};
use crate::model::schema::Schema;
use crate::ring::Partitioner;
use crate::storage::commitlog::SyncPolicy;
use crate::storage::database::{Components, StorageError};
use crate::storage::restore;
use crate::storage::{self, CacheOptions, CompactionOptions, Database, FamilyOptions};
use std::sync::Arc;

/// Raw size of a data block, unless `ColumnIndexSizeInKB` asks for less. A read of one column has
/// to fetch and decompress a block. 0.6 needed larger ones to keep its index in memory small.
const MAX_BLOCK_BYTES: u64 = 16 << 10;

/// Least memory for memtables and caches together, in bytes, however small the machine is.
const MIN_MEMORY_BUDGET: u64 = 64 << 20;

/// Least memory for memtables, in bytes, however large the block cache: without any, each write
/// would wait for a flush.
const MIN_MEMTABLE_BUDGET: u64 = MIN_MEMORY_BUDGET / 4;

/// Least memory for all key caches, in bytes.
const MIN_KEY_CACHES: u64 = MIN_MEMORY_BUDGET / 64;

/// Least memory for all row caches, in bytes.
const MIN_ROW_CACHES: u64 = MIN_MEMORY_BUDGET / 16;

/// Least memory for requests and answers, in bytes.
const MIN_REQUEST_MEMORY: u64 = MIN_MEMORY_BUDGET / 8;

/// Options with which the storage core of a node is opened.
#[derive(Debug)]
pub struct StorageSetup {
    options: storage::Options,
    partitioner: Partitioner,
    schema: Arc<Schema>,
    /// By the number of the column family.
    families: Vec<FamilyOptions>,
}

impl StorageSetup {
    /// The options that follow from these settings.
    pub fn new(settings: &Settings, options: &NodeOptions) -> Result<Self, ConfigError> {
        let system = settings.system_column_families();
        let configured = settings.keyspaces.iter().flat_map(|keyspace| &keyspace.column_families);
        let families: Vec<&ColumnFamilySettings> = system.iter().chain(configured).collect();
        let schema = Schema::new(families.iter().map(|family| Arc::clone(&family.schema)));
        for keyspace in &settings.keyspaces {
            schema.add_keyspace(&keyspace.name);
        }
        Ok(Self {
            options: storage_options(settings, options)?,
            partitioner: settings.partitioner,
            schema: Arc::new(schema),
            families: families.iter().map(|family| family_options(settings, family)).collect(),
        })
    }

    /// Opens the storage core.
    pub fn open(self, components: Components) -> Result<Database, StorageError> {
        let Self { options, partitioner, schema, families } = self;
        Database::open(components, options, partitioner, schema, |id| {
            families[id.0 as usize].clone()
        })
    }

    /// The setup of a restore.
    pub fn to_restore(&self, components: Components) -> restore::Setup {
        restore::Setup {
            components,
            options: self.options.clone(),
            partitioner: self.partitioner,
            schema: Arc::clone(&self.schema),
            families: self.families.clone(),
        }
    }
}

fn storage_options(
    settings: &Settings,
    options: &NodeOptions,
) -> Result<storage::Options, ConfigError> {
    let memory = MemoryPlan::of(settings);
    let compaction = CompactionOptions::default();
    let priority = options.properties.compaction_priority()?;
    Ok(storage::Options {
        data_directories: settings.directories.data.clone(),
        commit_log_directory: settings.directories.commit_log.clone(),
        commit_log_archive_directory: settings.directories.commit_log_archive.clone(),
        sync: match settings.commit_log.sync {
            CommitLogSync::Periodic { period } => SyncPolicy::Periodic { every: period },
            CommitLogSync::Batch { window } => SyncPolicy::Batch { window },
        },
        segment_bytes: settings.commit_log.rotation_threshold_bytes,
        flush_threads: None,
        memtable_budget_bytes: memory.memtables,
        block_cache_bytes: memory.block_cache,
        compaction: CompactionOptions {
            bytes_per_second: settings.storage.compaction_throughput_bytes,
            // As in Java on Linux: 1 is the least priority, 5 the usual one.
            niceness: priority.map_or(compaction.niceness, |it| 5 - i32::from(it)),
            ..compaction
        },
        caches: CacheOptions {
            key_bytes: memory.key_caches,
            row_bytes: memory.row_caches,
            saved_directory: Some(settings.directories.saved_caches.clone()),
            preheats_keys: options.properties.compaction_preheats_key_cache(),
        },
        accept_commitlog_loss: options.accept_commitlog_loss,
        accept_data_loss: options.properties.accept_data_loss(),
        snapshot_before_compaction: settings.storage.snapshot_before_compaction,
        seed: options.seed,
    })
}

/// Shares of the memory budget, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryPlan {
    block_cache: u64,
    memtables: u64,
    key_caches: u64,
    row_caches: u64,
    /// For requests and answers on all ports, with the blocks that the block cache lends.
    pub(super) requests: usize,
    /// The part of the block cache that requests may use.
    pub(super) lendable_blocks: usize,
}

impl MemoryPlan {
    pub(super) fn of(settings: &Settings) -> Self {
        let budget = settings.memory.budget_bytes.unwrap_or_else(|| machine::memory_bytes() / 4);
        let budget = budget.max(MIN_MEMORY_BUDGET);
        Self::share(budget, settings.memory.block_cache_bytes.unwrap_or(budget / 4))
    }

    /// Memtables get half of what the block cache leaves; of the rest row caches get a third, key
    /// caches a twelfth, and requests the remainder.
    fn share(budget: u64, block_cache: u64) -> Self {
        let left = budget.saturating_sub(block_cache);
        let memtables = (left / 2).max(MIN_MEMTABLE_BUDGET);
        let rest = left.saturating_sub(memtables);
        let key_caches = (rest / 12).max(MIN_KEY_CACHES);
        let row_caches = (rest / 3).max(MIN_ROW_CACHES);
        let requests = rest.saturating_sub(key_caches + row_caches).max(MIN_REQUEST_MEMORY);
        // A block cache above its default share does not make requests larger.
        let lendable = block_cache.min(budget / 4) / 8 * 7;
        Self {
            block_cache,
            memtables,
            key_caches,
            row_caches,
            requests: (requests + lendable) as usize,
            lendable_blocks: lendable as usize,
        }
    }
}

/// Options of a column family, from the settings.
pub(crate) fn family_options(settings: &Settings, family: &ColumnFamilySettings) -> FamilyOptions {
    let (memory, storage) = (&settings.memory, &settings.storage);
    let age = family.flush_period.unwrap_or(memory.memtable_flush_after);
    FamilyOptions {
        memtable_bytes: memory.memtable_throughput_bytes,
        memtable_operations: memory.memtable_operations,
        memtable_age: age.min(memory.memtable_flush_after),
        block_bytes: storage.column_index_bytes.min(MAX_BLOCK_BYTES) as usize,
        column_index_bytes: storage.column_index_bytes,
        index_interval: storage.index_interval as usize,
        compression: match family.compression {
            Compression::None => storage::sstable::Compression::None,
            Compression::Lz4 => storage::sstable::Compression::Lz4,
        },
        compaction_strategy: family.compaction_strategy,
        min_compaction_threshold: family.min_compaction_threshold as usize,
        max_compaction_threshold: family.max_compaction_threshold as usize,
        row_warning_bytes: storage.row_warning_threshold_bytes,
        keys_cached: family.keys_cached,
        rows_cached: family.rows_cached,
        key_cache_save_period: family.key_cache_save_period,
        row_cache_save_period: family.row_cache_save_period,
        ..FamilyOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_out_however_large_the_block_cache() {
        let plan = MemoryPlan::share(1 << 30, 1 << 28);
        assert_eq!(
            (plan.memtables, plan.key_caches, plan.row_caches),
            (3 << 27, 32 << 20, 1 << 27)
        );
        assert_eq!((plan.requests, plan.lendable_blocks), ((224 + 224) << 20, 224 << 20));
        let plan = MemoryPlan::share(1 << 30, 1 << 31);
        assert_eq!(plan.memtables, MIN_MEMTABLE_BUDGET);
        assert_eq!((plan.key_caches, plan.row_caches), (MIN_KEY_CACHES, MIN_ROW_CACHES));
        assert_eq!(plan.requests - plan.lendable_blocks, MIN_REQUEST_MEMORY as usize);
    }
}
