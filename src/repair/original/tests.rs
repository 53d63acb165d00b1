//! A node of this program, and others that speak as nodes of 0.6 do: their messages and files go
//! by a network of the test, and time passes when all wait.

mod incoming;
mod outgoing;
mod trees;

use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;
use crate::kit::network::{Arrivals, Network, RuntimeClock};
use crate::model::mutation::MutationBuilder;
use crate::model::schema::FamilyId;
use crate::net::bodies::{StreamFile, StreamFinished};
use crate::net::message::{Header, Message, STREAMING_KEYSPACE};
use crate::net::messenger::Messenger;
use crate::net::{IncomingFile, Verb};
use crate::repair::Operations;
use crate::repair::host::Host;
use crate::repair::tests::network::{self, Known, standard};
use crate::ring::{Partitioner, RowRange, Token};
use crate::storage::Storage;
use crate::storage::engine::OutgoingTable;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::io::{AsyncReadExt, DuplexStream};

const ROWS: FamilyId = FamilyId(0);

const OURS: [u8; 4] = [10, 0, 0, 1];
const ORIGINAL: [u8; 4] = [10, 0, 0, 2];
const OTHER_ORIGINAL: [u8; 4] = [10, 0, 0, 4];

/// A node, and what comes out of it for its peer.
struct Scene {
    fs: SimFileSystem,
    storage: Arc<Storage>,
    messenger: Arc<Messenger>,
    operations: Arc<Operations>,
    network: Arc<Network>,
    known: Arc<Known>,
    messages: Arrivals<Arc<[u8]>>,
    files: Arrivals<DuplexStream>,
}

/// What a message says, without who sent it.
type Said = (Verb, Vec<u8>, Vec<(String, Vec<u8>)>);

fn open(fs: &SimFileSystem) -> Arc<Storage> {
    let families = [("Blog", "Rows"), ("Blog", "More"), ("Other", "Things")];
    let families = families.map(|(keyspace, name)| (keyspace, name, standard()));
    network::open(fs, Partitioner::Random, families)
}

fn insert(
    storage: &Storage,
    keyspace: &str,
    family: FamilyId,
    key: impl AsRef<[u8]>,
    value: &[u8],
) {
    let mut mutation = MutationBuilder::new(storage.schema(), keyspace, key.as_ref());
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
        let (network, clock) = (Arc::<Network>::default(), RuntimeClock::start());
        let messages = network.messages_to(&[ORIGINAL.into(), OTHER_ORIGINAL.into()]);
        let files = network.take_files();
        let messenger = network::messenger(OURS.into(), &network, &clock);
        let fs = SimFileSystem::new(1);
        let storage = open(&fs);
        let operations = network::operations(&storage, &messenger, 2, &clock, 1);
        let members =
            [(Token::Random(1 << 125), OURS.into()), (Token::Random(1 << 126), ORIGINAL.into())];
        let known = Known::of(OURS.into(), &members, [OURS.into()].into());
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
