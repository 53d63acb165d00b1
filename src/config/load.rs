//! From a document to settings, in the order in which the original evaluates its elements: of
//! several faults the same one is reported.

use super::classes::AuthenticatorName;
use super::directories::Paths;
use super::document::{Document, MIB, Place, Source, Value, joined};
use super::error::{ConfigError, ConfigErrors, DISK_ACCESS_MODES, Problem};
use super::machine::{AnyMachine, Machine, ThisMachine};
use super::notes::Note;
use super::settings::{
    CommitLogSettings, CommitLogSync, MAX_TOKEN_LENGTH, NetworkSettings, PHI_CONVICT_THRESHOLDS,
    Release, Settings, StorageSettings,
};
use super::xml::{self, Element};
use super::{addresses, elements, keyspaces, memory, ours};
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
    /// The settings below `/Storage` as `check-config` shows them.
    pub(super) shown: BTreeMap<&'static str, String>,
}

/// Reads configurations.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The comparators that column families may name.
    pub comparators: &'a ComparatorRegistry,
    /// The machine that the configuration is for.
    pub machine: &'a dyn Machine,
    /// Whether a seed without an address is an error, or else a warning.
    pub seeds_must_resolve: bool,
    /// `com.sun.management.jmxremote.port`: where operators are served if the file does not say it.
    pub jmx_port: Option<u16>,
}

impl<'a> Loader<'a> {
    /// For a server that is to run on this machine.
    pub fn for_server(comparators: &'a ComparatorRegistry) -> Self {
        Self { comparators, machine: &ThisMachine, seeds_must_resolve: true, jmx_port: None }
    }

    /// The same for a check, which may be made where the other nodes are not known.
    pub fn for_check(comparators: &'a ComparatorRegistry) -> Self {
        Self { seeds_must_resolve: false, ..Self::for_server(comparators) }
    }

    /// For tools that work on the files of a server, or on another machine than the server does.
    pub fn for_tools(comparators: &'a ComparatorRegistry) -> Self {
        Self { machine: &AnyMachine, ..Self::for_check(comparators) }
    }

    /// Reads a file, or `storage-conf.xml` in a directory. Without a path reads the configuration
    /// that is built in: a single node on loopback with sample keyspaces and its files below
    /// `./data`.
    pub fn load(&self, path: Option<&Path>) -> Result<Loaded, ConfigErrors> {
        let Some(path) = path else {
            return self.parse(EMBEDDED, "storage-conf.xml (embedded)");
        };
        let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        let bytes = read_bounded(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ConfigError::NotFound { path: path.clone() },
            _ => ConfigError::Unreadable { path: path.clone(), source },
        })?;
        let origin = path.display().to_string();
        let text = xml::decode(&bytes).map_err(|e| malformed(&origin, e))?;
        self.parse(&text, &origin)
    }

    /// Reads a text; `origin` names it in messages.
    pub fn parse(&self, text: &str, origin: &str) -> Result<Loaded, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Element::parse(text).map_err(|e| malformed(origin, e))?;
        if root.name != "Storage" {
            let place = Place { origin, line: root.line, element: format!("/{}", root.name) };
            return Err(place.refuse(Problem::NotAStorageFile).into());
        }
        let (release, known_by) = release_of(&root);
        let mut document = Document::new(&root, origin, release);
        let settings = self.evaluate(&mut document, text);
        if let Some((element, by)) = known_by {
            let text = format!("{by} makes this a file of {release}, with clients of {release}");
            document.notes.info(element.line, text + " where ThriftApiVersion says nothing else");
        }
        elements::review(&root, release, &mut document.notes);
        let Document { notes, sources, shown, errors, .. } = document;
        let notes = notes.into_sorted();
        match settings {
            Some(settings) if errors.is_empty() => Ok(Loaded { settings, notes, sources, shown }),
            _ => Err(ConfigErrors { errors, notes }),
        }
    }

    /// Reads all settings; `None` if one is missing or refused that has no default.
    fn evaluate(&self, doc: &mut Document<'_>, text: &str) -> Option<Settings> {
        let basics = Basics::read(doc);
        let limits = Limits::read(doc);
        let network = self.network(doc, &limits);
        let admin = addresses::admin(doc, self.machine, self.jmx_port);
        let thrift = addresses::thrift(doc, self.machine, network.listen_address);
        let snapshot_before_compaction = doc.boolean("SnapshotBeforeCompaction");
        let auto_bootstrap = doc.boolean("AutoBootstrap");
        let mut memory = memory::memtables(doc);
        let checks = doc.find("DoConsistencyChecksBoolean");
        let do_consistency_checks = checks.is_none_or(|v| v.text.eq_ignore_ascii_case("true"));
        doc.show("DoConsistencyChecksBoolean", do_consistency_checks);
        let column_index_bytes = u64::from(doc.integer("ColumnIndexSizeInKB")) << 10;
        let row_warning = Problem::RowWarningThreshold;
        let row_warning = positive(doc, "RowWarningThresholdInMB", row_warning);
        let paths = Paths::read(doc);
        let rotation_threshold_bytes = doc.megabytes("CommitLogRotationThresholdInMB");
        let hints = doc.boolean_named("HintedHandoffEnabled", "HintedHandoff");
        let index_interval = positive(doc, "IndexInterval", Problem::IndexInterval);
        let storage = StorageSettings {
            index_interval,
            column_index_bytes,
            row_warning_threshold_bytes: u64::from(row_warning) * MIB,
            snapshot_before_compaction,
            gc_grace: basics.gc_grace,
            compression: ours::compression(doc),
            compaction_throughput_bytes: doc.throughput("CompactionThroughputInMBPerSecond"),
            concurrent_reads: limits.concurrent_reads,
            concurrent_writes: limits.concurrent_writes,
        };
        let replication = ours::replication(doc, do_consistency_checks, hints);
        memory::budget(doc, &mut memory, self.machine.memory_bytes());
        let keyspaces = keyspaces::read(doc, self.comparators, &storage, &replication);
        let seeds = self.seeds(doc, network.listen_address);
        ours::check_peers(doc, &network, &seeds);
        let directories = paths.complete(doc, self.machine, hints);
        addresses::check_ports(doc, &network, &thrift, &admin, &seeds);
        Some(Settings {
            origin: doc.origin.to_owned(),
            text: without_token(text),
            release: doc.release,
            cluster_name: basics.cluster_name?,
            partitioner: basics.partitioner?,
            initial_token: basics.initial_token,
            auto_bootstrap,
            seeds,
            authenticator: basics.authenticator,
            network,
            thrift,
            admin,
            directories: directories?,
            commit_log: CommitLogSettings { sync: basics.sync?, rotation_threshold_bytes },
            memory,
            storage,
            replication,
            keyspaces,
        })
    }

    fn network(&self, doc: &mut Document<'_>, limits: &Limits) -> NetworkSettings {
        NetworkSettings {
            storage_port: doc.port("StoragePort"),
            storage_port_is_required: doc.sources.contains_key("StoragePort"),
            listen_address: addresses::listen_address(doc, self.machine),
            peer_networks: ours::peer_networks(doc),
            rpc_timeout: limits.rpc_timeout,
            phi_convict_threshold: limits.phi_convict_threshold,
            stream_throughput_bytes: doc.throughput("StreamThroughputInMBPerSecond"),
        }
    }

    fn seeds(&self, doc: &mut Document<'_>, listen_address: IpAddr) -> Vec<IpAddr> {
        let mut seeds = Vec::new();
        for value in doc.list("Seeds", "Seed") {
            match addresses::resolve(self.machine, &value) {
                Ok(address) if seeds.contains(&address) => {}
                Ok(address) => seeds.push(address),
                Err(error) if self.seeds_must_resolve => doc.refuse(error),
                Err(_) => {
                    let host = value.text;
                    let text = format!("seed {host} has no address here: no server starts with it");
                    doc.notes.warn(value.place.line, text);
                }
            }
        }
        if !doc.sources.contains_key("Seeds") {
            if doc.release == Release::V04 {
                seeds.push(listen_address);
            } else {
                doc.refuse(doc.absent("Seeds", Problem::NoSeeds));
            }
        }
        doc.show("Seeds", joined(&seeds, ""));
        seeds
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

/// The settings that the original evaluates first.
struct Basics {
    cluster_name: Option<String>,
    sync: Option<CommitLogSync>,
    authenticator: AuthenticatorName,
    partitioner: Option<Partitioner>,
    gc_grace: Duration,
    initial_token: Option<String>,
}

impl Basics {
    fn read(doc: &mut Document<'_>) -> Self {
        let name = |value: &Value<'_>| Ok(value.text.to_owned());
        let cluster_name = doc.required("ClusterName", Problem::Missing, name);
        let sync = commit_log_sync(doc);
        check_disk_access_mode(doc);
        let anyone = AuthenticatorName::AllowAll;
        let authenticator = doc.find("Authenticator");
        let authenticator = doc.read_or(authenticator, anyone, |value| {
            let found = AuthenticatorName::from_class_name(value.text);
            found.ok_or_else(|| value.refuse(Problem::InvalidAuthenticator(value.text.to_owned())))
        });
        let partitioner = doc.required("Partitioner", Problem::MissingPartitioner, |value| {
            let found = Partitioner::from_class_name(value.text);
            found.ok_or_else(|| value.refuse(Problem::InvalidPartitioner(value.text.to_owned())))
        });
        let gc_grace = Duration::from_secs(doc.integer("GCGraceSeconds").into());
        let initial_token = doc.optional("InitialToken", None, |value| {
            check_token(value, partitioner)?;
            Ok(value.text.to_owned())
        });
        doc.show("ClusterName", cluster_name.as_deref().unwrap_or_default());
        doc.show("Authenticator", authenticator.class_name());
        doc.show("Partitioner", partitioner.map_or("", Partitioner::class_name));
        let token = initial_token.as_deref();
        doc.show("InitialToken", token.unwrap_or("(random at the first start)"));
        Self { cluster_name, sync, authenticator, partitioner, gc_grace, initial_token }
    }
}

fn check_token(value: &Value<'_>, partitioner: Option<Partitioner>) -> Result<(), ConfigError> {
    if let Some(partitioner) = partitioner
        && partitioner.parse_token(value.text).is_err()
    {
        return Err(value.refuse(Problem::InvalidToken(partitioner)));
    }
    // Between nodes a comma ends the token: others would take the part before it for the place of
    // this one.
    if value.text.contains(',') {
        return Err(value.refuse(Problem::TokenWithComma));
    }
    if value.text.len() > MAX_TOKEN_LENGTH {
        return Err(value.refuse(Problem::LongToken));
    }
    Ok(())
}

fn commit_log_sync(doc: &mut Document<'_>) -> Option<CommitLogSync> {
    const PERIOD: &str = "CommitLogSyncPeriodInMS";
    const WINDOW: &str = "CommitLogSyncBatchWindowInMS";
    let read = |value: &Value<'_>| match value.text {
        "batch" => Ok(true),
        "periodic" => Ok(false),
        _ => Err(value.refuse(Problem::CommitLogSync)),
    };
    let is_batch = doc.required("CommitLogSync", Problem::Missing, read)?;
    doc.show("CommitLogSync", if is_batch { "batch" } else { "periodic" });
    if is_batch {
        let millis = doc.required(WINDOW, Problem::CommitLogSyncBatchWindow, |window| {
            window.double().map_err(|_| window.refuse(Problem::CommitLogSyncBatchWindow))
        });
        if let Some(period) = doc.find(PERIOD) {
            doc.refuse(period.refuse(Problem::PeriodWithBatchSync));
        }
        // A negative window is none, and no sensible one is longer than a day.
        let seconds = (millis? / 1000.0).clamp(0.0, 86_400.0);
        let window = Duration::from_secs_f64(seconds);
        doc.show(WINDOW, window.as_secs_f64() * 1000.0);
        return Some(CommitLogSync::Batch { window });
    }
    let period = doc.required(PERIOD, Problem::CommitLogSyncPeriod, |period| {
        let number = period.integer();
        number.map_err(|_| period.refuse(Problem::CommitLogSyncPeriod))?;
        Ok(period.clone())
    });
    if let Some(window) = doc.find(WINDOW) {
        doc.refuse(window.refuse(Problem::WindowWithPeriodicSync));
    }
    let millis = doc.at_least(&period?, 1)?;
    doc.show(PERIOD, millis);
    Some(CommitLogSync::Periodic { period: Duration::from_millis(millis.into()) })
}

/// The mode has no meaning here. A word that 0.6 refuses is an error nevertheless, since such a
/// file was never in use.
fn check_disk_access_mode(doc: &mut Document<'_>) {
    const NAME: &str = "DiskAccessMode";
    doc.check(NAME, |value| {
        let is_known = DISK_ACCESS_MODES.contains(&value.text);
        is_known.then_some(()).ok_or_else(|| value.refuse(Problem::DiskAccessMode))
    });
    if doc.release == Release::V06 && !doc.sources.contains_key(NAME) {
        let text = "DiskAccessMode is not there, which 0.6 refuses; it has no effect here";
        doc.notes.info(doc.root_line(), text.to_owned());
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
    fn read(doc: &mut Document<'_>) -> Self {
        let timeout = doc.integer("RpcTimeoutInMillis");
        let phi_convict_threshold = doc.setting("PhiConvictThreshold", 8, |value| {
            let phi = u32::try_from(value.integer()?).ok();
            let phi = phi.filter(|phi| PHI_CONVICT_THRESHOLDS.contains(phi));
            phi.ok_or_else(|| value.refuse(Problem::PhiConvictThreshold))
        });
        let concurrent_reads = threads(doc, "ConcurrentReads");
        let concurrent_writes = threads(doc, "ConcurrentWrites");
        doc.check_integer("SlicedBufferSizeInKB");
        doc.check_number("FlushDataBufferSizeInMB");
        doc.check_number("FlushIndexBufferSizeInMB");
        Self {
            rpc_timeout: Duration::from_millis(timeout.into()),
            phi_convict_threshold,
            concurrent_reads,
            concurrent_writes,
        }
    }
}

fn threads(doc: &mut Document<'_>, name: &'static str) -> u32 {
    let number = threads_of(doc, name, elements::row(name).default_number());
    doc.show(name, number);
    number
}

fn threads_of(doc: &mut Document<'_>, name: &'static str, default: u32) -> u32 {
    let Some(value) = doc.find(name) else { return default };
    if doc.release == Release::V06 && value.integer().is_ok_and(|number| number < LEAST_THREADS) {
        doc.refuse(value.refuse(Problem::TooFewThreads(name)));
        return default;
    }
    let number = doc.at_least(&value, 1).unwrap_or(default);
    if number > MOST_THREADS {
        let text = format!("{name}: {number} is taken as {MOST_THREADS}, the most possible");
        doc.notes.warn(value.place.line, text);
    }
    number.min(MOST_THREADS)
}

/// A number of at least 1, for which the original has words of its own: the problem of others.
fn positive(doc: &mut Document<'_>, name: &'static str, problem: Problem) -> u32 {
    doc.setting(name, elements::row(name).default_number(), |value| {
        match u32::try_from(value.integer()?) {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(value.refuse(problem)),
        }
    })
}
