//! The Thrift border over TCP: real listeners, and replies judged by the stock Thrift library.

mod client;
mod generations;
mod service;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::kit::clock::ManualClock;
use alexandra::base::budget::Budget;
use alexandra::server::ServerOptions;
use alexandra::thrift::encode::encode_field;
use alexandra::thrift::idl::*;
use alexandra::thrift::{Each, Encode, List, Map, Text};
use client::{Client, Running, Value, call, frame, old_call};
use thrift::protocol::{
    TBinaryOutputProtocol, TFieldIdentifier, TMessageIdentifier, TMessageType, TOutputProtocol,
    TType,
};
use thrift::transport::TFramedWriteTransport;
use tokio::sync::Semaphore;

/// The log lines of all servers of this process.
static LOG: Log = Log(Mutex::new(vec![]));

struct Log(Mutex<Vec<String>>);

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

impl Log {
    /// The first test that needs it installs it for all.
    fn install(&'static self) {
        let _ = log::set_logger(self);
        log::set_max_level(log::LevelFilter::Warn);
    }

    fn about(&self, client: &Client) -> Vec<String> {
        let address = client.stream.local_addr().unwrap().to_string();
        let lines = self.0.lock().unwrap();
        let later = lines[client.earlier_lines..].iter();
        later.filter(|line| line.contains(&address)).cloned().collect()
    }

    /// The lines about a client, as soon as there are any.
    fn wait_for(&self, client: &Client) -> Vec<String> {
        for _ in 0..10_000 {
            let lines = self.about(client);
            if !lines.is_empty() {
                return lines;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no line about {}", client.stream.local_addr().unwrap());
    }

    fn with(&self, text: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

const ONE: ConsistencyLevel = ConsistencyLevel::One;

fn encoded<T: alexandra::thrift::codec::WireType>(value: impl Encode<T>) -> Vec<u8> {
    let mut out = vec![];
    value.encode(&mut out);
    out
}

fn insert_args(key: &str) -> Vec<u8> {
    encoded::<InsertArgs<'_>>(InsertArgs {
        keyspace: "Keyspace1".into(),
        key: key.into(),
        column_path: path(),
        value: b"value",
        timestamp: 1,
        consistency_level: ONE,
    })
}

fn get_args(key: &str) -> Vec<u8> {
    encoded::<GetArgs<'_>>(GetArgs {
        keyspace: "Keyspace1".into(),
        key: key.into(),
        column_path: path(),
        consistency_level: ONE,
    })
}

fn path() -> ColumnPath<'static> {
    ColumnPath { column_family: "Standard1".into(), super_column: None, column: Some(b"c") }
}

fn slice_args(key: &str, count: i32) -> Vec<u8> {
    let slice_range = Some(SliceRange { start: b"", finish: b"", reversed: false, count });
    encoded::<GetSliceArgs<'_>>(GetSliceArgs {
        keyspace: "Keyspace1".into(),
        key: key.into(),
        column_parent: ColumnParent { column_family: "Standard1".into(), super_column: None },
        predicate: SlicePredicate { column_names: None, slice_range },
        consistency_level: ONE,
    })
}

/// A batch that writes so many columns to one row.
fn batch_args(columns: usize) -> Vec<u8> {
    let column = Column { name: b"name", value: b"value", timestamp: 1 };
    let mutation = Mutation { column_or_supercolumn: Some(column.into()), deletion: None };
    let rows = Each([("key", Each([("Standard1", &vec![mutation; columns])]))]);
    let mut out = vec![];
    encode_field::<Text<'_>>(1, "Keyspace1", &mut out);
    encode_field::<Map<Text<'_>, Map<Text<'_>, List<Mutation<'_>>>>>(2, rows, &mut out);
    encode_field::<ConsistencyLevel>(3, &ONE, &mut out);
    out.push(0);
    out
}

fn count_args() -> Vec<u8> {
    encoded::<GetCountArgs<'_>>(GetCountArgs {
        keyspace: "Keyspace1".into(),
        key: "k".into(),
        column_parent: ColumnParent { column_family: "Standard1".into(), super_column: None },
        consistency_level: ONE,
    })
}

fn text_args(text: &[u8]) -> Vec<u8> {
    let mut args = vec![11, 0, 1];
    args.extend_from_slice(&(text.len() as i32).to_be_bytes());
    args.extend_from_slice(text);
    args.push(0);
    args
}

fn column(name: &str, value: &str, timestamp: i64) -> Value {
    let (name, value) = (Value::bytes(name), Value::bytes(value));
    Value::Struct(vec![(1, name), (2, value), (3, Value::I64(timestamp))])
}

/// Takes a permit, as soon as there is one.
fn wait_for(permits: &Semaphore) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(permits.acquire()).unwrap().forget();
}

/// The four forms of one request.
fn forms(method: &str, seqid: i32, args: &[u8]) -> [(bool, Vec<u8>); 4] {
    let (new, old) = (call(method, seqid, args), old_call(method, seqid, args));
    [(false, new.clone()), (false, old.clone()), (true, frame(&new)), (true, frame(&old))]
}

/// Requests that clients sent to an original.
fn recorded() -> Vec<Vec<u8>> {
    let packed = include_bytes!("../../data/requests-0.6.hex.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

/// Sends a request with the output side of the stock library.
fn stock_call(stream: &TcpStream, framed: bool, strict: bool) {
    fn write(output: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        let head = TMessageIdentifier::new("get_string_property", TMessageType::Call, 77);
        output.write_message_begin(&head)?;
        output.write_field_begin(&TFieldIdentifier::new("property", TType::String, 1))?;
        output.write_string("token map")?;
        output.write_field_end()?;
        output.write_field_stop()?;
        output.write_message_end()?;
        output.flush()
    }
    if framed {
        let transport = TFramedWriteTransport::new(stream);
        write(&mut TBinaryOutputProtocol::new(transport, strict)).unwrap();
    } else {
        write(&mut TBinaryOutputProtocol::new(stream, strict)).unwrap();
    }
}

#[test]
fn the_stock_library_is_understood_in_all_four_forms() {
    for prefer_framed in [false, true] {
        let server = Running::start(|options| options.clients.prefer_framed = prefer_framed);
        for (framed, strict) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut client = server.connect();
            client.framed = framed;
            for _ in 0..3 {
                stock_call(&client.stream, framed, strict);
                let answer = client.reply();
                assert_eq!(answer.seqid, 77);
                assert_eq!(answer.result(), Some(&Value::bytes("token map")));
            }
        }
    }
}

#[test]
fn headers_may_change_from_message_to_message() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    for strict in [true, false, false, true] {
        stock_call(&client.stream, false, strict);
        assert_eq!(client.reply().seqid, 77);
    }
}

#[test]
fn requests_that_arrive_byte_by_byte() {
    let server = Running::start(|_| ());
    for (framed, request) in forms("get", -9, &get_args("row")) {
        let mut client = server.connect();
        client.framed = framed;
        for byte in request.repeat(2) {
            client.send(&[byte]);
        }
        for _ in 0..2 {
            let answer = client.reply();
            assert_eq!(answer.seqid, -9);
            let expected = Value::Struct(vec![(1, column("c", "row", 1))]);
            assert_eq!(answer.result(), Some(&expected));
        }
    }
}

#[test]
fn recorded_requests_in_odd_pieces_are_all_answered_in_order() {
    let server = Running::start(|_| ());
    let requests = recorded();
    let mut rng = fastrand::Rng::with_seed(5);
    for framed in [false, true] {
        let mut client = server.connect();
        client.framed = framed;
        let mut stream = client.stream.try_clone().unwrap();
        let stream_bytes: Vec<u8> = requests
            .iter()
            .flat_map(|request| if framed { frame(request) } else { request.clone() })
            .collect();
        let pieces = {
            let mut rest = stream_bytes.as_slice();
            let mut pieces = vec![];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rng.usize(1..=3000).min(rest.len()));
                pieces.push(piece.to_vec());
                rest = after;
            }
            pieces
        };
        let writer = std::thread::spawn(move || {
            for piece in &pieces {
                stream.write_all(piece).unwrap();
            }
        });
        for request in &requests {
            let answer = client.reply();
            let name_end = 8 + answer.name.len();
            assert_eq!(answer.name.as_bytes(), &request[8..name_end]);
            assert_eq!(answer.seqid.to_be_bytes(), request[name_end..name_end + 4]);
        }
        writer.join().unwrap();
    }
    assert!(server.service.mutations.load(Ordering::SeqCst) > 100);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Running::start(|_| ());
    for framed in [false, true] {
        let mut client = server.connect();
        client.framed = framed;
        let requests = (0..2000).flat_map(|seqid| {
            let request = call("get_slice", seqid, &slice_args("k", seqid % 3));
            if framed { frame(&request) } else { request }
        });
        client.send(&requests.collect::<Vec<u8>>());
        for seqid in 0..2000 {
            let answer = client.reply();
            assert_eq!(answer.seqid, seqid);
            let Some(Value::List(columns)) = answer.result() else { panic!("{answer:?}") };
            assert_eq!(columns.len(), seqid as usize % 3);
        }
    }
}

/// However many requests come at once, the other clients of the thread are served in between.
#[test]
fn a_frame_of_many_requests_does_not_hold_up_other_clients() {
    const COUNT: usize = 50_000;
    let server = Running::start(|options| options.workers = 1);
    let requests = frame(&call("insert", 1, &insert_args("k")).repeat(COUNT));
    let inserts = || server.service.inserts.load(Ordering::SeqCst);
    let is_served_meanwhile = || {
        let (mut many, mut other) = (server.connect(), server.connect());
        let before = inserts();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                many.framed = true;
                many.send(&requests);
                (0..COUNT).for_each(|_| drop(many.reply()));
            });
            let mut seen = before;
            let mut meanwhile = false;
            while seen < before + COUNT {
                other.call("describe_version", &[0]);
                seen = inserts();
                meanwhile |= before < seen && seen < before + COUNT;
            }
            meanwhile
        })
    };
    // On a busy machine the other client may come too late.
    assert!((0..5).any(|_| is_served_meanwhile()));
}

#[test]
fn several_requests_in_one_frame_get_one_frame_each() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    client.framed = true;
    let requests = [
        call("describe_version", 1, &[0]),
        old_call("describe_partitioner", 2, &[0]),
        call("no_such_method", 3, &[0]),
        call("get", 4, &get_args("k")),
    ];
    client.send(&frame(&requests.concat()));
    for seqid in 1..=4 {
        assert_eq!(client.reply().seqid, seqid);
    }
    client.send(&frame(&[]));
    client.send(&frame(&requests[0]));
    assert_eq!(client.reply().seqid, 1, "an empty frame is passed over");
    let request = &requests[3];
    client.send(&frame(&request[..request.len() - 1]));
    assert_eq!(client.wait_for_end(), 0, "a frame that ends inside a message is refused");
}

#[test]
fn the_message_type_of_a_request_is_not_looked_at() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    for message_type in [1, 2, 3, 4, 99] {
        let mut request = call("describe_version", i32::MIN, &[0]);
        request[3] = message_type;
        client.send(&request);
        let answer = client.reply();
        assert_eq!((answer.kind, answer.seqid), (TMessageType::Reply, i32::MIN));
    }
}

#[test]
fn results_of_every_shape_are_understood_by_the_stock_library() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    let text = |text: &str| Value::bytes(text);
    let keys = Value::List(vec![text("Keyspace1"), text("system")]);
    assert_eq!(client.call("describe_keyspaces", &[0]).result(), Some(&keys));
    assert!(client.call("insert", &insert_args("k")).is_void());
    assert_eq!(client.call("get_count", &count_args()).result(), Some(&Value::I32(1)));
    let described = client.call("describe_keyspace", &text_args(b"Ks"));
    let family = Value::Map(vec![(text("Type"), text("Standard"))]);
    assert_eq!(described.result(), Some(&Value::Map(vec![(text("Ks"), family)])));
    let ring = client.call("describe_ring", &text_args(b"2"));
    let endpoints = Value::List(vec![text("127.0.0.1")]);
    let range = Value::Struct(vec![(1, text("1")), (2, text("2")), (3, endpoints)]);
    assert_eq!(ring.result(), Some(&Value::List(vec![range])));
    let range = encoded::<GetRangeSlicesArgs<'_>>(GetRangeSlicesArgs {
        keyspace: "Ks".into(),
        column_parent: ColumnParent { column_family: "Cf".into(), super_column: None },
        predicate: SlicePredicate { column_names: Some(vec![b"a"]), slice_range: None },
        range: KeyRange {
            start_key: Some("from".into()),
            end_key: None,
            start_token: None,
            end_token: None,
            count: 3,
        },
        consistency_level: ONE,
    });
    let group =
        Value::Struct(vec![(1, text("group")), (2, Value::List(vec![column("member", "", 2)]))]);
    let columns = Value::List(vec![Value::Struct(vec![(2, group)])]);
    let slice = Value::Struct(vec![(1, text("from")), (2, columns)]);
    let slices = client.call("get_range_slices", &range);
    assert_eq!(slices.result(), Some(&Value::List(vec![slice])));
    let keys = encoded::<MultigetArgs<'_>>(MultigetArgs {
        keyspace: "Ks".into(),
        keys: vec!["a".into(), "b".into()],
        column_path: path(),
        consistency_level: ONE,
    });
    let entry = |key: &str| (text(key), Value::Struct(vec![(1, column("", key, 1))]));
    let map = Value::Map(vec![entry("a"), entry("b")]);
    assert_eq!(client.call("multiget", &keys).result(), Some(&map));
}

#[test]
fn text_that_is_not_utf8_is_replaced_and_not_refused() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    let answer = client.call("get_string_property", &text_args(b"\xFF\xFEk\xED\xA0\x80"));
    assert_eq!(answer.result(), Some(&Value::bytes("\u{FFFD}\u{FFFD}k\u{FFFD}")));
}

#[test]
fn a_session_belongs_to_one_connection() {
    let server = Running::start(|_| ());
    let (mut one, mut other) = (server.connect(), server.connect());
    for _ in 0..3 {
        assert!(one.call("insert", &insert_args("k")).is_void());
    }
    assert_eq!(one.call("get_count", &count_args()).result(), Some(&Value::I32(3)));
    assert_eq!(other.call("get_count", &count_args()).result(), Some(&Value::I32(0)));
}

#[test]
fn unknown_methods_are_answered_and_their_arguments_passed_over() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    let answer = client.call("set_keyspace", &insert_args("k"));
    assert_eq!(answer.error(), Some((1, "Invalid method name: 'set_keyspace'".into())));
    for byte in call("system_add_keyspace", 6, &insert_args("k")) {
        client.send(&[byte]);
    }
    assert_eq!(client.reply().error().map(|(number, _)| number), Some(1));
    assert!(client.call("insert", &insert_args("k")).is_void());
}

#[test]
fn a_field_missing_in_a_nested_struct_keeps_the_connection_in_step() {
    let server = Running::start(|_| ());
    // A slice range without `reversed` and `count`, in the middle of the arguments.
    let mut args = vec![12, 0, 4, 12, 0, 2, 11, 0, 1, 0, 0, 0, 0, 11, 0, 2, 0, 0, 0, 0, 0, 0];
    args.extend_from_slice(&get_args("k"));
    let expected = "Required field 'reversed' was not found in serialized data! Struct: \
                    SliceRange(start:, finish:, reversed:false, count:100)";
    for (framed, request) in forms("get_slice", 1, &args) {
        let mut client = server.connect();
        client.framed = framed;
        client.send(&request.repeat(2));
        for _ in 0..2 {
            assert_eq!(client.reply().error(), Some((7, expected.into())));
        }
        let (start, end) = request.split_at(request.len() - 5);
        for byte in start {
            client.send(&[*byte]);
        }
        client.send(end);
        assert_eq!(client.reply().error(), Some((7, expected.into())));
        let [new, _, framed_new, _] = forms("insert", 2, &insert_args("k"));
        client.send(if framed { &framed_new.1 } else { &new.1 });
        assert!(client.reply().is_void());
    }
}

#[test]
fn declared_failures_travel_as_exceptions_and_others_as_internal_errors() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    let mut get = |key: &str| client.call("get", &get_args(key));
    assert_eq!(get("invalid").exception(), Some((1, Some("because".into()))));
    assert_eq!(get("not found").exception(), Some((2, None)));
    assert_eq!(get("unavailable").exception(), Some((3, None)));
    assert_eq!(get("timed out").exception(), Some((4, None)));
    let internal = Some((6, "Internal error processing get".to_owned()));
    for undeclared in ["internal", "authentication", "authorization"] {
        assert_eq!(get(undeclared).error(), internal);
    }
    let mut insert = |key: &str| client.call("insert", &insert_args(key));
    assert_eq!(insert("unavailable").exception(), Some((2, None)));
    assert_eq!(insert("timed out").exception(), Some((3, None)));
    let internal = Some((6, "Internal error processing insert".to_owned()));
    assert_eq!(insert("not found").error(), internal);
    let absent = client.call("describe_keyspace", &text_args(b"not found"));
    assert_eq!(absent.exception(), Some((1, None)));
    let nameless = client.call("describe_cluster_name", &[0]).error();
    assert_eq!(nameless, Some((6, "Internal error processing describe_cluster_name".into())));
    let login = |keyspace: &'static str| {
        let credentials = Map(vec![("username".into(), "jsmith".into())]);
        let credentials =
            encoded::<AuthenticationRequest<'_>>(AuthenticationRequest { credentials });
        let mut args = vec![12, 0, 2];
        args.extend_from_slice(&credentials);
        args.extend_from_slice(&text_args(keyspace.as_bytes()));
        args
    };
    assert!(client.call("login", &login("Keyspace1")).is_void());
    let refused = client.call("login", &login("authentication")).exception();
    assert_eq!(refused, Some((1, Some("who?".into()))));
    let refused = client.call("login", &login("authorization")).exception();
    assert_eq!(refused, Some((2, Some("no".into()))));
}

#[test]
fn a_flood_of_internal_errors_does_not_flood_the_log() {
    LOG.install();
    let clock = Arc::new(ManualClock::at_micros(1));
    let server = Running::start(|options| options.clock = clock.clone());
    let mut client = server.connect();
    let internal = Some((6, "Internal error processing get".to_owned()));
    let mut fail = |times| {
        for _ in 0..times {
            assert_eq!(client.call("get", &get_args("disk full")).error(), internal);
        }
        LOG.with("the disk is full")
    };
    let line = "get: internal error: the disk is full";
    assert_eq!(fail(100), [line]);
    clock.advance(Duration::from_secs(1));
    assert_eq!(fail(2), [line.to_owned(), format!("{line} (99 more of this kind before)")]);
}

#[test]
fn a_panic_is_an_internal_error_of_its_call() {
    let server = Running::start(|options| options.workers = 1);
    let (mut one, mut other) = (server.connect(), server.connect());
    let internal = Some((6, "Internal error processing insert".to_owned()));
    for key in ["panic", "late panic"] {
        assert_eq!(one.call("insert", &insert_args(key)).error(), internal);
        assert!(one.call("insert", &insert_args("k")).is_void(), "the connection lives on");
        assert!(other.call("insert", &insert_args("k")).is_void(), "and so do the others");
    }
}

#[test]
fn replies_that_are_ready_do_not_wait_for_a_later_call() {
    let server = Running::start(|_| ());
    let mut client = server.connect();
    let requests = [
        call("get", 1, &get_args("k")),
        call("insert", 2, &insert_args("panic")),
        call("insert", 3, &insert_args("wait")),
        call("get", 4, &get_args("k")),
    ];
    client.send(&requests.concat());
    assert_eq!(client.reply().seqid, 1);
    let panicked = client.reply();
    assert_eq!((panicked.seqid, panicked.error().map(|(number, _)| number)), (2, Some(6)));
    server.service.gate.add_permits(1);
    assert_eq!(client.reply().seqid, 3);
    assert_eq!(client.reply().seqid, 4);
}

#[test]
fn what_is_no_message_closes_the_connection_after_earlier_answers() {
    let server = Running::start(|_| ());
    let bad: [&[u8]; 5] = [
        b"\x80\x02\x00\x01\x00\x00\x00\x03get\x00\x00\x00\x00\x00",
        b"\x80\x01\x00\x01\xFF\xFF\xFF\xFF",
        b"\x80\x01\x00\x01\x00\x01\x00\x00",
        b"\xFF\xFF\xFF\xFF",
        b"\x80\x01\x00\x01\x00\x00\x00\x03get\x00\x00\x00\x00\x0b\x00\x01\xFF\xFF\xFF\xFF",
    ];
    for bytes in bad {
        let mut client = server.connect();
        client.send(bytes);
        assert_eq!(client.wait_for_end(), 0, "{bytes:02X?}");
    }
    for bytes in &bad {
        let mut client = server.connect();
        client.send(&[&call("describe_version", 8, &[0]), *bytes].concat());
        assert_eq!(client.reply().seqid, 8);
        client.wait_for_end();
    }
    server.assert_alive();
}

#[test]
fn garbage_of_every_kind_harms_nobody() {
    let server = Running::start(|_| ());
    let mut steady = server.connect();
    let recorded: Vec<_> = recorded().into_iter().filter(|request| request.len() < 4096).collect();
    let mut rng = fastrand::Rng::with_seed(99);
    for round in 0..300 {
        let mut bytes = match round % 3 {
            0 => (0..rng.usize(1..2000)).map(|_| rng.u8(..)).collect(),
            1 => recorded[rng.usize(..recorded.len())].clone(),
            _ => frame(&recorded[rng.usize(..recorded.len())]),
        };
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let mut client = server.connect();
        // The server may close while the bytes are on their way.
        let _ = client.stream.write_all(&bytes);
        client.end_sending();
        client.wait_for_end();
        assert!(steady.call("insert", &insert_args("k")).is_void());
    }
}

#[test]
fn two_gigabytes_declared_on_many_connections_close_them_at_once() {
    let server = Running::start(|_| ());
    let string = [&call("get", 1, &[11, 0, 1]), [0x7F, 0xFF, 0xFF, 0xFF].as_slice()].concat();
    let mut list = call("multiget", 1, &[15, 0, 2, 10, 0x7F, 0xFF, 0xFF, 0xFF]);
    list.extend_from_slice(&[0; 64]);
    let mut clients: Vec<Client> = (0..500).map(|_| server.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let declared: [&[u8]; 3] = [&[0x7F, 0xFF, 0xFF, 0xFF], &string, &list];
        client.send(declared[i % 3]);
    }
    for client in &mut clients {
        assert_eq!(client.wait_for_end(), 0);
    }
    server.assert_alive();
}

#[test]
fn a_declared_length_takes_no_memory_until_its_bytes_arrive() {
    let server = Running::start(|options| options.limits.receive_budget_bytes = 64 << 10);
    let declared = 50 << 20_i32;
    let mut clients: Vec<Client> = (0..500).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&i32::to_be_bytes(declared));
        client.send(&call("batch_mutate", 1, &[])[..8]);
    }
    server.assert_alive();
    // Each of them holds a few bytes; with what it declared even one would be beyond the budget.
    for client in &clients {
        client.end_sending();
    }
    server.assert_alive();
}

#[test]
fn an_unfinished_request_beyond_the_budget_is_refused_and_its_connection_stays() {
    let server = Running::start(|options| options.limits.receive_budget_bytes = 1 << 20);
    let large = insert_args(&"k".repeat(3 << 20));
    for (number, args) in [large, batch_args(60_000)].into_iter().enumerate() {
        let method = ["insert", "batch_mutate"][number];
        for (framed, request) in forms(method, 7, &args) {
            let mut greedy = server.connect();
            greedy.framed = framed;
            greedy.send(&request);
            let answer = greedy.reply();
            let Some((1, Some(why))) = answer.exception() else { panic!("{answer:?}") };
            assert!(why.contains("ThriftReceiveBudgetInMB") && why.contains("fewer rows"), "{why}");
            let small = call("insert", 8, &insert_args("k"));
            greedy.send(&if framed { frame(&small) } else { small });
            assert!(greedy.reply().is_void());
        }
    }
    assert_eq!(server.service.inserts.load(Ordering::SeqCst), 8, "only the small ones");
}

#[test]
fn arguments_that_take_more_memory_than_is_free_are_refused() {
    let server = Running::start(|options| options.memory = Budget::new(4 << 20));
    for (framed, many) in [(false, batch_args(30_000)), (true, batch_args(30_000))] {
        let mut client = server.connect();
        client.framed = framed;
        for (args, is_refused) in [(batch_args(10), false), (many, true), (batch_args(10), false)] {
            let request = call("batch_mutate", 5, &args);
            client.send(&if framed { frame(&request) } else { request });
            let answer = client.reply();
            assert_eq!(answer.is_void(), !is_refused);
            let why = answer.exception();
            assert_eq!(
                why.is_some_and(|why| why.1.unwrap().contains("MemoryBudgetInMB")),
                is_refused
            );
        }
    }
}

#[test]
fn large_requests_wait_for_the_memory_that_others_hold() {
    const CLIENTS: usize = 8;
    let server = Running::start(|options| {
        options.limits.receive_budget_bytes = 4 << 20;
        options.limits.max_message_bytes = 2 << 20;
        options.limits.memory_wait = Duration::from_mins(1);
    });
    let request = call("insert", 1, &insert_args(&"k".repeat((2 << 20) - 1000)));
    let (first, rest) = request.split_at(1 << 20);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    // Together the halves are more than the budget.
    for client in &mut clients {
        client.send(first);
    }
    server.assert_alive();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.send(rest);
                assert!(client.reply().is_void());
            });
        }
    });
    assert_eq!(server.service.inserts.load(Ordering::SeqCst), CLIENTS);
}

#[test]
fn a_request_that_is_not_completed_is_given_up() {
    LOG.install();
    let server = Running::start(|options| options.limits.read_stall = Duration::from_millis(50));
    let mut idle = server.connect();
    let mut stalled = server.connect();
    stalled.send(&call("insert", 1, &insert_args("k"))[..30]);
    assert_eq!(stalled.wait_for_end(), 0);
    let [line] = LOG.about(&stalled).try_into().unwrap();
    assert!(line.contains("sent nothing of the rest of its request"), "{line}");
    assert!(idle.call("insert", &insert_args("k")).is_void(), "between requests it may be idle");
}

#[test]
fn a_message_above_the_limit_closes_its_connection() {
    let server = Running::start(|options| options.limits.max_message_bytes = 1 << 20);
    for framed in [false, true] {
        let mut client = server.connect();
        client.framed = framed;
        let request = call("get_string_property", 1, &text_args(&vec![b'x'; (1 << 20) - 100]));
        client.send(&if framed { frame(&request) } else { request });
        assert_eq!(client.reply().seqid, 1);
        let request = call("get_string_property", 1, &text_args(&vec![b'x'; 1 << 20]));
        // The server closes before it has read all.
        let _ = client.stream.write_all(&if framed { frame(&request) } else { request });
        assert_eq!(client.wait_for_end(), 0);
    }
}

#[test]
fn the_log_names_the_peer_and_the_setting_once_per_reason() {
    LOG.install();
    let server = Running::start(|options| options.limits.receive_budget_bytes = 1 << 20);
    let closed_after = |bytes: &[u8]| {
        let mut client = server.connect();
        // The server may close before it has read all.
        let _ = client.stream.write_all(bytes);
        client.wait_for_end();
        client
    };
    let declared = closed_after(&[0x7F, 0xFF, 0xFF, 0xFF]);
    let [line] = LOG.about(&declared).try_into().unwrap();
    assert!(line.contains("2147483647 bytes"), "{line}");
    assert!(line.contains("ThriftMaxMessageInMB allows 64"), "{line}");
    let again = closed_after(&[0x7F, 0xFF, 0xFF, 0xFF]);
    let malformed = closed_after(b"\x80\x02\x00\x01");
    let [line] = LOG.about(&malformed).try_into().unwrap();
    assert!(line.contains("unknown protocol version 0x80020001"), "{line}");
    let mut greedy = server.connect();
    greedy.call("insert", &insert_args(&"k".repeat(3 << 20)));
    let [line] = LOG.about(&greedy).try_into().unwrap();
    assert!(line.contains("ThriftReceiveBudgetInMB allows"), "{line}");
    assert_eq!(LOG.about(&again), Vec::<String>::new(), "one line for a reason in a moment");
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    LOG.install();
    let server = Running::start(|options| options.limits.write_stall = Duration::from_millis(50));
    let mut deaf = server.connect();
    // More than the kernel buffers for a connection.
    deaf.send(&call("get_slice", 1, &slice_args("k", 40_000)));
    let [line] = LOG.wait_for(&deaf).try_into().unwrap();
    assert!(line.contains("it has read nothing of its reply for 50ms"), "{line}");
    assert!(deaf.wait_for_end() < 40_000 * 1000, "the reply was cut off");
}

#[test]
fn replies_that_nobody_reads_hold_a_bounded_amount_and_hold_up_nobody() {
    let server = Running::start(|options| {
        options.workers = 1;
        options.limits.unsent_budget_bytes = 1 << 20;
    });
    let [mut first, mut second, mut other] = std::array::from_fn(|_| server.connect());
    for deaf in [&mut first, &mut second] {
        deaf.send(&call("get_slice", 1, &slice_args("k", 40_000)));
        // The only worker has begun to write. Before it serves anybody else it comes to the end of
        // the kernel's buffers.
        deaf.stream.peek(&mut [0]).unwrap();
        assert!(other.call("insert", &insert_args("k")).is_void());
    }
    assert!(second.wait_for_end() < 40_000 * 1000, "the first holds the budget already");
    let answer = first.reply();
    let Some(Value::List(columns)) = answer.result() else { panic!("not a list") };
    assert_eq!(columns.len(), 40_000, "it may still read");
}

#[test]
fn a_slow_reader_gets_its_whole_reply() {
    let server = Running::start(|options| options.limits.unsent_budget_bytes = 1);
    let mut slow = server.connect();
    slow.send(&call("get_slice", 1, &slice_args("k", 20_000)));
    let answer = slow.reply();
    let Some(Value::List(columns)) = answer.result() else { panic!("not a list") };
    assert_eq!(columns.len(), 20_000);
    server.assert_alive();
}

#[test]
fn a_thread_that_stands_still_holds_up_few_connections() {
    const CLIENTS: usize = 32;
    let cores = std::thread::available_parallelism().unwrap().get();
    let server = Running::start(|options| {
        options.workers = ServerOptions::new(Arc::<ManualClock>::default()).workers;
    });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert!(client.call("insert", &insert_args("k")).is_void());
    }
    let stop_sign = server.service.stop_sign.lock().unwrap();
    clients[0].send(&call("insert", 1, &insert_args("stand still")));
    for client in &mut clients[1..] {
        client.send(&call("insert", 2, &insert_args("k")));
    }
    let held = CLIENTS.div_ceil(2 * cores);
    let answered = || clients.iter().filter(|client| client.has_reply()).count();
    for _ in 0..10_000 {
        if answered() >= CLIENTS - held {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(answered() >= CLIENTS - held, "{} of {CLIENTS} are served", answered());
    drop(stop_sign);
    for client in &mut clients {
        assert!(client.reply().is_void());
    }
}

#[test]
fn clients_of_other_protocols_are_answered_in_theirs() {
    LOG.install();
    let answer = |hello: &[u8]| {
        // Each server logs a reason once.
        let server = Running::start(|_| ());
        let mut client = server.connect();
        client.send(hello);
        let mut answer = vec![];
        client.stream.read_to_end(&mut answer).unwrap();
        let [line] = LOG.about(&client).try_into().unwrap();
        (answer, line)
    };
    let (http, line) = answer(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let http = String::from_utf8(http).unwrap();
    assert!(http.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{http}");
    assert!(http.contains("AdminPort") && line.contains("AdminPort"), "{http}{line}");

    let (tls, line) = answer(b"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03unread rest");
    assert_eq!(tls, [21, 3, 1, 0, 2, 2, 40], "a fatal alert: handshake_failure");
    assert!(line.contains("switch TLS off"), "{line}");

    let (cql, line) = answer(b"\x04\x00\x00\x00\x05\x00\x00\x00\x00");
    assert_eq!(cql[..5], [0x84, 0, 0, 0, 0], "an error on the stream of the request");
    let text = String::from_utf8_lossy(&cql);
    assert!(text.contains("speaks Thrift") && line.contains("speaks CQL"), "{text}{line}");
}

#[test]
fn a_frame_that_begins_no_message_is_not_waited_for() {
    let server = Running::start(|_| ());
    // The second one is of a client of JMX.
    for hello in [b"\x04\x00\x00\x00\x7F\x00\x00\x00\x00".as_slice(), b"JRMI\x00\x02\x4B"] {
        let mut client = server.connect();
        client.send(hello);
        assert_eq!(client.wait_for_end(), 0);
    }
}

#[test]
fn a_new_connection_takes_the_place_of_the_longest_idle_one() {
    LOG.install();
    let clock = Arc::new(ManualClock::default());
    let server = Running::start(|options| {
        options.limits.max_connections = 2;
        options.clock = Arc::<ManualClock>::clone(&clock);
    });
    let (mut silent, mut active) = (server.connect(), server.connect());
    for _ in 0..2 {
        assert!(active.call("insert", &insert_args("k")).is_void());
        clock.advance(Duration::from_secs(5));
    }
    let mut new = server.connect();
    assert!(new.call("insert", &insert_args("k")).is_void());
    assert_eq!(silent.wait_for_end(), 0);
    let [line] = LOG.about(&silent).try_into().unwrap();
    assert!(line.contains("idle for 10 s"), "{line}");
    assert!(line.contains("to make room: ThriftMaxConnections allows 2"), "{line}");
    assert!(active.call("insert", &insert_args("k")).is_void());
}

#[test]
fn a_new_connection_is_closed_if_none_is_idle() {
    LOG.install();
    let server = Running::start(|options| options.limits.max_connections = 1);
    let mut busy = server.connect();
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    let mut new = server.connect();
    assert_eq!(new.wait_for_end(), 0);
    let [line] = LOG.about(&new).try_into().unwrap();
    assert!(line.contains("ThriftMaxConnections allows 1, and none is idle"), "{line}");
    server.service.gate.add_permits(1);
    assert_eq!(busy.reply().seqid, 4);
}

#[test]
fn an_idle_connection_is_closed_after_the_timeout() {
    let clock = Arc::new(ManualClock::default());
    let server = Running::start(|options| {
        options.workers = 1;
        options.limits.idle_timeout = Some(Duration::from_secs(60));
        options.clock = Arc::<ManualClock>::clone(&clock);
    });
    let (mut silent, mut half) = (server.connect(), server.connect());
    let (mut busy, mut active) = (server.connect(), server.connect());
    half.send(&call("insert", 1, &insert_args("k"))[..20]);
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    for seconds in [59, 1] {
        assert!(active.call("insert", &insert_args("k")).is_void());
        clock.advance(Duration::from_secs(seconds));
    }
    assert_eq!((silent.wait_for_end(), half.wait_for_end()), (0, 0));
    assert!(active.call("insert", &insert_args("k")).is_void());
    server.service.gate.add_permits(1);
    assert_eq!(busy.reply().seqid, 4, "a client that waits for its reply is not idle");
}

#[test]
fn a_stopping_server_ends_calls_under_way_and_closes() {
    let mut server = Running::start(|_| ());
    let (mut busy, mut idle, mut half) = (server.connect(), server.connect(), server.connect());
    assert!(idle.call("insert", &insert_args("k")).is_void());
    half.send(&call("insert", 1, &insert_args("k"))[..20]);
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    server.stop.cancel();
    idle.wait_for_end();
    assert_eq!(half.wait_for_end(), 0);
    TcpStream::connect(server.address).expect_err("no listener any more");
    server.service.gate.add_permits(1);
    let answer = busy.reply();
    assert!(answer.is_void() && answer.seqid == 4);
    assert_eq!(busy.wait_for_end(), 0);
    server.join();
}

#[test]
fn a_call_that_never_ends_does_not_hold_up_the_stop() {
    let mut server = Running::start(|options| options.limits.drain = Duration::from_millis(20));
    let mut busy = server.connect();
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    server.stop.cancel();
    server.join();
    assert_eq!(busy.wait_for_end(), 0);
}

#[test]
fn a_call_that_only_asks_is_given_up_when_its_client_leaves() {
    let server = Running::start(|_| ());
    let (mut asking, mut writing) = (server.connect(), server.connect());
    writing.send(&call("insert", 1, &insert_args("wait")));
    server.wait_for_call();
    drop(writing);
    // A request that follows does not hide that the client has left.
    asking.send(&[call("get", 1, &get_args("wait")), call("get", 2, &get_args("k"))].concat());
    server.wait_for_call();
    drop(asking);
    wait_for(&server.service.dropped);
    server.service.gate.add_permits(1);
    wait_for(&server.service.passed);
}

#[test]
fn a_call_that_only_asks_does_not_hold_up_the_stop() {
    let mut server = Running::start(|options| {
        options.limits.drain = Duration::from_hours(1);
        options.limits.drain_reads = Duration::ZERO;
    });
    let mut asking = server.connect();
    asking.send(&call("get", 4, &get_args("wait")));
    server.wait_for_call();
    server.stop.cancel();
    server.join();
    wait_for(&server.service.dropped);
    assert_eq!(asking.wait_for_end(), 0);
}

#[test]
fn a_long_request_leaves_its_thread_to_other_connections() {
    let server = Running::start(|options| options.workers = 1);
    let long = call("insert", 1, &insert_args(&"stand still".repeat(100_000)));
    for framed in [false, true] {
        let (mut busy, mut other) = (server.connect(), server.connect());
        busy.framed = framed;
        let stop_sign = server.service.stop_sign.lock().unwrap();
        let before = server.service.inserts.load(Ordering::SeqCst);
        busy.send(&if framed { frame(&long) } else { long.clone() });
        while server.service.inserts.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        assert!(other.call("insert", &insert_args("k")).is_void());
        drop(stop_sign);
        assert!(busy.reply().is_void());
    }
}
