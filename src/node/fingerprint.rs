//! Hash of the settings on which all nodes of a cluster have to agree.

use crate::base::hex::hex;
use crate::config::Settings;
use crate::config::settings::{ColumnFamilySettings, KeyspaceSettings};
use crate::model::schema::ColumnFamilyKind;
use crate::ring::{ReplicaPlacement, ReplicationStrategy};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Announced bytes of the hash: it finds mistakes, not attacks.
const BYTES: usize = 8;

/// The fingerprint of the settings that decide which rows are where, what they look like, and when
/// deletions are forgotten: partitioner, keyspaces with their replication, column families with
/// their types, comparators and `GCGraceSeconds`. The order in a file does not matter, nor do
/// settings that may differ, such as sizes of caches and declared types of values.
///
/// Nodes of different versions compare it, so its input must not change.
pub(super) fn fingerprint(
    settings: &Settings,
    placements: &BTreeMap<String, ReplicaPlacement>,
) -> String {
    let text = agreement(settings, placements);
    let hash = Md5::digest(text.as_bytes());
    hex(&hash[..BYTES])
}

/// The input of the hash, a line for each keyspace and column family.
fn agreement(settings: &Settings, placements: &BTreeMap<String, ReplicaPlacement>) -> String {
    let mut text = format!("partitioner {}\n", settings.partitioner.class_name());
    let mut keyspaces: Vec<&KeyspaceSettings> = settings.keyspaces.iter().collect();
    keyspaces.sort_by_key(|keyspace| &keyspace.name);
    for keyspace in keyspaces {
        let (strategy, snitch) = (keyspace.strategy.class_name(), keyspace.snitch.class_name());
        let _ = write!(text, "keyspace {} {strategy} {snitch}", keyspace.name);
        if let Some(placement) = placements.get(&keyspace.name) {
            let _ = write!(text, " {}", placement.replication_factor);
            if let ReplicationStrategy::PerDataCenter(factors) = &placement.strategy {
                for (data_center, factor) in factors.iter() {
                    let _ = write!(text, " {data_center}={factor}");
                }
            }
        }
        text.push('\n');
        text.extend(families(keyspace));
    }
    text
}

fn families(keyspace: &KeyspaceSettings) -> Vec<String> {
    let line = |family: &ColumnFamilySettings| {
        let kind = match &family.schema.kind {
            ColumnFamilyKind::Standard { columns } => format!("Standard {}", columns.class_name()),
            ColumnFamilyKind::Super { super_columns, columns } => {
                format!("Super {} {}", super_columns.class_name(), columns.class_name())
            }
        };
        let seconds = family.schema.gc_grace.as_secs();
        format!("column family {} {kind} {seconds}\n", family.schema.name)
    };
    let mut lines: Vec<String> = keyspace.column_families.iter().map(line).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loader;
    use crate::config::{Placements, Properties};
    use crate::model::comparator::ComparatorRegistry;
    use std::fs;

    const FAMILIES: [&str; 2] = [
        r#"<ColumnFamily Name="A" CompareWith="BytesType"/>"#,
        r#"<ColumnFamily Name="B" CompareWith="UTF8Type" RowsCached="7"/>"#,
    ];

    fn of(families: [&str; 2], factor: u32, address: &str, gc_grace: u32) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        let [first, second] = families;
        let text = format!(
            "<Storage><ClusterName>Test</ClusterName><Keyspaces><Keyspace Name=\"K\">{first}\
             {second}<ReplicaPlacementStrategy>org.apache.cassandra.locator.RackUnawareStrategy\
             </ReplicaPlacementStrategy><ReplicationFactor>{factor}</ReplicationFactor>\
             <EndPointSnitch>org.apache.cassandra.locator.EndPointSnitch</EndPointSnitch>\
             </Keyspace></Keyspaces><GCGraceSeconds>{gc_grace}</GCGraceSeconds>\
             <Partitioner>org.apache.cassandra.dht.RandomPartitioner</Partitioner>\
             <Authenticator>org.apache.cassandra.auth.AllowAllAuthenticator</Authenticator>\
             <DiskAccessMode>auto</DiskAccessMode><ColumnIndexSizeInKB>64</ColumnIndexSizeInKB>\
             <MemtableThroughputInMB>64</MemtableThroughputInMB>\
             <MemtableOperationsInMillions>0.3</MemtableOperationsInMillions>\
             <MemtableFlushAfterMinutes>60</MemtableFlushAfterMinutes>\
             <CommitLogSync>periodic</CommitLogSync>\
             <CommitLogSyncPeriodInMS>1000</CommitLogSyncPeriodInMS>\
             <SavedCachesDirectory>{path}/caches</SavedCachesDirectory>\
             <CommitLogDirectory>{path}/log</CommitLogDirectory>\
             <DataFileDirectories><DataFileDirectory>{path}/data</DataFileDirectory>\
             </DataFileDirectories><Seeds><Seed>127.0.0.1</Seed></Seeds>\
             <ListenAddress>{address}</ListenAddress></Storage>"
        );
        fs::write(directory.path().join("storage-conf.xml"), text).unwrap();
        let comparators = ComparatorRegistry::default();
        let loader = Loader::for_server(&comparators);
        let settings = loader.load(Some(directory.path())).unwrap().settings;
        let placements = Placements::read(&settings, &Properties::default()).unwrap();
        fingerprint(&settings, &placements.by_keyspace)
    }

    #[test]
    fn only_settings_that_must_agree_change_the_fingerprint() {
        let [a, b] = FAMILIES;
        let own = of([a, b], 3, "127.0.0.1", 864_000);
        assert_eq!(own.len(), 2 * BYTES);
        assert_eq!(of([b, a], 3, "127.0.0.2", 864_000), own, "order and addresses do not matter");
        let uncached = b.replace(" RowsCached=\"7\"", "");
        assert_eq!(of([a, &uncached], 3, "127.0.0.1", 864_000), own, "nor do caches");
        let column = "KeyType=\"uuid\"><Column Name=\"c\" Type=\"int\"/></ColumnFamily>";
        let declared = a.replace("/>", column);
        assert_eq!(of([&declared, b], 3, "127.0.0.1", 864_000), own, "nor do declarations");
        let other = a.replace("BytesType", "LongType");
        let renamed = a.replace("\"A\"", "\"C\"");
        let others = [
            of([&other, b], 3, "127.0.0.1", 864_000),
            of([&renamed, b], 3, "127.0.0.1", 864_000),
            of([a, b], 2, "127.0.0.1", 864_000),
            of([a, b], 3, "127.0.0.1", 3600),
        ];
        for (place, fingerprint) in others.iter().enumerate() {
            assert_ne!(*fingerprint, own);
            assert!(!others[..place].contains(fingerprint), "{others:?}");
        }
    }

    #[test]
    fn the_fingerprint_of_a_version_is_that_of_the_next() {
        assert_eq!(of(FAMILIES, 3, "127.0.0.1", 864_000), "bdee6c06620a66dd");
    }
}
