//! One server for clients of 0.4, 0.5 and 0.6 at once, each at a port of its own: what differs
//! between the ports as it did between the originals, and what deliberately does not. The lists are
//! in `docs/generations.md`.

mod answers;
mod connections;
mod data;
mod methods;
mod ranges;

use crate::server::calls::{self, KEYSPACE, Path, STANDARD};
use crate::server::client::{CallError, Client, Value};
use crate::server::{Options, Server};
use std::net::SocketAddr;
use tempfile::TempDir;

pub(crate) const GENERATIONS: [&str; 3] = ["0.4", "0.5", "0.6"];

const LISTENERS: &str = "<ThriftListener Port='0' ApiVersion='0.4'/>\
                         <ThriftListener Port='0' ApiVersion='0.5' FramedTransport='true'/>";

const ORDERED: &str = "org.apache.cassandra.dht.OrderPreservingPartitioner";

/// `InvalidRequestException` of all data calls.
pub(crate) const INVALID_REQUEST: i16 = 1;

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// A result; none of a void call.
    Answer(Option<Value>),
    /// The number and the text of an exception that the call declares.
    Declared(i16, String),
    /// An error of the protocol.
    Error(i32),
    /// The connection ended.
    Closed,
}

impl Outcome {
    pub(crate) const DONE: Self = Self::Answer(None);

    pub(crate) fn invalid(why: &str) -> Self {
        Self::Declared(INVALID_REQUEST, why.to_owned())
    }
}

/// A server with a port for each generation, and with its directory.
pub(crate) struct Ports {
    _server: Server,
    /// In the order of [`GENERATIONS`].
    addresses: [SocketAddr; 3],
    _directory: TempDir,
}

impl Ports {
    /// On plain column families, whose rows are in the order of their keys.
    pub(crate) fn start() -> Self {
        Self::start_with(calls::plain_families().with("Partitioner", ORDERED))
    }

    pub(crate) fn start_with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), &options.with("ThriftListeners", LISTENERS));
        let [old, middle] = ["0.4", "0.5"].map(|generation| port_of(&server, generation));
        let addresses = [old, middle, server.thrift_address()];
        Self { _server: server, addresses, _directory: directory }
    }

    pub(crate) fn clients(&self) -> [Client; 3] {
        self.addresses.map(Client::connect)
    }

    /// A connection of each generation, with its name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, Client)> {
        GENERATIONS.into_iter().zip(self.clients())
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        GENERATIONS.into_iter().zip(self.addresses)
    }

    /// Answers of the ports to one call.
    pub(crate) fn all(&self, method: &str, arguments: &[(i16, Value)]) -> [Outcome; 3] {
        self.clients().map(|mut client| call(&mut client, method, arguments))
    }
}

/// Where clients of a generation are served, as the log tells.
fn port_of(server: &Server, generation: &str) -> SocketAddr {
    let said = format!("listening for Thrift clients of {generation} on ");
    let log = server.log();
    let line = log.lines().find_map(|line| line.split_once(&said)).map(|(_, address)| address);
    line.unwrap_or_else(|| panic!("{log}")).trim().parse().unwrap()
}

pub(crate) fn call(client: &mut Client, method: &str, arguments: &[(i16, Value)]) -> Outcome {
    match client.call(method, arguments.to_vec()) {
        Ok(answer) => Outcome::Answer(answer),
        Err(CallError::Declared { field, why }) => Outcome::Declared(field, why),
        Err(CallError::Application { kind, .. }) => Outcome::Error(kind),
        Err(CallError::Broken(_)) => Outcome::Closed,
    }
}

/// Arguments in the order of their numbers, from 1.
pub(crate) fn arguments(values: impl IntoIterator<Item = Value>) -> Vec<(i16, Value)> {
    (1..).zip(values).collect()
}

/// A `ColumnParent` or `ColumnPath`.
pub(crate) fn place(family: &str, super_column: Option<&str>, column: Option<&str>) -> Value {
    let names = [(4, super_column), (5, column)];
    let names = names.into_iter().filter_map(|(id, name)| Some((id, Value::bytes(name?))));
    Value::Struct([(3, Value::bytes(family))].into_iter().chain(names).collect())
}

/// The arguments of calls to a row that begin with keyspace and key.
pub(crate) fn of_row(key: &str, rest: impl IntoIterator<Item = Value>) -> Vec<(i16, Value)> {
    arguments([Value::bytes(KEYSPACE), Value::bytes(key)].into_iter().chain(rest))
}

pub(crate) fn one() -> Value {
    Value::I32(1)
}

/// Writes a column of the standard column family.
pub(crate) fn write(client: &mut Client, key: &str, name: &str, value: &str) {
    let path = Path::column(STANDARD, name.as_bytes());
    client.insert(key, path, value.as_bytes(), 1).unwrap();
}

#[test]
fn each_generation_has_its_port_and_all_have_the_same_data() {
    let ports = Ports::start();
    for (generation, mut client) in ports.named() {
        write(&mut client, generation, "column", "value");
    }
    for (_, mut client) in ports.named() {
        for key in GENERATIONS {
            assert_eq!(client.get_slice(key, STANDARD, calls::first(9, false)).unwrap().len(), 1);
        }
    }
}
