//! Several nodes as operators and their scripts see them.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::server::calls::KEYSPACE;
use crate::server::{Options, program, reconfigure};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

/// A script of the time on the output of `nodetool ring`: addresses of those who are up,
/// how many are down, and the sum of shares.
const SCRIPT: &str = r#"
ring=$(nodetool -h "$1" ring) || { echo "UNKNOWN: no answer"; exit 3; }
up=$(echo "$ring" | awk '$2 == "Up" {print $1}' | sort | tr '\n' ' ')
down=$(echo "$ring" | awk '$2 == "Down" {print $1}' | sort | tr '\n' ' ')
shares=$(echo "$ring" | sed -n 's/.* \([0-9.]*\)% .*/\1/p')
owns=$(echo "$shares" | awk '{all += $1} END {printf "%d", all + 0.5}')
rows=$(echo "$ring" | grep -E '^[0-9]+\.' | sed 's/ *|.*$//')
tokens=$(echo "$rows" | awk '{print $NF}' | sort -u | wc -l)
last=$(echo "$ring" | sed -n 2p | tr -d ' ')
if [ -n "$down" ]; then echo "CRITICAL: down: $down"; exit 2; fi
echo "OK: up: $up owns: $owns tokens: $tokens last: $last"
"#;

fn script(cluster: &Cluster, number: usize) -> Output {
    let directory = tempfile::tempdir().unwrap();
    symlink(program(), directory.path().join("nodetool")).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let address = cluster.nodes[number].address.to_string();
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "check_ring", &address]).env("PATH", path).output().unwrap()
}

fn nodetool(cluster: &Cluster, number: usize, command: &str) -> (Option<i32>, String) {
    let address = cluster.nodes[number].address.to_string();
    let mut nodetool = Command::new(program());
    let output = nodetool.args(["nodetool", "-h", &address, command]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn scripts_of_the_time_read_the_ring_and_a_drained_node_is_down() {
    let cluster = Cluster::start(3, replicated(3));
    let address = |number: usize| cluster.nodes[number].address.to_string();
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let output = script(&cluster, 0);
    let last = 2 * ((1u128 << 127) / 3);
    let all = format!(
        "OK: up: {} {} {}  owns: 100 tokens: 3 last: {last}\n",
        address(0),
        address(1),
        address(2)
    );
    assert_eq!((output.status.code(), text(&output)), (Some(0), all));
    assert_eq!(nodetool(&cluster, 1, "status").0, Some(0));

    cluster.nodetool(2, &["drain"]);
    cluster.wait_until_seen(0, 2, false);
    let output = script(&cluster, 0);
    let down = format!("CRITICAL: down: {} \n", address(2));
    assert_eq!((output.status.code(), text(&output)), (Some(2), down));
    let (code, told) = nodetool(&cluster, 0, "status");
    let look = format!("look at {} (Down, Normal)\n", address(2));
    assert!(code == Some(1) && told.ends_with(&look), "{told}");
    let refused = cluster.try_nodetool(2, &["decommission"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("this node has been drained"), "{refused:?}");
}

#[test]
fn a_drain_ends_what_the_node_does_to_the_ring() {
    let cluster = Cluster::start(2, replicated(1));
    cluster.nodetool(1, &["move", "--no-wait", "12345"]);
    cluster.nodetool(1, &["drain"]);
    wait_until("the operation has ended", || {
        let operation = cluster.nodes[1].ask("ring/operation");
        operation["error"].as_str().is_some_and(|why| why.contains("this node was drained"))
    });
    let told = cluster.nodetool(1, &["streams"]);
    assert!(told.starts_with("Mode: Node is drained\n"), "{told}");
}

#[test]
fn clustertool_tells_replicas_and_keeps_snapshots_of_all_nodes() {
    let cluster = Cluster::start(2, replicated(2));
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("clustertool");
    symlink(program(), &link).unwrap();
    let [one, other] = [0, 1].map(|number: usize| cluster.nodes[number].address.to_string());
    let clustertool = |arguments: &[&str]| {
        let output = Command::new(&link).args(["-h", &one]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, told) = clustertool(&["get_endpoints", KEYSPACE, "ann"]);
    let lists = [[&one, &other], [&other, &one]].map(|[first, second]| {
        format!("Key              : ann\nEndpoints        : [/{first}, /{second}]\n")
    });
    assert!(code == Some(0) && lists.contains(&told), "{told}");
    let json = |arguments: &[&str]| {
        let told = clustertool(&[arguments, &["--json"]].concat()).1;
        serde_json::from_str::<Value>(&told).unwrap()
    };
    let listed = json(&["get_endpoints", KEYSPACE, "ann"]);
    assert!(listed["key"] == "ann" && listed["endpoints"].as_array().unwrap().len() == 2);
    let well = [&one, &other].map(|host| json!({ "host": host, "error": null }));
    assert_eq!(json(&["global_snapshot", "in-json"]), json!(well));
    let on_both = |what: &str| format!("{one} snapshot {what}\n{other} snapshot {what}\n");
    assert_eq!(clustertool(&["global_snapshot", "before"]), (Some(0), on_both("taken")));
    for number in [0, 1] {
        assert!(nodetool(&cluster, number, "listsnapshots").1.contains("-before"));
    }
    assert_eq!(clustertool(&["clear_global_snapshot"]), (Some(0), on_both("cleared")));
    for number in [0, 1] {
        assert!(!nodetool(&cluster, number, "listsnapshots").1.contains("-before"));
    }
}

#[test]
fn a_node_with_another_schema_is_named_and_warned_of() {
    let mut cluster = Cluster::start(3, replicated(3));
    let (code, told) = nodetool(&cluster, 0, "describecluster");
    assert!(code == Some(0) && told.ends_with("All live nodes that tell agree\n"), "{told}");
    cluster.stop(1);
    let other = Options::default().with("GCGraceSeconds", "3600");
    reconfigure(&cluster.nodes[1].directory, &other);
    cluster.launch(&[1]);
    cluster.wait_until_seen(0, 1, true);
    wait_until("the node is named", || nodetool(&cluster, 0, "describecluster").0 == Some(1));
    let (_, told) = nodetool(&cluster, 0, "describecluster");
    let address = cluster.nodes[1].address;
    assert!(told.ends_with(&format!(" in the storage-conf.xml of {address}\n")), "{told}");
    let warning = format!("{address} is configured with another schema");
    wait_until("it is warned of", || cluster.server(0).log().contains(&warning));
    assert_eq!(cluster.server(0).log().matches(&warning).count(), 1);
}
