//! Servers, and the connections of a thread to them.

use super::trouble::{Trouble, TroubleKind};
use crate::base::tls::Trust;
use crate::client::Client;
use crate::commands::output::Failure;
use crate::commands::passwd::{PASSWORD_VARIABLE, no_password};
use crate::thrift::idl::{
    ConsistencyLevel, DescribeKeyspaceArgs, Exception, GetStringListPropertyArgs,
};
use crate::thrift::remote::CallError;
use std::env;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

/// Shortest and longest pause after a round over all nodes without a connection.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Comparators under which names of columns are text.
const TEXTUAL: [&str; 3] = ["BytesType", "AsciiType", "UTF8Type"];

/// A server.
#[derive(Debug, Clone)]
pub(super) struct Node {
    host: String,
    /// Instead of `--port`.
    port: Option<u16>,
}

impl FromStr for Node {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no HOST or HOST:PORT");
        let (host, port) = match text.rsplit_once(':') {
            // An address of version 6 without a port has several colons.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| bad())?))
            }
            _ => (text, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() { Err(bad()) } else { Ok(Self { host: host.to_owned(), port }) }
    }
}

/// Several servers, with commas between them.
#[derive(Debug, Clone)]
pub(super) struct Nodes(Vec<Node>);

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Node { host, port }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{host}")?;
            if let Some(port) = port {
                write!(f, ":{port}")?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Place {
    /// ThriftPort of nodes without one of their own
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 9160)]
    pub(super) port: u16,

    /// Frames messages; an Alexandra server takes both
    #[arg(short = 'm', long)]
    pub(super) framed: bool,

    /// Speaks TLS, with servers whose certificates an authority of this file has signed
    #[arg(long = "tls-authority", value_name = "FILE")]
    pub(super) trust: Option<Trust>,

    /// Keyspace
    #[arg(long, default_value = "Keyspace1")]
    pub(super) keyspace: String,

    /// Column family; Standard1 or, with --super-columns, Super1
    #[arg(long)]
    pub(super) family: Option<String>,

    /// Consistency level
    #[arg(long, default_value = "ONE", value_parser = level)]
    pub(super) level: ConsistencyLevel,

    /// Logs in to the keyspace
    #[arg(long)]
    pub(super) username: Option<String>,

    /// Its password, which others on this machine can see; else in ALEXANDRA_PASSWORD
    #[arg(long, requires = "username")]
    pub(super) password: Option<String>,
}

fn level(text: &str) -> Result<ConsistencyLevel, String> {
    let values = ConsistencyLevel::SCHEMA.values;
    let number = values.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    number.and_then(|(_, number)| ConsistencyLevel::from_number(*number)).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        format!("the levels are {}", names.join(", "))
    })
}

impl Place {
    fn open(&self, Node { host, port }: &Node) -> Result<Client, Trouble> {
        let port = port.unwrap_or(self.port);
        let failed = |error: io::Error| {
            Trouble::new(
                TroubleKind::Connection,
                format!("cannot connect to {host}:{port}: {error}"),
            )
        };
        let mut client =
            Client::connect((host, port), self.framed, self.trust.as_ref()).map_err(failed)?;
        if let Some(username) = &self.username {
            let password = self.password.clone().or_else(|| env::var(PASSWORD_VARIABLE).ok());
            let missing = || Trouble::new(TroubleKind::Connection, no_password());
            client.login(&self.keyspace, username, &password.ok_or_else(missing)?)?;
        }
        Ok(client)
    }

    /// Looks at the first node that answers whether it has the column family, and whether that can
    /// hold the rows.
    pub(super) fn look(&self, nodes: &Nodes, family: &str, is_super: bool) -> Result<(), Failure> {
        let mut opened = Err(Trouble::new(TroubleKind::Connection, "there is no node"));
        for node in &nodes.0 {
            opened = self.open(node);
            if opened.is_ok() {
                break;
            }
        }
        let mut client = opened.map_err(|trouble| Failure::new(trouble.text))?;
        let keyspace = &self.keyspace;
        let describe = DescribeKeyspaceArgs { keyspace: keyspace.into() };
        let families = match client.call(&describe) {
            Ok(families) => families,
            Err(CallError::Declared(Exception::NotFound, _)) => {
                let property = GetStringListPropertyArgs { property: "keyspaces".into() };
                let known = client.call(&property).map_err(Failure::new)?.join(", ");
                return Err(Failure::new(format_args!(
                    "there is no keyspace '{keyspace}' on {nodes}: name one with --keyspace, or \
                     add it to storage-conf.xml; there are: {known}"
                )));
            }
            Err(error) => return Err(Failure::new(format_args!("{nodes}: {error}"))),
        };
        let Some((_, properties)) = families.iter().find(|(name, _)| name == family) else {
            let known: Vec<&str> = families.iter().map(|(name, _)| name.as_ref()).collect();
            return Err(Failure::new(format_args!(
                "keyspace '{keyspace}' on {nodes} has no column family '{family}': name one with \
                 --family, or add it to storage-conf.xml; there are: {}",
                known.join(", ")
            )));
        };
        let property = |name: &str| properties.iter().find(|(it, _)| it == name);
        let is_textual = |name: &str| {
            property(name).is_none_or(|(_, it)| TEXTUAL.iter().any(|known| it.ends_with(known)))
        };
        let holds_supers = property("Type").is_some_and(|(_, it)| it == "Super");
        let hint = match (holds_supers, is_super) {
            (true, false) => "holds super columns: say how many with --super-columns",
            (false, true) => "holds no super columns: leave out --super-columns",
            _ if is_textual("CompareWith") && is_textual("CompareSubcolumnsWith") => return Ok(()),
            _ => "has other names of columns than text: take one with BytesType",
        };
        Err(Failure::new(format_args!("column family '{family}' on {nodes} {hint}")))
    }
}

/// Connection of a thread to one of the nodes, and to the next one when that fails.
pub(super) struct Connection<'r> {
    nodes: &'r [Node],
    place: &'r Place,
    /// Number of connections that were tried, and where the first one was.
    tried: usize,
    failures: u32,
    client: Option<Client>,
}

impl<'r> Connection<'r> {
    /// A connection that begins with the node of this number.
    pub(super) fn new(nodes: &'r Nodes, place: &'r Place, first: usize) -> Self {
        Self { nodes: &nodes.0, place, tried: first, failures: 0, client: None }
    }

    /// The client of the present connection, or of a new one if that is broken.
    pub(super) fn client(&mut self) -> Result<&mut Client, Trouble> {
        let client = match self.client.take() {
            Some(client) if !client.is_broken() => client,
            _ => self.open()?,
        };
        Ok(self.client.insert(client))
    }

    fn open(&mut self) -> Result<Client, Trouble> {
        let node = &self.nodes[self.tried % self.nodes.len()];
        self.tried += 1;
        self.failures += 1;
        let client = self.place.open(node)?;
        self.failures = 0;
        Ok(client)
    }

    /// Pause before the next operation: none as long as there are nodes to try.
    pub(super) fn pause(&self) -> Duration {
        let rounds = self.failures / self.nodes.len().max(1) as u32;
        if rounds == 0 { Duration::ZERO } else { (PAUSES.0 * (1 << rounds.min(10))).min(PAUSES.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_hosts_and_perhaps_ports() {
        for text in ["a", "a:1", "a:1,b", "10.0.0.1:9160,10.0.0.2:9161"] {
            assert_eq!(text.parse::<Nodes>().unwrap().to_string(), text);
        }
        let node = |text: &str| text.parse::<Node>().map(|it| (it.host, it.port));
        assert_eq!(node("::1"), Ok(("::1".into(), None)));
        assert_eq!(node("[::1]:9160"), Ok(("::1".into(), Some(9160))));
        for text in ["", ":1", "a:", "a:x", "a:65536", "a,"] {
            assert!(text.parse::<Nodes>().is_err(), "{text}");
        }
    }
}
