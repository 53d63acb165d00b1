//! Runs of `alexandra stress` on two servers, `A` and `B`, which have the keyspaces of the built-in
//! configuration. The output of a run and its errors follow; measured numbers, which are those with
//! a point, are shown as `#`, and spaces as one.

use crate::server::{Options, Server, program};
use goldenscript::{Command, Context, Runner};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Read};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{self, Child, ChildStderr, Stdio};
use tempfile::TempDir;

/// A run that goes on until it is ended.
fn start(arguments: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut command = bounded(program());
    command.arg("stress").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines)
}

fn report(child: &mut Child) -> Value {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A load goes on with the other node, and says what failed.
#[test]
fn a_server_that_dies_in_the_middle_is_reported() {
    let mut world = World::new();
    let nodes = format!("{},{}", world.address(0), world.address(1));
    let (mut child, mut lines) =
        start(&["-d", &nodes, "insert", "--rate", "500", "--operations", "2000", "--json"]);
    // The head comes with the line of the first interval.
    lines.by_ref().take(2).for_each(drop);
    world.servers[0].1.kill();
    lines.for_each(drop);
    let report = report(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{report}");
    let count = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let failed = count("/failures/connection/count");
    assert!(failed > 0, "{report}");
    assert_eq!(count("/all/operations") + failed, 2000, "{report}");
    assert_eq!(count("/all/failed"), failed, "{report}");
    assert!(count("/all/operations") > 1000, "the other server takes over: {report}");
}

/// Ctrl-C ends a run, not its report.
#[test]
fn an_interrupted_run_reports() {
    let world = World::new();
    // Answers may come late on a busy machine.
    let options = ["insert", "--duration", "600", "--ignore-errors"];
    let (mut child, mut lines) = start(&[&["-d", &world.address(0)], &options[..]].concat());
    lines.by_ref().take(2).for_each(drop);
    // `timeout` passes the signal on.
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    lines.for_each(drop);
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(masked(&text).contains("operations in # s, # each second"), "{text}");
}

/// A server that stands still holds up neither the end of a run nor that of its preparations.
#[test]
fn a_frozen_server_is_left_at_an_interrupt() {
    let world = World::new();
    let (mut child, mut lines) =
        start(&["-d", &world.address(0), "insert", "--duration", "600", "--json"]);
    lines.by_ref().take(2).for_each(drop);
    world.servers[0].1.pause();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    lines.for_each(drop);
    let report = report(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{report}");
    let unanswered = &report["failures"]["unanswered"];
    assert_eq!(unanswered["first"], "no answer came within 2 s of the end", "{report}");
    world.servers[0].1.resume();

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut child, _) = start(&["-d", &silent.local_addr().unwrap().to_string(), "insert"]);
    let _connection = silent.accept().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn scripts_of_loads() {
    super::run_all("stress", |path| goldenscript::run(&mut World::new(), path).unwrap());
}

struct World {
    servers: [(TempDir, Server); 2],
    directory: TempDir,
}

fn server() -> (TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("storage-conf.xml");
    let server = Server::start(directory.path(), &Options::of_file(&file));
    (directory, server)
}

/// A program whose output is bounded in time.
fn bounded(program: &Path) -> process::Command {
    let mut command = process::Command::new("timeout");
    command.arg("120").arg(program).stdin(Stdio::null());
    command
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        symlink(program(), directory.path().join("stress.py")).unwrap();
        Self { servers: [server(), server()], directory }
    }

    fn address(&self, server: usize) -> String {
        self.servers[server].1.thrift_address().to_string()
    }

    /// Runs a program to its end.
    fn output(&self, program: &Path, arguments: &str) -> String {
        let arguments = arguments.split_whitespace().map(|argument| match argument {
            "A" => self.address(0),
            "B" => self.address(1),
            "A,B" => format!("{},{}", self.address(0), self.address(1)),
            "A,GONE" => format!("{},127.0.0.9:1", self.address(0)),
            "PORT" => self.servers[0].1.thrift_address().port().to_string(),
            other => other.to_owned(),
        });
        let mut command = bounded(program);
        command.args(arguments).current_dir(self.directory.path());
        let output = command.output().unwrap();
        let mut text = String::from_utf8(output.stdout).unwrap();
        text += &String::from_utf8(output.stderr).unwrap();
        text = masked(&text.replace(&self.address(0), "A").replace(&self.address(1), "B"));
        match output.status.code() {
            Some(0) => text,
            code => format!("{text}(exit code {})\n", code.unwrap()),
        }
    }
}

/// Shows numbers with a point as `#`, spaces as one, and seconds of `stress.py` as `T`.
fn masked(text: &str) -> String {
    let masked = |line: &str| {
        let mut masked = String::new();
        for word in line.split_inclusive(|c: char| !c.is_alphanumeric() && c != '.') {
            let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            let is_measured = number.contains('.') && number.parse::<f64>().is_ok();
            if word != " " || !masked.ends_with(' ') {
                masked += &if is_measured { word.replace(number, "#") } else { word.to_owned() };
            }
        }
        let fields: Vec<&str> = masked.split(',').collect();
        let is_row = fields.len() == 4 && fields[0].parse::<u64>().is_ok();
        let masked = if is_row { [&fields[..3], &["T"]].concat().join(",") } else { masked };
        format!("{}\n", masked.trim_end())
    };
    text.lines().map(masked).collect()
}

impl Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let argument = arguments.next_pos().unwrap_or_default();
        match command.name.as_str() {
            "stress" => Ok(self.output(program(), &format!("stress --interval 0 {argument}"))),
            "compare" => Ok(self.output(program(), &format!("stress compare {argument}"))),
            // Another name of the program.
            "stress.py" => Ok(self.output(&self.directory.path().join("stress.py"), argument)),
            // A file beside the program.
            "show" => Ok(masked(&std::fs::read_to_string(self.directory.path().join(argument))?)),
            _ => Err("there is no such command".into()),
        }
    }
}
