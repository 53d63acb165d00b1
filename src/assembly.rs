//! A node with its front ends. The limits of its ports are those of Thrift; only this file knows
//! what speaks on them.

use crate::base::clock::Clock;
use crate::config::Settings;
use crate::config::settings::ListenerSettings;
use crate::cql::{Cql, Events, Executor, follow_ring, follow_schema};
use crate::node::{ClientPort, Node, NodeError, NodeOptions};
use crate::server::{Listening, Server};
use crate::service::Service;
use crate::storage::database::Components;
use crate::thrift::{Calls, Clients, Thrift};
use std::net::IpAddr;
use std::sync::Arc;

/// Starts a node for Thrift and CQL clients. Must be called within a tokio runtime.
pub fn start(
    settings: Settings,
    options: &NodeOptions,
    components: Components,
) -> Result<Node, NodeError> {
    Node::start(settings, options, components, add_front_end)
}

fn add_front_end(
    server: &mut Server,
    at: Listening,
    port: &ClientPort,
    service: &Arc<Service>,
    clock: &Arc<dyn Clock>,
) {
    match port {
        ClientPort::Thrift(port) => add_thrift(server, at, port, service, clock),
        ClientPort::Cql(_) => add_cql(server, at, service, clock),
    }
}

fn add_thrift(
    server: &mut Server,
    at: Listening,
    port: &ListenerSettings,
    service: &Arc<Service>,
    clock: &Arc<dyn Clock>,
) {
    let clients = Clients { version: port.api_version, prefer_framed: port.framed };
    let calls = Arc::new(Calls::new(Arc::clone(service), clients.version));
    server.add(at, Arc::new(Thrift::new(calls, clients, Arc::clone(clock))));
}

fn add_cql(server: &mut Server, at: Listening, service: &Arc<Service>, clock: &Arc<dyn Clock>) {
    let events = Arc::<Events>::default();
    // Nodes are taken to have the same port.
    let local = at.listener.local_addr();
    let (address, port) = local.map_or((IpAddr::from([0; 4]), 0), |it| (it.ip(), it.port()));
    tokio::spawn(follow_ring(Arc::downgrade(service), Arc::clone(&events), port));
    tokio::spawn(follow_schema(Arc::downgrade(service), Arc::clone(&events)));
    let executor = Executor::new(Arc::clone(service), address, fastrand::u64(..));
    server.add(at, Arc::new(Cql::new(executor, events, Arc::clone(clock))));
}
