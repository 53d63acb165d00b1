//! Every element and attribute of all generations, and what becomes of it here.

use super::notes::Notes;
use super::settings::Release;
use super::spelling;
use super::xml::Element;

/// An element or attribute that some release of the original, or this server, knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// Its path below `/Storage`; an attribute begins with `@`.
    pub(super) path: &'static str,
    /// What becomes of it.
    pub(super) meaning: Meaning,
}

/// What becomes of an element or attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is a setting.
    Honoured,
    /// It is a setting under an old name, in files before 0.6 only.
    RenamedIn06(&'static str),
    /// It is a setting, but there is a better one.
    Deprecated(&'static str),
    /// It is accepted and changes nothing, for this reason.
    NoEffect(&'static str),
    /// It is refused.
    Refused,
}

use Meaning::{Deprecated, Honoured, NoEffect, Refused, RenamedIn06};

const fn known(path: &'static str, meaning: Meaning) -> Known {
    Known { path, meaning }
}

const NO_BUFFERS: &str = "data files are read and written by blocks, which have their own size";
const NO_BINARY_MEMTABLE: &str = "bulk loading does not go through binary memtables here";
const NO_UDP: &str = "gossip uses StoragePort, as from 0.6 on";
const NEVER_READ: &str = "the original reads it and does nothing with it";

/// All of them, in the order of docs/configuration.md.
pub(super) const KNOWN: &[Known] = &[
    // The cluster.
    known("ClusterName", Honoured),
    known("Partitioner", Honoured),
    known("InitialToken", Honoured),
    known("AutoBootstrap", Honoured),
    known("Seeds", Honoured),
    known("Seeds/Seed", Honoured),
    known("Authenticator", Honoured),
    // Between nodes.
    known("ListenAddress", Honoured),
    known("StoragePort", Honoured),
    known("PeerNetworks", Honoured),
    known("PeerNetworks/PeerNetwork", Honoured),
    known("RpcTimeoutInMillis", Honoured),
    known("PhiConvictThreshold", Honoured),
    known("StreamThroughputInMBPerSecond", Honoured),
    known("HintedHandoffEnabled", Honoured),
    known("HintMaxAgeHours", Honoured),
    known("HintMaxSizeInMB", Honoured),
    known("DoConsistencyChecksBoolean", Honoured),
    known("SpeculativeRetry", Honoured),
    known("ControlPort", NoEffect(NO_UDP)),
    // Towards clients and operators.
    known("ThriftAddress", Honoured),
    known("ThriftPort", Honoured),
    known("ThriftFramedTransport", Honoured),
    known("ThriftApiVersion", Honoured),
    known("ThriftMaxMessageInMB", Honoured),
    known("ThriftMaxConnections", Honoured),
    known("ThriftIdleTimeoutInSeconds", Honoured),
    known("ThriftReceiveBudgetInMB", Honoured),
    known("ThriftListeners", Honoured),
    known("ThriftListeners/ThriftListener", Honoured),
    known("ThriftListeners/ThriftListener/@Port", Honoured),
    known("ThriftListeners/ThriftListener/@ApiVersion", Honoured),
    known("ThriftListeners/ThriftListener/@FramedTransport", Honoured),
    known("ThriftListeners/ThriftListener/@Address", Honoured),
    known("AdminAddress", Honoured),
    known("AdminPort", Honoured),
    known("AdminToken", Honoured),
    known("AdminTokenRequired", Honoured),
    // Files.
    known("DataFileDirectories", Honoured),
    known("DataFileDirectories/DataFileDirectory", Honoured),
    known("CommitLogDirectory", Honoured),
    known("CommitLogArchiveDirectory", Honoured),
    known("SavedCachesDirectory", Honoured),
    known("HintsDirectory", Honoured),
    known("BootstrapFileDirectory", NoEffect("streamed files go to the data directories")),
    known("StagingFileDirectory", NoEffect(NEVER_READ)),
    known("CalloutLocation", NoEffect(NEVER_READ)),
    // Durability.
    known("CommitLogSync", Honoured),
    known("CommitLogSyncPeriodInMS", Honoured),
    known("CommitLogSyncBatchWindowInMS", Honoured),
    known("CommitLogRotationThresholdInMB", Honoured),
    // Memory.
    known("MemoryBudgetInMB", Honoured),
    known("BlockCacheInMB", Honoured),
    known("MemtableThroughputInMB", Honoured),
    known("MemtableSizeInMB", RenamedIn06("MemtableThroughputInMB")),
    known("MemtableOperationsInMillions", Honoured),
    known("MemtableObjectCountInMillions", RenamedIn06("MemtableOperationsInMillions")),
    known("MemtableFlushAfterMinutes", Honoured),
    known("MemtableLifetimeInDays", RenamedIn06("MemtableFlushAfterMinutes")),
    known("BinaryMemtableThroughputInMB", NoEffect(NO_BINARY_MEMTABLE)),
    known("BinaryMemtableSizeInMB", NoEffect(NO_BINARY_MEMTABLE)),
    known("FlushMinThreads", NoEffect("the storage decides how many flushes run at once")),
    known("FlushMaxThreads", NoEffect("the storage decides how many flushes run at once")),
    // Storage.
    known("IndexInterval", Honoured),
    known("ColumnIndexSizeInKB", Honoured),
    known("RowWarningThresholdInMB", Honoured),
    known("SnapshotBeforeCompaction", Honoured),
    known("GCGraceSeconds", Honoured),
    known("Compression", Honoured),
    known("CompactionThroughputInMBPerSecond", Honoured),
    known("ConcurrentReads", Honoured),
    known("ConcurrentWrites", Honoured),
    known("DiskAccessMode", NoEffect("files are never mapped into memory here")),
    known("SlicedBufferSizeInKB", NoEffect(NO_BUFFERS)),
    known("FlushDataBufferSizeInMB", NoEffect(NO_BUFFERS)),
    known("FlushIndexBufferSizeInMB", NoEffect(NO_BUFFERS)),
    known("JobTrackerHost", NoEffect(NEVER_READ)),
    known("JobJarFileLocation", NoEffect(NEVER_READ)),
    // Replication of all keyspaces, before 0.6.
    known("ReplicaPlacementStrategy", Honoured),
    known("ReplicationFactor", Honoured),
    known("EndPointSnitch", RenamedIn06("that of each Keyspace")),
    // Keyspaces.
    known("Keyspaces", Honoured),
    known("Keyspaces/Keyspace", Honoured),
    known("Keyspaces/Keyspace/@Name", Honoured),
    known("Keyspaces/Keyspace/ReplicaPlacementStrategy", Honoured),
    known("Keyspaces/Keyspace/ReplicationFactor", Honoured),
    known("Keyspaces/Keyspace/EndPointSnitch", Honoured),
    known("Keyspaces/Keyspace/DatacenterReplicationFactor", Honoured),
    known("Keyspaces/Keyspace/DatacenterReplicationFactor/@Datacenter", Honoured),
    known(
        "Keyspaces/Keyspace/KeysCachedFraction",
        RenamedIn06("the attribute KeysCached of each ColumnFamily"),
    ),
    known("Keyspaces/Keyspace/RowKey", Honoured),
    // Column families.
    known("Keyspaces/Keyspace/ColumnFamily", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@Name", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@ColumnType", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@CompareWith", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@CompareSubcolumnsWith", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@ColumnSort", Refused),
    known("Keyspaces/Keyspace/ColumnFamily/@KeysCached", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@RowsCached", Honoured),
    known(
        "Keyspaces/Keyspace/ColumnFamily/@KeysCachedFraction",
        Deprecated("use KeysCached instead."),
    ),
    known("Keyspaces/Keyspace/ColumnFamily/@KeyCacheSavePeriodInSeconds", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@RowCacheSavePeriodInSeconds", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@CompactionStrategy", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@MinCompactionThreshold", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@MaxCompactionThreshold", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@GCGraceSeconds", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@Compression", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/@ReadRepairChance", Honoured),
    known(
        "Keyspaces/Keyspace/ColumnFamily/@FlushPeriodInMinutes",
        RenamedIn06("MemtableFlushAfterMinutes"),
    ),
    known(
        "Keyspaces/Keyspace/ColumnFamily/@Comment",
        NoEffect("0.6 reads the comment of a child element <Comment> only"),
    ),
    known("Keyspaces/Keyspace/ColumnFamily/Comment", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/SuperColumnMap", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/SuperColumnKey", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/ColumnMap", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/ColumnKey", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/ColumnValue", Honoured),
    known("Keyspaces/Keyspace/ColumnFamily/ColumnTimestamp", Honoured),
];

/// Notes what the file holds that is unknown, outdated or without effect. The original says
/// nothing about any of these but one, and a misspelt name then means the default.
pub(super) fn review(root: &Element, release: Release, notes: &mut Notes) {
    let mut pending: Vec<(String, &Element)> = vec![(String::new(), root)];
    while let Some((path, element)) = pending.pop() {
        if notes.is_full() {
            return;
        }
        for attribute in &element.attributes {
            // Declarations of name spaces and schemas are about the document, not the server.
            if !attribute.name.starts_with("xml") && !attribute.name.starts_with("xsi:") {
                let name = format!("@{}", attribute.name);
                review_one(&join(&path, &name), attribute.line, release, notes);
            }
        }
        let children = element.children.iter().filter_map(|child| {
            let path = join(&path, &child.name);
            // What an unknown element holds is not worth further notes.
            review_one(&path, child.line, release, notes).then_some((path, child))
        });
        pending.extend(children);
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

/// Notes what there is to say about one path; false if the path is unknown.
fn review_one(path: &str, line: u32, release: Release, notes: &mut Notes) -> bool {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let shown = match name.strip_prefix('@') {
        Some(attribute) => format!("attribute {attribute}"),
        None => format!("element <{name}>"),
    };
    let Some(found) = KNOWN.iter().find(|known| known.path == path) else {
        let place = if parent.is_empty() { "Storage" } else { parent };
        let hint = match nearest(parent, name) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "it has no effect".to_owned(),
        };
        notes.warn(line, format!("unknown {shown} in {place}: {hint}"));
        return false;
    };
    match found.meaning {
        Honoured | Refused => {}
        RenamedIn06(instead) if release == Release::V06 => {
            let text = format!("{shown} has no effect from 0.6 on: use {instead} instead");
            notes.warn(line, text);
        }
        RenamedIn06(_) => {}
        Deprecated(instead) => {
            let name = name.trim_start_matches('@');
            notes.warn(line, format!("{name} is deprecated: {instead}"));
        }
        NoEffect(reason) => notes.info(line, format!("{shown} has no effect: {reason}")),
    }
    true
}

/// The known name in that place that is most like this one, if any is like it.
fn nearest(parent: &str, name: &str) -> Option<&'static str> {
    let in_place = KNOWN.iter().filter_map(|known| {
        let (place, candidate) = known.path.rsplit_once('/').unwrap_or(("", known.path));
        let same_kind = candidate.starts_with('@') == name.starts_with('@');
        (place == parent && same_kind).then_some(candidate)
    });
    spelling::nearest(name, in_place).map(|found| found.trim_start_matches('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn notes_of(text: &str, release: Release) -> Vec<String> {
        let mut notes = Notes::default();
        review(&Element::parse(text).unwrap(), release, &mut notes);
        notes.into_sorted().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_are_unique_and_hang_together() {
        let paths: BTreeSet<_> = KNOWN.iter().map(|known| known.path).collect();
        assert_eq!(paths.len(), KNOWN.len());
        for path in &paths {
            if let Some((parent, _)) = path.rsplit_once('/') {
                assert!(paths.contains(parent), "{path} has no parent");
            }
        }
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        for (written, meant) in [
            ("ThriftPrt", Some("ThriftPort")),
            ("clustername", Some("ClusterName")),
            ("KeysCached", None),
            ("GCGraceSecond", Some("GCGraceSeconds")),
            ("Xyzzy", None),
        ] {
            assert_eq!(nearest("", written), meant, "{written}");
        }
        let family = "Keyspaces/Keyspace/ColumnFamily";
        assert_eq!(nearest(family, "@ComparedWith"), Some("CompareWith"));
        assert_eq!(nearest(family, "Comments"), Some("Comment"));
        assert_eq!(nearest(family, &format!("@{}", "x".repeat(1000))), None);
    }

    #[test]
    fn notes_say_what_becomes_of_it() {
        let text = "<Storage xmlns:xsi='x' xsi:schemaLocation='y'>\n\
                    <ControlPort>7001</ControlPort>\n\
                    <Sedes>\n<Seed>h</Seed></Sedes>\n<MemtableSizeInMB>1</MemtableSizeInMB>\n\
                    <Keyspaces><Keyspace Name='k' Nam='x'>\n\
                    <ColumnFamily KeysCachedFraction='0.1'/>\n</Keyspace></Keyspaces>\n</Storage>";
        let notes = notes_of(text, Release::V06);
        assert_eq!(
            notes,
            [
                "line 2: info: element <ControlPort> has no effect: \
                 gossip uses StoragePort, as from 0.6 on",
                "line 3: warning: unknown element <Sedes> in Storage: did you mean Seeds?",
                "line 5: warning: element <MemtableSizeInMB> has no effect from 0.6 on: \
                 use MemtableThroughputInMB instead",
                "line 6: warning: unknown attribute Nam in Keyspaces/Keyspace: did you mean Name?",
                "line 7: warning: KeysCachedFraction is deprecated: use KeysCached instead.",
            ]
        );
        assert!(!notes_of(text, Release::V05).iter().any(|n| n.contains("MemtableSizeInMB")));
    }

    #[test]
    fn notes_are_bounded() {
        let text = format!("<Storage>{}</Storage>", "<x/>".repeat(10_000));
        let notes = notes_of(&text, Release::V06);
        assert_eq!(notes.len(), crate::config::notes::MAX_NOTES + 1);
    }
}
