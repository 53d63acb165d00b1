//! Every fault of a file with its exit code, its text and its line.

use super::*;

/// Replaces the first text by the second in the sample of 0.6 and expects the exit code and the
/// message, at the line of the last text.
type Fault = (&'static str, &'static str, u8, &'static str, &'static str);

fn check_faults(base: &str, faults: &[Fault]) {
    for (from, to, exit_code, message, at) in faults {
        assert!(base.contains(from), "{from} is not in the sample");
        let text = base.replacen(from, to, 1);
        let Err(errors) = parse(&text) else { panic!("{to:?} for {from:?} must be refused") };
        let error = &errors.errors[0];
        let shown = error.to_string();
        assert!(shown.contains(message), "{to:?}: {shown}");
        assert_eq!(error.exit_code(), *exit_code, "{to:?}: {shown}");
        let line = line_of(&text, at);
        assert!(shown.starts_with(&format!("test.xml:{line}: ")), "line {line}: {shown}");
        assert_eq!(error.line(), Some(line));
    }
}

#[test]
fn faults_of_top_level_elements() {
    check_faults(OF_06, &TOP_LEVEL_FAULTS);
}

const TOP_LEVEL_FAULTS: [Fault; 47] = [
    (
        "<ClusterName>Shop</ClusterName>",
        "",
        3,
        "/Storage/ClusterName: the element is required",
        "<Storage>",
    ),
    (">Shop<", "><", 3, "ClusterName: the element is required", "<ClusterName>"),
    (
        ">batch<",
        ">sometimes<",
        1,
        "CommitLogSync must be either 'periodic' or 'batch'",
        "<CommitLogSync>",
    ),
    (
        "<CommitLogSync>batch</CommitLogSync>",
        "",
        3,
        "/Storage/CommitLogSync: the element is required",
        "<Storage>",
    ),
    (
        ">batch<",
        ">periodic<",
        1,
        "Unrecognized value for CommitLogSyncPeriodInMS.  Integer expected.",
        "<Storage>",
    ),
    (">batch<", "><", 3, "/Storage/CommitLogSync: the element is required", "<CommitLogSync>"),
    (
        ">batch</CommitLogSync>",
        ">periodic</CommitLogSync><CommitLogSyncPeriodInMS>1.5</CommitLogSyncPeriodInMS>",
        1,
        "Unrecognized value for CommitLogSyncPeriodInMS.  Integer expected.",
        "<CommitLogSyncPeriodInMS>",
    ),
    (
        ">batch</CommitLogSync>",
        ">periodic</CommitLogSync><CommitLogSyncPeriodInMS>9</CommitLogSyncPeriodInMS>",
        1,
        "Periodic sync specified, but CommitLogSyncBatchWindowInMS found.  Only specify \
         CommitLogSyncPeriodInMS when \
      using periodic sync.",
        "<CommitLogSyncBatchWindowInMS>",
    ),
    (
        ">0.5</CommitLogSyncBatchWindowInMS>",
        ">x</CommitLogSyncBatchWindowInMS>",
        1,
        "Unrecognized value for CommitLogSyncBatchWindowInMS.  Double expected.",
        "<CommitLogSyncBatchWindowInMS>",
    ),
    (
        "<CommitLogSyncBatchWindowInMS>0.5</CommitLogSyncBatchWindowInMS>",
        "",
        1,
        "Unrecognized value for CommitLogSyncBatchWindowInMS.  Double expected.",
        "<Storage>",
    ),
    (
        "</Storage>",
        "<CommitLogSyncPeriodInMS>9</CommitLogSyncPeriodInMS></Storage>",
        1,
        "Batch sync specified, but CommitLogSyncPeriodInMS found.  Only specify \
         CommitLogSyncBatchWindowInMS when using \
      batch sync.",
        "<CommitLogSyncPeriodInMS>",
    ),
    (
        ">mmap_index_only<",
        ">nio<",
        1,
        "DiskAccessMode must be either 'auto', 'mmap', 'mmap_index_only', or 'standard'",
        "<DiskAccessMode>",
    ),
    (
        "org.apache.cassandra.auth.SimpleAuthenticator",
        "SimpleAuthenticator",
        1,
        "Invalid authenticator class SimpleAuthenticator (value is 'SimpleAuthenticator'; \
         allowed: org.apache",
        "<Authenticator>",
    ),
    (
        "<Partitioner>OrderPreservingPartitioner</Partitioner>",
        "",
        1,
        "Missing partitioner directive /Storage/Partitioner",
        "<Storage>",
    ),
    (
        ">OrderPreservingPartitioner<",
        ">ByteOrderedPartitioner<",
        1,
        "Invalid partitioner class ByteOrderedPartitioner",
        "<Partitioner>",
    ),
    (
        ">OrderPreservingPartitioner<",
        ">RandomPartitioner<",
        3,
        "not a token of org.apache.cassandra.dht.RandomPartitioner (value is 'm'; allowed: a \
         decimal number)",
        "<InitialToken>",
    ),
    (">m<", ">m,n<", 1, "InitialToken must not have a comma: nodes tell each", "<InitialToken>"),
    (
        ">3600</GC",
        ">soon</GC",
        3,
        "/Storage/GCGraceSeconds: not a whole number",
        "<GCGraceSeconds>",
    ),
    (" 5000 ", "5e3", 3, "/Storage/RpcTimeoutInMillis: not a whole number", "<RpcTimeoutInMillis>"),
    (">12<", ">4<", 1, "PhiConvictThreshold must be between 5 and 16", "<PhiConvictThreshold>"),
    (">12<", ">17<", 1, "PhiConvictThreshold must be between 5 and 16", "<PhiConvictThreshold>"),
    (
        ">2</ConcurrentReads>",
        ">1</ConcurrentReads>",
        1,
        "ConcurrentReads must be at least 2",
        "<ConcurrentReads>",
    ),
    (
        ">16</ConcurrentWrites>",
        ">1</ConcurrentWrites>",
        1,
        "ConcurrentWrites must be at least 2",
        "<ConcurrentWrites>",
    ),
    (
        ">8</Flush",
        ">big</Flush",
        3,
        "/Storage/FlushIndexBufferSizeInMB: not a finite number",
        "<FlushIndexBufferSizeInMB>",
    ),
    (
        ">64</Sliced",
        ">6.4</Sliced",
        3,
        "/Storage/SlicedBufferSizeInKB: not a whole number",
        "<SlicedBufferSizeInKB>",
    ),
    (">7001<", ">70010<", 3, "/Storage/StoragePort: not a port from 0 to 65535", "<StoragePort>"),
    (
        ">192.0.2.7<",
        ">0.0.0.0<",
        1,
        "ListenAddress must be a single interface.  See \
         http://wiki.apache.org/cassandra/FAQ#cant_listen_on_ip_any",
        "<ListenAddress>",
    ),
    (
        ">192.0.2.7<",
        ">nowhere.example<",
        1,
        "Unknown ListenAddress 'nowhere.example'",
        "<ListenAddress>",
    ),
    (">0.0.0.0<", ">nowhere.example<", 2, "nowhere.example: no such host", "<ThriftAddress>"),
    (">9161<", ">-1<", 3, "/Storage/ThriftPort: not a port", "<ThriftPort>"),
    (
        ">true</ThriftF",
        ">yes</ThriftF",
        1,
        "Unrecognized value for ThriftFramedTransport.  Use 'true' or 'false'.",
        "<ThriftFramedTransport>",
    ),
    (
        ">true</Snap",
        ">1</Snap",
        1,
        "Unrecognized value for SnapshotBeforeCompaction.  Use 'true' or 'false'.",
        "<SnapshotBeforeCompaction>",
    ),
    (
        ">True<",
        ">on<",
        1,
        "Unrecognized value for AutoBootstrap.  Use 'true' or 'false'. (value is 'on'; allowed: \
         true, false)",
        "<AutoBootstrap>",
    ),
    (
        ">32</MemtableT",
        ">32M</MemtableT",
        3,
        "/Storage/MemtableThroughputInMB: not a whole",
        "<MemtableThroughputInMB>",
    ),
    (
        ">0.5</MemtableO",
        ">0</MemtableO",
        1,
        "Memtable object count must be a positive double",
        "<MemtableOperationsInMillions>",
    ),
    (
        ">32</RowW",
        ">0</RowW",
        1,
        "Row warning threshold must be a positive integer",
        "<RowWarningThresholdInMB>",
    ),
    (
        "/var/shop/commitlog",
        "/var/shop/data2",
        1,
        "CommitLogDirectory must not be the same as any DataFileDirectory",
        "<CommitLogDirectory>",
    ),
    (
        "<CommitLogDirectory>/var/shop/commitlog",
        "<CommitLogArchiveDirectory>/var/shop/commitlog</CommitLogArchiveDirectory>\
         <CommitLogDirectory>/var/shop/commitlog",
        1,
        "CommitLogArchiveDirectory must not be the same as CommitLogDirectory or any",
        "<CommitLogArchiveDirectory>",
    ),
    (
        "<CommitLogDirectory>/var/shop/commitlog",
        "<CommitLogArchiveDirectory>/var/shop/data2</CommitLogArchiveDirectory>\
         <CommitLogDirectory>/var/shop/commitlog",
        1,
        "CommitLogArchiveDirectory must not be the same as CommitLogDirectory or any",
        "<CommitLogArchiveDirectory>",
    ),
    (
        ">false</Hinted",
        ">never</Hinted",
        1,
        "Unrecognized value for HintedHandoff.  Use 'true' or 'false'.",
        "<HintedHandoffEnabled>",
    ),
    (
        ">64</Index",
        ">0</Index",
        1,
        "Index Interval must be a positive, non-zero integer.",
        "<IndexInterval>",
    ),
    ("192.0.2.1", "nowhere.example", 2, "nowhere.example: no such host", "<Seed>nowhere"),
    (
        "<Seed>192.0.2.1</Seed>",
        "<Seed/>",
        3,
        "/Storage/Seeds/Seed: the element is empty",
        "<Seed/>",
    ),
    (
        "<Seed>192.0.2.1</Seed>\n    <Seed>seed.example</Seed>",
        "",
        1,
        "A minimum of one seed is required.",
        "<Seeds>",
    ),
    (
        "<CommitLogDirectory>/var/shop/commitlog</CommitLogDirectory>",
        "",
        1,
        "CommitLogDirectory must be specified",
        "<Storage>",
    ),
    (
        "<DataFileDirectory>/var/shop/data1</DataFileDirectory>\n    <DataFileDirectory>\
         /var/shop/data2</DataFileDirectory>",
        "",
        1,
        "At least one DataFileDirectory must be specified",
        "<DataFileDirectories>",
    ),
    ("</Storage>", "</Stor>", 3, "not well-formed XML", "</Stor>"),
];

#[test]
fn faults_of_keyspaces_and_column_families() {
    check_faults(OF_06, &KEYSPACE_FAULTS);
}

const KEYSPACE_FAULTS: [Fault; 42] = [
    ("<Keyspace Name=\"Shop\">", "<Keyspace>", 1, "Table name attribute is required", "<Keyspace>"),
    (
        "Name=\"Shop\"",
        "Name=\"System\"",
        1,
        "'system' is a reserved table name for Cassandra internals (value is 'System')",
        "Name=\"System\"",
    ),
    ("Name=\"Shop\"", "Name=\"../Shop\"", 1, "cannot contain '/'", "../Shop"),
    ("Name=\"Shop\"", "Name=\"..\"", 1, "cannot contain '/'", "\"..\""),
    (
        "<ReplicaPlacementStrategy>\
         org.apache.cassandra.locator.RackAwareStrategy</ReplicaPlacementStrategy>",
        "",
        1,
        "/Storage/Keyspaces/Keyspace[@Name='Shop']: Missing replicaplacementstrategy directive \
         for Shop (allowed: org",
        "<Keyspace Name",
    ),
    (
        "org.apache.cassandra.locator.RackAwareStrategy",
        "RackAwareStrategy",
        1,
        "Invalid replicaplacementstrategy class RackAwareStrategy",
        "<ReplicaPlacementStrategy>",
    ),
    (
        "<ReplicationFactor>2</ReplicationFactor>",
        "",
        1,
        "Missing replicationfactor directory for keyspace Shop",
        "<Keyspace Name",
    ),
    (
        ">2</ReplicationFactor>",
        ">two</ReplicationFactor>",
        3,
        "ReplicationFactor: not a whole",
        "<ReplicationFactor>",
    ),
    (
        ">2</ReplicationFactor>",
        ">0</ReplicationFactor>",
        1,
        "must be at least 1",
        "<ReplicationFactor>",
    ),
    (
        "<EndPointSnitch>org.apache.cassandra.locator.EndPointSnitch</EndPointSnitch>",
        "",
        1,
        "Missing endpointsnitch directive for keyspace Shop",
        "<Keyspace Name",
    ),
    (
        ">org.apache.cassandra.locator.EndPointSnitch<",
        ">EndPointSnitch<",
        1,
        "Invalid endpointsnitch class EndPointSnitch",
        "<EndPointSnitch>",
    ),
    (
        "RackAwareStrategy",
        "DatacenterShardStategy",
        3,
        "DatacenterShardStrategy requires DatacenterEndpointSnitch",
        "<Keyspace Name",
    ),
    (
        "<ReplicationFactor>",
        "<DatacenterReplicationFactor>1</DatacenterReplicationFactor><ReplicationFactor>",
        3,
        "DatacenterReplicationFactor: the element is required",
        "<DatacenterReplicationFactor>",
    ),
    ("Name=\"Orders\"", "", 1, "ColumnFamily name attribute is required", "<ColumnFamily />"),
    ("\"Orders\"", "\"Old-Orders\"", 1, "ColumnFamily names cannot contain hyphens", "Old-Orders"),
    ("\"Orders\"", "\"a/b\"", 1, "cannot contain '/'", "a/b"),
    (
        "ColumnType=\"Super\"",
        "ColumnType=\"super\"",
        1,
        "ColumnFamily Carts has invalid type super (value is 'super'; allowed: Standard, Super",
        "\"super\"",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" ColumnSort=\"Time\"",
        1,
        "ColumnSort is no longer an accepted attribute.  Use CompareWith instead.",
        "ColumnSort",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" ColumnSort=\"\"",
        1,
        "ColumnSort is no longer",
        "ColumnSort",
    ),
    (
        "\"LongType\"",
        "\"DecimalType\"",
        1,
        "java.lang.ClassNotFoundException: org.apache.cassandra.db.marshal.DecimalType",
        "DecimalType",
    ),
    (
        "marshal.UTF8Type",
        "marshal.Nothing",
        1,
        "java.lang.ClassNotFoundException: org.apache.cassandra.db.marshal.Nothing",
        "marshal.Nothing",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" CompareSubcolumnsWith=\"BytesType\"",
        1,
        "CompareSubcolumnsWith is only a valid attribute on super columnfamilies (not regular \
         columnfamily Orders)",
        "\"Orders\"",
    ),
    (
        "KeysCached=\"0.5\"",
        "KeysCached=\"half\"",
        3,
        "/@KeysCached: not a number or percentage",
        "\"half\"",
    ),
    (
        "RowsCached=\"25%\"",
        "RowsCached=\"-1\"",
        3,
        "/@RowsCached: not a number or percentage",
        "\"-1\"",
    ),
    (
        "RowsCached=\"25%\"",
        "RowsCached=\"%\"",
        3,
        "/@RowsCached: not a number or percentage",
        "\"%\"",
    ),
    ("\"3600\"", "\"1h\"", 3, "/@RowCacheSavePeriodInSeconds: not a whole number", "\"1h\""),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" KeyCacheSavePeriodInSeconds=\"x\"",
        3,
        "not a whole number",
        "\"x\"",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" MinCompactionThreshold=\"33\"",
        1,
        "Min threshold can't be greater than Max threshold",
        "\"33\"",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" MaxCompactionThreshold=\"1\"",
        1,
        "Min threshold can't be greater than Max threshold",
        "\"Orders\"",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" ReadRepairChance=\"1.5\"",
        1,
        "must be from 0 to 1",
        "\"1.5\"",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" CompactionStrategy=\"TimeWindow\"",
        1,
        "Unrecognized value for CompactionStrategy. (value is 'TimeWindow'; allowed: SizeTiered, \
         Leveled)",
        "\"TimeWindow\"",
    ),
    (
        "Name=\"Orders\"",
        "Name=\"Orders\" Compression=\"zip\"",
        1,
        "Unrecognized value for Compression. (value is 'zip'; allowed: LZ4, None)",
        "\"zip\"",
    ),
    (
        "</Storage>",
        "<SpeculativeRetry>p100</SpeculativeRetry></Storage>",
        1,
        "Unrecognized value for SpeculativeRetry.",
        "p100",
    ),
    (
        "</Storage>",
        "<ThriftListeners><ThriftListener ApiVersion='0.4'/></ThriftListeners></Storage>",
        3,
        "/Storage/ThriftListeners/ThriftListener/@Port: the element is required",
        "ThriftListener ",
    ),
    (
        "</Storage>",
        "<ThriftListeners><ThriftListener Port='9161'/></ThriftListeners></Storage>",
        1,
        "/Storage/ThriftPort is this port already",
        "'9161'",
    ),
    (
        "</Storage>",
        "<ThriftListeners><ThriftListener Address='0.0.0.0' Port='9161'/></ThriftListeners>\
         </Storage>",
        1,
        "/Storage/ThriftPort is this port already",
        "'9161'",
    ),
    (
        "</Storage>",
        "<ThriftListeners><ThriftListener Port='7001'/></ThriftListeners></Storage>",
        1,
        "/Storage/StoragePort is this port already",
        "'7001'",
    ),
    (
        "</Storage>",
        "<ThriftListeners><ThriftListener Port='1' ApiVersion='0.7'/></ThriftListeners></Storage>",
        1,
        "allowed: 0.4, 0.5, 0.6",
        "'0.7'",
    ),
    (
        "</Storage>",
        "<ThriftApiVersion>0.7</ThriftApiVersion></Storage>",
        1,
        "allowed: 0.4, 0.5, 0.6",
        "0.7",
    ),
    (
        "</Storage>",
        "<Compression>zip</Compression></Storage>",
        1,
        "Unrecognized value for Compression.",
        "zip",
    ),
    (
        "</Storage>",
        "<AdminAddress>nowhere.example</AdminAddress></Storage>",
        2,
        "no such host",
        "nowhere.example",
    ),
    (
        "</Storage>",
        "<MemoryBudgetInMB>10</MemoryBudgetInMB><BlockCacheInMB>10</BlockCacheInMB></Storage>",
        1,
        "must be less than MemoryBudgetInMB, which is 10",
        "<BlockCacheInMB>",
    ),
];

#[test]
fn faults_of_older_files() {
    let strategy = "<ReplicaPlacementStrategy>\
                org.apache.cassandra.locator.RackUnawareStrategy</ReplicaPlacementStrategy>";
    let snitch = "<EndPointSnitch>org.apache.cassandra.locator.EndPointSnitch</EndPointSnitch>";
    check_faults(
        OF_04,
        &[
            (
                strategy,
                "",
                1,
                "Missing replicaplacementstrategy directive /Storage/ReplicaPlacementStrategy",
                "<Storage>",
            ),
            (
                snitch,
                "",
                1,
                "Missing endpointsnitch directive /Storage/EndPointSnitch",
                "<Storage>",
            ),
            (
                "\"TimeUUIDType\"",
                "\"NoType\"",
                1,
                "Unable to load class org.apache.cassandra.db.marshal.NoType for CompareWith \
                attribute",
                "NoType",
            ),
            ("0053", "00,53", 3, "an even number of hexadecimal digits", "<InitialToken>"),
            ("0053", "xyz", 3, "an even number of hexadecimal digits", "<InitialToken>"),
        ],
    );
    check_faults(
        OF_05,
        &[
            (
                ">localhost<",
                ">0.0.0.0<",
                1,
                "ListenAddress must be a single interface.",
                "<ListenAddress>",
            ),
            (
                "<Seeds><Seed>127.0.0.1</Seed></Seeds>",
                "",
                1,
                "A minimum of one seed is required.",
                "<Storage>",
            ),
        ],
    );
}

#[test]
fn of_several_faults_the_first_in_order_of_evaluation_decides() {
    let faults = [
        (">batch<", ">sometimes<", "CommitLogSync must"),
        (">mmap_index_only<", ">nio<", "DiskAccessMode must"),
        (">org.apache.cassandra.auth.SimpleAuthenticator<", ">x<", "Invalid authenticator"),
        (">OrderPreservingPartitioner<", ">x<", "Invalid partitioner"),
        (">3600</GC", ">x</GC", "GCGraceSeconds"),
        (" 5000 ", "x", "RpcTimeoutInMillis"),
        (">12<", ">x<", "PhiConvictThreshold"),
        (">2</ConcurrentReads>", ">x</ConcurrentReads>", "ConcurrentReads"),
        (">16</ConcurrentWrites>", ">x</ConcurrentWrites>", "ConcurrentWrites"),
        (">64</Sliced", ">x</Sliced", "SlicedBufferSizeInKB"),
        (">7001<", ">x<", "StoragePort"),
        (">192.0.2.7<", ">x<", "Unknown ListenAddress"),
        (">0.0.0.0<", ">x<", "x: no such host"),
        (">9161<", ">x<", "ThriftPort"),
        (">true</ThriftF", ">x</ThriftF", "ThriftFramedTransport"),
        (">true</Snap", ">x</Snap", "SnapshotBeforeCompaction"),
        (">True<", ">x<", "AutoBootstrap"),
        (">32</MemtableT", ">x</MemtableT", "MemtableThroughputInMB"),
        (">0.5</MemtableO", ">x</MemtableO", "MemtableOperationsInMillions"),
        (">30</MemtableF", ">x</MemtableF", "MemtableFlushAfterMinutes"),
        (">4</Column", ">x</Column", "ColumnIndexSizeInKB"),
        (">32</RowW", ">x</RowW", "RowWarningThresholdInMB"),
        ("/var/shop/commitlog", "/var/shop/data1", "CommitLogDirectory must not"),
        (">64</CommitLogR", ">x</CommitLogR", "CommitLogRotationThresholdInMB"),
        (">false</Hinted", ">x</Hinted", "HintedHandoff"),
        (">64</Index", ">x</Index", "IndexInterval"),
        ("Name=\"Shop\"", "Name=\"system\"", "reserved"),
        ("192.0.2.1<", "y<", "y: no such host"),
    ];
    let mut text = OF_06.to_owned();
    for (from, to, message) in faults.iter().rev() {
        assert!(text.contains(from), "{from} is not in the sample");
        text = text.replacen(from, to, 1);
        let shown = first_error(&text).to_string();
        assert!(shown.contains(message), "{message} expected: {shown}");
    }
    // All of them are told, each at its place.
    let errors = parse(&text).unwrap_err();
    let lines: Vec<_> = errors.by_line().iter().map(|error| error.line()).collect();
    assert!(lines.is_sorted(), "{lines:?}");
    for (_, _, message) in faults {
        assert!(errors.to_string().contains(message), "{message}: {errors}");
    }
    assert_eq!(errors.errors.len(), faults.len(), "{errors}");
}

/// A file of 0.6 with further elements, which is refused: the text of all errors.
fn errors_with(more: &str) -> String {
    let text = OF_06.replace("</Storage>", &format!("{more}</Storage>"));
    parse(&text).unwrap_err().to_string()
}

#[test]
fn ports_of_one_server_must_differ() {
    let storage = errors_with("<AdminAddress>192.0.2.7</AdminAddress><AdminPort>7001</AdminPort>");
    assert!(storage.contains("/AdminPort: /Storage/StoragePort is this port already"), "{storage}");
    // Clients are accepted at every address.
    let thrift = errors_with("<AdminPort>9161</AdminPort>");
    assert!(thrift.contains("/AdminPort: /Storage/ThriftPort is this port already"), "{thrift}");
    let both = OF_06.replace(">7001<", ">9161<");
    let both = parse(&both).unwrap_err().to_string();
    assert!(both.contains("/StoragePort: /Storage/ThriftPort is this port already"), "{both}");
    // Also beside an error for which there are no settings.
    let text = OF_06.replace("</Storage>", "<AdminPort>9161</AdminPort></Storage>");
    assert_eq!(parse(&text.replace(">batch<", ">sometimes<")).unwrap_err().errors.len(), 2);
    // Others do not meet: another address, or a free port.
    for more in ["<AdminPort>7001</AdminPort>", "<AdminPort>0</AdminPort>"] {
        let text = OF_06.replace("</Storage>", &format!("{more}</Storage>"));
        parse(&text.replace(">9161<", ">0<")).unwrap();
    }
    // The server goes on without a port that it has by default.
    let default = parse(&OF_06.replace(">9161<", ">8080<")).unwrap();
    assert!(has_note(&default, 1, "/Storage/AdminPort: /Storage/ThriftPort is this port already"));
}

#[test]
fn a_token_is_required_only_where_there_is_one() {
    let without = errors_with("<AdminTokenRequired>true</AdminTokenRequired>");
    assert!(without.contains("/AdminTokenRequired: there is no AdminToken"), "{without}");
    for (more, is_required) in [
        ("", false),
        ("<AdminToken>s</AdminToken>", true),
        ("<AdminToken>s</AdminToken><AdminTokenRequired>false</AdminTokenRequired>", false),
    ] {
        let text = OF_06.replace("</Storage>", &format!("{more}</Storage>"));
        assert_eq!(parse(&text).unwrap().settings.admin.token_is_required, is_required, "{more}");
    }
}

#[test]
fn budgets_fit_the_machine() {
    let budget = errors_with("<MemoryBudgetInMB>8193</MemoryBudgetInMB>");
    assert!(budget.contains("must not be more than the memory of this machine, which is 8192 MB"));
    let received = errors_with("<ThriftReceiveBudgetInMB>8193</ThriftReceiveBudgetInMB>");
    assert!(received.contains("/ThriftReceiveBudgetInMB: must not be more than the memory of"));
    let cache = errors_with("<BlockCacheInMB>2048</BlockCacheInMB>");
    assert!(cache.contains("must be less than MemoryBudgetInMB, which is 2048"), "{cache}");
}

#[test]
fn directories_can_be_created() {
    let archive = "<CommitLogArchiveDirectory>/proc/archive</CommitLogArchiveDirectory>";
    let errors = errors_with(archive);
    let why = "/CommitLogArchiveDirectory: the directory cannot be used: read-only filesystem";
    assert!(errors.contains(why), "{errors}");
    // Hints are beside the commit log if there are any, as are caches, which a server can lack.
    let beside = OF_06
        .replace("<SavedCachesDirectory>/var/shop/caches</SavedCachesDirectory>", "")
        .replace("/var/shop/commitlog", "/proc/commitlog");
    assert_eq!(parse(&beside).unwrap_err().errors.len(), 1, "hints are off");
    let errors = parse(&beside.replace(">false</Hinted", ">true</Hinted")).unwrap_err();
    assert_eq!((errors.errors.len(), errors.exit_code()), (2, 3), "{errors}");
    assert!(errors.to_string().contains("(value is '/proc/hints')"), "{errors}");
}

#[test]
fn a_misspelt_value_gets_the_nearest() {
    for (from, to, meant) in [
        (">batch<", ">bacth<", "batch"),
        (">mmap_index_only<", ">mmap_index_onyl<", "mmap_index_only"),
        ("auth.SimpleAuthenticator", "SimpleAuthentcator", "org.apache.cassandra.auth.SimpleAuth"),
        (">OrderPreservingPartitioner<", ">OrderedPreservingPartitioner<", "org.apache.cassandra"),
        (
            "locator.RackAwareStrategy",
            "RackAwareStrategy",
            "org.apache.cassandra.locator.RackAware",
        ),
        ("locator.EndPointSnitch", "locator.EndpointSntich", "org.apache.cassandra.locator.EndPoi"),
        ("\"LongType\"", "\"LognType\"", "org.apache.cassandra.db.marshal.LongType"),
        ("\"LongType\"", "\"ReverseType(LongType)\"", "ReversedType(T)"),
        ("ColumnType=\"Super\"", "ColumnType=\"super\"", "Super"),
        (">True<", ">ture<", "true"),
        ("Name=\"Orders\"", "Name=\"Orders\" CompactionStrategy=\"Levelled\"", "Leveled"),
    ] {
        let shown = first_error(&OF_06.replacen(from, to, 1)).to_string();
        assert!(shown.contains(&format!("did you mean {meant}")), "{shown}");
    }
}

#[test]
fn an_element_without_effect_may_be_missing() {
    let text = OF_06.replace("<DiskAccessMode>mmap_index_only</DiskAccessMode>", "");
    let loaded = parse(&text).unwrap();
    assert!(has_note(
        &loaded,
        line_of(&text, "<Storage>"),
        "DiskAccessMode is not there, which 0.6"
    ));
}

#[test]
fn a_check_does_not_need_the_addresses_of_seeds() {
    let text = OF_06.replace("192.0.2.1<", "elsewhere.example<");
    let comparators = ComparatorRegistry::default();
    let check = Loader { machine: &FixedMachine, ..Loader::for_check(&comparators) };
    let loaded = check.parse(&text, "test.xml").unwrap();
    let line = line_of(&text, "elsewhere.example");
    assert!(has_note(&loaded, line, "seed elsewhere.example has no address here"));
    assert_eq!(loaded.settings.seeds, [address("192.0.2.2")]);
    assert_eq!(parse(&text).unwrap_err().exit_code(), 2);
}

#[test]
fn the_errors_of_a_file_are_bounded_and_each_is_told_once() {
    let families: String =
        (0..500).map(|i| ["<ColumnFamily Name='a-", &i.to_string(), "'/>"].concat()).collect();
    let errors = parse(&OF_06.replacen("</Keyspace>", &format!("{families}</Keyspace>"), 1));
    let errors = errors.unwrap_err();
    assert_eq!(errors.errors.len(), 100);
    assert!(errors.notes.iter().any(|note| note.text.contains("only 100 errors")));
    // Two keyspaces lack the same element of an old file.
    let strategy = "<ReplicaPlacementStrategy>\
                    org.apache.cassandra.locator.RackUnawareStrategy</ReplicaPlacementStrategy>";
    let text =
        OF_04.replace(strategy, "").replace("<Keyspaces>", "<Keyspaces><Keyspace Name='x'/>");
    assert_eq!(parse(&text).unwrap_err().errors.len(), 1);
}
