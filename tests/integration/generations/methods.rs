//! Which calls there are.

use super::{Outcome, Ports, Value, call};
use crate::server::client::Client;
use crate::server::{Options, Server};

/// Every call, and with which generation it came.
const METHODS: [(&str, &str); 22] = [
    ("get", "0.4"),
    ("get_slice", "0.4"),
    ("multiget", "0.4"),
    ("multiget_slice", "0.4"),
    ("get_count", "0.4"),
    ("get_key_range", "0.4"),
    ("insert", "0.4"),
    ("batch_insert", "0.4"),
    ("remove", "0.4"),
    ("get_string_property", "0.4"),
    ("get_string_list_property", "0.4"),
    ("describe_keyspace", "0.4"),
    ("get_range_slice", "0.5"),
    ("get_range_slices", "0.6"),
    ("batch_mutate", "0.6"),
    ("login", "0.6"),
    ("describe_keyspaces", "0.6"),
    ("describe_cluster_name", "0.6"),
    ("describe_version", "0.6"),
    ("describe_ring", "0.6"),
    ("describe_partitioner", "0.6"),
    ("describe_splits", "0.6"),
];

const UNKNOWN_METHOD: Outcome = Outcome::Error(1);

/// Called without the arguments that they need: the complaint is that of the generation of the
/// port, or of the one with which a later call came.
#[test]
fn every_port_has_the_calls_of_all_generations() {
    let ports = Ports::start();
    let needs_nothing = |method: &str| {
        let lists = ["describe_keyspaces", "describe_cluster_name", "describe_partitioner"];
        lists.contains(&method) || method == "describe_version"
    };
    for (generation, address) in ports.addresses() {
        for (method, since) in METHODS {
            let mut client = Client::connect(address);
            let outcome = call(&mut client, method, &[]);
            let expected = match () {
                () if needs_nothing(method) => matches!(outcome, Outcome::Answer(Some(_))),
                () if generation.max(since) == "0.6" => outcome == Outcome::Error(7),
                () => outcome == Outcome::Closed,
            };
            assert!(expected, "{method} at {generation}: {outcome:?}");
        }
    }
}

#[test]
fn what_no_generation_has_is_unknown_everywhere_and_the_connection_goes_on() {
    let ports = Ports::start();
    for (generation, mut client) in ports.named() {
        for method in ["set_keyspace", "truncate", "no such call"] {
            assert_eq!(call(&mut client, method, &[]), UNKNOWN_METHOD, "{method}, {generation}");
        }
        let name = call(&mut client, "get_string_property", &[(1, Value::bytes("cluster name"))]);
        assert_eq!(name, Outcome::Answer(Some(Value::bytes("Tests"))), "{generation}");
    }
}

/// Marks of a file of 0.4: replication for all keyspaces, and names that went with it.
#[test]
fn a_file_of_0_4_has_clients_of_0_4() {
    let keyspaces = "<Keyspace Name='Keyspace1'><ColumnFamily Name='Standard1'/></Keyspace>";
    let strategy = "org.apache.cassandra.locator.RackUnawareStrategy";
    let snitch = "org.apache.cassandra.locator.EndPointSnitch";
    let old = Options::default()
        .with("Keyspaces", keyspaces)
        .with("ReplicaPlacementStrategy", strategy)
        .with("EndPointSnitch", snitch)
        .with("ReplicationFactor", "1")
        .with("MemtableLifetimeInDays", "1");
    let later = "<ThriftListener Port='0' ApiVersion='0.6'/>";
    let version = [(1, Value::bytes("version"))];
    for (own, expected) in [(None, "0.4.2"), (Some("0.5"), "0.5.1")] {
        let directory = tempfile::tempdir().unwrap();
        let options = old.clone().with("ThriftListeners", later);
        let options = own.map_or(options.clone(), |own| options.with("ThriftApiVersion", own));
        let server = Server::start(directory.path(), &options);
        let addresses = [server.thrift_address(), super::port_of(&server, "0.6")];
        let versions = addresses
            .map(|address| call(&mut Client::connect(address), "get_string_property", &version));
        let expected = [expected, "2.2.0"].map(Value::bytes);
        assert_eq!(versions, expected.map(|text| Outcome::Answer(Some(text))));
    }
}

#[test]
fn versions_are_what_each_generation_expects() {
    let ports = Ports::start();
    let versions = ports.all("get_string_property", &[(1, Value::bytes("version"))]);
    let expected = ["0.4.2", "0.5.1", "2.2.0"];
    assert_eq!(versions, expected.map(|text| Outcome::Answer(Some(Value::bytes(text)))));
    let described = ports.all("describe_version", &[]);
    // Who asks so is of 0.6.
    assert_eq!(described, [(); 3].map(|()| Outcome::Answer(Some(Value::bytes("2.2.0")))));
}

/// Nobody gets around the authenticator by asking at the port of a generation without logins.
#[test]
fn where_logins_are_needed_ports_without_them_give_no_data() {
    let authenticator = "org.apache.cassandra.auth.SimpleAuthenticator";
    let options = crate::server::calls::plain_families().with("Authenticator", authenticator);
    let ports = Ports::start_with(options);
    let refused = Outcome::invalid("Login is required before any other API calls");
    let arguments = super::of_row("k", [super::place("Standard1", None, None), super::one()]);
    assert_eq!(ports.all("get_count", &arguments), [(); 3].map(|()| refused.clone()));
    let login = [(1, Value::bytes("Keyspace1")), (2, Value::Struct(vec![(1, Value::Map(vec![]))]))];
    for outcome in ports.all("login", &login) {
        assert!(matches!(outcome, Outcome::Declared(1, _)), "{outcome:?}");
    }
}
