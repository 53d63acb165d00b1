//! Column families that are dropped and added while the server runs.

use super::*;
use crate::kit::disk::Fault;
use crate::storage::commitlog::Position;
use crate::storage::files;
use crate::storage::manifest::Manifest;
use rustix::io::Errno;

const FOLDER: &str = "/data/Blog";

/// A database with one flushed row in each of two families.
fn filled(fs: &SimFileSystem, spawner: Spawner) -> Database {
    let storage = Blog { spawner, ..blog() }.open(fs).unwrap();
    for id in FAMILIES {
        write(&storage, id, "ada").unwrap();
        storage.flush(id).unwrap();
    }
    storage
}

fn add_authors(storage: &Database) -> FamilyId {
    storage.add_family(blog().schema("Authors"), FamilyOptions::default()).unwrap()
}

fn rows(storage: &Database, id: FamilyId) -> usize {
    let (all, slice, context) = (RowRange::all(), Slice::all(None), RequestContext::default());
    storage.family(id).scan(&all, &slice, 10, &context, Access::Cached).unwrap().len()
}

#[test]
fn a_dropped_family_refuses_writes_and_rows_from_other_nodes() {
    let fs = SimFileSystem::new(1);
    let storage = filled(&fs, Spawner::Inline);
    let id = FAMILIES[0];
    let begin = || {
        let mut ingest = storage.ingest(id).unwrap();
        ingest.push(&RowKey::from("bob"), &RowVersion::default()).unwrap();
        ingest
    };
    let (mut pushing, finishing) = (begin(), begin());
    // Has passed all checks but the last when the drop begins.
    let mut outputs = ColumnFamily::outputs(Arc::clone(storage.family(id)), 0, 1 << 20, None);
    let key = storage.partitioner().decorate(RowKey::from("bob"));
    outputs.begin_row().unwrap().begin_row(&key, Deletion::at(1, 1));
    outputs.open_file().unwrap().end_row().unwrap();
    let late = outputs.finish().unwrap();
    storage.drop_family(id).unwrap();
    let refusal = "Blog.Authors takes no more writes: it was dropped";
    assert_eq!(write(&storage, id, "ada").unwrap_err().to_string(), refusal);
    assert_eq!(finishing.finish().unwrap_err().to_string(), refusal);
    let pushed = pushing.push(&RowKey::from("cyd"), &RowVersion::default());
    assert_eq!(pushed.unwrap_err().to_string(), refusal);
    assert!(!storage.family(id).add(&late).unwrap() && !fs.exists(&late[0].path));
    assert_eq!((rows(&storage, id), rows(&storage, FAMILIES[1])), (0, 1));
    assert_eq!(storage.families().count(), 1);
    drop(pushing);
    let left = fs.list(Path::new(FOLDER)).unwrap();
    assert!(!left.iter().any(|it| it.name.starts_with("Authors-")), "{left:?}");
}

#[test]
fn a_family_that_is_about_to_be_dropped_takes_no_writes_and_is_not_compacted() {
    let storage = filled(&SimFileSystem::new(1), Spawner::Inline);
    let [stays, goes] = FAMILIES;
    storage.without_writes(&FAMILIES, || {
        let refused = write(&storage, stays, "bob").unwrap_err();
        assert!(matches!(refused, WriteError::Refused(why) if why.is_of_dropped()));
        let compacted = storage.compact(stays);
        assert!(matches!(compacted, Err(CompactionError::Cancelled)), "{compacted:?}");
        storage.drop_family(goes).unwrap();
    });
    write(&storage, stays, "bob").unwrap();
    storage.compact(stays).unwrap();
    assert_eq!(rows(&storage, stays), 2);
    write(&storage, goes, "bob").unwrap_err();
}

#[test]
fn the_housekeeper_removes_files_of_dropped_families() {
    let fs = SimFileSystem::new(1);
    let storage = filled(&fs, Spawner::Threads);
    let view = storage.family(FAMILIES[0]).view();
    storage.drop_family(FAMILIES[0]).unwrap();
    let file = view.tables[0].path().to_owned();
    assert!(fs.exists(&file), "it is being read");
    drop(view);
    let is_gone = || {
        std::thread::sleep(Duration::from_millis(10));
        !fs.exists(&file)
    };
    assert!((0..6000).any(|_| is_gone()));
}

/// The number of a file is not given again while a reader of a dropped family has the file.
#[test]
fn a_family_that_is_added_again_has_files_of_its_own() {
    let fs = SimFileSystem::new(1);
    let storage = filled(&fs, Spawner::Inline);
    let view = storage.family(FAMILIES[0]).view();
    storage.drop_family(FAMILIES[0]).unwrap();
    storage.drop_family(add_authors(&storage)).unwrap();
    let id = add_authors(&storage);
    write(&storage, id, "bob").unwrap();
    storage.flush(id).unwrap();
    drop(view);
    storage.family(FAMILIES[0]).remove_replaced();
    let table = storage.family(id).view().tables[0].path().to_owned();
    assert!(fs.exists(&table), "{}", table.display());
}

#[test]
fn a_replay_applies_writes_to_a_family_whose_files_came_from_elsewhere() {
    let fs = SimFileSystem::new(1);
    let storage = Blog::default().open(&fs).unwrap();
    let mut foreign = Manifest::new("Blog.Editors");
    foreign.flushed = Position { segment: 1 << 60, offset: 7 };
    foreign.store(&fs, &files::manifest(Path::new(FOLDER), "Editors")).unwrap();
    let id = storage.add_family(blog().schema("Editors"), FamilyOptions::default()).unwrap();
    write(&storage, id, "ada").unwrap();
    storage.sync().unwrap();
    let killed = fs.fork();
    killed.kill();
    assert_eq!(rows(&open(&killed).unwrap(), id), 1);
}

#[test]
fn a_shortage_ends_with_the_data_that_waited() {
    let ends: [fn(&Database); 4] = [
        |storage| storage.drop_family(FAMILIES[0]).unwrap(),
        |storage| storage.discard_all(FAMILIES[0]).unwrap(),
        |storage| drop(storage.snapshot(None, None).unwrap()),
        |storage| storage.flush(FAMILIES[0]).unwrap(),
    ];
    for end in ends {
        let fs = SimFileSystem::new(1);
        let storage = filled(&fs, Spawner::Inline);
        write(&storage, FAMILIES[0], "bob").unwrap();
        fs.inject(Fault::next(FileOperation::Create, Errno::NOSPC).on(".sst"));
        storage.flush(FAMILIES[0]).unwrap_err();
        let kinds: Vec<_> = storage.troubles().into_iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [TroubleKind::FlushWaits]);
        end(&storage);
        assert_eq!(storage.troubles(), []);
    }
}

#[test]
fn a_family_that_has_failed_can_be_dropped() {
    let storage = filled(&SimFileSystem::new(1), Spawner::Inline);
    write(&storage, FAMILIES[0], "bob").unwrap();
    storage.family(FAMILIES[0]).fail("its disk is gone".to_owned());
    assert!(storage.discard_all(FAMILIES[0]).is_err());
    storage.drop_family(FAMILIES[0]).unwrap();
    assert_eq!((storage.troubles(), rows(&storage, FAMILIES[0])), (Vec::new(), 0));
    let id = add_authors(&storage);
    write(&storage, id, "cyd").unwrap();
    assert_eq!(rows(&storage, id), 1);
}
