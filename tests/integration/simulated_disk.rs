//! The simulated disk keeps what it promises, and takes away what it may.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::io::Errno;

use crate::kit::disk::{Fault, Operation, SimFileSystem, Survival};
use alexandra::base::fs::{FileSystem, OsFileSystem};

/// Enough seeds that every outcome of a small scene comes up.
const SEEDS: u64 = 400;

fn dir() -> &'static Path {
    Path::new("/data")
}

fn path(name: &str) -> PathBuf {
    dir().join(name)
}

/// A disk with an empty directory that is durable.
fn disk() -> SimFileSystem {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all(dir()).unwrap();
    fs.sync_everything();
    fs
}

fn write_file(fs: &dyn FileSystem, path: &Path, content: &[u8]) {
    fs.create(path).unwrap().write_all_at(content, 0).unwrap();
}

/// A file whose content and entry are durable.
fn write_durable(fs: &dyn FileSystem, path: &Path, content: &[u8]) {
    let file = fs.create(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync().unwrap();
    fs.sync_dir(path.parent().unwrap()).unwrap();
}

/// Names and contents of the files of a directory.
fn content(fs: &dyn FileSystem, dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs.list(dir).unwrap().into_iter().filter(|entry| !entry.is_dir);
    entries.map(|entry| (entry.name.clone(), fs.read(&dir.join(entry.name)).unwrap())).collect()
}

/// Results of `look` after each of many crashes of the same moment.
fn outcomes<T: Ord>(fs: &SimFileSystem, look: impl Fn(&SimFileSystem) -> T) -> BTreeSet<T> {
    let crashed = (0..SEEDS).map(|seed| {
        let fs = fs.fork();
        fs.crash(&mut Rng::with_seed(seed));
        look(&fs)
    });
    crashed.collect()
}

fn names(fs: &SimFileSystem) -> Vec<String> {
    content(fs, dir()).into_keys().collect()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn is<T>(result: io::Result<T>, expected: Errno) -> bool {
    errno(result) == Some(expected.raw_os_error())
}

mod as_the_system_does {
    use super::*;

    /// Both file systems, each with an empty directory.
    fn both(run: impl Fn(&dyn FileSystem, &Path)) {
        let temporary = tempfile::tempdir().unwrap();
        run(&OsFileSystem, temporary.path());
        run(&disk(), dir());
    }

    #[test]
    fn files_hold_what_was_written() {
        both(|fs, dir| {
            let file = fs.create(&dir.join("a")).unwrap();
            file.write_all_at(b"hello", 3).unwrap();
            file.write_all_at(b"HE", 3).unwrap();
            assert_eq!(fs.read(&dir.join("a")).unwrap(), b"\0\0\0HEllo");
            let mut buf = [0; 4];
            assert_eq!(file.read_at(&mut buf, 6).unwrap(), 2);
            assert_eq!(&buf[..2], b"lo");
            assert_eq!(file.read_at(&mut buf, 8).unwrap(), 0);
            assert_eq!(file.read_at(&mut buf, 1000).unwrap(), 0);
            file.allocate(10).unwrap();
            assert_eq!(fs.read(&dir.join("a")).unwrap(), b"\0\0\0HEllo\0\0");
            file.allocate(2).unwrap();
            assert_eq!(file.size().unwrap(), 10);
            file.set_size(4).unwrap();
            file.set_size(6).unwrap();
            assert_eq!(fs.read(&dir.join("a")).unwrap(), b"\0\0\0H\0\0");
            assert!(is(file.allocate(0), Errno::INVAL));
        });
    }

    #[test]
    fn entries_fail_with_the_same_errors() {
        both(|fs, dir| {
            let at = |name: &str| dir.join(name);
            fs.create_dir_all(&at("d/e")).unwrap();
            fs.create_dir_all(&at("d/e")).unwrap();
            write_file(fs, &at("a"), b"a");
            assert!(is(fs.create(&at("a")), Errno::EXIST));
            assert!(is(fs.create(&at("d")), Errno::EXIST));
            assert!(is(fs.create(&at("none/a")), Errno::NOENT));
            assert!(is(fs.create(&at("a/b")), Errno::NOTDIR));
            assert!(is(fs.open(&at("none")), Errno::NOENT));
            assert!(is(fs.open(&at("d")), Errno::ISDIR));
            assert!(is(fs.list(&at("none")), Errno::NOENT));
            assert!(is(fs.list(&at("a")), Errno::NOTDIR));
            assert!(is(fs.create_dir_all(&at("a/b")), Errno::NOTDIR));
            assert!(is(fs.try_exists(&at("a/b")), Errno::NOTDIR));
            assert!(!fs.try_exists(&at("none/a")).unwrap());
            assert!(is(fs.rename(&at("none"), &at("b")), Errno::NOENT));
            assert!(is(fs.rename(&at("a"), &at("d")), Errno::ISDIR));
            assert!(is(fs.rename(&at("a"), &at("none/a")), Errno::NOENT));
            assert!(is(fs.rename(&at("d"), &at("d/e/f")), Errno::INVAL));
            assert!(is(fs.rename(&at("d"), &at("a")), Errno::NOTDIR));
            assert!(is(fs.hard_link(&at("none"), &at("b")), Errno::NOENT));
            assert!(is(fs.hard_link(&at("a"), &at("a")), Errno::EXIST));
            assert!(is(fs.hard_link(&at("a"), &at("d")), Errno::EXIST));
            assert!(is(fs.hard_link(&at("d"), &at("b")), Errno::PERM));
            assert!(is(fs.hard_link(&at("a"), &at("none/a")), Errno::NOENT));
            assert!(is(fs.remove_dir(&at("none")), Errno::NOENT));
            assert!(is(fs.remove_dir(&at("a")), Errno::NOTDIR));
            assert!(is(fs.remove_dir(&at("d")), Errno::NOTEMPTY));
            assert!(is(fs.remove_file(&at("none")), Errno::NOENT));
            assert!(is(fs.remove_file(&at("d")), Errno::ISDIR));
            assert!(is(fs.sync_dir(&at("none")), Errno::NOENT));
            assert!(is(fs.available_space(&at("none")), Errno::NOENT));
            fs.rename(&at("a"), &at("a")).unwrap();
            assert!(fs.exists(&at("a")) && fs.exists(&at("d/e")) && !fs.exists(&at("none")));
            let mut found = fs.list(dir).unwrap();
            found.sort_by(|a, b| a.name.cmp(&b.name));
            let found: Vec<_> = found.iter().map(|e| (&*e.name, e.size, e.is_dir)).collect();
            assert_eq!(found, [("a", 1, false), ("d", 0, true)]);
        });
    }

    #[test]
    fn open_files_outlive_their_names() {
        both(|fs, dir| {
            let (a, b) = (dir.join("a"), dir.join("b"));
            write_file(fs, &a, b"old");
            let old = fs.open(&a).unwrap();
            write_file(fs, &b, b"new");
            fs.rename(&b, &a).unwrap();
            let mut buf = [0; 3];
            old.read_exact_at(&mut buf, 0).unwrap();
            assert_eq!(&buf, b"old");
            old.write_all_at(b"x", 0).unwrap();
            assert_eq!(fs.read(&a).unwrap(), b"new");
            assert!(!fs.exists(&b));
            let new = fs.open(&a).unwrap();
            fs.remove_file(&a).unwrap();
            new.read_exact_at(&mut buf, 0).unwrap();
            assert_eq!(&buf, b"new");
        });
    }

    #[test]
    fn a_link_is_one_more_name_of_the_same_file() {
        both(|fs, dir| {
            let (a, b, c) = (dir.join("a"), dir.join("b"), dir.join("c"));
            write_file(fs, &a, b"old");
            fs.hard_link(&a, &b).unwrap();
            fs.open(&b).unwrap().write_all_at(b"new", 0).unwrap();
            assert_eq!(fs.read(&a).unwrap(), b"new");
            fs.rename(&a, &b).unwrap();
            assert!(fs.exists(&a) && fs.exists(&b), "names of one file both stay");
            write_file(fs, &c, b"other");
            fs.rename(&c, &a).unwrap();
            assert_eq!(fs.read(&a).unwrap(), b"other");
            assert_eq!(fs.read(&b).unwrap(), b"new");
            fs.remove_file(&b).unwrap();
            assert!(!fs.exists(&b));
        });
    }

    #[test]
    fn a_directory_is_renamed_with_its_content_and_removed_without() {
        both(|fs, dir| {
            let (d, e) = (dir.join("d"), dir.join("e"));
            fs.create_dir_all(&d.join("sub")).unwrap();
            write_file(fs, &d.join("a"), b"a");
            fs.create_dir_all(&e).unwrap();
            fs.rename(&d, &e).unwrap();
            assert!(!fs.exists(&d));
            assert_eq!(fs.read(&e.join("a")).unwrap(), b"a");
            write_file(fs, &e.join("sub/b"), b"b");
            fs.create_dir_all(&d).unwrap();
            assert!(is(fs.rename(&d, &e), Errno::NOTEMPTY));
            fs.remove_dir(&d).unwrap();
            assert!(!fs.exists(&d));
            assert!(is(fs.remove_dir(&e.join("sub")), Errno::NOTEMPTY));
            fs.remove_file(&e.join("sub/b")).unwrap();
            fs.remove_dir(&e.join("sub")).unwrap();
        });
    }

    #[test]
    fn a_lock_has_one_holder() {
        both(|fs, dir| {
            let lock = dir.join("lock");
            let held = fs.lock(&lock).unwrap();
            assert_eq!(fs.lock(&lock).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            drop(held);
            fs.lock(&lock).unwrap();
            assert!(fs.exists(&lock));
        });
    }

    /// Random calls give the same results and the same files.
    #[test]
    fn random_calls_agree() {
        for seed in 0..20 {
            let temporary = tempfile::tempdir().unwrap();
            let mut rng = Rng::with_seed(seed);
            let sim = disk();
            for step in 0..60 {
                let call = random_call(&mut rng);
                let system = call(&OsFileSystem, temporary.path());
                let simulated = call(&sim, dir());
                assert_eq!(errno(simulated), errno(system), "seed {seed}, step {step}");
            }
            assert_eq!(content(&sim, dir()), content(&OsFileSystem, temporary.path()));
        }
    }
}

type Call = Box<dyn Fn(&dyn FileSystem, &Path) -> io::Result<()>>;

/// One call on one or two of a few files.
fn random_call(rng: &mut Rng) -> Call {
    let [a, b] = [0, 1].map(|_| format!("file{}", rng.u8(..4)));
    let at = rng.u64(..2000);
    let bytes: Vec<u8> = (0..rng.usize(..1500)).map(|_| rng.u8(1..)).collect();
    match rng.u8(..11) {
        0 | 1 => Box::new(move |fs, dir| fs.create(&dir.join(&a)).map(drop)),
        2..=4 => Box::new(move |fs, dir| fs.open(&dir.join(&a))?.write_all_at(&bytes, at)),
        5 => Box::new(move |fs, dir| fs.open(&dir.join(&a))?.set_size(at)),
        6 => Box::new(move |fs, dir| fs.open(&dir.join(&a))?.sync()),
        7 => Box::new(move |fs, dir| fs.rename(&dir.join(&a), &dir.join(&b))),
        8 => Box::new(move |fs, dir| fs.remove_file(&dir.join(&a))),
        9 => Box::new(move |fs, dir| fs.hard_link(&dir.join(&a), &dir.join(&b))),
        _ => Box::new(|fs, dir| fs.sync_dir(dir)),
    }
}

mod content_after_a_crash {
    use super::*;

    #[test]
    fn synced_content_survives_every_crash() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"safe");
        let expected = BTreeMap::from([("a".to_owned(), b"safe".to_vec())]);
        assert_eq!(outcomes(&fs, |fs| content(fs, dir())), BTreeSet::from([expected]));
    }

    #[test]
    fn the_caller_can_choose_all_or_nothing() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"old");
        fs.open(&path("a")).unwrap().write_all_at(b"newer", 0).unwrap();
        write_file(&fs, &path("b"), b"b");
        let rng = &mut Rng::with_seed(3);
        let nothing = fs.fork();
        nothing.crash_keeping(Survival::Nothing, rng);
        assert_eq!(content(&nothing, dir()), BTreeMap::from([("a".into(), b"old".into())]));
        fs.crash_keeping(Survival::Everything, rng);
        let all = BTreeMap::from([("a".into(), b"newer".into()), ("b".into(), b"b".into())]);
        assert_eq!(content(&fs, dir()), all);
    }

    #[test]
    fn unsynced_writes_survive_in_any_mixture() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"..");
        let file = fs.open(&path("a")).unwrap();
        file.write_all_at(b"1111", 2).unwrap();
        file.write_all_at(b"2222", 6).unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).unwrap());
        for whole in [&b".."[..], b"..1111", b"..\0\0\0\x002222", b"..11112222"] {
            assert!(seen.contains(whole), "{whole:?} never came up");
        }
        assert!(seen.contains(&b"..11"[..]), "no first part of a write came up");
        assert!(seen.contains(&b"..\0\0\0\0"[..]), "no size without its bytes came up");
        for content in &seen {
            assert!(content.starts_with(b".."), "synced bytes are gone: {content:?}");
            let mut rest = content[2..].iter().zip(b"11112222");
            assert!(rest.all(|(byte, written)| byte == written || *byte == 0), "{content:?}");
        }
    }

    #[test]
    fn a_torn_write_may_lack_a_sector_in_the_middle() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"");
        fs.open(&path("a")).unwrap().write_all_at(&[7; 1536], 100).unwrap();
        let holed = outcomes(&fs, |fs| {
            let content = fs.read(&path("a")).unwrap();
            let kept = |range: std::ops::Range<usize>| {
                content.get(range).is_some_and(|part| part.iter().all(|byte| *byte == 7))
            };
            let sectors = [kept(100..512), kept(512..1024), kept(1024..1536), kept(1536..1636)];
            sectors == [true, false, true, true]
        });
        assert!(holed.contains(&true));
    }

    #[test]
    fn an_older_write_never_replaces_a_newer_one() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"0");
        let file = fs.open(&path("a")).unwrap();
        file.write_all_at(b"1", 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(b"2", 0).unwrap();
        file.write_all_at(b"3", 0).unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).unwrap());
        assert_eq!(seen, ["1", "2", "3"].map(|s| s.as_bytes().to_vec()).into());
        assert!(!seen.contains(&b"0"[..]));
    }

    #[test]
    fn sizes_are_as_unsafe_as_bytes() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"abcd");
        let file = fs.open(&path("a")).unwrap();
        file.set_size(1).unwrap();
        file.allocate(6).unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).unwrap());
        let expected = [&b"abcd"[..], b"a", b"abcd\0\0", b"a\0\0\0\0\0"].map(<[u8]>::to_vec);
        assert_eq!(seen, expected.into());
        file.sync().unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).unwrap());
        assert_eq!(seen, [b"a\0\0\0\0\0".to_vec()].into());
    }

    #[test]
    fn syncing_one_file_does_not_sync_another() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"");
        write_durable(&fs, &path("b"), b"");
        fs.open(&path("a")).unwrap().write_all_at(b"a", 0).unwrap();
        let b = fs.open(&path("b")).unwrap();
        b.write_all_at(b"b", 0).unwrap();
        b.sync().unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).unwrap());
        assert_eq!(seen, [b"".to_vec(), b"a".to_vec()].into());
    }
}

mod entries_after_a_crash {
    use super::*;

    #[test]
    fn a_file_whose_directory_was_not_synced_may_vanish() {
        let fs = disk();
        let file = fs.create(&path("a")).unwrap();
        file.write_all_at(b"a", 0).unwrap();
        file.sync().unwrap();
        let seen = outcomes(&fs, |fs| content(fs, dir()).into_values().collect::<Vec<_>>());
        assert_eq!(seen, [vec![], vec![b"a".to_vec()]].into());
    }

    #[test]
    fn a_name_may_survive_without_its_content() {
        let fs = disk();
        write_file(&fs, &path("a"), b"a");
        fs.sync_dir(dir()).unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).unwrap());
        assert_eq!(seen, [b"".to_vec(), b"a".to_vec()].into());
    }

    #[test]
    fn entries_of_a_directory_survive_in_order() {
        let fs = disk();
        for name in ["a", "b", "c"] {
            fs.create(&path(name)).unwrap();
        }
        fs.remove_file(&path("a")).unwrap();
        let prefixes: [&[&str]; 5] = [&[], &["a"], &["a", "b"], &["a", "b", "c"], &["b", "c"]];
        let prefixes = prefixes.map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(outcomes(&fs, names), BTreeSet::<Vec<String>>::from(prefixes));
    }

    #[test]
    fn directories_survive_on_their_own() {
        let fs = disk();
        fs.create_dir_all(&path("d")).unwrap();
        fs.sync_everything();
        fs.create(&path("a")).unwrap();
        fs.create(&path("d/b")).unwrap();
        let seen = outcomes(&fs, |fs| (fs.exists(&path("a")), fs.exists(&path("d/b"))));
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn what_is_below_a_lost_directory_is_lost() {
        let fs = disk();
        fs.create_dir_all(&path("d")).unwrap();
        write_durable(&fs, &path("d/a"), b"a");
        let seen = outcomes(&fs, |fs| (fs.exists(&path("d")), fs.exists(&path("d/a"))));
        assert_eq!(seen, [(false, false), (true, true)].into());
        fs.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&fs, |fs| fs.exists(&path("d/a"))), [true].into());
    }

    #[test]
    fn a_rename_is_atomic() {
        let fs = disk();
        write_durable(&fs, &path("current"), b"old");
        write_durable(&fs, &path("next"), b"new");
        fs.rename(&path("next"), &path("current")).unwrap();
        let files = |files: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
            files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
        };
        let before = files(&[("current", "old"), ("next", "new")]);
        let after = files(&[("current", "new")]);
        assert_eq!(outcomes(&fs, |fs| content(fs, dir())), [before, after.clone()].into());
        fs.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&fs, |fs| content(fs, dir())), [after].into());
    }

    #[test]
    fn a_rename_between_directories_is_atomic() {
        let fs = disk();
        fs.create_dir_all(&path("d")).unwrap();
        fs.sync_everything();
        write_file(&fs, &path("early"), b"");
        write_durable(&fs, &path("a"), b"a");
        write_file(&fs, &path("d/before"), b"");
        fs.rename(&path("a"), &path("d/a")).unwrap();
        let places = |fs: &SimFileSystem| (fs.exists(&path("a")), fs.exists(&path("d/a")));
        assert_eq!(outcomes(&fs, places), [(true, false), (false, true)].into());
        // A sync of either directory saves the rename and what came before it in the other one.
        for synced in [dir(), &path("d")] {
            let fs = fs.fork();
            fs.sync_dir(synced).unwrap();
            assert_eq!(outcomes(&fs, places), [(false, true)].into());
            assert_eq!(outcomes(&fs, |fs| fs.exists(&path("d/before"))), [true].into());
        }
    }

    #[test]
    fn a_link_is_durable_when_its_directory_was_synced() {
        let fs = disk();
        fs.create_dir_all(&path("d")).unwrap();
        fs.sync_dir(dir()).unwrap();
        write_durable(&fs, &path("a"), b"content");
        fs.hard_link(&path("a"), &path("d/a")).unwrap();
        fs.remove_file(&path("a")).unwrap();
        let found = outcomes(&fs, |fs| (fs.exists(&path("a")), fs.exists(&path("d/a"))));
        let all = [false, true].map(|a| [false, true].map(|b| (a, b)));
        assert_eq!(found, BTreeSet::from_iter(all.concat()), "each name on its own");
        fs.sync_dir(&path("d")).unwrap();
        let found = outcomes(&fs, |fs| fs.read(&path("d/a")).unwrap());
        assert_eq!(found, BTreeSet::from([b"content".to_vec()]));
    }

    #[test]
    fn a_renamed_directory_is_there_once_and_keeps_what_was_synced() {
        let fs = disk();
        fs.create_dir_all(&path("next")).unwrap();
        fs.sync_dir(dir()).unwrap();
        write_durable(&fs, &path("next/a"), b"a");
        fs.rename(&path("next"), &path("done")).unwrap();
        let look = |fs: &SimFileSystem| {
            let [next, done] = ["next", "done"].map(|name| fs.exists(&path(name)));
            assert!(next != done);
            assert_eq!(fs.read(&path(if next { "next/a" } else { "done/a" })).unwrap(), b"a");
            done
        };
        assert_eq!(outcomes(&fs, look), BTreeSet::from([false, true]));
        fs.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&fs, look), BTreeSet::from([true]));
        fs.remove_file(&path("done/a")).unwrap();
        fs.remove_dir(&path("done")).unwrap();
        let exists = |fs: &SimFileSystem| fs.exists(&path("done"));
        assert_eq!(outcomes(&fs, exists), BTreeSet::from([false, true]));
        fs.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&fs, exists), BTreeSet::from([false]));
    }

    #[test]
    fn a_removed_file_may_come_back() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"a");
        fs.remove_file(&path("a")).unwrap();
        let seen = outcomes(&fs, |fs| fs.read(&path("a")).ok());
        assert_eq!(seen, [None, Some(b"a".to_vec())].into());
        fs.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&fs, |fs| fs.exists(&path("a"))), [false].into());
    }
}

mod faults {
    use super::*;

    #[test]
    fn the_nth_matching_operation_fails() {
        let fs = disk();
        let (a, b) = (fs.create(&path("a")).unwrap(), fs.create(&path("b")).unwrap());
        fs.inject(Fault::nth(Operation::Sync, 1, Errno::IO).on("b"));
        fs.inject(Fault { times: 2, ..Fault::next(Operation::Rename, Errno::ACCESS) });
        a.sync().unwrap();
        b.sync().unwrap();
        a.sync().unwrap();
        assert!(is(b.sync(), Errno::IO));
        b.sync().unwrap();
        for _ in 0..2 {
            assert!(is(fs.rename(&path("a"), &path("c")), Errno::ACCESS));
        }
        fs.rename(&path("a"), &path("c")).unwrap();
        assert_eq!((fs.count(Operation::Sync), fs.count(Operation::Rename)), (5, 3));
    }

    /// Data that a failed sync loses are lost for good, however often it is repeated.
    #[test]
    fn a_failed_sync_drops_the_dirty_data() {
        let mut survived = BTreeSet::new();
        for seed in 0..SEEDS {
            let fs = SimFileSystem::new(seed);
            let a = Path::new("a");
            write_durable(&fs, a, b"1");
            let file = fs.open(a).unwrap();
            file.write_all_at(b"2", 1).unwrap();
            fs.inject(Fault::next(Operation::Sync, Errno::IO));
            assert!(is(file.sync(), Errno::IO));
            assert_eq!(fs.read(a).unwrap(), b"12", "the page cache still has it");
            file.write_all_at(b"3", 2).unwrap();
            file.sync().unwrap();
            fs.crash_keeping(Survival::Everything, &mut Rng::with_seed(seed));
            survived.insert(fs.read(a).unwrap());
        }
        assert_eq!(survived, [b"1\x003".to_vec(), b"123".to_vec()].into());
    }

    #[test]
    fn a_failed_directory_sync_drops_entries() {
        let mut survived = BTreeSet::new();
        for seed in 0..SEEDS {
            let fs = SimFileSystem::new(seed);
            fs.create_dir_all(dir()).unwrap();
            fs.sync_everything();
            fs.create(&path("a")).unwrap();
            fs.create(&path("b")).unwrap();
            fs.inject(Fault::next(Operation::SyncDir, Errno::IO));
            assert!(is(fs.sync_dir(dir()), Errno::IO));
            assert_eq!(names(&fs), ["a", "b"]);
            fs.sync_dir(dir()).unwrap();
            fs.crash_keeping(Survival::Everything, &mut Rng::with_seed(seed));
            survived.insert(names(&fs).len());
        }
        assert_eq!(survived, [0, 1, 2].into());
    }

    #[test]
    fn a_failed_write_leaves_a_first_part() {
        let mut left = BTreeSet::new();
        for seed in 0..SEEDS {
            let fs = SimFileSystem::new(seed);
            let file = fs.create(Path::new("a")).unwrap();
            fs.inject(Fault::next(Operation::Write, Errno::IO));
            assert!(is(file.write_all_at(b"123", 0), Errno::IO));
            left.insert(fs.read(Path::new("a")).unwrap());
        }
        assert_eq!(left, [&b""[..], b"1", b"12", b"123"].map(<[u8]>::to_vec).into());
    }

    #[test]
    fn other_failures_change_nothing() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"a");
        let file = fs.open(&path("a")).unwrap();
        for operation in [Operation::Create, Operation::Rename, Operation::Remove] {
            fs.inject(Fault::next(operation, Errno::IO));
        }
        for operation in [Operation::Allocate, Operation::SetSize, Operation::Read] {
            fs.inject(Fault::next(operation, Errno::IO));
        }
        assert!(is(fs.create(&path("b")), Errno::IO));
        assert!(is(fs.rename(&path("a"), &path("b")), Errno::IO));
        assert!(is(fs.remove_file(&path("a")), Errno::IO));
        assert!(is(file.allocate(5), Errno::IO));
        assert!(is(file.set_size(5), Errno::IO));
        assert!(is(file.read_at(&mut [0], 0), Errno::IO));
        assert_eq!(content(&fs, dir()), BTreeMap::from([("a".into(), b"a".into())]));
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let fs = disk();
        write_file(&fs, &path("a"), b"1234");
        fs.set_capacity(Some(10));
        assert_eq!(fs.available_space(dir()).unwrap(), 6);
        let file = fs.create(&path("b")).unwrap();
        assert!(is(file.write_all_at(b"abcdefgh", 0), Errno::NOSPC));
        assert_eq!(fs.read(&path("b")).unwrap(), b"abcdef");
        file.write_all_at(b"ABCDEF", 0).expect("overwriting takes no space");
        assert!(is(file.write_all_at(b"x", 20), Errno::NOSPC));
        assert!(is(file.allocate(7), Errno::NOSPC));
        assert!(is(file.set_size(7), Errno::NOSPC));
        assert_eq!(file.size().unwrap(), 6);

        fs.remove_file(&path("a")).unwrap();
        file.allocate(10).unwrap();
        fs.remove_file(&path("b")).unwrap();
        assert_eq!(fs.available_space(dir()).unwrap(), 0, "an open file keeps its space");
        drop(file);
        assert_eq!(fs.available_space(dir()).unwrap(), 10);
        fs.set_capacity(Some(30));
        fs.create(&path("c")).unwrap().write_all_at(&[1; 30], 0).unwrap();
    }

    #[test]
    fn a_file_is_bounded() {
        let file = disk().create(&path("a")).unwrap();
        assert!(is(file.write_all_at(b"x", SimFileSystem::MAX_FILE_SIZE), Errno::FBIG));
        assert!(is(file.write_all_at(b"x", u64::MAX), Errno::FBIG));
        assert!(is(file.set_size(SimFileSystem::MAX_FILE_SIZE + 1), Errno::FBIG));
    }

    #[test]
    fn corruption_is_silent_and_lasts() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"ab");
        fs.open(&path("a")).unwrap().write_all_at(b"cd", 2).unwrap();
        fs.corrupt(&path("a"), 0, 1).unwrap();
        fs.corrupt(&path("a"), 3, 1).unwrap();
        assert_eq!(fs.read(&path("a")).unwrap(), b"`bce");
        assert!(fs.corrupt(&path("a"), 4, 1).is_err());
        fs.crash_keeping(Survival::Everything, &mut Rng::with_seed(0));
        assert_eq!(fs.read(&path("a")).unwrap(), b"`bce");
    }
}

mod processes {
    use super::*;

    #[test]
    fn a_crash_ends_handles_and_locks() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"a");
        let (file, lock) = (fs.open(&path("a")).unwrap(), fs.lock(&path("a")).unwrap());
        fs.crash(&mut Rng::with_seed(0));
        assert!(is(file.read_at(&mut [0], 0), Errno::STALE));
        assert!(is(file.write_all_at(b"b", 0), Errno::STALE));
        assert!(is(file.sync(), Errno::STALE));
        let next = fs.lock(&path("a")).unwrap();
        drop((file, lock));
        assert!(fs.lock(&path("a")).is_err(), "the old holder released the new one's lock");
        drop(next);
        assert_eq!(fs.read(&path("a")).unwrap(), b"a");
    }

    #[test]
    fn a_killed_process_loses_nothing() {
        let fs = disk();
        write_file(&fs, &path("a"), b"a");
        let (file, lock) = (fs.open(&path("a")).unwrap(), fs.lock(&path("a")).unwrap());
        fs.kill();
        assert!(is(file.sync(), Errno::STALE));
        fs.lock(&path("a")).unwrap();
        assert_eq!(fs.read(&path("a")).unwrap(), b"a");
        assert_eq!(outcomes(&fs, |fs| fs.exists(&path("a"))).len(), 2, "nor does it gain anything");
        drop(lock);
    }

    #[test]
    fn without_power_nothing_works() {
        let fs = disk();
        write_durable(&fs, &path("a"), b"a");
        let file = fs.open(&path("a")).unwrap();
        file.write_all_at(b"b", 0).unwrap();
        fs.power_off();
        assert!(is(file.sync(), Errno::IO));
        assert!(is(file.write_all_at(b"c", 0), Errno::IO));
        assert!(is(fs.sync_dir(dir()), Errno::IO));
        assert!(is(fs.available_space(dir()), Errno::IO));
        assert!(fs.try_exists(&path("a")).is_err());
        fs.crash_keeping(Survival::Nothing, &mut Rng::with_seed(0));
        assert_eq!(fs.read(&path("a")).unwrap(), b"a");
    }

    /// The pattern of a crash test: every moment between two changes is visited.
    #[test]
    fn every_crash_point_can_be_visited() {
        let replace = |fs: &SimFileSystem| -> io::Result<()> {
            let file = fs.create(&path("next"))?;
            file.write_all_at(b"new", 0)?;
            file.sync()?;
            fs.rename(&path("next"), &path("current"))?;
            fs.sync_dir(dir())
        };
        let fs = disk();
        write_durable(&fs, &path("current"), b"old");
        let whole_run = fs.fork();
        replace(&whole_run).unwrap();
        let changes = whole_run.changes() - fs.changes();
        assert_eq!(changes, 5);
        for done in 0..=changes {
            let fs = fs.fork();
            fs.power_off_after(done);
            assert_eq!(replace(&fs).is_ok(), done == changes);
            let seen = outcomes(&fs, |fs| fs.read(&path("current")).unwrap());
            let expected: &[&[u8]] = match done {
                0..=3 => &[b"old"],
                4 => &[b"new", b"old"],
                _ => &[b"new"],
            };
            assert_eq!(seen, expected.iter().map(|s| s.to_vec()).collect(), "after {done}");
        }
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let fs = disk();
        write_file(&fs, &path("a"), b"a");
        let fork = fs.fork();
        fs.remove_file(&path("a")).unwrap();
        write_file(&fork, &path("b"), b"b");
        assert_eq!((names(&fs), names(&fork)), (vec![], vec!["a".into(), "b".into()]));
    }

    /// After every sync of everything a crash changes nothing, whatever went before; and the same
    /// seed gives the same disk.
    #[test]
    fn random_runs_are_repeatable_and_keep_what_was_synced() {
        for seed in 0..100 {
            let run = |also_sync: bool| {
                let fs = disk();
                let mut rng = Rng::with_seed(seed);
                for _ in 0..60 {
                    // Failing calls, for instance on files that are not there, are part of it.
                    let _ = random_call(&mut rng)(&fs, dir());
                }
                if also_sync {
                    for name in names(&fs) {
                        fs.open(&path(&name)).unwrap().sync().unwrap();
                    }
                    fs.sync_dir(dir()).unwrap();
                }
                let before = content(&fs, dir());
                fs.crash_keeping(Survival::Partly, &mut rng);
                (before, content(&fs, dir()))
            };
            assert_eq!(run(false), run(false), "seed {seed}");
            let (before, after) = run(true);
            assert_eq!(before, after, "seed {seed}");
        }
    }

    #[test]
    fn threads_may_share_it() {
        let fs = disk();
        let file = fs.create(&path("a")).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let file = &file;
                scope.spawn(move || {
                    for i in 0..50 {
                        file.write_all_at(&[thread as u8 + 1], thread * 50 + i).unwrap();
                        file.sync().unwrap();
                    }
                });
            }
        });
        fs.sync_dir(dir()).unwrap();
        fs.crash_keeping(Survival::Nothing, &mut Rng::with_seed(0));
        let expected: Vec<u8> = (1..=4).flat_map(|thread| [thread; 50]).collect();
        assert_eq!(fs.read(&path("a")).unwrap(), expected);
    }
}
