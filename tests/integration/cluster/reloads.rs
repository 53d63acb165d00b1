//! Settings that a reload changes, by what they do.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::server::calls::{Path, STANDARD};
use crate::server::client::{CallError, Level};
use crate::server::{Options, reconfigure};
use alexandra::base::clock::{Clock, SystemClock};
use std::time::Duration;

const NAME: Path<'static> =
    Path { family: STANDARD, super_column: None, column: Some(b"name".as_slice()) };

/// Changes an element of a node's file, and has the node read it again.
fn reload(cluster: &Cluster, number: usize, element: &str, text: &str) {
    reconfigure(&cluster.nodes[number].directory, &Options::default().with(element, text));
    let told = cluster.nodetool(number, &["reload"]);
    assert!(told.starts_with(&format!("changed: {element}: ")), "{told}");
}

#[test]
fn what_a_reload_changes_is_in_force_at_once() {
    let patient = Duration::from_mins(10);
    let cluster = Cluster::start(
        2,
        replicated(2).with("RpcTimeoutInMillis", &patient.as_millis().to_string()),
    );
    // A further connection takes the place of an idle one.
    let mut first = cluster.client(0);
    first.insert("key", NAME, b"value", 1).unwrap();
    reload(&cluster, 0, "ThriftMaxConnections", "1");
    let mut second = cluster.client(0).at(Level::All);
    second.insert("key", NAME, b"value", 2).unwrap();
    wait_until("the first is closed", || first.insert("key", NAME, b"value", 3).is_err());

    // A write waits for a node that stands still only as long as it may.
    reload(&cluster, 0, "RpcTimeoutInMillis", "500");
    cluster.server(1).pause();
    let clock = SystemClock::new();
    let late = second.insert("key", NAME, b"value", 4);
    assert!(matches!(late, Err(CallError::Declared { field: 3, .. })), "{late:?}");
    assert!(clock.monotonic() < patient / 2);
    cluster.server(1).resume();

    // Nodes of other networks are sent away.
    reload(&cluster, 0, "PeerNetworks", "<PeerNetwork>192.0.2.0/24</PeerNetwork>");
    let refused = "at StoragePort: not in PeerNetworks";
    wait_until("it is refused", || cluster.server(0).log().contains(refused));
}
