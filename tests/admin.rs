//! The admin side of the built server, and `nodetool`: what each command does and prints, who may
//! do what, and how much of the machine a client may take.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

mod server;

use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::events::Events;
use alexandra::base::fs::OsFileSystem;
use alexandra::config::Settings;
use alexandra::model::comparator::ComparatorRegistry;
use alexandra::node::{NodeOptions, StorageSetup};
use alexandra::ring::Partitioner;
use alexandra::storage::engine::Components;
use alexandra::storage::saved_ring::RingNote;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use server::calls::{
    KEYSPACE, OTHER_STANDARD, Path as ColumnPath, STANDARD, first, plain_families,
};
use server::client::Client;
use server::{Options, Server, configure, program, refused, serve};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

/// How long a test waits for what happens in the background.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long the server lets a client take for a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// A server with a directory of its own.
struct Node {
    server: Server,
    directory: tempfile::TempDir,
}

impl Node {
    fn start(options: &Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), options);
        Self { server, directory }
    }

    fn admin(&self) -> SocketAddr {
        admin_address(self.directory.path())
    }

    /// Runs `nodetool` against it.
    fn nodetool(&self, arguments: &[&str]) -> Output {
        nodetool(self.admin(), arguments)
    }

    /// What a command prints that succeeds.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.nodetool(arguments);
        let (told, error) = texts(&output);
        assert!(output.status.success() && error.is_empty(), "{arguments:?}: {error}");
        told
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// The figures of a column family.
    fn family(&self, name: &str) -> Value {
        let keyspaces = self.json(&["cfstats", KEYSPACE, name]);
        keyspaces[0]["column_families"][0].clone()
    }

    fn insert(&self, family: &str, keys: std::ops::Range<usize>) {
        let mut client = Client::connect(self.server.thrift_address());
        for key in keys {
            let path = ColumnPath::column(family, b"column");
            client.insert(&format!("row {key}"), path, &[b'v'; 100], 1).unwrap();
        }
    }

    /// Starts it anew, with these notes of the ring as if it had made them before.
    fn restart_with(&mut self, notes: &[RingNote]) {
        assert!(self.server.stop().success());
        let comparators = ComparatorRegistry::default();
        let settings = Settings::load(self.directory.path(), &comparators).unwrap().settings;
        let setup = StorageSetup::new(&settings, &NodeOptions::default()).unwrap();
        let components = Components {
            fs: Arc::new(OsFileSystem),
            clock: Arc::new(SystemClock::new()),
            events: Events::ignored(),
        };
        let storage = setup.open(components).unwrap();
        for note in notes {
            note.write(&storage, 1).unwrap();
        }
        storage.close();
        // It holds the directories.
        drop(storage);
        self.server.restart();
    }

    /// Has it do something by a request with a body of JSON.
    fn change(&self, line: &str, body: &str) -> (u16, Value) {
        let head =
            [&*format!("{line} HTTP/1.1"), "Host: localhost", "Content-Type: application/json"];
        let (status, answer) = self.request(&head, body);
        (status, serde_json::from_str(&answer).unwrap())
    }

    /// Sends a request and returns the status and the body of the answer.
    fn request(&self, head: &[&str], body: &str) -> (u16, String) {
        let head = head.join("\r\n");
        let length = body.len();
        let text = format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        exchange(self.admin(), &text)
    }
}

/// Where the configuration says that operators are served.
fn admin_address(directory: &Path) -> SocketAddr {
    let text = fs::read_to_string(directory.join("storage-conf.xml")).unwrap();
    let (_, behind) = text.split_once("<AdminPort>").unwrap();
    let (port, _) = behind.split_once("</AdminPort>").unwrap();
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()))
}

fn nodetool(admin: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    let (host, port) = (admin.ip().to_string(), admin.port().to_string());
    command.args(["nodetool", "-h", &host, "-p", &port]).args(arguments).output().unwrap()
}

/// Standard output and standard error.
fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn assert_refused(output: &Output, exit_code: i32, why: &str) {
    let (told, error) = texts(output);
    assert_eq!((output.status.code(), told.as_str()), (Some(exit_code), ""), "{error}");
    assert!(error.contains(why), "{error}");
}

/// Sends a text and reads until the server closes the connection.
fn exchange(admin: SocketAddr, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may answer and close before everything was sent.
    let _ = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    (status, body.to_owned())
}

/// Asks until the answer is the wanted one.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn info_and_version_tell_of_the_node() {
    let node = Node::start(&plain_families());
    let text = node.told(&["info"]);
    let lines: Vec<&str> = text.lines().collect();
    let token: u128 = lines[0].parse().unwrap();
    assert!(token <= 1 << 127);
    let names = ["Load", "Generation No", "Uptime (seconds)", "Heap Memory (MB)"];
    for (line, name) in lines[1..].iter().zip(names) {
        assert!(line.starts_with(&format!("{name:<17}: ")), "{text}");
    }
    assert_eq!(lines[1], "Load             : 0 bytes");

    let info = node.json(&["info"]);
    assert_eq!(info["token"], json!(token.to_string()));
    assert_eq!(info["cluster_name"], "Tests");
    let resident = info["memory"]["resident_bytes"].as_u64().unwrap();
    assert!(resident > 1 << 20 && resident < info["memory"]["limit_bytes"].as_u64().unwrap());
    let before = info["memory"]["memtables_bytes"].as_u64().unwrap();
    node.insert(STANDARD, 0..1000);
    let after = node.json(&["info"])["memory"]["memtables_bytes"].as_u64().unwrap();
    assert!(after > before + 100_000, "{before} {after}");
    node.told(&["flush"]);
    let info = node.json(&["info"]);
    assert!(info["memory"]["memtables_bytes"].as_u64().unwrap() < before + 100_000);
    assert!(info["load_bytes"].as_u64().unwrap() > 10_000, "{info}");

    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(node.told(&["version"]), format!("ReleaseVersion: Alexandra {version}\n"));
}

#[test]
fn ring_and_gossip_tell_of_a_node_on_its_own() {
    let node = Node::start(&plain_families());
    let ring = node.json(&["ring"]);
    let endpoint = &ring["endpoints"][0];
    assert_eq!((&ring["local"], &endpoint["address"]), (&json!("127.0.0.1"), &json!("127.0.0.1")));
    assert_eq!((&endpoint["status"], &endpoint["state"]), (&json!("Up"), &json!("Normal")));
    assert_eq!((&endpoint["owns"], &endpoint["hints"]), (&json!(1.0), &json!(0)));
    assert_eq!((&endpoint["data_center"], &endpoint["rack"]), (&json!("0"), &json!("0")));
    let token = endpoint["token"].as_str().unwrap();
    let lines = format!(
        "Address       Status     Load          Owns    Range{space}Ring\n\
         127.0.0.1     Up         0 bytes       100.00% {token:<43}|<--|\n",
        space = " ".repeat(38)
    );
    assert_eq!(node.told(&["ring"]), lines);

    let gossip = node.told(&["gossipinfo"]);
    assert!(gossip.starts_with("/127.0.0.1\n  status:Up\n"), "{gossip}");
    assert!(gossip.contains(&format!("  MOVE:NORMAL,{token}\n")), "{gossip}");

    let admin = node.admin();
    let ask = |method: &str, path: &str, body: &str| {
        let length = body.len();
        exchange(
            admin,
            &format!(
                "{method} /api/v1/{path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            ),
        )
    };
    let (status, hints) = ask("GET", "hints", "");
    assert!(status == 200 && hints.contains(r#""enabled":true,"targets":[]"#), "{hints}");
    let (status, messages) = ask("GET", "messages", "");
    assert!(status == 200 && messages.contains(r#""read_repairs":0"#), "{messages}");
    assert_eq!(ask("POST", "hints/deliver", r#"{"address": "127.0.0.2"}"#).0, 404);
    assert_eq!(ask("POST", "hints/deliver", r#"{"address": "somewhere"}"#).0, 400);
    assert_eq!(ask("POST", "rack-file", "").0, 404);
}

#[test]
fn a_removed_node_is_told_and_may_be_taken_back() {
    let mut node = Node::start(&plain_families());
    assert_eq!(node.json(&["ring"])["removed"], json!([]));
    let unknown = node.nodetool(&["allowreturn", "127.0.0.9"]);
    assert_refused(&unknown, 1, "127.0.0.9 is not among the removed nodes");
    assert_refused(&unknown, 1, "nodetool --json ring");
    assert_refused(&node.nodetool(&["allowreturn", "somewhere"]), 1, "invalid");

    let (address, token) = (IpAddr::from([127, 0, 0, 9]), Partitioner::Random.token(b"key"));
    let text = Partitioner::Random.format_token(&token);
    node.restart_with(&[RingNote::Removed(address, token, 7)]);
    let removed = |may_return: bool| {
        json!([{
            "address": address, "token": text, "generation": 7, "may_return": may_return
        }])
    };
    assert_eq!(node.json(&["ring"])["removed"], removed(false));
    let allow = "POST /api/v1/ring/allow-return";
    assert_eq!(node.change(allow, r#"{"address": "127.0.0.8"}"#).0, 404);
    assert_eq!(node.change(allow, r#"{"address": "here"}"#).0, 400);
    let answer = node.told(&["allowreturn", "127.0.0.9"]);
    assert!(answer.starts_with("127.0.0.9 is taken back into the ring when"), "{answer}");
    let expected = json!({ "address": address, "returned": false });
    assert_eq!(node.change(allow, r#"{"address": "127.0.0.9"}"#), (200, expected));
    node.restart_with(&[]);
    assert_eq!(node.json(&["ring"])["removed"], removed(true), "it is remembered");
}

#[test]
fn the_failure_detector_may_be_made_more_or_less_suspicious() {
    let mut node = Node::start(&plain_families());
    let path = "/api/v1/failure-detector";
    let put = |node: &Node, body: &str| node.change(&format!("PUT {path}"), body);
    let get = |node: &Node| node.change(&format!("GET {path}"), "");
    let is = |phi: f64| (200, json!({ "phi_convict_threshold": phi }));
    assert_eq!(get(&node), is(8.0));
    assert_eq!(put(&node, r#"{"phi_convict_threshold": 5}"#), is(5.0));
    assert_eq!(put(&node, r#"{"phi_convict_threshold": 16}"#), is(16.0));
    for phi in [0, 4, 17, u32::MAX] {
        let (status, answer) = put(&node, &format!("{{\"phi_convict_threshold\": {phi}}}"));
        let why = format!("must be between 5 and 16, as PhiConvictThreshold, and not {phi}");
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.ends_with(&why), "{error}");
    }
    for body in ["{}", r#"{"phi": 8}"#, r#"{"phi_convict_threshold": -8}"#] {
        assert_eq!(put(&node, body).0, 400, "{body}");
    }
    assert_eq!(get(&node), is(16.0));
    node.restart_with(&[]);
    assert_eq!(get(&node), is(8.0), "what the file says");
}

#[test]
fn hints_for_a_dead_node_are_told_and_may_be_delivered_sooner() {
    let mut node = Node::start(&plain_families().with("ReplicationFactor", "2"));
    let dead = IpAddr::from([127, 0, 0, 9]);
    node.restart_with(&[RingNote::Owns(dead, Partitioner::Random.token(b"key"))]);
    node.insert(STANDARD, 0..20);
    let hints = || node.change("GET /api/v1/hints", "").1;
    wait_until("hints are kept", || hints()["targets"][0]["hints"].as_u64() >= Some(20));
    assert_eq!(hints()["targets"][0]["address"], json!(dead));
    // None has failed yet, so that none has to wait.
    let delivered = node.change("POST /api/v1/hints/deliver", r#"{"address": "127.0.0.9"}"#);
    assert_eq!(delivered, (200, json!({ "changed": false })));
    assert_eq!(node.change("POST /api/v1/hints/deliver", r#"{"address": "127.0.0.8"}"#).0, 404);
    assert!(hints()["targets"][0]["hints"].as_u64() >= Some(20), "it is dead");
}

#[test]
fn the_rack_file_is_read_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let snitch = "org.apache.cassandra.locator.PropertyFileEndPointSnitch";
    let options = plain_families().with("EndPointSnitch", snitch);
    let thrift = configure(directory.path(), &options);
    let file = directory.path().join("rack.properties");
    fs::write(&file, "127.0.0.1=DC0:R0").unwrap();
    let mut command = serve(directory.path());
    command.arg(format!("-DrackFile={}", file.display()));
    let server = Server::launch(directory.path(), thrift, command);
    let node = Node { server, directory };
    let data_center = || node.json(&["ring"])["endpoints"][0]["data_center"].clone();
    assert_eq!(data_center(), "DC0");
    let mut edition = 0;
    // The node itself looks every ten seconds, and may be first.
    wait_until("the request finds news", || {
        edition += 1;
        fs::write(&file, format!("127.0.0.1=DC{edition}:R0")).unwrap();
        let (status, answer) = node.change("POST /api/v1/rack-file", "");
        assert_eq!((status, data_center()), (200, json!(format!("DC{edition}"))));
        answer["changed"] == json!(true)
    });
    let again = node.change("POST /api/v1/rack-file", "");
    assert_eq!(again, (200, json!({ "changed": false })));
    fs::write(&file, "127.0.0.1=\\u12").unwrap();
    let (status, answer) = node.change("POST /api/v1/rack-file", "");
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(status == 500 && error.ends_with("what it said before stays in force"), "{answer}");
    assert_eq!(data_center(), json!(format!("DC{edition}")));
}

#[test]
fn cfstats_counts_what_was_written_and_read() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..500);
    let mut client = Client::connect(node.server.thrift_address());
    for _ in 0..200 {
        client.get_slice("row 7", STANDARD, first(10, false)).unwrap();
    }
    client.scan(STANDARD).unwrap();
    let family = node.family(STANDARD);
    assert_eq!(family["writes"]["count"], 500);
    assert_eq!(family["reads"]["count"], 200);
    assert_eq!(family["range_reads"]["count"], 1);
    assert_eq!(family["memtable_columns"], 500);
    assert_eq!((&family["sstables"], &family["row_cache"]), (&json!(0), &Value::Null));
    assert_eq!(family["key_cache"]["capacity"], 200_000);
    for kind in ["writes", "reads", "range_reads"] {
        for mean in ["mean_micros", "recent_mean_micros"] {
            let mean = family[kind][mean].as_f64().unwrap();
            assert!(mean > 0.0 && mean < 1e6, "{family}");
        }
    }
    assert_eq!(
        node.family(OTHER_STANDARD)["writes"],
        json!({
            "count": 0, "mean_micros": null, "recent_mean_micros": null
        })
    );

    node.told(&["flush", KEYSPACE, STANDARD]);
    let family = node.family(STANDARD);
    let flushed = (&family["sstables"], &family["memtable_columns"], &family["memtable_switches"]);
    assert_eq!(flushed, (&json!(1), &json!(0), &json!(1)));
    let sizes = ["row_min_bytes", "row_mean_bytes", "row_max_bytes"].map(|n| family[n].as_u64());
    assert!(sizes[0] > Some(100) && sizes[0] <= sizes[1] && sizes[1] <= sizes[2], "{sizes:?}");

    let text = node.told(&["cfstats"]);
    assert!(text.starts_with("Keyspace: Keyspace1\n\tRead Count: 200\n\tRead Latency: 0."));
    assert!(text.contains("\n\t\tColumn Family: Standard1\n\t\tSSTable count: 1\n"), "{text}");
    assert!(text.contains("\nKeyspace: system\n") && text.ends_with("\n\n----------------\n"));
}

#[test]
fn flush_and_compact_do_what_is_named_and_nothing_else() {
    let node = Node::start(&plain_families());
    let sstables = |family: &str| node.family(family)["sstables"].as_u64().unwrap();
    for keys in [0..100, 50..150, 100..200] {
        for family in [STANDARD, OTHER_STANDARD] {
            node.insert(family, keys.clone());
        }
        assert_eq!(node.told(&["flush", KEYSPACE, STANDARD]), "");
    }
    assert_eq!((sstables(STANDARD), sstables(OTHER_STANDARD)), (3, 0));
    let done = node.json(&["flush", KEYSPACE]);
    assert!(done["column_families"].as_array().unwrap().contains(&json!("Keyspace1.Standard2")));
    assert_eq!(sstables(OTHER_STANDARD), 1);

    node.told(&["compact", KEYSPACE, OTHER_STANDARD]);
    assert_eq!((sstables(STANDARD), sstables(OTHER_STANDARD)), (3, 1));
    assert_eq!(node.told(&["compact"]), "");
    assert_eq!(sstables(STANDARD), 1);
    assert_eq!(node.family(STANDARD)["rows"], 200);
    let mut client = Client::connect(node.server.thrift_address());
    assert_eq!(client.scan(STANDARD).unwrap().len(), 200);

    for command in ["flush", "compact", "cfstats"] {
        let unknown = node.nodetool(&[command, "Nowhere"]);
        assert_refused(&unknown, 1, "keyspace Nowhere does not exist");
        let unknown = node.nodetool(&[command, KEYSPACE, "Nothing"]);
        assert_refused(&unknown, 1, "keyspace Keyspace1 has no column family Nothing");
    }
}

/// The column of a list of snapshots.
fn column<'a>(snapshots: &'a Value, name: &str) -> Vec<&'a str> {
    let snapshots = snapshots.as_array().unwrap().iter();
    snapshots.map(|snapshot| snapshot[name].as_str().unwrap()).collect()
}

#[test]
fn snapshots_are_taken_listed_and_cleared_as_they_are_named() {
    let node = Node::start(&plain_families());
    assert_eq!(node.told(&["listsnapshots"]), "no snapshot found\n");
    node.insert(STANDARD, 0..100);
    assert_eq!(node.told(&["snapshot", "nightly"]), "");
    assert_eq!(node.family(STANDARD)["sstables"], 1, "what was in memory belongs to it");
    let listed = node.json(&["listsnapshots"]);
    assert_eq!(column(&listed, "keyspace"), [KEYSPACE, "system"]);
    let nightly = column(&listed, "name")[0];
    assert_eq!(nightly, format!("{}-nightly", listed[0]["taken_millis"]));
    assert_eq!(column(&listed, "name"), [nightly, nightly]);
    let folder = node.directory.path().join("data/Keyspace1/snapshots").join(nightly);
    assert_eq!(listed[0]["folders"], json!([folder]));
    let files = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let bytes: u64 = files().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(listed[0]["total_bytes"], bytes);
    assert!(listed[0]["exclusive_bytes"].as_u64().unwrap() < bytes, "the SSTable is shared");
    assert!(files().any(|file| file.file_name().to_str().unwrap().starts_with(STANDARD)));

    let taken = node.json(&["snapshot", "--keyspace", "system"]);
    assert_eq!(column(&taken, "keyspace"), ["system"]);
    let plain = column(&taken, "name")[0];
    assert!(plain.parse::<u64>().is_ok(), "{plain}");
    let text = node.told(&["listsnapshots", "--keyspace", "system"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines[0].ends_with("      Own KB           KB"), "{text}");
    assert!(lines[1].starts_with(&format!("{:<20} {nightly} ", "system")), "{text}");
    assert!(lines[2].starts_with(&format!("{:<20} {plain} ", "system")), "{text}");

    let cleared = node.json(&["clearsnapshot", "--name", "nightly", "--keyspace", "system"]);
    assert_eq!(
        (column(&cleared, "name"), column(&cleared, "keyspace")),
        (vec![nightly], vec!["system"])
    );
    assert!(folder.exists());
    assert_eq!(node.told(&["clearsnapshot", "--name", nightly]), "");
    assert!(!folder.exists());
    assert_eq!(column(&node.json(&["listsnapshots"]), "name"), [plain]);
    assert_eq!(node.told(&["clearsnapshot"]), "");
    assert_eq!(node.json(&["listsnapshots"]), json!([]));
    assert_eq!(node.told(&["clearsnapshot"]), "", "as of old, without any as well");
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for_for_ever() {
    let node = Node::start(&plain_families());
    kill_process(node.server.pid(), Signal::STOP).unwrap();
    for command in [&["info"][..], &["setcompactionthreshold", "4"]] {
        let output = node.nodetool(&[&["--timeout", "1"], command].concat());
        assert_refused(&output, 3, "has not answered within 1 seconds");
    }
    kill_process(node.server.pid(), Signal::CONT).unwrap();
    assert!(node.told(&["--timeout", "60", "info"]).contains("Uptime"));
}

#[test]
fn usage_names_the_program_and_the_command_once() {
    let directory = tempfile::tempdir().unwrap();
    let nodetool = directory.path().join("nodetool");
    symlink(program(), &nodetool).unwrap();
    let output = Command::new(nodetool).arg("ringing").output().unwrap();
    assert_refused(&output, 1, "Usage: alexandra nodetool");
}

#[test]
fn snapshots_that_cannot_be_are_refused_and_others_stay() {
    let node = Node::start(&plain_families());
    node.told(&["snapshot", "--keyspace", KEYSPACE, "kept"]);
    let before = node.json(&["listsnapshots"]);
    for (arguments, why) in [
        (&["snapshot", ""][..], "a snapshot's name must have 1 to 200 bytes"),
        (&["snapshot", "../nightly"], "a snapshot's name must have"),
        (&["snapshot", "--keyspace", "Nowhere"], "keyspace Nowhere does not exist"),
        (&["listsnapshots", "--keyspace", "Nowhere"], "keyspace Nowhere does not exist"),
        (&["clearsnapshot", "--keyspace", "Nowhere"], "keyspace Nowhere does not exist"),
        (&["clearsnapshot", "--name", "nightly"], "no snapshot nightly was found"),
        (
            &["clearsnapshot", "--name", "kept", "--keyspace", "system"],
            "no snapshot kept was found",
        ),
        (&["clearsnapshot", "--name", ""], "no snapshot  was found"),
        (&["clearsnapshot", "kept"], "Usage"),
        (&["snapshot", "one", "two"], "Usage"),
    ] {
        assert_refused(&node.nodetool(arguments), 1, why);
    }
    let (delete, host) = ("DELETE /api/v1/snapshots", "Host: localhost");
    let json = "Content-Type: application/json";
    for (status, query, header, body) in [
        (400, "", json, r#"{"name": "nightly"}"#),
        (400, "?tag=nightly", "Accept: */*", ""),
        (403, "", "Origin: http://evil.example", ""),
        (403, "", "X-Forwarded-For: 10.9.9.9", ""),
        (404, "?name=nightly", "Accept: */*", ""),
    ] {
        let line = format!("{delete}{query} HTTP/1.1");
        let (answered, told) = node.request(&[&line, host, header], body);
        assert_eq!(answered, status, "{line} {header}: {told}");
    }
    let post = ["POST /api/v1/snapshots HTTP/1.1", host, json];
    for (status, body) in [
        (400, r#"{"name": "nightly"}"#),
        (400, r#"{"tag": "a/b"}"#),
        (404, r#"{"keyspace": "Nowhere"}"#),
    ] {
        let (answered, told) = node.request(&post, body);
        assert_eq!(answered, status, "{body}: {told}");
    }
    assert_eq!(node.json(&["listsnapshots"]), before);

    // Where the folders should go there is something else.
    node.told(&["clearsnapshot"]);
    let snapshots = node.directory.path().join("data/Keyspace1/snapshots");
    fs::remove_dir(&snapshots).unwrap();
    fs::write(&snapshots, "").unwrap();
    let failed = node.nodetool(&["snapshot", "nightly"]);
    assert_refused(&failed, 1, "cannot make the snapshot: ");
    assert_refused(&failed, 1, snapshots.to_str().unwrap());
    fs::remove_file(&snapshots).unwrap();
    assert_eq!(node.json(&["listsnapshots"]), json!([]), "nothing of it is left");
    assert_eq!(node.told(&["snapshot", "nightly"]), "");
}

#[test]
fn a_snapshot_of_a_running_server_can_be_restored() {
    let command = "alexandra nodetool snapshot nightly";
    let document = include_str!("../docs/backup.md");
    assert!(document.lines().any(|line| line == command));
    let mut node = Node::start(&plain_families());
    node.insert(STANDARD, 0..10);
    node.told(&command.split(' ').skip(2).collect::<Vec<_>>());
    node.insert(STANDARD, 10..20);
    assert!(node.server.stop().success());
    let mut restore = Command::new(program());
    restore.args(["restore", "--snapshot", "nightly", "--config"]).arg(node.directory.path());
    let restored = restore.output().unwrap();
    assert!(restored.status.success(), "{:?}", texts(&restored));
    node.server.restart();
    let mut client = Client::connect(node.server.thrift_address());
    assert_eq!(client.scan(STANDARD).unwrap().len(), 10);
}

#[test]
fn compaction_thresholds_change_and_count_at_once() {
    let node = Node::start(&plain_families());
    let usual = "Current compaction threshold: Min=4, Max=32\n";
    assert_eq!(node.told(&["getcompactionthreshold"]), usual);
    for keys in [0..50, 50..100] {
        node.insert(STANDARD, keys);
        node.told(&["flush", KEYSPACE, STANDARD]);
    }
    assert_eq!(node.family(STANDARD)["sstables"], 2);
    assert_eq!(node.told(&["setcompactionthreshold", KEYSPACE, STANDARD, "2"]), "");
    let now = node.told(&["getcompactionthreshold"]);
    assert_eq!(now, format!("{usual}Keyspace1.Standard1: Min=2, Max=32\n"));
    wait_until("two are enough", || node.family(STANDARD)["sstables"] == 1);
    node.told(&["setcompactionthreshold", "3", "0"]);
    let off = "Current compaction threshold: Min=3, Max=0\n";
    assert_eq!(node.told(&["getcompactionthreshold"]), off);

    let missing = node.nodetool(&["setcompactionthreshold"]);
    assert_refused(&missing, 1, "Missing threshold value(s)");
    let reversed = node.nodetool(&["setcompactionthreshold", "8", "4"]);
    assert_refused(&reversed, 1, "Min threshold can't be greater than Max threshold");
    // All or none: the least of all is known to the server alone.
    node.told(&["setcompactionthreshold", "4", "32"]);
    node.told(&["setcompactionthreshold", KEYSPACE, STANDARD, "4", "8"]);
    assert_eq!(node.nodetool(&["setcompactionthreshold", "9"]).status.code(), Some(1));
    let unchanged = format!("{usual}Keyspace1.Standard1: Min=4, Max=8\n");
    assert_eq!(node.told(&["getcompactionthreshold"]), unchanged);
}

#[test]
fn cache_capacities_change_and_hit_rates_are_told() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..100);
    node.told(&["flush", KEYSPACE, STANDARD]);
    assert_eq!(node.told(&["setcachecapacity", KEYSPACE, STANDARD, "0", "50"]), "");
    let mut client = Client::connect(node.server.thrift_address());
    let mut read = || client.get_slice("row 7", STANDARD, first(10, false)).unwrap();
    read();
    let figures = |name: &str| node.family(STANDARD)["row_cache"][name].as_u64().unwrap();
    let before = ["hits", "requests"].map(figures);
    for _ in 0..10 {
        read();
    }
    assert_eq!(["hits", "requests"].map(figures), before.map(|count| count + 10));
    assert_eq!(["capacity", "size"].map(figures), [50, 1]);
    assert_eq!(node.family(STANDARD)["key_cache"], Value::Null);
    let text = node.told(&["cfstats", KEYSPACE, STANDARD]);
    let lines = "\t\tKey cache: disabled\n\t\tRow cache capacity: 50\n\
                 \t\tRow cache size: 1\n\t\tRow cache hit rate: 0.";
    assert!(text.contains(lines), "{text}");

    let unknown = node.nodetool(&["setcachecapacity", KEYSPACE, "Nothing", "1", "1"]);
    assert_refused(&unknown, 1, "keyspace Keyspace1 has no column family Nothing");
    assert_refused(&node.nodetool(&["setcachecapacity", KEYSPACE]), 1, "Usage");
}

#[test]
fn compactions_are_told_while_they_run_and_afterwards() {
    let options =
        plain_families().with("CompactionThroughputInMBPerSecond", "1").with("Compression", "None");
    let node = Node::start(&options);
    let idle = "pending tasks: 0\ncompleted: 0 (0 bytes to 0), failed: 0\n";
    assert_eq!(node.told(&["compactionstats"]), idle);
    node.insert(STANDARD, 0..20_000);
    node.told(&["flush", KEYSPACE, STANDARD]);
    std::thread::scope(|scope| {
        let admin = node.admin();
        let compacting = scope.spawn(move || nodetool(admin, &["compact", KEYSPACE, STANDARD]));
        let mut seen = Value::Null;
        wait_until("the compaction is seen", || {
            seen = node.json(&["compactionstats"])["running"][0].clone();
            assert!(seen != Value::Null || !compacting.is_finished(), "it was not seen");
            seen["bytes_read"].as_u64() > Some(100_000)
        });
        assert_eq!((&seen["kind"], &seen["column_family"]), (&json!("major"), &json!(STANDARD)));
        assert!(seen["bytes_read"].as_u64() <= seen["bytes_total"].as_u64(), "{seen}");
        let text = node.told(&["compactionstats"]);
        assert!(text.contains("\nmajor      Keyspace1.Standard1 "), "{text}");
        assert!(compacting.join().unwrap().status.success());
    });
    let now = node.json(&["compactionstats"]);
    assert_eq!((&now["completed"], &now["running"]), (&json!(1), &json!([])));
    assert!(now["bytes_in"].as_u64() > Some(1 << 20), "{now}");
}

#[test]
fn metrics_are_there_for_prometheus() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..30);
    let (status, text) = node.request(&["GET /metrics HTTP/1.1", "Host: localhost"], "");
    assert_eq!(status, 200);
    let labels = r#"{keyspace="Keyspace1",column_family="Standard1"}"#;
    for line in [
        format!("alexandra_column_family_writes_total{labels} 30"),
        format!("alexandra_column_family_memtable_operations{labels} 30"),
        format!("alexandra_column_family_failed{labels} 0"),
        "# TYPE alexandra_memtables_bytes gauge".to_owned(),
        "alexandra_compactions_running 0".to_owned(),
        "# TYPE alexandra_block_cache_hits counter".to_owned(),
        r#"alexandra_peer_up{peer="127.0.0.1"} 1"#.to_owned(),
        "alexandra_read_repairs_total 0".to_owned(),
        "alexandra_hints_stored_bytes_total 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

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
fn other_machines_need_the_token_for_changes() {
    let head = |authorization: &'static str| {
        let mut head = vec![
            "POST /api/v1/flush HTTP/1.1",
            "Host: 10.0.0.1",
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
    let look = ["GET /api/v1/info HTTP/1.1", "Host: 10.0.0.1", "X-Forwarded-For: 10.9.9.9"];
    assert_eq!(node.request(&look, "").0, 200, "reads need none");

    assert_eq!(node.told(&["flush"]), "");
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

    let without = Node::start(&plain_families());
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
    stream.read_to_end(&mut Vec::new()).is_ok()
}

#[test]
fn slow_clients_are_cut_off_and_hold_up_nobody_for_ever() {
    let node = Node::start(&plain_families());
    let mut slow_body = TcpStream::connect(node.admin()).unwrap();
    let head = "POST /api/v1/flush HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{";
    slow_body.write_all(head.as_bytes()).unwrap();
    let half_heads = (0..100).map(|_| {
        let mut stream = TcpStream::connect(node.admin()).unwrap();
        stream.write_all(b"GET /api/v1/info HT").unwrap();
        stream
    });
    let mut half_heads: Vec<_> = half_heads.collect();
    // More than may be connected at a time: an operator waits, but no longer than for these.
    let clock = SystemClock::new();
    assert_eq!(node.json(&["info"])["cluster_name"], "Tests");
    assert!(clock.monotonic() < REQUEST_LIMIT * 3, "{:?}", clock.monotonic());
    assert!(half_heads.iter_mut().take(50).all(is_closed));
    let mut answer = String::new();
    slow_body.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = slow_body.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // Clients pay no attention to any of this.
    node.insert(STANDARD, 0..10);
}

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

/// Starts a server on a configuration that does not name the port for operators.
fn start_without_port(directory: &Path, arguments: &[String]) -> Server {
    let thrift = configure(directory, &Options::default());
    let file = directory.join("storage-conf.xml");
    let port = admin_address(directory).port();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("<AdminPort>{port}</AdminPort>"), "")).unwrap();
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
fn the_port_of_jmx_is_that_of_operators() {
    let spare = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = spare.local_addr().unwrap();
    drop(spare);
    let directory = tempfile::tempdir().unwrap();
    let property = format!("-Dcom.sun.management.jmxremote.port={}", address.port());
    let server = start_without_port(directory.path(), &[property]);
    assert!(server.log().contains(&format!("for nodetool on {address}")), "{}", server.log());
    assert!(nodetool(address, &["version"]).status.success());
}

#[test]
fn where_nobody_listens_nodetool_says_so() {
    let spare = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = spare.local_addr().unwrap();
    drop(spare);
    let refused = nodetool(address, &["info"]);
    let text = format!("Error connecting to the admin side of {address}: Connection refused");
    assert_refused(&refused, 3, &text);
    let node = Node::start(&plain_families());
    let thrift = nodetool(node.server.thrift_address(), &["info"]);
    assert_refused(&thrift, 3, "Is it the AdminPort of an Alexandra server");
}

#[test]
fn nodetool_answers_to_its_old_names_and_options() {
    let node = Node::start(&plain_families());
    let port = node.admin().port().to_string();
    for (name, arguments) in [
        ("nodetool", vec!["-h", "localhost", "-p", &port, "info"]),
        ("nodetool", vec!["--host", "127.0.0.1", "--port", &port, "cfstats"]),
        ("nodeprobe", vec!["-host", "localhost", "-port", &port, "info"]),
        ("nodetool", vec!["info", "-p", &port]),
    ] {
        let script = node.directory.path().join(name);
        let _ = symlink(program(), &script);
        let output = Command::new(&script).args(&arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", texts(&output).1);
    }
    for arguments in [&["fly"][..], &[]] {
        let output = node.nodetool(arguments);
        assert_refused(&output, 1, "Usage");
    }
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
