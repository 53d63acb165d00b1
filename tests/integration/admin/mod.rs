//! The admin side of the built server, and `nodetool`: what each command does and prints, who may
//! do what, and how much of the machine a client may take.

mod access;
mod column_families;
mod command_line;
mod console;
mod drain;
mod information;
mod json;
mod layouts;
mod pools;
mod ports;
mod ring;
mod slow;
mod snapshots;
mod support;
mod top_rows;
mod troubles;

use crate::server::calls::{KEYSPACE, Path as ColumnPath};
use crate::server::client::Client;
use crate::server::{Options, Server, program};
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::fs::OsFileSystem;
use alexandra::config::Loader;
use alexandra::model::comparator::ComparatorRegistry;
use alexandra::node::{NodeOptions, StorageSetup};
use alexandra::storage::database::Components;
use alexandra::storage::system::saved_ring::RingNote;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

/// How long a test waits for what happens in the background.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long the server lets a client take for a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// A server with a directory of its own.
pub(crate) struct Node {
    server: Server,
    directory: tempfile::TempDir,
}

impl Node {
    pub(crate) fn start(options: &Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), options);
        Self { server, directory }
    }

    fn admin(&self) -> SocketAddr {
        admin_address(self.directory.path())
    }

    /// Runs `nodetool` against it.
    fn nodetool(&self, arguments: &[&str]) -> Output {
        nodetool(self.admin(), arguments)
    }

    /// Output of a command that succeeds.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.nodetool(arguments);
        let (told, error) = texts(&output);
        assert!(output.status.success() && error.is_empty(), "{arguments:?}: {error}");
        told
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// The figures of a column family.
    fn family(&self, name: &str) -> Value {
        let keyspaces = self.json(&["cfstats", KEYSPACE, name]);
        keyspaces[0]["column_families"][0].clone()
    }

    fn insert(&self, family: &str, keys: std::ops::Range<usize>) {
        let mut client = Client::connect(self.server.thrift_address());
        for key in keys {
            let path = ColumnPath::column(family, b"column");
            client.insert(&format!("row {key}"), path, &[b'v'; 100], 1).unwrap();
        }
    }

    /// Starts it anew, with these notes of the ring as if it had made them before.
    fn restart_with(&mut self, notes: &[RingNote]) {
        assert!(self.server.stop().success());
        let comparators = ComparatorRegistry::default();
        let loader = Loader::for_server(&comparators);
        let settings = loader.load(Some(self.directory.path())).unwrap().settings;
        let setup = StorageSetup::new(&settings, &NodeOptions::default()).unwrap();
        let components = Components::new(Arc::new(OsFileSystem), Arc::new(SystemClock::new()));
        let storage = setup.open(components).unwrap();
        for note in notes {
            note.write(&storage, 1).unwrap();
        }
        storage.close();
        // It holds the directories.
        drop(storage);
        self.server.restart();
    }

    /// Has it do something by a request with a body of JSON.
    fn change(&self, line: &str, body: &str) -> (u16, Value) {
        let head =
            [&*format!("{line} HTTP/1.1"), "Host: localhost", "Content-Type: application/json"];
        let (status, answer) = self.request(&head, body);
        (status, serde_json::from_str(&answer).unwrap())
    }

    /// Sends a request and returns the status and the body of the answer.
    pub(crate) fn request(&self, head: &[&str], body: &str) -> (u16, String) {
        let head = head.join("\r\n");
        let length = body.len();
        let text = format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        exchange(self.admin(), &text)
    }
}

/// Where the configuration says that operators are served.
pub(crate) fn admin_address(directory: &Path) -> SocketAddr {
    port_address(directory, "AdminPort")
}

/// The loopback address with a port of the configuration.
fn port_address(directory: &Path, element: &str) -> SocketAddr {
    let text = fs::read_to_string(directory.join("storage-conf.xml")).unwrap();
    let (_, behind) = text.split_once(&format!("<{element}>")).unwrap();
    let (port, _) = behind.split_once("</").unwrap();
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()))
}

pub(crate) fn nodetool(admin: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    let (host, port) = (admin.ip().to_string(), admin.port().to_string());
    command.args(["nodetool", "-h", &host, "-p", &port]).args(arguments).output().unwrap()
}

/// Standard output and standard error.
fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn assert_refused(output: &Output, exit_code: i32, why: &str) {
    let (told, error) = texts(output);
    assert_eq!((output.status.code(), told.as_str()), (Some(exit_code), ""), "{error}");
    assert!(error.contains(why), "{error}");
}

/// Sends a text and reads until the server closes the connection: status and body.
pub(crate) fn exchange(admin: SocketAddr, text: &str) -> (u16, String) {
    let (head, body) = exchange_whole(admin, text);
    (head.split(' ').nth(1).unwrap_or("0").parse().unwrap(), body)
}

/// The same, with the whole head.
fn exchange_whole(admin: SocketAddr, text: &str) -> (String, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may answer and close before everything was sent.
    let _ = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

/// Asks until the answer is the wanted one.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
