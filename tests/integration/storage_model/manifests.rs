//! Manifests that do not belong to the files beside them, or to the server.

use crate::storage_model::rig::{KEYSPACE, Rig, Setup};
use alexandra::base::fs::FileSystem;
use alexandra::model::schema::FamilyId;
use alexandra::storage::manifest::Manifest;
use alexandra::storage::restore::Request;
use std::path::{Path, PathBuf};
use std::time::Duration;

const AUTHORS: u32 = 0;
const ENTRIES: u32 = 2;

/// A name that suits the comparators of both families.
const NAME: &str = "12345678";

fn setup() -> Setup {
    Setup { min_compaction_threshold: 0, ..Setup::default() }
}

/// Writes a row to an SSTable of its own.
fn flush_row(rig: &Rig, family: u32, key: &str) {
    rig.insert(family, key, (NAME, 1), b"value");
    rig.storage().flush(FamilyId(family)).unwrap();
}

fn has_row(rig: &Rig, family: u32, key: &str) -> bool {
    rig.get(family, key, NAME).is_some()
}

fn manifest(family: &str) -> PathBuf {
    Path::new("/var/data0").join(KEYSPACE).join(format!("{family}.manifest"))
}

fn overwrite(rig: &Rig, path: &Path, content: &[u8]) {
    if rig.disk.exists(path) {
        rig.disk.remove_file(path).unwrap();
    }
    rig.disk.create(path).unwrap().write_all_at(content, 0).unwrap();
}

#[track_caller]
fn assert_refused(rig: &mut Rig, texts: &[&str]) {
    let refusal = rig.open().unwrap_err().to_string();
    for text in texts {
        assert!(refusal.contains(text), "{text:?} is not in: {refusal}");
    }
}

#[test]
fn the_manifest_of_another_family_stops_the_start() {
    let mut rig = Rig::new(setup(), 1);
    // What was deleted is purged, so that the manifest of the authors names no file.
    flush_row(&rig, AUTHORS, "ada");
    rig.delete(AUTHORS, "ada", NAME, 2);
    rig.storage().flush(FamilyId(AUTHORS)).unwrap();
    rig.clock.advance(Duration::from_secs(100));
    rig.storage().compact(FamilyId(AUTHORS)).unwrap();
    rig.insert(ENTRIES, "first", (NAME, 1), b"value");
    rig.close();
    let [authors, entries] = ["Authors", "Entries"].map(manifest);
    let right = rig.disk.read(&entries).unwrap();
    let table = entries.with_file_name("Entries-1.sst");
    let content = rig.disk.read(&table).unwrap();
    rig.disk.remove_file(&table).unwrap();
    overwrite(&rig, &entries, &rig.disk.read(&authors).unwrap());
    let path = entries.to_str().unwrap();
    assert_refused(&mut rig, &[path, "the manifest of Blog.Authors", "that of Blog.Entries"]);
    overwrite(&rig, &entries, &right);
    assert_refused(&mut rig, &[table.to_str().unwrap(), "is missing", "Blog.Entries", path]);
    overwrite(&rig, &table, &content);
    rig.open().unwrap();
    assert!(has_row(&rig, ENTRIES, "first"));
}

#[test]
fn an_older_manifest_stops_the_start_and_the_newest_brings_all_rows_back() {
    let mut rig = Rig::new(setup(), 1);
    let path = manifest("Authors");
    let mut versions = Vec::new();
    for key in ["ada", "bob", "cleo"] {
        flush_row(&rig, AUTHORS, key);
        versions.push(rig.disk.read(&path).unwrap());
    }
    rig.close();
    let newest = versions.pop().unwrap();
    for (older, unknown) in versions.iter().zip(["Authors-2.sst", "Authors-3.sst"]) {
        overwrite(&rig, &path, older);
        let before = rig.files();
        assert_refused(&mut rig, &[unknown, path.to_str().unwrap(), "older", "Blog Authors"]);
        assert_eq!(rig.files(), before);
    }
    overwrite(&rig, &path, &newest);
    rig.open().unwrap();
    assert!(["ada", "bob", "cleo"].iter().all(|key| has_row(&rig, AUTHORS, key)));
}

#[test]
fn the_manifest_of_another_node_stops_the_start() {
    let mut rig = Rig::new(setup(), 1);
    flush_row(&rig, AUTHORS, "ada");
    flush_row(&rig, ENTRIES, "first");
    rig.close();
    let path = manifest("Entries");
    let own = Manifest::load(&rig.disk, &path).unwrap().unwrap();
    let node = own.node.expect("the node has a number");
    Manifest { node: Some(node + 1), ..own.clone() }.store(&rig.disk, &path).unwrap();
    let [entries, authors] = [path.clone(), manifest("Authors")];
    let texts = [entries.to_str().unwrap(), "another node than", authors.to_str().unwrap()];
    assert_refused(&mut rig, &texts);
    // A snapshot is of no node, and so is what an earlier version has written.
    Manifest { node: None, ..own }.store(&rig.disk, &path).unwrap();
    rig.open().unwrap();
    assert!(has_row(&rig, ENTRIES, "first"));
    flush_row(&rig, ENTRIES, "second");
    let bound = Manifest::load(&rig.disk, &path).unwrap().unwrap();
    assert_eq!(bound.node, Some(node));
}

#[test]
fn a_restored_manifest_is_newer_than_the_one_before_it() {
    let mut rig = Rig::new(setup(), 1);
    flush_row(&rig, AUTHORS, "ada");
    let snapshot = rig.snapshot("first");
    flush_row(&rig, AUTHORS, "bob");
    rig.close();
    let path = manifest("Authors");
    let load = |rig: &Rig| Manifest::load(&rig.disk, &path).unwrap().unwrap();
    let before = Manifest { node: Some(7), ..load(&rig) };
    before.store(&rig.disk, &path).unwrap();
    rig.restore(&Request { snapshot, ..Request::default() }, false).unwrap();
    let after = load(&rig);
    assert!(after.sequence > before.sequence, "{after:?} follows {before:?}");
    assert_eq!(after.node, before.node);
}

#[test]
fn of_two_manifests_the_versions_are_told() {
    let mut rig = Rig::new(Setup { data_directories: 2, ..setup() }, 1);
    flush_row(&rig, AUTHORS, "ada");
    let path = manifest("Authors");
    let older = rig.disk.read(&path).unwrap();
    flush_row(&rig, AUTHORS, "bob");
    rig.close();
    let second = Path::new("/var/data1").join(KEYSPACE).join("Authors.manifest");
    overwrite(&rig, &second, &older);
    let texts = ["Authors.manifest (version 2) and /var/data1/", "Authors.manifest (version 1)"];
    assert_refused(&mut rig, &texts);
    rig.disk.remove_file(&second).unwrap();
    rig.open().unwrap();
    assert!(["ada", "bob"].iter().all(|key| has_row(&rig, AUTHORS, key)));
}

#[test]
fn a_snapshot_put_in_place_by_hand_is_served_by_another_node() {
    let first = Rig::new(setup(), 1);
    flush_row(&first, AUTHORS, "ada");
    let name = first.snapshot("copy");
    let folder = PathBuf::from(format!("/var/data0/{KEYSPACE}/snapshots/{name}"));

    let mut second = Rig::new(setup(), 2);
    flush_row(&second, ENTRIES, "first");
    second.close();
    let path = manifest("Entries");
    let own = Manifest::load(&second.disk, &path).unwrap().unwrap();
    Manifest { node: Some(7), ..own }.store(&second.disk, &path).unwrap();
    for name in ["Authors.manifest", "Authors-1.sst"] {
        let content = first.disk.read(&folder.join(name)).unwrap();
        overwrite(&second, &path.with_file_name(name), &content);
    }
    for key in ["bob", "cleo"] {
        second.open().unwrap();
        assert!(has_row(&second, AUTHORS, "ada") && has_row(&second, ENTRIES, "first"));
        flush_row(&second, AUTHORS, key);
        second.close();
    }
    let bound = Manifest::load(&second.disk, &manifest("Authors")).unwrap().unwrap();
    assert_eq!(bound.node, Some(7));
}
