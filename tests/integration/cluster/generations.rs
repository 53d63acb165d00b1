//! Answers to clients of each generation while replicas are away, so that none takes it for
//! success.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::server::calls::{KEYSPACE, Path, STANDARD, column, entry, first};
use crate::server::client::{CallError, Client, Level, Value};
use std::net::SocketAddr;
use std::thread;

const LISTENERS: &str = "<ThriftListener Port='9164' ApiVersion='0.4'/>\
                         <ThriftListener Port='9165' ApiVersion='0.5'/>";

/// The ports of 0.4, 0.5 and 0.6.
const PORTS: [u16; 3] = [9164, 9165, 9160];

const QUORUM: i32 = 2;

/// Field of the exception by which a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    get: i16,
    get_slice: i16,
    multiget_slice: i16,
    get_count: i16,
    insert: i16,
    batch_insert: i16,
    remove: i16,
}

/// Outcomes of these calls at a level, all at once: none of them has seen the others fail.
fn failures(port: SocketAddr, level: i32) -> Fields {
    let [keyspace, key] = [KEYSPACE, "k"].map(Value::bytes);
    let parent = Value::Struct(vec![(3, Value::bytes(STANDARD))]);
    let path = Value::Struct(vec![(3, Value::bytes(STANDARD)), (5, Value::bytes("c"))]);
    let (timestamp, level) = (Value::I64(1), Value::I32(level));
    let keys = Value::list([key.clone()]);
    let column = entry(None, vec![column(b"c", b"v", 1)]);
    let batch = Value::Map(vec![(Value::bytes(STANDARD), Value::list([column]))]);
    let fail = |method: &'static str, rest: Vec<Value>| {
        let arguments = (1..).zip([keyspace.clone()].into_iter().chain(rest)).collect();
        let call = move || match Client::connect(port).call(method, arguments) {
            Err(CallError::Declared { field, .. }) => field,
            other => panic!("{method}: {other:?}"),
        };
        thread::spawn(call)
    };
    let (slice, value) = (first(9, false), Value::bytes("v"));
    let calls = [
        fail("get", vec![key.clone(), path.clone(), level.clone()]),
        fail("get_slice", vec![key.clone(), parent.clone(), slice.clone(), level.clone()]),
        fail("multiget_slice", vec![keys, parent.clone(), slice, level.clone()]),
        fail("get_count", vec![key.clone(), parent.clone(), level.clone()]),
        fail("insert", vec![key.clone(), path, value, timestamp.clone(), level.clone()]),
        fail("batch_insert", vec![key.clone(), batch, level.clone()]),
        fail("remove", vec![key, parent, timestamp, level]),
    ];
    let [get, get_slice, multiget_slice, get_count, insert, batch_insert, remove] =
        calls.map(|call| call.join().unwrap());
    Fields { get, get_slice, multiget_slice, get_count, insert, batch_insert, remove }
}

/// All but `get` and `get_slice` have the same.
fn fields(get: i16, get_slice: i16, others: i16) -> Fields {
    Fields {
        get,
        get_slice,
        multiget_slice: others,
        get_count: others,
        insert: others,
        batch_insert: others,
        remove: others,
    }
}

/// Addresses that the property `token map` tells.
fn told(port: SocketAddr) -> usize {
    let property = vec![(1, Value::bytes("token map"))];
    let map = Client::connect(port).call("get_string_property", property).unwrap();
    let Some(Value::Bytes(map)) = map else { panic!("{map:?}") };
    let map: serde_json::Value = serde_json::from_slice(&map).unwrap();
    map.as_object().unwrap().len()
}

#[test]
fn each_generation_is_told_of_missing_replicas_by_what_it_knows() {
    let options = replicated(3)
        .with("ThriftListeners", LISTENERS)
        // Long before who stands still is taken for dead.
        .with("RpcTimeoutInMillis", "500");
    let mut cluster = Cluster::start(3, options);
    let address = cluster.nodes[0].address;
    let ports = PORTS.map(|port| SocketAddr::from((address, port)));
    assert_eq!(ports.map(told), [3; 3]);
    for number in [1, 2] {
        cluster.server(number).pause();
    }
    // 0.4 knew no timeout: what it would take for success is `Unavailable` to its clients.
    let timed_out = [fields(3, 3, 2), fields(4, 3, 3), fields(4, 3, 3)];
    let calls = ports.map(|port| thread::spawn(move || failures(port, QUORUM)));
    assert_eq!(calls.map(|call| call.join().unwrap()), timed_out);
    cluster.server(1).resume();
    cluster.kill(2);
    cluster.wait_until_seen(0, 1, true);
    cluster.wait_until_seen(0, 2, false);
    let unavailable = [fields(3, 3, 2), fields(3, 2, 2), fields(3, 2, 2)];
    wait_until("a quorum is there", || {
        let mut client = Client::connect(ports[0]).at(Level::Quorum);
        client.insert("k", Path::column(STANDARD, b"c"), b"v", 1).is_ok()
    });
    // By the number that DCQUORUM has since, clients of 0.4 mean all replicas.
    assert_eq!(failures(ports[0], 3), unavailable[0]);
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    assert_eq!(ports.map(|port| failures(port, QUORUM)), unavailable);
    // Clients look for other nodes there; 0.4 named only those that were alive.
    assert_eq!(ports.map(told), [1, 3, 3]);
}
