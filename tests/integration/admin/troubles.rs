//! Reasons for which a node does not serve as it should, as `status`, `info`, readiness, metrics
//! and log tell them.

use super::{Node, texts, wait_until};
use crate::server::calls::{KEYSPACE, Path, STANDARD, plain_families};
use crate::server::client::Client;
use crate::server::{Server, configure, program};
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// Asserts that the node has one trouble, which every face tells.
#[track_caller]
fn assert_told(node: &Node, kind: &str, takes_writes: bool, text: &str) {
    let output = node.nodetool(&["status"]);
    let (told, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(text) && !told.contains("all is well"), "{told}");
    let output = node.nodetool(&["health"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).0.contains(text), "{output:?}");
    let info = node.told(&["info"]);
    assert!(info.lines().any(|line| line.starts_with("Trouble") && line.contains(text)), "{info}");
    let (code, health) = node.change("GET /api/v1/health", "");
    let ready = if takes_writes { 200 } else { 503 };
    assert_eq!((code, &health["takes_writes"]), (ready, &json!(takes_writes)), "{health}");
    assert_eq!(health["troubles"][0]["kind"], kind, "{health}");
    let (_, metrics) = node.request(&["GET /metrics HTTP/1.1", "Host: localhost"], "");
    let counted = format!("\nalexandra_troubles{{kind=\"{kind}\"}} 1\n");
    assert!(metrics.contains(&counted), "{metrics}");
    let drained = u8::from(kind == "Drained");
    assert!(metrics.contains(&format!("\nalexandra_drained {drained}\n")), "{metrics}");
    let failed = u8::from(!takes_writes && kind != "Drained");
    assert!(metrics.contains(&format!("\nalexandra_failed {failed}\n")), "{metrics}");
}

#[track_caller]
fn assert_well(node: &Node) {
    assert!(node.told(&["status"]).ends_with(": all is well\n"));
    assert_eq!(node.told(&["health"]), "the node is well\n");
    assert_eq!(node.change("GET /api/v1/health", "").0, 200);
}

#[test]
fn a_drained_node_says_so_and_not_that_all_is_well() {
    let node = Node::start(&plain_families());
    assert_well(&node);
    node.told(&["drain"]);
    assert_told(&node, "Drained", false, "drained: it takes no writes ");
    assert!(node.server.log().contains("DRAINED"), "{}", node.server.log());
}

/// An SSTable of the family, which the node has just opened.
fn flushed(node: &mut Node) -> PathBuf {
    node.insert(STANDARD, 0..100);
    node.told(&["flush", KEYSPACE]);
    node.restart_with(&[]);
    let folder = node.directory.path().join("data").join(KEYSPACE);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.extension().is_some_and(|end| end == "sst");
    files.filter(is_it).find(|path| path.to_string_lossy().contains(STANDARD)).unwrap()
}

#[test]
fn a_damaged_block_that_a_read_has_met_is_told_until_the_next_start() {
    let mut node = Node::start(&plain_families());
    let file = flushed(&mut node);
    let block = [0xa5; 64];
    File::options().write(true).open(&file).unwrap().write_all_at(&block, 16).unwrap();
    let mut client = Client::connect(node.server.thrift_address());
    assert!(client.scan(STANDARD).is_err());
    assert_told(&node, "Damaged", true, &format!("{} is damaged", file.display()));
    assert!(node.server.log().contains(&*file.to_string_lossy()), "{}", node.server.log());
}

#[test]
fn a_column_family_that_cannot_be_flushed_is_told() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..10);
    let folder = node.directory.path().join("data").join(KEYSPACE);
    fs::rename(&folder, folder.with_extension("away")).unwrap();
    assert!(!node.nodetool(&["flush", KEYSPACE, STANDARD]).status.success());
    let text = format!("{KEYSPACE}.{STANDARD} takes no writes");
    assert_told(&node, "FamilyFailed", false, &text);
    assert!(node.server.log().contains("No such file"), "{}", node.server.log());
}

/// Limits the size of the files that the server may write, in bytes.
fn limit_file_size(node: &Node, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(node.server.pid()), Resource::Fsize, limit).unwrap();
}

#[test]
fn a_memtable_that_waits_for_room_is_told_until_it_is_written() {
    // Segments of the log are smaller than the limit, and the flush is larger.
    let node = Node::start(&plain_families().with("CommitLogRotationThresholdInMB", "1"));
    assert!((0..12).all(|row| insert(&node, row, 256 << 10)));
    limit_file_size(&node, Some(2 << 20));
    assert!(!node.nodetool(&["flush", KEYSPACE, STANDARD]).status.success());
    let text = format!("the memtable of {KEYSPACE}.{STANDARD} waits to be written");
    assert_told(&node, "FlushWaits", true, &text);
    assert!(node.server.log().contains("File too large"), "{}", node.server.log());
    limit_file_size(&node, None);
    assert_eq!(node.told(&["flush", KEYSPACE, STANDARD]), "");
    assert_well(&node);
}

/// Inserts a row of random bytes, which do not become fewer on the disk. Returns whether it could.
fn insert(node: &Node, row: u64, bytes: usize) -> bool {
    let mut client = Client::connect(node.server.thrift_address());
    let mut rng = fastrand::Rng::with_seed(row);
    let value: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
    client.insert(&row.to_string(), Path::column(STANDARD, b"column"), &value, 1).is_ok()
}

#[test]
fn a_commit_log_that_has_stopped_is_told() {
    let node = Node::start(&plain_families());
    assert!((0..4).all(|row| insert(&node, row, 512 << 10)));
    // In the middle of a segment, where a disk cannot be full.
    limit_file_size(&node, Some(1 << 20));
    assert!(!insert(&node, 4, 1));
    assert_told(&node, "LogStopped", false, "the commit log has stopped");
    wait_until("the log tells", || node.server.log().contains("the commit log has stopped"));
}

#[test]
fn a_segment_that_may_not_be_made_is_told_until_it_may() {
    let node = Node::start(&plain_families().with("CommitLogRotationThresholdInMB", "4"));
    assert!(insert(&node, 0, 3 << 19));
    limit_file_size(&node, Some(3 << 20));
    // It does not fit into the segment, and the next one is larger than the limit.
    assert!(!insert(&node, 1, 3 << 20));
    for _ in 0..2 {
        assert_told(&node, "NoRoom", false, "takes no writes");
    }
    limit_file_size(&node, None);
    wait_until("there is room", || node.change("GET /api/v1/health", "").0 == 200);
    assert_well(&node);
    assert!(insert(&node, 1, 3 << 20));
}

#[test]
fn memtables_that_fill_their_memory_and_cannot_be_written_are_told() {
    let node = Node::start(
        &plain_families()
            .with("CommitLogRotationThresholdInMB", "1")
            .with("MemoryBudgetInMB", "64")
            .with("RpcTimeoutInMillis", "500"),
    );
    limit_file_size(&node, Some(2 << 20));
    assert!((0..200).any(|row| !insert(&node, row, 512 << 10)), "the memory is used up");
    assert_told(&node, "MemoryFull", false, "the memory for memtables is used up");
    limit_file_size(&node, None);
    wait_until("all is written", || node.change("GET /api/v1/health", "").0 == 200);
    assert!(node.server.log().matches("its memtable waits to be written").count() < 3);
}

#[test]
fn a_full_disk_is_told_until_there_is_room() {
    let own_mounts = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    if !own_mounts().arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("left out: this machine lets nobody mount a file system");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = plain_families().with("CommitLogRotationThresholdInMB", "1");
    let address = configure(directory.path(), &options);
    let log = directory.path().join("commitlog");
    fs::create_dir(&log).unwrap();
    let mut command = own_mounts();
    let mount = "mount -t tmpfs -o size=8m none \"$1\" && exec \"$2\" serve --config .";
    command.args(["sh", "-c", mount, "sh"]).args([&log, &program().into()]);
    command.current_dir(directory.path());
    let node = Node { server: Server::launch(directory.path(), address, command), directory };
    assert!(insert(&node, 0, 1));
    // The disk of the server, which is not to be seen from outside.
    let pid = node.server.pid().as_raw_nonzero();
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let filler = root.join(log.strip_prefix("/").unwrap()).join("filler");
    // A flush frees segments: the disk is full when none is left to be freed.
    wait_until("the disk is full", || {
        node.told(&["flush", KEYSPACE, STANDARD]);
        let mut filler = File::options().create(true).append(true).open(&filler).unwrap();
        filler.write_all(&vec![0; 16 << 20]).unwrap_err();
        !insert(&node, 1, 100 << 10) && !node.nodetool(&["status"]).status.success()
    });
    assert_told(&node, "NoRoom", false, "takes no writes");
    assert!(node.server.log().contains("writes are refused until there is room"));
    fs::remove_file(&filler).unwrap();
    wait_until("there is room", || node.change("GET /api/v1/health", "").0 == 200);
    assert_well(&node);
    assert!(insert(&node, 0, 1));
}
