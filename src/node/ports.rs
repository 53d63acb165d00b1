//! Ports of clients.

use super::NodeError;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::config::Settings;
use crate::config::settings::{ListenerSettings, Release};
use crate::server::{Limits, Server, ServerOptions, listen};
use crate::service::Service;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Adds a port of the configuration to a server, with a protocol that offers the service. Called
/// once for each port, when all are bound.
pub type FrontEnd = fn(&mut Server, TcpListener, &ListenerSettings, &Arc<Service>, &Arc<dyn Clock>);

/// The port of the configuration, and the additional ones after it.
#[derive(Debug)]
pub(super) struct ClientPorts {
    ports: Vec<ListenerSettings>,
    options: ServerOptions,
    front_end: FrontEnd,
}

impl ClientPorts {
    pub(super) fn new(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        memory: &Arc<Budget>,
        front_end: FrontEnd,
    ) -> Self {
        let thrift = &settings.thrift;
        let first = ListenerSettings {
            address: thrift.address,
            port: thrift.port,
            framed: thrift.framed,
            api_version: thrift.api_version,
            // It has no element of its own.
            line: 0,
        };
        let ports = std::iter::once(&first).chain(&thrift.listeners).cloned().collect();
        let options = ServerOptions {
            limits: Limits {
                settings: "Thrift",
                max_message_bytes: thrift.max_message_bytes as usize,
                max_connections: thrift.max_connections as usize,
                idle_timeout: thrift.idle_timeout,
                receive_budget_bytes: thrift.receive_budget_bytes as usize,
                ..Limits::default()
            },
            memory: Arc::clone(memory),
            ..ServerOptions::new(Arc::clone(clock))
        };
        Self { ports, options, front_end }
    }

    /// Binds all ports.
    pub(super) fn bind(&self) -> Result<Vec<TcpListener>, NodeError> {
        let bind = |port: &ListenerSettings| {
            let address = SocketAddr::new(port.address, port.port);
            listen(address).map_err(|source| NodeError::Bind { address, source })
        };
        self.ports.iter().map(bind).collect()
    }

    /// The additional ports, with the addresses that the system chose.
    pub(super) fn further<'a>(
        &'a self,
        listeners: &'a [TcpListener],
    ) -> impl Iterator<Item = (SocketAddr, Release)> {
        let further = listeners.iter().zip(&self.ports).skip(1);
        further.filter_map(|(it, port)| Some((it.local_addr().ok()?, port.api_version)))
    }

    /// A server with the protocol of each port.
    pub(super) fn server(self, listeners: Vec<TcpListener>, service: &Arc<Service>) -> Server {
        let Self { ports, options, front_end } = self;
        let clock = Arc::clone(&options.clock);
        let mut server = Server::new(options);
        for (listener, port) in listeners.into_iter().zip(&ports) {
            front_end(&mut server, listener, port, service, &clock);
        }
        server
    }
}
