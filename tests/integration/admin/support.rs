//! The archive that others get to help with a node.

use super::Node;
use crate::server::calls::{STANDARD, plain_families};
use crate::server::program;
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The files of an archive, without their common folder.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(archive).unwrap()));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().strip_prefix("alexandra-support").unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (path.display().to_string(), text)
    });
    files.collect()
}

#[test]
fn a_support_bundle_has_what_helps_and_no_secrets() {
    let options = plain_families().with("AdminToken", "very secret");
    let node = Node::start(&options.with("LogFile", "node.log"));
    node.insert(STANDARD, 0..3);
    let directory = node.directory.path();
    let log = directory.join("own.log");
    let lines = "the log\n\
                 slow: thrift get of Blog.Authors 'unseenkey'\n\
                 user \"carol\" of 127.0.0.1 reads row unseenkey of Blog.Authors\n\
                 127.0.0.2 does not acknowledge a hint for Blog.Authors, row unseenkey, although\n\
                 Large row unseenkey in Authors 9 bytes\n\
                 Authors-1.sst is damaged at byte 8, met in row unseenkey: the checksum\n";
    fs::write(&log, lines).unwrap();
    let file = directory.join("bundle.tar.gz");
    let run = || {
        let mut command = Command::new(program());
        command.args(["support-bundle", "-p", &node.admin().port().to_string(), "--config"]);
        command
            .arg(directory)
            .current_dir(directory)
            .arg("--log")
            .arg(&log)
            .args(["--log", "nowhere.log"])
            .arg(&file)
            .output()
            .unwrap()
    };
    let output = run();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = tempfile::tempdir().unwrap();
    let archive = GzDecoder::new(fs::File::open(&file).unwrap());
    tar::Archive::new(archive).unpack(unpacked.path()).unwrap();
    let files = files(&file);
    for (name, part) in [
        ("version.txt", env!("CARGO_PKG_VERSION")),
        ("storage-conf.xml", "<Storage>"),
        ("settings.txt", "AdminToken = (set)"),
        ("cfstats.json", "\"Standard1\""),
        ("metrics.txt", "alexandra_uptime_seconds"),
        ("status.json", "\"nodes\""),
        ("machine/proc/meminfo", "MemTotal"),
        ("log/0-node.log", "log file: node.log"),
        ("log/1-own.log", "the log\nslow: \n"),
        ("log/1-own.log", "Authors-1.sst is damaged at byte 8, met in row \n"),
    ] {
        let text = files.get(name).unwrap_or_else(|| panic!("{name} of {:?}", files.keys()));
        assert!(text.contains(part), "{name}: {text}");
    }
    for (name, text) in &files {
        assert!(!text.contains("very secret") && !text.contains("unseenkey"), "{name}");
    }
    let again = run();
    assert!(!again.status.success(), "a file that is there stays");
}
