//! The archive, and replay from it.

use std::time::Duration;

use rustix::io::Errno;

use crate::base::fs::FileSystem;
use crate::kit::disk::{Fault, Operation, SimFileSystem, Survival};

use super::appending::wait_until;
use super::*;
use crate::storage::archive::{ArchiveReplay, archive_all};

fn archive() -> &'static Path {
    Path::new("/backup")
}

/// A disk with the directories, and a clock that the test moves.
fn disk() -> (SimFileSystem, Arc<ManualClock>) {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all(dir()).unwrap();
    fs.create_dir_all(archive()).unwrap();
    fs.sync_everything();
    (fs, Arc::new(ManualClock::at_micros(5_000_000)))
}

fn open_with_archive(fs: &SimFileSystem, clock: &Arc<ManualClock>, bytes: u64) -> CommitLog {
    let replayed =
        replay::<Infallible>(dir(), fs, false, KnownLog::default(), &mut |_, _| Ok(())).unwrap();
    let options = LogOptions { archive: Some(archive().into()), ..options(ON_DEMAND, bytes) };
    let rng = fastrand::Rng::with_seed(replayed.newest_id);
    CommitLog::open(Arc::new(fs.clone()), Arc::clone(clock) as _, rng, options, replayed).unwrap()
}

fn archived(fs: &SimFileSystem) -> Vec<u64> {
    segment_ids(fs, archive()).unwrap()
}

fn in_log(fs: &SimFileSystem) -> Vec<u64> {
    segment_ids(fs, dir()).unwrap()
}

/// Surveys and replays the archive from a position on.
fn survey(fs: &SimFileSystem, base: Position, until: Option<u64>) -> (ArchiveReplay, Vec<Vec<u8>>) {
    let replay = ArchiveReplay::survey::<Infallible>(fs, archive(), None, base, until).unwrap();
    let mut found = Vec::new();
    let delivered = replay.deliver::<Infallible>(fs, None, &mut |_, body| {
        found.push(body.to_vec());
        Ok(())
    });
    delivered.unwrap();
    (replay, found)
}

#[test]
fn the_time_is_noted_where_a_segment_begins_and_when_it_has_passed() {
    let (fs, clock) = disk();
    let log = open_with_archive(&fs, &clock, 1 << 16);
    let mut bodies = Vec::new();
    for second in 0..5_u8 {
        for n in 0..3 {
            bodies.push(vec![second, n]);
            log.append(&[second, n], &[1]).unwrap();
            // Too short a time to be noted.
            clock.advance(Duration::from_millis(20));
        }
        clock.advance(Duration::from_millis(940));
    }
    log.close().unwrap();
    let all = survey(&fs, Position::default(), None);
    assert_eq!(all.1, bodies);
    assert_eq!((all.0.reaches_time, all.0.last_millis), (false, Some(9000)));
    for (until, records) in [(4999, 0), (5000, 3), (5999, 3), (6000, 6), (8999, 12), (9000, 15)] {
        let (replay, found) = survey(&fs, Position::default(), Some(until));
        assert_eq!(found, bodies[..records], "until {until}");
        assert_eq!(replay.reaches_time, until < 9000, "until {until}");
    }
}

#[test]
fn a_clock_that_is_set_back_is_noted() {
    let (fs, _) = disk();
    let late = Arc::new(ManualClock::at_micros(100_000_000));
    let log = open_with_archive(&fs, &late, 1 << 16);
    log.append(b"late", &[1]).unwrap();
    log.close().unwrap();
    let early = Arc::new(ManualClock::at_micros(7_000_000));
    let log = open_with_archive(&fs, &early, 1 << 16);
    log.append(b"early", &[1]).unwrap();
    log.close().unwrap();
    assert_eq!(survey(&fs, Position::default(), Some(99_000)).1, Vec::<Vec<u8>>::new());
    let (replay, found) = survey(&fs, Position::default(), Some(100_000));
    assert_eq!((found.len(), replay.last_millis), (2, Some(7000)));
}

/// Power fails after each change while segments are archived and removed: none is ever lost.
#[test]
fn a_power_loss_never_takes_a_segment_from_both_places() {
    for copies in [false, true] {
        for changes in 0.. {
            let (fs, clock) = disk();
            if copies {
                let far =
                    Fault { times: u64::MAX, ..Fault::next(Operation::HardLink, Errno::XDEV) };
                fs.inject(far);
            }
            fs.power_off_after(changes);
            let options = LogOptions { archive: Some(archive().into()), ..options(BATCH, 1000) };
            let rng = fastrand::Rng::with_seed(1);
            let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
            let opened =
                CommitLog::open(shared, Arc::clone(&clock) as _, rng, options, Replayed::default());
            let mut promised = Vec::new();
            let ended = opened.and_then(|log| {
                for n in 0..6_u8 {
                    let position = log.append(&[n; 600], &[1])?;
                    log.wait_synced(position)?;
                    promised.push(vec![n; 600]);
                    log.discard_completed(1, position)?;
                }
                log.close_and_clear(|| true)
            });
            let survival = [Survival::Nothing, Survival::Partly][changes as usize % 2];
            fs.crash_keeping(survival, &mut fastrand::Rng::with_seed(changes));
            // What a restore does with what is left in the log.
            let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
            archive_all(&*shared, dir(), archive()).unwrap();
            let (replay, found) = survey(&fs, Position::default(), None);
            assert_eq!((replay.missing.len(), replay.lost.len()), (0, 0), "{changes}");
            assert!(found.len() >= promised.len() && found.starts_with(&promised), "{changes}");
            if ended.is_ok() {
                assert_eq!(found.len(), 6);
                break;
            }
        }
    }
}

#[test]
fn a_missing_run_is_noticed() {
    let (fs, clock) = disk();
    for n in 0..4_u8 {
        let log = open_with_archive(&fs, &clock, 1000);
        let last = log.append(&[n; 100], &[1]).unwrap();
        log.discard_completed(1, last).unwrap();
        log.close().unwrap();
        log.delete_replayed().unwrap_err();
        clock.advance(Duration::from_secs(10));
    }
    let ids = archived(&fs);
    assert_eq!(ids.len(), 4, "one segment each: {ids:?}");
    assert_eq!(survey(&fs, Position::default(), None).1.len(), 4);
    for (n, id) in ids.iter().enumerate() {
        let fs = fs.fork();
        fs.remove_file(&files::segment_path(archive(), *id)).unwrap();
        let (replay, _) = survey(&fs, Position::default(), None);
        let expected = if n == 3 { vec![] } else { vec![files::segment_path(archive(), *id)] };
        assert_eq!(replay.missing, expected, "the end of the last run was in order");
        // Behind it nothing is missing.
        if let Some(next) = ids.get(n + 1) {
            let base = Position { segment: *next, offset: 60 };
            assert!(survey(&fs, base, None).0.missing.is_empty());
        }
    }
}

/// An archive on another disk makes room in the log.
#[test]
fn on_a_full_disk_the_active_segment_goes_to_the_archive_at_once() {
    let (fs, clock) = disk();
    let bytes = 1 << 14;
    // For a segment and a small one, but not for two segments.
    fs.set_capacity(Some(2 * bytes - 300));
    let log = open_with_archive(&fs, &clock, bytes);
    let last = log.append(&[1; 10_000], &[1]).unwrap();
    log.sync_now().unwrap();
    log.discard_completed(1, last).unwrap();
    let refused = log.append(&[2; 8000], &[1]);
    assert!(matches!(refused, Err(LogError::NoSpace { .. })), "{refused:?}");
    wait_until(|| archived(&fs) == [last.segment]);
    log.discard_completed(1, last).unwrap();
    wait_until(|| !in_log(&fs).contains(&last.segment));
}
