//! A node, put together from its parts: the only place that knows every one of them. Several nodes
//! may live in one process.

use crate::admin::{Access, AdminContext, AdminServer, RunningAdmin};
use crate::api::{Api, ApiOptions, Authenticator, SimpleAuthenticator};
use crate::base::clock::Clock;
use crate::base::machine;
use crate::config::classes::{AuthenticatorName, SnitchName, StrategyName};
use crate::config::properties::InvalidProperty;
use crate::config::settings::{
    ColumnFamilySettings, CommitLogSync, CompactionStrategy, Compression, KeyspaceSettings, Release,
};
use crate::config::{Properties, Settings};
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::model::schema::Schema;
use crate::replica::{Replica, ReplicaOptions};
use crate::ring::{Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, TokenMetadata};
use crate::storage::answer::MAX_ANSWER_BYTES;
use crate::storage::commitlog::SyncPolicy;
use crate::storage::engine::{Components, StorageError};
use crate::storage::error::ReadError;
use crate::storage::restore;
use crate::storage::store::OpenError;
use crate::storage::system::{self, Identity, IdentityError};
use crate::storage::{self, CacheOptions, CompactionOptions, FamilyOptions, Storage};
use crate::wire::ApiVersion;
use crate::wire::limits::Limits;
use crate::wire::server::{Server, ServerOptions};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

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

/// What the command line decides, besides the settings.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Whether a start goes on behind a damaged part of the commit log.
    pub accept_commitlog_loss: bool,
    /// The system properties as of old: `-Dpasswd.properties` and others.
    pub properties: Properties,
    /// Seed of whatever is left to chance.
    pub seed: u64,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its data cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its data are of another node or cluster.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// The address of `ThriftAddress` and `ThriftPort` cannot be used.
    #[error("cannot listen for Thrift clients on {address}: {source}. Is another server running?")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The operating system gives no threads.
    #[error("cannot start the threads of the replica: {0}")]
    Threads(#[source] io::Error),
    /// The configured address of the admin side cannot be used.
    #[error(
        "cannot listen for operators on {address}: {source}. Is another server running? \
         AdminAddress and AdminPort say where"
    )]
    BindAdmin {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The thread of the admin side cannot be started.
    #[error("cannot start the admin side: {0}")]
    Admin(#[source] io::Error),
    /// A system property has no meaning.
    #[error(transparent)]
    Property(#[from] InvalidProperty),
}

impl NodeError {
    /// The exit code of the original for this failure: 100 for data of another partitioner, else 3.
    pub fn exit_code(&self) -> u8 {
        let other_partitioner = match self {
            Self::Identity(error) => !matches!(error, IdentityError::ClusterName { .. }),
            Self::Storage(StorageError::Open(OpenError::Read(error))) => {
                matches!(error, ReadError::OtherPartitioner { .. })
            }
            _ => false,
        };
        if other_partitioner { 100 } else { 3 }
    }
}

/// A node that holds its data and its port, and serves when it is [run](Node::run).
#[derive(Debug)]
pub struct Node {
    server: Server,
    address: SocketAddr,
    api: Arc<Api>,
    replica: Arc<Replica>,
    storage: Arc<Storage>,
    admin: Option<RunningAdmin>,
    admin_address: Option<SocketAddr>,
}

impl Node {
    /// Opens the data and binds the port. Must be called within a tokio runtime.
    pub fn start(
        settings: Settings,
        options: &NodeOptions,
        components: Components,
    ) -> Result<Self, NodeError> {
        warn_of_what_is_missing(&settings);
        let clock = Arc::clone(&components.clock);
        // The ports first: whoever finds one taken has not touched any data.
        let (server, address) = bind(&settings, &clock)?;
        let admin = bind_admin(&settings, &options.properties)?;
        let admin_address = admin.as_ref().map(AdminServer::local_addr);
        let storage = Arc::new(StorageSetup::new(&settings, options)?.open(components)?);
        let identity = establish_identity(&settings, options, &storage, &*clock)?;
        let replica = Replica::start(
            Arc::clone(&storage) as _,
            ReplicaOptions {
                concurrent_reads: settings.storage.concurrent_reads as usize,
                concurrent_writes: settings.storage.concurrent_writes as usize,
                max_answer_bytes: max_answer_bytes(memory_budget(&settings)),
                runs_inline: false,
            },
        );
        let replica = Arc::new(replica.map_err(NodeError::Threads)?);
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: Arc::clone(storage.schema()),
            partitioner: settings.partitioner,
            placements: placements(&settings.keyspaces),
            ring: TokenMetadata::single(identity.token.clone(), settings.network.listen_address),
            local: settings.network.listen_address,
            rpc_timeout: settings.network.rpc_timeout,
            replica: Arc::clone(&replica),
        });
        let admin = admin.map(|admin| {
            let token = settings.partitioner.display_token(&identity.token);
            let (cluster, storage) = (settings.cluster_name.clone(), Arc::clone(&storage));
            let clock = Arc::clone(&clock);
            let context = AdminContext::new(cluster, token, identity.generation, storage, clock);
            admin.start(context, Access::new(settings.admin.token)).map_err(NodeError::Admin)
        });
        let admin = admin.transpose()?;
        let api = Arc::new(Api::new(ApiOptions {
            cluster_name: settings.cluster_name,
            version: api_version(settings.thrift.api_version),
            schema: Arc::clone(storage.schema()),
            keyspaces: settings.keyspaces,
            config_text: settings.text,
            index_interval: settings.storage.index_interval,
            authenticator: authenticator(settings.authenticator, &options.properties),
            clock,
            coordinator,
        }));
        Ok(Self { server, address, api, replica, storage, admin, admin_address })
    }

    /// Where Thrift clients are served.
    pub fn thrift_address(&self) -> SocketAddr {
        self.address
    }

    /// Where operators are served; `None` if the usual port was taken.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Serves until `stop` is cancelled; then ends calls under way, writes everything to disk and
    /// closes.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let Self { server, api, replica, storage, admin, .. } = self;
        let served = server.run(api, stop).await;
        // Before the threads that may wait in a write are waited for.
        storage.stop_writes();
        // What operators have begun ends as well: compactions look whether the node stops.
        drop(admin);
        replica.shutdown();
        storage.close();
        served
    }
}

/// Tells what the configuration asks for and this version does not do.
fn warn_of_what_is_missing(settings: &Settings) {
    let own = settings.network.listen_address;
    let missing = [
        (
            settings.seeds.iter().any(|seed| *seed != own && !seed.is_loopback()),
            "Seeds names other nodes, but this version runs a node on its own",
        ),
        (settings.auto_bootstrap, "AutoBootstrap: this version runs a node on its own"),
    ];
    for (_, what) in missing.iter().filter(|(asked, _)| *asked) {
        log::warn!("{what}");
    }
}

fn bind(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<(Server, SocketAddr), NodeError> {
    let thrift = &settings.thrift;
    let address = SocketAddr::new(thrift.address, thrift.port);
    let options = ServerOptions {
        version: api_version(thrift.api_version),
        prefer_framed: thrift.framed,
        limits: Limits {
            max_message_bytes: thrift.max_message_bytes as usize,
            max_connections: thrift.max_connections as usize,
            receive_budget_bytes: thrift.receive_budget_bytes as usize,
            ..Limits::default()
        },
        ..ServerOptions::new(Arc::clone(clock))
    };
    let bound = Server::bind(address, options).and_then(|server| {
        let address = server.local_addr()?;
        Ok((server, address))
    });
    bound.map_err(|source| NodeError::Bind { address, source })
}

/// Binds the port for operators. Without one in the configuration the server goes on if the usual
/// one is taken, since no client needs it.
fn bind_admin(
    settings: &Settings,
    properties: &Properties,
) -> Result<Option<AdminServer>, NodeError> {
    let admin = &settings.admin;
    let jmx_port = properties.jmx_port()?;
    let port = jmx_port.filter(|_| !admin.port_is_required).unwrap_or(admin.port);
    let address = SocketAddr::new(admin.address, port);
    match AdminServer::bind(address) {
        Ok(server) => Ok(Some(server)),
        Err(source)
            if source.kind() == io::ErrorKind::AddrInUse
                && !admin.port_is_required
                && jmx_port.is_none() =>
        {
            log::warn!(
                "the port for operators is taken, so that nodetool cannot be used: {address}. \
                 Set AdminPort"
            );
            Ok(None)
        }
        Err(source) => Err(NodeError::BindAdmin { address, source }),
    }
}

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
    pub fn new(settings: &Settings, options: &NodeOptions) -> Result<Self, InvalidProperty> {
        let system = settings.system_column_families();
        let configured = settings.keyspaces.iter().flat_map(|keyspace| &keyspace.column_families);
        let families: Vec<&ColumnFamilySettings> = system.iter().chain(configured).collect();
        let mut schema = Schema::new(families.iter().map(|family| Arc::clone(&family.schema)));
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
    pub fn open(self, components: Components) -> Result<Storage, StorageError> {
        let Self { options, partitioner, schema, families } = self;
        Storage::open(components, options, partitioner, schema, |id| {
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
) -> Result<storage::Options, InvalidProperty> {
    let budget = memory_budget(settings);
    let block_cache_bytes = settings.memory.block_cache_bytes.unwrap_or(budget / 4);
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

/// Most bytes that one answer may take: with little memory no request may ask for most of it.
fn max_answer_bytes(budget: u64) -> usize {
    MAX_ANSWER_BYTES.min((budget / 2) as usize)
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

/// How a column family is kept, by the settings.
pub(crate) fn family_options(settings: &Settings, family: &ColumnFamilySettings) -> FamilyOptions {
    let (memory, storage) = (&settings.memory, &settings.storage);
    let age = family.flush_period.unwrap_or(memory.memtable_flush_after);
    FamilyOptions {
        memtable_bytes: memory.memtable_throughput_bytes,
        memtable_operations: memory.memtable_operations,
        memtable_age: age.min(memory.memtable_flush_after),
        block_bytes: storage.column_index_bytes.min(MAX_BLOCK_BYTES) as usize,
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
        gc_grace_seconds: i32::try_from(family.gc_grace.as_secs()).unwrap_or(i32::MAX),
        row_warning_bytes: storage.row_warning_threshold_bytes,
        keys_cached: family.keys_cached,
        rows_cached: family.rows_cached,
        key_cache_save_period: family.key_cache_save_period,
        row_cache_save_period: family.row_cache_save_period,
        ..FamilyOptions::default()
    }
}

/// The token of the first start is `InitialToken` or a random one; later the saved one counts.
fn establish_identity(
    settings: &Settings,
    options: &NodeOptions,
    storage: &Storage,
    clock: &dyn Clock,
) -> Result<Identity, IdentityError> {
    let partitioner: Partitioner = settings.partitioner;
    let first_token = || {
        let configured = settings.initial_token.as_deref();
        configured.and_then(|text| partitioner.parse_token(text).ok()).unwrap_or_else(|| {
            partitioner.random_token(&mut fastrand::Rng::with_seed(options.seed))
        })
    };
    let (cluster, now) = (&settings.cluster_name, clock.now_secs());
    let identity = system::establish_identity(storage, cluster, now, first_token)?;
    let token = partitioner.display_token(&identity.token);
    if identity.is_new {
        log::info!("Saved Token not found. Using {token}");
    } else {
        log::info!("Saved Token found: {token}");
    }
    Ok(identity)
}

fn placements(keyspaces: &[KeyspaceSettings]) -> HashMap<String, ReplicaPlacement> {
    let placement = |keyspace: &KeyspaceSettings| ReplicaPlacement {
        strategy: match keyspace.strategy {
            // In a ring of one all strategies choose the same node.
            StrategyName::RackUnaware | StrategyName::DatacenterShard => {
                ReplicationStrategy::RackUnaware
            }
            StrategyName::RackAware => ReplicationStrategy::RackAware,
        },
        replication_factor: keyspace.replication_factor as usize,
        snitch: match keyspace.snitch {
            SnitchName::EndPoint | SnitchName::PropertyFile | SnitchName::Datacenter => {
                Snitch::EndPoint
            }
        },
    };
    keyspaces.iter().map(|keyspace| (keyspace.name.clone(), placement(keyspace))).collect()
}

fn api_version(release: Release) -> ApiVersion {
    match release {
        Release::V04 => ApiVersion::V04,
        Release::V05 => ApiVersion::V05,
        Release::V06 => ApiVersion::V06,
    }
}

fn authenticator(name: AuthenticatorName, properties: &Properties) -> Authenticator {
    match name {
        AuthenticatorName::AllowAll => Authenticator::AllowAll,
        AuthenticatorName::Simple => Authenticator::Simple(SimpleAuthenticator {
            password_file: properties.password_file(),
            access_file: properties.access_file(),
            password_mode: properties.password_mode(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::ComparatorRegistry;

    #[test]
    fn a_huge_block_cache_leaves_memory_for_memtables() {
        assert_eq!(memtable_budget(1 << 30, 1 << 28), 3 << 27);
        assert_eq!(memtable_budget(1 << 30, 1 << 31), MIN_MEMTABLE_BUDGET);
    }

    #[test]
    fn caches_get_their_parts_of_what_is_left() {
        let settings = Settings::embedded(&ComparatorRegistry::default()).unwrap().settings;
        let bytes = |budget, blocks| {
            let options = cache_options(&settings, budget, blocks);
            (options.key_bytes, options.row_bytes)
        };
        // A quarter of the budget is for blocks, three eighths are for memtables.
        assert_eq!(bytes(1 << 30, 1 << 28), (32 << 20, 128 << 20));
        assert_eq!(bytes(1 << 30, 1 << 31), (MIN_KEY_CACHES, MIN_ROW_CACHES));
    }
}
