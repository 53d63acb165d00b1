//! `alexandra dev-cluster`: several nodes on this machine, as processes of their own, for trying
//! things out. When it ends they end.

mod configuration;
mod directory;
mod processes;
mod running;

use super::offline::load_settings;
use super::output::{self, Failure};
use crate::base::machine;
use crate::config::xml::Element;
use crate::config::{self, ConfigError};
use configuration::{Layout, Places, name};
use directory::{Directory, write_configuration};
use processes::{Happening, Process};
use running::{Cluster, POLLS};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::thread;
use tokio::signal::unix::{SignalKind, signal};

/// Replicas of each row, as far as there are nodes, where no configuration says otherwise.
const REPLICAS: usize = 3;

/// The least memory for a node, in megabytes.
const LEAST_MEGABYTES: u64 = 64;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    nodes: u8,

    /// Keeps the data here, for the next time; without it they are removed at the end
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// A storage-conf.xml, or the directory that holds it: nodes run with it as far as they need
    /// nothing of their own; without it the built-in one
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Option<PathBuf>,

    /// Replicas of all keyspaces; by default those of --config, without it 3 as far as there are
    /// nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    replication_factor: Option<u8>,

    /// A system property of each node, such as -Dpasswd.properties=FILE
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    properties: Vec<String>,

    #[command(flatten)]
    places: Places,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Hosts of a configuration give way to addresses of this cluster, and may be out of reach here.
    let settings = load_settings(arguments.config.as_deref())?;
    let nodes = usize::from(arguments.nodes);
    let usual = REPLICAS.min(nodes);
    if let Some(factor) = arguments.replication_factor.filter(|&factor| factor > arguments.nodes) {
        complain!(
            "rows are to have {factor} replicas, and there are {nodes} nodes: reads count all \
             {factor}, so that ALL, and perhaps QUORUM, will be unavailable"
        );
    }
    let configured = arguments.config.is_some();
    let directory = Directory::open(arguments.directory.clone(), nodes)?;
    let layout = Layout {
        nodes,
        places: arguments.places.clone(),
        directory: directory.path.clone(),
        replication_factor: match arguments.replication_factor {
            Some(factor) => Some(usize::from(factor)),
            None => (!configured).then_some(usual),
        },
        divides_evenly: !settings.partitioner.preserves_order(),
        memory_megabytes: ((machine::memory_bytes() >> 20) / 4 / nodes as u64).max(LEAST_MEGABYTES),
    };
    check_addresses(&layout)?;
    let document = document(arguments.config.as_deref()).map_err(|error| {
        Failure::new(format_args!("the configuration cannot be rewritten: {error}"))
    })?;
    for number in 0..nodes {
        let configuration = layout.configure(document.clone(), number).to_string();
        write_configuration(&layout.directory_of(number), &configuration)?;
    }
    let (sender, happenings) = mpsc::channel();
    listen_for_signals(&sender)?;
    let properties: Vec<String> = arguments.properties.iter().map(|it| of_nodes(it)).collect();
    let start = |number| {
        let started = Process::start(number, &layout.directory_of(number), &properties, &sender);
        let text = |source| format!("{} cannot be started: {source}", name(number));
        started.map_err(|source| Failure::new(text(source)))
    };
    let processes = (0..nodes).map(start).collect::<Result<Vec<Process>, _>>()?;
    let starting = (0..nodes).collect();
    let (polls_left, is_temporary) = (Some(POLLS), directory.is_temporary);
    let cluster = Cluster { layout, processes, happenings, is_temporary, starting, polls_left };
    Ok(output::finish(cluster.run()))
}

/// A property as nodes find its file, which run in other directories.
fn of_nodes(property: &str) -> String {
    let file = property.split_once('=').filter(|(_, value)| Path::new(value).is_file());
    match file.and_then(|(name, file)| Some((name, std::path::absolute(file).ok()?))) {
        Some((name, file)) => format!("-D{name}={}", file.display()),
        None => format!("-D{property}"),
    }
}

/// The configuration with its token, which settings do not have in their text.
fn document(path: Option<&Path>) -> Result<Element, ConfigError> {
    let (text, origin) = config::read(path)?;
    Element::parse(text.trim_start_matches('\u{feff}'), &origin)
}

/// Whether all nodes will find their addresses and ports, which is more easily said before they
/// are started.
fn check_addresses(layout: &Layout) -> Result<(), Failure> {
    let Places { first_address, thrift_port, cql_port, storage_port, admin_port } = layout.places;
    if first_address.is_unspecified() {
        return Err(not_of_this_machine(first_address));
    }
    for address in (0..layout.nodes).map(|number| layout.address(number)) {
        for port in [thrift_port, cql_port, storage_port, admin_port] {
            let listen = SocketAddr::from((address, port));
            match TcpListener::bind(listen) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    return Err(not_of_this_machine(address));
                }
                Err(source) => {
                    return Err(Failure::new(format_args!(
                        "cannot listen on {listen}: {source}. Is another server running? \
                         --first-address, --thrift-port, --cql-port, --storage-port and \
                         --admin-port say where else"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn not_of_this_machine(address: Ipv4Addr) -> Failure {
    Failure::new(format_args!(
        "{address} is not an address of this machine. On Linux all of 127.0.0.0/8 is; on macOS \
         each further one has to be added: sudo ifconfig lo0 alias {address} up"
    ))
}

/// Tells of each signal that is to end this process, on a thread that ends with it.
fn listen_for_signals(happenings: &Sender<Happening>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let failed =
        |error: io::Error| Failure::new(format_args!("signals cannot be listened for: {error}"));
    let runtime = runtime.map_err(failed)?;
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let inside = runtime.enter();
        let mut signals = signal(kind).map_err(failed)?;
        drop(inside);
        let happenings = happenings.clone();
        runtime.spawn(async move {
            while signals.recv().await.is_some() && happenings.send(Happening::Stop).is_ok() {}
        });
    }
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FILE_NAME;

    #[test]
    fn nodes_find_the_files_of_properties() {
        let file = std::path::absolute("Cargo.toml").unwrap();
        let expected = format!("-Dpasswd.properties={}", file.display());
        assert_eq!(of_nodes("passwd.properties=Cargo.toml"), expected);
        assert_eq!(of_nodes("passwd.mode=MD5"), "-Dpasswd.mode=MD5");
    }

    #[test]
    fn nodes_have_the_token_of_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let text = "\u{feff}<Storage><AdminToken>secret</AdminToken></Storage>";
        std::fs::write(directory.path().join(FILE_NAME), text).unwrap();
        let document = document(Some(directory.path())).unwrap();
        assert_eq!(document.children_named("AdminToken").next().unwrap().text, "secret");
        assert_eq!(document.children.len(), 1);
    }
}
