//! Nodes about which others are told wrong things by gossip.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::server::calls::{Path, STANDARD};
use crate::server::client::Level;
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::gossip::{EndpointState, GossipMessage, MOVE_STATE};
use alexandra::net::Verb;
use alexandra::net::frame::put_frame;
use alexandra::net::message::Message;
use std::io::Write;
use std::net::{IpAddr, TcpStream};

/// The furthest that nodes accept a generation ahead of their clocks.
const YEAR_SECS: i32 = 365 * 24 * 3600;

/// Tells a node something about another one, or about itself, as if a node beyond the ring did.
fn forge(cluster: &Cluster, to: usize, about: usize, state: EndpointState) {
    let about = IpAddr::V4(cluster.nodes[about].address);
    let body = GossipMessage::Ack2 { states: vec![(about, state)] }.encode().unwrap();
    let from = IpAddr::from([127, 0, 0, 99]);
    let message = Message::new(1.into(), from, Verb::GossipDigestAck2, &body).encode().unwrap();
    let mut frame = Vec::new();
    assert!(put_frame(&mut frame, &message, false));
    TcpStream::connect(cluster.nodes[to].storage()).unwrap().write_all(&frame).unwrap();
}

/// A generation this far ahead of the time.
fn ahead(secs: i32) -> EndpointState {
    EndpointState::new(SystemClock::new().now_secs() + secs)
}

#[test]
fn a_node_that_is_said_to_have_left_is_back_at_once() {
    let cluster = Cluster::start(3, replicated(3));
    let mut state = ahead(YEAR_SECS - 60);
    state.set(MOVE_STATE, &format!("LEFT,{}", cluster.token_of(2)));
    forge(&cluster, 0, 2, state);
    let text = "Other nodes remember a later start of this node";
    wait_until("the node hears of it", || cluster.server(2).log().contains(text));
    for observer in [0, 1] {
        cluster.wait_until_seen(observer, 2, true);
    }
    let path = Path::column(STANDARD, b"name");
    cluster.client(2).at(Level::All).insert("key", path, b"value", 1).unwrap();
    wait_until("all is well", || cluster.try_nodetool(2, &["status"]).status.success());
}

#[test]
fn a_node_whose_generation_the_others_refuse_says_so_and_mends_it() {
    let cluster = Cluster::start(3, replicated(3));
    // It takes this for what others remember, which they do not.
    forge(&cluster, 2, 2, ahead(YEAR_SECS + 3600));
    let told = "refuses generation";
    wait_until("its status says so", || {
        let status = cluster.try_nodetool(2, &["status"]);
        !status.status.success() && String::from_utf8_lossy(&status.stdout).contains(told)
    });
    wait_until("it has mended its generation", || {
        cluster.try_nodetool(2, &["status"]).status.success()
    });
    for observer in [0, 1] {
        cluster.wait_until_seen(observer, 2, true);
    }
    assert!(cluster.server(2).log().contains(told));
    let generation = cluster.nodes[2].ask("info")["generation"].as_i64().unwrap();
    assert!(generation <= i64::from(SystemClock::new().now_secs()), "{generation}");
}
