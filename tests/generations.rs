//! One server for clients of 0.4, 0.5 and 0.6 at once, each at a port of its own.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

mod server;

use server::Server;
use server::calls::{self, KEYSPACE, Path, STANDARD};
use server::client::{CallError, Client, Value};
use std::net::SocketAddr;

const LISTENERS: &str = "<ThriftListener Port='0' ApiVersion='0.4'/>\
                         <ThriftListener Port='0' ApiVersion='0.5' FramedTransport='true'/>";

/// Where clients of a generation are served, as the log tells.
fn port_of(server: &Server, generation: &str) -> SocketAddr {
    let said = format!("listening for Thrift clients of {generation} on ");
    let log = server.log();
    let line = log.lines().find_map(|line| line.split_once(&said)).map(|(_, address)| address);
    line.unwrap_or_else(|| panic!("{log}")).trim().parse().unwrap()
}

fn property(client: &mut Client, name: &str) -> Value {
    let arguments = vec![(1, Value::bytes(name))];
    client.call("get_string_property", arguments).unwrap().unwrap()
}

fn key_range(client: &mut Client) -> Result<Option<Value>, CallError> {
    let texts = [KEYSPACE, STANDARD, "", ""].map(Value::bytes);
    let arguments = texts.into_iter().chain([Value::I32(10), Value::I32(1)]);
    client.call("get_key_range", (1..).zip(arguments).collect())
}

#[test]
fn each_generation_has_its_port_and_all_have_the_same_data() {
    let directory = tempfile::tempdir().unwrap();
    let options = calls::plain_families()
        .with("ThriftListeners", LISTENERS)
        .with("Partitioner", "org.apache.cassandra.dht.OrderPreservingPartitioner");
    let server = Server::start(directory.path(), &options);
    let addresses = [port_of(&server, "0.4"), port_of(&server, "0.5"), server.thrift_address()];
    let mut clients = addresses.map(Client::connect);
    for (number, client) in clients.iter_mut().enumerate() {
        let key = format!("key {number}");
        client.insert(&key, Path::column(STANDARD, b"column"), b"value", 1).unwrap();
    }
    let [old, middle, new] = &mut clients;
    let versions = [&mut *old, middle, new].map(|client| property(client, "version"));
    assert_eq!(versions, ["0.4.2", "0.5.1", "2.2.0"].map(Value::bytes));
    let keys = Value::list(["key 0", "key 1", "key 2"].map(Value::bytes));
    for client in [&mut *old, middle] {
        assert_eq!(key_range(client).unwrap(), Some(keys.clone()));
    }
    assert!(matches!(key_range(new), Err(CallError::Application { kind: 1, .. })));
    // What only 0.4 tells of a column family.
    let arguments = || vec![(1, Value::bytes(KEYSPACE))];
    let tells = |client: &mut Client| {
        let described = client.call("describe_keyspace", arguments()).unwrap();
        format!("{described:?}").contains(&format!("{:?}", Value::bytes("FlushPeriodInMinutes")))
    };
    assert_eq!([tells(old), tells(middle), tells(new)], [true, false, false]);
}
