//! Connections as drivers and hostile clients use them, with an executor whose answers the tests
//! know.

use super::frame::{self, Head, flag, opcode};
use super::{
    Change, Columns, Cql, CqlError, Event, Events, Execute, Reply, SchemaChange, Session, Work,
};
use crate::base::budget::Budget;
use crate::kit::clock::ManualClock;
use crate::server::{
    Decoded, Limits, Protocol, Refusal, RefusalKind, Room, Server, ServerOptions, listen,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A hang ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest message, in bytes.
const LONGEST: usize = 1 << 20;

/// Answers by the text of a query.
struct Scripted {
    /// Queries `wait` take one of these.
    gate: Semaphore,
    has_users: bool,
}

impl Execute for Scripted {
    async fn execute(
        &self,
        session: &Session,
        work: &Work<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let (Work::Query(text, _) | Work::Prepare(text)) = work else {
            return Err(CqlError::invalid(format!("{work:?}")));
        };
        match *text {
            "wait" => {
                self.gate.acquire().await.unwrap().forget();
                reply.void();
            }
            "void" => reply.void(),
            "panic" => panic!("as it was told"),
            "internal" => return Err(CqlError::server("a secret")),
            "long" => {
                let mut columns = Columns::of_table("k", "t");
                columns.push("c", |out| out.extend_from_slice(&[0, 9]));
                let mut rows = reply.rows(&columns, false);
                for _ in 0..1000 {
                    rows.cell(Some(b"always the same"));
                    rows.end_row();
                }
                rows.finish(None);
            }
            keyspace => {
                session.use_keyspace(keyspace);
                reply.keyspace(keyspace);
            }
        }
        Ok(())
    }

    fn requires_login(&self) -> bool {
        self.has_users
    }

    async fn log_in(
        &self,
        _session: &Session,
        user: String,
        password: String,
    ) -> Result<(), CqlError> {
        if (user.as_str(), password.as_str()) == ("ann", "secret") {
            return Ok(());
        }
        Err(CqlError::new(super::ErrorKind::BadCredentials, "wrong"))
    }
}

fn cql(has_users: bool) -> (Arc<Cql<Scripted>>, Arc<Events>) {
    let events = Arc::<Events>::default();
    let scripted = Scripted { gate: Semaphore::new(0), has_users };
    let cql = Cql::new(scripted, Arc::clone(&events), Arc::new(ManualClock::default()));
    (Arc::new(cql), events)
}

struct Running {
    address: SocketAddr,
    cql: Arc<Cql<Scripted>>,
    events: Arc<Events>,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(has_users: bool) -> Self {
        let mut options = ServerOptions::new(Arc::new(ManualClock::default()));
        options.workers = 1;
        options.memory = Budget::new(64 << 20);
        options.limits = Limits { max_message_bytes: LONGEST, ..Limits::default() };
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let ((cql, events), stop) = (cql(has_users), CancellationToken::new());
        let mut server = Server::new(options);
        server.add(listener.into(), Arc::clone(&cql));
        let serving = tokio::spawn(server.run(stop.clone()));
        Self { address, cql, events, stop, serving }
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), version: 4 }
    }

    /// A connection that is ready for queries.
    async fn ready(&self) -> Client {
        let mut client = self.connect().await;
        client.send(opcode::STARTUP, 0, &startup(&[])).await;
        assert_eq!(client.answer().await.opcode, opcode::READY);
        client
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap().unwrap();
    }
}

struct Client {
    stream: TcpStream,
    version: u8,
}

/// A response.
#[derive(Debug)]
struct Answer {
    version: u8,
    flags: u8,
    stream: i16,
    opcode: u8,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    fn expect_error(&self, code: i32, text: &str) {
        assert_eq!((self.opcode, &self.body[..4]), (opcode::ERROR, &code.to_be_bytes()[..]));
        assert!(self.text().contains(text), "{:?} instead of {text:?}", self.text());
    }
}

fn request(version: u8, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![version, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.push(opcode);
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

fn startup(options: &[(&str, &str)]) -> Vec<u8> {
    let mut body = vec![0, options.len() as u8 + 1];
    for text in [("CQL_VERSION", "3.0.0")].iter().chain(options).flat_map(|(a, b)| [a, b]) {
        body.extend_from_slice(&[0, text.len() as u8]);
        body.extend_from_slice(text.as_bytes());
    }
    body
}

fn query(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes(), &[0, 1, 0]].concat()
}

impl Client {
    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, opcode: u8, stream: i16, body: &[u8]) {
        let frame = request(self.version, 0, stream, opcode, body);
        self.send_bytes(&frame).await;
    }

    async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        tokio::time::timeout(PATIENCE, self.stream.read_exact(&mut bytes)).await.unwrap().unwrap();
        bytes
    }

    async fn answer(&mut self) -> Answer {
        let head = self.read(9).await;
        let length = u32::from_be_bytes(head[5..].try_into().unwrap());
        let stream = i16::from_be_bytes([head[2], head[3]]);
        let body = self.read(length as usize).await;
        Answer { version: head[0], flags: head[1], stream, opcode: head[4], body }
    }

    async fn ask(&mut self, opcode: u8, body: &[u8]) -> Answer {
        self.send(opcode, 7, body).await;
        let answer = self.answer().await;
        assert_eq!((answer.stream, answer.version), (7, 0x80 | self.version));
        answer
    }

    /// Bytes that are sent before the server closes the connection.
    async fn last_words(&mut self) -> Vec<u8> {
        let mut words = Vec::new();
        let end = self.stream.read_to_end(&mut words);
        tokio::time::timeout(PATIENCE, end).await.unwrap().unwrap();
        words
    }
}

#[tokio::test]
async fn a_connection_begins_with_options_or_startup() {
    let server = Running::start(false);
    let mut client = server.connect().await;
    let refused = client.ask(opcode::QUERY, &query("void")).await;
    refused.expect_error(0x0A, "Unexpected message QUERY, expecting STARTUP or OPTIONS");
    let supported = client.ask(opcode::OPTIONS, &[]).await;
    assert_eq!(supported.opcode, opcode::SUPPORTED);
    for text in ["CQL_VERSION", "3.4.4", "COMPRESSION", "lz4", "3/v3", "4/v4"] {
        assert!(supported.text().contains(text), "{}", supported.text());
    }
    client.ask(opcode::STARTUP, &[0, 0]).await.expect_error(0x0A, "Missing value CQL_VERSION");
    let refused = client.ask(opcode::STARTUP, &startup(&[("COMPRESSION", "snappy")])).await;
    refused.expect_error(0x0A, "Unknown compression algorithm: snappy");
    let ready = client.ask(opcode::STARTUP, &startup(&[("DRIVER_NAME", "a test")])).await;
    assert_eq!((ready.opcode, ready.body.len()), (opcode::READY, 0));
    let refused = client.ask(opcode::STARTUP, &startup(&[])).await;
    refused.expect_error(0x0A, "Unexpected message STARTUP, the connection is already initialized");
    assert_eq!(client.ask(opcode::QUERY, &query("void")).await.body, [0, 0, 0, 1]);
    let answer = client.ask(opcode::QUERY, &query("ks")).await;
    assert_eq!(answer.body, b"\0\0\0\x03\0\x02ks");
    server.end().await;
}

#[tokio::test]
async fn clients_of_other_versions_are_told_which_there_are() {
    let server = Running::start(false);
    let mut client = server.connect().await;
    for version in [5, 6, 0x41, 0x42] {
        client.send_bytes(&request(version, 0x10, 3, opcode::STARTUP, &startup(&[]))).await;
        let answer = client.answer().await;
        assert_eq!((answer.version, answer.stream), (0x84, 3));
        let text = format!(
            "Invalid or unsupported protocol version ({version}); supported versions are (3/v3, \
             4/v4)"
        );
        answer.expect_error(0x0A, &text);
    }
    for version in [1, 2] {
        client.send_bytes(&[version, 0, 5, opcode::OPTIONS, 0, 0, 0, 0]).await;
        let head = client.read(8).await;
        assert_eq!(head[..4], [0x80 | version, 0, 5, opcode::ERROR]);
        let body = client.read(head[7].into()).await;
        assert!(String::from_utf8_lossy(&body).contains("unsupported protocol version"));
    }
    // The same connection may go on in a version that there is.
    client.version = 3;
    let ready = client.ask(opcode::STARTUP, &startup(&[])).await;
    assert_eq!((ready.opcode, ready.version), (opcode::READY, 0x83));
    server.end().await;
}

#[tokio::test]
async fn users_log_in() {
    let server = Running::start(true);
    let mut client = server.connect().await;
    let answer = client.ask(opcode::STARTUP, &startup(&[])).await;
    assert_eq!(answer.opcode, opcode::AUTHENTICATE);
    assert!(answer.text().ends_with("org.apache.cassandra.auth.PasswordAuthenticator"));
    let refused = client.ask(opcode::QUERY, &query("void")).await;
    refused.expect_error(0x0A, "Unexpected message QUERY, expecting SASL_RESPONSE");
    let token = |token: &[u8]| [&(token.len() as u32).to_be_bytes()[..], token].concat();
    for (bad, why) in [
        (&b"\0ann\0wrong"[..], "wrong"),
        (b"\0ann\0", "Password must not be null"),
        (b"secret", "Authentication ID must not be null"),
        (b"", "Password must not be null"),
    ] {
        client.ask(opcode::AUTH_RESPONSE, &token(bad)).await.expect_error(0x0100, why);
    }
    let welcome = client.ask(opcode::AUTH_RESPONSE, &token(b"\0ann\0secret")).await;
    assert_eq!((welcome.opcode, &welcome.body[..]), (opcode::AUTH_SUCCESS, &[0xFF; 4][..]));
    assert_eq!(client.ask(opcode::QUERY, &query("hers")).await.opcode, opcode::RESULT);
    server.end().await;
}

#[tokio::test]
async fn bodies_are_compressed_once_that_is_agreed() {
    let server = Running::start(false);
    let plain = server.ready().await.ask(opcode::QUERY, &query("long")).await;
    assert_eq!(plain.flags, 0);
    let mut client = server.connect().await;
    client.ask(opcode::STARTUP, &startup(&[("COMPRESSION", "lz4")])).await;
    assert_eq!(client.ask(opcode::QUERY, &query("void")).await.flags, 0, "little gains nothing");
    let block = lz4_flex::block::compress(&query("long"));
    let body = [&(query("long").len() as u32).to_be_bytes()[..], &block].concat();
    client.send_bytes(&request(4, flag::COMPRESSED, 7, opcode::QUERY, &body)).await;
    let answer = client.answer().await;
    assert_eq!(answer.flags, flag::COMPRESSED);
    assert!(answer.body.len() < plain.body.len() / 10);
    assert_eq!(frame::decompress(&answer.body).unwrap(), plain.body);
    server.end().await;
}

#[tokio::test]
async fn compressed_bodies_that_lie_are_refused() {
    let server = Running::start(false);
    let bomb = (LONGEST as u32 + 1).to_be_bytes();
    let mut client = server.ready().await;
    client.send_bytes(&request(4, flag::COMPRESSED, 1, opcode::QUERY, &[0; 8])).await;
    client.answer().await.expect_error(0x0A, "The frame is compressed, and STARTUP agreed on none");
    let mut client = server.connect().await;
    client.ask(opcode::STARTUP, &startup(&[("COMPRESSION", "lz4")])).await;
    for (body, why) in [
        (&bomb[..], "1 MB are allowed"),
        (b"\0\0", "The compressed body is too short"),
        (b"\0\0\0\x09\x10a", "The body is shorter than it was before compression"),
        (b"\0\0\0\x09\xF0", "The body cannot be decompressed"),
    ] {
        client.send_bytes(&request(4, flag::COMPRESSED, 1, opcode::QUERY, body)).await;
        client.answer().await.expect_error(0x0A, why);
    }
    server.end().await;
}

#[tokio::test]
async fn a_slow_request_does_not_hold_up_later_ones() {
    let server = Running::start(false);
    let mut client = server.ready().await;
    for (stream, text) in [(1, "wait"), (2, "void"), (32_767, "wait"), (3, "void")] {
        client.send(opcode::QUERY, stream, &query(text)).await;
    }
    let [first, second] = [client.answer().await, client.answer().await];
    assert_eq!([first.stream, second.stream], [2, 3]);
    server.cql.executor.gate.add_permits(2);
    let mut streams = [client.answer().await.stream, client.answer().await.stream];
    streams.sort_unstable();
    assert_eq!(streams, [1, 32_767]);
    server.end().await;
}

#[tokio::test]
async fn clients_that_have_registered_are_told_of_events() {
    let server = Running::start(false);
    let (mut client, mut other) = (server.ready().await, server.ready().await);
    let kinds = b"\0\x02\0\x0DSCHEMA_CHANGE\0\x0DSTATUS_CHANGE";
    assert_eq!(client.ask(opcode::REGISTER, kinds).await.opcode, opcode::READY);
    server.events.tell(&Event::Up(SocketAddr::from(([10, 0, 0, 1], 9042))));
    let change = SchemaChange { change: Change::Created, keyspace: "k".into(), target: None };
    server.events.tell(&Event::Schema(change));
    for text in ["STATUS_CHANGE", "SCHEMA_CHANGE"] {
        let event = client.answer().await;
        assert_eq!((event.stream, event.opcode), (-1, opcode::EVENT));
        assert!(event.text().contains(text), "{}", event.text());
    }
    for client in [&mut client, &mut other] {
        assert_eq!(client.ask(opcode::QUERY, &query("void")).await.opcode, opcode::RESULT);
    }
    server.end().await;
}

#[tokio::test]
async fn a_failure_of_ours_is_an_error_without_its_cause() {
    let server = Running::start(false);
    let mut client = server.ready().await;
    for text in ["panic", "internal"] {
        let answer = client.ask(opcode::QUERY, &query(text)).await;
        answer.expect_error(0, "Internal error");
        assert!(!answer.text().contains("secret"));
    }
    assert_eq!(client.ask(opcode::QUERY, &query("void")).await.opcode, opcode::RESULT);
    server.end().await;
}

#[tokio::test]
async fn a_malformed_request_is_an_error_on_its_stream() {
    let server = Running::start(false);
    let mut client = server.ready().await;
    let [mut longer, mut shorter] = [query("void"), query("void")];
    longer.push(0);
    shorter.pop();
    for (code, body, why) in [
        (opcode::QUERY, &longer[..], "1 bytes are left"),
        (opcode::QUERY, &shorter, "The body ends too early"),
        (opcode::EVENT, &[], "Unknown opcode 12"),
        (0x77, &[], "Unknown opcode 119"),
    ] {
        client.ask(code, body).await.expect_error(0x0A, why);
    }
    client.send_bytes(&request(0x84, 0, 9, opcode::RESULT, &[])).await;
    client.answer().await.expect_error(0x0A, "expected REQUEST, got RESPONSE");
    // A payload that this server has no use for.
    let payload = [b"\0\x01\0\x01k\0\0\0\x01v", &query("void")[..]].concat();
    client.send_bytes(&request(4, flag::CUSTOM_PAYLOAD, 9, opcode::QUERY, &payload)).await;
    assert_eq!(client.answer().await.opcode, opcode::RESULT);
    server.end().await;
}

#[tokio::test]
async fn a_request_above_the_limit_is_refused_and_its_connection_ends() {
    let server = Running::start(false);
    let mut client = server.ready().await;
    client.send_bytes(&[4, 0, 0, 3, opcode::QUERY, 0, 0x10, 0, 1]).await;
    let words = client.last_words().await;
    assert_eq!(words[..5], [0x84, 0, 0, 3, opcode::ERROR]);
    assert!(String::from_utf8_lossy(&words).contains("exceeds 1 MB"));
    server.end().await;
}

#[tokio::test]
async fn clients_of_other_protocols_are_turned_away() {
    let server = Running::start(false);
    for hello in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x80\x01\0\x01\0\0\0\x03get",
        b"\0\0\0\x20\x80\x01\0\x01",
        b"\x16\x03\x01\x02\0\x01\0",
        b"\xFF\xFF\xFF\xFF",
    ] {
        let mut client = server.connect().await;
        client.send_bytes(hello).await;
        let mut words = Vec::new();
        // The rest of what it has sent may reset the connection.
        let ended = tokio::time::timeout(PATIENCE, client.stream.read_to_end(&mut words)).await;
        assert!(ended.is_ok() && words.is_empty(), "{hello:?}: {words:?}");
    }
    server.end().await;
}

fn room() -> Room {
    Room { memory: Budget::new(1 << 20), longest: LONGEST, settings: "Thrift" }
}

#[test]
fn a_request_is_refused_when_there_is_no_memory_for_it() {
    let (cql, _) = cql(false);
    let bytes = request(4, 0, 5, opcode::QUERY, &vec![0; 100_000]);
    let room = Room { memory: Budget::new(50_000), ..room() };
    let mut framing = cql.connect(SocketAddr::from(([127, 0, 0, 1], 1))).0;
    let decoded = cql.decode(&mut framing, &bytes, &room);
    assert!(matches!(decoded, Ok(Decoded::NoMemory(100_000))));
    let mut reply = Vec::new();
    let refusal = Refusal { why: "no", kind: RefusalKind::Passing };
    assert_eq!(cql.refuse(&mut framing, &bytes[..9], &refusal, &mut reply), Some("QUERY"));
    assert_eq!(reply[..5], [0x84, 0, 0, 5, opcode::ERROR]);
    assert_eq!(reply[9..13], 0x1001_i32.to_be_bytes());
    let decoded = cql.decode(&mut framing, &bytes, &room);
    assert!(matches!(decoded, Ok(Decoded::PassOver(length)) if length == bytes.len()));
    assert!(matches!(cql.decode(&mut framing, &[], &room), Ok(Decoded::Incomplete)));
    // Drivers keep the connection after this error, and do not try again.
    let refusal = Refusal { kind: RefusalKind::TooLarge, ..refusal };
    reply.clear();
    cql.refuse(&mut framing, &bytes[..9], &refusal, &mut reply);
    assert_eq!(reply[9..13], 0x2200_i32.to_be_bytes());
}

#[test]
fn requests_that_only_read_are_known_by_their_beginning() {
    let (cql, _) = cql(false);
    let only_reads = |code, body: &[u8]| {
        let bytes = request(4, 0, 5, code, body);
        let (mut framing, room) = (cql.connect(SocketAddr::from(([127, 0, 0, 1], 1))).0, room());
        match cql.decode(&mut framing, &bytes, &room) {
            Ok(Decoded::Beside(whole)) => whole.only_reads,
            _ => panic!("it is not about a statement"),
        }
    };
    assert!(only_reads(opcode::QUERY, &query(" \nselect * from t")));
    assert!(!only_reads(opcode::QUERY, &query("update t")));
    assert!(only_reads(opcode::EXECUTE, b"\0\x02\x10\x01\0\x01\0"), "a bit of its id tells");
    assert!(!only_reads(opcode::EXECUTE, b"\0\x02\x01\x10\0\x01\0"));
    assert!(!only_reads(opcode::BATCH, b"\0\0\0\0\x01\0"));
}

/// Frames that a client sends, of which tests damage some bytes.
fn frames() -> Vec<Vec<u8>> {
    let batch = b"\x01\0\x01\x01\0\x02id\0\x01\0\0\0\x01v\0\x05\x20\0\0\0\0\0\0\0\x07";
    let plain = query("a compressed text");
    let block = lz4_flex::block::compress(&plain);
    let compressed = [&(plain.len() as u32).to_be_bytes()[..], &block].concat();
    let kinds = b"\0\x01\0\x0DSCHEMA_CHANGE";
    vec![
        request(4, 0, 1, opcode::STARTUP, &startup(&[("COMPRESSION", "lz4")])),
        request(4, 0, 1, opcode::OPTIONS, &[]),
        request(4, 0, 2, opcode::QUERY, &query("void")),
        request(3, 0, 2, opcode::PREPARE, b"\0\0\0\x04void"),
        request(4, 0, 3, opcode::EXECUTE, b"\0\x02id\0\x01\x01\0\x01\0\0\0\x01v"),
        request(4, 0, 4, opcode::BATCH, batch),
        request(4, flag::COMPRESSED, 5, opcode::QUERY, &compressed),
        request(4, 0, 6, opcode::REGISTER, kinds),
        request(4, 0, 6, opcode::AUTH_RESPONSE, b"\0\0\0\x0B\0ann\0secret"),
        request(5, 0, 6, opcode::STARTUP, &startup(&[])),
    ]
}

/// Feeds a connection, in one piece as after a pause, and answers all that can be.
fn feed(cql: &Cql<Scripted>, bytes: &[u8]) {
    let room = room();
    let (mut framing, session) = cql.connect(SocketAddr::from(([127, 0, 0, 1], 1)));
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let whole = match cql.decode(&mut framing, rest, &room) {
            Ok(Decoded::InPlace(whole) | Decoded::Beside(whole)) => whole,
            Ok(Decoded::PassOver(count)) => {
                assert!(count > 0);
                done += count;
                continue;
            }
            Ok(Decoded::Incomplete | Decoded::NoMemory(_)) | Err(_) => return,
        };
        assert!((1..=rest.len()).contains(&whole.length));
        done += whole.length;
        let mut reply = Vec::new();
        futures_util::FutureExt::now_or_never(cql.answer(&session, &whole.request, &mut reply));
        let head = Head::decode(&reply).expect("each request is answered");
        assert_eq!(head.own_length() + head.length as usize, reply.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_answered_or_end_their_connection(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        version in 3..=4_u8,
        code in 0..16_u8,
    ) {
        let (cql, _) = cql(false);
        feed(&cql, &bytes);
        let mut frames = request(4, 0, 0, opcode::STARTUP, &startup(&[("COMPRESSION", "lz4")]));
        frames.extend(request(version, bytes.len() as u8, 0, code, &bytes));
        feed(&cql, &frames);
    }

    #[test]
    fn damaged_frames_are_answered_or_end_their_connection(
        order in prop::collection::vec(0..10_usize, 1..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        has_users: bool,
    ) {
        let (cql, _) = cql(has_users);
        let frames = frames();
        let mut bytes = frames[0].clone();
        for frame in &order {
            bytes.extend_from_slice(&frames[*frame]);
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        feed(&cql, &bytes);
        feed(&cql, &bytes[..cut.index(bytes.len())]);
    }
}
