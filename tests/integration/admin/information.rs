//! Reports of a node on itself: figures and metrics.

use super::Node;
use crate::server::calls::{STANDARD, plain_families};
use serde_json::json;

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
fn metrics_are_there_for_prometheus() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..30);
    let (status, text) = node.request(&["GET /metrics HTTP/1.1", "Host: localhost"], "");
    assert_eq!(status, 200);
    let call = r#"protocol="thrift",call="insert",level="ONE""#;
    let labels = r#"{keyspace="Keyspace1",column_family="Standard1"}"#;
    for line in [
        format!("alexandra_column_family_writes_total{labels} 30"),
        format!("alexandra_column_family_memtable_operations{labels} 30"),
        format!("alexandra_column_family_failed{labels} 0"),
        "# TYPE alexandra_memtables_bytes gauge".to_owned(),
        "alexandra_compactions_running 0".to_owned(),
        "# TYPE alexandra_block_cache_hits counter".to_owned(),
        r#"alexandra_peer_up{peer="127.0.0.1"} 1"#.to_owned(),
        r#"alexandra_troubles{kind="Damaged"} 0"#.to_owned(),
        format!("alexandra_requests_total{{{call}}} 30"),
        format!("alexandra_request_duration_seconds_bucket{{le=\"+Inf\",{call}}} 30"),
        format!("alexandra_request_failures_total{{{call},kind=\"timed_out\"}} 0"),
        format!("alexandra_column_family_write_duration_seconds_count{labels} 30"),
        "# TYPE alexandra_commitlog_sync_duration_seconds histogram".to_owned(),
        "# TYPE process_cpu_seconds counter".to_owned(),
        "alexandra_read_repairs_total 0".to_owned(),
        "alexandra_hints_stored_bytes_total 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    let of_hints =
        |it: &str| it.starts_with("alexandra_disk_free_bytes{") && it.contains("hints\"}");
    assert!(text.lines().any(of_hints), "{text}");
    assert!(text.ends_with("# EOF\n"));
    let head = ["GET /metrics HTTP/1.1", "Host: localhost", "Accept: text/plain;version=0.0.4"];
    let (_, old) = node.request(&head, "");
    assert!(old.contains("\n# TYPE alexandra_block_cache_hits_total counter\n"), "{old}");
    assert!(!old.contains("# EOF"), "{old}");
}
