//! Where clients are served.

use super::NodeError;
use crate::api::Api;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::config::Settings;
use crate::config::settings::ListenerSettings;
use crate::server::{Limits, Server, ServerOptions, listen};
use crate::thrift::{Clients, Thrift};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The port of the configuration, and then the further ones.
#[derive(Debug)]
pub(super) struct ClientPorts {
    addresses: Vec<(SocketAddr, Clients)>,
    options: ServerOptions,
}

impl ClientPorts {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>, memory: &Arc<Budget>) -> Self {
        let thrift = &settings.thrift;
        let first = Clients { version: thrift.api_version, prefer_framed: thrift.framed };
        let further = |it: &ListenerSettings| {
            let clients = Clients { version: it.api_version, prefer_framed: it.framed };
            (SocketAddr::new(it.address, it.port), clients)
        };
        let mut addresses = vec![(SocketAddr::new(thrift.address, thrift.port), first)];
        addresses.extend(thrift.listeners.iter().map(further));
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
        Self { addresses, options }
    }

    /// Binds all of them.
    pub(super) fn bind(&self) -> Result<Vec<TcpListener>, NodeError> {
        let bind = |(address, _): &(SocketAddr, Clients)| {
            listen(*address).map_err(|source| NodeError::Bind { address: *address, source })
        };
        self.addresses.iter().map(bind).collect()
    }

    /// The further ones with the addresses that the system chose.
    pub(super) fn further<'a>(
        &'a self,
        listeners: &'a [TcpListener],
    ) -> impl Iterator<Item = (SocketAddr, Clients)> {
        let further = listeners.iter().zip(&self.addresses).skip(1);
        further.filter_map(|(listener, (_, clients))| Some((listener.local_addr().ok()?, *clients)))
    }

    /// A server whose calls the API answers, as each port's clients expect.
    pub(super) fn server(self, listeners: Vec<TcpListener>, api: &Arc<Api>) -> Server {
        let clock = Arc::clone(&self.options.clock);
        let mut server = Server::new(self.options);
        for (listener, (_, clients)) in listeners.into_iter().zip(self.addresses) {
            let thrift = Thrift::new(api.of(clients.version), clients, Arc::clone(&clock));
            server.add(listener, Arc::new(thrift));
        }
        server
    }
}
