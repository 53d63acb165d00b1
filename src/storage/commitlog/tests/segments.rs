//! Rotation, discarding, full disks, and what is found at the start.

use crate::base::fs::{FileSystem, OsFileSystem};

use super::appending::wait_until;
use super::*;

#[test]
fn a_segment_is_made_ahead_of_need() {
    let disk = Disk::default();
    let log = open(&disk, ON_DEMAND, 1000);
    assert_eq!(disk.files(), vec![path_of(5000)]);
    log.append(&[1; 600], &[1]).unwrap();
    wait_until(|| disk.content_len(&path_of(5001)) == Some(1000));
    assert_eq!(log.append(&[2; 600], &[1]).unwrap().segment, 5001);
    assert_eq!(disk.content(&path_of(5000)).len(), 1000);
}

#[test]
fn who_must_not_block_is_not_kept_until_a_segment_is_made() {
    let disk = Disk::default();
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
fn segments_without_unflushed_data_are_discarded_and_stay_so() {
    let disk = Disk::default();
    let log = open(&disk, ON_DEMAND, 1000);
    let rare = log.append(&[9; 10], &[9]).unwrap();
    let first = log.append(&[1; 700], &[1]).unwrap();
    let second = log.append(&[1; 700], &[1]).unwrap();
    let third = log.append(&[1; 700], &[1]).unwrap();
    assert_eq!([first.segment, second.segment, third.segment], [5000, 5001, 5002]);
    // The one that is made ahead of need, and never used.
    wait_until(|| disk.content_len(&path_of(5003)) == Some(1000));
    let old_content = disk.content(&path_of(5001));
    let total = log.total_bytes();

    log.discard_completed(1, second).unwrap();
    assert!(!disk.exists(&path_of(5001)), "be it between others");
    assert!(disk.exists(&path_of(5000)), "the rare family pins it");
    assert_eq!(log.oldest_dirty().unwrap(), OldestDirty { segment: 5000, families: vec![9] });
    assert!(log.total_bytes() < total - 700);

    // A power loss brings the removed file back: it is not replayed, nor is it missed without.
    let back = disk.after_kill();
    assert_eq!(bodies(&read_back(&back).1), vec![10, 700, 700]);
    back.put(&path_of(5001), &old_content);
    let (replayed, found) = read_back(&back);
    assert_eq!(bodies(&found), vec![10, 700, 700]);
    assert_eq!(replayed.leftovers, vec![path_of(5001)]);
    drop(open_behind(&back, ON_DEMAND, 1000, replayed));
    assert!(!back.exists(&path_of(5001)));

    log.discard_completed(9, rare).unwrap();
    assert!(!disk.exists(&path_of(5000)));
    log.discard_completed(1, third).unwrap();
    assert!(disk.exists(&path_of(5002)), "the active one stays");
    assert_eq!(bodies(&read_back(&disk.after_kill()).1), vec![700]);
}

#[test]
fn a_discard_that_is_older_than_the_last_record_keeps_the_segment() {
    let disk = Disk::default();
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
fn a_record_larger_than_a_segment_gets_a_larger_segment() {
    let disk = Disk::default();
    let log = open(&disk, ON_DEMAND, 1000);
    log.append(&[1; 600], &[1]).unwrap();
    wait_until(|| disk.content_len(&path_of(5001)) == Some(1000));
    log.append(&[2; 5000], &[1]).unwrap();
    log.append(&[3; 9000], &[1]).unwrap();
    log.append(&[4; 10], &[1]).unwrap();
    log.sync_now().unwrap();
    let lossy = disk.after_power_loss(&mut fastrand::Rng::with_seed(5));
    assert_eq!(bodies(&read_back(&lossy).1), vec![600, 5000, 9000, 10]);
    assert!(disk.content(&path_of(5001)).len() > 5000, "the prepared one was extended");
}

#[test]
fn a_full_disk_fails_the_append_and_not_the_log() {
    let disk = Disk::default();
    let log = open(&disk, BATCH, 1000);
    disk.set(|faults| faults.full = true);
    log.append(&[1; 600], &[1]).unwrap();
    let error = log.append(&[2; 600], &[1]).unwrap_err();
    assert!(matches!(&error, LogError::NoSpace { bytes: 1000, .. }), "{error:?}");
    assert!(error.to_string().contains("in /data/commitlog"), "{error}");
    let small = log.append(&[3; 100], &[1]).unwrap();
    assert_eq!(small.segment, 5000, "what fits is still taken");
    log.wait_synced(small).unwrap();
    assert_eq!(disk.files(), vec![path_of(5000)]);

    disk.set(|faults| faults.full = false);
    assert_eq!(log.append(&[2; 600], &[1]).unwrap().segment, 5001);
    assert_eq!(bodies(&read_back(&disk.after_kill()).1), vec![600, 100, 600]);
}

#[test]
fn a_segment_whose_creation_failed_is_made_anew() {
    let disk = Disk::default();
    let log = open(&disk, ON_DEMAND, 1000);
    log.append(&[1; 400], &[1]).unwrap();
    disk.set(|faults| faults.sync = true);
    assert!(matches!(log.append(&[2; 900], &[1]), Err(LogError::Io { .. })));
    disk.set(|faults| faults.sync = false);
    disk.put(&files::unfinished_path(dir(), 5001), b"what could not be removed");
    log.append(&[2; 900], &[1]).unwrap();
    assert_eq!(bodies(&read_back(&disk.after_kill()).1), vec![400, 900]);
}

#[test]
fn replayed_segments_stay_until_they_are_flushed() {
    let disk = Disk::default();
    let first = open(&disk, ON_DEMAND, 1000);
    let mut records = fill(&first, 1, 30);
    let disk = disk.after_kill();
    let (replayed, found) = read_back(&disk);
    assert_eq!(found, records);
    let old: Vec<_> = replayed.segments.iter().map(|segment| segment.path.clone()).collect();
    let log = open_behind(&disk, ON_DEMAND, 1000, replayed);
    records.extend(fill(&log, 2, 3));
    log.discard_completed(1, log.position()).unwrap();
    assert_eq!(read_back(&disk.after_kill()).1, records, "a second crash before the flush");

    log.delete_replayed().unwrap();
    assert!(old.iter().all(|path| !disk.exists(path)));
    assert_eq!(read_back(&disk.after_kill()).1, records[30..]);
}

#[test]
fn positions_grow_whatever_the_clock_says() {
    let disk = Disk::default();
    let mut last = Position::default();
    for _ in 0..3 {
        let log = open(&disk, ON_DEMAND, 1000);
        let position = log.append(b"x", &[1]).unwrap();
        assert!(position > last);
        last = position;
    }
    let fs = Arc::new(Disk::default());
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
fn strange_files_are_left_alone() {
    let disk = Disk::default();
    disk.create_dir_all(dir()).unwrap();
    let strange = ["CommitLog-1290000000000.log", "CommitLog-7.alog.bak", "notes"];
    let strange: Vec<_> = strange.iter().map(|name| dir().join(name)).collect();
    for path in &strange {
        disk.put(path, b"whatever");
    }
    let (replayed, found) = read_back(&disk);
    assert_eq!((replayed.foreign.clone(), found), (strange.clone(), vec![]));
    drop(open_behind(&disk, ON_DEMAND, 1000, replayed));
    assert!(strange.iter().all(|path| disk.content(path) == b"whatever"));
}

#[test]
fn a_file_whose_creation_was_interrupted_is_no_damage() {
    for content in [&[][..], &[0; 10], &[0; 5000], b"AlexCLog"] {
        let disk = Disk::default();
        let log = open(&disk, ON_DEMAND, 1000);
        let records = fill(&log, 1, 3);
        let disk = disk.after_kill();
        let unfinished = files::unfinished_path(dir(), 5001);
        disk.put(&unfinished, content);
        let (replayed, found) = read_back(&disk);
        assert_eq!((&replayed.leftovers, found), (&vec![unfinished.clone()], records));
        let log = open_behind(&disk, ON_DEMAND, 1000, replayed);
        assert_eq!(log.position().segment, 5001);
        assert!(!disk.exists(&unfinished));

        // With its name for good it was more.
        let disk = disk.after_kill();
        disk.put(&path_of(5002), content);
        assert!(matches!(try_read_back(&disk, false), Err(ReplayError::Damaged(_))));
    }
}

#[test]
fn a_larger_segment_that_cannot_be_made_leaves_the_one_that_is_ready() {
    let disk = Disk::default();
    let log = open(&disk, ON_DEMAND, 1000);
    log.append(&[1; 600], &[1]).unwrap();
    wait_until(|| disk.content_len(&path_of(5001)) == Some(1000));
    disk.set(|faults| faults.sync = true);
    assert!(matches!(log.append(&[2; 5000], &[1]), Err(LogError::Io { .. })));
    assert_eq!(log.append(&[3; 600], &[1]).unwrap().segment, 5001, "without a sync");
    disk.set(|faults| faults.sync = false);
    assert_eq!(bodies(&read_back(&disk.after_kill()).1), vec![600, 600]);
}

impl Disk {
    fn content_len(&self, path: &Path) -> Option<usize> {
        self.read(path).ok().map(|content| content.len())
    }
}

fn bodies(records: &Records) -> Vec<usize> {
    records.iter().map(|record| record.1.len()).collect()
}
