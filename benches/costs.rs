//! Allocations of one call, through the Thrift port of a node in this process: the difference
//! between two loops of calls, divided by their number.
//!
//! `cargo bench --bench costs` prints a table. `costs CALL COUNT` makes that many calls and ends:
//! `benches/instructions.sh` runs it under callgrind, and prints user instructions for each call.
#![allow(clippy::print_stdout, reason = "a bench tells its figures")]

use alexandra::assembly;
use alexandra::base::clock::SystemClock;
use alexandra::base::fs::OsFileSystem;
use alexandra::config::{Loader, Settings};
use alexandra::model::comparator::ComparatorRegistry;
use alexandra::node::NodeOptions;
use alexandra::storage::database::Components;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Calls of each loop of the table.
const CALLS: usize = 5000;

/// Calls before anything is counted, so that buffers have their size.
const WARM_UP: usize = 500;

const COLUMNS: usize = 5;
const ROWS: usize = 10;
const VALUE: &[u8] = b"a value of thirty-four bytes, yes.";
const ONE: i32 = 1;

/// The types of the binary protocol.
const STRING: u8 = 11;
const STRUCT: u8 = 12;
const MAP: u8 = 13;
const LIST: u8 = 15;
const I32: u8 = 8;
const I64: u8 = 10;

/// A message of the binary protocol, unframed.
struct Call(Vec<u8>);

impl Call {
    fn new(name: &str) -> Self {
        let mut call = Self(vec![0x80, 1, 0, 1]);
        call.string(name.as_bytes());
        call.0.extend(0_i32.to_be_bytes());
        call
    }

    fn string(&mut self, text: &[u8]) {
        self.count(text.len());
        self.0.extend(text);
    }

    fn count(&mut self, count: usize) {
        self.0.extend(i32::try_from(count).expect("calls are small").to_be_bytes());
    }

    fn field(&mut self, kind: u8, id: u8) -> &mut Self {
        self.0.extend([kind, 0, id]);
        self
    }

    fn text_field(&mut self, id: u8, text: &str) {
        self.field(STRING, id).string(text.as_bytes());
    }

    fn level_field(&mut self, id: u8) {
        self.field(I32, id).0.extend(ONE.to_be_bytes());
    }

    fn end(&mut self) {
        self.0.push(0);
    }

    fn column(&mut self, number: usize) {
        self.field(STRING, 1).string(format!("C{number}").as_bytes());
        self.field(STRING, 2).string(VALUE);
        self.field(I64, 3).0.extend(1_i64.to_be_bytes());
        self.end();
    }

    fn path(&mut self, id: u8, column: bool) {
        self.field(STRUCT, id).text_field(3, "Standard1");
        if column {
            self.field(STRING, 5).string(b"C0");
        }
        self.end();
    }

    fn all_columns(&mut self, id: u8) {
        self.field(STRUCT, id).field(STRUCT, 2);
        self.field(STRING, 1).string(b"");
        self.field(STRING, 2).string(b"");
        self.0.extend([2, 0, 3, 0]);
        self.field(I32, 4).0.extend(100_i32.to_be_bytes());
        self.end();
        self.end();
    }
}

fn ping() -> Call {
    let mut call = Call::new("describe_version");
    call.end();
    call
}

fn get() -> Call {
    let mut call = Call::new("get");
    call.text_field(1, "Keyspace1");
    call.text_field(2, "row0");
    call.path(3, true);
    call.level_field(4);
    call.end();
    call
}

fn get_slice() -> Call {
    let mut call = Call::new("get_slice");
    call.text_field(1, "Keyspace1");
    call.text_field(2, "row0");
    call.path(3, false);
    call.all_columns(4);
    call.level_field(5);
    call.end();
    call
}

fn multiget_slice() -> Call {
    let mut call = Call::new("multiget_slice");
    call.text_field(1, "Keyspace1");
    call.field(LIST, 2).0.push(STRING);
    call.count(ROWS);
    for row in 0..ROWS {
        call.string(format!("row{row}").as_bytes());
    }
    call.path(3, false);
    call.all_columns(4);
    call.level_field(5);
    call.end();
    call
}

fn insert() -> Call {
    let mut call = Call::new("insert");
    call.text_field(1, "Keyspace1");
    call.text_field(2, "row0");
    call.path(3, true);
    call.field(STRING, 4).string(VALUE);
    call.field(I64, 5).0.extend(1_i64.to_be_bytes());
    call.level_field(6);
    call.end();
    call
}

fn batch_mutate() -> Call {
    let mut call = Call::new("batch_mutate");
    call.text_field(1, "Keyspace1");
    call.field(MAP, 2).0.extend([STRING, MAP]);
    call.count(ROWS);
    for row in 0..ROWS {
        call.string(format!("row{row}").as_bytes());
        call.0.extend([STRING, LIST]);
        call.count(1);
        call.string(b"Standard1");
        call.0.push(STRUCT);
        call.count(COLUMNS);
        for column in 0..COLUMNS {
            call.field(STRUCT, 1).field(STRUCT, 1).column(column);
            call.end();
            call.end();
        }
    }
    call.level_field(3);
    call.end();
    call
}

const NAMES: [&str; 6] = ["ping", "get", "get_slice", "multiget_slice", "insert", "batch_mutate"];

fn call(name: &str) -> Option<Call> {
    Some(match name {
        "ping" => ping(),
        "get" => get(),
        "get_slice" => get_slice(),
        "multiget_slice" => multiget_slice(),
        "insert" => insert(),
        "batch_mutate" => batch_mutate(),
        _ => return None,
    })
}

/// Makes one call again and again. All answers to it have one length.
struct Caller {
    stream: TcpStream,
    call: Call,
    answer: Vec<u8>,
}

impl Caller {
    fn new(address: SocketAddr, call: Call) -> Result<Self, Box<dyn Error>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&call.0)?;
        let mut answer = vec![0; 1 << 16];
        let mut length = stream.read(&mut answer)?;
        stream.set_nonblocking(true)?;
        std::thread::sleep(std::time::Duration::from_millis(100));
        while let Ok(more) = stream.read(&mut answer[length..]) {
            length += more;
        }
        stream.set_nonblocking(false)?;
        answer.truncate(length);
        if answer.get(3) != Some(&2) {
            return Err(format!("not a reply: {}", String::from_utf8_lossy(&answer)).into());
        }
        let mut caller = Self { stream, call, answer };
        caller.make(WARM_UP)?;
        Ok(caller)
    }

    fn make(&mut self, calls: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..calls {
            self.stream.write_all(&self.call.0)?;
            self.stream.read_exact(&mut self.answer)?;
        }
        Ok(())
    }
}

fn settings(directory: &Path) -> Result<Settings, Box<dyn Error>> {
    let (directory, locator) = (directory.display(), "org.apache.cassandra.locator");
    let text = format!(
        r#"<Storage>
  <ClusterName>Costs</ClusterName>
  <Keyspaces>
    <Keyspace Name="Keyspace1">
      <ColumnFamily Name="Standard1" CompareWith="BytesType"/>
      <ReplicaPlacementStrategy>{locator}.RackUnawareStrategy</ReplicaPlacementStrategy>
      <ReplicationFactor>1</ReplicationFactor>
      <EndPointSnitch>{locator}.EndPointSnitch</EndPointSnitch>
    </Keyspace>
  </Keyspaces>
  <Partitioner>org.apache.cassandra.dht.RandomPartitioner</Partitioner>
  <CommitLogDirectory>{directory}/commitlog</CommitLogDirectory>
  <DataFileDirectories><DataFileDirectory>{directory}/data</DataFileDirectory></DataFileDirectories>
  <Seeds><Seed>127.0.0.1</Seed></Seeds>
  <ListenAddress>127.0.0.1</ListenAddress>
  <StoragePort>0</StoragePort>
  <ThriftAddress>127.0.0.1</ThriftAddress>
  <ThriftPort>0</ThriftPort>
  <DiskAccessMode>auto</DiskAccessMode>
  <CommitLogSync>periodic</CommitLogSync>
  <CommitLogSyncPeriodInMS>10000</CommitLogSyncPeriodInMS>
</Storage>"#
    );
    let comparators = ComparatorRegistry::default();
    Ok(Loader::for_server(&comparators).parse(&text, "the bench")?.settings)
}

/// Runs a node on a thread of its own while `work` does something at its Thrift port.
fn with_node(
    work: impl FnOnce(SocketAddr) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let settings = settings(directory.path())?;
    let stop = CancellationToken::new();
    let (started, address) = mpsc::channel();
    let ends = stop.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(async {
            let components = Components::new(Arc::new(OsFileSystem), Arc::new(SystemClock::new()));
            let node = assembly::start(settings, &NodeOptions::default(), components);
            let node = node.expect("the node starts");
            started.send(node.thrift_address()).expect("somebody waits for it");
            node.run(ends).await.expect("the node runs");
        });
    });
    let done = work(address.recv()?);
    stop.cancel();
    thread.join().map_err(|_| "the node ended in a panic")?;
    done
}

fn table(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    Caller::new(address, batch_mutate())?;
    println!("{:<16}{:>14}{:>14}", "call", "allocations", "bytes");
    for name in NAMES {
        let mut caller = Caller::new(address, call(name).ok_or("a call of the table")?)?;
        let region = Region::new(ALLOCATOR);
        caller.make(CALLS)?;
        let used = region.change();
        let each = |count: usize| count as f64 / CALLS as f64;
        let allocations = each(used.allocations + used.reallocations);
        println!("{name:<16}{allocations:>14.1}{:>14.0}", each(used.bytes_allocated));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let [name, count] = &arguments[..] else { return with_node(table) };
    let wanted = call(name).ok_or_else(|| format!("calls are {}", NAMES.join(", ")))?;
    let count = count.parse()?;
    with_node(|address| {
        Caller::new(address, batch_mutate())?;
        Caller::new(address, wanted)?.make(count)
    })
}
