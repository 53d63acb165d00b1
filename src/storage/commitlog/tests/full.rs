//! Disks that fill up to the last byte, and get room again.

use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;

use super::files::segment_ids;
use super::*;

const SEGMENT_BYTES: u64 = 1 << 14;

/// A disk on which no more than this fits beside the directory of the log.
fn disk(bytes: u64) -> SimFileSystem {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all(dir()).unwrap();
    fs.sync_everything();
    fs.set_capacity(Some(bytes));
    fs
}

fn try_open(fs: &SimFileSystem) -> Result<(CommitLog, u64), LogError> {
    let replayed =
        replay::<Infallible>(dir(), fs, false, KnownLog::default(), &mut |_, _| Ok(())).unwrap();
    let records = replayed.records;
    let clock = Arc::new(ManualClock::at_micros(5_000_000));
    let rng = fastrand::Rng::with_seed(replayed.newest_id);
    let options = options(ON_DEMAND, SEGMENT_BYTES);
    let log = CommitLog::open(Arc::new(fs.clone()), clock, rng, options, replayed)?;
    Ok((log, records))
}

/// Appends until not even a byte fits. Returns the last position and the number of records.
fn fill_up(log: &CommitLog) -> (Position, u64) {
    let (mut last, mut count) = (log.position(), 0);
    for bytes in [2000, 300, 100, 30, 1] {
        loop {
            match log.append(&vec![7; bytes], &[1]) {
                Ok(position) => (last, count) = (position, count + 1),
                Err(LogError::NoSpace { .. }) => break,
                Err(other) => panic!("{other}"),
            }
            // Marks fill the segment as well.
            log.sync_now().unwrap();
        }
    }
    (last, count)
}

#[test]
fn what_is_flushed_goes_however_full_the_disk_is() {
    for left in [0, 50, 1000, 5000] {
        for segments in [2, 5] {
            let fs = disk(segments * SEGMENT_BYTES + left);
            let (log, _) = try_open(&fs).unwrap();
            for round in 0..3 {
                let (last, count) = fill_up(&log);
                assert!(count > 0, "round {round} with {left} bytes left takes nothing");
                assert!(segment_ids(&fs, dir()).unwrap().len() as u64 >= segments);
                log.discard_completed(1, last).unwrap();
                assert!(segment_ids(&fs, dir()).unwrap().len() <= 2, "of {segments}");
            }
            log.close_and_clear(|| true).unwrap();
            assert!(segment_ids(&fs, dir()).unwrap().is_empty());
        }
    }
}

#[test]
fn the_active_segment_goes_when_it_fills_the_disk_and_is_flushed() {
    let fs = disk(SEGMENT_BYTES + 5000);
    let (log, _) = try_open(&fs).unwrap();
    for _ in 0..3 {
        let (last, count) = fill_up(&log);
        assert!(count > 0);
        log.discard_completed(1, last).unwrap();
        log.append(&[1; 2000], &[1]).unwrap();
    }
}

#[test]
fn a_log_is_opened_on_a_disk_that_has_room_for_a_small_segment() {
    let fs = disk(3 * SEGMENT_BYTES + 5000);
    let (log, _) = try_open(&fs).unwrap();
    let (_, count) = fill_up(&log);
    let fs = fs.fork();
    let (log, replayed) = try_open(&fs).unwrap();
    assert_eq!(replayed, count);
    assert!(matches!(log.append(&[1; 5000], &[1]), Err(LogError::NoSpace { .. })));
    log.delete_replayed().unwrap();
    log.append(&[1; 5000], &[1]).unwrap();
    drop(log);
    assert_eq!(try_open(&fs).unwrap().1, 1);
}

#[test]
fn unused_files_make_room_for_the_first_segment() {
    let fs = disk(2 * SEGMENT_BYTES);
    let (log, _) = try_open(&fs).unwrap();
    let last = log.append(&[1; 10_000], &[1]).unwrap();
    let old = fs.read(&path_of(last.segment)).unwrap();
    let last = log.append(&[1; 10_000], &[1]).unwrap();
    log.discard_completed(1, Position { offset: 0, ..last }).unwrap();
    let fs = fs.fork();
    // A power loss brought it back.
    fs.create(&path_of(5000)).and_then(|file| file.write_all_at(&old, 0)).unwrap();
    let (log, replayed) = try_open(&fs).unwrap();
    assert_eq!(replayed, 1);
    log.append(&[1; 10_000], &[1]).unwrap();
}
