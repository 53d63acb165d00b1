//! Nodes of 0.6, which say and do only what a script has them say and do. What they hear is told.

use crate::kit::disk::SimFileSystem;
use crate::kit::network::Network;
use crate::scripts::repair::host::{Board, Seat};
use crate::scripts::repair::world::{Story, World, address, families, number, spell_token};
use alexandra::model::mutation::MutationBuilder;
use alexandra::net::bodies::{
    StreamFile, StreamFinished, StreamRequest, TreeRequest, TreeResponse, decode_bootstrap_token,
};
use alexandra::net::message::{Header, Message, MessageId, STREAMING_KEYSPACE};
use alexandra::net::messenger::Messenger;
use alexandra::net::{IncomingFile, Verb};
use alexandra::repair::{Host, RingSnapshot};
use alexandra::ring::{Partitioner, RowRange, TokenMetadata, TokenRange};
use alexandra::storage::Database;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

static GO_ON: AtomicBool = AtomicBool::new(false);

pub(super) struct Original {
    node: u8,
    messenger: Arc<Messenger>,
    story: Story,
    partitioner: Partitioner,
    /// A storage for its files and trees.
    storage: Arc<Database>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that a node has announced to it, and that it has not confirmed.
    promised: VecDeque<StreamFile>,
    /// Whether the first of them is here.
    has_come: bool,
    /// Files that it has announced, and that were not confirmed.
    offered: VecDeque<(StreamFile, Vec<u8>)>,
    /// Node that wants a token.
    asked: Option<(IpAddr, MessageId)>,
    /// The tree that it has got last.
    tree: Vec<u8>,
    /// Whether it leaves files where they are, and these.
    takes_none: bool,
    stuck: Vec<DuplexStream>,
}

/// How the bytes of a file come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Well,
    /// All but one byte.
    Short,
    /// One byte too many.
    Long,
    Garbage,
    /// A byte in a second.
    Slowly,
    /// Nothing, and the connection stays open.
    Never,
}

/// The family and the part of a file of an SSTable.
fn file_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut parts = name.trim_end_matches(".db").split('-');
    let (family, part) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
    format!("{family} {part}")
}

/// The keys of all rows of a family.
pub(super) fn keys(storage: &Database, family: &str) -> Result<Vec<String>, String> {
    let [family] = families(storage, Some(family))?[..] else { return Err("which?".into()) };
    let piece = storage.family(family).read_piece(&RowRange::all(), None, usize::MAX).unwrap();
    let mut keys: Vec<String> = piece.rows.iter().map(|(key, _)| key.to_string()).collect();
    keys.sort_unstable();
    Ok(keys)
}

fn fill(storage: &Database, keys: &[String]) {
    let family = families(storage, Some("Authors")).unwrap()[0];
    for key in keys {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
        mutation.family(family).insert((b"", b"name"), b"value", 1);
        storage.apply(&mutation.finish(), true).unwrap();
    }
}

impl Original {
    pub(super) fn start(world: &World, node: u8) -> Arc<Self> {
        let original = Arc::new(Self {
            node,
            messenger: world.messenger(node, &world.network),
            story: world.board.story.clone(),
            partitioner: world.board.partitioner,
            storage: world.open(&SimFileSystem::new(99)),
            state: Mutex::default(),
        });
        let mut arrivals = world.network.messages_to(&[address(node)]);
        let this = Arc::clone(&original);
        tokio::spawn(async move {
            while let Some(payload) = arrivals.recv().await {
                let message = Message::decode(&payload).unwrap();
                let heard = this.hear(&message);
                let (from, verb) = (number(message.from), message.verb);
                this.story.tell(format!("{from} -> {}: {verb:?}{heard}", this.node));
            }
        });
        original
    }

    /// Connections for files are taken from now on.
    pub(super) fn take_files(world: &World) {
        let mut files = world.network.take_files();
        let originals = world.originals.clone();
        tokio::spawn(async move {
            while let Some((to, connection)) = files.recv().await {
                let original = Arc::clone(&originals[&number(to)]);
                tokio::spawn(async move { original.take_file(connection).await });
            }
        });
    }

    /// A message in words.
    fn hear(&self, message: &Message<'_>) -> String {
        let mut state = self.state.lock().unwrap();
        let (schema, body) = (self.storage.schema(), message.body);
        match message.verb {
            Verb::StreamInitiate => {
                let keyspace = message.header(STREAMING_KEYSPACE).unwrap();
                let files = StreamFile::decode(body).unwrap();
                let names: Vec<String> = files.iter().map(|it| file_name(&it.path)).collect();
                (state.promised, state.has_come) = (files.into(), false);
                let names = if names.is_empty() { "nothing".into() } else { names.join(", ") };
                format!(" {}: {names}", String::from_utf8_lossy(keyspace))
            }
            Verb::StreamFinished => {
                let finished = StreamFinished::decode(body).unwrap();
                let is_next = state.offered.front().is_some_and(|(it, _)| it.path == finished.path);
                assert!(is_next, "{finished:?}");
                if finished.is_received {
                    state.offered.pop_front();
                }
                let outcome = if finished.is_received { "received" } else { "to be sent again" };
                format!(" {}: {outcome}", file_name(&finished.path))
            }
            Verb::StreamRequest => {
                let requests = StreamRequest::decode(body, self.partitioner).unwrap();
                let text = |it: &StreamRequest| {
                    let ranges = it.ranges.iter().map(|range| self.spell(range));
                    format!(" {} {}", it.keyspace, ranges.collect::<Vec<_>>().join(" "))
                };
                requests.iter().map(text).collect()
            }
            Verb::TreeRequest => {
                let TreeRequest { family } = TreeRequest::decode(body, schema).unwrap();
                format!(" {}", schema.family(family).name)
            }
            Verb::TreeResponse => {
                let TreeResponse { family, tree } = TreeResponse::decode(body, schema).unwrap();
                state.tree = tree.to_vec();
                format!(" {}", schema.family(family).name)
            }
            Verb::BootstrapToken => {
                state.asked = Some((message.from, message.id.clone()));
                String::new()
            }
            Verb::ReadResponse => format!(" {}", decode_bootstrap_token(body).unwrap()),
            _ => String::new(),
        }
    }

    fn spell(&self, range: &TokenRange) -> String {
        let token = |token| spell_token(self.partitioner, token);
        format!("({}, {}]", token(&range.start), token(&range.end))
    }

    async fn take_file(&self, mut connection: DuplexStream) {
        if self.state.lock().unwrap().takes_none {
            self.story.tell(format!("=> {}: a file, which it does not take", self.node));
            return self.state.lock().unwrap().stuck.push(connection);
        }
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).await.unwrap();
        let mut state = self.state.lock().unwrap();
        let file = state.promised.front().unwrap();
        assert_eq!(bytes.len() as u64, file.length, "{}", file.path);
        let mut name = file_name(&file.path);
        if let Some(family) = name.strip_suffix(" Data") {
            name = format!("{name} with {}", self.rows_of(family, &bytes).join(" "));
        }
        state.has_come = true;
        self.story.tell(format!("=> {}: {name}", self.node));
    }

    /// The keys of the rows in a data file.
    fn rows_of(&self, family: &str, data: &[u8]) -> Vec<String> {
        let id = families(&self.storage, Some(family)).unwrap()[0];
        self.storage.discard_all(id).unwrap();
        let mut spooled = self.storage.spool(id, data.len() as u64).unwrap();
        spooled.append(data).unwrap();
        self.storage.take_in(id, &spooled, &GO_ON).unwrap();
        keys(&self.storage, family).unwrap()
    }

    pub(super) fn take_none(&self) {
        self.state.lock().unwrap().takes_none = true;
    }

    /// Says something to a node.
    pub(super) fn say(&self, to: u8, verb: Verb, headers: Vec<Header<'_>>, body: &[u8]) {
        self.messenger.send_with(verb, headers, body, address(to)).unwrap();
    }

    /// Announces the files of a table of Authors with these rows, or that there is none.
    pub(super) fn announce(
        &self,
        to: u8,
        rows: &[String],
        change: impl Fn(StreamFile) -> StreamFile,
    ) {
        let id = families(&self.storage, Some("Authors")).unwrap()[0];
        self.storage.discard_all(id).unwrap();
        fill(&self.storage, rows);
        let table = self.storage.write_out(id, &[RowRange::all()], &GO_ON).unwrap();
        let mut offered = VecDeque::new();
        for (path, length) in table.iter().flat_map(|table| &table.table().files) {
            let mut bytes = vec![0; *length as usize];
            table.as_ref().unwrap().open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let path = format!("/var/lib/cassandra/data/Blog/stream/10.0.0.1/{name}");
            let mut file = StreamFile { path, length: *length, keyspace: "Blog".into() };
            if name.ends_with("Data.db") {
                file = change(file);
            }
            offered.push_back((file, bytes));
        }
        let files: Vec<StreamFile> = offered.iter().map(|(file, _)| file.clone()).collect();
        self.state.lock().unwrap().offered = offered;
        self.say_files(to, Some("Blog"), &files);
    }

    pub(super) fn say_files(&self, to: u8, keyspace: Option<&str>, files: &[StreamFile]) {
        let name = STREAMING_KEYSPACE;
        let header = keyspace.map(|it| Header { name: name.into(), value: it.as_bytes() });
        let body = StreamFile::encode(files).unwrap();
        self.say(to, Verb::StreamInitiate, header.into_iter().collect(), &body);
    }

    /// Sends the next file, as bytes that come from this node.
    pub(super) async fn send(&self, world: &World, (to, from): (u8, u8), how: Sending) {
        let bytes = self.state.lock().unwrap().offered.front().map(|(_, bytes)| bytes.clone());
        let bytes = bytes.unwrap_or_else(|| b"bytes that nobody has announced".to_vec());
        let whole = |bytes| IncomingFile::new(bytes, tokio::io::empty());
        let (mut writer, reader) = tokio::io::duplex(16);
        let file = match how {
            Sending::Well => whole(bytes),
            Sending::Short => whole(bytes[..bytes.len() - 1].to_vec()),
            Sending::Long => whole([&bytes[..], b"x"].concat()),
            Sending::Garbage => whole(vec![7; bytes.len()]),
            Sending::Never => IncomingFile::new(Vec::new(), reader),
            Sending::Slowly => {
                let rest = bytes[7..].to_vec();
                tokio::spawn(async move {
                    for byte in rest {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        writer.write_u8(byte).await.unwrap();
                    }
                });
                IncomingFile::new(bytes[..7].to_vec(), reader)
            }
        };
        let operations = Arc::clone(&world.nodes[&to].process().operations);
        operations.receive_file(address(from), file).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Sends all files that it has announced.
    pub(super) async fn send_all(&self, world: &World, to: u8) {
        let count = self.state.lock().unwrap().offered.len();
        for _ in 0..count {
            self.send(world, (to, self.node), Sending::Well).await;
        }
    }

    /// Confirms the file that has come, or wants it again.
    pub(super) fn finish(&self, to: u8, is_received: bool) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        let file = state.promised.front().ok_or("no file was announced to it")?.clone();
        if is_received {
            state.promised.pop_front();
        }
        state.has_come = false;
        drop(state);
        self.finish_file(to, &file, is_received);
        Ok(())
    }

    fn finish_file(&self, to: u8, file: &StreamFile, is_received: bool) {
        let StreamFile { path, length, .. } = file.clone();
        let body = StreamFinished { path, length, is_received }.encode().unwrap();
        self.say(to, Verb::StreamFinished, Vec::new(), &body);
    }

    /// Confirms a file that is not on its way.
    pub(super) fn finish_last(&self, to: u8) -> Result<(), String> {
        let last = self.state.lock().unwrap().promised.back().cloned();
        self.finish_file(to, &last.ok_or("no file was announced to it")?, true);
        Ok(())
    }

    /// Takes all files that were announced, one after the other.
    pub(super) async fn take_all(&self, to: u8) -> Result<(), String> {
        self.say(to, Verb::StreamInitiateDone, Vec::new(), b"");
        while !self.state.lock().unwrap().promised.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if !self.state.lock().unwrap().has_come {
                return Err("the next file does not come".to_owned());
            }
            self.finish(to, true)?;
        }
        Ok(())
    }

    /// Asks for all that a node has of a range of some keyspaces.
    pub(super) fn ask(&self, to: u8, keyspaces: &[String], range: &TokenRange) {
        let request = |keyspace: &String| StreamRequest {
            target: address(self.node),
            keyspace: keyspace.clone(),
            ranges: vec![range.clone()],
        };
        let requests: Vec<_> = keyspaces.iter().map(request).collect();
        let body = StreamRequest::encode(&requests, self.partitioner).unwrap();
        self.say(to, Verb::StreamRequest, Vec::new(), &body);
    }

    /// Says a token to the node that has asked for one.
    pub(super) fn answer_token(&self, text: &str) -> Result<(), String> {
        let asked = self.state.lock().unwrap().asked.take();
        let (from, id) = asked.ok_or("nobody has asked it for a token")?;
        self.messenger.reply(from, id, text.as_bytes()).unwrap();
        Ok(())
    }

    pub(super) fn ask_for_tree(&self, to: u8) {
        let family = families(&self.storage, Some("Authors")).unwrap()[0];
        let body = TreeRequest { family }.encode(self.storage.schema()).unwrap();
        self.say(to, Verb::TreeRequest, Vec::new(), &body);
    }

    pub(super) fn send_tree(&self, to: u8, tree: &[u8]) {
        let family = families(&self.storage, Some("Authors")).unwrap()[0];
        let body = TreeResponse { family, tree }.encode(self.storage.schema()).unwrap();
        self.say(to, Verb::TreeResponse, Vec::new(), &body);
    }

    /// Whether this is the tree that it has got last.
    pub(super) fn has_got(&self, tree: &[u8]) -> bool {
        self.state.lock().unwrap().tree == tree
    }

    /// The tree of a node that has these rows: that which a node of ours would send.
    pub(super) async fn tree(&self, world: &World, rows: &[String]) -> Vec<u8> {
        let (network, asking) = (Arc::<Network>::default(), address(1));
        let mut answers = network.messages_to(&[asking]);
        let local = address(self.node);
        let mut ring = TokenMetadata::default();
        ring.insert(World::token(self.partitioner, "1/4"), asking);
        ring.insert(World::token(self.partitioner, "1/2"), local);
        let look = RingSnapshot {
            members: alexandra::gossip::Members { ring, ..Default::default() },
            live: [asking, local].into(),
            ..RingSnapshot::default()
        };
        let board = Board::new(self.partitioner, &Story::default(), look);
        let host: Arc<dyn Host> = Arc::new(Seat { local, board });
        let messenger = world.messenger(self.node, &network);
        let process = world.process(&SimFileSystem::new(9), &messenger, &host);
        fill(&process.storage, rows);
        let family = families(&self.storage, Some("Authors")).unwrap()[0];
        let body = TreeRequest { family }.encode(self.storage.schema()).unwrap();
        let request = Message::new(1.into(), asking, Verb::TreeRequest, &body);
        assert!(process.operations.receive(&request));
        let answer = answers.recv().await.unwrap();
        let answer = Message::decode(&answer).unwrap();
        TreeResponse::decode(answer.body, process.storage.schema()).unwrap().tree.to_vec()
    }
}
