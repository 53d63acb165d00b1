//! A program that embeds a node, and brings a comparator of its own.

use crate::server::calls::{self, Entry, KEYSPACE, Path as ColumnPath, STANDARD};
use crate::server::client::{Client, Value};
use alexandra::assembly;
use alexandra::base::clock::SystemClock;
use alexandra::base::fs::OsFileSystem;
use alexandra::config::{Loader, Settings};
use alexandra::model::comparator::{ComparatorRegistry, CustomComparator};
use alexandra::node::NodeOptions;
use alexandra::storage::database::Components;
use std::cmp::Ordering;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio_util::sync::CancellationToken;

const CLASS: &str = "com.example.ByLength";

/// Shorter names come first.
#[derive(Debug)]
struct ByLength;

impl CustomComparator for ByLength {
    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }

    fn validate(&self, name: &[u8]) -> Result<(), String> {
        if name.len() < 10 { Ok(()) } else { Err("names have less than ten bytes".to_owned()) }
    }

    fn render(&self, name: &[u8]) -> String {
        String::from_utf8_lossy(name).into_owned()
    }
}

fn configuration(directory: &Path) -> String {
    let (directory, locator) = (directory.display(), "org.apache.cassandra.locator");
    format!(
        r#"<Storage>
  <ClusterName>Embedded</ClusterName>
  <Keyspaces>
    <Keyspace Name="{KEYSPACE}">
      <ColumnFamily Name="{STANDARD}" CompareWith="{CLASS}"/>
      <ReplicaPlacementStrategy>{locator}.RackUnawareStrategy</ReplicaPlacementStrategy>
      <ReplicationFactor>1</ReplicationFactor>
      <EndPointSnitch>{locator}.EndPointSnitch</EndPointSnitch>
    </Keyspace>
  </Keyspaces>
  <Partitioner>OrderPreservingPartitioner</Partitioner>
  <CommitLogDirectory>{directory}/commitlog</CommitLogDirectory>
  <SavedCachesDirectory>{directory}/caches</SavedCachesDirectory>
  <DataFileDirectories><DataFileDirectory>{directory}/data</DataFileDirectory></DataFileDirectories>
  <Seeds><Seed>127.0.0.1</Seed></Seeds>
  <ListenAddress>127.0.0.1</ListenAddress>
  <ThriftAddress>127.0.0.1</ThriftAddress>
  <ThriftPort>0</ThriftPort>
  <DiskAccessMode>auto</DiskAccessMode>
  <CommitLogSync>periodic</CommitLogSync>
  <CommitLogSyncPeriodInMS>1000</CommitLogSyncPeriodInMS>
</Storage>"#
    )
}

/// A node on a thread of this process. Stops when dropped.
struct Embedded {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    fn start(settings: Settings) -> Self {
        let stop = CancellationToken::new();
        let (started, address) = mpsc::channel();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let components =
                        Components::new(Arc::new(OsFileSystem), Arc::new(SystemClock::new()));
                    let node =
                        assembly::start(settings, &NodeOptions::default(), components).unwrap();
                    started.send(node.thrift_address()).unwrap();
                    node.run(stop).await.unwrap();
                });
            }
        });
        Self { address: address.recv().unwrap(), stop, thread: Some(thread) }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn names(slice: &[Entry]) -> Vec<String> {
    Entry::columns(slice).map(|c| String::from_utf8(c.name.clone()).unwrap()).collect()
}

#[test]
fn columns_sort_by_a_comparator_of_the_program_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut comparators = ComparatorRegistry::default();
    assert!(comparators.register(Arc::new(ByLength)));
    let settings = || {
        let text = configuration(directory.path());
        Loader::for_server(&comparators).parse(&text, "the test").unwrap().settings
    };
    let sorted = ["z", "aa", "bb", "aaa"];
    let node = Embedded::start(settings());
    let mut client = Client::connect(node.address);
    for name in ["aaa", "bb", "z", "aa"] {
        let path = ColumnPath::column(STANDARD, name.as_bytes());
        client.insert("row", path, b"v", 1).unwrap();
    }
    let too_long = ColumnPath::column(STANDARD, b"a long name");
    let refusal = client.insert("row", too_long, b"v", 1).unwrap_err();
    assert!(refusal.to_string().contains("names have less than ten bytes"), "{refusal}");
    let slice = client.get_slice("row", STANDARD, calls::first(10, false)).unwrap();
    assert_eq!(names(&slice), sorted);
    let description = client.call("describe_keyspace", vec![(1, Value::bytes(KEYSPACE))]);
    assert!(format!("{description:?}").contains(&format!("{:?}", CLASS.as_bytes())));
    drop(node);

    let node = Embedded::start(settings());
    let mut client = Client::connect(node.address);
    let slice = client.get_slice("row", STANDARD, calls::first(3, true)).unwrap();
    assert_eq!(names(&slice), ["aaa", "bb", "aa"]);
}

#[test]
fn two_nodes_in_one_process_do_not_know_of_each_other() {
    let comparators = {
        let mut comparators = ComparatorRegistry::default();
        comparators.register(Arc::new(ByLength));
        comparators
    };
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let nodes = directories.each_ref().map(|directory| {
        let text = configuration(directory.path());
        Embedded::start(Loader::for_server(&comparators).parse(&text, "the test").unwrap().settings)
    });
    let [first, second] = nodes.each_ref().map(|node| node.address);
    let path = ColumnPath::column(STANDARD, b"name");
    Client::connect(first).insert("row", path, b"v", 1).unwrap();
    let read = |address| {
        let slice = Client::connect(address).get_slice("row", STANDARD, calls::first(9, false));
        names(&slice.unwrap())
    };
    assert_eq!(read(first), ["name"]);
    assert!(read(second).is_empty());
}
