//! The settings that a server runs with, all typed and with their defaults filled in.

use super::classes::{AuthenticatorName, SnitchName, StrategyName};
use super::elements;
use crate::base::tls;
use crate::model::comparator::Comparator;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::ring::Partitioner;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A generation of the original, by its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub enum Release {
    /// 0.4
    #[display("0.4")]
    V04,
    /// 0.5
    #[display("0.5")]
    V05,
    /// 0.6
    #[display("0.6")]
    V06,
}

impl Release {
    /// All of them, the oldest first.
    pub const ALL: [Self; 3] = [Self::V04, Self::V05, Self::V06];
}

/// All settings of a node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file, or another name of the text.
    pub origin: String,
    /// The text of the file, which every client may ask for; therefore without `AdminToken`.
    pub text: String,
    /// The release whose elements the file uses.
    pub release: Release,
    /// `ClusterName`: keeps nodes of different clusters apart; clients see it.
    pub cluster_name: String,
    /// `Partitioner`: how row keys become tokens.
    pub partitioner: Partitioner,
    /// `InitialToken`: the token of the first start, in the form of the partitioner; `None` for a
    /// random one.
    pub initial_token: Option<String>,
    /// `AutoBootstrap` (false): a new node that is no seed fetches its range before it serves.
    pub auto_bootstrap: bool,
    /// `Seeds`: the nodes that are asked for the ring, at least one, in the order of the file.
    pub seeds: Vec<IpAddr>,
    /// `Authenticator` (everyone may log in).
    pub authenticator: AuthenticatorName,
    /// `KeyspaceRights` (false): whether a login is good only for what the access file grants.
    pub keyspace_rights: bool,
    /// Between nodes.
    pub network: NetworkSettings,
    /// Towards clients.
    pub thrift: ThriftSettings,
    /// Towards clients that speak CQL; `None` without a port.
    pub cql: Option<CqlSettings>,
    /// Towards operators.
    pub admin: AdminSettings,
    /// TLS of all ports.
    pub tls: tls::Options,
    /// Directories of files.
    pub directories: Directories,
    /// Durability of writes.
    pub commit_log: CommitLogSettings,
    /// Sizes of what is kept in memory.
    pub memory: MemorySettings,
    /// Writing and reading of data files.
    pub storage: StorageSettings,
    /// Reading and repair of replicas.
    pub replication: ReplicationSettings,
    /// `Keyspaces`, in the order of the file, without `system`.
    pub keyspaces: Vec<KeyspaceSettings>,
    /// The settings below `/Storage` as `check-config` shows them, by element.
    pub shown: BTreeMap<&'static str, String>,
}

/// Between nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkSettings {
    /// `ListenAddress` (that of the local host name): the node's identity, and where it listens
    /// for its peers.
    pub listen_address: IpAddr,
    /// `StoragePort` (7000): TCP, the same on all nodes.
    pub storage_port: u16,
    /// Whether the file names the port: then it is an error when it is taken.
    pub storage_port_is_required: bool,
    /// `PeerNetworks` (all): from where other nodes may connect. The node itself always may.
    pub peer_networks: PeerNetworks,
    /// `RpcTimeoutInMillis` (2 s): how long a coordinator waits for replicas.
    pub rpc_timeout: Duration,
    /// `PhiConvictThreshold` (8, within [`PHI_CONVICT_THRESHOLDS`]): how much suspicion makes a
    /// node dead.
    pub phi_convict_threshold: u32,
    /// `StreamThroughputInMBPerSecond`: bytes per second of streaming; `None` (0) for no limit.
    pub stream_throughput_bytes: Option<u64>,
}

impl NetworkSettings {
    /// Whether the node cannot do without its storage port: the file names it, or there are other
    /// nodes.
    pub fn needs_storage_port(&self, seeds: &[IpAddr]) -> bool {
        self.storage_port_is_required || seeds.iter().any(|seed| *seed != self.listen_address)
    }
}

/// Networks whose addresses may connect to `StoragePort`; all may if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNetworks(pub Vec<IpNet>);

impl PeerNetworks {
    /// Whether an address may connect.
    pub fn admit(&self, address: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&address))
    }
}

/// Range of `PhiConvictThreshold`, as in the original: with less a pause convicts, with more a
/// dead node is taken for alive too long.
pub const PHI_CONVICT_THRESHOLDS: RangeInclusive<u32> = 5..=16;

/// The longest text of an `InitialToken`, in bytes. Nodes take what another one tells of its place
/// up to 4096 bytes, and there may be two tokens in it.
pub const MAX_TOKEN_LENGTH: usize = 1024;

/// Towards clients.
#[derive(Debug, Clone, PartialEq)]
pub struct ThriftSettings {
    /// `ThriftAddress` (the listen address): where clients are accepted; may be `0.0.0.0`.
    pub address: IpAddr,
    /// `ThriftPort` (9160); 0 for a free one.
    pub port: u16,
    /// `ThriftFramedTransport` (false): decides only where a connection does not show its form.
    pub framed: bool,
    /// `ThriftApiVersion` (that of the file): whose answers clients get where releases differ.
    pub api_version: Release,
    /// `ThriftMaxMessageInMB` (64 MiB), in bytes: a larger message closes its connection.
    pub max_message_bytes: u64,
    /// `ThriftMaxConnections` (10000): a further one takes the place of the one that has been idle
    /// the longest.
    pub max_connections: u32,
    /// `ThriftIdleTimeoutInSeconds`: idle connections are closed after this time; `None` (0) for
    /// never.
    pub idle_timeout: Option<Duration>,
    /// `ThriftReceiveBudgetInMB` (256 MiB), in bytes: unfinished requests of all connections.
    pub receive_budget_bytes: u64,
    /// `ThriftListeners` (none): further ports.
    pub listeners: Vec<ListenerSettings>,
}

/// A further port for clients, which may be of another generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSettings {
    /// `Address` (`ThriftAddress`).
    pub address: IpAddr,
    /// `Port`; 0 for a free one.
    pub port: u16,
    /// `FramedTransport` (`ThriftFramedTransport`).
    pub framed: bool,
    /// `ApiVersion` (`ThriftApiVersion`).
    pub api_version: Release,
    /// The line of its element.
    pub line: u32,
}

impl fmt::Display for ListenerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let framed = if self.framed { ", framed" } else { "" };
        write!(f, "{} ({}{framed})", SocketAddr::new(self.address, self.port), self.api_version)
    }
}

/// Towards clients that speak CQL. Their limits are those of [`ThriftSettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CqlSettings {
    /// `CqlAddress` (`ThriftAddress`).
    pub address: IpAddr,
    /// `CqlPort`; 0 for a free one.
    pub port: u16,
    /// Whether it is an error when the port is taken: unless it is that of the built-in
    /// configuration.
    pub port_is_required: bool,
}

/// Towards operators.
#[derive(Clone, PartialEq, derive_more::Debug)]
pub struct AdminSettings {
    /// `AdminAddress` (loopback).
    pub address: IpAddr,
    /// `AdminPort` (8080); 0 for a free one.
    pub port: u16,
    /// Whether the file names the port: then it is an error when it is taken.
    pub port_is_required: bool,
    /// `AdminToken`: a change must present it; `None`: changes from this machine only.
    // It is a secret, and settings end up in logs.
    #[debug("{:?}", token.as_ref().map(|_| "(set)"))]
    pub token: Option<String>,
    /// `AdminTokenRequired` (true with a token): whether changes from this machine need it as well.
    pub token_is_required: bool,
    /// `LogLevels`, in the form of `RUST_LOG`; `None` for those of the start.
    pub log_levels: Option<String>,
    /// `LogFile`; `None` for standard error.
    pub log_file: Option<LogFile>,
    /// `SlowRequestsInMillis` (500): requests that take as long are logged; `None` (0) for none.
    pub slow_requests: Option<Duration>,
}

/// A log file that is rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// `LogFile`.
    pub path: PathBuf,
    /// `LogFileMaxSizeInMB` (20 MiB), in bytes: at this size another file is begun.
    pub max_bytes: u64,
    /// `LogFileMaxBackups` (50): old files that are kept.
    pub backups: u32,
}

/// Directories of files. Relative paths start at the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// `DataFileDirectories`: at least one; files are spread over them.
    pub data: Vec<PathBuf>,
    /// `CommitLogDirectory`.
    pub commit_log: PathBuf,
    /// `CommitLogArchiveDirectory`: keeps what the commit log has no use for any more, for restores
    /// to a point in time; `None` for no archive.
    pub commit_log_archive: Option<PathBuf>,
    /// `SavedCachesDirectory` (beside the commit log): keys of the caches, written now and then.
    pub saved_caches: PathBuf,
    /// `HintsDirectory` (beside the commit log): mutations for nodes that are down.
    pub hints: PathBuf,
}

/// Durability of writes.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitLogSettings {
    /// `CommitLogSync` with its period or window.
    pub sync: CommitLogSync,
    /// `CommitLogRotationThresholdInMB` (128 MiB), in bytes: the size of a segment.
    pub rotation_threshold_bytes: u64,
}

/// Mode of syncs of the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLogSync {
    /// Now and then; writes are acknowledged before.
    Periodic {
        /// `CommitLogSyncPeriodInMS`: the time between two.
        period: Duration,
    },
    /// Before a write is acknowledged, together with those that arrive within the window.
    Batch {
        /// `CommitLogSyncBatchWindowInMS`: how long others are waited for; may be zero.
        window: Duration,
    },
}

/// Sizes of what is kept in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySettings {
    /// `MemoryBudgetInMB`, in bytes: memtables, caches and buffers together; `None` for a quarter
    /// of the machine's.
    pub budget_bytes: Option<u64>,
    /// `BlockCacheInMB`, in bytes; `None` for a quarter of the budget.
    pub block_cache_bytes: Option<u64>,
    /// `MemtableThroughputInMB` (64 MiB), in bytes: a column family is flushed after as much.
    pub memtable_throughput_bytes: u64,
    /// `MemtableOperationsInMillions` (0.1), in columns; a million is 1048576 here as in 0.6.
    pub memtable_operations: u64,
    /// `MemtableFlushAfterMinutes` (60): a memtable is flushed at this age at the latest.
    pub memtable_flush_after: Duration,
}

/// Writing and reading of data files.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageSettings {
    /// `IndexInterval` (128): row keys between two samples for `describe_splits`.
    pub index_interval: u32,
    /// `ColumnIndexSizeInKB` (64 KiB), in bytes: how much of a row one index entry covers.
    pub column_index_bytes: u64,
    /// `RowWarningThresholdInMB` (512 MiB), in bytes: larger rows are reported by compaction.
    pub row_warning_threshold_bytes: u64,
    /// `SnapshotBeforeCompaction` (false).
    pub snapshot_before_compaction: bool,
    /// `GCGraceSeconds` (10 days): how long tombstones are kept.
    pub gc_grace: Duration,
    /// `Compression` (LZ4).
    pub compression: Compression,
    /// `CompactionThroughputInMBPerSecond` (64 MiB): bytes per second; `None` (0) for no limit.
    pub compaction_throughput_bytes: Option<u64>,
    /// `ConcurrentReads` (8): threads for reads that need the disk.
    pub concurrent_reads: u32,
    /// `ConcurrentWrites` (32): writes in progress at once.
    pub concurrent_writes: u32,
}

/// Compression of blocks of data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
pub enum Compression {
    /// Not at all.
    #[display("None")]
    None,
    /// LZ4.
    #[display("LZ4")]
    Lz4,
}

/// Rule for merging the data files of a column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
pub enum CompactionStrategy {
    /// Some of similar size into one, as in 0.6.
    #[display("SizeTiered")]
    SizeTiered,
    /// Into levels, each ten times as large as the one above, of files that do not overlap: more is
    /// written, but reads look at fewer files, and overwritten data take up little disk.
    #[display("Leveled")]
    Leveled,
}

/// Reading and repair of replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicationSettings {
    /// `DoConsistencyChecksBoolean` (true): whether reads repair replicas that differ.
    pub do_consistency_checks: bool,
    /// `SpeculativeRetry` (p99): when a second replica is asked.
    pub speculative_retry: SpeculativeRetry,
    /// `HintedHandoffEnabled` (true).
    pub hinted_handoff_enabled: bool,
    /// `HintMaxAgeHours` (72): older hints are dropped.
    pub hint_max_age: Duration,
    /// `HintMaxSizeInMB` (10 GiB), in bytes: of the hints for one node.
    pub hint_max_bytes: u64,
}

/// Condition for asking a second replica for the same data.
#[derive(Debug, Clone, Copy, PartialEq, derive_more::Display)]
pub enum SpeculativeRetry {
    /// Never.
    #[display("none")]
    Never,
    /// After a read has taken longer than this percentile (above 0, below 100) of recent ones.
    #[display("p{_0}")]
    Percentile(f64),
}

/// A keyspace: how it is replicated, and its column families.
#[derive(Debug, Clone)]
pub struct KeyspaceSettings {
    /// Its name; case matters. It is also the name of a directory.
    pub name: String,
    /// The line of its element.
    pub line: u32,
    /// `ReplicaPlacementStrategy`.
    pub strategy: StrategyName,
    /// `ReplicationFactor`: the number of replicas, at least 1.
    pub replication_factor: u32,
    /// `EndPointSnitch`.
    pub snitch: SnitchName,
    /// `DatacenterReplicationFactor`: replicas by data centre, for the data-centre strategy.
    pub datacenter_replication_factors: BTreeMap<String, u32>,
    /// Its column families, in the order of the file.
    pub column_families: Vec<ColumnFamilySettings>,
}

/// A column family: what it is, and how it is kept.
#[derive(Debug, Clone)]
pub struct ColumnFamilySettings {
    /// Names, type, comparators and comment.
    pub schema: Arc<ColumnFamilySchema>,
    /// The line of its element; 0 for those of the system keyspace.
    pub line: u32,
    /// `KeysCached` (200000): places of rows in data files that are remembered.
    pub keys_cached: CacheSize,
    /// `RowsCached` (0): rows that are kept in memory whole.
    pub rows_cached: CacheSize,
    /// `KeyCacheSavePeriodInSeconds`: time between two savings; `None` (0) for never.
    pub key_cache_save_period: Option<Duration>,
    /// `RowCacheSavePeriodInSeconds`: time between two savings; `None` (0) for never.
    pub row_cache_save_period: Option<Duration>,
    /// `CompactionStrategy` (size-tiered).
    pub compaction_strategy: CompactionStrategy,
    /// `MinCompactionThreshold` (4): number of files of similar size that are compacted.
    pub min_compaction_threshold: u32,
    /// `MaxCompactionThreshold` (32): limit of files compacted at once; 0 switches compaction off.
    pub max_compaction_threshold: u32,
    /// `Compression` (that of the server).
    pub compression: Compression,
    /// `FlushPeriodInMinutes` of 0.4: flushed as often; `None` (0) for by the other rules only.
    pub flush_period: Option<Duration>,
    /// The words with which 0.4 describes it.
    pub labels: Labels,
}

/// Number of entries of a cache.
#[derive(Debug, Clone, Copy, PartialEq, derive_more::Display)]
pub enum CacheSize {
    /// None: there is no cache.
    #[display("0")]
    Off,
    /// So many.
    Entries(u64),
    /// A share, above 0, of the keys of the column family, but at least one.
    // Rounded, or 7 % would show what binary fractions are.
    #[display("{}%", (_0 * 1e8).round() / 1e6)]
    Fraction(f64),
}

impl CacheSize {
    /// The entries that a cache for `keys` keys holds.
    pub fn entries(self, keys: u64) -> u64 {
        match self {
            Self::Off => 0,
            Self::Entries(entries) => entries,
            Self::Fraction(share) => ((keys as f64 * share) as u64).max(1),
        }
    }
}

/// The words with which `describe_keyspace` of 0.4 describes a column family, by their elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub(super) BTreeMap<&'static str, String>);

impl Labels {
    /// The word of an element, `RowKey` or one of `Labels::OF_FAMILY`; the usual one where the
    /// file has none.
    pub fn word(&self, element: &'static str) -> &str {
        let word = self.0.get(element).map(String::as_str);
        word.unwrap_or_else(|| elements::usual_label(element))
    }

    /// The elements of a column family that hold them.
    pub(super) const OF_FAMILY: [&str; 6] = [
        "SuperColumnMap",
        "SuperColumnKey",
        "ColumnMap",
        "ColumnKey",
        "ColumnValue",
        "ColumnTimestamp",
    ];
}

impl Settings {
    /// The keyspace of that name; `system` is none of them.
    pub fn keyspace(&self, name: &str) -> Option<&KeyspaceSettings> {
        self.keyspaces.iter().find(|keyspace| keyspace.name == name)
    }

    /// The column families of the implicit keyspace `system`, as clients of this file's API
    /// version see them: 0.5 gave them another comparator.
    pub fn system_column_families(&self) -> Vec<ColumnFamilySettings> {
        let comparator = || match self.thrift.api_version {
            Release::V04 | Release::V05 => Comparator::Utf8,
            Release::V06 => Comparator::Bytes,
        };
        let family = |name: &str, comment: &str, gc_grace, kind| ColumnFamilySettings {
            schema: Arc::new(ColumnFamilySchema {
                comment: Some(comment.to_owned()),
                gc_grace,
                ..ColumnFamilySchema::new(SYSTEM_KEYSPACE.to_owned(), name.to_owned(), kind)
            }),
            line: 0,
            keys_cached: CacheSize::Fraction(0.01),
            rows_cached: CacheSize::Off,
            key_cache_save_period: None,
            row_cache_save_period: None,
            compaction_strategy: CompactionStrategy::SizeTiered,
            min_compaction_threshold: DEFAULT_MIN_COMPACTION_THRESHOLD,
            max_compaction_threshold: DEFAULT_MAX_COMPACTION_THRESHOLD,
            compression: self.storage.compression,
            flush_period: None,
            labels: Labels::default(),
        };
        vec![
            family(
                "LocationInfo",
                "persistent metadata for the local node",
                self.storage.gc_grace,
                ColumnFamilyKind::Standard { columns: comparator() },
            ),
            family(
                "HintsColumnFamily",
                "hinted handoff data",
                self.storage.gc_grace,
                ColumnFamilyKind::Super { super_columns: comparator(), columns: Comparator::Bytes },
            ),
            family(
                "Paxos",
                "in-progress paxos proposals",
                PAXOS_GRACE,
                ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            ),
            family(
                BATCHES,
                "logged batches that are not done yet",
                Duration::ZERO,
                ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            ),
        ]
    }
}

impl KeyspaceSettings {
    /// The column family of that name.
    pub fn column_family(&self, name: &str) -> Option<&ColumnFamilySettings> {
        self.column_families.iter().find(|family| family.schema.name == name)
    }
}

/// Time for which expired states of `Paxos` are kept, in case that a clock is set back.
const PAXOS_GRACE: Duration = Duration::from_hours(24);

/// The name of the keyspace that every node keeps for itself.
pub const SYSTEM_KEYSPACE: &str = "system";
/// Its column family for logged batches, which other nodes write to.
pub const BATCHES: &str = "Batches";
/// Number of files of similar size that are compacted.
pub const DEFAULT_MIN_COMPACTION_THRESHOLD: u32 = 4;
/// Limit of files that are compacted at once.
pub const DEFAULT_MAX_COMPACTION_THRESHOLD: u32 = 32;
