//! Whole files: generations, sources, notes, and what no file may do.

mod faults;

use crate::config::classes::{AuthenticatorName, SnitchName, StrategyName};
use crate::config::machine::Machine;
use crate::config::networks::PeerNetworks;
use crate::config::settings::{
    CacheSize, CommitLogSync, CompactionStrategy, Compression, ListenerSettings, Release,
    SpeculativeRetry,
};
use crate::config::*;
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::ring::Partitioner;
use proptest::prelude::*;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SAMPLE: &str = include_str!("../../../storage-conf.xml");
const OF_04: &str = include_str!("../../../tests/configs/0.4.xml");
const OF_05: &str = include_str!("../../../tests/configs/0.5.xml");
const OF_06: &str = include_str!("../../../tests/configs/0.6.xml");

/// A machine with 8 GB, which knows one seed, localhost and itself, and where nothing can be
/// written below `/proc`.
struct FixedMachine;

impl Machine for FixedMachine {
    fn local_host_name(&self) -> io::Result<String> {
        Ok("this-machine".to_owned())
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match host {
            "seed.example" => Ok(vec![address("192.0.2.2")]),
            "localhost" => Ok(vec![address("::1"), address("127.0.0.1")]),
            "this-machine" => Ok(vec![address("192.0.2.99")]),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
        }
    }

    fn memory_bytes(&self) -> u64 {
        8 << 30
    }

    fn check_directory(&self, path: &Path) -> io::Result<()> {
        if path.starts_with("/proc") {
            Err(io::ErrorKind::ReadOnlyFilesystem.into())
        } else {
            Ok(())
        }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn parse(text: &str) -> Result<Loaded, ConfigErrors> {
    let comparators = ComparatorRegistry::default();
    let loader = Loader::for_server(&comparators);
    Loader { machine: &FixedMachine, ..loader }.parse(text, "test.xml")
}

/// The error that the original reports.
#[track_caller]
fn first_error(text: &str) -> ConfigError {
    parse(text).unwrap_err().errors.remove(0)
}

fn line_of(text: &str, needle: &str) -> u32 {
    let place = text.find(needle).unwrap_or_else(|| panic!("{needle} is not in the text"));
    1 + text.get(..place).unwrap().matches('\n').count() as u32
}

fn note_texts(loaded: &Loaded) -> Vec<String> {
    loaded.notes.iter().map(ToString::to_string).collect()
}

fn has_note(loaded: &Loaded, line: u32, text: &str) -> bool {
    loaded.notes.iter().any(|note| note.line == line && note.text.contains(text))
}

#[test]
fn a_file_of_06() {
    let loaded = parse(OF_06).unwrap();
    let s = &loaded.settings;
    assert_eq!((s.release, s.thrift.api_version), (Release::V06, Release::V06));
    assert_eq!((s.origin.as_str(), s.text.as_str()), ("test.xml", OF_06));
    assert_eq!(s.cluster_name, "Shop");
    assert_eq!(s.partitioner, Partitioner::OrderPreserving);
    assert_eq!(s.initial_token.as_deref(), Some("m"));
    assert_eq!(s.authenticator, AuthenticatorName::Simple);
    assert_eq!(s.seeds, [address("192.0.2.1"), address("192.0.2.2")]);
    assert_eq!(s.network.listen_address, address("192.0.2.7"));
    assert_eq!((s.network.storage_port, s.network.phi_convict_threshold), (7001, 12));
    assert_eq!(s.network.rpc_timeout, Duration::from_secs(5));
    assert_eq!((s.thrift.address, s.thrift.port), (address("0.0.0.0"), 9161));
    assert!(s.thrift.framed && s.auto_bootstrap && s.storage.snapshot_before_compaction);
    assert!(!s.replication.hinted_handoff_enabled && !s.replication.do_consistency_checks);
    let data = ["/var/shop/data1", "/var/shop/data2"].map(PathBuf::from);
    assert_eq!(s.directories.data, data);
    assert_eq!(s.directories.commit_log, Path::new("/var/shop/commitlog"));
    assert_eq!(s.directories.saved_caches, Path::new("/var/shop/caches"));
    assert_eq!(s.directories.hints, Path::new("/var/shop/hints"));
    assert_eq!(s.commit_log.sync, CommitLogSync::Batch { window: Duration::from_micros(500) });
    assert_eq!(s.commit_log.rotation_threshold_bytes, 64 << 20);
    assert_eq!(s.memory.memtable_throughput_bytes, 32 << 20);
    assert_eq!(s.memory.memtable_operations, 1 << 19);
    assert_eq!(s.memory.memtable_flush_after, Duration::from_mins(30));
    assert_eq!(s.storage.index_interval, 64);
    assert_eq!(s.storage.column_index_bytes, 4096);
    assert_eq!(s.storage.row_warning_threshold_bytes, 32 << 20);
    assert_eq!(s.storage.gc_grace, Duration::from_hours(1));
    assert_eq!((s.storage.concurrent_reads, s.storage.concurrent_writes), (2, 16));

    let shop = s.keyspace("Shop").unwrap();
    assert_eq!((shop.strategy, shop.snitch), (StrategyName::RackAware, SnitchName::EndPoint));
    assert_eq!(shop.replication_factor, 2);
    let orders = shop.column_family("Orders").unwrap();
    assert!(!orders.schema.is_super());
    assert_eq!(orders.schema.comparator(), &Comparator::Bytes);
    assert_eq!(
        (orders.keys_cached, orders.rows_cached),
        (CacheSize::Entries(200_000), CacheSize::Off)
    );
    assert!(orders.schema.read_repair_chance.abs() < f64::EPSILON, "consistency checks are off");
    let carts = shop.column_family("Carts").unwrap();
    assert_eq!(carts.schema.comparator(), &Comparator::Long);
    assert_eq!(carts.schema.subcolumn_comparator(), Some(&Comparator::Utf8));
    assert_eq!(carts.schema.comment.as_deref(), Some("What customers <may> buy & more"));
    assert_eq!(
        (carts.keys_cached, carts.rows_cached),
        (CacheSize::Fraction(0.5), CacheSize::Fraction(0.25))
    );
    assert_eq!(carts.row_cache_save_period, Some(Duration::from_hours(1)));
    assert_eq!(carts.key_cache_save_period, None);
    assert!(loaded.notes.iter().all(|note| note.level == NoteLevel::Info), "{:?}", loaded.notes);
}

#[test]
fn a_file_of_05() {
    let loaded = parse(OF_05).unwrap();
    let s = &loaded.settings;
    assert_eq!((s.release, s.thrift.api_version), (Release::V05, Release::V05));
    assert_eq!(s.network.listen_address, address("127.0.0.1"));
    assert_eq!(s.thrift.address, address("127.0.0.1"));
    assert_eq!(s.directories.saved_caches, Path::new("/var/saved_caches"));
    assert!(has_note(&loaded, line_of(OF_05, "<CommitLogDirectory>"), "shares a directory"));
    assert_eq!(s.memory.memtable_throughput_bytes, 96 << 20);
    assert_eq!(s.memory.memtable_operations, 1 << 20);
    assert_eq!(s.memory.memtable_flush_after, Duration::from_mins(45));
    assert_eq!(s.storage.concurrent_reads, 1);
    let radio = s.keyspace("Radio").unwrap();
    assert_eq!((radio.replication_factor, radio.strategy), (3, StrategyName::RackUnaware));
    let lists = radio.column_family("Play-Lists").unwrap();
    assert_eq!(lists.keys_cached, CacheSize::Fraction(0.05));
    assert_eq!(lists.schema.comment.as_deref(), Some("what was on the air"));
    let podcasts = s.keyspace("Podcasts").unwrap();
    let episodes = podcasts.column_family("Episodes").unwrap();
    assert_eq!(episodes.keys_cached, CacheSize::Fraction(0.01));
    assert_eq!(s.system_column_families().len(), 2);
    assert_eq!(s.system_column_families()[0].schema.comparator(), &Comparator::Utf8);
}

#[test]
fn a_file_of_04_with_the_blog() {
    let loaded = parse(OF_04).unwrap();
    let s = &loaded.settings;
    assert_eq!((s.release, s.thrift.api_version), (Release::V04, Release::V04));
    assert_eq!(s.partitioner, Partitioner::CollatingOrderPreserving);
    assert_eq!(s.network.listen_address, address("192.0.2.99"));
    assert!(has_note(&loaded, line_of(OF_04, "<ListenAddress>"), "single interface"));
    assert_eq!(s.seeds, [address("192.0.2.99")]);
    assert_eq!(s.directories.saved_caches, Path::new("/var/blog/saved_caches"));
    assert_eq!(s.memory.memtable_throughput_bytes, 128 << 20);
    assert_eq!(s.memory.memtable_operations, 1 << 18);
    assert_eq!(s.memory.memtable_flush_after, Duration::from_hours(48));
    let blog = s.keyspace("BloggyAppy").unwrap();
    assert_eq!(blog.replication_factor, 1);
    let comments = &blog.column_family("Comments").unwrap().schema;
    assert_eq!(comments.comparator(), &Comparator::TimeUuid);
    assert_eq!(comments.subcolumn_comparator(), Some(&Comparator::Bytes));
    let events = s.keyspace("Labelled").unwrap().column_family("Events").unwrap();
    assert_eq!(events.flush_period, Some(Duration::from_mins(20)));
    let words = ["RowKey", "ColumnKey", "ColumnMap"].map(|element| events.labels.word(element));
    assert_eq!(words, ["UserName", "When", "COLUMN_MAP"]);
    assert!(has_note(&loaded, line_of(OF_04, "<ControlPort>"), "StoragePort"));
}

#[test]
fn files_from_before_caches_were_saved_have_no_directory_for_them() {
    let text = OF_06
        .replace("<SavedCachesDirectory>/var/shop/caches</SavedCachesDirectory>", "")
        .replace("/var/shop/commitlog", "/srv/logs/commitlog");
    let loaded = parse(&text).unwrap();
    let beside = Path::new("/srv/logs/saved_caches");
    assert_eq!(loaded.settings.directories.saved_caches, beside);
    let note = "SavedCachesDirectory is not there, /srv/logs/saved_caches is taken";
    assert!(has_note(&loaded, line_of(&text, "<Storage>"), note), "{:?}", note_texts(&loaded));
}

#[test]
fn the_generation_is_recognised() {
    let release = |text: &str| parse(text).unwrap().settings.release;
    let days = "  <MemtableLifetimeInDays>2</MemtableLifetimeInDays>\n";
    let bootstrap = "  <BootstrapFileDirectory>/var/blog/bootstrap</BootstrapFileDirectory>\n";
    let period = " FlushPeriodInMinutes=\"20\"";
    let listen = "<ListenAddress>0.0.0.0";
    let base =
        OF_04.replace(listen, "<Seeds><Seed>192.0.2.1</Seed></Seeds><ListenAddress>192.0.2.1");
    let without = |parts: &[&str]| parts.iter().fold(base.clone(), |text, p| text.replace(p, ""));
    assert_eq!(release(&without(&[days, bootstrap])), Release::V04);
    assert_eq!(release(&without(&[days, period])), Release::V04);
    assert_eq!(release(&without(&[bootstrap, period])), Release::V04);
    assert_eq!(release(&without(&[days, bootstrap, period])), Release::V05);
}

#[test]
fn the_element_that_makes_a_file_an_older_one_is_named() {
    let hint = "where ThriftApiVersion says nothing else";
    for (text, release, element) in [
        (OF_04, "0.4", "element <BootstrapFileDirectory>"),
        (OF_05, "0.5", "element <ReplicaPlacementStrategy>"),
    ] {
        let loaded = parse(text).unwrap();
        let line = line_of(text, element.trim_start_matches("element "));
        let said = format!("{element} makes this a file of {release}, with clients of {release}");
        assert!(has_note(&loaded, line, &said), "{:?}", note_texts(&loaded));
        assert!(has_note(&loaded, line, hint));
    }
    let loaded = parse(OF_06).unwrap();
    assert!(loaded.notes.iter().all(|note| !note.text.contains(hint)), "{:?}", note_texts(&loaded));
}

#[test]
fn the_embedded_configuration_is_complete() {
    let registry = ComparatorRegistry::default();
    let loaded = Loader::for_server(&registry).load(None).unwrap();
    let s = &loaded.settings;
    assert_eq!(s.release, Release::V06);
    assert_eq!(s.text, SAMPLE);
    assert!(s.network.listen_address.is_loopback() && s.thrift.address.is_loopback());
    assert!(s.admin.address.is_loopback() && !s.admin.port_is_required);
    assert_eq!((s.thrift.port, s.network.storage_port, s.admin.port), (9160, 7000, 8080));
    assert!(s.directories.data.iter().all(|path| path.starts_with("./data")));
    assert!(s.directories.commit_log.starts_with("./data"));
    let period = Duration::from_secs(10);
    assert_eq!(s.commit_log.sync, CommitLogSync::Periodic { period });
    let families = |name: &str| -> Vec<String> {
        let families = &s.keyspace(name).unwrap().column_families;
        families.iter().map(|family| family.schema.name.clone()).collect()
    };
    assert_eq!(families("BloggyAppy"), ["Authors", "BlogEntries", "TaggedPosts", "Comments"]);
    let sample = ["Standard1", "Standard2", "StandardByUUID1", "Super1", "Super2"];
    assert_eq!(families("Keyspace1"), sample);
    let only = "element <DiskAccessMode> has no effect: files are never mapped into memory here";
    assert_eq!(loaded.notes.iter().map(|n| n.text.as_str()).collect::<Vec<_>>(), [only]);
    // The parser of the original refuses a double hyphen in a comment.
    let mut reader = quick_xml::Reader::from_str(SAMPLE);
    reader.config_mut().enable_all_checks(true);
    while !matches!(reader.read_event().unwrap(), quick_xml::events::Event::Eof) {}
}

#[test]
fn the_elements_of_ours() {
    let ours = "<ThriftApiVersion>0.5</ThriftApiVersion>\
                <ThriftMaxMessageInMB>16</ThriftMaxMessageInMB>\
                <PeerNetworks><PeerNetwork>10.1.0.0/16</PeerNetwork>\
                <PeerNetwork>192.0.2.0/24</PeerNetwork></PeerNetworks>\
                <ThriftMaxConnections>50</ThriftMaxConnections>\
                <ThriftIdleTimeoutInSeconds>90</ThriftIdleTimeoutInSeconds>\
                <ThriftReceiveBudgetInMB>32</ThriftReceiveBudgetInMB><ThriftListeners>\
                <ThriftListener Port='9170' ApiVersion='0.4' FramedTransport='true'/>\
                <ThriftListener Port='0' Address='192.0.2.8'/></ThriftListeners>\
                <MemoryBudgetInMB>1024</MemoryBudgetInMB><BlockCacheInMB>128</BlockCacheInMB>\
                <Compression>None</Compression><AdminAddress>192.0.2.7</AdminAddress>\
                <AdminPort>8081</AdminPort><AdminToken>s3cret</AdminToken>\
                <HintsDirectory>/hints</HintsDirectory>\
                <CommitLogArchiveDirectory>/archive</CommitLogArchiveDirectory>\
                <HintMaxAgeHours>3</HintMaxAgeHours>\
                <HintMaxSizeInMB>5</HintMaxSizeInMB><SpeculativeRetry>p99.9</SpeculativeRetry>\
                <StreamThroughputInMBPerSecond>7</StreamThroughputInMBPerSecond>\
                <CompactionThroughputInMBPerSecond>0</CompactionThroughputInMBPerSecond>\
                </Storage>";
    let family = "Name=\"Orders\" ReadRepairChance='0.25' MinCompactionThreshold='2' \
                  MaxCompactionThreshold='8' GCGraceSeconds='60' Compression='LZ4' \
                  CompactionStrategy='leveled'";
    let center = "<DatacenterReplicationFactor Datacenter='DC1'>2</DatacenterReplicationFactor>\
                  <DatacenterReplicationFactor Datacenter='DC2'>1</DatacenterReplicationFactor>\
                  <ReplicaPlacementStrategy>";
    let text = OF_06
        .replace("</Storage>", ours)
        .replace("Name=\"Orders\"", family)
        .replace("<ReplicaPlacementStrategy>", center)
        .replace("RackAwareStrategy", "DatacenterShardStrategy");
    let loaded = parse(&text).unwrap();
    let s = &loaded.settings;
    assert_eq!(s.thrift.api_version, Release::V05);
    assert_eq!(s.thrift.max_message_bytes, 16 << 20);
    let networks = ["10.1.0.0/16", "192.0.2.0/24"].map(|it| it.parse().unwrap());
    assert_eq!(s.network.peer_networks, PeerNetworks(networks.to_vec()));
    assert_eq!(s.thrift.max_connections, 50);
    assert_eq!(s.thrift.idle_timeout, Some(Duration::from_secs(90)));
    assert_eq!(s.thrift.receive_budget_bytes, 32 << 20);
    let old = ListenerSettings {
        address: s.thrift.address,
        port: 9170,
        framed: true,
        api_version: Release::V04,
        line: line_of(&text, "9170"),
    };
    let other = ListenerSettings {
        address: address("192.0.2.8"),
        port: 0,
        framed: s.thrift.framed,
        api_version: Release::V05,
        line: line_of(&text, "9170"),
    };
    assert_eq!(s.thrift.listeners, [old, other]);
    assert_eq!(s.memory.budget_bytes, Some(1 << 30));
    assert_eq!(s.memory.block_cache_bytes, Some(128 << 20));
    assert_eq!(s.storage.compression, Compression::None);
    assert_eq!((s.admin.address, s.admin.port), (address("192.0.2.7"), 8081));
    assert!(s.admin.port_is_required);
    assert_eq!(s.admin.token.as_deref(), Some("s3cret"));
    assert_eq!(s.directories.hints, Path::new("/hints"));
    assert_eq!(s.directories.commit_log_archive.as_deref(), Some(Path::new("/archive")));
    assert_eq!(s.replication.hint_max_age, Duration::from_hours(3));
    assert_eq!(s.replication.hint_max_bytes, 5 << 20);
    assert_eq!(s.replication.speculative_retry, SpeculativeRetry::Percentile(99.9));
    assert_eq!(s.network.stream_throughput_bytes, Some(7 << 20));
    assert_eq!(s.storage.compaction_throughput_bytes, None);
    let shop = s.keyspace("Shop").unwrap();
    assert_eq!(shop.strategy, StrategyName::DatacenterShard);
    let factors: Vec<_> = shop.datacenter_replication_factors.iter().collect();
    assert_eq!(factors, [(&"DC1".to_owned(), &2), (&"DC2".to_owned(), &1)]);
    let orders = shop.column_family("Orders").unwrap();
    assert!((orders.schema.read_repair_chance - 0.25).abs() < f64::EPSILON);
    assert_eq!((orders.min_compaction_threshold, orders.max_compaction_threshold), (2, 8));
    assert_eq!(orders.schema.gc_grace, Duration::from_mins(1));
    assert_eq!(orders.compression, Compression::Lz4);
    assert_eq!(orders.compaction_strategy, CompactionStrategy::Leveled);
    assert!(loaded.notes.iter().all(|n| n.level == NoteLevel::Info), "{:?}", loaded.notes);
    let shown = format!("{}{s:?}{}", describe(&loaded), s.text);
    assert!(!shown.contains("s3cret"), "the token is shown");
    assert_eq!(s.text, text.replace("s3cret", ""));
}

#[test]
fn a_keyspace_of_04_in_a_file_without_replication_says_what_to_add() {
    let start = OF_04.find("<Keyspace ").unwrap();
    let end = OF_04.find("</Keyspace>").unwrap() + "</Keyspace>".len();
    let snippet = OF_04.get(start..end).unwrap();
    let text = OF_06.replace("<Keyspaces>", &format!("<Keyspaces>{snippet}"));
    let error = first_error(&text);
    let missing = "Missing replicaplacementstrategy directive for BloggyAppy (allowed: ";
    assert!(error.to_string().contains(missing), "{error}");
    assert!(error.to_string().contains("org.apache.cassandra.locator.RackUnawareStrategy"));
}

#[test]
fn no_keyspaces() {
    let start = OF_06.find("<Keyspaces>").unwrap();
    let end = OF_06.find("</Keyspaces>").unwrap();
    let text = format!("{}<Keyspaces>{}", &OF_06[..start], &OF_06[end..]);
    let error = first_error(&text);
    assert!(error.to_string().contains("No keyspaces configured"));
    assert_eq!(error.line(), Some(line_of(&text, "<Keyspaces>")));
    let (start, end) = (OF_05.find("<Keyspaces>").unwrap(), OF_05.find("</Keyspaces>").unwrap());
    let old = format!("{}<Keyspaces>{}", &OF_05[..start], &OF_05[end..]);
    assert!(parse(&old).unwrap().settings.keyspaces.is_empty());
}

#[test]
fn cache_sizes_are_entries_fractions_or_percentages() {
    for (written, expected) in [
        ("0", CacheSize::Off),
        ("0%", CacheSize::Off),
        ("0.25", CacheSize::Fraction(0.25)),
        ("1", CacheSize::Fraction(1.0)),
        ("1.0", CacheSize::Fraction(1.0)),
        ("2", CacheSize::Entries(2)),
        ("150000", CacheSize::Entries(150_000)),
        ("50%", CacheSize::Fraction(0.5)),
        ("7.5 %", CacheSize::Fraction(0.075)),
        ("100%", CacheSize::Fraction(1.0)),
    ] {
        let text = OF_06.replace("KeysCached=\"0.5\"", &format!("KeysCached=\"{written}\""));
        let loaded = parse(&text).unwrap();
        let carts = loaded.settings.keyspace("Shop").unwrap().column_family("Carts").unwrap();
        assert_eq!(carts.keys_cached, expected, "{written}");
    }
    assert_eq!(CacheSize::Fraction(0.01).entries(10), 1);
    assert_eq!(CacheSize::Fraction(0.5).entries(10), 5);
    assert_eq!((CacheSize::Entries(7).entries(1), CacheSize::Off.entries(9)), (7, 0));
    assert_eq!(CacheSize::Fraction(0.07).to_string(), "7%");
}

#[test]
fn the_deprecated_fraction_gives_way() {
    let with = |attributes: &str| {
        let text = OF_06.replace("Name=\"Orders\"", &format!("Name=\"Orders\" {attributes}"));
        let loaded = parse(&text).unwrap();
        let line = line_of(&text, "\"Orders\"");
        let text = "KeysCachedFraction is deprecated: use KeysCached instead.";
        assert!(has_note(&loaded, line, text));
        let shop = loaded.settings.keyspace("Shop").unwrap();
        shop.column_family("Orders").unwrap().keys_cached
    };
    assert_eq!(with("KeysCachedFraction='0.2'"), CacheSize::Fraction(0.2));
    assert_eq!(with("KeysCachedFraction='0.2' KeysCached='9'"), CacheSize::Entries(9));
}

#[test]
fn repeated_keyspaces_and_column_families_are_merged() {
    let again = "<Keyspace Name=\"Shop\">\
                 <ReplicationFactor>9</ReplicationFactor>\
                 <ColumnFamily Name=\"Carts\" CompareWith=\"AsciiType\"><Comment>no</Comment>\
                </ColumnFamily>\
                 <ColumnFamily Name=\"orders\"/></Keyspace></Keyspaces>";
    let text = OF_06.replace("</Keyspaces>", again);
    let loaded = parse(&text).unwrap();
    assert_eq!(loaded.settings.keyspaces.len(), 1);
    let shop = loaded.settings.keyspace("Shop").unwrap();
    assert_eq!(shop.replication_factor, 2);
    let names: Vec<_> = shop.column_families.iter().map(|f| f.schema.name.as_str()).collect();
    assert_eq!(names, ["Orders", "Carts", "orders"]);
    let carts = shop.column_family("Carts").unwrap();
    assert!(!carts.schema.is_super());
    assert_eq!(carts.schema.comparator(), &Comparator::Ascii);
    assert_eq!(carts.schema.comment.as_deref(), Some("What customers <may> buy & more"));
    assert!(has_note(&loaded, line_of(&text, "<Keyspace Name=\"Shop\"><R"), "is continued here"));
}

#[test]
fn the_first_of_equal_elements_counts() {
    let text = OF_06.replace("</Storage>", "<ThriftPort>1</ThriftPort></Storage>");
    let loaded = parse(&text).unwrap();
    assert_eq!(loaded.settings.thrift.port, 9161);
    assert!(has_note(&loaded, line_of(&text, "</Storage>"), "<ThriftPort> is given on line"));
}

#[test]
fn values_that_cannot_work_are_raised_with_a_note() {
    let text = OF_06.replace(">32</MemtableT", ">-5</MemtableT");
    let loaded = parse(&text).unwrap();
    assert_eq!(loaded.settings.memory.memtable_throughput_bytes, 1 << 20);
    let line = line_of(&text, "<MemtableThroughputInMB>");
    assert!(has_note(&loaded, line, "-5 is taken as 1"), "{:?}", note_texts(&loaded));
}

#[test]
fn a_comment_attribute_is_not_the_comment() {
    let text = OF_06.replace("Name=\"Orders\"", "Name=\"Orders\" Comment=\"x\"");
    let loaded = parse(&text).unwrap();
    let shop = loaded.settings.keyspace("Shop").unwrap();
    assert_eq!(shop.column_family("Orders").unwrap().schema.comment, None);
    assert!(has_note(&loaded, line_of(&text, "Comment=\"x\""), "child element <Comment>"));
}

#[test]
fn files_and_directories_are_found() {
    let registry = ComparatorRegistry::default();
    let directory = tempfile::tempdir().unwrap();
    let load = |path| Loader::for_server(&registry).load(Some(path));
    let missing = load(directory.path()).unwrap_err().errors.remove(0);
    assert_eq!((missing.exit_code(), missing.line()), (3, None));
    let text =
        "Cannot locate storage-conf.xml via storage-config system property or classpath lookup.";
    assert!(missing.to_string().ends_with(text));
    let file = directory.path().join(FILE_NAME);
    std::fs::write(
        &file,
        SAMPLE
            .replace("UTF-8", "ISO-8859-1")
            .replace("Test Cluster", "Caf\u{e9}")
            .chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect::<Vec<u8>>(),
    )
    .unwrap();
    for path in [directory.path(), file.as_path()] {
        let loaded = load(path).unwrap();
        assert_eq!(loaded.settings.cluster_name, "Café");
        assert_eq!(loaded.settings.origin, file.display().to_string());
    }
    std::fs::write(&file, b"\xff\xfe").unwrap();
    let error = load(&file).unwrap_err().errors.remove(0);
    assert_eq!((error.exit_code(), error.line()), (3, Some(1)));
}

#[test]
fn each_class_says_its_line() {
    let class = |from: &str, to: &str| first_error(&OF_06.replacen(from, to, 1));
    let class_of = |error: &ConfigError| ConfigErrors::from(error.clone()).class();
    let bad = class(">12<", ">4<");
    assert_eq!(class_of(&bad).stderr_line(), "Bad configuration; unable to start server");
    assert!(bad.log_line().starts_with("Fatal error: test.xml:"));
    let unknown = class("192.0.2.1", "x");
    assert_eq!(
        class_of(&unknown).stderr_line(),
        "Unable to start with unknown hosts configured.  Use IP addresses instead of hostnames."
    );
    let trips = class("</Storage>", "");
    assert_eq!(class_of(&trips).stderr_line(), "Exception encountered during startup.");
    assert!(trips.log_line().starts_with("Exception encountered during startup. test.xml:"));
    assert_eq!(class("<Storage>", "<Storage2>").exit_code(), 3);
    let root = first_error("<Config/>").to_string();
    assert_eq!(root, "test.xml:1: /Config: the root element must be <Storage>");
}

#[test]
fn the_description_shows_every_setting_with_its_source() {
    let loaded = parse(OF_05).unwrap();
    let text = describe(&loaded);
    let size_line = line_of(OF_05, "<MemtableSizeInMB>");
    assert!(text.contains("MemtableThroughputInMB = 96"));
    assert!(text.contains(&format!("line {size_line} (MemtableSizeInMB)")));
    for note in note_texts(&loaded) {
        assert!(text.contains(&note), "{note}");
    }
    // Every setting below /Storage, either with a periodic or with a batch log.
    let batch = OF_05.replace(">periodic<", ">batch<");
    let batch = batch.replace("CommitLogSyncPeriodInMS>", "CommitLogSyncBatchWindowInMS>");
    let text = text + &describe(&parse(&batch).unwrap());
    let elsewhere = ["Keyspaces", "ReplicaPlacementStrategy", "ReplicationFactor"];
    for row in elements::ROWS.iter() {
        let is_shown =
            row.is_setting() && !row.path.contains('/') && !elsewhere.contains(&row.path);
        if is_shown {
            assert!(text.contains(&format!("  {} = ", row.path)), "{} is not shown", row.path);
        }
    }
}

#[test]
fn a_large_file_takes_no_longer_than_its_length() {
    let repeat = |entry: fn(usize) -> String, count| (0..count).map(entry).collect::<String>();
    let families = repeat(|i| format!("<ColumnFamily Name='{i}'/>"), 20_000);
    let keyspaces = repeat(|i| format!("<Keyspace Name='{i}'/>"), 20_000);
    let text = OF_05.replace("</Keyspaces>", &format!("{keyspaces}</Keyspaces>"));
    let text = text.replacen("</Keyspace>", &format!("{families}</Keyspace>"), 1);
    let loaded = parse(&text).unwrap();
    assert_eq!(loaded.settings.keyspaces.len(), 20_002);
    assert_eq!(loaded.settings.keyspace("Radio").unwrap().column_families.len(), 20_001);
    let seeds = repeat(|_| "<Seed>192.0.2.1</Seed>".to_owned(), 1001);
    let error = parse(&OF_06.replace("<Seeds>", &format!("<Seeds>{seeds}"))).unwrap_err();
    assert!(error.to_string().contains("more than 1000 entries"));
}

#[test]
fn the_receive_budget_holds_a_message() {
    let with = |ours: &str| parse(&OF_06.replace("</Storage>", &format!("{ours}</Storage>")));
    let loaded = with("<ThriftMaxMessageInMB>512</ThriftMaxMessageInMB>").unwrap();
    assert_eq!(loaded.settings.thrift.receive_budget_bytes, 512 << 20);
    let small = with("<ThriftReceiveBudgetInMB>63</ThriftReceiveBudgetInMB>").unwrap_err();
    assert!(small.to_string().contains("must be at least ThriftMaxMessageInMB (value is '63')"));
    let large = with("<ThriftMaxMessageInMB>2048</ThriftMaxMessageInMB>").unwrap_err();
    assert!(large.to_string().contains("must be at most 2047 (value is '2048')"));
}

#[test]
fn threads_are_bounded() {
    let many = OF_06.replace(">2</ConcurrentReads>", ">1000000000</ConcurrentReads>");
    assert_ne!(many, OF_06);
    let loaded = parse(&many).unwrap();
    assert_eq!(loaded.settings.storage.concurrent_reads, 1024);
    let is_said = |note: &crate::config::Note| {
        note.text.contains("ConcurrentReads: 1000000000 is taken as 1024")
    };
    assert!(loaded.notes.iter().any(is_said), "{:?}", loaded.notes);
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let sample = prop_oneof![Just(OF_04), Just(OF_05), Just(OF_06), Just(SAMPLE)];
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..8),
        "[<>&;/='\"!\\-\\[\\]a-zA-Z0-9%. ]{0,12}".prop_map(String::into_bytes),
        Just(b"<ThriftPort>".to_vec()),
        Just(b"</Storage>".to_vec()),
        Just("\u{fffd}é".as_bytes().to_vec()),
    ];
    let edits = proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..40, piece), 0..6);
    (sample, edits).prop_map(|(sample, edits)| {
        let mut bytes = sample.as_bytes().to_vec();
        for (index, removed, inserted) in edits {
            let start = index.index(bytes.len() + 1);
            let end = (start + removed).min(bytes.len());
            bytes.splice(start..end, inserted);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_file_makes_the_reader_panic(bytes in mutated()) {
        if let Ok(text) = xml::decode(&bytes, "x") {
            match parse(&text) {
                Ok(loaded) => prop_assert!(!describe(&loaded).is_empty()),
                Err(error) => prop_assert!((1..=3).contains(&error.exit_code()), "{}", error),
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(text) = xml::decode(&bytes, "x") {
            prop_assert!(parse(&text).is_err());
        }
    }
}

#[test]
fn a_network_that_is_none_is_refused_and_a_seed_outside_of_all_is_told() {
    let with = |network: &str| {
        let element = format!("<PeerNetworks><PeerNetwork>{network}</PeerNetwork></PeerNetworks>");
        parse(&OF_06.replace("</Storage>", &format!("{element}</Storage>")))
    };
    let refused = with("10.1.0.0/33").unwrap_err().to_string();
    assert!(refused.contains("allowed: an address, or a network such as 10.1.0.0/16"), "{refused}");
    assert!(!refused.contains("did you mean"), "{refused}");
    let seed = with("203.0.113.0/24").unwrap();
    let is_told =
        |note: &Note| note.text.contains("is in none of PeerNetworks, and may not connect");
    assert!(seed.notes.iter().any(is_told), "{:?}", seed.notes);
    assert!(!with("0.0.0.0/0").unwrap().notes.iter().any(is_told));
}
