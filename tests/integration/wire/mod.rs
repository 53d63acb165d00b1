//! The Thrift border over TCP: real listeners, and replies judged by the stock Thrift library.

mod client;
mod generations;
mod limits;
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
