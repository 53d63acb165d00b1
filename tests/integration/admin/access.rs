//! Rights at the admin port, and how much of the machine a client may take.

use super::{Node, PATIENCE, REQUEST_LIMIT, assert_refused, port_address, wait_until};
use crate::server::calls::{STANDARD, plain_families};
use crate::server::{Server, configure, program};
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::machine;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;

#[test]
fn pages_in_a_browser_cannot_change_anything_nor_read_by_another_name() {
    let node = Node::start(&plain_families());
    let post = "POST /api/v1/flush HTTP/1.1";
    let (host, json) = ("Host: localhost:8080", "Content-Type: application/json");
    let everything = r#"{"keyspace": "Keyspace1"}"#;
    node.insert(STANDARD, 0..1);
    for (status, head) in [
        (403, vec![post, host, json, "Origin: http://evil.example"]),
        (403, vec![post, host, json, "Origin: null"]),
        (403, vec![post, host, json, "Sec-Fetch-Site: cross-site"]),
        (403, vec![post, "Host: evil.example", json]),
        (403, vec!["GET /api/v1/info HTTP/1.1", "Host: evil.example:8080"]),
        (415, vec![post, host, "Content-Type: text/plain"]),
        (415, vec![post, host, "Content-Type: application/x-www-form-urlencoded"]),
        (415, vec![post, host]),
        (405, vec!["OPTIONS /api/v1/flush HTTP/1.1", host, "Origin: http://localhost:8080"]),
        (405, vec!["GET /api/v1/flush HTTP/1.1", host]),
        (404, vec!["GET /api/v2/flush HTTP/1.1", host]),
    ] {
        let (answered, body) = node.request(&head, everything);
        assert_eq!(answered, status, "{head:?}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(!body["error"].as_str().unwrap().is_empty());
    }
    assert_eq!(node.family(STANDARD)["sstables"], 0);
    let own = [post, host, json, "Origin: http://localhost:8080", "Sec-Fetch-Site: same-origin"];
    assert_eq!(node.request(&own, everything).0, 200);
    assert_eq!(node.family(STANDARD)["sstables"], 1);
}

#[test]
fn changes_need_the_token() {
    let head = |authorization: &'static str| {
        let mut head = vec![
            "POST /api/v1/flush HTTP/1.1",
            "Host: 127.0.0.1",
            "X-Forwarded-For: 10.9.9.9",
            "Content-Type: application/json",
        ];
        head.extend(Some(authorization).filter(|text| !text.is_empty()));
        head
    };
    let node = Node::start(&plain_families().with("AdminToken", "open sesame"));
    assert_eq!(node.request(&head(""), "{}").0, 401);
    assert_eq!(node.request(&head("Authorization: Bearer sesame"), "{}").0, 401);
    assert_eq!(node.request(&head("Authorization: Bearer open sesame"), "{}").0, 200);
    let look = ["GET /api/v1/info HTTP/1.1", "Host: 127.0.0.1", "X-Forwarded-For: 10.9.9.9"];
    assert_eq!(node.request(&look, "").0, 200, "reads need none");

    // Nothing tells an operator on this machine from a proxy that says nothing of its clients.
    let plain =
        ["POST /api/v1/flush HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"];
    assert_eq!(node.request(&plain, "{}").0, 401);
    assert_refused(&node.nodetool(&["flush"]), 1, "changes need the token of AdminToken");
    let file = node.directory.path().join("token");
    let path = file.to_str().unwrap();
    let missing = node.nodetool(&["flush", "--token-file", path]);
    assert_refused(&missing, 1, "cannot read the token from");
    fs::write(&file, "wrong\n").unwrap();
    let wrong = node.nodetool(&["flush", "--token-file", path]);
    assert_refused(&wrong, 1, "the token is not that of AdminToken (--token-file FILE");
    fs::write(&file, "open sesame\n").unwrap();
    assert_eq!(node.told(&["flush", "--token-file", path]), "");
    assert!(!node.server.log().contains("sesame"), "the token is not logged");

    let trusting = plain_families().with("AdminToken", "open sesame");
    let trusting = Node::start(&trusting.with("AdminTokenRequired", "false"));
    assert_eq!(trusting.request(&plain, "{}").0, 200, "the operator gave its word");
    assert_eq!(trusting.request(&head(""), "{}").0, 401);

    let without = Node::start(&plain_families());
    assert_eq!(without.request(&plain, "{}").0, 200);
    let (status, body) = without.request(&head("Authorization: Bearer open sesame"), "{}");
    assert!(status == 403 && body.contains("set AdminToken"), "{status} {body}");
}

#[test]
fn bodies_are_bounded_and_have_to_make_sense() {
    let node = Node::start(&plain_families());
    let put = [
        "PUT /api/v1/compaction-thresholds HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json; charset=utf-8",
    ];
    for (status, body) in [
        (400, "{"),
        (400, "[]"),
        (400, "{}"),
        (400, r#"{"minimum": 4}"#),
        (400, r#"{"min": -1}"#),
        (400, r#"{"min": 1, "max": 4}"#),
        (400, r#"{"min": 4, "column_families": ["Standard1"]}"#),
        (404, r#"{"min": 4, "keyspace": "Nowhere"}"#),
        (200, r#"{"min": 4, "keyspace": "Keyspace1", "column_families": ["Standard1"]}"#),
    ] {
        let (answered, told) = node.request(&put, body);
        assert_eq!(answered, status, "{body}: {told}");
    }
    let long = format!("{{\"min\": 4}}{}", " ".repeat(100_000));
    assert_eq!(node.request(&put, &long).0, 413);
    let header = format!("X-Long: {}", "x".repeat(100_000));
    assert_eq!(node.request(&[&put[..], &[&header]].concat(), "{}").0, 431);
    let query = ["GET /api/v1/cfstats?keyspaces=Keyspace1 HTTP/1.1", "Host: localhost"];
    assert_eq!(node.request(&query, "").0, 400);
}

/// Whether the server has closed the connection, with or without an answer.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn slow_clients_are_cut_off_and_hold_up_no_operator() {
    let node = Node::start(&plain_families());
    let half_heads = (0..200).map(|_| {
        let mut stream = TcpStream::connect(node.admin()).unwrap();
        stream.write_all(b"GET /api/v1/info HT").unwrap();
        stream
    });
    let mut half_heads: Vec<_> = half_heads.collect();
    let mut slow_body = TcpStream::connect(node.admin()).unwrap();
    let head = "POST /api/v1/flush HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{";
    slow_body.write_all(head.as_bytes()).unwrap();
    assert_eq!(node.json(&["info"])["cluster_name"], "Tests");
    let line = "closing the admin connection that was idle the longest for a new one";
    assert!(node.server.log().contains(line), "{}", node.server.log_end());
    assert!(half_heads.iter_mut().all(is_closed));
    let mut answer = String::new();
    slow_body.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = slow_body.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // Clients pay no attention to any of this.
    node.insert(STANDARD, 0..10);
}

#[test]
fn the_server_ends_although_an_operator_is_connected() {
    let mut node = Node::start(&plain_families());
    let mut at_rest = TcpStream::connect(node.admin()).unwrap();
    at_rest.write_all(b"GET /api/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 15];
    at_rest.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let clock = SystemClock::new();
    assert!(node.server.stop().success());
    assert!(clock.monotonic() < REQUEST_LIMIT, "{:?}", clock.monotonic());
    assert!(is_closed(&mut at_rest));
}

/// Opens more connections than the server may open files.
#[test]
fn idle_clients_leave_files_for_data_and_operators() {
    const FILES: u64 = 512;
    machine::raise_file_limit();
    let node = Node::start(&plain_families());
    let limit = Rlimit { current: Some(FILES), maximum: Some(FILES) };
    prlimit(Some(node.server.pid()), Resource::Nofile, limit).unwrap();
    let connect = || TcpStream::connect(node.server.thrift_address()).unwrap();
    let _idle: Vec<_> = (0..FILES + 200).map(|_| connect()).collect();
    for row in 0..5 {
        node.insert(STANDARD, row..row + 1);
        node.told(&["flush", "Keyspace1"]);
    }
    assert!(node.server.log().contains("are kept for data and operators"));
    assert!(!node.server.log().contains("Too many open files"), "{}", node.server.log_end());
}

#[test]
fn idle_connections_of_nodes_leave_files_for_clients() {
    machine::raise_file_limit();
    let directory = tempfile::tempdir().unwrap();
    let thrift = configure(directory.path(), &plain_families());
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 512; exec \"$@\"", "sh"]).arg(program());
    command.arg("serve").arg("--config").arg(directory.path()).current_dir(directory.path());
    let server = Server::launch(directory.path(), thrift, command);
    let node = Node { server, directory };
    let storage = port_address(node.directory.path(), "StoragePort");
    let _idle: Vec<_> = (0..700).map(|_| TcpStream::connect(storage).unwrap()).collect();
    let line = "closing an idle connection for a new one";
    wait_until("there are too many", || node.server.log().contains(line));
    node.insert(STANDARD, 0..10);
}
