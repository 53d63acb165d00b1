//! From a document to settings, in the order in which the original evaluates its elements: of
//! several faults the same one is reported.

use super::classes::AuthenticatorName;
use super::directories::Paths;
use super::document::{Document, MIB, Place, Source, Value};
use super::error::{ConfigError, Problem};
use super::hosts::{self, Resolver, SystemResolver};
use super::known;
use super::notes::Note;
use super::settings::{
    AdminSettings, CommitLogSettings, CommitLogSync, ListenerSettings, MAX_TOKEN_LENGTH,
    NetworkSettings, PHI_CONVICT_THRESHOLDS, Release, Settings, StorageSettings, ThriftSettings,
};
use super::xml::{self, Element};
use super::{keyspaces, memory, ours};
use crate::model::comparator::ComparatorRegistry;
use crate::ring::Partitioner;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The name of the file in its directory.
pub const FILE_NAME: &str = "storage-conf.xml";
/// The configuration of a server that is given none.
pub(super) const EMBEDDED: &str = include_str!("../../storage-conf.xml");
/// The least number of threads that the original accepts.
const LEAST_THREADS: i32 = 2;

/// Most threads of one kind: each is one of the operating system, which has only so many.
const MOST_THREADS: u32 = 1024;

/// Settings, and what there is to say about them.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the server runs with.
    pub settings: Settings,
    /// Remarks for the operator, in the order of lines.
    pub notes: Vec<Note>,
    /// By current name the elements below `/Storage` that the file gives; the others have their
    /// defaults.
    pub sources: BTreeMap<&'static str, Source>,
}

/// What reading a configuration needs of its surroundings.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The comparators that column families may name.
    pub comparators: &'a ComparatorRegistry,
    /// Turns hosts into addresses.
    pub resolver: &'a dyn Resolver,
}

impl Settings {
    /// Reads a file, or `storage-conf.xml` in a directory, with the system's resolver.
    pub fn load(path: &Path, comparators: &ComparatorRegistry) -> Result<Loaded, ConfigError> {
        Loader { comparators, resolver: &SystemResolver }.load(path)
    }

    /// Reads a text, with the system's resolver; `origin` names it in messages.
    pub fn parse(
        text: &str,
        origin: &str,
        comparators: &ComparatorRegistry,
    ) -> Result<Loaded, ConfigError> {
        Loader { comparators, resolver: &SystemResolver }.parse(text, origin)
    }

    /// The configuration of a server that is given none: a single node on loopback with sample
    /// keyspaces and its files below `./data`.
    pub fn embedded(comparators: &ComparatorRegistry) -> Result<Loaded, ConfigError> {
        Self::parse(EMBEDDED, "storage-conf.xml (embedded)", comparators)
    }
}

impl Loader<'_> {
    /// Reads a file, or `storage-conf.xml` in a directory.
    pub fn load(&self, path: &Path) -> Result<Loaded, ConfigError> {
        let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        let bytes = match read_bounded(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(ConfigError::NotFound { path });
            }
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        };
        let origin = path.display().to_string();
        let text = xml::decode(&bytes).map_err(|e| malformed(&origin, e))?;
        self.parse(&text, &origin)
    }

    /// Reads a text; `origin` names it in messages.
    pub fn parse(&self, text: &str, origin: &str) -> Result<Loaded, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Element::parse(text).map_err(|e| malformed(origin, e))?;
        let (release, known_by) = release_of(&root);
        let mut document = Document::new(&root, origin, release);
        if root.name != "Storage" {
            let place = Place { origin, line: root.line, element: format!("/{}", root.name) };
            return Err(place.refuse(Problem::NotAStorageFile));
        }
        let settings = self.evaluate(&mut document, text)?;
        if let Some((element, by)) = known_by {
            let text = format!("{by} makes this a file of {release}, with clients of {release}");
            document.notes.info(element.line, text + " where ThriftApiVersion says nothing else");
        }
        known::review(&root, release, &mut document.notes);
        let Document { notes, sources, .. } = document;
        Ok(Loaded { settings, notes: notes.into_sorted(), sources })
    }

    fn evaluate(&self, doc: &mut Document<'_>, text: &str) -> Result<Settings, ConfigError> {
        let basics = Basics::read(doc)?;
        let limits = Limits::read(doc)?;
        let network = self.network(doc, &limits)?;
        let admin = self.admin(doc)?;
        let own = [(network.listen_address, network.storage_port), (admin.address, admin.port)];
        let thrift = self.thrift(doc, network.listen_address, own)?;
        let snapshot_before_compaction =
            doc.boolean("SnapshotBeforeCompaction", "SnapshotBeforeCompaction", false)?;
        let auto_bootstrap = doc.boolean("AutoBootstrap", "AutoBootstrap", false)?;
        let mut memory = memory::memtables(doc)?;
        let checks = doc.find("DoConsistencyChecksBoolean");
        let do_consistency_checks = checks.is_none_or(|v| v.text.eq_ignore_ascii_case("true"));
        let column_index_bytes = kilobytes(doc, "ColumnIndexSizeInKB", 64)?;
        let row_warning_threshold_bytes = row_warning_threshold(doc)?;
        let paths = Paths::read(doc)?;
        let rotation = doc.integer("CommitLogRotationThresholdInMB", 128, 1)?;
        let hints = doc.boolean("HintedHandoffEnabled", "HintedHandoff", true)?;
        let index_interval = index_interval(doc)?;
        let storage = StorageSettings {
            index_interval,
            column_index_bytes,
            row_warning_threshold_bytes,
            snapshot_before_compaction,
            gc_grace: basics.gc_grace,
            compression: ours::compression(doc)?,
            compaction_throughput_bytes: ours::throughput(
                doc,
                "CompactionThroughputInMBPerSecond",
                64,
            )?,
            concurrent_reads: limits.concurrent_reads,
            concurrent_writes: limits.concurrent_writes,
        };
        let replication = ours::replication(doc, do_consistency_checks, hints)?;
        memory::budget(doc, &mut memory)?;
        let keyspaces = keyspaces::read(doc, self.comparators, &storage, &replication)?;
        let seeds = self.seeds(doc, network.listen_address)?;
        let directories = paths.complete(doc)?;
        Ok(Settings {
            origin: doc.origin.to_owned(),
            text: without_token(text),
            release: doc.release,
            cluster_name: basics.cluster_name,
            partitioner: basics.partitioner,
            initial_token: basics.initial_token,
            auto_bootstrap,
            seeds,
            authenticator: basics.authenticator,
            network,
            thrift,
            admin,
            directories,
            commit_log: CommitLogSettings {
                sync: basics.sync,
                rotation_threshold_bytes: u64::from(rotation) * MIB,
            },
            memory,
            storage,
            replication,
            keyspaces,
        })
    }

    fn network(
        &self,
        doc: &mut Document<'_>,
        limits: &Limits,
    ) -> Result<NetworkSettings, ConfigError> {
        let storage_port = doc.port("StoragePort", 7000)?;
        let listen_address = match doc.find("ListenAddress") {
            Some(value) => self.listen_address(doc, &value)?,
            None => hosts::local_address(self.resolver),
        };
        Ok(NetworkSettings {
            listen_address,
            storage_port,
            storage_port_is_required: doc.sources.contains_key("StoragePort"),
            rpc_timeout: limits.rpc_timeout,
            phi_convict_threshold: limits.phi_convict_threshold,
            stream_throughput_bytes: ours::throughput(doc, "StreamThroughputInMBPerSecond", 0)?,
        })
    }

    fn listen_address(
        &self,
        doc: &mut Document<'_>,
        value: &Value<'_>,
    ) -> Result<IpAddr, ConfigError> {
        let found = hosts::resolve_one(self.resolver, value.text);
        let address = found
            .map_err(|_| value.refuse(Problem::UnknownListenAddress(value.text.to_owned())))?;
        if !address.is_unspecified() {
            return Ok(address);
        }
        if doc.release != Release::V04 {
            return Err(value.refuse(Problem::ListenAddressIsAny));
        }
        // 0.4 did not check; its peers then know the node by the address of its name.
        let local = hosts::local_address(self.resolver);
        let text = format!("ListenAddress must be a single interface; {local} is taken");
        doc.notes.warn(value.place.line, text);
        Ok(local)
    }

    fn thrift(
        &self,
        doc: &mut Document<'_>,
        listen_address: IpAddr,
        own: [(IpAddr, u16); 2],
    ) -> Result<ThriftSettings, ConfigError> {
        let address = match doc.find("ThriftAddress") {
            Some(value) => self.resolve(&value)?,
            None => listen_address,
        };
        let port = doc.port("ThriftPort", 9160)?;
        let framed = doc.boolean("ThriftFramedTransport", "ThriftFramedTransport", false)?;
        let api_version = ours::api_version(doc)?;
        let (max_message_bytes, receive_budget_bytes) = ours::message_limits(doc)?;
        let max_connections = doc.integer("ThriftMaxConnections", 10_000, 1)?;
        let first = ListenerSettings { address, port, framed, api_version };
        let listeners = self.listeners(doc, &first, own)?;
        Ok(ThriftSettings {
            address,
            port,
            framed,
            api_version,
            max_message_bytes,
            max_connections,
            receive_budget_bytes,
            listeners,
        })
    }

    /// Further ports for clients. What an element does not say is as for the first one. Those that
    /// the node needs for itself are refused.
    fn listeners(
        &self,
        doc: &mut Document<'_>,
        first: &ListenerSettings,
        own: [(IpAddr, u16); 2],
    ) -> Result<Vec<ListenerSettings>, ConfigError> {
        let mut listeners = Vec::new();
        let mut taken = vec![own[0], own[1], (first.address, first.port)];
        for (element, place) in doc.entries("ThriftListeners", "ThriftListener")? {
            let value = |name| Value::of_attribute(element, &place, name);
            let missing = || {
                let port = doc.place("ThriftListeners/ThriftListener/@Port", element.line);
                port.refuse(Problem::Missing)
            };
            let port = value("Port").ok_or_else(missing)?;
            let framed = value("FramedTransport");
            let framed = framed.map(|value| value.boolean("FramedTransport")).transpose()?;
            let address = value("Address").map(|value| self.resolve(&value)).transpose()?;
            let api_version = value("ApiVersion").map(|value| ours::release(&value)).transpose()?;
            let listener = ListenerSettings {
                address: address.unwrap_or(first.address),
                port: port.port()?,
                framed: framed.unwrap_or(first.framed),
                api_version: api_version.unwrap_or(first.api_version),
            };
            let meets = |(address, port): &(IpAddr, u16)| {
                let any = address.is_unspecified() || listener.address.is_unspecified();
                *port != 0 && *port == listener.port && (any || *address == listener.address)
            };
            if taken.iter().any(meets) {
                return Err(port.refuse(Problem::PortTaken));
            }
            taken.push((listener.address, listener.port));
            listeners.push(listener);
        }
        Ok(listeners)
    }

    fn admin(&self, doc: &mut Document<'_>) -> Result<AdminSettings, ConfigError> {
        let address = match doc.find("AdminAddress") {
            Some(value) => self.resolve(&value)?,
            None => IpAddr::from([127, 0, 0, 1]),
        };
        Ok(AdminSettings {
            address,
            port: doc.port("AdminPort", 8080)?,
            port_is_required: doc.sources.contains_key("AdminPort"),
            token: doc.find("AdminToken").map(|value| value.text.to_owned()),
        })
    }

    fn seeds(
        &self,
        doc: &mut Document<'_>,
        listen_address: IpAddr,
    ) -> Result<Vec<IpAddr>, ConfigError> {
        let mut seeds = Vec::new();
        for value in doc.list("Seeds", "Seed")? {
            let address = self.resolve(&value)?;
            if !seeds.contains(&address) {
                seeds.push(address);
            }
        }
        if seeds.is_empty() {
            if doc.release != Release::V04 {
                return Err(doc.absent("Seeds", Problem::NoSeeds));
            }
            seeds.push(listen_address);
        }
        Ok(seeds)
    }

    fn resolve(&self, value: &Value<'_>) -> Result<IpAddr, ConfigError> {
        hosts::resolve_one(self.resolver, value.text).map_err(|reason| {
            value.refuse(Problem::UnknownHost { host: value.text.to_owned(), reason })
        })
    }
}

fn malformed(origin: &str, error: xml::XmlError) -> ConfigError {
    ConfigError::Malformed { origin: origin.to_owned(), line: error.line, fault: error.fault }
}

/// The bytes of a file, at most one more than a document may have.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let limit = xml::MAX_DOCUMENT_BYTES as u64 + 1;
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text with the content of every `<AdminToken>` taken out, also of those in comments.
fn without_token(text: &str) -> String {
    const TAG: &str = "<AdminToken";
    const END: &str = "</AdminToken";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(TAG) {
        shown.push_str(before);
        shown.push_str(TAG);
        let start = after.find('>').map_or(after.len(), |end| end + 1);
        let (tag, content) = after.split_at(start);
        shown.push_str(tag);
        let is_empty_element = tag.ends_with("/>");
        let secret = if is_empty_element { 0 } else { content.find(END).unwrap_or(0) };
        rest = content.get(secret..).unwrap_or_default();
    }
    shown + rest
}

/// The release whose elements a file uses, and by which it is known for one that is older than 0.6.
///
/// Replication for all keyspaces together is of 0.4 or 0.5, and of these only 0.4 has three
/// elements. A file of 0.5 that has kept one of them looks like one of 0.4.
fn release_of(root: &Element) -> (Release, Option<(&Element, String)>) {
    if first_of(root, &GLOBAL_REPLICATION).is_none() {
        return (Release::V06, None);
    }
    let keyspaces = root.children_named("Keyspaces").flat_map(|e| e.children_named("Keyspace"));
    let mut families = keyspaces.flat_map(|keyspace| keyspace.children_named("ColumnFamily"));
    let flushed = families.find(|family| family.attribute(PERIOD).is_some());
    let by_period = flushed.map(|family| (family, format!("attribute {PERIOD}")));
    match first_of(root, &OF_04_ALONE).or(by_period) {
        Some(found) => (Release::V04, Some(found)),
        None => (Release::V05, first_of(root, &GLOBAL_REPLICATION)),
    }
}

/// The first of these children that is there, and what to call it.
fn first_of<'e>(parent: &'e Element, names: &[&'static str]) -> Option<(&'e Element, String)> {
    names.iter().find_map(|name| {
        let found = parent.children_named(name).next()?;
        Some((found, format!("element <{name}>")))
    })
}

/// For all keyspaces together until 0.5.
const GLOBAL_REPLICATION: [&str; 2] = ["ReplicationFactor", "ReplicaPlacementStrategy"];

/// Elements that went with 0.4.
const OF_04_ALONE: [&str; 2] = ["BootstrapFileDirectory", "MemtableLifetimeInDays"];

/// The same, of `ColumnFamily`.
const PERIOD: &str = "FlushPeriodInMinutes";

/// What the original evaluates first.
struct Basics {
    cluster_name: String,
    sync: CommitLogSync,
    authenticator: AuthenticatorName,
    partitioner: Partitioner,
    gc_grace: Duration,
    initial_token: Option<String>,
}

impl Basics {
    fn read(doc: &mut Document<'_>) -> Result<Self, ConfigError> {
        let cluster_name = match doc.find("ClusterName") {
            Some(value) => value.text.to_owned(),
            None => return Err(doc.absent("ClusterName", Problem::Missing)),
        };
        let sync = commit_log_sync(doc)?;
        check_disk_access_mode(doc)?;
        let authenticator = match doc.find("Authenticator") {
            Some(value) => AuthenticatorName::from_class_name(value.text).ok_or_else(|| {
                value.refuse(Problem::InvalidAuthenticator(value.text.to_owned()))
            })?,
            None => AuthenticatorName::AllowAll,
        };
        let partitioner = match doc.find("Partitioner") {
            Some(value) => Partitioner::from_class_name(value.text)
                .ok_or_else(|| value.refuse(Problem::InvalidPartitioner(value.text.to_owned())))?,
            None => return Err(doc.absent("Partitioner", Problem::MissingPartitioner)),
        };
        let gc_grace = Duration::from_secs(doc.integer("GCGraceSeconds", 864_000, 0)?.into());
        let initial_token = match doc.find("InitialToken") {
            Some(value) if partitioner.parse_token(value.text).is_err() => {
                return Err(value.refuse(Problem::InvalidToken(partitioner)));
            }
            // Between nodes a comma ends the token: others would take the part before it for the
            // place of this one.
            Some(value) if value.text.contains(',') => {
                return Err(value.refuse(Problem::TokenWithComma));
            }
            Some(value) if value.text.len() > MAX_TOKEN_LENGTH => {
                return Err(value.refuse(Problem::LongToken));
            }
            token => token.map(|value| value.text.to_owned()),
        };
        Ok(Self { cluster_name, sync, authenticator, partitioner, gc_grace, initial_token })
    }
}

fn commit_log_sync(doc: &mut Document<'_>) -> Result<CommitLogSync, ConfigError> {
    const PERIOD: &str = "CommitLogSyncPeriodInMS";
    const WINDOW: &str = "CommitLogSyncBatchWindowInMS";
    let Some(mode) = doc.find("CommitLogSync") else {
        return Err(doc.absent("CommitLogSync", Problem::Missing));
    };
    let (period, window) = (doc.find(PERIOD), doc.find(WINDOW));
    match mode.text {
        "batch" => {
            let Some(window) = window else {
                return Err(doc.absent(WINDOW, Problem::CommitLogSyncBatchWindow));
            };
            let millis = window.double();
            let millis = millis.map_err(|_| window.refuse(Problem::CommitLogSyncBatchWindow))?;
            if let Some(period) = period {
                return Err(period.refuse(Problem::PeriodWithBatchSync));
            }
            // A negative window is none, and no sensible one is longer than a day.
            let seconds = (millis / 1000.0).clamp(0.0, 86_400.0);
            Ok(CommitLogSync::Batch { window: Duration::from_secs_f64(seconds) })
        }
        "periodic" => {
            let Some(period) = period else {
                return Err(doc.absent(PERIOD, Problem::CommitLogSyncPeriod));
            };
            if period.integer().is_err() {
                return Err(period.refuse(Problem::CommitLogSyncPeriod));
            }
            if let Some(window) = window {
                return Err(window.refuse(Problem::WindowWithPeriodicSync));
            }
            let millis = doc.at_least(&period, 1)?;
            Ok(CommitLogSync::Periodic { period: Duration::from_millis(millis.into()) })
        }
        _ => Err(mode.refuse(Problem::CommitLogSync)),
    }
}

/// The mode has no meaning here, but a file that 0.6 refuses is one that was never in use.
fn check_disk_access_mode(doc: &mut Document<'_>) -> Result<(), ConfigError> {
    match doc.find("DiskAccessMode") {
        Some(value) => match value.text {
            "auto" | "mmap" | "mmap_index_only" | "standard" => Ok(()),
            _ => Err(value.refuse(Problem::DiskAccessMode)),
        },
        None if doc.release == Release::V06 => Err(doc.absent("DiskAccessMode", Problem::Missing)),
        None => Ok(()),
    }
}

/// Timeouts and thread counts.
struct Limits {
    rpc_timeout: Duration,
    phi_convict_threshold: u32,
    concurrent_reads: u32,
    concurrent_writes: u32,
}

impl Limits {
    fn read(doc: &mut Document<'_>) -> Result<Self, ConfigError> {
        let timeout = doc.integer("RpcTimeoutInMillis", 2000, 1)?;
        let phi_convict_threshold = match doc.find("PhiConvictThreshold") {
            Some(value) => u32::try_from(value.integer()?)
                .ok()
                .filter(|phi| PHI_CONVICT_THRESHOLDS.contains(phi))
                .ok_or_else(|| value.refuse(Problem::PhiConvictThreshold))?,
            None => 8,
        };
        let concurrent_reads = threads(doc, "ConcurrentReads", 8)?;
        let concurrent_writes = threads(doc, "ConcurrentWrites", 32)?;
        doc.check_integer("SlicedBufferSizeInKB")?;
        doc.check_number("FlushDataBufferSizeInMB")?;
        doc.check_number("FlushIndexBufferSizeInMB")?;
        Ok(Self {
            rpc_timeout: Duration::from_millis(timeout.into()),
            phi_convict_threshold,
            concurrent_reads,
            concurrent_writes,
        })
    }
}

fn threads(doc: &mut Document<'_>, name: &'static str, default: u32) -> Result<u32, ConfigError> {
    let Some(value) = doc.find(name) else { return Ok(default) };
    if doc.release == Release::V06 && value.integer()? < LEAST_THREADS {
        return Err(value.refuse(Problem::TooFewThreads(name)));
    }
    let number = doc.at_least(&value, 1)?;
    if number > MOST_THREADS {
        let text = format!("{name}: {number} is taken as {MOST_THREADS}, the most possible");
        doc.notes.warn(value.place.line, text);
    }
    Ok(number.min(MOST_THREADS))
}

fn kilobytes(doc: &mut Document<'_>, name: &'static str, default: u32) -> Result<u64, ConfigError> {
    Ok(u64::from(doc.integer(name, default, 1)?) << 10)
}

fn row_warning_threshold(doc: &mut Document<'_>) -> Result<u64, ConfigError> {
    match doc.find("RowWarningThresholdInMB") {
        Some(value) => match u64::try_from(value.integer()?) {
            Ok(megabytes) if megabytes > 0 => Ok(megabytes * MIB),
            _ => Err(value.refuse(Problem::RowWarningThreshold)),
        },
        None => Ok(512 * MIB),
    }
}

fn index_interval(doc: &mut Document<'_>) -> Result<u32, ConfigError> {
    match doc.find("IndexInterval") {
        Some(value) => match u32::try_from(value.integer()?) {
            Ok(interval) if interval > 0 => Ok(interval),
            _ => Err(value.refuse(Problem::IndexInterval)),
        },
        None => Ok(128),
    }
}
