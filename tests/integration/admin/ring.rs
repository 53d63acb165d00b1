//! Reports of a node on others, and decisions about them.

use super::{Node, assert_refused, exchange, texts, wait_until};
use crate::server::calls::{STANDARD, plain_families};
use crate::server::{Server, configure, serve};
use alexandra::ring::Partitioner;
use alexandra::storage::system::saved_ring::RingNote;
use serde_json::{Value, json};
use std::fs;
use std::net::IpAddr;

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
    let told = node.json(&["hints"]);
    let target = &told["targets"][0];
    assert_eq!((&target["state"], &target["recipient"]), (&json!("Down"), &json!(dead)));
    let text = node.told(&["hints"]);
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let count = target["hints"].to_string();
    assert_eq!((lines[1][0], lines[1][1], lines[1][4]), ("127.0.0.9", &*count, "down"));
    assert!(text.contains(&format!("waiting: {count} (")), "{text}");
}

#[test]
fn the_status_fails_as_long_as_a_node_is_not_in_its_place() {
    let mut node = Node::start(&plain_families());
    let text = node.told(&["status"]);
    assert!(text.ends_with("\n1 nodes, 1 up, 0 down: all is well\n"), "{text}");
    let status = node.json(&["status"]);
    assert_eq!((&status["healthy"], &status["cluster_name"]), (&json!(true), &json!("Tests")));
    let own = &status["nodes"][0];
    assert_eq!(own["software"], json!({ "Alexandra": env!("CARGO_PKG_VERSION") }));
    assert!(own["since_millis"].as_u64() > Some(0), "{own}");

    let (dead, removed) = (IpAddr::from([127, 0, 0, 9]), IpAddr::from([127, 0, 0, 8]));
    let token = |key: &[u8]| Partitioner::Random.token(key);
    node.restart_with(&[RingNote::Removed(removed, token(b"other"), 7)]);
    let text = node.told(&["status"]);
    assert!(text.contains("\n127.0.0.8       Down   Removed  "), "{text}");
    assert!(text.ends_with("\n2 nodes, 1 up, 1 down: all is well\n"), "{text}");

    node.restart_with(&[RingNote::Owns(dead, token(b"key"))]);
    let output = node.nodetool(&["status"]);
    let (text, error) = texts(&output);
    assert_eq!((output.status.code(), &*error), (Some(1), ""), "{text}");
    let last = "3 nodes, 1 up, 2 down: look at 127.0.0.9 (Down, Normal)";
    assert_eq!(text.lines().last(), Some(last), "{text}");
    let output = node.nodetool(&["status", "--json"]);
    let status: Value = serde_json::from_str(&texts(&output).0).unwrap();
    assert_eq!((output.status.code(), &status["healthy"]), (Some(1), &json!(false)));
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
fn a_node_on_its_own_agrees_with_itself() {
    let node = Node::start(&plain_families());
    let description = node.json(&["describecluster"]);
    assert_eq!(description["agree"], true);
    assert_eq!(description["schemas"][0]["addresses"], json!(["127.0.0.1"]));
    let fingerprint = description["schemas"][0]["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 16);
    let expected = format!(
        "Cluster: Tests\n\
         Partitioner: org.apache.cassandra.dht.RandomPartitioner\n\
         Snitch: org.apache.cassandra.locator.EndPointSnitch\n\
         Schema and settings:\n\
         \t{fingerprint}: [127.0.0.1]\n\
         Extensions of the wire: all nodes understand them\n\
         All live nodes that tell agree\n"
    );
    assert_eq!(node.told(&["describecluster"]), expected);
}
