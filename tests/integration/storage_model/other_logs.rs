//! Segments that are not of the log of this server, or that are not what was synced.

use crate::kit::disk::Survival;
use crate::storage_model::rig::{BATCH, LOG, PERIODIC, Rig, Setup};
use alexandra::base::fs::FileSystem;
use alexandra::model::schema::FamilyId;
use std::path::PathBuf;
use std::time::Duration;

const NAME: &str = "12345678";

/// A killed server with ten rows in its log alone, whose names begin with this.
fn killed(prefix: &str, seed: u64, started_after: Duration) -> Rig {
    let mut rig = Rig::unopened(Setup { memtable_operations: 1000, ..Setup::default() }, seed);
    rig.clock.advance(started_after);
    rig.open().unwrap();
    (0..10).for_each(|row| rig.insert(0, &format!("{prefix}{row}"), (NAME, 1), b"value"));
    rig.kill();
    rig
}

fn segments(rig: &Rig) -> Vec<PathBuf> {
    let entries = rig.disk.list(LOG.as_ref()).unwrap().into_iter();
    let names = entries.map(|entry| entry.name).filter(|name| name.starts_with("CommitLog-"));
    names.map(|name| PathBuf::from(LOG).join(name)).collect()
}

fn copy(from: &Rig, to: &Rig) -> Vec<PathBuf> {
    let paths = segments(from);
    for path in &paths {
        let content = from.disk.read(path).unwrap();
        to.disk.create(path).unwrap().write_all_at(&content, 0).unwrap();
    }
    paths
}

#[test]
fn the_log_of_another_server_is_refused_and_nothing_of_either_is_lost() {
    let hour = Duration::from_hours(1);
    for (started_after, keeps_own) in
        [(2 * hour, true), (2 * hour, false), (Duration::ZERO, true), (hour / 2, true)]
    {
        let mut own = killed("own", 1, hour);
        let others = killed("other", 2, started_after);
        let own_files: Vec<_> =
            segments(&own).into_iter().map(|it| (own.disk.read(&it).unwrap(), it)).collect();
        if !keeps_own {
            for (_, path) in &own_files {
                own.disk.remove_file(path).unwrap();
            }
        }
        let foreign = copy(&others, &own);
        for _ in 0..2 {
            let refusal = own.open().unwrap_err().to_string();
            assert!(refusal.contains("of another server"), "{refusal}");
            assert!(refusal.contains(&*foreign[0].to_string_lossy()), "{refusal}");
            assert!(refusal.contains("CommitLogDirectory"), "{refusal}");
        }
        for path in &foreign {
            own.disk.remove_file(path).unwrap();
        }
        if !keeps_own {
            for (content, path) in &own_files {
                own.disk.create(path).unwrap().write_all_at(content, 0).unwrap();
            }
        }
        own.open().unwrap();
        assert!((0..10).all(|row| own.get(0, &format!("own{row}"), NAME).is_some()));
    }
}

#[test]
fn zeroes_before_what_a_flush_has_synced_stop_the_start() {
    for sync in [BATCH, PERIODIC] {
        let setup = Setup { sync, memtable_operations: 1000, ..Setup::default() };
        let mut rig = Rig::new(setup, 1);
        (0..10).for_each(|row| rig.insert(2, &row.to_string(), (NAME, 1), b"value"));
        rig.insert(0, "ada", (NAME, 1), b"value");
        rig.storage().flush(FamilyId(0)).unwrap();
        rig.crash(Survival::Everything, &mut fastrand::Rng::with_seed(1));
        let path = segments(&rig).pop().unwrap();
        let file = rig.disk.open(&path).unwrap();
        let size = file.size().unwrap();
        // The header and the first records stay; every mark of a sync goes.
        file.write_all_at(&vec![0; size as usize - 300], 300).unwrap();
        let refusal = rig.open().unwrap_err().to_string();
        assert!(refusal.contains(&*path.to_string_lossy()), "{refusal}");
    }
}
