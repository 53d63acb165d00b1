//! Configurations of the nodes of a cluster for development.

use crate::config::xml::Element;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Nodes turn to this many of the first ones.
const SEEDS: usize = 2;

/// Addresses and ports of the nodes.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Places {
    /// The address of the first node; the others have the following ones
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(super) first_address: Ipv4Addr,

    /// Where each node serves clients
    #[arg(long, value_name = "PORT", default_value_t = 9160)]
    pub(super) thrift_port: u16,

    /// Where each node serves CQL clients
    #[arg(long, value_name = "PORT", default_value_t = 9042)]
    pub(super) cql_port: u16,

    /// Where each node listens for the others
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    pub(super) storage_port: u16,

    /// Where each node listens for nodetool
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(super) admin_port: u16,
}

/// Differences of the nodes.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Number of nodes.
    pub(super) nodes: usize,
    pub(super) places: Places,
    /// Each has a directory below this one.
    pub(super) directory: PathBuf,
    /// Replicas of all keyspaces; `None` to leave them as they are.
    pub(super) replication_factor: Option<usize>,
    /// Whether tokens are numbers, which can divide the ring evenly.
    pub(super) divides_evenly: bool,
    /// `MemoryBudgetInMB` of each, unless the configuration has one.
    pub(super) memory_megabytes: u64,
}

impl Layout {
    /// The address of a node; the first has the number 0.
    pub(super) fn address(&self, number: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.places.first_address.to_bits() + number as u32)
    }

    /// Its directory.
    pub(super) fn directory_of(&self, number: usize) -> PathBuf {
        self.directory.join(name(number))
    }

    /// The configuration of a node.
    pub(super) fn configure(&self, mut storage: Element, number: usize) -> Element {
        let directory = self.directory_of(number);
        let address = self.address(number).to_string();
        let mut put = |name: &str, text: &str| set(&mut storage, leaf(name, text));
        for name in ["ListenAddress", "ThriftAddress", "CqlAddress", "AdminAddress"] {
            put(name, &address);
        }
        put("ThriftPort", &self.places.thrift_port.to_string());
        put("CqlPort", &self.places.cql_port.to_string());
        put("StoragePort", &self.places.storage_port.to_string());
        put("AdminPort", &self.places.admin_port.to_string());
        put("AutoBootstrap", "false");
        put("InitialToken", &self.token(number));
        put("CommitLogDirectory", &below(&directory, "commitlog"));
        put("SavedCachesDirectory", &below(&directory, "saved_caches"));
        put("HintsDirectory", &below(&directory, "hints"));
        let seeds = (0..self.nodes.min(SEEDS)).map(|seed| self.address(seed).to_string());
        set(&mut storage, list("Seeds", "Seed", seeds));
        let data = std::iter::once(below(&directory, "data"));
        set(&mut storage, list("DataFileDirectories", "DataFileDirectory", data));
        if storage.children_named("MemoryBudgetInMB").next().is_none() {
            set(&mut storage, leaf("MemoryBudgetInMB", &self.memory_megabytes.to_string()));
        }
        // Nodes must not share an archive, and their lines are shown here.
        let is_shared = |name: &str| ["CommitLogArchiveDirectory", "LogFile"].contains(&name);
        storage.children.retain(|child| !is_shared(&child.name));
        if let Some(factor) = self.replication_factor {
            replicate(&mut storage, factor);
        }
        storage
    }

    /// A token that divides the ring evenly, or an empty text for a random one.
    fn token(&self, number: usize) -> String {
        if !self.divides_evenly {
            return String::new();
        }
        let step = (1_u128 << 127) / self.nodes as u128;
        (step * number as u128).to_string()
    }
}

/// Name of a node in directories and before its log lines.
pub(super) fn name(number: usize) -> String {
    format!("node{}", number + 1)
}

fn below(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

fn leaf(name: &str, text: &str) -> Element {
    let (name, text) = (name.to_owned(), text.to_owned());
    Element { name, line: 0, attributes: Vec::new(), text, children: Vec::new() }
}

fn list(name: &str, of: &str, texts: impl Iterator<Item = String>) -> Element {
    let children = texts.map(|text| leaf(of, &text)).collect();
    Element { children, ..leaf(name, "") }
}

/// Puts a child in the place of those of its name, or after all others.
fn set(parent: &mut Element, child: Element) {
    let place = parent.children.iter().position(|it| it.name == child.name);
    parent.children.retain(|it| it.name != child.name);
    parent.children.insert(place.unwrap_or(parent.children.len()), child);
}

/// Sets the replication factor of all keyspaces. Files of 0.4 and 0.5 have one for all of them.
fn replicate(storage: &mut Element, factor: usize) {
    let keyspaces = storage.children.iter_mut().filter(|child| child.name == "Keyspaces");
    let inner = keyspaces.flat_map(|it| &mut it.children).flat_map(|it| &mut it.children);
    for element in inner.filter(|it| it.name == "ReplicationFactor") {
        element.text = factor.to_string();
    }
    for element in storage.children.iter_mut().filter(|it| it.name == "ReplicationFactor") {
        element.text = factor.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Release;
    use crate::config::{Loader, Settings};
    use crate::model::comparator::ComparatorRegistry;
    use std::net::IpAddr;

    fn layout() -> Layout {
        Layout {
            nodes: 4,
            places: Places {
                first_address: Ipv4Addr::new(127, 0, 0, 255),
                thrift_port: 9161,
                cql_port: 9043,
                storage_port: 7001,
                admin_port: 8081,
            },
            directory: PathBuf::from("/some <where>"),
            replication_factor: Some(3),
            divides_evenly: true,
            memory_megabytes: 100,
        }
    }

    fn settings(layout: &Layout, text: &str, number: usize) -> Settings {
        let element = layout.configure(Element::parse(text, "a test").unwrap(), number);
        let comparators = ComparatorRegistry::default();
        Loader::for_server(&comparators).parse(&element.to_string(), "a test").unwrap().settings
    }

    #[test]
    fn nodes_differ_where_they_have_to() {
        let comparators = ComparatorRegistry::default();
        let base = Loader::for_server(&comparators).load(None).unwrap().settings;
        let settings = settings(&layout(), &base.text, 3);
        let address = IpAddr::from([127, 0, 1, 2]);
        assert_eq!(settings.network.listen_address, address);
        assert_eq!((settings.thrift.address, settings.thrift.port), (address, 9161));
        let cql = settings.cql.unwrap();
        assert_eq!((cql.address, cql.port), (address, 9043));
        assert_eq!((settings.admin.address, settings.admin.port), (address, 8081));
        assert_eq!(settings.network.storage_port, 7001);
        let seeds = [[127, 0, 0, 255], [127, 0, 1, 0]].map(IpAddr::from);
        assert_eq!(settings.seeds, seeds);
        let token = (3_u128 << 125).to_string();
        assert_eq!(settings.initial_token, Some(token));
        let directory = PathBuf::from("/some <where>/node4");
        assert_eq!(settings.directories.data, [directory.join("data")]);
        assert_eq!(settings.directories.hints, directory.join("hints"));
        assert_eq!(settings.memory.budget_bytes, Some(100 << 20));
        assert_eq!(settings.keyspaces.len(), base.keyspaces.len());
        assert!(settings.keyspaces.iter().all(|keyspace| keyspace.replication_factor == 3));
    }

    #[test]
    fn files_of_all_generations_can_be_given() {
        let texts = [
            (Release::V04, include_str!("../../../tests/configs/0.4.xml")),
            (Release::V05, include_str!("../../../tests/configs/0.5.xml")),
            (Release::V06, include_str!("../../../tests/configs/0.6.xml")),
        ];
        let mut layout = layout();
        layout.divides_evenly = false;
        for (release, text) in texts {
            let settings = settings(&layout, text, 0);
            assert_eq!(settings.network.listen_address, IpAddr::from([127, 0, 0, 255]));
            assert_eq!(settings.initial_token, None);
            assert_eq!(settings.release, release);
            assert!(settings.keyspaces.iter().all(|keyspace| keyspace.replication_factor == 3));
        }
    }
}
