//! Addresses and ports of the node, of clients and of operators.

use super::document::{Document, Place, Value, joined};
use super::error::{ConfigError, Problem};
use super::machine::{self, Machine};
use super::ours;
use super::settings::{AdminSettings, ListenerSettings, NetworkSettings, Release, ThriftSettings};
use super::xml::Element;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The address of a configured host.
pub(super) fn resolve(machine: &dyn Machine, value: &Value<'_>) -> Result<IpAddr, ConfigError> {
    machine::resolve_one(machine, value.text).map_err(|reason| {
        value.refuse(Problem::UnknownHost { host: value.text.to_owned(), reason })
    })
}

/// `ListenAddress`, by default the address of the host name.
pub(super) fn listen_address(doc: &mut Document<'_>, machine: &dyn Machine) -> IpAddr {
    let address = own_address(doc, machine);
    doc.show("ListenAddress", address);
    address
}

fn own_address(doc: &mut Document<'_>, machine: &dyn Machine) -> IpAddr {
    let local = machine::local_address(machine);
    let Some(value) = doc.find("ListenAddress") else { return local };
    let found = machine::resolve_one(machine, value.text);
    let unknown = |_| value.refuse(Problem::UnknownListenAddress(value.text.to_owned()));
    match doc.accept(found.map_err(unknown)) {
        Some(address) if !address.is_unspecified() => return address,
        // 0.4 did not check; its peers then know the node by the address of its name.
        Some(_) if doc.release == Release::V04 => {
            let text = format!("ListenAddress must be a single interface; {local} is taken");
            doc.notes.warn(value.place.line, text);
        }
        Some(_) => doc.refuse(value.refuse(Problem::ListenAddressIsAny)),
        None => {}
    }
    local
}

/// Where operators are served.
pub(super) fn admin(
    doc: &mut Document<'_>,
    machine: &dyn Machine,
    jmx_port: Option<u16>,
) -> AdminSettings {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let token = doc.find("AdminToken").map(|value| value.text.to_owned());
    let is_set = token.is_some();
    let token_is_required = doc.setting("AdminTokenRequired", is_set, |value| {
        let is_required = value.boolean("AdminTokenRequired")?;
        let is_possible = is_set || !is_required;
        is_possible.then_some(is_required).ok_or_else(|| value.refuse(Problem::NoToken))
    });
    let address = doc.setting("AdminAddress", loopback, |value| resolve(machine, value));
    let port = match jmx_port {
        Some(port) => doc.setting("AdminPort", port, Value::port),
        None => doc.port("AdminPort"),
    };
    let is_given = doc.sources.contains_key("AdminPort");
    // The token itself is a secret, and what is shown is pasted into mails.
    doc.show("AdminToken", if is_set { "(set)" } else { "(none)" });
    if let Some(port) = jmx_port.filter(|_| !is_given) {
        let text = format!("AdminPort is {port} by -Dcom.sun.management.jmxremote.port");
        doc.notes.info(doc.root_line(), text);
    }
    AdminSettings {
        address,
        port,
        port_is_required: is_given || jmx_port.is_some(),
        token,
        token_is_required,
    }
}

/// Where clients are served.
pub(super) fn thrift(
    doc: &mut Document<'_>,
    machine: &dyn Machine,
    listen_address: IpAddr,
) -> ThriftSettings {
    let address = doc.setting("ThriftAddress", listen_address, |value| resolve(machine, value));
    let port = doc.port("ThriftPort");
    let framed = doc.boolean("ThriftFramedTransport");
    let api_version = ours::api_version(doc);
    let (max_message_bytes, receive_budget_bytes) =
        ours::message_limits(doc, machine.memory_bytes());
    let max_connections = doc.integer("ThriftMaxConnections");
    let idle_seconds = doc.integer("ThriftIdleTimeoutInSeconds");
    let idle_timeout = (idle_seconds > 0).then(|| Duration::from_secs(idle_seconds.into()));
    let mut listeners = Vec::new();
    for (element, place) in doc.entries("ThriftListeners", "ThriftListener") {
        let first = ListenerSettings { address, port, framed, api_version, line: place.line };
        listeners.extend(listener(doc, machine, element, &place, &first));
    }
    doc.show("ThriftListeners", joined(&listeners, "(none)"));
    ThriftSettings {
        address,
        port,
        framed,
        api_version,
        max_message_bytes,
        max_connections,
        idle_timeout,
        receive_budget_bytes,
        listeners,
    }
}

/// A further port for clients. It is as the first one where the element says nothing else.
fn listener<'a>(
    doc: &mut Document<'a>,
    machine: &dyn Machine,
    element: &'a Element,
    place: &Place<'a>,
    first: &ListenerSettings,
) -> Option<ListenerSettings> {
    let value = |name| Value::of_attribute(element, place, name);
    let listener = ListenerSettings {
        address: doc.read_or(value("Address"), first.address, |value| resolve(machine, value)),
        framed: doc.read_or(value("FramedTransport"), first.framed, |value| {
            value.boolean("FramedTransport")
        }),
        api_version: doc.read_or(value("ApiVersion"), first.api_version, ours::release),
        ..first.clone()
    };
    let Some(port) = value("Port") else {
        let port = Place { element: format!("{}/@Port", place.element), ..place.clone() };
        doc.refuse(port.refuse(Problem::Missing));
        return None;
    };
    let line = port.place.line;
    Some(ListenerSettings { port: doc.accept(port.port())?, line, ..listener })
}

/// A port that the server listens on.
struct Port<'a> {
    address: SocketAddr,
    place: Place<'a>,
    /// Whether the server cannot do without it.
    is_required: bool,
}

impl Port<'_> {
    /// Whether one of the two would take connections to the other.
    fn collides(&self, other: &Self) -> bool {
        let (one, other) = (self.address, other.address);
        let any = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
    }
}

/// Refuses ports that two listeners would share. A port that the server can do without is only
/// warned of.
pub(super) fn check_ports(
    doc: &mut Document<'_>,
    network: &NetworkSettings,
    thrift: &ThriftSettings,
    admin: &AdminSettings,
    seeds: &[IpAddr],
) {
    let port = |name, address, port, is_required| {
        let line = doc.sources.get(name).map_or(doc.root_line(), |source| source.line);
        let address = SocketAddr::new(address, port);
        Port { address, place: doc.place(name, line), is_required }
    };
    let needs_storage_port = network.needs_storage_port(seeds);
    let mut ports = vec![
        port("ThriftPort", thrift.address, thrift.port, true),
        port("StoragePort", network.listen_address, network.storage_port, needs_storage_port),
        port("AdminPort", admin.address, admin.port, admin.port_is_required),
    ];
    ports.extend(thrift.listeners.iter().map(|listener| Port {
        address: SocketAddr::new(listener.address, listener.port),
        place: doc.place("ThriftListeners/ThriftListener/@Port", listener.line),
        is_required: true,
    }));
    for (at, port) in ports.iter().enumerate() {
        let Some(taken) = ports.iter().take(at).find(|earlier| earlier.collides(port)) else {
            continue;
        };
        let problem = Problem::PortTaken(taken.place.element.clone());
        if port.is_required {
            let number = port.address.port().to_string();
            doc.refuse(port.place.error(Some(&number), problem));
        } else {
            doc.notes.warn(port.place.line, format!("{}: {problem}", port.place.element));
        }
    }
}
