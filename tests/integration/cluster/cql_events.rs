//! Events of the nodes of a ring that drivers are told of.

use crate::cluster::nodes::{Cluster, replicated};
use crate::cql::{CqlClient, EVENT, READY, REGISTER};
use std::net::SocketAddr;

const CQL_PORT: u16 = 9042;

#[test]
fn drivers_are_told_when_a_node_dies_and_when_it_is_back() {
    let options = replicated(1).with("CqlPort", &CQL_PORT.to_string());
    let mut cluster = Cluster::start(2, options);
    let address = SocketAddr::from((cluster.nodes[0].address, CQL_PORT));
    let (mut client, _) = CqlClient::begin(address);
    assert_eq!(client.ask(REGISTER, b"\0\x01\0\x0DSTATUS_CHANGE").opcode, READY);
    let mut node = vec![4];
    node.extend_from_slice(&cluster.nodes[1].address.octets());
    node.extend_from_slice(&u32::from(CQL_PORT).to_be_bytes());
    let mut expect = |change: &[u8]| {
        let event = client.answer();
        assert_eq!((event.stream, event.opcode), (-1, EVENT));
        let expected = [b"\0\x0DSTATUS_CHANGE", change, &node].concat();
        assert_eq!(event.body, expected, "{}", event.text());
    };
    cluster.kill(1);
    expect(b"\0\x04DOWN");
    cluster.launch(&[1]);
    expect(b"\0\x02UP");
}
