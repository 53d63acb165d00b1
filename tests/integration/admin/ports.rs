//! The port for operators.

use super::{Node, admin_address, assert_refused, nodetool, wait_until};
use crate::server::calls::plain_families;
use crate::server::{Options, Server, configure, ended, free_ports, program, refused, serve};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

#[test]
fn a_configured_port_that_is_taken_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &Options::default());
    let address = admin_address(directory.path());
    let _taken = TcpListener::bind(address).unwrap();
    let refusal = refused(&serve(directory.path()));
    assert_eq!(refusal.exit_code, Some(3), "{}", refusal.text);
    assert!(refusal.text.contains(&format!("cannot listen for operators on {address}")));
    assert!(refusal.text.contains("AdminPort"), "{}", refusal.text);
    assert!(!directory.path().join("data").exists(), "no data were touched");
}

/// Takes the port for operators out of a configuration.
fn without_port(directory: &Path) {
    let file = directory.join("storage-conf.xml");
    let port = admin_address(directory).port();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("<AdminPort>{port}</AdminPort>"), "")).unwrap();
}

/// Starts a server on a configuration that does not name the port for operators.
fn start_without_port(directory: &Path, arguments: &[String]) -> Server {
    let thrift = configure(directory, &Options::default());
    without_port(directory);
    let mut command = serve(directory);
    command.args(arguments);
    Server::launch(directory, thrift, command)
}

#[test]
fn without_a_configured_port_a_taken_one_is_done_without() {
    let mut taken = None;
    // Other tests may have it for a moment.
    wait_until("the port is ours", || {
        taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).ok();
        taken.is_some()
    });
    let directory = tempfile::tempdir().unwrap();
    let server = start_without_port(directory.path(), &[]);
    let log = server.log();
    assert!(log.contains("the port for operators is taken"), "{log}");
    assert!(log.contains("127.0.0.1:8080. Set AdminPort"), "{log}");
    assert!(!log.contains("for nodetool on"), "{log}");
}

#[test]
fn a_check_refuses_the_properties_that_a_start_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let thrift = configure(directory.path(), &Options::default());
    without_port(directory.path());
    let jmx = "com.sun.management.jmxremote.port";
    let taken = format!("{jmx}={}", thrift.port());
    for (property, exit_code, why) in [
        (taken.as_str(), 1, "ThriftPort is this port already"),
        (&format!("{jmx}=abc"), 3, "a port expected"),
        ("cassandra.compaction.priority=11", 3, "a number from 1 to 10 expected"),
        ("hinted_handoff_throttle=abc", 3, "a number of milliseconds expected"),
        ("cassandra.replace_token=abc", 3, "cannot take the place of token abc"),
    ] {
        let option = format!("-D{property}");
        let start = refused(serve(directory.path()).arg(&option));
        let mut check = Command::new(program());
        check.args(["check-config", ".", &option]).current_dir(directory.path());
        for refusal in [start, ended(&check)] {
            assert_eq!(refusal.exit_code, Some(exit_code), "{property}: {}", refusal.text);
            assert!(refusal.text.contains(why), "{property}: {}", refusal.text);
        }
    }
    let mut check = Command::new(program());
    check.args(["check-config", ".", "-Dcassandra.typo=1", "-Duser.name=x"]);
    let checked = ended(check.current_dir(directory.path()));
    assert_eq!(checked.exit_code, Some(0), "{}", checked.text);
    let warned = "warning: the system property cassandra.typo has no meaning here\n";
    assert_eq!(checked.text, warned);
    assert!(!directory.path().join("data").exists());
}

#[test]
fn the_port_of_jmx_is_that_of_operators() {
    let [port] = free_ports();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let directory = tempfile::tempdir().unwrap();
    let property = format!("-Dcom.sun.management.jmxremote.port={}", address.port());
    let server = start_without_port(directory.path(), &[property]);
    assert!(server.log().contains(&format!("for nodetool on {address}")), "{}", server.log());
    assert!(nodetool(address, &["version"]).status.success());
}

#[test]
fn where_nobody_listens_nodetool_says_so() {
    let [port] = free_ports();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let refused = nodetool(address, &["info"]);
    let text = format!("Error connecting to the admin side of {address}: Connection refused");
    assert_refused(&refused, 3, &text);
    let node = Node::start(&plain_families());
    let thrift = nodetool(node.server.thrift_address(), &["info"]);
    assert_refused(&thrift, 3, "Is it the AdminPort of an Alexandra server");
    assert_refused(
        &thrift,
        3,
        "This port speaks Thrift. nodetool, JSON over HTTP and metrics are at",
    );
}
