//! What the settings mean for the storage core of a node: directories, thresholds, and how memory
//! is shared out.

use super::NodeOptions;
use crate::base::budget::Budget;
use crate::base::machine;
use crate::config::settings::{
    ColumnFamilySettings, CommitLogSync, CompactionStrategy, Compression,
};
use crate::config::{ConfigError, Settings};
use crate::model::schema::Schema;
use crate::ring::Partitioner;
use crate::storage::commitlog::SyncPolicy;
use crate::storage::database::{Components, StorageError};
use crate::storage::restore;
use crate::storage::{self, CacheOptions, CompactionOptions, Database, FamilyOptions};
use std::sync::Arc;

/// Raw size of a data block, unless `ColumnIndexSizeInKB` asks for less: what a read of one column
/// has to fetch and unpack. The index that 0.6 had to keep small by larger blocks is not in memory
/// here.
const MAX_BLOCK_BYTES: u64 = 16 << 10;

/// Least memory for memtables and caches together, in bytes, however small the machine is.
const MIN_MEMORY_BUDGET: u64 = 64 << 20;

/// Least memory for memtables, in bytes, however large a block cache is asked for: with none, each
/// write would wait for a flush.
const MIN_MEMTABLE_BUDGET: u64 = MIN_MEMORY_BUDGET / 4;

/// Least memory for all key caches, in bytes, however large a block cache is asked for.
const MIN_KEY_CACHES: u64 = MIN_MEMORY_BUDGET / 64;

/// Least memory for all row caches, in bytes.
const MIN_ROW_CACHES: u64 = MIN_MEMORY_BUDGET / 16;

/// Least memory for requests and answers, in bytes.
const MIN_REQUEST_MEMORY: u64 = MIN_MEMORY_BUDGET / 8;

/// What the storage core of a node is opened with.
#[derive(Debug)]
pub struct StorageSetup {
    options: storage::Options,
    partitioner: Partitioner,
    schema: Arc<Schema>,
    /// By the number of the column family.
    families: Vec<FamilyOptions>,
}

impl StorageSetup {
    /// That of a node with these settings.
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

    /// Opens it.
    pub fn open(self, components: Components) -> Result<Database, StorageError> {
        let Self { options, partitioner, schema, families } = self;
        Database::open(components, options, partitioner, schema, |id| {
            families[id.0 as usize].clone()
        })
    }

    /// The same for a restore.
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
    let budget = memory_budget(settings);
    let block_cache_bytes = block_cache_bytes(settings, budget);
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
        memtable_budget_bytes: memtable_budget(budget, block_cache_bytes),
        block_cache_bytes,
        compaction: CompactionOptions {
            bytes_per_second: settings.storage.compaction_throughput_bytes,
            niceness: priority.map_or(compaction.niceness, niceness),
            ..compaction
        },
        caches: CacheOptions {
            preheats_keys: options.properties.compaction_preheats_key_cache(),
            ..cache_options(settings, budget, block_cache_bytes)
        },
        accept_commitlog_loss: options.accept_commitlog_loss,
        accept_data_loss: options.properties.accept_data_loss(),
        snapshot_before_compaction: settings.storage.snapshot_before_compaction,
        seed: options.seed,
    })
}

/// What becomes of the priority of a thread, as in Java on Linux: 1 is the least, 5 that of most.
fn niceness(priority: u8) -> i32 {
    5 - i32::from(priority)
}

/// Memory for everything that grows with data and requests, in bytes.
fn memory_budget(settings: &Settings) -> u64 {
    let asked = settings.memory.budget_bytes.unwrap_or_else(|| machine::memory_bytes() / 4);
    asked.max(MIN_MEMORY_BUDGET)
}

/// Half of what the block cache leaves; the rest is for requests and answers.
fn memtable_budget(budget: u64, block_cache_bytes: u64) -> u64 {
    (budget.saturating_sub(block_cache_bytes) / 2).max(MIN_MEMTABLE_BUDGET)
}

/// Of what block cache and memtables leave, a third is for rows and a twelfth for their places.
fn cache_options(settings: &Settings, budget: u64, block_cache_bytes: u64) -> CacheOptions {
    let memtables = memtable_budget(budget, block_cache_bytes);
    let rest = budget.saturating_sub(block_cache_bytes).saturating_sub(memtables);
    CacheOptions {
        key_bytes: (rest / 12).max(MIN_KEY_CACHES),
        row_bytes: (rest / 3).max(MIN_ROW_CACHES),
        saved_directory: Some(settings.directories.saved_caches.clone()),
        preheats_keys: false,
    }
}

/// Memory for requests and answers on all ports: what the other parts of the budget leave, and as
/// much of the block cache as it lends.
pub(super) fn request_memory(settings: &Settings) -> Arc<Budget> {
    let budget = memory_budget(settings);
    let blocks = block_cache_bytes(settings, budget);
    let CacheOptions { key_bytes, row_bytes, .. } = cache_options(settings, budget, blocks);
    let others = blocks + memtable_budget(budget, blocks) + key_bytes + row_bytes;
    let own = budget.saturating_sub(others).max(MIN_REQUEST_MEMORY);
    Budget::new(own as usize + lendable_blocks(settings))
}

/// Bytes of the block cache that requests may use.
pub(super) fn lendable_blocks(settings: &Settings) -> usize {
    let budget = memory_budget(settings);
    // A cache that is larger than its share by the configuration does not make requests larger.
    let blocks = block_cache_bytes(settings, budget).min(budget / 4);
    (blocks / 8 * 7) as usize
}

fn block_cache_bytes(settings: &Settings, budget: u64) -> u64 {
    settings.memory.block_cache_bytes.unwrap_or(budget / 4)
}

/// How a column family is kept, by the settings.
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
        compaction_strategy: match family.compaction_strategy {
            CompactionStrategy::SizeTiered => storage::CompactionStrategy::SizeTiered,
            CompactionStrategy::Leveled => storage::CompactionStrategy::Leveled,
        },
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
    use crate::config::Loader;
    use crate::model::comparator::ComparatorRegistry;

    #[test]
    fn a_huge_block_cache_leaves_memory_for_memtables() {
        assert_eq!(memtable_budget(1 << 30, 1 << 28), 3 << 27);
        assert_eq!(memtable_budget(1 << 30, 1 << 31), MIN_MEMTABLE_BUDGET);
    }

    #[test]
    fn caches_get_their_parts_of_what_is_left() {
        let comparators = ComparatorRegistry::default();
        let settings = Loader::for_server(&comparators).load(None).unwrap().settings;
        let bytes = |budget, blocks| {
            let options = cache_options(&settings, budget, blocks);
            (options.key_bytes, options.row_bytes)
        };
        // A quarter of the budget is for blocks, three eighths are for memtables.
        assert_eq!(bytes(1 << 30, 1 << 28), (32 << 20, 128 << 20));
        assert_eq!(bytes(1 << 30, 1 << 31), (MIN_KEY_CACHES, MIN_ROW_CACHES));
    }
}
