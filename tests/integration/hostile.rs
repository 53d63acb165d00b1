//! Clients that are broken, slow, greedy or malicious: they cost no more memory than the limits
//! allow, others are served meanwhile, and the log says in a line what is the matter.
//!
//! `ALEXANDRA_CONNECTIONS` says how many connections attack at a time.

use crate::server::Server;
use crate::server::calls::{self, Entry, Path, STANDARD};
use crate::server::client::{Client, Transport, Value, connect, request, wait_for_end};
use alexandra::base::machine;
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

const MIB: u64 = 1 << 20;

/// `ThriftReceiveBudgetInMB` and `ThriftMaxMessageInMB` of these tests.
const RECEIVE_BUDGET_MIB: u64 = 32;
const MAX_MESSAGE_MIB: usize = 8;

/// Memory of the server beyond its budgets: memtables, threads, buffers of the system calls,
/// and for each of the two connection threads of a core a message twice while its buffer grows,
/// then its record of the commit log.
const MARGIN: u64 = 128 * MIB;

const DEFAULT_CONNECTIONS: usize = 1000;

/// A little more than what any test has open besides the attackers.
const BYSTANDERS: usize = 20;

fn connections() -> usize {
    std::env::var("ALEXANDRA_CONNECTIONS").map_or(DEFAULT_CONNECTIONS, |text| text.parse().unwrap())
}

/// A server with small budgets, and room for all attackers. Its directory goes with it.
struct Target {
    server: Server,
    resident_before: u64,
    _directory: tempfile::TempDir,
}

impl Target {
    fn start() -> Self {
        // Each connection has two ends, one of them here.
        machine::raise_file_limit();
        let directory = tempfile::tempdir().unwrap();
        let options = calls::plain_families()
            .with("ThriftReceiveBudgetInMB", &RECEIVE_BUDGET_MIB.to_string())
            .with("ThriftMaxMessageInMB", &MAX_MESSAGE_MIB.to_string())
            .with("ThriftMaxConnections", &(connections() + BYSTANDERS).to_string());
        let server = Server::start(directory.path(), &options);
        write_and_read(&mut Client::connect(server.thrift_address()), 0);
        let resident_before = server.resident_bytes();
        Self { server, resident_before, _directory: directory }
    }

    fn address(&self) -> SocketAddr {
        self.server.thrift_address()
    }

    /// Runs an attack while another client writes and reads without a failure, also after it.
    fn attack(&self, attack: impl FnOnce()) {
        let (address, is_over) = (self.address(), AtomicBool::new(false));
        let (begin, has_begun) = mpsc::channel();
        thread::scope(|scope| {
            let _over = SetWhenDropped(&is_over);
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for call in 1.. {
                    let is_last = is_over.load(Ordering::SeqCst);
                    write_and_read(&mut client, call);
                    // Only the first is waited for.
                    let _ = begin.send(());
                    if is_last {
                        break;
                    }
                }
            });
            has_begun.recv().expect("the other client is served before the attack");
            attack();
        });
        write_and_read(&mut Client::connect(self.address()), i64::MAX);
    }

    /// The most that the process has ever held is within the budget and the margin.
    #[track_caller]
    fn assert_memory(&self, budget: u64) {
        let growth = self.growth();
        assert!(growth <= budget + MARGIN, "memory grew by {} MiB", growth / MIB);
    }

    /// By how much the process has grown at most.
    fn growth(&self) -> u64 {
        self.server.peak_resident_bytes().saturating_sub(self.resident_before)
    }

    /// A line in the log tells of the attack, and not one for each connection.
    #[track_caller]
    fn assert_logged_once_in_a_while(&self, text: &str, attackers: usize) {
        let lines = self.server.log().matches(text).count();
        assert!(lines >= 1, "{text:?} is not in the log:\n{}", self.server.log_end());
        assert!(lines < attackers.div_ceil(4).max(2), "{lines} lines {text:?}");
    }
}

/// Sets the flag also when the attack panics, so that the other client ends.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn write_and_read(client: &mut Client, timestamp: i64) {
    let path = Path::column(STANDARD, b"column");
    client.insert("bystander", path, b"value", timestamp).unwrap();
    let slice = client.get_slice("bystander", STANDARD, calls::first(1, false)).unwrap();
    assert_eq!(Entry::columns(&slice).next().unwrap().value, b"value");
}

/// Sends what the server takes: it may close at any moment.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    if let Err(error) = stream.write_all(bytes) {
        let closed = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(closed.contains(&error.kind()), "{error}");
    }
}

/// A request that inserts so many bytes.
fn large_insert(length: usize) -> Vec<u8> {
    let column = calls::column(b"large", &vec![b'v'; length], 1);
    let list = Value::list([calls::entry(None, vec![column])]);
    let families = Value::Map(vec![(Value::bytes(STANDARD), list)]);
    let arguments = [Value::bytes(calls::KEYSPACE), Value::bytes("large"), families, Value::I32(1)];
    request("batch_insert", (1..).zip(arguments).collect())
}

/// A request up to the fields of its arguments.
fn call_head(method: &str) -> Vec<u8> {
    let mut bytes = request(method, vec![]);
    // The end of the arguments.
    bytes.pop();
    bytes
}

/// The beginnings of requests that announce two gigabytes, each in another place.
fn announcements() -> Vec<Vec<u8>> {
    let huge = i32::MAX.to_be_bytes();
    let frame = huge.to_vec();
    let frame_and_head = [huge.as_slice(), &call_head("get")].concat();
    let method_name = [b"\x80\x01\x00\x01".as_slice(), &huge].concat();
    let string = [&call_head("get")[..], b"\x0B\x00\x01", &huge, b"some of it"].concat();
    let unknown_field = [&call_head("get")[..], b"\x0B\x00\x63", &huge, b"some of it"].concat();
    vec![frame, frame_and_head, method_name, string, unknown_field]
}

/// The beginnings of requests that announce two thousand million elements. They are too long only
/// when their elements have come, and cost nothing before.
fn announcements_of_elements() -> [Vec<u8>; 2] {
    let huge = i32::MAX.to_be_bytes();
    let list = [&call_head("multiget")[..], b"\x0F\x00\x02\x0B", &huge].concat();
    let map = [&call_head("batch_mutate")[..], b"\x0D\x00\x02\x0B\x0D", &huge].concat();
    [list, map]
}

#[test]
fn connections_that_announce_two_gigabytes_each_are_closed() {
    let target = Target::start();
    let (closing, waiting) = (announcements(), announcements_of_elements());
    target.attack(|| {
        let mut attackers = Vec::new();
        for number in 0..connections() {
            let mut attacker = connect(target.address());
            let is_closed = number % 4 > 0;
            let beginnings = if is_closed { &closing[..] } else { &waiting[..] };
            send(&mut attacker, &beginnings[number / 4 % beginnings.len()]);
            attackers.push((attacker, is_closed));
        }
        for (attacker, is_closed) in &mut attackers {
            if *is_closed {
                assert_eq!(wait_for_end(attacker), 0, "there is no answer to such a request");
            }
        }
    });
    target.assert_memory(RECEIVE_BUDGET_MIB * MIB);
    let line = "it announced 2147483647 bytes, and ThriftMaxMessageInMB allows 8";
    target.assert_logged_once_in_a_while(line, connections());
}

#[test]
fn large_requests_hold_no_more_than_the_receive_budget_and_are_all_answered() {
    let target = Target::start();
    let whole = large_insert((MAX_MESSAGE_MIB - 1) << 20);
    let clients = 8 * RECEIVE_BUDGET_MIB as usize / MAX_MESSAGE_MIB;
    let address = target.address();
    target.attack(|| {
        // The halves together are four times the budget, and all of them are there before any rest.
        let halves = Barrier::new(clients);
        thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    let mut client = connect(address);
                    let (begin, rest) = whole.split_at(whole.len() / 2);
                    send(&mut client, begin);
                    halves.wait();
                    send(&mut client, rest);
                    client.shutdown(Shutdown::Write).unwrap();
                    assert!(wait_for_end(&mut client) > 0, "there is an answer");
                });
            }
        });
    });
    // The memtable keeps the column that was inserted, for a while once more in its old form.
    target.assert_memory((RECEIVE_BUDGET_MIB + 2 * MAX_MESSAGE_MIB as u64) * MIB);
}

#[test]
fn random_bytes_and_damaged_requests_do_no_harm() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let target = Target::start();
    let sound = large_insert(300);
    target.attack(|| {
        for _ in 0..connections() {
            let bytes: Vec<u8> = if rng.bool() {
                (0..rng.usize(..3000)).map(|_| rng.u8(..)).collect()
            } else {
                let mut damaged = sound.clone();
                for _ in 0..rng.usize(1..5) {
                    let at = rng.usize(..damaged.len());
                    damaged[at] = rng.u8(..);
                }
                damaged.truncate(rng.usize(..=damaged.len()));
                damaged
            };
            let mut attacker = connect(target.address());
            send(&mut attacker, &bytes);
            // The server may have closed it already.
            let _ = attacker.shutdown(Shutdown::Write);
            wait_for_end(&mut attacker);
        }
    });
    target.assert_memory(RECEIVE_BUDGET_MIB * MIB);
    target.assert_logged_once_in_a_while("no message", connections());
}

#[test]
fn nesting_without_end_closes_the_connection() {
    let target = Target::start();
    let deep = |kind: &[u8]| [call_head("get"), kind.repeat(100_000)].concat();
    // An unknown field that is a struct with such a field, and so on; the same with lists.
    let structs = deep(b"\x0C\x00\x63");
    let lists =
        [&deep(b"")[..], b"\x0F\x00\x63", &b"\x0F\x00\x00\x00\x01".repeat(100_000)].concat();
    target.attack(|| {
        for bytes in [&structs, &lists] {
            let mut attacker = connect(target.address());
            send(&mut attacker, bytes);
            assert_eq!(wait_for_end(&mut attacker), 0);
        }
    });
    target.assert_memory(RECEIVE_BUDGET_MIB * MIB);
}

#[test]
fn clients_that_send_byte_by_byte_are_served_in_the_end() {
    let target = Target::start();
    let message = large_insert(300);
    let framed = [&(message.len() as i32).to_be_bytes(), &message[..]].concat();
    target.attack(|| {
        for bytes in [&message, &framed] {
            let mut slow: Vec<TcpStream> = (0..20).map(|_| connect(target.address())).collect();
            for byte in bytes {
                for client in &mut slow {
                    client.write_all(&[*byte]).unwrap();
                }
            }
            for mut client in slow {
                client.shutdown(Shutdown::Write).unwrap();
                assert!(wait_for_end(&mut client) > 0, "there is an answer");
            }
        }
    });
    target.assert_memory(RECEIVE_BUDGET_MIB * MIB);
}

#[test]
fn idle_connections_are_cheap() {
    const IDLE_BYTES: u64 = 16 << 10;
    let target = Target::start();
    let idle: Vec<TcpStream> = (0..connections())
        .map(|_| {
            let mut stream = connect(target.address());
            stream.write_all(&request("describe_version", vec![])).unwrap();
            let mut reply = [0; 1];
            std::io::Read::read_exact(&mut stream, &mut reply).unwrap();
            stream
        })
        .collect();
    for transport in [Transport::Unframed, Transport::Framed] {
        let mut client = Client::connect_as(target.address(), transport);
        assert_eq!(client.describe_version().unwrap(), "2.2.0");
        write_and_read(&mut client, 1);
    }
    let (growth, allowed) = (target.growth(), idle.len() as u64 * IDLE_BYTES + 16 * MIB);
    assert!(growth <= allowed, "{} idle connections: {} KiB", idle.len(), growth >> 10);
}

#[test]
fn clients_that_never_read_cost_a_bounded_amount_and_hold_up_nobody() {
    // What the server keeps of replies that wait for their clients.
    const UNSENT_BUDGET_MIB: u64 = 256;
    const ATTACKERS: usize = 200;
    const REPLY_MIB: u64 = 6;
    // `ConcurrentReads`, unless it is configured.
    const READERS: u64 = 8;
    let target = Target::start();
    let mut client = Client::connect(target.address());
    let value = vec![b'v'; 1 << 20];
    for number in 0..REPLY_MIB as u8 {
        client.insert("wide", Path::column(STANDARD, &[number]), &value, 1).unwrap();
    }
    let arguments = calls::get_slice_arguments("wide", STANDARD, calls::first(calls::ALL, false));
    let slices = request("get_slice", arguments).repeat(20);
    target.attack(|| {
        let attackers: Vec<TcpStream> = (0..ATTACKERS)
            .map(|_| {
                let mut attacker = connect(target.address());
                send(&mut attacker, &slices);
                attacker
            })
            .collect();
        // A beginning of its reply shows that the server has come to a client.
        for attacker in &attackers {
            attacker.peek(&mut [0]).unwrap();
        }
        write_and_read(&mut Client::connect(target.address()), 1);
    });
    // Those under way when the budget was used up go beyond it: one per worker, and as many as
    // threads read, each with what it found and what is written of it.
    let under_way = READERS * 2 * REPLY_MIB;
    target.assert_memory((UNSENT_BUDGET_MIB + RECEIVE_BUDGET_MIB + under_way) * MIB);
    target.assert_logged_once_in_a_while("it does not read its reply at once", ATTACKERS);
}
