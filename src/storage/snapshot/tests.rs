use super::{BadTag, SnapshotName, Tag, clear, find, list, tidy};
use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;
use std::path::{Path, PathBuf};

fn tag(text: &str) -> Tag {
    Tag::new(text).unwrap()
}

#[test]
fn names_are_parsed_as_they_are_shown() {
    for (text, millis, tag) in [
        ("1290000000123", 1_290_000_000_123, None),
        ("1290000000123-a", 1_290_000_000_123, Some(tag("a"))),
        ("7-compact-Authors", 7, Some(tag("compact-Authors"))),
        ("0-größer.2", 0, Some(tag("größer.2"))),
    ] {
        let name = SnapshotName { millis, tag };
        assert_eq!(name.to_string(), text);
        assert_eq!(SnapshotName::parse(text), Some(name));
    }
    for foreign in ["", "a", "-a", "1-", "01", "+1", "1-a.tmp", "99999999999999999999", "old-1"] {
        assert_eq!(SnapshotName::parse(foreign), None, "{foreign}");
    }
    let name = SnapshotName::parse("7-a-b").unwrap();
    assert!(name.is_meant_by("7-a-b") && name.is_meant_by("a-b"));
    assert!(!name.is_meant_by("7") && !name.is_meant_by("a") && !name.is_meant_by(""));
    assert_eq!(Tag::new(&"x".repeat(201)), Err(BadTag));
}

/// What is in the folders of a snapshot by hand.
fn make(fs: &SimFileSystem, folder: &str, files: &[(&str, usize)]) {
    let folder = Path::new(folder);
    fs.create_dir_all(folder).unwrap();
    for (name, bytes) in files {
        fs.create(&folder.join(name)).unwrap().write_all_at(&vec![1; *bytes], 0).unwrap();
    }
}

#[test]
fn a_snapshot_counts_if_none_of_its_folders_is_unfinished() {
    let fs = SimFileSystem::new(1);
    let directories = ["/a", "/b", "/none"].map(PathBuf::from);
    make(&fs, "/a/K", &[("F-1.sst", 10)]);
    make(&fs, "/a/K/snapshots/5-x", &[("F-1.sst", 10), ("F-2.sst", 20), ("F.manifest", 3)]);
    make(&fs, "/b/K/snapshots/5-x", &[("F-3.sst", 40)]);
    make(&fs, "/a/K/snapshots/6-x", &[("F-2.sst", 20)]);
    make(&fs, "/b/K/snapshots/6-x.tmp", &[("F-3.sst", 40)]);
    make(&fs, "/b/L/snapshots/7", &[]);
    make(&fs, "/b/L/snapshots/by hand", &[("note", 1)]);
    let names = |keyspace: Option<&str>, name: Option<&str>| -> Vec<String> {
        let found = find(&fs, &directories, keyspace, name).unwrap();
        found.iter().map(|it| format!("{} {}", it.keyspace, it.name)).collect()
    };
    assert_eq!(names(None, None), ["K 5-x", "L 7"]);
    assert_eq!(names(Some("K"), Some("x")), ["K 5-x"]);
    assert!(names(Some("L"), Some("x")).is_empty() && names(Some("M"), None).is_empty());
    let first = &list(&fs, &directories, None).unwrap()[0];
    assert_eq!((first.total_bytes, first.exclusive_bytes), (73, 63));

    assert_eq!(tidy(&fs, &directories).unwrap(), 7);
    assert!(!fs.exists(Path::new("/a/K/snapshots/6-x")));
    assert!(!fs.exists(Path::new("/b/K/snapshots/6-x.tmp")));
    assert_eq!(clear(&fs, &directories, None, None).unwrap().len(), 2);
    assert!(names(None, None).is_empty());
    assert!(fs.exists(Path::new("/b/L/snapshots/by hand/note")), "not ours");
    assert!(fs.exists(Path::new("/a/K/F-1.sst")));
}

#[test]
fn a_snapshot_that_cannot_be_removed_leaves_the_others_to_be_removed() {
    let fs = SimFileSystem::new(1);
    let directories = [PathBuf::from("/a")];
    make(&fs, "/a/K/snapshots/5/by hand", &[("note", 1)]);
    for folder in ["/a/K/snapshots/6", "/a/L/snapshots/7"] {
        make(&fs, folder, &[("F-1.sst", 10)]);
    }
    let refused = clear(&fs, &directories, None, None).unwrap_err().to_string();
    assert!(refused.contains("/a/K/snapshots/5.tmp/by hand"), "{refused}");
    assert!(list(&fs, &directories, None).unwrap().is_empty());
    assert!(fs.exists(Path::new("/a/K/snapshots/5.tmp/by hand/note")), "not ours");
}
