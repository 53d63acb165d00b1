//! A node: all its parts but the front ends. Several nodes may run in one process.
//!
//! ```text
//!   Node        the whole: ports, data, service, operators
//!     setup     options of the storage core, from the settings
//!     start_mode starts as a member, by joining, or by replacing a node
//!     schema    keyspaces and tables made over CQL
//!     fingerprint    hash of the settings on which all nodes have to agree
//!     reload    settings that change while the node runs
//!     drain     leaving the ring
//!     ports     ports of clients, one for each generation of the protocol
//!     member    the node among others: gossip, messages, coordinator
//!       handoff    delivery of hints
//! ```

mod drain;
mod fingerprint;
mod handoff;
mod member;
mod ports;
mod reload;
mod schema;
mod setup;
mod start_mode;

pub use drain::{Drain, Drained};
pub use handoff::{Handoff, HandoffState};
pub use member::{Member, MemberOptions};
pub use ports::{ClientPort, FrontEnd};
pub use reload::{Reload, ReloadError, Reloaded};
pub use setup::StorageSetup;
pub(crate) use setup::family_options;

use crate::admin::{AdminContext, AdminServer, Recent, RunningAdmin};
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::base::latest::Latest;
use crate::base::tls::{Guard, Port, Tls};
use crate::base::worker::Spawner;
use crate::config::classes::AuthenticatorName;
use crate::config::rack_file::RackFileSource;
use crate::config::settings::{CommitLogSync, SpeculativeRetry};
use crate::config::{ConfigError, Placements, Properties, Settings};
use crate::coordinator::ReadOptions;
use crate::net::tcp::{StartError, TcpOptions, TcpTransport};
use crate::repair::OperationError;
use crate::repair::StartMode;
use crate::replica::{
    HINT_SEGMENT_BYTES, HintOptions, HintStore, Replica, ReplicaError, ReplicaOptions,
    convert_original_hints, has_original_hints,
};
use crate::ring::{DynamicSnitch, ReplicaPlacement, TokenError};
use crate::schema::{REGISTER_NAME, RegisterOptions, SchemaError, SchemaRegister};
use crate::server::Server;
use crate::service::{Authenticator, Service, ServiceOptions, SimpleAuthenticator};
use crate::storage::Database;
use crate::storage::database::{Components, StorageError};
use crate::storage::error::{FileError, ReadError};
use crate::storage::family::OpenError;
use crate::storage::system::local_placement::SavedPlace;
use crate::storage::system::{Identity, IdentityError};
use fingerprint::fingerprint;
use ports::{Bound, ClientPorts, local_address};
use schema::{Host, SchemaFollower, Schemas};
use setup::MemoryPlan;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Pause between two checks of the rack file.
const RACK_FILE_PERIOD: Duration = Duration::from_secs(10);

/// Shortest pause between two syncs of hints.
const LEAST_HINT_SYNC: Duration = Duration::from_millis(10);

/// Options of the command line.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// The file of the settings, or its directory, which a reload reads again; `None` for the
    /// built-in configuration.
    pub configuration: Option<PathBuf>,
    /// Whether a start skips a damaged part of the commit log.
    pub accept_commitlog_loss: bool,
    /// The system properties of 0.6: `-Dpasswd.properties` and others.
    pub properties: Properties,
    /// Seed of random choices.
    pub seed: u64,
}

/// Reason why a node cannot start.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its data cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The schema that was made over CQL cannot be served.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The schema on which the ring has agreed cannot be read.
    #[error("the schema that the nodes of the ring keep cannot be read: {0}")]
    Register(ReplicaError),
    /// Files of dropped tables cannot be removed.
    #[error(transparent)]
    Leftovers(FileError),
    /// Its data are of another node or cluster.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// The address of a port for clients cannot be used.
    #[error("cannot listen for {clients} on {address}: {source}. Is another server running?")]
    Bind { clients: &'static str, address: SocketAddr, source: io::Error },
    /// The operating system gives no threads.
    #[error("cannot start the threads of the replica: {0}")]
    Threads(#[source] io::Error),
    /// The configured address of the admin side cannot be used.
    #[error(
        "cannot listen for operators on {address}: {source}. Is another server running? \
         AdminAddress and AdminPort say where"
    )]
    BindAdmin { address: SocketAddr, source: io::Error },
    /// The thread of the admin side cannot be started.
    #[error("cannot start the admin side: {0}")]
    Admin(#[source] io::Error),
    /// A system property or a file of a snitch cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address of `ListenAddress` and `StoragePort` cannot be used.
    #[error(transparent)]
    Transport(#[from] StartError),
    /// The node has handed its data over to others.
    #[error(
        "this node was decommissioned: others have its data, and have changed them since. If it is \
         to join again start it with empty directories and AutoBootstrap"
    )]
    Decommissioned,
    /// The token to replace is not one of the partitioner.
    #[error("cannot take the place of token {token}: {source}")]
    ReplaceToken { token: String, source: TokenError },
    /// The node could not join its ring.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// Clients cannot be served any more.
    #[error("serving Thrift clients ended: {0}")]
    Serving(#[source] io::Error),
    /// A file of TLS is missing, or is wrong.
    #[error("{0}")]
    Tls(String),
    /// The directory of the hints cannot be used.
    #[error("the hints cannot be opened: {0}. HintsDirectory says where they are")]
    Hints(#[source] FileError),
}

impl NodeError {
    /// The exit code of 0.6 for this failure: 100 for data of another partitioner, else 3.
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

/// A node that has opened its data and ports, and serves when it is [run](Node::run).
#[derive(Debug)]
pub struct Node {
    /// `None` until the node has joined, if it has to.
    listeners: Option<Vec<Bound>>,
    client_ports: ClientPorts,
    address: SocketAddr,
    start_mode: StartMode,
    service: Arc<Service>,
    replica: Arc<Replica>,
    storage: Arc<Database>,
    admin: Option<RunningAdmin>,
    member: Arc<Member>,
    transport: Arc<TcpTransport>,
    hint_sync_interval: Duration,
    rack_file: Option<Arc<RackFileSource>>,
    drain: Arc<Drain>,
    reload: Arc<Reload>,
    has_joined: bool,
}

impl Node {
    /// Opens the data, and binds the ports that the front end serves. Must be called within a tokio
    /// runtime.
    pub fn start(
        settings: Settings,
        options: &NodeOptions,
        components: Components,
        front_end: FrontEnd,
    ) -> Result<Self, NodeError> {
        let placements = checked_placements(&settings, &options.properties)?;
        let (clock, fs) = (Arc::clone(&components.clock), Arc::clone(&components.fs));
        // The ports first: if one is taken, no data are touched.
        let plan = MemoryPlan::of(&settings);
        let memory = Budget::new(plan.requests);
        let tls = Arc::new(Latest::new(read_tls(&settings)?));
        let clients = ClientPorts::new(&settings, &clock, (&memory, &tls), front_end);
        let listeners = clients.bind()?;
        let admin = bind_admin(&settings)?;
        let transport = Arc::new(bind_transport(&settings, &clock, (&memory, &tls))?);
        let schemas = Schemas::read(&settings, &placements, &*fs)?;
        let storage = Arc::new(StorageSetup::new(&schemas.settings, options)?.open(components)?);
        let (identity, start_mode) = start_mode::begin(&settings, options, &storage, &*clock)?;
        let address = local_address(&listeners).map_err(NodeError::Serving)?;
        // Clients are refused until there is something to serve.
        let listeners = start_mode.takes_connections().then_some(listeners);
        storage.lend_block_cache(&memory, plan.lendable_blocks);
        let replica = start_replica(&settings, &storage, memory)?;
        let hints = open_hints(&settings, options, &storage, Arc::clone(&fs), &clock)?;
        let parts = Parts {
            storage: &storage,
            replica: &replica,
            hints: &hints,
            transport: &transport,
            clock: &clock,
        };
        let who = (&identity, &start_mode);
        let member = member(&settings, options, schemas.placements.clone(), who, &parts)?;
        member.announce_schema(&fingerprint(&settings, &placements.by_keyspace));
        let sync = settings.commit_log.sync;
        let settings = Arc::new(Latest::new(settings));
        let register = register(schemas, &settings, fs, (&storage, &member, &clock))?;
        let node = (&storage, &member, &clients);
        let service = service(&settings, options, register, node, &clock);
        let reload = reload::Parts {
            settings: Arc::clone(&settings),
            storage: Arc::clone(&storage),
            member: Arc::clone(&member),
            transport: Arc::clone(&transport),
            service: Arc::clone(&service),
            limits: Arc::clone(&clients.limits),
            tls: Arc::clone(&tls),
        };
        let drain = Drain::new(Arc::clone(&member), Arc::clone(&transport), Arc::clone(&storage));
        let mut node = Self {
            hint_sync_interval: hint_sync_interval(sync),
            service,
            listeners,
            client_ports: clients,
            address,
            start_mode,
            replica,
            storage,
            admin: None,
            member,
            transport,
            rack_file: placements.rack_file,
            drain,
            reload: Arc::new(Reload::new(options.clone(), reload)),
            has_joined: false,
        };
        node.serve_operators(admin, &tls, settings, clock)?;
        Ok(node)
    }

    /// Serves operators, if their port could be bound.
    fn serve_operators(
        &mut self,
        server: Option<AdminServer>,
        tls: &Arc<Latest<Tls>>,
        settings: Arc<Latest<Settings>>,
        clock: Arc<dyn Clock>,
    ) -> Result<(), NodeError> {
        let Some(server) = server else { return Ok(()) };
        let context = AdminContext {
            settings,
            reload: Arc::clone(&self.reload),
            storage: Arc::clone(&self.storage),
            replica: Arc::clone(&self.replica),
            member: Arc::clone(&self.member),
            transport: Arc::clone(&self.transport),
            rack_file: self.rack_file.clone(),
            drain: Arc::clone(&self.drain),
            started: clock.monotonic(),
            clock,
            recent: Recent::default(),
            service: Arc::clone(&self.service),
            requests: Arc::clone(&self.client_ports.requests),
            traffic: self.client_ports.traffic(),
            tls: Arc::clone(tls),
        };
        let running = server.start(context, Guard::new(tls, Port::Admin));
        self.admin = Some(running.map_err(NodeError::Admin)?);
        Ok(())
    }

    /// Address for Thrift clients.
    pub fn thrift_address(&self) -> SocketAddr {
        self.address
    }

    /// Address for operators; `None` if the default port was taken.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(RunningAdmin::address)
    }

    /// Reads the configuration again when it is told to.
    pub fn reload(&self) -> Arc<Reload> {
        Arc::clone(&self.reload)
    }

    /// Becomes a member of its ring. Returns when the ring is known as well as can be expected, or
    /// when the data of the node's range are here. Must be called within a tokio runtime.
    /// [`Node::run`] calls it if it was not called before.
    pub async fn join(&mut self) -> Result<(), NodeError> {
        let is_first = !std::mem::replace(&mut self.has_joined, true);
        if is_first {
            self.take_part();
            self.member.settle().await;
            let has_rows = self.start_mode == StartMode::Member;
            self.member.catch_up(has_rows.then_some(member::JOIN_PATIENCE)).await;
        }
        self.member.operations().become_member(&self.start_mode).await?;
        if SavedPlace::read(&self.storage).map_err(IdentityError::from)? == SavedPlace::Left {
            return Err(NodeError::Decommissioned);
        }
        self.start_mode = StartMode::Member;
        if self.listeners.is_none() {
            self.listeners = Some(self.client_ports.bind()?);
        }
        // Before the node reports that it is ready, so that all its ports are known by then.
        let listeners = self.listeners.as_deref().unwrap_or_default();
        if is_first {
            self.client_ports.log_further(listeners);
        }
        Ok(())
    }

    fn take_part(&mut self) {
        let Drain { stop, tasks, .. } = &*self.drain;
        self.transport.serve(Arc::clone(&self.member) as _);
        tasks.spawn(Arc::clone(&self.member).run(stop.clone()));
        if let Some(rack_file) = self.rack_file.take() {
            let following = follow(rack_file, Arc::clone(&self.member));
            tasks.spawn(stop.clone().run_until_cancelled_owned(following));
        }
        if let Some(hints) = self.member.hints() {
            let syncing = sync_hints(Arc::clone(hints), self.hint_sync_interval);
            tasks.spawn(stop.clone().run_until_cancelled_owned(syncing));
            if has_original_hints(&self.storage) {
                let (storage, hints) = (Arc::clone(&self.storage), Arc::clone(hints));
                let local = self.member.local();
                tasks.spawn_blocking(move || convert_hints(&storage, &hints, local));
            }
        }
    }

    /// Serves until `stop` is cancelled. Then ends calls under way, writes everything to disk and
    /// closes.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), NodeError> {
        let joined = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            joined = self.join() => joined,
        };
        let listening = self.listeners.take().filter(|_| joined.is_ok());
        let Self { service, client_ports, replica, storage, admin, drain, member, .. } = self;
        let served = match listening {
            Some(listeners) => serve(client_ports.server(listeners, &service), &member, stop).await,
            None => joined,
        };
        drain.leave().await;
        if let Some(Err(error)) = member.hints().map(|hints| hints.close()) {
            log::warn!("the hints were not closed in order: {error}");
        }
        // Compactions that operators began end as well: they check whether the node stops.
        drop(admin);
        replica.shutdown();
        storage.close();
        served
    }
}

/// Makes hints of ours of those that the original has left.
fn convert_hints(storage: &Database, hints: &HintStore, local: IpAddr) {
    match convert_original_hints(storage, hints, local) {
        Ok(0) => {}
        Ok(rows) => log::info!("{rows} hints of Apache Cassandra are hints of this server now"),
        Err(error) => log::error!(
            "hints of Apache Cassandra are left in system.HintsColumnFamily, and the next start \
             tries again; a repair brings what they hold: {error}"
        ),
    }
}

/// Serves clients until `stop` is cancelled, or until other nodes remember data of this node that
/// it does not have.
async fn serve(
    server: Server,
    member: &Arc<Member>,
    stop: CancellationToken,
) -> Result<(), NodeError> {
    let ends = stop.child_token();
    let serving = server.run(ends.clone());
    tokio::pin!(serving);
    let refused = tokio::select! {
        ended = &mut serving => return ended.map_err(NodeError::Serving),
        Err(refused) = member.operations().confirm_first_place() => refused,
    };
    ends.cancel();
    serving.await.map_err(NodeError::Serving)?;
    Err(refused.into())
}

/// Syncs hints at this interval.
async fn sync_hints(hints: Arc<HintStore>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let hints = Arc::clone(&hints);
        match tokio::task::spawn_blocking(move || hints.sync()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::warn!("{error}"),
            Err(error) => {
                log::error!("hints are not written to disk any more: {error}");
                return;
            }
        }
    }
}

/// Listens for other nodes. Without a port in the configuration, a node without other seeds starts
/// although the default port is taken: no other node needs it.
fn bind_transport(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    (memory, tls): (&Arc<Budget>, &Arc<Latest<Tls>>),
) -> Result<TcpTransport, NodeError> {
    let network = &settings.network;
    let listen = SocketAddr::new(network.listen_address, network.storage_port);
    let peer_networks = network.peer_networks.clone();
    let memory = Arc::clone(memory);
    let guard = Guard::new(tls, Port::Storage);
    let options = TcpOptions { peer_networks, guard, memory, ..TcpOptions::new(listen) };
    match TcpTransport::bind(options.clone(), Arc::clone(clock)) {
        Err(StartError::Listen { source, .. })
            if source.kind() == io::ErrorKind::AddrInUse
                && !network.needs_storage_port(&settings.seeds) =>
        {
            log::warn!(
                "the port for other nodes is taken, so that none can join this one: {listen}. Set \
                 StoragePort"
            );
            let listen = SocketAddr::new(network.listen_address, 0);
            Ok(TcpTransport::bind(TcpOptions { listen, ..options }, Arc::clone(clock))?)
        }
        bound => Ok(bound?),
    }
}

fn start_replica(
    settings: &Settings,
    storage: &Arc<Database>,
    memory: Arc<Budget>,
) -> Result<Arc<Replica>, NodeError> {
    let options = ReplicaOptions {
        concurrent_reads: settings.storage.concurrent_reads as usize,
        concurrent_writes: settings.storage.concurrent_writes as usize,
        memory,
        spawner: Spawner::Threads,
    };
    let replica = Replica::start(Arc::clone(storage), options);
    Ok(Arc::new(replica.map_err(NodeError::Threads)?))
}

/// Sync interval of hints, which makes them as durable as the commit log.
fn hint_sync_interval(sync: CommitLogSync) -> Duration {
    match sync {
        CommitLogSync::Periodic { period } => period,
        CommitLogSync::Batch { window } => window.max(LEAST_HINT_SYNC),
    }
}

/// Operations for clients.
fn service(
    settings: &Arc<Latest<Settings>>,
    options: &NodeOptions,
    register: Arc<SchemaRegister>,
    (storage, member, ports): (&Arc<Database>, &Arc<Member>, &ClientPorts),
    clock: &Arc<dyn Clock>,
) -> Arc<Service> {
    for warning in file_warnings(settings, &options.properties) {
        log::warn!("{warning}");
    }
    for fault in login_faults(settings, &options.properties) {
        log::error!("Authenticator: every login will be refused: {fault}");
    }
    let authenticator = authenticator(settings, &options.properties);
    Arc::new(Service::new(ServiceOptions {
        settings: Arc::clone(settings),
        schema: Arc::clone(storage.schema()),
        register,
        authenticator: Latest::new(authenticator),
        clock: Arc::clone(clock),
        coordinator: Arc::clone(member.coordinator()),
        requests: Arc::clone(&ports.requests),
    }))
}

/// Parts of a member.
struct Parts<'a> {
    storage: &'a Arc<Database>,
    replica: &'a Arc<Replica>,
    hints: &'a Option<Arc<HintStore>>,
    transport: &'a Arc<TcpTransport>,
    clock: &'a Arc<dyn Clock>,
}

fn member(
    settings: &Settings,
    options: &NodeOptions,
    placements: BTreeMap<String, ReplicaPlacement>,
    (identity, start_mode): (&Identity, &StartMode),
    parts: &Parts<'_>,
) -> Result<Arc<Member>, NodeError> {
    let network = &settings.network;
    Ok(Member::new(MemberOptions {
        local: network.listen_address,
        cluster_name: settings.cluster_name.clone(),
        seeds: settings.seeds.clone(),
        token: identity.token.clone(),
        asks_first: start_mode.depends_on_memory(),
        replaced: start_mode.replaced(),
        generation: identity.generation,
        phi_convict_threshold: f64::from(network.phi_convict_threshold),
        rpc_timeout: network.rpc_timeout,
        placements,
        storage: Arc::clone(parts.storage),
        replica: Arc::clone(parts.replica),
        stream_bytes_per_second: settings.network.stream_throughput_bytes,
        hints: parts.hints.clone(),
        hints_wait_for_sync: matches!(settings.commit_log.sync, CommitLogSync::Batch { .. }),
        handoff_pause: options.properties.hinted_handoff_throttle()?.unwrap_or_default(),
        reads: read_options(settings, &options.properties),
        transport: Arc::clone(parts.transport) as _,
        clock: Arc::clone(parts.clock),
        seed: options.seed,
    })?)
}

/// The register of changes of the schema.
fn register(
    schemas: Schemas,
    settings: &Arc<Latest<Settings>>,
    fs: Arc<dyn FileSystem>,
    (storage, member, clock): (&Arc<Database>, &Arc<Member>, &Arc<dyn Clock>),
) -> Result<Arc<SchemaRegister>, NodeError> {
    let Schemas { saved, snitch, .. } = schemas;
    let host = Host { member: Arc::clone(member), settings: Arc::clone(settings), snitch };
    let options = RegisterOptions {
        fs,
        data_directories: settings.directories.data.clone(),
        storage: Arc::clone(storage),
        placements: Arc::clone(member.placements()),
        host: Box::new(host),
    };
    let register = Arc::new(SchemaRegister::new(options, saved).map_err(NodeError::Leftovers)?);
    let follower = Arc::new(SchemaFollower::new(&register, Arc::clone(clock)));
    let read = member.coordinator().follow_register(REGISTER_NAME, follower);
    read.map_err(NodeError::Register)?;
    Ok(register)
}

fn open_hints(
    settings: &Settings,
    options: &NodeOptions,
    storage: &Database,
    fs: Arc<dyn FileSystem>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<HintStore>>, NodeError> {
    let replication = &settings.replication;
    if !replication.hinted_handoff_enabled {
        return Ok(None);
    }
    let schema = Arc::clone(storage.schema());
    let hint_options = HintOptions {
        directory: settings.directories.hints.clone(),
        max_age: replication.hint_max_age,
        max_bytes_per_target: replication.hint_max_bytes,
        segment_bytes: HINT_SEGMENT_BYTES,
        schema,
    };
    let rng = fastrand::Rng::with_seed(options.seed);
    let opened = HintStore::open(fs, Arc::clone(clock), rng, hint_options);
    opened.map(|hints| Some(Arc::new(hints))).map_err(NodeError::Hints)
}

fn read_options(settings: &Settings, properties: &Properties) -> ReadOptions {
    ReadOptions {
        speculative_percentile: match settings.replication.speculative_retry {
            SpeculativeRetry::Never => None,
            SpeculativeRetry::Percentile(percentile) => Some(percentile),
        },
        repairs: settings.replication.do_consistency_checks,
        dynamic_snitch: properties.dynamic_snitch().then(|| Arc::new(DynamicSnitch::default())),
    }
}

/// Binds the port for operators. Without one in the configuration the server starts although the
/// default port is taken, since no client needs it.
fn bind_admin(settings: &Settings) -> Result<Option<AdminServer>, NodeError> {
    let admin = &settings.admin;
    let address = SocketAddr::new(admin.address, admin.port);
    match AdminServer::bind(address) {
        Ok(server) => Ok(Some(server)),
        Err(source) if source.kind() == io::ErrorKind::AddrInUse && !admin.port_is_required => {
            log::warn!(
                "the port for operators is taken, so that nodetool cannot be used: {address}. \
                 Set AdminPort"
            );
            Ok(None)
        }
        Err(source) => Err(NodeError::BindAdmin { address, source }),
    }
}

/// Reloads the rack file when it changes.
async fn follow(rack_file: Arc<RackFileSource>, member: Arc<Member>) {
    let mut ticks = tokio::time::interval(RACK_FILE_PERIOD);
    loop {
        ticks.tick().await;
        let rack_file = Arc::clone(&rack_file);
        match tokio::task::spawn_blocking(move || rack_file.reload_if_changed()).await {
            Ok(true) => member.refresh(),
            Ok(false) => {}
            Err(error) => {
                log::error!("the rack file is not looked at any more: {error}");
                return;
            }
        }
    }
}

/// The placements, unless a property keeps the node from starting.
fn checked_placements(
    settings: &Settings,
    properties: &Properties,
) -> Result<Placements, NodeError> {
    match property_faults(settings, properties).into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(Placements::read(settings, properties)?),
    }
}

/// Faulty values of properties, in the order in which a start finds them.
pub(crate) fn property_faults(settings: &Settings, properties: &Properties) -> Vec<NodeError> {
    let faults = [
        properties.jmx_port().map(drop).err().map(NodeError::from),
        properties.compaction_priority().map(drop).err().map(NodeError::from),
        start_mode::replaced_token(settings, properties).err(),
        properties.hinted_handoff_throttle().map(drop).err().map(NodeError::from),
    ];
    faults.into_iter().flatten().collect()
}

/// Reasons for which a server with these settings refuses every login. Its files are read at each
/// login, so that they may be corrected while it runs.
pub(crate) fn login_faults(settings: &Settings, properties: &Properties) -> Vec<String> {
    match authenticator(settings, properties) {
        Authenticator::AllowAll => Vec::new(),
        Authenticator::Simple(simple) => simple.faults(),
    }
}

/// The certificate and its key, with a line in the log if it ends soon.
fn read_tls(settings: &Settings) -> Result<Tls, NodeError> {
    let tls = Tls::read(&settings.tls).map_err(NodeError::Tls)?;
    tls.warning().iter().for_each(|warning| log::warn!("{warning}"));
    Ok(tls)
}

/// Warnings about files with secrets that all users of this machine can read.
pub(crate) fn file_warnings(settings: &Settings, properties: &Properties) -> Vec<String> {
    let password_file =
        properties.password_file().filter(|_| settings.authenticator == AuthenticatorName::Simple);
    let files = [
        ("AdminToken", settings.admin.token.as_ref().map(|_| PathBuf::from(&settings.origin))),
        ("TlsKeyFile", settings.tls.key.clone()),
        ("passwd.properties", password_file),
    ];
    let is_open = |path: &PathBuf| path.metadata().is_ok_and(|it| it.mode() & 0o007 != 0);
    let open = files.into_iter().filter_map(|(what, path)| Some((what, path.filter(is_open)?)));
    let warning = |(what, path): (_, PathBuf)| {
        let path = path.display();
        format!("{what}: all users of this machine can read {path}: chmod o-rwx")
    };
    open.map(warning).collect()
}

fn authenticator(settings: &Settings, properties: &Properties) -> Authenticator {
    match settings.authenticator {
        AuthenticatorName::AllowAll => Authenticator::AllowAll,
        AuthenticatorName::Simple => Authenticator::Simple(SimpleAuthenticator {
            password_file: properties.password_file(),
            access_file: properties.access_file(),
            password_mode: properties.password_mode(),
            checks_calls: settings.keyspace_rights,
        }),
    }
}
