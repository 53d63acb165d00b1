//! Figures and settings of column families, flushes and compactions.

use super::{Node, assert_refused, nodetool, wait_until};
use crate::server::calls::{KEYSPACE, OTHER_STANDARD, STANDARD, first, plain_families};
use crate::server::client::Client;
use serde_json::{Value, json};

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
fn cfhistograms_count_what_was_written_and_read() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..40);
    let mut client = Client::connect(node.server.thrift_address());
    for _ in 0..30 {
        client.get_slice("row 7", STANDARD, first(10, false)).unwrap();
    }
    let report = node.json(&["cfhistograms", KEYSPACE, STANDARD]);
    let sum = |kind: &str, when: &str| -> u64 {
        let buckets = report[0][kind][when].as_array().unwrap().iter();
        buckets.map(|bucket| bucket.as_u64().unwrap()).sum()
    };
    // The first ones are timed, all of them, on whatever thread they were done.
    assert_eq!((sum("writes", "all"), sum("reads", "all")), (40, 30));
    assert_eq!((sum("writes", "recent"), sum("range_reads", "all")), (40, 0));
    let text = node.told(&["cfhistograms", KEYSPACE, STANDARD]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Keyspace1/Standard1 read/write latency histogram:");
    assert_eq!(lines[1], "Bucket                  Read             Write");
    assert_eq!((lines.len(), &lines[92][..9]), (93, "33282686 "));
    let again = node.json(&["cfhistograms", KEYSPACE, STANDARD]);
    assert_eq!(again, report, "asking resets nothing");

    let usage = "<KEYSPACE> <COLUMN_FAMILY>";
    assert_refused(&node.nodetool(&["cfhistograms"]), 1, usage);
    assert_refused(&node.nodetool(&["cfhistograms", KEYSPACE]), 1, usage);
    assert_refused(&node.nodetool(&["cfhistograms", KEYSPACE, STANDARD, "x"]), 1, usage);
    let unknown = node.nodetool(&["cfhistograms", KEYSPACE, "Nothing"]);
    assert_refused(&unknown, 1, "keyspace Keyspace1 has no column family Nothing");
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

    node.insert(STANDARD, 0..10);
    assert_eq!(node.told(&["flush", "--no-wait", KEYSPACE, STANDARD]), "");
    wait_until("the flush goes on", || sstables(STANDARD) == 2);
    let told = node.json(&["compact", "--no-wait", KEYSPACE, STANDARD]);
    assert_eq!(told["column_families"], json!(["Keyspace1.Standard1"]));
    wait_until("the compaction goes on", || sstables(STANDARD) == 1);

    for command in ["flush", "compact", "cfstats"] {
        let unknown = node.nodetool(&[command, "Nowhere"]);
        assert_refused(&unknown, 1, "keyspace Nowhere does not exist");
        let unknown = node.nodetool(&[command, KEYSPACE, "Nothing"]);
        assert_refused(&unknown, 1, "keyspace Keyspace1 has no column family Nothing");
    }
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
