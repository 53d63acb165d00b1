//! What a server would run with, for people.

use super::document::{MIB, Source};
use super::load::Loaded;
use super::networks::PeerNetworks;
use super::settings::{
    ColumnFamilySettings, CommitLogSync, KeyspaceSettings, ListenerSettings, Settings,
};
use crate::model::schema::ColumnFamilyKind;
use std::fmt::{self, Display, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// All settings with their sources, the keyspaces as an indented list, and the notes.
pub fn describe(loaded: &Loaded) -> String {
    let settings = &loaded.settings;
    let mut text = String::new();
    let mut write = || -> fmt::Result {
        writeln!(text, "{}, in the form of {}", settings.origin, settings.release)?;
        for (heading, rows) in sections(settings) {
            writeln!(text, "\n{heading}")?;
            for (name, value) in rows {
                let source = source(loaded.sources.get(name), name);
                writeln!(text, "  {:<60} {source}", format!("{name} = {value}"))?;
            }
        }
        writeln!(text, "\nKeyspaces")?;
        for keyspace in &settings.keyspaces {
            write_keyspace(&mut text, keyspace)?;
        }
        if settings.keyspaces.is_empty() {
            writeln!(text, "  none")?;
        }
        if !loaded.notes.is_empty() {
            writeln!(text, "\nNotes")?;
        }
        loaded.notes.iter().try_for_each(|note| writeln!(text, "  {note}"))
    };
    write().expect("a string can always be written to");
    text
}

type Row = (&'static str, String);

fn sections(settings: &Settings) -> [(&'static str, Vec<Row>); 7] {
    [
        ("Cluster", cluster(settings)),
        ("Between nodes", network(settings)),
        ("Clients and operators", clients(settings)),
        ("Files", files(settings)),
        ("Durability", durability(settings)),
        ("Memory", memory(settings)),
        ("Storage", storage(settings)),
    ]
}

fn source(source: Option<&Source>, name: &str) -> String {
    match source {
        None => "default".to_owned(),
        Some(source) if source.element == name => format!("line {}", source.line),
        Some(source) => format!("line {} ({})", source.line, source.element),
    }
}

fn cluster(settings: &Settings) -> Vec<Row> {
    let token = settings.initial_token.clone();
    vec![
        ("ClusterName", settings.cluster_name.clone()),
        ("Partitioner", settings.partitioner.class_name().to_owned()),
        ("InitialToken", token.unwrap_or_else(|| "(random at the first start)".to_owned())),
        ("AutoBootstrap", settings.auto_bootstrap.to_string()),
        ("Seeds", joined(&settings.seeds)),
        ("Authenticator", settings.authenticator.class_name().to_owned()),
    ]
}

fn network(settings: &Settings) -> Vec<Row> {
    let (network, replication) = (&settings.network, &settings.replication);
    vec![
        ("ListenAddress", network.listen_address.to_string()),
        ("StoragePort", network.storage_port.to_string()),
        ("PeerNetworks", peer_networks(&network.peer_networks)),
        ("RpcTimeoutInMillis", network.rpc_timeout.as_millis().to_string()),
        ("PhiConvictThreshold", network.phi_convict_threshold.to_string()),
        ("StreamThroughputInMBPerSecond", throughput(network.stream_throughput_bytes)),
        ("HintedHandoffEnabled", replication.hinted_handoff_enabled.to_string()),
        ("HintMaxAgeHours", in_units(replication.hint_max_age, 3600)),
        ("HintMaxSizeInMB", megabytes(replication.hint_max_bytes)),
        ("DoConsistencyChecksBoolean", replication.do_consistency_checks.to_string()),
        ("SpeculativeRetry", replication.speculative_retry.to_string()),
    ]
}

fn clients(settings: &Settings) -> Vec<Row> {
    let (thrift, admin) = (&settings.thrift, &settings.admin);
    // The token itself is a secret, and this text is pasted into mails.
    let token = if admin.token.is_some() { "(set)" } else { "(none)" };
    let listeners: Vec<String> = thrift.listeners.iter().map(listener).collect();
    let listeners = if listeners.is_empty() { "(none)".to_owned() } else { listeners.join(", ") };
    vec![
        ("ThriftAddress", thrift.address.to_string()),
        ("ThriftPort", thrift.port.to_string()),
        ("ThriftFramedTransport", thrift.framed.to_string()),
        ("ThriftApiVersion", thrift.api_version.to_string()),
        ("ThriftMaxMessageInMB", megabytes(thrift.max_message_bytes)),
        ("ThriftMaxConnections", thrift.max_connections.to_string()),
        (
            "ThriftIdleTimeoutInSeconds",
            thrift.idle_timeout.map_or(0, |it| it.as_secs()).to_string(),
        ),
        ("ThriftReceiveBudgetInMB", megabytes(thrift.receive_budget_bytes)),
        ("ThriftListeners", listeners),
        ("AdminAddress", admin.address.to_string()),
        ("AdminPort", admin.port.to_string()),
        ("AdminToken", token.to_owned()),
        ("AdminTokenRequired", admin.token_is_required.to_string()),
    ]
}

fn peer_networks(PeerNetworks(networks): &PeerNetworks) -> String {
    if networks.is_empty() { "(all)".to_owned() } else { joined(networks) }
}

fn listener(listener: &ListenerSettings) -> String {
    let ListenerSettings { address, port, framed, api_version, .. } = listener;
    let framed = if *framed { ", framed" } else { "" };
    format!("{} ({api_version}{framed})", SocketAddr::new(*address, *port))
}

fn files(settings: &Settings) -> Vec<Row> {
    let directories = &settings.directories;
    let data: Vec<_> = directories.data.iter().map(|path| path.display()).collect();
    vec![
        ("DataFileDirectories", joined(&data)),
        ("CommitLogDirectory", directories.commit_log.display().to_string()),
        (
            "CommitLogArchiveDirectory",
            directories
                .commit_log_archive
                .as_ref()
                .map_or_else(|| "(none)".to_owned(), |path| path.display().to_string()),
        ),
        ("SavedCachesDirectory", directories.saved_caches.display().to_string()),
        ("HintsDirectory", directories.hints.display().to_string()),
    ]
}

fn durability(settings: &Settings) -> Vec<Row> {
    let log = &settings.commit_log;
    let mut rows = match log.sync {
        CommitLogSync::Periodic { period } => vec![
            ("CommitLogSync", "periodic".to_owned()),
            ("CommitLogSyncPeriodInMS", period.as_millis().to_string()),
        ],
        CommitLogSync::Batch { window } => vec![
            ("CommitLogSync", "batch".to_owned()),
            ("CommitLogSyncBatchWindowInMS", (window.as_secs_f64() * 1000.0).to_string()),
        ],
    };
    rows.push(("CommitLogRotationThresholdInMB", megabytes(log.rotation_threshold_bytes)));
    rows
}

fn memory(settings: &Settings) -> Vec<Row> {
    let memory = &settings.memory;
    let or_quarter = |bytes: Option<u64>, of: &str| {
        bytes.map_or_else(|| format!("(a quarter of {of})"), megabytes)
    };
    let operations = memory.memtable_operations;
    vec![
        ("MemoryBudgetInMB", or_quarter(memory.budget_bytes, "the machine's memory")),
        ("BlockCacheInMB", or_quarter(memory.block_cache_bytes, "the budget")),
        ("MemtableThroughputInMB", megabytes(memory.memtable_throughput_bytes)),
        (
            "MemtableOperationsInMillions",
            format!("{:.4} ({operations} columns)", operations as f64 / MIB as f64),
        ),
        ("MemtableFlushAfterMinutes", in_units(memory.memtable_flush_after, 60)),
    ]
}

fn storage(settings: &Settings) -> Vec<Row> {
    let storage = &settings.storage;
    vec![
        ("IndexInterval", storage.index_interval.to_string()),
        ("ColumnIndexSizeInKB", (storage.column_index_bytes >> 10).to_string()),
        ("RowWarningThresholdInMB", megabytes(storage.row_warning_threshold_bytes)),
        ("SnapshotBeforeCompaction", storage.snapshot_before_compaction.to_string()),
        ("GCGraceSeconds", in_units(storage.gc_grace, 1)),
        ("Compression", storage.compression.to_string()),
        ("CompactionThroughputInMBPerSecond", throughput(storage.compaction_throughput_bytes)),
        ("ConcurrentReads", storage.concurrent_reads.to_string()),
        ("ConcurrentWrites", storage.concurrent_writes.to_string()),
    ]
}

fn write_keyspace(text: &mut String, keyspace: &KeyspaceSettings) -> fmt::Result {
    writeln!(text, "  {} (line {})", keyspace.name, keyspace.line)?;
    writeln!(text, "    ReplicaPlacementStrategy = {}", keyspace.strategy.class_name())?;
    writeln!(text, "    ReplicationFactor = {}", keyspace.replication_factor)?;
    writeln!(text, "    EndPointSnitch = {}", keyspace.snitch.class_name())?;
    for (center, factor) in &keyspace.datacenter_replication_factors {
        writeln!(text, "    DatacenterReplicationFactor {center} = {factor}")?;
    }
    keyspace.column_families.iter().try_for_each(|family| write_family(text, family))
}

fn write_family(text: &mut String, family: &ColumnFamilySettings) -> fmt::Result {
    let schema = &family.schema;
    writeln!(text, "    {} (line {})", schema.name, family.line)?;
    match &schema.kind {
        ColumnFamilyKind::Standard { columns } => {
            writeln!(text, "      Standard, CompareWith = {}", columns.class_name())?;
        }
        ColumnFamilyKind::Super { super_columns, columns } => {
            let (outer, inner) = (super_columns.class_name(), columns.class_name());
            writeln!(text, "      Super, CompareWith = {outer}, CompareSubcolumnsWith = {inner}")?;
        }
    }
    let seconds = |period: Option<Duration>| period.map_or(0, |p| p.as_secs());
    writeln!(
        text,
        "      KeysCached = {}, KeyCacheSavePeriodInSeconds = {}, RowsCached = {}, \
         RowCacheSavePeriodInSeconds = {}",
        family.keys_cached,
        seconds(family.key_cache_save_period),
        family.rows_cached,
        seconds(family.row_cache_save_period),
    )?;
    writeln!(
        text,
        "      CompactionStrategy = {}, MinCompactionThreshold = {}, MaxCompactionThreshold = {}, \
         GCGraceSeconds = {}, Compression = {}, ReadRepairChance = {}",
        family.compaction_strategy,
        family.min_compaction_threshold,
        family.max_compaction_threshold,
        family.gc_grace.as_secs(),
        family.compression,
        family.read_repair_chance,
    )?;
    if let Some(period) = family.flush_period {
        writeln!(text, "      FlushPeriodInMinutes = {}", in_units(period, 60))?;
    }
    match &schema.comment {
        Some(comment) => writeln!(text, "      Comment = {}", comment.escape_debug()),
        None => Ok(()),
    }
}

fn joined<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn megabytes(bytes: u64) -> String {
    (bytes / MIB).to_string()
}

fn throughput(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "0 (no limit)".to_owned(), megabytes)
}

fn in_units(duration: Duration, unit_seconds: u64) -> String {
    (duration.as_secs() / unit_seconds).to_string()
}
