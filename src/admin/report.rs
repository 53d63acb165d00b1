//! Answers of the admin side, as JSON and for `nodetool`. Sizes are in bytes.

use crate::base::operations::Totals;
use crate::model::schema::ColumnFamilySchema;
use crate::repair::{FamilyRepair, Progress};
use crate::service::SlowRequest;
use crate::storage::caches::CacheStats;
use crate::storage::compaction::CompactionTotals;
use crate::storage::database::Trouble;
use crate::storage::snapshot;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The names of a column family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{keyspace}.{column_family}")]
pub struct Family {
    /// The keyspace.
    pub keyspace: String,
    /// Its own name.
    pub column_family: String,
}

impl From<&ColumnFamilySchema> for Family {
    fn from(schema: &ColumnFamilySchema) -> Self {
        Self { keyspace: schema.keyspace.clone(), column_family: schema.table_name().to_owned() }
    }
}

/// Types of a column family, by their class names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyTypes {
    /// Its names.
    #[serde(flatten)]
    pub family: Family,
    /// Names of columns or super columns.
    pub comparator: String,
    /// Names of the columns of super columns; `None` in a standard column family.
    pub subcomparator: Option<String>,
    /// Row keys. Those of several parts are bytes.
    pub key_type: String,
    /// Values of columns that are not declared.
    pub value_type: String,
    /// Columns with types of their own.
    pub columns: Vec<ColumnType>,
}

/// Type of the values of a column.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnType {
    /// Its name for people.
    pub name: String,
    /// Its name in cells, in hexadecimal digits.
    pub cell: String,
    /// Class name of the type.
    pub value_type: String,
}

/// A node and its memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Version of the server.
    pub version: String,
    /// `ClusterName`.
    pub cluster_name: String,
    /// Class name of the partitioner.
    pub partitioner: String,
    /// The node's place on the ring.
    pub token: String,
    /// Number of this start, or a greater one that others have made necessary since.
    pub generation: i32,
    /// Time since it began.
    pub uptime_seconds: u64,
    /// SSTables of all column families.
    pub load_bytes: u64,
    /// Its memory.
    pub memory: Memory,
    /// The cache of SSTable blocks, in bytes.
    pub block_cache: Cache,
    /// Why it does not serve as it should; empty if all is well.
    pub troubles: Vec<Trouble>,
}

/// Memory of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Of the whole process; `None` if the machine does not tell.
    pub resident_bytes: Option<u64>,
    /// Memory of the machine or its container.
    pub limit_bytes: u64,
    /// All memtables.
    pub memtables_bytes: u64,
    /// Their limit; writers wait there.
    pub memtables_budget_bytes: u64,
    /// All key caches.
    pub key_caches_bytes: u64,
    /// Their limit.
    pub key_caches_budget_bytes: u64,
    /// All row caches.
    pub row_caches_bytes: u64,
    /// Their limit.
    pub row_caches_budget_bytes: u64,
    /// Requests and answers under way.
    pub requests_bytes: u64,
    /// Their limit, in part of the block cache.
    pub requests_budget_bytes: u64,
}

/// A cache. What its capacity and size count depends on the cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Its figures.
    #[serde(flatten)]
    pub stats: CacheStats,
    /// Hits of each request in about the last minute; `None` without requests.
    pub recent_hit_rate: Option<f64>,
}

impl Cache {
    /// From its figures, now and at an earlier look.
    pub(super) fn new(now: CacheStats, earlier: CacheStats) -> Self {
        let rate = now.hit_rate_since(&earlier);
        let recent_hit_rate = (!rate.is_nan()).then_some(rate);
        Self { stats: now, recent_hit_rate }
    }
}

/// Operations of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number since the start.
    pub count: u64,
    /// Mean time since the start; `None` if none was timed.
    pub mean_micros: Option<f64>,
    /// The same in about the last minute.
    pub recent_mean_micros: Option<f64>,
}

impl Latency {
    /// From counters since the start and of lately.
    pub(super) fn new(all: Totals, recent: Totals) -> Self {
        let mean = |Totals { recorded, recorded_nanos, .. }: Totals| {
            (recorded > 0).then(|| recorded_nanos as f64 / recorded as f64 / 1000.0)
        };
        Self { count: all.count, mean_micros: mean(all), recent_mean_micros: mean(recent) }
    }

    /// Of both kinds together; a mean weighs as much as there are operations of it.
    fn with(self, other: Self) -> Self {
        let weighed = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => {
                let (m, n) = (self.count as f64, other.count as f64);
                Some((a * m + b * n) / (m + n).max(1.0))
            }
            (one, other) => one.or(other),
        };
        Self {
            count: self.count + other.count,
            mean_micros: weighed(self.mean_micros, other.mean_micros),
            recent_mean_micros: weighed(self.recent_mean_micros, other.recent_mean_micros),
        }
    }
}

/// Times of the operations of a column family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Which column family.
    #[serde(flatten)]
    pub family: Family,
    /// Of each bucket but the last: it counts operations that took less time, in microseconds, and
    /// not less than those of the bucket before. The last bucket counts all that took longer.
    pub offsets_micros: Vec<u64>,
    /// Slices of single rows.
    pub reads: LatencyHistogram,
    /// Slices of the rows of a range.
    pub range_reads: LatencyHistogram,
    /// Mutations.
    pub writes: LatencyHistogram,
}

/// Operations by bucket. One of sixteen is timed, and counts for those that were not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Since the start.
    pub all: Vec<u64>,
    /// In about the last minute.
    pub recent: Vec<u64>,
}

/// A keyspace with its column families.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyspaceReport {
    /// Its name.
    pub keyspace: String,
    /// Slices of single rows in all of the column families below.
    pub reads: Latency,
    /// Mutations of them.
    pub writes: Latency,
    /// Full memtables of them that are not on disk yet.
    pub pending_flushes: usize,
    /// By name.
    pub column_families: Vec<FamilyReport>,
}

impl KeyspaceReport {
    pub(super) fn add(&mut self, family: FamilyReport) {
        self.reads = self.reads.with(family.reads);
        self.writes = self.writes.with(family.writes);
        self.pending_flushes += family.pending_flushes;
        self.column_families.push(family);
    }
}

/// A column family.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FamilyReport {
    /// Its name.
    pub column_family: String,
    /// SSTables that count.
    pub sstables: usize,
    /// Their size.
    pub space_used_live_bytes: u64,
    /// The same with those that were replaced and are still being read.
    pub space_used_total_bytes: u64,
    /// Columns and deletions written to the active memtable, overwritten ones included.
    pub memtable_columns: u64,
    /// Bytes written to it.
    pub memtable_bytes: u64,
    /// Estimate of the memory of all its memtables.
    pub memtable_memory_bytes: u64,
    /// Number of full memtables that made room for fresh ones since the start.
    pub memtable_switches: u64,
    /// Slices of single rows.
    pub reads: Latency,
    /// Slices of the rows of a range.
    pub range_reads: Latency,
    /// Mutations.
    pub writes: Latency,
    /// Full memtables that are not on disk yet.
    pub pending_flushes: usize,
    /// Its caches.
    #[serde(flatten)]
    pub caches: Caches,
    /// Rows in SSTables. One that is in several counts in each.
    pub rows: u64,
    /// Size of the smallest of them, uncompressed; 0 if there is none.
    pub row_min_bytes: u64,
    /// Of the largest.
    pub row_max_bytes: u64,
    /// Of one on average.
    pub row_mean_bytes: u64,
    /// Why it takes no more writes, if it does not.
    pub failure: Option<String>,
}

/// Compaction thresholds of a column family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Which column family.
    #[serde(flatten)]
    pub family: Family,
    /// SSTables of similar size that a minor compaction takes at least.
    pub min: usize,
    /// At most; 0 for no minor compactions.
    pub max: usize,
}

/// Compactions: those that are running, and what there was since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compactions {
    /// The oldest first.
    pub running: Vec<Compaction>,
    /// Due minor compactions, as an estimate, of those column families that have any.
    pub pending: Vec<PendingCompactions>,
    /// Since the start.
    #[serde(flatten)]
    pub totals: CompactionTotals,
}

/// A compaction that is running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// Its number since the start of the node.
    pub id: u64,
    /// Its purpose: `minor`, `major` and others.
    pub kind: String,
    /// Which column family.
    #[serde(flatten)]
    pub family: Family,
    /// The SSTables that are merged.
    pub inputs: Vec<String>,
    /// Bytes of the inputs.
    pub bytes_total: u64,
    /// Bytes of them that were read so far.
    pub bytes_read: u64,
    /// Bytes of the output so far.
    pub bytes_written: u64,
    /// Rows of the output so far.
    pub rows: u64,
    /// Time since it began.
    pub running_seconds: u64,
}

/// Compactions that were stopped. They end at their next row or cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Their numbers.
    pub stopped: Vec<u64>,
}

/// Compactions that wait for a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCompactions {
    /// Which column family.
    #[serde(flatten)]
    pub family: Family,
    /// Their number, as an estimate.
    pub count: usize,
}

/// A kind of work, under the name of the thread pool that does it in 0.6.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The name in 0.6.
    pub pool: String,
    /// Pieces of work that are being done now.
    pub active: u64,
    /// Pieces that wait.
    pub pending: u64,
    /// Pieces that were done since the start.
    pub completed: u64,
}

/// The caches of a column family.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Caches {
    /// The key cache, in keys; `None` if there is none.
    pub key_cache: Option<Cache>,
    /// The row cache, in rows; `None` if there is none.
    pub row_cache: Option<Cache>,
}

/// A snapshot of one keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The keyspace.
    pub keyspace: String,
    /// That of its folders: the time, and the tag if it has one.
    pub name: String,
    /// Time at which it was taken, in milliseconds since the Unix epoch.
    pub taken_millis: u64,
    /// All its files.
    pub total_bytes: u64,
    /// Bytes that clearing it gives back, as far as no other snapshot has the same files.
    pub exclusive_bytes: u64,
    /// One in each data directory that has a part of it.
    pub folders: Vec<String>,
}

impl From<snapshot::Snapshot> for Snapshot {
    fn from(snapshot: snapshot::Snapshot) -> Self {
        let folders = snapshot.folders.iter().map(|folder| folder.display().to_string());
        Self {
            name: snapshot.name.to_string(),
            taken_millis: snapshot.name.millis,
            total_bytes: snapshot.total_bytes,
            exclusive_bytes: snapshot.exclusive_bytes,
            folders: folders.collect(),
            keyspace: snapshot.keyspace,
        }
    }
}

/// Objects of an operation that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The column families, as `keyspace.name`.
    pub column_families: Vec<String>,
}

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Text for the operator.
    pub error: String,
}

/// Progress or end of an operation on the ring.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationState {
    /// Which: `decommission`, `move` and others.
    pub operation: String,
    /// When it began, in seconds since the start of the server: tells operations apart.
    #[serde(default)]
    pub began: f64,
    /// Its present step.
    pub mode: String,
    /// Time since it began.
    pub seconds: f64,
    /// The nodes that collect data because of it.
    pub collected: Vec<Collected>,
    /// Results of a repair so far.
    #[serde(default)]
    pub repaired: Vec<FamilyRepair>,
    /// Rows that replicas have read so far for what a repair compares at the moment.
    #[serde(default)]
    pub rows_hashed: u64,
    /// About how many they are to read for that.
    #[serde(default)]
    pub rows_to_hash: u64,
    /// Its result, when it has succeeded.
    pub done: Option<String>,
    /// Why not, when it has failed. The ring is as it was before.
    pub error: Option<String>,
}

/// Progress of a node that collects data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Which node.
    pub address: IpAddr,
    /// Ranges, rows and bytes.
    #[serde(flatten)]
    pub progress: Progress,
}

/// State of a node, and the data that move between it and others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    /// `Normal`, or what an operation is doing; the words are those of 0.6 where it had any.
    pub mode: String,
    /// The operation that is under way on this node.
    #[serde(default)]
    pub operation: Option<OperationState>,
    /// Data that others collect from it.
    pub sending: Vec<StreamReport>,
    /// Data that it collects from others.
    pub receiving: Vec<StreamReport>,
}

/// The data of one column family that move between two nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// The other node.
    pub address: IpAddr,
    /// Which column family.
    #[serde(flatten)]
    pub family: Family,
    /// Bytes so far.
    pub bytes: u64,
}

/// Levels of the log.
#[derive(Debug, Serialize, Deserialize)]
pub struct LogLevels {
    /// In the form of `RUST_LOG`.
    pub levels: String,
}

/// Requests of clients that took long.
#[derive(Debug, Serialize, Deserialize)]
pub struct Slow {
    /// How long a request takes that is kept; null if none is.
    pub threshold_millis: Option<u64>,
    /// The last ones, the last first.
    pub requests: Vec<SlowRequest>,
}

/// The rows that were read and written most in some time.
#[derive(Debug, Serialize, Deserialize)]
pub struct BusyRows {
    /// The time.
    pub duration_millis: u64,
    /// Slices of single rows; null if they were not counted.
    pub reads: Option<Sampled>,
    /// Mutations; null if they were not counted.
    pub writes: Option<Sampled>,
}

/// Operations of one kind by row.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sampled {
    /// Those on all rows.
    pub operations: u64,
    /// The rows with most of them, the first with the most.
    pub rows: Vec<BusyRow>,
}

/// A row with the number of its operations.
#[derive(Debug, Serialize, Deserialize)]
pub struct BusyRow {
    /// Its column family.
    #[serde(flatten)]
    pub family: Family,
    /// Its key.
    pub key: String,
    /// Its operations, at most.
    pub count: u64,
    /// How many fewer they may be.
    pub error: u64,
}

/// A row that takes much room.
#[derive(Debug, Serialize, Deserialize)]
pub struct WideRow {
    /// Its column family.
    #[serde(flatten)]
    pub family: Family,
    /// Its key.
    pub key: String,
    /// Its size in SSTables, uncompressed.
    pub bytes: u64,
    /// Its cells there, deletions included; 0 if only files of the original have it.
    pub cells: u64,
    /// Number of these SSTables.
    pub sstables: usize,
}

/// Limits of background work, in megabytes per second; 0 for none.
#[derive(Debug, Serialize, Deserialize)]
pub struct Throughputs {
    /// Limit of all compactions together.
    pub compaction: u64,
    /// Limit of data from other nodes.
    pub streams: u64,
}
