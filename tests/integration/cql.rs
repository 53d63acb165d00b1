//! CQL on a built server: its port, its logins, and clients that mistake the port.

use crate::admin::{admin_address, exchange, nodetool};
use crate::server::{Options, Server, configure, free_ports, refused, serve};
use alexandra::base::clock::{Clock, SystemClock};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tempfile::TempDir;

/// How long a client waits for an answer, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_mins(2);

/// Opcodes of the native protocol.
pub(crate) const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
pub(crate) const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const OPTIONS: u8 = 0x05;
const SUPPORTED: u8 = 0x06;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0A;
pub(crate) const REGISTER: u8 = 0x0B;
pub(crate) const EVENT: u8 = 0x0C;
const BATCH: u8 = 0x0D;
const AUTH_RESPONSE: u8 = 0x0F;
const AUTH_SUCCESS: u8 = 0x10;

/// Levels of the native protocol.
pub(crate) const ONE: u16 = 1;
pub(crate) const QUORUM: u16 = 4;
pub(crate) const ALL: u16 = 5;
pub(crate) const SERIAL: u16 = 8;

/// A raw client of version 4.
pub(crate) struct CqlClient(TcpStream);

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) stream: i16,
    pub(crate) opcode: u8,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl CqlClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// A connection after STARTUP, with the answer to it.
    pub(crate) fn begin(address: SocketAddr) -> (Self, Answer) {
        let mut client = Self::connect(address);
        let answer = client.ask(STARTUP, b"\0\x01\0\x0BCQL_VERSION\0\x053.0.0");
        (client, answer)
    }

    pub(crate) fn ask(&mut self, opcode: u8, body: &[u8]) -> Answer {
        let mut frame = vec![4, 0, 0, 9, opcode];
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(body);
        self.0.write_all(&frame).unwrap();
        let answer = self.answer();
        assert_eq!(answer.stream, 9);
        answer
    }

    /// Runs a statement at ALL, which must succeed.
    pub(crate) fn query(&mut self, text: &str) -> Answer {
        let answer = self.try_query(text);
        assert_ne!(answer.opcode, ERROR, "{text}: {}", answer.text());
        answer
    }

    /// Runs a statement at ALL.
    pub(crate) fn try_query(&mut self, text: &str) -> Answer {
        self.query_at(ALL, text)
    }

    pub(crate) fn query_at(&mut self, level: u16, text: &str) -> Answer {
        let length = (text.len() as u32).to_be_bytes();
        self.ask(QUERY, &[&length, text.as_bytes(), &level.to_be_bytes(), b"\0"].concat())
    }

    /// Prepares a statement.
    fn prepare(&mut self, text: &str) -> [u8; 16] {
        let answer =
            self.ask(PREPARE, &[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat());
        let [0, 0, 0, 4, 0, 16, rest @ ..] = &*answer.body else { panic!("{}", answer.text()) };
        *rest.first_chunk().unwrap()
    }

    /// Executes a statement at ONE for a client that knows its columns.
    fn execute(&mut self, id: [u8; 16]) -> Answer {
        self.ask(EXECUTE, &[&b"\0\x10"[..], &id, b"\0\x01\x02"].concat())
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).unwrap();
        let [0x84, _, high, low, opcode, length @ ..] = head else { panic!("{head:?}") };
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut body).unwrap();
        Answer { stream: i16::from_be_bytes([high, low]), opcode, body }
    }
}

/// Where a server will serve CQL, and the options for that.
pub(crate) fn with_cql() -> (SocketAddr, Options) {
    let [port] = free_ports();
    let options = Options::default().with("CqlPort", &port.to_string());
    (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), options)
}

#[test]
fn a_server_with_a_cql_port_serves_drivers() {
    let directory = tempfile::tempdir().unwrap();
    let (address, options) = with_cql();
    let server = Server::start(directory.path(), &options);
    let line = format!("listening for CQL clients on {address}");
    assert!(server.log().contains(&line), "{}", server.log());
    let mut client = CqlClient::connect(address);
    let supported = client.ask(OPTIONS, &[]);
    assert!(supported.opcode == SUPPORTED && supported.text().contains("4/v4"), "{supported:?}");
    let (mut client, answer) = CqlClient::begin(address);
    assert_eq!(answer.opcode, READY);
    assert_eq!(client.ask(REGISTER, b"\0\x01\0\x0DSTATUS_CHANGE").opcode, READY);

    let mut thrift = TcpStream::connect(address).unwrap();
    thrift.write_all(b"\x80\x01\0\x01\0\0\0\x10describe_version").unwrap();
    let _ = thrift.read_to_end(&mut Vec::new());
    assert!(server.log().contains("it speaks Thrift to the CQL port"), "{}", server.log());
}

#[test]
fn without_a_configured_port_there_is_no_cql() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &Options::default());
    assert!(server.log().contains("CQL is off: CqlPort is not set"), "{}", server.log());
}

#[test]
fn a_configured_port_that_is_taken_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let (address, options) = with_cql();
    configure(directory.path(), &options);
    let _taken = TcpListener::bind(address).unwrap();
    let refusal = refused(&serve(directory.path()));
    assert_eq!(refusal.exit_code, Some(3), "{}", refusal.text);
    let text = format!("cannot listen for CQL clients on {address}");
    assert!(refusal.text.contains(&text), "{}", refusal.text);
}

#[test]
fn users_log_in_with_their_password_alone_and_use_what_is_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let (address, options) = with_cql();
    let authenticator = "org.apache.cassandra.auth.SimpleAuthenticator";
    let thrift = configure(directory.path(), &options.with("Authenticator", authenticator));
    let mut command = serve(directory.path());
    let access = "BloggyAppy=jsmith\nmine=jsmith\n";
    for (name, text) in [("passwd", "jsmith=havebadpass\n"), ("access", access)] {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        command.arg(format!("-D{name}.properties={}", file.display()));
    }
    let server = Server::launch(directory.path(), thrift, command);
    let (mut client, answer) = CqlClient::begin(address);
    assert_eq!(answer.opcode, AUTHENTICATE);
    let refused = client.ask(AUTH_RESPONSE, b"\0\0\0\x0D\0jsmith\0wrong");
    assert_eq!((refused.opcode, &refused.body[..4]), (ERROR, &[0, 0, 1, 0][..]), "{refused:?}");
    assert!(server.log().contains("a login from 127.0.0.1 failed"), "{}", server.log());
    let welcome = client.ask(AUTH_RESPONSE, b"\0\0\0\x13\0jsmith\0havebadpass");
    assert_eq!(welcome.opcode, AUTH_SUCCESS, "{welcome:?}");
    let admin = admin_address(directory.path());
    let (_, metrics) = exchange(admin, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let labels = "protocol=\"cql\",call=\"login\",level=\"\"";
    for line in [
        format!("alexandra_requests_total{{{labels}}} 2\n"),
        format!("alexandra_request_failures_total{{{labels},kind=\"denied\"}} 1\n"),
    ] {
        assert!(metrics.contains(&line), "{line}{metrics}");
    }

    let refused =
        |answer: Answer| if answer.opcode == ERROR { answer.text() } else { String::new() };
    let mut refusal = |statement: &str| refused(client.try_query(statement));
    let insert =
        "INSERT INTO \"BloggyAppy\".\"Authors\" (key, column1, value) VALUES ('ann', 0x61, 0x62)";
    assert_eq!(refusal(insert), "");
    let replication = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    assert_eq!(refusal(&format!("CREATE KEYSPACE mine {replication}")), "");
    assert_eq!(refusal("CREATE TABLE mine.t (k int PRIMARY KEY)"), "");
    let other = refusal(&format!("CREATE KEYSPACE other {replication}"));
    assert!(other.contains("User jsmith could not be authorized to use keyspace other"), "{other}");
    fs::write(directory.path().join("access"), "BloggyAppy.<ro>=jsmith\n").unwrap();
    assert_eq!(refusal(insert), "", "a login keeps its rights");
    let reload = nodetool(admin_address(directory.path()), &["reload"]);
    assert!(reload.status.success(), "{reload:?}");
    assert!(refusal(insert).contains("User jsmith may only read keyspace BloggyAppy"));
    assert_eq!(refusal("SELECT * FROM \"BloggyAppy\".\"Authors\""), "");
    let reads_only = [
        "DELETE FROM \"Authors\" WHERE key = 'ann'",
        "BEGIN BATCH DELETE FROM \"Authors\" WHERE key = 'ann' APPLY BATCH",
        "TRUNCATE \"Authors\"",
        "CREATE TABLE t (k int PRIMARY KEY)",
        "DROP TABLE \"Authors\"",
    ];
    let foreign = [
        "SELECT * FROM mine.t",
        "INSERT INTO mine.t (k) VALUES (1)",
        "ALTER TABLE mine.t ADD v int",
        "CREATE TYPE mine.pair (a int, b int)",
        &format!("ALTER KEYSPACE mine {replication}"),
        "DROP KEYSPACE mine",
    ];
    assert_eq!(refusal("USE \"BloggyAppy\""), "");
    for (why, statements) in [
        ("User jsmith may only read keyspace BloggyAppy", &reads_only[..]),
        ("User jsmith could not be authorized to use keyspace mine", &foreign),
    ] {
        for statement in statements {
            let told = refusal(statement);
            assert!(told.contains(why), "{statement}: {told:?}");
        }
    }
    let insert = [&(insert.len() as u32).to_be_bytes(), insert.as_bytes()].concat();
    let batch = [&b"\0\0\x01\0"[..], &insert, b"\0\0\0\x05\0"].concat();
    assert!(refused(client.ask(BATCH, &batch)).contains("may only read"));

    let admin = admin_address(directory.path());
    let (_, metrics) = exchange(admin, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let labels = r#"protocol="cql",call="select",level="ALL",kind="denied""#;
    let denied = format!("alexandra_request_failures_total{{{labels}}} 1\n");
    assert!(metrics.contains(&denied), "{metrics}");
}

/// A server with an empty keyspace `k`, and a connection to it.
fn with_keyspace() -> (Server, TempDir, SocketAddr, CqlClient) {
    let directory = tempfile::tempdir().unwrap();
    let (address, options) = with_cql();
    let server = Server::start(directory.path(), &options);
    let (mut client, _) = CqlClient::begin(address);
    client.query(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    (server, directory, address, client)
}

/// A driver that decoded rows by columns of yesterday would show values of other columns.
#[test]
fn prepared_statements_are_not_answered_by_columns_that_their_clients_do_not_know() {
    let (_server, _directory, address, mut client) = with_keyspace();
    let (mut other, _) = CqlClient::begin(address);
    let unprepared = &0x2500_u32.to_be_bytes()[..];
    let create = "CREATE TABLE k.t (id text PRIMARY KEY, v int)";
    client.query(create);
    let [all, some, insert] =
        ["SELECT * FROM k.t", "SELECT v FROM k.t", "INSERT INTO k.t (id, v) VALUES ('a', 1)"]
            .map(|text| [&mut client, &mut other].map(|it| it.prepare(text))[0]);
    assert_eq!(client.execute(insert).opcode, RESULT);
    assert!(client.execute(all).text().contains("\0\u{1}v"), "all columns are told");
    assert!(!client.execute(some).text().contains("\0\u{1}v"), "the client knows them");

    client.query("ALTER TABLE k.t ADD added int");
    for _ in 0..2 {
        assert_eq!(client.execute(all).body[..4], *unprepared);
    }
    assert_eq!(client.prepare("SELECT * FROM k.t"), all, "drivers refuse another id");
    for connection in [&mut client, &mut other] {
        let answer = connection.execute(all).text();
        assert!(answer.contains("\0\u{5}added"), "{answer}");
        let answer = connection.execute(some);
        assert!(answer.opcode == RESULT && !answer.text().contains("\0\u{1}v"), "{answer:?}");
    }

    client.query("DROP TABLE k.t");
    client.query(&create.replace("v int", "v text"));
    assert_eq!(client.execute(some).body[..4], *unprepared);
    client.prepare("SELECT v FROM k.t");
    let answer = other.execute(some).text();
    assert!(answer.contains("\0\u{1}v"), "{answer}");
}

#[test]
fn a_logged_batch_that_may_be_lost_has_a_warning() {
    let (_server, _directory, _, mut client) = with_keyspace();
    client.query("CREATE TABLE k.kept (id text PRIMARY KEY)");
    client.query("CREATE TABLE k.g (id text PRIMARY KEY) WITH gc_grace_seconds = 0");
    let mut batch = |kind: &str, rows: [&str; 2]| {
        let inserts = rows.map(|row| format!("INSERT INTO k.{row} "));
        client.query(&format!("BEGIN {kind} BATCH {}; APPLY BATCH", inserts.join("; "))).text()
    };
    let rows = ["g (id) VALUES ('a')", "kept (id) VALUES ('b')"];
    let warning = batch("", rows);
    assert!(warning.contains("whose gc_grace_seconds is 0: k.g. If"), "{warning}");
    let of_one_key = [rows[0], "kept (id) VALUES ('a')"];
    for text in [batch("UNLOGGED", rows), batch("", of_one_key)] {
        assert!(!text.contains("gc_grace_seconds"), "{text}");
    }
}

/// The clock of the client that deletes is an hour ahead.
#[test]
fn what_is_inserted_under_a_condition_is_there_after_a_deletion_dated_ahead() {
    let (_server, _directory, _, mut client) = with_keyspace();
    client.query("CREATE TABLE k.single (p text PRIMARY KEY, v int)");
    client.query("CREATE TABLE k.several (p text, c int, v int, PRIMARY KEY (p, c))");
    let ahead = SystemClock::new().now_micros() + 3600 * 1_000_000;
    let single = "k.single (p, v) VALUES ('KEY', 7)";
    let several = "k.several (p, c, v) VALUES ('KEY', 1, 7)";
    let cases = [
        ("FROM k.single USING TIMESTAMP AHEAD WHERE p = 'KEY'", single),
        ("v FROM k.single USING TIMESTAMP AHEAD WHERE p = 'KEY'", single),
        ("FROM k.several USING TIMESTAMP AHEAD WHERE p = 'KEY'", several),
        ("FROM k.several USING TIMESTAMP AHEAD WHERE p = 'KEY' AND c = 1", several),
        ("FROM k.several USING TIMESTAMP AHEAD WHERE p = 'KEY' AND c > 0", several),
        ("v FROM k.several USING TIMESTAMP AHEAD WHERE p = 'KEY' AND c = 1", several),
    ];
    for (number, (what, row)) in cases.into_iter().enumerate() {
        let [what, row] = [what, row].map(|it| it.replace("KEY", &number.to_string()));
        let delete = format!("DELETE {what}").replace("AHEAD", &ahead.to_string());
        client.query(&delete);
        let insert = format!("INSERT INTO {row} IF NOT EXISTS");
        let answers = [(); 2].map(|()| client.query(&insert).text());
        let are_applied = answers.each_ref().map(|it| it.ends_with("\0\0\0\u{1}\u{1}"));
        assert_eq!(are_applied, [true, false], "{delete}: {answers:?}");
        let table = row.split_once(' ').unwrap().0;
        let found = client.query(&format!("SELECT v FROM {table} WHERE p = '{number}'"));
        assert!(found.body.ends_with(b"\0\0\0\x04\0\0\0\x07"), "{delete}: {}", found.text());
    }
}
