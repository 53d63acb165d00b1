//! Sessions of `alexandra cli` on a running server. The statements of a block, one a line after
//! `>`, go through a pipe to one process, whose output and errors follow. Sixteen digits are a
//! timestamp and are shown as `T`.

use crate::server::{Options, Server, free_ports, program};
use alexandra::model::types::{CqlType, Native};
use goldenscript::{Argument, Block, Command, Context, Runner};
use std::error::Error;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{self, Stdio};
use tempfile::TempDir;

#[test]
fn scripts_of_sessions() {
    super::run_all("cli", |path| goldenscript::run(&mut World::new(), path).unwrap());
}

struct World {
    server: Server,
    admin_port: u16,
    /// The program and its first arguments.
    program: PathBuf,
    arguments: Vec<String>,
    statements: String,
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [admin_port] = free_ports();
        let options = Options::default()
            .with("Partitioner", "org.apache.cassandra.dht.OrderPreservingPartitioner")
            .with("AdminPort", &admin_port.to_string())
            .with("Keyspaces", &keyspaces());
        let server = Server::start(directory.path(), &options);
        let program = program().to_owned();
        let arguments = vec!["cli".to_owned()];
        Self { server, admin_port, program, arguments, statements: String::new(), directory }
    }

    /// Runs the program with the statements at its standard input.
    fn run_statements(&mut self) -> String {
        let address = self.server.thrift_address();
        let mut shell = process::Command::new("timeout");
        // One pipe for both outputs keeps their order.
        shell.args(["60", "sh", "-c", "exec \"$0\" \"$@\" 2>&1"]).arg(&self.program);
        shell.args(&self.arguments).current_dir(self.directory.path());
        if self.arguments.first().is_some_and(|it| it == "cli") {
            shell.args(["--port", &address.port().to_string()]);
            shell.args(["--admin-port", &self.admin_port.to_string()]);
        } else {
            shell.args(["-host", "127.0.0.1", "-port", &address.port().to_string()]);
        }
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let statements = std::mem::take(&mut self.statements);
        child.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let text = text.replace(&format!("/{}", address.port()), "/PORT");
        let text = without_timestamps(&text);
        match output.status.code() {
            Some(0) => text,
            code => format!("{text}(exit code {})\n", code.unwrap()),
        }
    }
}

/// The blog, and a keyspace with types of each kind.
pub(super) fn keyspaces() -> String {
    let blog = include_str!("../server/storage-conf.xml");
    let (_, blog) = blog.split_once("<Keyspaces>").unwrap();
    let (blog, _) = blog.split_once("</Keyspaces>").unwrap();
    let locator = "org.apache.cassandra.locator";
    format!(
        r#"{blog}<Keyspace Name="Typed">
      <ColumnFamily Name="Users" CompareWith="UTF8Type" DefaultValueType="text">
        <Column Name="age" Type="int"/>
        <Column Name="born" Type="timestamp"/>
      </ColumnFamily>
      <ColumnFamily Name="Longs" CompareWith="LongType"/>
      <ColumnFamily Name="Times" CompareWith="TimeUUIDType"/>
      <ColumnFamily Name="Ids" CompareWith="LexicalUUIDType" DefaultValueType="bigint"/>
      <ColumnFamily Name="Visits" CompareWith="CompositeType(UTF8Type,LongType)"/>
      <ColumnFamily Name="Bytes" CompareWith="BytesType">
        <Column Name="title" Type="text"/>
      </ColumnFamily>
      <ColumnFamily Name="Comments" ColumnType="Super" CompareWith="TimeUUIDType"
                    CompareSubcolumnsWith="LongType"/>
      <ReplicaPlacementStrategy>{locator}.RackUnawareStrategy</ReplicaPlacementStrategy>
      <ReplicationFactor>1</ReplicationFactor>
      <EndPointSnitch>{locator}.EndPointSnitch</EndPointSnitch>
    </Keyspace>"#
    )
}

/// An argument without the quotes of the script.
fn text_of(argument: &Argument) -> String {
    match argument {
        Argument::Positional(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(super) fn without_timestamps(text: &str) -> String {
    let mut shown = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        shown.push_str(if digits.len() == 16 { "T" } else { &digits });
        digits.clear();
        shown.push(c);
    }
    shown.trim_end_matches('\0').to_owned()
}

impl Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let arguments = || command.args.iter().map(text_of);
        match command.name.as_str() {
            // Options of the program from now on.
            "options" => {
                self.arguments = ["cli".to_owned()].into_iter().chain(arguments()).collect();
            }
            // Another name of the program.
            "called" => {
                let name = arguments().next().unwrap();
                self.program = self.directory.path().join(name);
                symlink(program(), &self.program)?;
                self.arguments.clear();
            }
            // A file beside the program: its name and lines.
            "file" => {
                let mut lines = arguments();
                let name = lines.next().unwrap();
                std::fs::write(
                    self.directory.path().join(name),
                    lines.collect::<Vec<_>>().join("\n"),
                )?;
            }
            // The same of bytes in hexadecimal digits.
            "bytes" => {
                let [name, digits] = arguments().collect::<Vec<_>>().try_into().unwrap();
                let blob = CqlType::Native(Native::Blob);
                let bytes = blob.from_string(&digits).unwrap();
                std::fs::write(self.directory.path().join(name), bytes)?;
            }
            "run" => return Ok(self.run_statements()),
            statement => {
                self.statements.push_str(statement);
                self.statements.push('\n');
            }
        }
        Ok(String::new())
    }

    fn end_block(&mut self, _: &Block) -> Result<String, Box<dyn Error>> {
        Ok(if self.statements.is_empty() { String::new() } else { self.run_statements() })
    }
}
