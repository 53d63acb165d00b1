//! A tiny protocol, one request per line, whose replies come when they are ready.
//!
//! `NUMBER echo TEXT`, `NUMBER write GATE` and `NUMBER read GATE` are answered beside each other,
//! the latter two when the test opens a gate. `user NAME` is answered in its place, and what
//! follows it is of that user. `NUMBER take BYTES` takes memory.

use super::{
    Close, Decoded, Limits, Protocol, Refusal, Room, Server, ServerOptions, Traffic, TrafficTotals,
    Whole, listen,
};
use crate::base::budget::{Budget, Charge};
use crate::base::latest::Latest;
use crate::kit::clock::ManualClock;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines as Replies};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A hang ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Lines {
    gates: [Gate; 4],
}

struct Gate {
    open: Semaphore,
    /// One more for each request that came, that passed, and that was given up.
    came: Semaphore,
    passed: Semaphore,
    given_up: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        let [open, came, passed, given_up] = [(); 4].map(|()| Semaphore::new(0));
        Self { open, came, passed, given_up }
    }
}

/// A request at a gate.
struct AtGate<'a> {
    gate: &'a Gate,
    has_passed: bool,
}

impl Drop for AtGate<'_> {
    fn drop(&mut self) {
        if self.has_passed { &self.gate.passed } else { &self.gate.given_up }.add_permits(1);
    }
}

/// Takes one permit, soon.
async fn take(permits: &Semaphore) {
    tokio::time::timeout(PATIENCE, permits.acquire()).await.unwrap().unwrap().forget();
}

/// Whether the last request was refused; its line is passed over.
type Refused = bool;

/// A line, with what it takes.
struct Line(String, Option<Charge>);

impl Protocol for Lines {
    type Framing = Refused;
    type Session = Mutex<String>;
    type Request<'a> = Line;

    fn connect(&self, peer: SocketAddr) -> (Refused, Mutex<String>) {
        (false, Mutex::new(peer.ip().to_string()))
    }

    fn decode<'a>(
        &self,
        refused: &mut Refused,
        bytes: &'a [u8],
        room: &'a Room,
    ) -> Result<Decoded<'a, Self>, Close> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > room.longest {
                Err(Close::too_long(bytes.len() as u64, room))
            } else {
                Ok(Decoded::Incomplete)
            };
        };
        if std::mem::take(refused) {
            return Ok(Decoded::PassOver(end + 1));
        }
        let line = std::str::from_utf8(&bytes[..end]);
        let line = line.map_err(|error| Close::malformed(error.to_string()))?.to_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let mut charge = Charge::new(Arc::clone(&room.memory));
        if let [_, "take", bytes] = words[..] {
            let bytes = bytes.parse().unwrap();
            if !charge.try_set(bytes) {
                return Ok(Decoded::NoMemory(bytes));
            }
        }
        let (is_in_place, only_reads) = (words[0] == "user", words[1] == "read");
        let request = Line(line, Some(charge));
        let whole = Whole { request, length: end + 1, only_reads };
        Ok(if is_in_place { Decoded::InPlace(whole) } else { Decoded::Beside(whole) })
    }

    fn refuse(
        &self,
        refused: &mut Refused,
        bytes: &[u8],
        _refusal: &Refusal<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<&'static str> {
        *refused = true;
        let number = bytes.split(|byte| *byte == b' ').next().unwrap();
        reply.extend_from_slice(&[number, b" refused\n"].concat());
        Some("a line")
    }

    async fn answer(
        &self,
        user: &Mutex<String>,
        Line(line, _charge): &Self::Request<'_>,
        reply: &mut Vec<u8>,
    ) {
        let words: Vec<&str> = line.split(' ').collect();
        let text = match words[..] {
            ["user", name] => {
                tokio::task::yield_now().await;
                name.clone_into(&mut user.lock().unwrap());
                format!("hello {name}\n")
            }
            [number, "write" | "read", gate] => {
                let gate = &self.gates[gate.parse::<usize>().unwrap()];
                let mut at = AtGate { gate, has_passed: false };
                gate.came.add_permits(1);
                take(&gate.open).await;
                at.has_passed = true;
                format!("{number} done\n")
            }
            [number, "echo", text] => format!("{number} {text} of {}\n", user.lock().unwrap()),
            [number, ..] => format!("{number} done\n"),
            [] => unreachable!(),
        };
        reply.extend_from_slice(text.as_bytes());
    }
}

struct Running {
    address: SocketAddr,
    limits: Arc<Latest<Limits>>,
    lines: Arc<Lines>,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Running {
    fn start(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let mut options = ServerOptions::new(Arc::new(ManualClock::default()));
        options.workers = 1;
        change(&mut options);
        let limits = Arc::new(Latest::new(options.limits.clone()));
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (lines, stop) = (Arc::<Lines>::default(), CancellationToken::new());
        let mut server = Server::with_limits(options, Arc::clone(&limits));
        server.add(listener.into(), Arc::clone(&lines));
        let serving = tokio::spawn(server.run(stop.clone()));
        Self { address, limits, lines, stop, serving }
    }

    async fn connect(&self) -> Client {
        let (receive, send) = TcpStream::connect(self.address).await.unwrap().into_split();
        Client { send, replies: BufReader::new(receive).lines() }
    }

    fn gate(&self, number: usize) -> &Gate {
        &self.lines.gates[number]
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap().unwrap();
    }
}

struct Client {
    send: OwnedWriteHalf,
    replies: Replies<BufReader<OwnedReadHalf>>,
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.send.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next line; `None` at the end of the connection.
    async fn reply(&mut self) -> Option<String> {
        tokio::time::timeout(PATIENCE, self.replies.next_line()).await.unwrap().unwrap()
    }

    async fn expect(&mut self, reply: &str) {
        assert_eq!(self.reply().await.as_deref(), Some(reply));
    }
}

#[tokio::test]
async fn replies_come_when_they_are_ready() {
    let server = Running::start(|_| ());
    let mut client = server.connect().await;
    client.send("1 write 1\n2 read 2\n3 ec").await;
    take(&server.gate(2).came).await;
    client.send("ho hi\n").await;
    client.expect("3 hi of 127.0.0.1").await;
    server.gate(2).open.add_permits(1);
    client.expect("2 done").await;
    server.gate(1).open.add_permits(1);
    client.expect("1 done").await;
    server.end().await;
}

#[tokio::test]
async fn connections_and_their_bytes_are_counted() {
    let traffic = Arc::<Traffic>::default();
    let server = Running::start(|options| options.traffic = Arc::clone(&traffic));
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    for client in [&mut client, &mut other] {
        client.send("1 echo hi\n").await;
        client.expect("1 hi of 127.0.0.1").await;
    }
    let open = traffic.totals();
    assert_eq!((open.connections, open.open), (2, 2));
    // A client may have a reply before its bytes are counted.
    server.end().await;
    let all = TrafficTotals {
        connections: 2,
        received_bytes: 20,
        sent_bytes: 36,
        ..TrafficTotals::default()
    };
    assert_eq!(traffic.totals(), all);
}

#[tokio::test]
async fn the_number_of_connections_may_change() {
    let server = Running::start(|options| options.limits.max_connections = 1);
    let mut first = server.connect().await;
    first.send("1 write 1\n").await;
    take(&server.gate(1).came).await;
    let mut second = server.connect().await;
    assert_eq!(second.reply().await, None, "there is no room, and none is idle");
    server.limits.set(Limits { max_connections: 2, ..Limits::default() });
    let mut third = server.connect().await;
    third.send("1 echo hi\n").await;
    third.expect("1 hi of 127.0.0.1").await;
    server.gate(1).open.add_permits(1);
    first.expect("1 done").await;
    server.end().await;
}

#[tokio::test]
async fn a_request_in_place_is_over_before_the_next_one_begins() {
    let server = Running::start(|_| ());
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    client.send("1 write 1\nuser ann\n2 echo hi\nuser bob\n3 echo hi\n").await;
    let mut replies = Vec::new();
    for _ in 0..4 {
        replies.push(client.reply().await.unwrap());
    }
    for expected in ["hello ann", "hello bob", "3 hi of bob"] {
        assert!(replies.iter().any(|reply| reply == expected), "{replies:?}");
    }
    other.send("1 echo hi\n").await;
    other.expect("1 hi of 127.0.0.1").await;
    server.gate(1).open.add_permits(1);
    client.expect("1 done").await;
    server.end().await;
}

#[tokio::test]
async fn no_more_requests_are_begun_than_may_be_under_way() {
    let server = Running::start(|options| options.limits.max_requests = 2);
    let mut client = server.connect().await;
    client.send("1 write 1\n2 write 2\n3 write 3\n4 echo hi\n").await;
    take(&server.gate(2).came).await;
    assert_eq!(server.gate(3).came.available_permits(), 0, "it waits in the buffer");
    server.gate(2).open.add_permits(1);
    client.expect("2 done").await;
    take(&server.gate(3).came).await;
    server.gate(1).open.add_permits(1);
    for reply in ["1 done", "4 hi of 127.0.0.1"] {
        client.expect(reply).await;
    }
    server.gate(3).open.add_permits(1);
    client.expect("3 done").await;
    server.end().await;
}

#[tokio::test]
async fn writes_outlive_their_client_and_reads_do_not() {
    let server = Running::start(|_| ());
    let mut client = server.connect().await;
    client.send("1 write 1\n2 read 2\n").await;
    take(&server.gate(1).came).await;
    take(&server.gate(2).came).await;
    drop(client);
    take(&server.gate(2).given_up).await;
    server.gate(1).open.add_permits(1);
    take(&server.gate(1).passed).await;
    server.end().await;
}

#[tokio::test]
async fn a_stopping_server_gives_up_reads_and_sends_the_replies_of_writes() {
    let server = Running::start(|options| options.limits.drain_reads = Duration::ZERO);
    let mut client = server.connect().await;
    client.send("1 write 1\n2 read 2\n").await;
    take(&server.gate(1).came).await;
    take(&server.gate(2).came).await;
    server.stop.cancel();
    take(&server.gate(2).given_up).await;
    server.gate(1).open.add_permits(1);
    client.expect("1 done").await;
    assert_eq!(client.reply().await, None);
    server.end().await;
}

#[tokio::test]
async fn a_request_for_which_there_is_no_memory_is_refused() {
    let server = Running::start(|options| {
        options.memory = Budget::new(4 << 20);
        options.limits.memory_wait = Duration::ZERO;
    });
    let mut client = server.connect().await;
    client.send("1 take 8000000\n2 take 1000\n").await;
    let mut replies = [client.reply().await.unwrap(), client.reply().await.unwrap()];
    replies.sort();
    assert_eq!(replies, ["1 refused", "2 done"]);
    server.end().await;
}

#[tokio::test]
async fn what_is_no_request_ends_its_connection() {
    let server = Running::start(|options| options.limits.max_message_bytes = 1000);
    for bytes in [b"\xFF echo hi\n".as_slice(), &[b'x'; 5000]] {
        let mut client = server.connect().await;
        client.send("1 echo hi\n").await;
        client.expect("1 hi of 127.0.0.1").await;
        client.send.write_all(bytes).await.unwrap();
        assert_eq!(client.reply().await, None);
    }
    server.end().await;
}
