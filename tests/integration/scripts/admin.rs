//! Rows of a running server as its admin side shows them. Statements of `alexandra cli` stand
//! behind `>`, requests behind `rows`, which prints the status and the body of the answer. A choice
//! in braces is a body. Sixteen
//! digits are a timestamp and are shown as `T`.

use super::cli::{keyspaces, without_timestamps};
use crate::admin::exchange;
use crate::server::{Options, Server, configure, free_ports, program, serve};
use base64ct::{Base64, Encoding};
use goldenscript::{Block, Command, Context, Runner};
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process;
use tempfile::TempDir;

#[test]
fn scripts_of_rows() {
    super::run_all("admin", |path| goldenscript::run(&mut World::default(), path).unwrap());
}

#[derive(Default)]
struct World {
    node: Option<Node>,
    statements: String,
}

struct Node {
    server: Server,
    admin: SocketAddr,
    /// Where the log of the next block begins.
    log_seen: usize,
    _directory: TempDir,
}

impl Node {
    /// A server with these of its features on: `token`, `trusting` (which needs no token from this
    /// machine), `logins`.
    fn start(features: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [port] = free_ports();
        let has = |feature| features.iter().any(|it| it == feature);
        let mut options = Options::default()
            .with("Partitioner", "org.apache.cassandra.dht.OrderPreservingPartitioner")
            .with("AdminPort", &port.to_string())
            .with("Keyspaces", &keyspaces());
        if has("token") {
            options = options.with("AdminToken", "open sesame");
        }
        if has("trusting") {
            options = options.with("AdminTokenRequired", "false");
        }
        if has("logins") {
            let simple = "org.apache.cassandra.auth.SimpleAuthenticator";
            options = options.with("Authenticator", simple).with("KeyspaceRights", "true");
        }
        let thrift = configure(directory.path(), &options);
        let mut command = serve(directory.path());
        let files = [
            ("passwd", "writer=w:w\nreader=r\nstranger=s\n"),
            ("access", "Typed=writer\nTyped.<ro>=reader\nBloggyAppy=stranger\n"),
        ];
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            command.arg(format!("-D{name}.properties={}", path.display()));
        }
        let server = Server::launch(directory.path(), thrift, command);
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { server, admin, log_seen: 0, _directory: directory }
    }

    /// Runs statements as the user `writer`, and returns what is printed besides successes.
    fn run_statements(&self, statements: &str) -> String {
        let port = self.server.thrift_address().port().to_string();
        let mut cli = process::Command::new(program());
        cli.args(["cli", "--port", &port, "-u", "writer", "--password", "w:w", "-k", "Typed"]);
        let output = cli.args(["--admin-port", &self.admin.port().to_string()]);
        let output = output.args(["-e", statements]).output().unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        without_timestamps(&texts.concat().replace("Value inserted.\n", ""))
    }

    /// Asks for rows: `token=`, `login=` and `header=` say who asks, the rest is the choice.
    fn rows(&self, command: &Command) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let mut head = vec!["Host: localhost".to_owned(), "Connection: close".to_owned()];
        if let Some(token) = arguments.take_key("token") {
            head.push(format!("Authorization: Bearer {token}"));
        }
        if let Some(login) = arguments.take_key("login") {
            let encoded = Base64::encode_string(login.as_bytes());
            head.push(format!("Authorization: Basic {encoded}"));
        }
        head.extend(arguments.take_key("header").map(str::to_owned));
        let choice = arguments.next_pos().unwrap_or_default();
        arguments.reject_next()?;
        let (line, choice) = if choice.starts_with('{') {
            head.push("Content-Type: application/json".to_owned());
            head.push(format!("Content-Length: {}", choice.len()));
            ("POST /api/v1/rows HTTP/1.1".to_owned(), choice)
        } else {
            (format!("GET /api/v1/rows?{choice} HTTP/1.1"), "")
        };
        let request = format!("{line}\r\n{}\r\n\r\n{choice}", head.join("\r\n"));
        let (status, body) = exchange(self.admin, &request);
        let body = body.replace("},{", "},\n {").replace("\"columns\":[", "\"columns\":[\n  ");
        Ok(format!("{status} {}\n", without_timestamps(&body)))
    }

    /// Lines of the audit log since the last look, without their times.
    fn audit(&mut self) -> String {
        let log = self.server.log();
        let new = log.get(self.log_seen..).unwrap_or_default();
        // There is at most one line about refusals each second.
        let reads = new.lines().filter(|line| !line.contains(" is refused"));
        let lines = reads.filter_map(|line| line.split_once(" alexandra::audit] "));
        let told = lines.flat_map(|(_, line)| [line, "\n"]).collect();
        self.log_seen = log.len();
        told
    }
}

impl Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        if command.name == "start" {
            let features: Vec<String> = command.args.iter().map(ToString::to_string).collect();
            self.node = None;
            self.node = Some(Node::start(&features));
            return Ok(String::new());
        }
        let node = self.node.as_mut().ok_or("start a server first")?;
        match command.name.as_str() {
            "rows" => node.rows(command),
            "audit" => Ok(node.audit()),
            statement => {
                self.statements.push_str(statement);
                self.statements.push_str(";\n");
                Ok(String::new())
            }
        }
    }

    fn end_block(&mut self, _: &Block) -> Result<String, Box<dyn Error>> {
        let statements = std::mem::take(&mut self.statements);
        let node = self.node.as_ref().filter(|_| !statements.is_empty());
        Ok(node.map_or_else(String::new, |node| node.run_statements(&statements)))
    }
}
