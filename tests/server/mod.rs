//! A server process for the tests: the built binary on a directory and ports of its own.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]
#![allow(dead_code, reason = "every test file takes the part of this that it needs")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a start may take, on a machine that is busy with other tests.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Ports below those that the system hands out for outgoing connections, so that none of these
/// takes a port between its choice and the start of the server.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

const TEMPLATE: &str = include_str!("storage-conf.xml");

/// What a test changes in the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    elements: Vec<(String, String)>,
}

impl Options {
    /// Gives an element below `/Storage` another text; adds it if it is not there.
    #[must_use]
    pub(crate) fn with(mut self, element: &str, text: &str) -> Self {
        self.elements.push((element.into(), text.into()));
        self
    }
}

/// A running server. It is killed when this is dropped; its directory belongs to the caller.
#[derive(Debug)]
pub(crate) struct Server {
    directory: PathBuf,
    thrift: SocketAddr,
    process: Child,
}

impl Server {
    /// Writes a configuration into `directory`, starts the server on it and waits until it
    /// accepts Thrift calls. Panics with the end of its log if it does not come so far.
    pub(crate) fn start(directory: &Path, options: &Options) -> Self {
        let [thrift, storage, admin] = free_ports();
        let below = |name: &str| directory.join(name).display().to_string();
        let mut configuration = TEMPLATE.to_owned();
        let own = Options::default()
            .with("ThriftPort", &thrift.to_string())
            .with("StoragePort", &storage.to_string())
            .with("AdminPort", &admin.to_string())
            .with("DataFileDirectory", &below("data"))
            .with("CommitLogDirectory", &below("commitlog"))
            .with("SavedCachesDirectory", &below("saved_caches"));
        for (element, text) in own.elements.iter().chain(&options.elements) {
            set(&mut configuration, element, text);
        }
        fs::write(directory.join("storage-conf.xml"), configuration).unwrap();
        let thrift = SocketAddr::from((Ipv4Addr::LOCALHOST, thrift));
        let process = launch(directory, thrift);
        Self { directory: directory.to_owned(), thrift, process }
    }

    /// Ends the process as a power cut would: no signal handler runs, nothing is flushed.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended before.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Kills the process, if it still runs, and starts it anew on the same directory and ports.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = launch(&self.directory, self.thrift);
    }

    /// Where it accepts Thrift calls.
    pub(crate) fn thrift_address(&self) -> SocketAddr {
        self.thrift
    }

    /// All that it has written to its standard output and error, over all of its starts.
    pub(crate) fn log_path(&self) -> PathBuf {
        log_path(&self.directory)
    }

    /// The last lines of its log, for the message of a test that fails: the log itself is gone
    /// with the directory.
    pub(crate) fn log_end(&self) -> String {
        log_end(&self.directory)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(directory: &Path, thrift: SocketAddr) -> Child {
    let mut process = Command::new(env!("CARGO_BIN_EXE_alexandra"))
        .args(["serve", "--config"])
        .arg(directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_log(directory))
        .spawn()
        .unwrap();
    let output = process.stdout.take().expect("its standard output is a pipe");
    if let Err(error) = wait_until_ready(output, open_log(directory), thrift) {
        let _ = process.kill();
        let status = process.wait().unwrap();
        let log = log_end(directory);
        panic!("the server did not start ({error:?}, {status}); its log ends with:\n{log}");
    }
    process
}

/// Copies the output of a server to its log for as long as there is any, and returns at the line
/// that says that it is ready. An error says whether its output ended or the time was up.
fn wait_until_ready(
    output: ChildStdout,
    mut log: File,
    thrift: SocketAddr,
) -> Result<(), mpsc::RecvTimeoutError> {
    let announcement = format!("listening for Thrift clients on {thrift}");
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            writeln!(log, "{line}").unwrap();
            if line.contains(&announcement) {
                // Nobody waits for a second one.
                let _ = ready.send(());
            }
        }
    });
    is_ready.recv_timeout(START_LIMIT)
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

fn open_log(directory: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(log_path(directory)).unwrap()
}

fn log_end(directory: &Path) -> String {
    let log = fs::read_to_string(log_path(directory)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Different ports on which nobody listens, at random: tests that run at a time do not meet.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let held: [TcpListener; COUNT] = std::array::from_fn(|_| {
        (0..1000)
            .find_map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS))).ok())
            .expect("one of a thousand ports is free")
    });
    held.map(|listener| listener.local_addr().unwrap().port())
}

/// Sets the text of the first element of a name, or adds one at the end of the file.
fn set(configuration: &mut String, element: &str, text: &str) {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    if let Some(start) = configuration.find(&open).map(|at| at + open.len()) {
        let length = configuration[start..].find(&close).expect("the element is closed");
        configuration.replace_range(start..start + length, text);
    } else {
        let end = configuration.find("</Storage>").expect("the template is complete");
        configuration.insert_str(end, &format!("  {open}{text}{close}\n"));
    }
}
