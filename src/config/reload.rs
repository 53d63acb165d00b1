//! Settings that a running server takes over from a file that has changed.

use super::elements;
use super::settings::{
    AdminSettings, ColumnFamilySettings, KeyspaceSettings, MemorySettings, NetworkSettings,
    ReplicationSettings, Settings, StorageSettings, ThriftSettings,
};

/// A setting that differs between a server and its file.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{element}: {from} -> {to}")]
pub struct Difference {
    /// The element, or the keyspace and its element.
    pub element: String,
    /// The value of the server.
    pub from: String,
    /// The value of the file.
    pub to: String,
}

/// Settings of a server with those of its changed file laid over them.
#[derive(Debug)]
pub struct Overlay {
    /// The settings from now on: those of the file, but for what needs a restart.
    pub settings: Settings,
    /// Elements that change at once, without keyspaces and column families.
    pub changed: Vec<Difference>,
    /// Elements that need a restart.
    pub waiting: Vec<Difference>,
}

impl Settings {
    /// Takes over from the settings of a file what can change while the server runs. Families are
    /// taken over whatever has changed in them: the caller refuses what is impossible.
    pub fn overlaid_by(&self, file: Settings) -> Overlay {
        let (mut changed, mut waiting) = self.differences(&file);
        if self.admin.token != file.admin.token {
            // It is not shown.
            changed.retain(|it| it.element != "AdminToken");
            let [from, to] = [self, &file].map(|it| it.admin.token.is_some());
            let shown = |is_set| if is_set { "(set)" } else { "(none)" }.to_owned();
            let to = if from && to { "(set anew)".to_owned() } else { shown(to) };
            changed.push(Difference { element: "AdminToken".to_owned(), from: shown(from), to });
        }
        let mut shown = file.shown.clone();
        for row in elements::ROWS.iter().filter(|row| !row.is_reloaded()) {
            match self.shown.get(row.path) {
                Some(value) => shown.insert(row.path, value.clone()),
                None => shown.remove(row.path),
            };
        }
        let mut keyspaces = file.keyspaces.clone();
        for keyspace in &mut keyspaces {
            let present = self.keyspaces.iter().find(|it| it.name == keyspace.name);
            if let Some(present) = present {
                waiting.extend(keep_replication(present, keyspace));
            }
        }
        let settings = Settings { keyspaces, shown, ..self.with_live_settings(file) };
        Overlay { settings, changed, waiting }
    }

    /// Differences that take effect at once, and those that need a restart.
    fn differences(&self, file: &Self) -> (Vec<Difference>, Vec<Difference>) {
        let rows = elements::ROWS.iter();
        let different = rows.filter_map(|row| {
            let value = |settings: &Self| settings.shown.get(row.path).cloned();
            let ends = [value(self), value(file)];
            (ends[0] != ends[1]).then(|| {
                let [from, to] = ends.map(|value| value.unwrap_or_else(|| "(none)".to_owned()));
                (row.is_reloaded(), Difference { element: row.path.to_owned(), from, to })
            })
        });
        let (live, rest): (Vec<_>, Vec<_>) = different.partition(|(is_reloaded, _)| *is_reloaded);
        let without_flag = |all: Vec<(bool, Difference)>| all.into_iter().map(|(_, it)| it);
        (without_flag(live).collect(), without_flag(rest).collect())
    }

    /// These settings, with those of the file whose rows are marked `reload`.
    fn with_live_settings(&self, file: Self) -> Self {
        let present = self.clone();
        Self {
            text: file.text,
            authenticator: file.authenticator,
            keyspace_rights: file.keyspace_rights,
            tls: file.tls,
            network: NetworkSettings {
                peer_networks: file.network.peer_networks,
                rpc_timeout: file.network.rpc_timeout,
                phi_convict_threshold: file.network.phi_convict_threshold,
                stream_throughput_bytes: file.network.stream_throughput_bytes,
                ..present.network
            },
            thrift: ThriftSettings {
                max_connections: file.thrift.max_connections,
                idle_timeout: file.thrift.idle_timeout,
                ..present.thrift
            },
            admin: AdminSettings {
                token: file.admin.token,
                token_is_required: file.admin.token_is_required,
                log_levels: file.admin.log_levels,
                slow_requests: file.admin.slow_requests,
                ..present.admin
            },
            memory: MemorySettings {
                memtable_throughput_bytes: file.memory.memtable_throughput_bytes,
                memtable_operations: file.memory.memtable_operations,
                memtable_flush_after: file.memory.memtable_flush_after,
                ..present.memory
            },
            storage: StorageSettings {
                column_index_bytes: file.storage.column_index_bytes,
                row_warning_threshold_bytes: file.storage.row_warning_threshold_bytes,
                gc_grace: file.storage.gc_grace,
                compression: file.storage.compression,
                compaction_throughput_bytes: file.storage.compaction_throughput_bytes,
                ..present.storage
            },
            replication: ReplicationSettings {
                do_consistency_checks: file.replication.do_consistency_checks,
                speculative_retry: file.replication.speculative_retry,
                hint_max_age: file.replication.hint_max_age,
                hint_max_bytes: file.replication.hint_max_bytes,
                ..present.replication
            },
            ..present
        }
    }

    /// A column family of the configuration.
    pub fn family(&self, keyspace: &str, name: &str) -> Option<&ColumnFamilySettings> {
        self.keyspaces.iter().find(|it| it.name == keyspace)?.column_family(name)
    }
}

/// Leaves the replication of a keyspace as it is; returns what needs a restart for that.
fn keep_replication(present: &KeyspaceSettings, file: &mut KeyspaceSettings) -> Vec<Difference> {
    let shown = |it: &KeyspaceSettings| {
        let centers = it.datacenter_replication_factors.iter();
        let centers: Vec<String> = centers.map(|(name, rf)| format!("{name}={rf}")).collect();
        [
            ("ReplicaPlacementStrategy", it.strategy.class_name().to_owned()),
            ("ReplicationFactor", it.replication_factor.to_string()),
            ("EndPointSnitch", it.snitch.class_name().to_owned()),
            ("DatacenterReplicationFactor", centers.join(" ")),
        ]
    };
    let pairs = shown(present).into_iter().zip(shown(file));
    let different = pairs.filter(|(from, to)| from != to).map(|((element, from), (_, to))| {
        Difference { element: format!("{} {element}", present.name), from, to }
    });
    let different = different.collect();
    file.strategy = present.strategy;
    file.replication_factor = present.replication_factor;
    file.snitch = present.snitch;
    file.datacenter_replication_factors = present.datacenter_replication_factors.clone();
    different
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loader;
    use crate::model::comparator::ComparatorRegistry;

    const HEAD: &str = "<Storage><ClusterName>c</ClusterName><Partitioner>RandomPartitioner\
         </Partitioner><CommitLogSync>periodic</CommitLogSync>\
         <CommitLogSyncPeriodInMS>10000</CommitLogSyncPeriodInMS>\
         <CommitLogDirectory>log</CommitLogDirectory><DataFileDirectories>\
         <DataFileDirectory>data</DataFileDirectory></DataFileDirectories>\
         <Seeds><Seed>127.0.0.1</Seed></Seeds>";

    fn settings(rest: &str) -> Settings {
        let comparators = ComparatorRegistry::default();
        let text = format!("{HEAD}{rest}</Storage>");
        Loader::for_tools(&comparators).parse(&text, "a test").unwrap().settings
    }

    fn keyspace(factor: u32, family: &str) -> String {
        format!(
            "<Keyspaces><Keyspace Name='K'>{family}<ReplicaPlacementStrategy>\
             org.apache.cassandra.locator.RackUnawareStrategy</ReplicaPlacementStrategy>\
             <ReplicationFactor>{factor}</ReplicationFactor><EndPointSnitch>\
             org.apache.cassandra.locator.EndPointSnitch</EndPointSnitch>\
             </Keyspace></Keyspaces>"
        )
    }

    /// Elements that take effect without a restart, each with another value than its default.
    const LIVE: [(&str, &str); 30] = [
        ("SlowRequestsInMillis", "7"),
        ("Authenticator", "org.apache.cassandra.auth.SimpleAuthenticator"),
        ("KeyspaceRights", "true"),
        ("RpcTimeoutInMillis", "7"),
        ("PhiConvictThreshold", "9"),
        ("StreamThroughputInMBPerSecond", "7"),
        ("HintMaxAgeHours", "7"),
        ("HintMaxSizeInMB", "7"),
        ("DoConsistencyChecksBoolean", "false"),
        ("SpeculativeRetry", "p50"),
        ("ThriftMaxConnections", "7"),
        ("ThriftIdleTimeoutInSeconds", "7"),
        ("AdminToken", "secret"),
        ("AdminTokenRequired", "true"),
        ("LogLevels", "debug"),
        ("TlsCertificateFile", "a.pem"),
        ("TlsKeyFile", "b.pem"),
        ("TlsAuthorityFile", "c.pem"),
        ("ThriftTls", "optional"),
        ("CqlTls", "required"),
        ("StorageTls", "optional"),
        ("AdminTls", "required"),
        ("MemtableThroughputInMB", "7"),
        ("MemtableOperationsInMillions", "7"),
        ("MemtableFlushAfterMinutes", "7"),
        ("ColumnIndexSizeInKB", "7"),
        ("RowWarningThresholdInMB", "7"),
        ("GCGraceSeconds", "7"),
        ("Compression", "None"),
        ("CompactionThroughputInMBPerSecond", "7"),
    ];

    #[test]
    fn what_is_marked_in_the_table_takes_effect_and_nothing_else() {
        let elements = LIVE.map(|(name, value)| format!("<{name}>{value}</{name}>")).concat();
        let networks = "<PeerNetworks><PeerNetwork>10.0.0.0/8</PeerNetwork></PeerNetworks>";
        let file = settings(&(elements + networks + &keyspace(1, "")));
        let reloaded = settings(&keyspace(1, "")).overlaid_by(file.clone());
        assert_eq!(reloaded.waiting, []);
        let of_file =
            |it: &Settings| format!("{:?}", Settings { shown: <_>::default(), ..it.clone() });
        assert_eq!(of_file(&reloaded.settings), of_file(&file));
        let mut changed: Vec<_> = reloaded.changed.iter().map(|it| it.element.as_str()).collect();
        changed.sort_unstable();
        let marked = elements::ROWS.iter().filter(|row| row.is_reloaded()).map(|row| row.path);
        let mut marked: Vec<_> = marked.collect();
        marked.sort_unstable();
        assert_eq!(changed, marked);
    }

    #[test]
    fn the_rest_needs_a_restart_and_stays_as_it_is() {
        let present = settings(&keyspace(1, ""));
        let file = keyspace(2, "<ColumnFamily Name='F'/>") + "<ThriftPort>7</ThriftPort>";
        let reloaded = present.overlaid_by(settings(&file));
        let waiting: Vec<_> = reloaded.waiting.iter().map(ToString::to_string).collect();
        assert_eq!(waiting, ["ThriftPort: 9160 -> 7", "K ReplicationFactor: 1 -> 2"]);
        assert_eq!(reloaded.changed, []);
        assert_eq!(reloaded.settings.thrift.port, 9160);
        assert_eq!(reloaded.settings.keyspaces[0].replication_factor, 1);
        assert!(reloaded.settings.family("K", "F").is_some());
        let again = reloaded.settings.overlaid_by(settings(&file));
        assert_eq!(again.waiting.len(), 2, "they still wait for a restart");
    }
}
