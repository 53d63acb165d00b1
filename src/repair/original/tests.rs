//! A node of this program, and others that speak as nodes of 0.6 do: their messages and files go
//! by a network of the test, and time passes when all wait.

mod incoming;
mod outgoing;
mod trees;

use crate::base::clock::{Clock, ManualClock};
use crate::base::events::Events;
use crate::base::fs::FileSystem;
use crate::base::sim_fs::SimFileSystem;
use crate::model::comparator::Comparator;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::net::bodies::{StreamFile, StreamFinished};
use crate::net::message::{Header, Message, STREAMING_KEYSPACE};
use crate::net::messenger::Messenger;
use crate::net::{Channel, Doing, FileConnection, IncomingFile, Transport, Verb};
use crate::repair::host::{Announced, Host, Place, RingLook};
use crate::repair::{Operations, OperationsOptions};
use crate::replica::Blocking;
use crate::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, RowRange, Snitch, Token, TokenMetadata,
};
use crate::storage::Storage;
use crate::storage::engine::{Components, OutgoingTable};
use crate::storage::options::{FamilyOptions, Options};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

const ROWS: FamilyId = FamilyId(0);

const OURS: [u8; 4] = [10, 0, 0, 1];
const ORIGINAL: [u8; 4] = [10, 0, 0, 2];

/// The time of the runtime, which moves only when all wait.
#[derive(Debug)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now_micros(&self) -> i64 {
        self.0.elapsed().as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Brings everything to the one peer.
#[derive(Debug)]
struct Network {
    messages: mpsc::UnboundedSender<Arc<[u8]>>,
    files: mpsc::UnboundedSender<DuplexStream>,
    refuses_files: AtomicBool,
}

impl Transport for Network {
    fn send(&self, _to: IpAddr, _channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        self.messages.send(message).unwrap();
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}

    fn dial_for_file(&self, _to: IpAddr) -> Doing<'_, io::Result<FileConnection>> {
        Box::pin(async {
            if self.refuses_files.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(4096);
            self.files.send(theirs).unwrap();
            Ok(Box::pin(ours) as FileConnection)
        })
    }
}

/// Who is there.
#[derive(Debug)]
struct Known(Mutex<RingLook>);

impl Host for Known {
    fn look(&self) -> RingLook {
        self.0.lock().unwrap().clone()
    }

    fn announce(&self, _place: &Place) {
        panic!("nobody changes the ring here")
    }

    fn learn(&self, _: &[crate::gossip::NodePlace]) {}

    fn be_placed(&self) {}

    fn serve_reads(&self) {
        panic!("nobody changes the ring here")
    }

    fn settle(&self) {
        panic!("nobody changes the ring here")
    }

    fn said(&self) -> Announced {
        panic!("nobody changes the ring here")
    }

    fn has_heard(&self, _of: IpAddr, _announced: Announced) -> bool {
        true
    }

    fn is_quiet(&self) -> bool {
        true
    }
}

/// A node, and what comes out of it for its peer.
struct Scene {
    fs: SimFileSystem,
    storage: Arc<Storage>,
    messenger: Arc<Messenger>,
    operations: Arc<Operations>,
    network: Arc<Network>,
    known: Arc<Known>,
    messages: mpsc::UnboundedReceiver<Arc<[u8]>>,
    files: mpsc::UnboundedReceiver<DuplexStream>,
}

/// What a message says, without who sent it.
type Said = (Verb, Vec<u8>, Vec<(String, Vec<u8>)>);

fn open(fs: &SimFileSystem) -> Arc<Storage> {
    let components = Components {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(ManualClock::default()),
        events: Events::ignored(),
    };
    let family = |keyspace: &str, name: &str| {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = (keyspace.into(), name.into());
        Arc::new(ColumnFamilySchema { keyspace, name, kind, comment: None })
    };
    let families = [("Blog", "Rows"), ("Blog", "More"), ("Other", "Things")];
    let schema = Arc::new(Schema::new(families.map(|(keyspace, name)| family(keyspace, name))));
    let options = Options {
        segment_bytes: 1 << 20,
        block_cache_bytes: 1 << 20,
        ..Options::new("/data", "/log")
    };
    let family = |_| FamilyOptions { max_compaction_threshold: 0, ..FamilyOptions::default() };
    let partitioner = Partitioner::Random;
    Arc::new(Storage::open(components, options, partitioner, schema, family).unwrap())
}

fn insert(storage: &Storage, keyspace: &str, family: FamilyId, key: &str, value: &[u8]) {
    let mut mutation = MutationBuilder::new(storage.schema(), keyspace, key.as_bytes());
    mutation.family(family).insert((b"", b"name"), value, 1);
    storage.apply(&mutation.finish(), true).unwrap();
}

/// The keys of all rows.
fn keys(storage: &Storage, family: FamilyId) -> Vec<String> {
    let piece = storage.read_piece(family, &RowRange::all(), None, usize::MAX).unwrap();
    let mut keys: Vec<String> = piece.rows.iter().map(|(key, _)| key.to_string()).collect();
    keys.sort_unstable();
    keys
}

impl Scene {
    fn new() -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let (file_sender, files) = mpsc::unbounded_channel();
        let refuses_files = AtomicBool::new(false);
        let network = Arc::new(Network { messages: sender, files: file_sender, refuses_files });
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(Instant::now()));
        let timeout = Duration::from_secs(10);
        let transport = Arc::clone(&network) as _;
        let messenger = Messenger::new(OURS.into(), timeout, Arc::clone(&clock), transport);
        let messenger = Arc::new(messenger);
        let fs = SimFileSystem::new(1);
        let storage = open(&fs);
        let strategy = ReplicationStrategy::RackUnaware;
        let (replication_factor, snitch) = (2, Snitch::EndPoint);
        let placement = || ReplicaPlacement {
            strategy: strategy.clone(),
            replication_factor,
            snitch: snitch.clone(),
        };
        let placements = ["Blog", "Other"].map(|keyspace| (keyspace.to_owned(), placement()));
        let operations = Operations::new(OperationsOptions {
            local: OURS.into(),
            storage: Arc::clone(&storage),
            messenger: Arc::clone(&messenger),
            placements: BTreeMap::from(placements),
            clock,
            blocking: Blocking::Inline,
            bytes_per_second: None,
            seed: 1,
        });
        let mut ring = TokenMetadata::default();
        ring.insert(Token::Random(1 << 125), OURS.into());
        ring.insert(Token::Random(1 << 126), ORIGINAL.into());
        let known = Arc::new(Known(Mutex::new(RingLook {
            members: crate::gossip::Members { ring, ..Default::default() },
            live: [OURS, ORIGINAL].map(IpAddr::from).into(),
            callable: [IpAddr::from(OURS)].into(),
            local: Some(OURS.into()),
            ..RingLook::default()
        })));
        Self { fs, storage, messenger, operations, network, known, messages, files }
    }

    fn host(&self) -> Arc<dyn Host> {
        Arc::clone(&self.known) as _
    }

    /// The peer says something.
    fn say(&self, verb: Verb, headers: &[(&str, &[u8])], body: &[u8]) {
        self.say_as(ORIGINAL.into(), verb, headers, body);
    }

    fn say_as(&self, from: IpAddr, verb: Verb, headers: &[(&str, &[u8])], body: &[u8]) {
        let headers = headers.iter().map(|(name, value)| Header { name: (*name).into(), value });
        let headers = headers.collect();
        let message = Message { headers, ..Message::new(7.into(), from, verb, body) };
        assert!(self.operations.receive(&message, &self.host()));
    }

    /// What the node has said to the peer next.
    async fn hear(&mut self) -> Said {
        let payload = self.messages.recv().await.unwrap();
        let Message { verb, headers, body, .. } = Message::decode(&payload).unwrap();
        let header = |it: &Header<'_>| (it.name.clone().into_owned(), it.value.to_vec());
        (verb, body.to_vec(), headers.iter().map(header).collect())
    }

    /// Whether the node says nothing, however long one waits.
    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_mins(1), self.messages.recv()).await.is_err()
    }

    async fn hear_finished(&mut self) -> StreamFinished {
        let (verb, body, _) = self.hear().await;
        assert_eq!(verb, Verb::StreamFinished);
        StreamFinished::decode(&body).unwrap()
    }

    /// The peer announces files of a keyspace.
    fn announce(&self, keyspace: &str, files: &[StreamFile]) {
        self.announce_as(ORIGINAL.into(), keyspace, files);
    }

    fn announce_as(&self, from: IpAddr, keyspace: &str, files: &[StreamFile]) {
        let header = (STREAMING_KEYSPACE, keyspace.as_bytes());
        let body = StreamFile::encode(files).unwrap();
        self.say_as(from, Verb::StreamInitiate, &[header], &body);
    }

    /// A connection of the peer brings these bytes, and ends.
    async fn send_file(&self, bytes: &[u8]) {
        let file = IncomingFile::new(bytes.to_vec(), tokio::io::empty());
        self.operations.receive_file(ORIGINAL.into(), file).await;
    }

    /// Files in the data directory that are not SSTables.
    fn left_over(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in ["/data/Blog", "/data/Blog/stream", "/data/Other", "/data/Other/stream"] {
            let entries = self.fs.list(Path::new(folder)).unwrap_or_default();
            names.extend(entries.into_iter().filter(|it| !it.is_dir).map(|it| it.name));
        }
        names.retain(|name| name.contains("tmp") || name.contains("Data"));
        names
    }

    /// The peer is started anew, and remembers nothing.
    fn restart(&self) {
        *self.known.0.lock().unwrap().generations.entry(ORIGINAL.into()).or_default() += 1;
    }

    fn die(&self) {
        self.known.0.lock().unwrap().live.remove(&IpAddr::from(ORIGINAL));
    }
}

/// All bytes of a connection.
async fn read(mut connection: DuplexStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// A table of the peer: its files as they are announced, and their bytes.
struct PeerTable {
    files: Vec<StreamFile>,
    bytes: Vec<Vec<u8>>,
}

/// What a peer has that has these rows.
fn peer_table(keys: &[&str]) -> PeerTable {
    let storage = open(&SimFileSystem::new(9));
    for key in keys {
        insert(&storage, "Blog", ROWS, key, &[b'v'; 3000]);
    }
    let go_on = AtomicBool::new(false);
    let table: OutgoingTable =
        storage.write_out(ROWS, &[RowRange::all()], &go_on).unwrap().unwrap();
    let mut peer = PeerTable { files: Vec::new(), bytes: Vec::new() };
    for (path, length) in &table.table().files {
        let mut bytes = vec![0; *length as usize];
        table.open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let path = format!("/var/lib/cassandra/data/Blog/stream/10.0.0.1/{name}");
        peer.files.push(StreamFile { path, length: *length, keyspace: "Blog".into() });
        peer.bytes.push(bytes);
    }
    peer
}
