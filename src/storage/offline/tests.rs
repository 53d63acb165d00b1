use super::*;
use crate::kit::disk::SimFileSystem;
use crate::ring::Partitioner;
use crate::storage::sstable::WrittenFile;
use crate::storage::sstable::tests::samples::{FOLDER, blocks, disk, family, options, rows, write};

const P: Partitioner = Partitioner::OrderPreserving;

fn server(disk: &Arc<SimFileSystem>) -> Result<OfflineServer, OfflineError> {
    let fs: Arc<dyn FileSystem> = Arc::clone(disk) as _;
    OfflineServer::lock(&fs, &["/data".into()], Path::new("/commitlog"))
}

/// Writes a file that is not live yet.
fn written(disk: &SimFileSystem, offline: &mut OfflineFamily) -> WrittenFile {
    let path = offline.new_path().unwrap();
    let family = family(false);
    write(disk, &path, &family, options(P), &rows(&family, P));
    let file = disk.open(&path).unwrap();
    let frame = Frame::read(&*file).unwrap();
    let (_, properties) = frame.properties(&*file).unwrap();
    WrittenFile { path, bytes: file.size().unwrap(), properties }
}

/// The live generations, all of which must be there and sound.
fn live(disk: &Arc<SimFileSystem>) -> Vec<u64> {
    let server = server(disk).unwrap();
    let offline = server.family("ks", "cf").unwrap();
    let generation = |table: OfflineTable| {
        assert_eq!(table.state, TableState::Present, "{table:?}");
        assert!(!blocks(&**disk, &table.path).is_empty());
        table.generation
    };
    offline.tables().into_iter().map(generation).collect()
}

/// A family of one file, number 1, durable.
fn one_file() -> Arc<SimFileSystem> {
    let disk = disk();
    let server = server(&disk).unwrap();
    let mut offline = server.family("ks", "cf").unwrap();
    let file = written(&disk, &mut offline);
    let (names, _) = offline.replace(&[file], &[]).unwrap();
    assert_eq!(names, [Path::new(FOLDER).join("cf-1.sst")]);
    drop(server);
    disk.sync_everything();
    assert_eq!(live(&disk), [1]);
    disk
}

#[test]
fn replaced_files_are_kept_aside_whatever_they_are_called() {
    let disk = one_file();
    let server = server(&disk).unwrap();
    let mut offline = server.family("ks", "cf").unwrap();
    let aside = Path::new(FOLDER).join(DAMAGED_FOLDER);
    disk.create_dir_all(&aside).unwrap();
    disk.create(&aside.join("cf-1.sst")).unwrap();
    let file = written(&disk, &mut offline);
    let (names, kept) = offline.replace(&[file], &[1]).unwrap();
    assert_eq!(names, [Path::new(FOLDER).join("cf-2.sst")]);
    assert_eq!(kept, [aside.join("cf-1.sst.1")]);
    assert!(!disk.exists(&Path::new(FOLDER).join("cf-1.sst")));
    drop(server);
    assert_eq!(live(&disk), [2]);
}

#[test]
fn a_power_loss_at_any_step_leaves_the_old_or_the_new_and_keeps_the_damaged_file() {
    let (mut old, mut new) = (0, 0);
    for changes in 0.. {
        let disk = one_file();
        let before = {
            let server = server(&disk).unwrap();
            let mut offline = server.family("ks", "cf").unwrap();
            let file = written(&disk, &mut offline);
            disk.power_off_after(changes);
            offline.replace(&[file], &[1]).is_ok()
        };
        disk.crash(&mut fastrand::Rng::with_seed(changes));
        let names = |folder: &str| {
            let folder = Path::new(FOLDER).join(folder);
            let entries = disk.list(&folder).unwrap_or_default();
            entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        let is_kept = names("").contains(&"cf-1.sst".to_owned())
            || names(DAMAGED_FOLDER).contains(&"cf-1.sst".to_owned());
        assert!(is_kept, "after {changes} changes: {:?}", names(""));
        match &live(&disk)[..] {
            [1] => old += 1,
            [2] => new += 1,
            other => panic!("after {changes} changes: {other:?}"),
        }
        if before {
            break;
        }
    }
    assert!(old > 3 && new > 3, "{old} {new}");
}
