//! Rotation, discarding, full disks, and what is found at the start.

use rustix::io::Errno;

use crate::base::fs::{FileSystem, OsFileSystem};
use crate::kit::disk::{Fault, Operation};

use super::appending::wait_until;
use super::*;

#[test]
fn who_must_not_block_is_not_kept_until_a_segment_is_made() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 1000);
    let append = |bytes: usize, may_block| {
        let body = vec![1; bytes];
        let records = [(body.as_slice(), [1].as_slice()); 1];
        log.append_all(records.into_iter(), may_block).map(|end| end.unwrap().segment)
    };
    assert_eq!(append(300, false).unwrap(), 5000, "there is room, and none made ahead of need");
    let before = log.position();
    assert!(matches!(append(700, false), Err(LogError::WouldBlock)));
    assert_eq!((log.position(), disk.files()), (before, vec![path_of(5000)]));
    assert_eq!(append(700, true).unwrap(), 5001);
    wait_until(|| disk.content_len(&path_of(5002)) == Some(1000));
    assert_eq!(append(700, false).unwrap(), 5002, "it is there");
    drop(log);
}

#[test]
fn a_discard_that_is_older_than_the_last_record_keeps_the_segment() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 1000);
    let before = log.append(&[1; 300], &[1]).unwrap();
    let after = log.append(&[1; 300], &[1]).unwrap();
    log.append(&[2; 600], &[2]).unwrap();
    log.discard_completed(1, before).unwrap();
    assert!(disk.exists(&path_of(5000)));
    log.discard_completed(1, after).unwrap();
    assert!(!disk.exists(&path_of(5000)));
}

#[test]
fn positions_grow_whatever_the_clock_says() {
    let disk = disk::disk();
    let mut last = Position::default();
    for _ in 0..3 {
        let log = open(&disk, ON_DEMAND, 1000);
        let position = log.append(b"x", &[1]).unwrap();
        assert!(position > last);
        last = position;
    }
    let fs = Arc::new(disk::disk());
    let clock = Arc::new(ManualClock::at_micros(-5));
    let options = LogOptions { first_segment: 77, ..options(ON_DEMAND, 1000) };
    let rng = fastrand::Rng::with_seed(1);
    let log = CommitLog::open(fs, clock, rng, options, Replayed::default()).unwrap();
    assert_eq!(log.position().segment, 77);
}

#[test]
fn a_real_directory_works_like_the_one_in_memory() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("new").join("commitlog");
    let mut records = Records::new();
    for run in 0..3 {
        let mut found = Records::new();
        let replayed = replay::<Infallible>(
            &dir,
            &OsFileSystem,
            false,
            KnownLog::default(),
            &mut |position, body| {
                found.push((position, body.to_vec()));
                Ok(())
            },
        );
        assert_eq!(found, records);
        let options = LogOptions { dir: dir.clone(), ..options(BATCH, 1000) };
        let clock = Arc::new(ManualClock::at_micros(5_000_000));
        let rng = fastrand::Rng::with_seed(run);
        let fs = Arc::new(OsFileSystem);
        let log = CommitLog::open(fs, clock, rng, options, replayed.unwrap()).unwrap();
        records.extend(fill(&log, 1, 50));
        log.wait_synced(log.position()).unwrap();
        log.discard_completed(1, records[records.len() - 20].0).unwrap();
        if run == 1 {
            log.delete_replayed().unwrap();
        }
        let before = records.len();
        records.retain(|record| files::segment_path(&dir, record.0.segment).exists());
        assert!(records.len() <= before - 20, "segments have been discarded");
        assert!(records.len() >= 20, "not those that are needed");
    }
}

#[test]
fn a_larger_segment_that_cannot_be_made_leaves_the_one_that_is_ready() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 1000);
    log.append(&[1; 600], &[1]).unwrap();
    wait_until(|| disk.content_len(&path_of(5001)) == Some(1000));
    disk.inject(Fault { times: u64::MAX, ..Fault::next(Operation::Sync, Errno::IO) });
    assert!(matches!(log.append(&[2; 5000], &[1]), Err(LogError::Io { .. })));
    assert_eq!(log.append(&[3; 600], &[1]).unwrap().segment, 5001, "without a sync");
    disk.forget_faults();
    assert_eq!(bodies(&read_back(&disk.after_kill()).1), vec![600, 600]);
}

impl SimFileSystem {
    fn content_len(&self, path: &Path) -> Option<usize> {
        self.read(path).ok().map(|content| content.len())
    }
}

fn bodies(records: &Records) -> Vec<usize> {
    records.iter().map(|record| record.1.len()).collect()
}
