//! Statements, and Thrift calls on the same rows, on a running server.
//!
//! A result is shown with its columns in the first line, values as literals of their types; an
//! error with its code.

use crate::cql::{CqlClient, ERROR};
use crate::server::calls::{ALL, Column, Entry, KEYSPACE, Path, first};
use crate::server::client::Client;
use crate::server::{Options, Server, free_ports};
use alexandra::model::types::{CqlType, Native};
use goldenscript::Context;
use std::error::Error;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tempfile::TempDir;

/// Opcodes and kinds of results of the native protocol.
const QUERY: u8 = 0x07;
const SET_KEYSPACE: i32 = 3;
const SCHEMA_CHANGE: i32 = 5;
const ROWS: i32 = 2;

/// The code of errors of too few replicas.
const UNAVAILABLE: i32 = 0x1000;

/// Flags of metadata.
const MORE_PAGES: i32 = 2;

/// More than any answer has.
const MOST_PAGES: usize = 500;

#[test]
fn scripts_of_statements() {
    super::run_all("cql", |path| goldenscript::run(&mut World::new(), path).unwrap());
}

#[derive(goldenscript::Command)]
pub(super) enum Command {
    /// Runs a statement, at ONE unless a level is given. With `page` a result is read in pages of
    /// so many rows.
    Cql {
        statement: String,
        #[arg(key)]
        page: Option<i32>,
        #[arg(key)]
        level: Option<String>,
    },
    /// Inserts a column by Thrift, with timestamp 1 unless one is given.
    Insert {
        family: String,
        key: String,
        column: String,
        value: String,
        #[arg(key)]
        sub: Option<String>,
        #[arg(key)]
        at: Option<i64>,
    },
    /// Removes a column, a super column or a row by Thrift.
    Remove {
        family: String,
        key: String,
        #[arg(optional)]
        column: Vec<String>,
        #[arg(key)]
        at: Option<i64>,
    },
    /// Reads a row by Thrift.
    Row(String, String),
    /// Kills the server and starts it again.
    Restart,
}

pub(super) struct World {
    server: Server,
    thrift: Client,
    address: SocketAddr,
    cql: CqlClient,
    _directory: TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [port] = free_ports();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let options = Options::default()
            .with("Keyspaces", &keyspace())
            .with("Partitioner", "org.apache.cassandra.dht.OrderPreservingPartitioner")
            .with("CqlPort", &port.to_string());
        let server = Server::start(directory.path(), &options);
        let thrift = Client::connect(server.thrift_address());
        let (cql, _) = CqlClient::begin(address);
        Self { server, thrift, address, cql, _directory: directory }
    }

    /// All pages of the answer to a statement.
    pub(super) fn query(&mut self, statement: &str, page: Option<i32>) -> String {
        self.query_at(1, statement, page)
    }

    fn query_at(&mut self, level: u16, statement: &str, page: Option<i32>) -> String {
        let mut shown = String::new();
        let mut state: Option<Vec<u8>> = None;
        for _ in 0..MOST_PAGES {
            let mut body = (statement.len() as u32).to_be_bytes().to_vec();
            body.extend_from_slice(statement.as_bytes());
            body.extend_from_slice(&level.to_be_bytes());
            body.push(if page.is_some() { 4 } else { 0 } | if state.is_some() { 8 } else { 0 });
            body.extend(page.into_iter().flat_map(i32::to_be_bytes));
            if let Some(state) = &state {
                body.extend_from_slice(&(state.len() as u32).to_be_bytes());
                body.extend_from_slice(state);
            }
            let answer = self.cql.ask(QUERY, &body);
            let mut reader = Reader(&answer.body);
            if answer.opcode == ERROR {
                let (code, mut text) = (reader.int(), reader.string());
                if code == UNAVAILABLE {
                    let (_level, required, alive) = (reader.short(), reader.int(), reader.int());
                    write!(text, ": {alive} of {required}").unwrap();
                }
                return format!("{shown}error {code:04x}: {text}");
            }
            let (text, next) = reader.result();
            shown.push_str(&text);
            state = next;
            if state.is_none() {
                return shown;
            }
            shown.push_str("-- next page\n");
        }
        panic!("{statement} does not end: {shown}");
    }
}

/// A family of each form. Names of columns are text, or numbers that stand as `7`.
fn keyspace() -> String {
    let locator = "org.apache.cassandra.locator";
    format!(
        r#"<Keyspace Name="{KEYSPACE}">
      <ColumnFamily Name="posts" CompareWith="UTF8Type"/>
      <ColumnFamily Name="events" CompareWith="TimeUUIDType"/>
      <ColumnFamily Name="links" CompareWith="LexicalUUIDType" ColumnType="Super"/>
      <ColumnFamily Name="timeline" CompareWith="LongType"/>
      <ColumnFamily Name="comments" ColumnType="Super" CompareWith="LongType"
                    CompareSubcolumnsWith="UTF8Type"/>
      <ColumnFamily Name="visits"
                    CompareWith="CompositeType(UTF8Type,ReversedType(LongType))"/>
      <ColumnFamily Name="authors" CompareWith="UTF8Type" KeyName="author">
        <Column Name="email" Type="text"/>
        <Column Name="posts" Type="int"/>
      </ColumnFamily>
      <ReplicaPlacementStrategy>{locator}.RackUnawareStrategy</ReplicaPlacementStrategy>
      <ReplicationFactor>1</ReplicationFactor>
      <EndPointSnitch>{locator}.EndPointSnitch</EndPointSnitch>
    </Keyspace>"#
    )
}

/// The bytes of a name: digits are a long.
fn name(text: &str) -> Vec<u8> {
    match text.parse::<i64>() {
        Ok(number) => number.to_be_bytes().to_vec(),
        Err(_) => text.as_bytes().to_vec(),
    }
}

fn show_name(name: &[u8]) -> String {
    match name.first_chunk() {
        Some(number) if name.len() == 8 && name[0] == 0 => i64::from_be_bytes(*number).to_string(),
        _ => name.escape_ascii().to_string(),
    }
}

impl goldenscript::Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        Ok(match command {
            Command::Cql { statement, page, level } => {
                let names = ["ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL"];
                let level = level.as_deref().unwrap_or("ONE");
                let number = names.iter().position(|it| *it == level).ok_or(level)?;
                self.query_at(number as u16, statement, *page)
            }
            Command::Insert { family, key, column, value, sub, at } => {
                let (sub, column) = (sub.as_deref().map(name), name(column));
                let (super_column, family) = (sub.as_deref(), family.as_str());
                let path = Path { family, super_column, column: Some(&column) };
                self.thrift.insert(key, path, value.as_bytes(), at.unwrap_or(1)).unwrap();
                String::new()
            }
            Command::Remove { family, key, column, at } => {
                let names: Vec<Vec<u8>> = column.iter().map(|it| name(it)).collect();
                let is_super = family == "comments";
                let (super_column, column) = match &names[..] {
                    [] => (None, None),
                    [only] if is_super => (Some(only.as_slice()), None),
                    [only] => (None, Some(only.as_slice())),
                    [sub, column, ..] => (Some(sub.as_slice()), Some(column.as_slice())),
                };
                let path = Path { family, super_column, column };
                self.thrift.remove(key, path, at.unwrap_or(1)).unwrap();
                String::new()
            }
            Command::Row(family, key) => {
                let mut shown = String::new();
                let column =
                    |it: &Column| format!("{}={}", show_name(&it.name), it.value.escape_ascii());
                for entry in self.thrift.get_slice(key, family, first(ALL, false)).unwrap() {
                    match &entry {
                        Entry::Column(it) => writeln!(shown, "{}", column(it))?,
                        Entry::Super(name, columns) => {
                            let columns: Vec<String> = columns.iter().map(column).collect();
                            writeln!(shown, "{}: {}", show_name(name), columns.join(" "))?;
                        }
                    }
                }
                shown
            }
            Command::Restart => {
                self.server.restart();
                self.thrift = Client::connect(self.server.thrift_address());
                self.cql = CqlClient::begin(self.address).0;
                String::new()
            }
        })
    }
}

/// Reads the body of an answer.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn short(&mut self) -> usize {
        u16::from_be_bytes(self.take(2).try_into().unwrap()).into()
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn string(&mut self) -> String {
        let length = self.short();
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        usize::try_from(self.int()).ok().map(|length| self.take(length))
    }

    /// A type of the protocol.
    fn of_type(&mut self) -> CqlType {
        match self.short() {
            0x00 => {
                let class = self.string();
                CqlType::from_class(&class).unwrap_or_else(|| CqlType::Custom(class.into()))
            }
            0x20 => CqlType::List(Arc::new(self.of_type())),
            0x21 => CqlType::Map(Arc::new((self.of_type(), self.of_type()))),
            0x22 => CqlType::Set(Arc::new(self.of_type())),
            0x31 => {
                let count = self.short();
                CqlType::Tuple((0..count).map(|_| self.of_type()).collect())
            }
            id => {
                let all = Native::ALL.into_iter();
                let known = all.filter(|it| !matches!(it, Native::OldTimestamp | Native::Empty));
                let mut known = known.filter(|it| usize::from(it.protocol_id(4)) == id);
                CqlType::Native(known.next().unwrap_or_else(|| panic!("type {id}")))
            }
        }
    }

    /// A RESULT as lines, and the state for the next page.
    fn result(&mut self) -> (String, Option<Vec<u8>>) {
        match self.int() {
            ROWS => self.rows(),
            SET_KEYSPACE => (format!("in {}\n", self.string()), None),
            SCHEMA_CHANGE => {
                let (change, kind) = (self.string().to_lowercase(), self.string());
                let mut names = vec![self.string()];
                if kind != "KEYSPACE" {
                    names.push(self.string());
                }
                (format!("{change} {} {}\n", kind.to_lowercase(), names.join(".")), None)
            }
            _ => (String::new(), None),
        }
    }

    fn rows(&mut self) -> (String, Option<Vec<u8>>) {
        let flags = self.int();
        let count = self.int();
        let state = (flags & MORE_PAGES != 0).then(|| self.bytes().unwrap().to_vec());
        let _table = (self.string(), self.string());
        let columns: Vec<(String, CqlType)> =
            (0..count).map(|_| (self.string(), self.of_type())).collect();
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let mut shown = format!("{}\n", names.join(" | "));
        for _ in 0..self.int() {
            let values = columns.iter().map(|(_, of_type)| {
                self.bytes().map_or("null".to_owned(), |value| of_type.render(value))
            });
            let values: Vec<String> = values.collect();
            shown.push_str(&values.join(" | "));
            shown.push('\n');
        }
        (shown, state)
    }
}
