//! Addresses and ports of the node, of clients and of operators.

use super::document::{Document, MIB, Value, joined};
use super::error::{ConfigError, FailureClass, Place, Problem};
use super::machine::{self, Machine};
use super::memory;
use super::settings::{
    AdminSettings, CqlSettings, ListenerSettings, LogFile, NetworkSettings, PeerNetworks, Release,
    ThriftSettings,
};
use super::xml::Element;
use crate::base::log_levels;
use crate::base::tls::{self, Mode};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The address of a configured host.
pub(super) fn resolve(machine: &dyn Machine, value: &Value<'_>) -> Result<IpAddr, ConfigError> {
    machine::resolve_one(machine, value.text).map_err(|reason| {
        let text = format!("{}: {reason}", value.text);
        value.refuse(Problem::new(FailureClass::UnknownHost, text))
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
    let unknown = |_| value.refuse(format!("Unknown ListenAddress '{}'", value.text));
    match doc.accept(found.map_err(unknown)) {
        Some(address) if !address.is_unspecified() => return address,
        // 0.4 did not check; its peers then know the node by the address of its name.
        Some(_) if doc.release == Release::V04 => {
            let text = format!("ListenAddress must be a single interface; {local} is taken");
            doc.notes.warn(value.place.line, text);
        }
        Some(_) => doc.refuse(value.refuse(
            "ListenAddress must be a single interface.  See \
             http://wiki.apache.org/cassandra/FAQ#cant_listen_on_ip_any",
        )),
        None => {}
    }
    local
}

/// Characters of a token that is not easily guessed.
const LEAST_TOKEN: usize = 16;

/// Settings of the side for operators.
pub(super) fn admin(
    doc: &mut Document<'_>,
    machine: &dyn Machine,
    jmx_port: Option<u16>,
) -> AdminSettings {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let token = doc.find("AdminToken");
    if let Some(value) = token.as_ref().filter(|it| it.text.len() < LEAST_TOKEN) {
        let text = format!("AdminToken has fewer than {LEAST_TOKEN} characters: it may be guessed");
        doc.notes.warn(value.place.line, text);
    }
    let token = token.map(|value| value.text.to_owned());
    let is_set = token.is_some();
    let token_is_required = doc.setting("AdminTokenRequired", is_set, |value| {
        let is_required = value.boolean("AdminTokenRequired")?;
        let is_possible = is_set || !is_required;
        let text = "there is no AdminToken, so that nobody could change anything";
        is_possible.then_some(is_required).ok_or_else(|| value.refuse(text))
    });
    let address = doc.setting("AdminAddress", loopback, |value| resolve(machine, value));
    let is_local = address.is_unspecified() || address.to_canonical().is_loopback();
    if let Some(source) = doc.sources.get("AdminAddress").filter(|_| !is_local && !is_set) {
        let text = "AdminAddress: nobody can change anything there without an AdminToken: only \
                    changes over the loopback interface need none";
        doc.notes.warn(source.line, text.to_owned());
    }
    let port = match jmx_port {
        Some(port) => doc.setting("AdminPort", port, Value::port),
        None => doc.port("AdminPort"),
    };
    let is_given = doc.sources.contains_key("AdminPort");
    // The token itself is a secret, and what is shown is pasted into mails.
    doc.show("AdminToken", if is_set { "(set)" } else { "(none)" });
    if let Some(port) = jmx_port.filter(|_| !is_given) {
        let text = format!("AdminPort is {port} by -Dcom.sun.management.jmxremote.port");
        doc.notes.info(doc.root.line, text);
    }
    AdminSettings {
        address,
        port,
        port_is_required: is_given || jmx_port.is_some(),
        token,
        token_is_required,
        log_levels: levels(doc),
        log_file: log_file(doc, machine),
        slow_requests: slow_requests(doc),
    }
}

/// `SlowRequestsInMillis`; `None` for 0.
fn slow_requests(doc: &mut Document<'_>) -> Option<Duration> {
    let millis = doc.integer("SlowRequestsInMillis");
    (millis > 0).then(|| Duration::from_millis(millis.into()))
}

/// Levels of the log.
fn levels(doc: &mut Document<'_>) -> Option<String> {
    let levels = doc.optional("LogLevels", |value| {
        let parsed = log_levels::parse(value.text);
        parsed.map_err(|why| value.refuse(Problem::startup(why)))?;
        Ok(value.text.to_owned())
    });
    doc.show("LogLevels", levels.as_deref().unwrap_or("(those of the start)"));
    levels
}

/// `LogFile`, whose directory a server could create.
fn log_file(doc: &mut Document<'_>, machine: &dyn Machine) -> Option<LogFile> {
    let max_bytes = doc.megabytes("LogFileMaxSizeInMB");
    let backups = doc.integer("LogFileMaxBackups");
    let path = doc.optional("LogFile", |value| {
        let path = Path::new(".").join(value.text);
        machine.check_directory(path.parent().unwrap_or(&path)).map_err(|source| {
            let text = format!("the directory of the log cannot be used: {source}");
            value.refuse(Problem::startup(text))
        })?;
        Ok(PathBuf::from(value.text))
    });
    match &path {
        Some(path) => doc.show("LogFile", path.display()),
        None => doc.show("LogFile", "(none: standard error)"),
    }
    path.map(|path| LogFile { path, max_bytes, backups })
}

/// Addresses, ports and limits of the side for clients.
pub(super) fn thrift(
    doc: &mut Document<'_>,
    machine: &dyn Machine,
    listen_address: IpAddr,
) -> ThriftSettings {
    let address = doc.setting("ThriftAddress", listen_address, |value| resolve(machine, value));
    let port = doc.port("ThriftPort");
    let framed = doc.boolean("ThriftFramedTransport");
    let api_version = doc.setting("ThriftApiVersion", doc.release, release);
    let (max_message_bytes, receive_budget_bytes) = message_limits(doc, machine.memory_bytes());
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

/// Address and port for CQL clients; `None` unless the file names a port.
pub(super) fn cql(
    doc: &mut Document<'_>,
    machine: &dyn Machine,
    thrift_address: IpAddr,
) -> Option<CqlSettings> {
    let address = doc.setting("CqlAddress", thrift_address, |value| resolve(machine, value));
    let port = doc.optional("CqlPort", Value::port);
    doc.show("CqlPort", port.map_or_else(|| "(off)".to_owned(), |port| port.to_string()));
    port.map(|port| CqlSettings { address, port, port_is_required: true })
}

/// TLS of all ports, and its files, which are not read here.
pub(super) fn tls(doc: &mut Document<'_>) -> tls::Options {
    let mut file = |element| {
        let path = doc.optional(element, |value| Ok(PathBuf::from(value.text)));
        doc.show(element, path.as_ref().map_or("(none)".into(), |path| path.to_string_lossy()));
        path
    };
    tls::Options {
        certificate: file("TlsCertificateFile"),
        key: file("TlsKeyFile"),
        authority: file("TlsAuthorityFile"),
        modes: tls::Port::ALL.map(tls::Port::element).map(|element| {
            doc.setting(element, Mode::Off, |value| value.one_of(element, &Mode::ALL))
        }),
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
        api_version: doc.read_or(value("ApiVersion"), first.api_version, release),
        ..first.clone()
    };
    let Some(port) = value("Port") else {
        let port = Place { element: format!("{}/@Port", place.element), ..place.clone() };
        doc.refuse(port.refuse(Problem::missing()));
        return None;
    };
    let line = port.place.line;
    Some(ListenerSettings { port: doc.accept(port.port())?, line, ..listener })
}

/// The generation that a value names.
fn release(value: &Value<'_>) -> Result<Release, ConfigError> {
    value.one_of("ThriftApiVersion", &Release::ALL)
}

/// `ThriftMaxMessageInMB` and `ThriftReceiveBudgetInMB`, in bytes, on a machine with as many bytes
/// of memory. The budget holds at least one message, or the largest could never arrive.
fn message_limits(doc: &mut Document<'_>, machine: u64) -> (u64, u64) {
    // Thrift counts the bytes of a frame in 31 bits.
    const MOST_MEGABYTES: u32 = 2047;
    const DEFAULT_BUDGET: u32 = 256;
    let mut message = 64;
    if let Some(value) = doc.find("ThriftMaxMessageInMB") {
        message = doc.at_least(&value, 1).unwrap_or(message);
        if message > MOST_MEGABYTES {
            doc.refuse(value.refuse("must be at most 2047"));
        }
    }
    let mut budget = DEFAULT_BUDGET.max(message);
    if let Some(value) = doc.find("ThriftReceiveBudgetInMB") {
        budget = doc.at_least(&value, 1).unwrap_or(budget);
        if budget < message {
            doc.refuse(value.refuse("must be at least ThriftMaxMessageInMB"));
        }
        memory::check_fits(doc, &value, u64::from(budget) * MIB, machine);
    }
    doc.show("ThriftMaxMessageInMB", message);
    doc.show("ThriftReceiveBudgetInMB", budget);
    (u64::from(message) * MIB, u64::from(budget) * MIB)
}

/// `PeerNetworks`: all if the element is absent.
pub(super) fn peer_networks(doc: &mut Document<'_>) -> PeerNetworks {
    const FORMS: [&str; 1] = ["an address, or a network such as 10.1.0.0/16"];
    let mut networks = Vec::new();
    for value in doc.list("PeerNetworks", "PeerNetwork") {
        let unknown = || value.refuse(Problem::unknown_word("PeerNetwork").allowing(FORMS));
        networks.extend(doc.accept(parse_network(value.text).ok_or_else(unknown)));
    }
    doc.show("PeerNetworks", joined(&networks, "(all)"));
    PeerNetworks(networks)
}

/// Warns of seeds that `PeerNetworks` shuts out.
pub(super) fn check_peers(doc: &mut Document<'_>, network: &NetworkSettings, seeds: &[IpAddr]) {
    let Some(source) = doc.sources.get("PeerNetworks").copied() else { return };
    let is_out =
        |seed: &&IpAddr| **seed != network.listen_address && !network.peer_networks.admit(**seed);
    for seed in seeds.iter().filter(is_out) {
        let text = format!("the seed {seed} is in none of PeerNetworks, and may not connect");
        doc.notes.warn(source.line, text);
    }
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
    (thrift, cql): (&ThriftSettings, Option<&CqlSettings>),
    admin: &AdminSettings,
    seeds: &[IpAddr],
) {
    let port = |name, address, port, is_required| {
        let line = doc.sources.get(name).map_or(doc.root.line, |source| source.line);
        let address = SocketAddr::new(address, port);
        Port { address, place: doc.place(name, line), is_required }
    };
    let needs_storage_port = network.needs_storage_port(seeds);
    let mut ports = vec![
        port("ThriftPort", thrift.address, thrift.port, true),
        port("StoragePort", network.listen_address, network.storage_port, needs_storage_port),
        port("AdminPort", admin.address, admin.port, admin.port_is_required),
    ];
    ports.extend(cql.map(|cql| port("CqlPort", cql.address, cql.port, true)));
    ports.extend(thrift.listeners.iter().map(|listener| Port {
        address: SocketAddr::new(listener.address, listener.port),
        place: doc.place("ThriftListeners/ThriftListener/@Port", listener.line),
        is_required: true,
    }));
    for (at, port) in ports.iter().enumerate() {
        let Some(taken) = ports.iter().take(at).find(|earlier| earlier.collides(port)) else {
            continue;
        };
        let taken = &taken.place.element;
        let text = format!("{taken} is this port already. Give each listener one of its own.");
        if port.is_required {
            let number = port.address.port().to_string();
            doc.refuse(port.place.error(Some(&number), text));
        } else {
            doc.notes.warn(port.place.line, format!("{}: {text}", port.place.element));
        }
    }
}

/// Reads `10.1.0.0/16`, `fd00::/8`, or an address alone; `None` if it is neither.
fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().map(IpNet::from).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_admits_what_has_its_first_bits() {
        let admits = |network: &str, address: &str| {
            PeerNetworks(vec![parse_network(network).unwrap()]).admit(address.parse().unwrap())
        };
        assert!(admits("10.1.0.0/16", "10.1.255.255") && !admits("10.1.0.0/16", "10.2.0.0"));
        assert!(admits("10.1.2.3/8", "10.9.9.9"), "bits after the prefix do not count");
        assert!(admits("10.1.2.3", "10.1.2.3") && !admits("10.1.2.3", "10.1.2.2"));
        assert!(admits("fd00::/8", "fdff::1") && !admits("0.0.0.0/0", "::1"));
        for text in ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "host", "1.2.3.4/-1"] {
            assert_eq!(parse_network(text), None, "{text}");
        }
    }
}
