//! The page for browsers, and work that operators stop.

use super::{Node, exchange, wait_until};
use crate::cql::CqlClient;
use crate::server::calls::{KEYSPACE, Path, STANDARD, plain_families};
use crate::server::client::Client;
use crate::server::free_ports;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// The head of an answer, in lower case.
fn head(node: &Node, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    super::exchange_whole(node.admin(), &request).0.to_ascii_lowercase()
}

#[test]
fn the_page_asks_no_other_server_and_runs_nothing_but_its_own_scripts() {
    let node = Node::start(&plain_families());
    let get = |path: &str| node.request(&[&format!("GET {path} HTTP/1.1"), "Host: localhost"], "");
    let (status, page) = get("/");
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{status} {page}");
    let mut files: Vec<&str> = page.split('"').filter(|it| it.starts_with("/console/")).collect();
    assert_eq!(files, ["/console/console.css", "/console/console.js"]);
    let (_, script) = get("/console/console.js");
    let modules: Vec<String> = script
        .lines()
        .filter_map(|line| line.split_once("from './")?.1.strip_suffix("';"))
        .map(|name| format!("/console/{name}"))
        .collect();
    assert!(modules.len() > 3, "{modules:?}");
    files.extend(modules.iter().map(String::as_str));
    for file in files {
        let (status, text) = get(file);
        assert_eq!(status, 200, "{file}");
        let is_foreign = |link: &&str| !link.starts_with("www.w3.org/2000/svg");
        assert_eq!(text.split("http://").skip(1).find(is_foreign), None, "{file}");
        assert!(!text.contains("https://") && !text.contains("innerHTML"), "{file}");
        let kind = if file == "/console/console.css" { "text/css" } else { "text/javascript" };
        assert!(head(&node, file).contains(&format!("content-type: {kind}; charset=utf-8")));
    }
    for path in ["/", "/console/dom.js", "/api/v1/info", "/api/v1/rows", "/nothing", "/metrics"] {
        let head = head(&node, path);
        for line in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; ",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(line), "{path}: {head}");
        }
    }
    assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("onclick"));
}

#[test]
fn compactions_are_stopped_and_leave_the_data_as_they_were() {
    let node = Node::start(&plain_families().with("CompactionThroughputInMBPerSecond", "1"));
    let mut client = Client::connect(node.server.thrift_address());
    let mut random = fastrand::Rng::with_seed(1);
    for file in 0..2 {
        for row in 0..40 {
            let value: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
            let path = Path::column(STANDARD, b"column");
            client.insert(&format!("row {file} {row}"), path, &value, 1).unwrap();
        }
        node.told(&["flush", KEYSPACE, STANDARD]);
    }
    assert_eq!(node.told(&["stop"]), "no compaction was running\n");
    let running = || node.json(&["compactionstats"])["running"].as_array().unwrap().clone();
    node.told(&["compact", "--no-wait", KEYSPACE, STANDARD]);
    wait_until("it runs", || !running().is_empty());
    let id = running()[0]["id"].as_u64().unwrap();
    let unknown = node.nodetool(&["stop", &(id + 1).to_string()]);
    super::assert_refused(&unknown, 1, "no compaction with the number");
    let (status, stopped) =
        node.change("POST /api/v1/compactions/stop", &json!({ "id": id }).to_string());
    assert_eq!((status, stopped), (200, json!({ "stopped": [id] })));
    wait_until("it ends", || running().is_empty());
    assert_eq!(node.family(STANDARD)["sstables"], 2);
    assert_eq!(node.json(&["compactionstats"])["failed"], 0);
    let line = "Keyspace1.Standard1 was not compacted: an operator has stopped it";
    wait_until("the log says so", || node.server.log().contains(line));
    // Also one that somebody waits for.
    let waiting = std::thread::spawn({
        let admin = node.admin();
        move || super::nodetool(admin, &["compact", KEYSPACE, STANDARD])
    });
    wait_until("it runs", || !running().is_empty());
    assert!(node.told(&["stop"]).starts_with("stopped: "));
    super::assert_refused(&waiting.join().unwrap(), 1, "an operator has stopped it");
    let rows = "/api/v1/rows?keyspace=Keyspace1&column_family=Standard1&limit=500";
    let (_, rows) = exchange(
        node.admin(),
        &format!("GET {rows} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
    );
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows["rows"].as_array().unwrap().len(), 80);
}

#[test]
fn only_a_repair_can_be_stopped() {
    let node = Node::start(&plain_families());
    let refused = node.nodetool(&["stop", "--repair"]);
    super::assert_refused(&refused, 1, "no operation is under way on this node");
}

#[test]
fn keys_and_names_of_any_length_are_found() {
    let node = Node::start(&plain_families());
    let mut client = Client::connect(node.server.thrift_address());
    let (key, name) = ("k".repeat(65_000), "n".repeat(65_000));
    let path = Path::column(STANDARD, name.as_bytes());
    client.insert(&key, path, b"value", 1).unwrap();
    let digits = |text: &str| format!("{:02x}", text.as_bytes()[0]).repeat(text.len());
    let choice = json!({
        "keyspace": KEYSPACE,
        "column_family": STANDARD,
        "key": digits(&key),
        "start": digits(&name),
        "hex": true,
    });
    let (status, page) = node.change("POST /api/v1/rows", &choice.to_string());
    assert_eq!(status, 200, "{page}");
    assert_eq!(page["rows"][0]["columns"][0]["value"]["text"], "value");
}

#[test]
fn rows_of_cql_are_found_and_shown_as_text() {
    let [port] = free_ports();
    let node = Node::start(&plain_families().with("CqlPort", &port.to_string()));
    let (mut cql, _) = CqlClient::begin((Ipv4Addr::LOCALHOST, port).into());
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    cql.query(&format!("CREATE KEYSPACE shop WITH replication = {replication}"));
    let columns = "town text, number int, seen map<text, int>, PRIMARY KEY ((town, number))";
    cql.query(&format!("CREATE TABLE shop.visits ({columns})"));
    cql.query("INSERT INTO shop.visits (town, number, seen) VALUES ('Ham', 7, {'tower': 3})");
    let choice = json!({ "keyspace": "shop", "column_family": "visits", "key": "Ham:7" });
    let (status, page) = node.change("POST /api/v1/rows", &choice.to_string());
    assert_eq!((status, &page["rows"][0]["key"]["text"]), (200, &json!("Ham:7")), "{page}");
    let columns = page["rows"][0]["columns"].as_array().unwrap().iter();
    let texts = columns.map(|it| (it["name"]["text"].as_str(), it["value"]["text"].as_str()));
    let marker = (Some("(row marker)"), Some(""));
    assert_eq!(texts.collect::<Vec<_>>(), [marker, (Some("seen['tower']"), Some("3"))]);
}
