//! From a document to settings, in the order in which the original evaluates its elements: of
//! several faults the same one is reported.

use super::classes::AuthenticatorName;
use super::directories::Paths;
use super::document::{Document, MIB, Source, Value, joined, parse_double};
use super::error::{ConfigError, ConfigErrors, Note, Place, Problem};
use super::machine::{AnyMachine, Machine, ThisMachine};
use super::settings::{
    CommitLogSettings, CommitLogSync, Compression, MAX_TOKEN_LENGTH, NetworkSettings,
    PHI_CONVICT_THRESHOLDS, Release, ReplicationSettings, Settings, SpeculativeRetry,
    StorageSettings,
};
use super::xml::{self, Element};
use super::{addresses, elements, keyspaces, memory};
use crate::model::comparator::ComparatorRegistry;
use crate::ring::Partitioner;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
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

/// Most threads of one kind: each is a thread of the operating system, which limits them.
const MOST_THREADS: u32 = 1024;

/// Settings, and what there is to say about them.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Settings of the server.
    pub settings: Settings,
    /// Remarks for the operator, in the order of lines.
    pub notes: Vec<Note>,
    /// By current name the elements below `/Storage` that the file gives; the others have their
    /// defaults.
    pub sources: BTreeMap<&'static str, Source>,
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
        let (text, origin) = read(path)?;
        let mut loaded = self.parse(&text, &origin)?;
        if let (None, Some(cql)) = (path, &mut loaded.settings.cql) {
            cql.port_is_required = false;
        }
        Ok(loaded)
    }

    /// Reads a text; `origin` names it in messages.
    pub fn parse(&self, text: &str, origin: &str) -> Result<Loaded, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Element::parse(text, origin)?;
        if root.name != "Storage" {
            let place = Place { origin, line: root.line, element: format!("/{}", root.name) };
            let problem = Problem::startup("the root element must be <Storage>");
            return Err(place.refuse(problem).into());
        }
        let (release, known_by) = release_of(&root);
        let mut document = Document::new(&root, origin, release);
        let settings = self.evaluate(&mut document, text);
        if let Some((element, by)) = known_by {
            let text = format!("{by} makes this a file of {release}, with clients of {release}");
            document.notes.info(element.line, text + " where ThriftApiVersion says nothing else");
        }
        elements::review(&root, release, &mut document.notes);
        let Document { notes, sources, errors, .. } = document;
        let notes = notes.into_sorted();
        match settings {
            Some(settings) if errors.is_empty() => Ok(Loaded { settings, notes, sources }),
            _ => Err(ConfigErrors { errors, notes }),
        }
    }

    /// Reads all settings; `None` if one is missing or refused that has no default.
    fn evaluate(&self, doc: &mut Document<'_>, source: &str) -> Option<Settings> {
        let cluster_name = cluster_name(doc);
        let sync = commit_log_sync(doc);
        check_disk_access_mode(doc);
        let authenticator = authenticator(doc);
        let partitioner = partitioner(doc);
        let gc_grace = Duration::from_secs(doc.integer("GCGraceSeconds").into());
        let initial_token = initial_token(doc, partitioner);
        let rpc_timeout = Duration::from_millis(doc.integer("RpcTimeoutInMillis").into());
        let phi_convict_threshold = phi_convict_threshold(doc);
        let concurrent_reads = threads(doc, "ConcurrentReads");
        let concurrent_writes = threads(doc, "ConcurrentWrites");
        check_buffer_sizes(doc);
        let network = self.network(doc, rpc_timeout, phi_convict_threshold);
        let admin = addresses::admin(doc, self.machine, self.jmx_port);
        let thrift = addresses::thrift(doc, self.machine, network.listen_address);
        let cql = addresses::cql(doc, self.machine, thrift.address);
        let snapshot_before_compaction = doc.boolean("SnapshotBeforeCompaction");
        let auto_bootstrap = doc.boolean("AutoBootstrap");
        let mut memory = memory::memtables(doc);
        let checks = do_consistency_checks(doc);
        let column_index_bytes = u64::from(doc.integer("ColumnIndexSizeInKB")) << 10;
        let row_warning_threshold_bytes = row_warning_threshold_bytes(doc);
        let paths = Paths::read(doc);
        let rotation_threshold_bytes = doc.megabytes("CommitLogRotationThresholdInMB");
        let hints = doc.setting("HintedHandoffEnabled", true, |it| it.boolean("HintedHandoff"));
        let problem = "Index Interval must be a positive, non-zero integer.";
        let storage = StorageSettings {
            index_interval: doc.positive("IndexInterval", problem),
            column_index_bytes,
            row_warning_threshold_bytes,
            snapshot_before_compaction,
            gc_grace,
            compression: doc.setting("Compression", Compression::Lz4, keyspaces::compression),
            compaction_throughput_bytes: doc.throughput("CompactionThroughputInMBPerSecond"),
            concurrent_reads,
            concurrent_writes,
        };
        let replication = replication(doc, checks, hints);
        memory::budget(doc, &mut memory, self.machine.memory_bytes());
        let keyspaces = keyspaces::read(doc, self.comparators, &storage, &replication);
        let seeds = self.seeds(doc, network.listen_address);
        addresses::check_peers(doc, &network, &seeds);
        let directories = paths.complete(doc, self.machine, hints);
        addresses::check_ports(doc, &network, (&thrift, cql.as_ref()), &admin, &seeds);
        Some(Settings {
            origin: doc.origin.to_owned(),
            text: without_secrets(source),
            release: doc.release,
            cluster_name: cluster_name?,
            partitioner: partitioner?,
            initial_token,
            auto_bootstrap,
            seeds,
            authenticator,
            keyspace_rights: keyspace_rights(doc, authenticator),
            network,
            thrift,
            cql,
            admin,
            tls: addresses::tls(doc),
            directories: directories?,
            commit_log: CommitLogSettings { sync: sync?, rotation_threshold_bytes },
            memory,
            storage,
            replication,
            keyspaces,
            shown: std::mem::take(&mut doc.shown),
        })
    }

    fn network(
        &self,
        doc: &mut Document<'_>,
        rpc_timeout: Duration,
        phi_convict_threshold: u32,
    ) -> NetworkSettings {
        NetworkSettings {
            storage_port: doc.port("StoragePort"),
            storage_port_is_required: doc.sources.contains_key("StoragePort"),
            listen_address: addresses::listen_address(doc, self.machine),
            peer_networks: addresses::peer_networks(doc),
            rpc_timeout,
            phi_convict_threshold,
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
                doc.refuse(doc.absent("Seeds", "A minimum of one seed is required."));
            }
        }
        doc.show("Seeds", joined(&seeds, ""));
        seeds
    }
}

/// The text of a configuration, its secrets included, and where it is from.
pub fn read(path: Option<&Path>) -> Result<(String, String), ConfigError> {
    let Some(path) = path else {
        return Ok((EMBEDDED.to_owned(), "storage-conf.xml (embedded)".to_owned()));
    };
    let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
    let origin = path.display().to_string();
    let bytes = xml::read_bounded(&path).map_err(|error| {
        ConfigError::startup(match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{origin}: Cannot locate storage-conf.xml via storage-config system property or \
                 classpath lookup."
            ),
            _ => format!("{origin}: {error}"),
        })
    })?;
    Ok((xml::decode(&bytes, &origin)?, origin))
}

/// The text without content and attributes of elements that may hold secrets: `AdminToken`, and
/// misspelt ones like it or like nothing. Attributes with such a name have no value, and comments
/// with such a word no text.
fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut reader = Reader::from_str(text);
    let (mut at, mut hidden) = (0, 0);
    // The text was read before.
    while let Ok(event) = reader.read_event() {
        let from = std::mem::replace(&mut at, reader.buffer_position() as usize);
        let raw = &text[from..at];
        let name = |tag: &BytesStart<'_>| tag.name().as_ref().to_owned();
        let hides = |name: &str| name == "AdminToken" || !elements::is_name(name);
        match event {
            Event::Eof => break,
            Event::Start(_) if hidden > 0 => hidden += 1,
            Event::Start(tag) if hides(&name(&tag)) => {
                shown.extend(["<", &name(&tag), ">"]);
                hidden = 1;
            }
            Event::End(_) if hidden > 1 => hidden -= 1,
            Event::End(_) => {
                shown.push_str(raw);
                hidden = 0;
            }
            _ if hidden > 0 => {}
            Event::Empty(tag) if hides(&name(&tag)) => shown.extend(["<", &name(&tag), "/>"]),
            Event::Start(_) | Event::Empty(_) => shown.push_str(&without_values(raw)),
            Event::Comment(_) if mentions(raw, &["admintok", "password", "secret"]) => {
                shown.push_str("<!-- -->");
            }
            _ => shown.push_str(raw),
        }
    }
    shown
}

/// Whether letters and digits of a text have one of these words in them.
fn mentions(text: &str, words: &[&str]) -> bool {
    let text: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
    let text = text.to_ascii_lowercase().replace("admintokenrequired", "");
    words.iter().any(|word| text.contains(word))
}

/// The tag without the values of attributes that may be secrets.
fn without_values(tag: &str) -> String {
    let mut shown = String::with_capacity(tag.len());
    let mut rest = tag;
    while let Some(start) = rest.find(['"', '\'']) {
        let (before, quoted) = rest.split_at(start);
        let (quote, value) = quoted.split_at(1);
        let Some((value, after)) = value.split_once(quote) else { break };
        let name = before.trim_end_matches(|c: char| c == '=' || c.is_whitespace());
        let name = name.rsplit(char::is_whitespace).next().unwrap_or_default();
        let value = if mentions(name, &["token", "password", "secret"]) { "" } else { value };
        shown.extend([before, quote, value, quote]);
        rest = after;
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

fn cluster_name(doc: &mut Document<'_>) -> Option<String> {
    let text = |value: &Value<'_>| Ok(value.text.to_owned());
    let name = doc.required("ClusterName", Problem::missing(), text);
    doc.show("ClusterName", name.as_deref().unwrap_or_default());
    name
}

fn authenticator(doc: &mut Document<'_>) -> AuthenticatorName {
    let found = doc.optional("Authenticator", |it| {
        it.class("authenticator", &AuthenticatorName::ALL, AuthenticatorName::class_name)
    });
    let found = found.unwrap_or(AuthenticatorName::AllowAll);
    doc.show("Authenticator", found.class_name());
    found
}

fn keyspace_rights(doc: &mut Document<'_>, authenticator: AuthenticatorName) -> bool {
    let rights = doc.boolean("KeyspaceRights");
    if authenticator == AuthenticatorName::Simple && doc.find("KeyspaceRights").is_none() {
        let text = "there is no KeyspaceRights: a Thrift login for one keyspace may read and \
                    change all of them, as in 0.6. Set it to true unless clients depend on that";
        doc.notes.warn(doc.root.line, text.to_owned());
    }
    rights
}

fn partitioner(doc: &mut Document<'_>) -> Option<Partitioner> {
    let missing = Problem::from("Missing partitioner directive /Storage/Partitioner");
    let missing = missing.allowing(Partitioner::ALL.map(Partitioner::class_name));
    let found = doc.required("Partitioner", missing, |value| {
        let class = || value.class("partitioner", &Partitioner::ALL, Partitioner::class_name);
        Partitioner::from_class_name(value.text).map_or_else(class, Ok)
    });
    doc.show("Partitioner", found.map_or("", Partitioner::class_name));
    found
}

fn initial_token(doc: &mut Document<'_>, partitioner: Option<Partitioner>) -> Option<String> {
    let token = doc.optional("InitialToken", |value| {
        check_token(value, partitioner)?;
        Ok(value.text.to_owned())
    });
    doc.show("InitialToken", token.as_deref().unwrap_or("(random at the first start)"));
    token
}

fn check_token(value: &Value<'_>, partitioner: Option<Partitioner>) -> Result<(), ConfigError> {
    if let Some(partitioner) = partitioner
        && partitioner.parse_token(value.text).is_err()
    {
        let problem = Problem::startup(format!("not a token of {}", partitioner.class_name()));
        return Err(value.refuse(problem.allowing([match partitioner {
            Partitioner::Random => "a decimal number",
            Partitioner::OrderPreserving => "any text",
            Partitioner::CollatingOrderPreserving => "an even number of hexadecimal digits",
        }])));
    }
    if value.text.contains(',') {
        return Err(value.refuse(
            "InitialToken must not have a comma: nodes tell each other their tokens in lists that \
             commas separate, and the others would take the part before it for this node's token",
        ));
    }
    if value.text.len() > MAX_TOKEN_LENGTH {
        return Err(value.refuse(format!(
            "InitialToken must not have more than {MAX_TOKEN_LENGTH} bytes, or others refuse it"
        )));
    }
    Ok(())
}

fn commit_log_sync(doc: &mut Document<'_>) -> Option<CommitLogSync> {
    const PERIOD: &str = "CommitLogSyncPeriodInMS";
    const WINDOW: &str = "CommitLogSyncBatchWindowInMS";
    const BAD_PERIOD: &str = "Unrecognized value for CommitLogSyncPeriodInMS.  Integer expected.";
    const BAD_WINDOW: &str =
        "Unrecognized value for CommitLogSyncBatchWindowInMS.  Double expected.";
    let is_batch = doc.required("CommitLogSync", Problem::missing(), |value| match value.text {
        "batch" => Ok(true),
        "periodic" => Ok(false),
        _ => {
            let problem = Problem::from("CommitLogSync must be either 'periodic' or 'batch'");
            Err(value.refuse(problem.allowing(["periodic", "batch"])))
        }
    })?;
    doc.show("CommitLogSync", if is_batch { "batch" } else { "periodic" });
    if is_batch {
        let millis = doc.required(WINDOW, BAD_WINDOW, |window| {
            window.double().map_err(|_| window.refuse(BAD_WINDOW))
        });
        if let Some(period) = doc.find(PERIOD) {
            doc.refuse(period.refuse(
                "Batch sync specified, but CommitLogSyncPeriodInMS found.  Only specify \
                 CommitLogSyncBatchWindowInMS when using batch sync.",
            ));
        }
        // A negative window is none, and no sensible one is longer than a day.
        let seconds = (millis? / 1000.0).clamp(0.0, 86_400.0);
        let window = Duration::from_secs_f64(seconds);
        doc.show(WINDOW, window.as_secs_f64() * 1000.0);
        return Some(CommitLogSync::Batch { window });
    }
    let period = doc.required(PERIOD, BAD_PERIOD, |period| {
        period.integer().map_err(|_| period.refuse(BAD_PERIOD))?;
        Ok(period.clone())
    });
    if let Some(window) = doc.find(WINDOW) {
        doc.refuse(window.refuse(
            "Periodic sync specified, but CommitLogSyncBatchWindowInMS found.  Only specify \
             CommitLogSyncPeriodInMS when using periodic sync.",
        ));
    }
    let millis = doc.at_least(&period?, 1)?;
    doc.show(PERIOD, millis);
    Some(CommitLogSync::Periodic { period: Duration::from_millis(millis.into()) })
}

fn row_warning_threshold_bytes(doc: &mut Document<'_>) -> u64 {
    let problem = "Row warning threshold must be a positive integer";
    u64::from(doc.positive("RowWarningThresholdInMB", problem)) * MIB
}

/// The mode has no meaning here. A word that 0.6 refuses is an error nevertheless, since such a
/// file was never in use.
fn check_disk_access_mode(doc: &mut Document<'_>) {
    const NAME: &str = "DiskAccessMode";
    const WORDS: [&str; 4] = ["auto", "mmap", "mmap_index_only", "standard"];
    doc.optional(NAME, |value| {
        let text = "DiskAccessMode must be either 'auto', 'mmap', 'mmap_index_only', or 'standard'";
        let problem = || value.refuse(Problem::from(text).allowing(WORDS));
        WORDS.contains(&value.text).then_some(()).ok_or_else(problem)
    });
    if doc.release == Release::V06 && !doc.sources.contains_key(NAME) {
        let text = "DiskAccessMode is not there, which 0.6 refuses; it has no effect here";
        doc.notes.info(doc.root.line, text.to_owned());
    }
}

/// Numbers that have no meaning here either, but whose form the original checks.
fn check_buffer_sizes(doc: &mut Document<'_>) {
    doc.optional("SlicedBufferSizeInKB", Value::integer);
    doc.optional("FlushDataBufferSizeInMB", Value::double);
    doc.optional("FlushIndexBufferSizeInMB", Value::double);
}

/// Anything but `true` is false.
fn do_consistency_checks(doc: &mut Document<'_>) -> bool {
    let value = doc.find("DoConsistencyChecksBoolean");
    let is_on = value.is_none_or(|value| value.text.eq_ignore_ascii_case("true"));
    doc.show("DoConsistencyChecksBoolean", is_on);
    is_on
}

fn phi_convict_threshold(doc: &mut Document<'_>) -> u32 {
    doc.setting("PhiConvictThreshold", 8, |value| {
        let phi = u32::try_from(value.integer()?).ok();
        let phi = phi.filter(|phi| PHI_CONVICT_THRESHOLDS.contains(phi));
        phi.ok_or_else(|| value.refuse("PhiConvictThreshold must be between 5 and 16"))
    })
}

fn threads(doc: &mut Document<'_>, name: &'static str) -> u32 {
    let mut number = elements::row(name).default_number();
    if let Some(value) = doc.find(name) {
        let is_refused = doc.release == Release::V06;
        if is_refused && value.integer().is_ok_and(|number| number < LEAST_THREADS) {
            doc.refuse(value.refuse(format!("{name} must be at least 2")));
        } else {
            number = doc.at_least(&value, 1).unwrap_or(number);
        }
        if number > MOST_THREADS {
            let text = format!("{name}: {number} is taken as {MOST_THREADS}, the most possible");
            doc.notes.warn(value.place.line, text);
            number = MOST_THREADS;
        }
    }
    doc.show(name, number);
    number
}

fn replication(
    doc: &mut Document<'_>,
    do_consistency_checks: bool,
    hinted_handoff_enabled: bool,
) -> ReplicationSettings {
    let percentile = SpeculativeRetry::Percentile(99.0);
    ReplicationSettings {
        do_consistency_checks,
        speculative_retry: doc.setting("SpeculativeRetry", percentile, speculative_retry),
        hinted_handoff_enabled,
        hint_max_age: Duration::from_hours(doc.integer("HintMaxAgeHours").into()),
        hint_max_bytes: doc.megabytes("HintMaxSizeInMB"),
    }
}

fn speculative_retry(value: &Value<'_>) -> Result<SpeculativeRetry, ConfigError> {
    const FORMS: [&str; 2] = ["none", "a percentile above p0 and below p100 such as p99"];
    if value.text.eq_ignore_ascii_case("none") {
        return Ok(SpeculativeRetry::Never);
    }
    let percentile = value.text.strip_prefix(['p', 'P']).and_then(parse_double);
    let percentile = percentile.filter(|it| *it > 0.0 && *it < 100.0);
    let problem = || value.refuse(Problem::unknown_word("SpeculativeRetry").allowing(FORMS));
    percentile.map(SpeculativeRetry::Percentile).ok_or_else(problem)
}
