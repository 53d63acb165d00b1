//! Ports of clients.

use super::NodeError;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::latest::Latest;
use crate::base::tls::{Guard, Port, Tls};
use crate::config::Settings;
use crate::config::settings::{CqlSettings, ListenerSettings};
use crate::server::{Limits, Listening, Server, ServerOptions, Traffic, listen};
use crate::service::{Requests, Service};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A port of the configuration.
#[derive(Debug, Clone)]
pub enum ClientPort {
    /// For Thrift clients.
    Thrift(ListenerSettings),
    /// For CQL clients.
    Cql(CqlSettings),
}

impl ClientPort {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Thrift(port) => SocketAddr::new(port.address, port.port),
            Self::Cql(port) => SocketAddr::new(port.address, port.port),
        }
    }

    /// Its clients, for people.
    fn clients(&self) -> &'static str {
        match self {
            Self::Thrift(_) => "Thrift clients",
            Self::Cql(_) => "CQL clients",
        }
    }

    fn tls(&self) -> Port {
        match self {
            Self::Thrift(_) => Port::Thrift,
            Self::Cql(_) => Port::Cql,
        }
    }

    /// Whether the node cannot do without it.
    fn is_required(&self) -> bool {
        match self {
            Self::Thrift(_) => true,
            Self::Cql(port) => port.port_is_required,
        }
    }
}

/// Adds a port of the configuration to a server, with a protocol that offers the service. Called
/// once for each port, when all are bound, within a tokio runtime.
pub type FrontEnd = fn(&mut Server, Listening, &ClientPort, &Arc<Service>, &Arc<dyn Clock>);

/// A port that is bound.
#[derive(Debug)]
pub(super) struct Bound {
    at: Listening,
    port: ClientPort,
}

/// The port of the configuration, and the additional ones after it.
#[derive(Debug)]
pub(super) struct ClientPorts {
    ports: Vec<ClientPort>,
    options: ServerOptions,
    /// Limits of the connections.
    pub(super) limits: Arc<Latest<Limits>>,
    /// Counts the requests that come by the ports.
    pub(super) requests: Arc<Requests>,
    front_end: FrontEnd,
    tls: Arc<Latest<Tls>>,
}

impl ClientPorts {
    pub(super) fn new(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        (memory, tls): (&Arc<Budget>, &Arc<Latest<Tls>>),
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
        let thrift_ports = std::iter::once(&first).chain(&thrift.listeners).cloned();
        let cql = settings.cql.clone().map(ClientPort::Cql);
        let ports = thrift_ports.map(ClientPort::Thrift).chain(cql).collect();
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
        let limits = Arc::new(Latest::new(options.limits.clone()));
        let requests = Arc::new(Requests::new(Arc::clone(clock)));
        requests.slow().set_threshold(settings.admin.slow_requests);
        Self { ports, options, limits, requests, front_end, tls: Arc::clone(tls) }
    }

    /// Binds all ports, except those that are taken and that the node can do without.
    pub(super) fn bind(&self) -> Result<Vec<Bound>, NodeError> {
        let bind = |port: &ClientPort| {
            let (address, clients) = (port.address(), port.clients());
            match listen(address) {
                Ok(listener) => {
                    let guard = Guard::new(&self.tls, port.tls());
                    Some(Ok(Bound { at: Listening { listener, guard }, port: port.clone() }))
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && !port.is_required() => {
                    log::warn!("the port for {clients} is taken, so that none can come: {address}");
                    None
                }
                Err(source) => Some(Err(NodeError::Bind { clients, address, source })),
            }
        };
        self.ports.iter().filter_map(bind).collect()
    }

    /// Logs the addresses of the additional ports, as the system chose them.
    pub(super) fn log_further(&self, bound: &[Bound]) {
        for Bound { at, port } in bound.iter().skip(1) {
            let Ok(address) = at.listener.local_addr() else { continue };
            match port {
                ClientPort::Thrift(ListenerSettings { api_version, .. }) => {
                    log::info!("listening for Thrift clients of {api_version} on {address}");
                }
                ClientPort::Cql(_) => log::info!("listening for CQL clients on {address}"),
            }
        }
        if !self.ports.iter().any(|port| matches!(port, ClientPort::Cql(_))) {
            log::info!("CQL is off: CqlPort is not set");
        }
    }

    /// Counters of the connections.
    pub(super) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.options.traffic)
    }

    /// A server with the protocol of each port.
    pub(super) fn server(self, bound: Vec<Bound>, service: &Arc<Service>) -> Server {
        let clock = Arc::clone(&self.options.clock);
        let mut server = Server::with_limits(self.options, self.limits);
        for Bound { at, port } in bound {
            (self.front_end)(&mut server, at, &port, service, &clock);
        }
        server
    }
}

/// Address of the first port, as the system chose it.
pub(super) fn local_address(bound: &[Bound]) -> io::Result<SocketAddr> {
    match bound.first() {
        Some(first) => first.at.listener.local_addr(),
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loader;
    use crate::kit::clock::ManualClock;
    use crate::model::comparator::ComparatorRegistry;

    #[tokio::test]
    async fn the_node_does_without_a_taken_port_of_the_built_in_configuration() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let comparators = ComparatorRegistry::default();
        let mut settings = Loader::for_tools(&comparators).load(None).unwrap().settings;
        settings.thrift.port = 0;
        let bind = |is_required| {
            let mut settings = settings.clone();
            let cql = settings.cql.as_mut().unwrap();
            cql.port = taken.local_addr().unwrap().port();
            cql.port_is_required = is_required;
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
            let tls = Arc::new(Latest::new(Tls::default()));
            let ports =
                ClientPorts::new(&settings, &clock, (&Budget::new(1), &tls), |_, _, _, _, _| ());
            ports.bind().map(|bound| bound.len()).map_err(|error| error.to_string())
        };
        assert_eq!(bind(false), Ok(1));
        assert!(bind(true).unwrap_err().contains("cannot listen for CQL clients on 127.0.0.1"));
    }
}
