//! A column family whose files are gone, while the system keyspace is there.

use super::*;
use crate::storage::system::{KEYSPACE, LOCATION_INFO};

const ENTRIES: FamilyId = FamilyId(0);

fn open(fs: &SimFileSystem, accept_data_loss: bool) -> Result<Storage, StorageError> {
    let components = Components {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(ManualClock::default()),
        events: Events::ignored(),
    };
    let families = [("Blog", "Entries"), (KEYSPACE, LOCATION_INFO)].map(|(keyspace, name)| {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = (keyspace.into(), name.into());
        Arc::new(ColumnFamilySchema { keyspace, name, kind, comment: None })
    });
    let (schema, partitioner) = (Arc::new(Schema::new(families)), Partitioner::OrderPreserving);
    let options = Options { accept_data_loss, ..options(&["/data"]) };
    let options_of = |_| FamilyOptions::default();
    Storage::open_without_threads(components, options, partitioner, schema, options_of)
}

fn lose_files(fs: &SimFileSystem) {
    let folder = Path::new("/data/Blog");
    for entry in fs.list(folder).unwrap() {
        fs.remove_file(&folder.join(entry.name)).unwrap();
    }
}

#[test]
fn a_family_that_had_data_is_missed_when_its_files_are_gone() {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs, false).unwrap();
    write(&storage, ENTRIES, "ada").unwrap();
    storage.flush(ENTRIES).unwrap();
    drop(storage);
    lose_files(&fs);
    for _ in 0..2 {
        let text = open(&fs, false).unwrap_err().to_string();
        for part in ["Blog.Entries has had data", "-Dcassandra.accept_data_loss"] {
            assert!(text.contains(part), "{text}");
        }
    }
    // Accepted once, it is a family without data.
    drop(open(&fs, true).unwrap());
    drop(open(&fs, false).unwrap());
}

#[test]
fn a_family_is_missed_whose_first_files_were_written_at_the_end() {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs, false).unwrap();
    write(&storage, ENTRIES, "ada").unwrap();
    drop(storage);
    lose_files(&fs);
    let error = open(&fs, false).unwrap_err();
    assert!(matches!(error, StorageError::LostFamily { .. }), "{error}");
}

#[test]
fn a_family_without_data_is_not_missed() {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs, false).unwrap();
    write(&storage, ENTRIES, "ada").unwrap();
    storage.sync().unwrap();
    let killed = fs.fork();
    killed.kill();
    drop(storage);
    // All that it has is in the commit log.
    drop(open(&killed, false).unwrap());
}
