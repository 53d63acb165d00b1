//! The applications below `clients/`, each against the built server with its own configuration.
//! What they need on the machine is installed by `tests/setup.sh`.

use crate::server::{Options, Server, free_ports};
use std::path::Path;
use std::process::Command;

/// After this many seconds a check hangs. It gives up a single call much sooner.
const CHECK_LIMIT_S: &str = "240";

const PYTHON: &str = "/usr/bin/python3";
const RUBY: &str = "/usr/bin/ruby";
/// Python with the library of the client of today.
const MODERN_PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/modern/.venv/bin/python");

/// Runs the check of an application.
fn check(application: &str, interpreter: &str, program: &str) {
    check_on(application, [interpreter, program], None);
}

/// Runs the check of an application that speaks CQL beside Thrift.
fn check_cql(application: &str) {
    let [port] = free_ports();
    check_on(application, [PYTHON, "check_cql.py"], Some(port));
}

/// Starts the server with the configuration of an application, and runs its check over one
/// transport before a crash of the server, and over the other one after it.
fn check_on(application: &str, [interpreter, program]: [&str; 2], cql_port: Option<u16>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("clients").join(application);
    assert!(
        Path::new(interpreter).exists(),
        "{interpreter} is missing: run {}",
        root.join("tests/setup.sh").display()
    );
    let directory = tempfile::tempdir().unwrap();
    // The blog runs on the configuration that is built in.
    let places = [folder.as_path(), root].map(|place| place.join("storage-conf.xml"));
    let mut options = Options::of_file(places.iter().find(|file| file.exists()).unwrap());
    let mut command = vec![interpreter.to_owned(), folder.join(program).display().to_string()];
    if let Some(port) = cql_port.map(|port| port.to_string()) {
        options = options.with("CqlPort", &port);
        command.extend(["--cql-port".to_owned(), port]);
    }
    let mut server = Server::start(directory.path(), &options);
    run(&server, &command, "buffered");
    server.restart();
    run(&server, &command, "framed");
}

fn run(server: &Server, command: &[String], transport: &str) {
    let address = server.thrift_address();
    let output = Command::new("timeout")
        .arg(CHECK_LIMIT_S)
        .args(command)
        .args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--transport", transport])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {}\n{printed}{}The log of the server ends with:\n{}",
        command.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr),
        server.log_end()
    );
    assert!(printed.contains(transport), "{transport} was left out:\n{printed}");
}

#[test]
fn timeline() {
    check("timeline", RUBY, "check.rb");
}

#[test]
fn timeline_in_cql() {
    check_cql("timeline");
}

#[test]
fn inbox() {
    check("inbox", RUBY, "check.rb");
}

#[test]
fn likes() {
    check("likes", PYTHON, "check.py");
}

#[test]
fn bucketed_likes() {
    check("bucketed-likes", PYTHON, "check.py");
}

#[test]
fn bucketed_likes_in_cql() {
    check_cql("bucketed-likes");
}

#[test]
fn thrift_and_cql_on_the_same_rows() {
    check_cql("python");
}

#[test]
fn modern() {
    check("modern", MODERN_PYTHON, "check.py");
    check("modern", RUBY, "blog.rb");
}

#[test]
fn wordcount() {
    check("wordcount", PYTHON, "check.py");
}
