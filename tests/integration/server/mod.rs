//! A server process for the tests: the built binary on a directory and ports of its own, and
//! [`client`]s for it.

pub(crate) mod calls;
pub(crate) mod client;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a start may take, on a machine that is busy with other tests.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How long an orderly end may take, and a start that is refused.
const END_LIMIT: Duration = Duration::from_mins(1);

/// Ports below those that the system hands out for outgoing connections, so that none of these
/// takes a port between its choice and the start of the server.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

const TEMPLATE: &str = include_str!("storage-conf.xml");

/// Changes of the configuration by a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    elements: Vec<(String, String)>,
    /// In place of [`TEMPLATE`].
    template: Option<String>,
}

impl Options {
    /// A whole configuration file to begin with. It has the elements of [`TEMPLATE`] that stand
    /// below others: a data directory.
    pub(crate) fn of_file(path: &Path) -> Self {
        Self { template: Some(fs::read_to_string(path).unwrap()), ..Self::default() }
    }

    /// Gives an element below `/Storage` another text; adds it if it is not there.
    #[must_use]
    pub(crate) fn with(mut self, element: &str, text: &str) -> Self {
        self.elements.push((element.into(), text.into()));
        self
    }
}

/// The built program.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_alexandra"))
}

/// Writes a configuration into `directory`, with ports on which nobody listens and with all data
/// below it, and tells where Thrift clients will be served.
pub(crate) fn configure(directory: &Path, options: &Options) -> SocketAddr {
    let [thrift, storage, admin, cql] = free_ports();
    let below = |name: &str| directory.join(name).display().to_string();
    let mut configuration = options.template.clone().unwrap_or_else(|| TEMPLATE.to_owned());
    let mut own = Options::default()
        .with("ThriftPort", &thrift.to_string())
        .with("StoragePort", &storage.to_string())
        .with("AdminPort", &admin.to_string())
        .with("DataFileDirectory", &below("data"))
        .with("CommitLogDirectory", &below("commitlog"))
        .with("SavedCachesDirectory", &below("saved_caches"));
    if configuration.contains("<CqlPort>") {
        own = own.with("CqlPort", &cql.to_string());
    }
    for (element, text) in own.elements.iter().chain(&options.elements) {
        set(&mut configuration, element, text);
    }
    fs::write(configuration_file(directory), configuration).unwrap();
    SocketAddr::from((Ipv4Addr::LOCALHOST, thrift))
}

/// Changes the configuration in `directory` and leaves the rest of it, ports above all, as it is.
pub(crate) fn reconfigure(directory: &Path, options: &Options) {
    let mut configuration = fs::read_to_string(configuration_file(directory)).unwrap();
    for (element, text) in &options.elements {
        set(&mut configuration, element, text);
    }
    fs::write(configuration_file(directory), configuration).unwrap();
}

/// `alexandra serve` on the configuration in `directory`, and in it.
pub(crate) fn serve(directory: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(["serve", "--config"]).arg(directory).current_dir(directory);
    command
}

/// How a start ended that came to nothing.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) exit_code: Option<i32>,
    /// Standard error.
    pub(crate) text: String,
}

/// Runs a command that is to end by itself, and soon, before it serves anybody.
pub(crate) fn refused(command: &Command) -> Refusal {
    let (refusal, printed) = run_to_end(command);
    assert!(!printed.contains("listening"), "it was to refuse and serves: {printed}");
    refusal
}

/// Runs a command that is to end by itself, and soon.
pub(crate) fn ended(command: &Command) -> Refusal {
    run_to_end(command).0
}

/// How a command ended, and what it printed.
fn run_to_end(command: &Command) -> (Refusal, String) {
    let mut bounded = Command::new("timeout");
    bounded.arg(END_LIMIT.as_secs().to_string()).arg(command.get_program());
    bounded.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    let output = bounded.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (Refusal { exit_code: output.status.code(), text }, printed)
}

/// A running server. It is killed when this is dropped; its directory belongs to the caller.
#[derive(Debug)]
pub(crate) struct Server {
    directory: PathBuf,
    thrift: SocketAddr,
    process: Child,
    /// Breaks off when the process has closed its output, by ending.
    output: Receiver<()>,
}

impl Server {
    /// Writes a configuration into `directory`, starts the server on it and waits until it
    /// accepts Thrift calls. Panics with the end of its log if it does not come so far.
    pub(crate) fn start(directory: &Path, options: &Options) -> Self {
        let thrift = configure(directory, options);
        Self::launch(directory, thrift, serve(directory))
    }

    /// Runs a command that starts a server for `thrift`, and waits until it accepts Thrift calls.
    /// Its log goes to `directory`. Panics with the end of it if it does not come so far.
    pub(crate) fn launch(directory: &Path, thrift: SocketAddr, command: Command) -> Self {
        let (mut process, output) = spawn(directory, thrift, command);
        if let Err(error) = output.recv_timeout(START_LIMIT) {
            let _ = process.kill();
            let status = process.wait().unwrap();
            let log = log_end(directory);
            panic!("the server did not start ({error:?}, {status}); its log ends with:\n{log}");
        }
        Self { directory: directory.to_owned(), thrift, process, output }
    }

    /// Runs a command that starts a server, and waits for nothing.
    pub(crate) fn begin(directory: &Path, thrift: SocketAddr, command: Command) -> Self {
        let (process, output) = spawn(directory, thrift, command);
        Self { directory: directory.to_owned(), thrift, process, output }
    }

    /// Ends the process as a power cut would: no signal handler runs, nothing is flushed.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended before.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Asks the process to end, as `kill` without a number does, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let ended = self.output.recv_timeout(END_LIMIT);
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected), "SIGTERM does not end the server");
        self.process.wait().unwrap()
    }

    /// Kills the process, if it still runs, and starts it anew on the same directory and ports.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let directory = self.directory.clone();
        *self = Self::launch(&directory, self.thrift, serve(&directory));
    }

    /// Kills the process, starts it anew and kills it once more: after a pause, or when it is
    /// ready, whichever comes first.
    pub(crate) fn kill_within_restart(&mut self, pause: Duration) {
        self.kill();
        (self.process, self.output) = spawn(&self.directory, self.thrift, serve(&self.directory));
        // How far it came does not matter.
        let _ = self.output.recv_timeout(pause);
        self.kill();
    }

    /// Where it accepts Thrift calls.
    pub(crate) fn thrift_address(&self) -> SocketAddr {
        self.thrift
    }

    /// Physical memory that the process holds, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most physical memory that the process ever held, in bytes.
    pub(crate) fn peak_resident_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, line: &str) -> u64 {
        let status = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let status = fs::read_to_string(status).unwrap();
        let text = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        let kib: u64 = text.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        kib << 10
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Has it read its configuration again.
    pub(crate) fn hang_up(&self) {
        kill_process(self.pid(), Signal::HUP).unwrap();
    }

    /// Lets the process stand still: its connections stay, and nothing is answered.
    pub(crate) fn pause(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        // Until the signal has reached one of its threads the others go on.
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    pub(crate) fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// All that it has written to its standard output and error, over all of its starts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(log_path(&self.directory)).unwrap()
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

fn spawn(directory: &Path, thrift: SocketAddr, mut command: Command) -> (Child, Receiver<()>) {
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_log(directory))
        .spawn()
        .unwrap();
    let output = process.stdout.take().expect("its standard output is a pipe");
    (process, copy_output(output, open_log(directory), thrift))
}

/// Copies the output of a server to its log for as long as there is any, and tells of the line
/// that says that it is ready. The channel breaks off with the output.
fn copy_output(output: ChildStdout, mut log: File, thrift: SocketAddr) -> Receiver<()> {
    let announcement = format!("listening for Thrift clients on {thrift}");
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            writeln!(log, "{line}").unwrap();
            if line.contains(&announcement) {
                // Nobody waits for it any more if the server has been killed meanwhile.
                let _ = ready.send(());
            }
        }
    });
    is_ready
}

fn configuration_file(directory: &Path) -> PathBuf {
    directory.join("storage-conf.xml")
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

/// Different ports on which nobody listens. At random, so that processes that run at a time do not
/// meet; and each only once, since the server of another test may be about to start on it, or to
/// start again.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |port: &u16| is_free(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
    std::array::from_fn(|_| {
        (0..1000)
            .map(|_| fastrand::u16(PORTS))
            .find(|port| given.insert(*port) && is_free(port))
            .expect("one of a thousand ports is free")
    })
}

/// Whether nobody listens there. Listening there for a moment would tell it as well, but a process
/// that another test starts in this moment goes on with it until it has become another program.
pub(crate) fn is_free(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
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
