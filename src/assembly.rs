//! A node with its front end. The ports of a node and their limits are those of Thrift; only this
//! file knows what speaks on them.

use crate::base::clock::Clock;
use crate::config::Settings;
use crate::config::settings::ListenerSettings;
use crate::node::{Node, NodeError, NodeOptions};
use crate::server::Server;
use crate::service::Service;
use crate::storage::database::Components;
use crate::thrift::{Calls, Clients, Thrift};
use std::sync::Arc;
use tokio::net::TcpListener;

/// Starts a node for Thrift clients. Must be called within a tokio runtime.
pub fn start(
    settings: Settings,
    options: &NodeOptions,
    components: Components,
) -> Result<Node, NodeError> {
    Node::start(settings, options, components, add_thrift)
}

fn add_thrift(
    server: &mut Server,
    listener: TcpListener,
    port: &ListenerSettings,
    service: &Arc<Service>,
    clock: &Arc<dyn Clock>,
) {
    let clients = Clients { version: port.api_version, prefer_framed: port.framed };
    let calls = Arc::new(Calls::new(Arc::clone(service), clients.version));
    server.add(listener, Arc::new(Thrift::new(calls, clients, Arc::clone(clock))));
}
