//! The applications below `clients/`, each against the built server with its own configuration.
//! What they need on the machine is installed by `tests/setup.sh`.

use crate::server::{Options, Server};
use std::path::Path;
use std::process::Command;

/// After this many seconds a check hangs. It gives up a single call much sooner.
const CHECK_LIMIT_S: &str = "240";

/// Starts the server with the configuration of an application, and runs its check over one
/// transport before a crash of the server, and over the other one after it.
fn check(application: &str, interpreter: &str, program: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("clients").join(application);
    assert!(
        Path::new(interpreter).exists(),
        "{interpreter} is missing: run {}",
        root.join("tests/setup.sh").display()
    );
    let directory = tempfile::tempdir().unwrap();
    let options = Options::of_file(&folder.join("storage-conf.xml"));
    let mut server = Server::start(directory.path(), &options);
    run(&server, interpreter, &folder.join(program), "buffered");
    server.restart();
    run(&server, interpreter, &folder.join(program), "framed");
}

fn run(server: &Server, interpreter: &str, program: &Path, transport: &str) {
    let address = server.thrift_address();
    let output = Command::new("timeout")
        .args([CHECK_LIMIT_S, interpreter])
        .arg(program)
        .args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--transport", transport])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {}\n{printed}{}The log of the server ends with:\n{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr),
        server.log_end()
    );
    assert!(printed.contains(transport), "{transport} was left out:\n{printed}");
}

#[test]
fn timeline() {
    check("timeline", "/usr/bin/ruby", "check.rb");
}

#[test]
fn inbox() {
    check("inbox", "/usr/bin/ruby", "check.rb");
}

#[test]
fn likes() {
    check("likes", "/usr/bin/python3", "check.py");
}

#[test]
fn bucketed_likes() {
    check("bucketed-likes", "/usr/bin/python3", "check.py");
}

#[test]
fn wordcount() {
    check("wordcount", "/usr/bin/python3", "check.py");
}
