//! Where clients are served.

use super::NodeError;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::config::Settings;
use crate::config::settings::{ListenerSettings, Release};
use crate::wire::{ApiVersion, Clients, Limits, Server, ServerOptions};
use std::net::SocketAddr;
use std::sync::Arc;

/// The port of the configuration, and the further ones.
#[derive(Debug)]
pub(super) struct ClientPorts {
    first: SocketAddr,
    options: ServerOptions,
    further: Vec<(SocketAddr, Clients)>,
}

impl ClientPorts {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>, memory: &Arc<Budget>) -> Self {
        let thrift = &settings.thrift;
        let clients = |framed, release| {
            let version = api_version(release);
            Clients { version, prefer_framed: framed }
        };
        let further = |it: &ListenerSettings| {
            (SocketAddr::new(it.address, it.port), clients(it.framed, it.api_version))
        };
        Self {
            first: SocketAddr::new(thrift.address, thrift.port),
            options: ServerOptions {
                clients: clients(thrift.framed, thrift.api_version),
                limits: Limits {
                    max_message_bytes: thrift.max_message_bytes as usize,
                    max_connections: thrift.max_connections as usize,
                    idle_timeout: thrift.idle_timeout,
                    receive_budget_bytes: thrift.receive_budget_bytes as usize,
                    ..Limits::default()
                },
                memory: Arc::clone(memory),
                ..ServerOptions::new(Arc::clone(clock))
            },
            further: thrift.listeners.iter().map(further).collect(),
        }
    }

    /// Binds all of them.
    pub(super) fn bind(&self) -> Result<Server, NodeError> {
        let refused = |address| move |source| NodeError::Bind { address, source };
        let server = Server::bind(self.first, self.options.clone());
        let mut server = server.map_err(refused(self.first))?;
        for (address, clients) in &self.further {
            server.bind_also(*address, *clients).map_err(refused(*address))?;
        }
        Ok(server)
    }
}

/// The generation of the clients of a release.
pub(super) fn api_version(release: Release) -> ApiVersion {
    match release {
        Release::V04 => ApiVersion::V04,
        Release::V05 => ApiVersion::V05,
        Release::V06 => ApiVersion::V06,
    }
}
