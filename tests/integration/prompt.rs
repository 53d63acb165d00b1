//! `alexandra cli` at a terminal, as a person has it.

use crate::cql::CqlClient;
use crate::server::calls::{KEYSPACE, STANDARD, plain_families};
use crate::server::{Options, Server, free_ports, program};
use alexandra::base::clock::{Clock, SystemClock};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_mins(1);

/// Keys.
const UP: &str = "\x1b[A";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

/// A terminal with the program in it.
struct Terminal {
    process: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// Bytes of the screen that were looked at.
    seen: usize,
}

impl Terminal {
    fn start(server: &Server, home: &Path, admin_port: u16) -> Self {
        Self::paged(server, home, admin_port, "")
    }

    fn paged(server: &Server, home: &Path, admin_port: u16, pager: &str) -> Self {
        let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&pty).unwrap();
        unlockpt(&pty).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&pty, size).unwrap();
        let name = ptsname(&pty, Vec::new()).unwrap();
        let end = || open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let ends: [OwnedFd; 3] = std::array::from_fn(|_| end());
        let [input, output, errors] = ends;
        let address = server.thrift_address();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let mut command = Command::new(program());
        let admin_port = admin_port.to_string();
        command.args(["cli", "--admin-port", &admin_port, "-h", &host, "-p", &port]);
        command.env("HOME", home).env("TERM", "xterm").env("PAGER", pager);
        let process = command.stdin(input).stdout(output).stderr(errors).spawn().unwrap();
        let keyboard = File::from(pty);
        let mut shown = keyboard.try_clone().unwrap();
        let screen = Arc::<Mutex<String>>::default();
        let writes = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the program is an error here.
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                writes.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { process, keyboard, screen, seen: 0 }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text is shown that was not looked at before.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let clock = SystemClock::new();
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(clock.monotonic() < PATIENCE, "no {text:?} in {:?}", &screen[self.seen..]);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Types a line at the prompt, and waits for what it says.
    #[track_caller]
    fn ask(&mut self, line: &str, answer: &str) {
        self.press(line);
        self.press("\r");
        self.expect(answer);
        self.expect("cassandra> ");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_person_creates_data_finds_them_and_deletes_them() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &plain_families());
    let mut terminal = Terminal::start(&server, directory.path(), 0);
    terminal.expect("Welcome to cassandra CLI.");
    terminal.expect("cassandra> ");
    terminal.ask(&format!("use {KEYSPACE}"), "\n");
    terminal.ask(&format!("set {STANDARD}['row']['column'] = 'value'"), "Value inserted.");
    terminal.ask(&format!("get {STANDARD}['row']"), "value=value");
    // A typing error points at its word.
    terminal.ask("get Standrd1['row']", "^^^^^^^^ did you mean 'Standard1'?");
    // The line before that one, again.
    terminal.press(UP);
    terminal.press(UP);
    terminal.ask("", "value=value");
    // Lines that come faster than they are run, and some that are pasted as one.
    let insert = |n: u8| format!("set {STANDARD}['fast']['{n}'] = '{n}'");
    terminal.press(&format!("{}\r{}\r{}\r", insert(1), insert(2), insert(3)));
    terminal.press(&format!("\x1b[200~{}\n{}\n\x1b[201~\r", insert(4), insert(5)));
    (0..5).for_each(|_| terminal.expect("Value inserted."));
    terminal.expect("cassandra> ");
    terminal.ask(&format!("count {STANDARD}['fast']"), "5 columns");
    // Words are completed.
    terminal.press("cou\t");
    terminal.expect("count");
    terminal.press(" Standard1['row']\r");
    terminal.expect("1 columns");
    terminal.expect("cassandra> ");
    // A line goes on while a bracket is open.
    terminal.press(&format!("del {STANDARD}[\r"));
    terminal.press("'row']\r");
    terminal.expect("row removed.");
    terminal.expect("cassandra> ");
    // Ctrl-C leaves a line, and nothing of it is run.
    terminal.press("set nothing");
    terminal.expect("set nothing");
    terminal.press(CTRL_C);
    terminal.expect("cassandra> ");
    terminal.ask(&format!("get {STANDARD}['row']"), "Returned 0 results.");
    terminal.press(CTRL_D);
    assert!(terminal.process.wait().unwrap().success());

    // The next session remembers.
    let mut terminal = Terminal::start(&server, directory.path(), 0);
    terminal.expect("cassandra> ");
    terminal.press(UP);
    terminal.expect(&format!("get {STANDARD}['row']"));
}

#[test]
fn types_are_those_of_the_moment() {
    let directory = tempfile::tempdir().unwrap();
    let [cql_port, admin_port] = free_ports();
    let options = Options::default()
        .with("CqlPort", &cql_port.to_string())
        .with("AdminPort", &admin_port.to_string());
    let server = Server::start(directory.path(), &options);
    let mut terminal = Terminal::start(&server, directory.path(), admin_port);
    terminal.expect("cassandra> ");
    let (mut cql, _) = CqlClient::begin((Ipv4Addr::LOCALHOST, cql_port).into());
    let mut change = |statement: &str| {
        cql.query(statement);
    };
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    change(&format!("CREATE KEYSPACE shop WITH replication = {replication}"));
    let table = "shop.late";
    change(&format!("CREATE TABLE {table} (k text PRIMARY KEY, n int)"));
    terminal.ask(&format!("set {table}['a']['n'] = 65"), "Value inserted.");
    terminal.ask(&format!("assume {table} column 'o' as int"), "Assumed");
    change(&format!("ALTER TABLE {table} ADD m bigint"));
    terminal.ask(&format!("set {table}['a']['m'] = 66"), "Value inserted.");
    terminal.ask(&format!("set {table}['a']['o'] = 'old'"), "'old' is no int");
    terminal.ask(&format!("get {table}['a']['m']"), "value=66");
    change(&format!("DROP TABLE {table}"));
    terminal.ask(&format!("get {table}['a']"), "No such column family: late");
    change("CREATE TABLE shop.numbered (k int PRIMARY KEY, n int)");
    terminal.ask("get shop.numbered[1]", "numbered was made over CQL, and its partition key is");
    change(&format!("CREATE TABLE {table} (k text PRIMARY KEY, n text)"));
    terminal.ask(&format!("set {table}['b']['n'] = 65"), "Value inserted.");
    terminal.ask(&format!("get {table}['b']['n']"), "value=65");
}

/// Long output is printed though its pager is missing.
#[test]
fn the_output_of_a_pager_that_is_missing_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &plain_families());
    let mut terminal = Terminal::paged(&server, directory.path(), 0, "no-such-pager -R");
    terminal.expect("cassandra> ");
    terminal.press("help\r");
    terminal.expect("PAGER 'no-such-pager -R' cannot be started: the output goes without");
    terminal.ask("", "Exit CLI.");
}
