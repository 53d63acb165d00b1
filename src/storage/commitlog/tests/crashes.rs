//! Random runs that end in a kill, a power loss or a clean stop, checked against a model.

use std::collections::BTreeMap;

use crate::kit::seeds;
use proptest::prelude::*;

use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;

use super::*;

const RUNS: usize = 5;

/// Content that the log must still have.
#[derive(Default)]
struct Model {
    /// Everything ever appended.
    written: BTreeMap<Position, Vec<u8>>,
    /// Family of each record.
    family: BTreeMap<Position, u32>,
    /// Records that are not flushed and must survive a power loss.
    durable: Vec<Position>,
    /// Records that are not flushed and must survive a kill.
    acknowledged: Vec<Position>,
    /// Records of segments that have been discarded.
    gone: Vec<Position>,
}

impl Model {
    fn append(&mut self, log: &CommitLog, rng: &mut fastrand::Rng) {
        let length = if rng.u8(..) < 10 { rng.usize(..3000) } else { rng.usize(..120) };
        // Few distinct values, many zeroes: what could be mistaken for an end or a record.
        let body: Vec<u8> = (0..length).map(|_| rng.choice([0, 0, 0, 13, 255]).unwrap()).collect();
        let family = rng.u32(1..4);
        let position = log.append(&body, &[family]).unwrap();
        self.acknowledged.push(position);
        self.family.insert(position, family);
        assert_eq!(self.written.insert(position, body), None, "a position is given once");
    }

    fn sync(&mut self, log: &CommitLog) {
        log.sync_now().unwrap();
        self.durable.clone_from(&self.acknowledged);
    }

    /// Flushes a family of this run, up to some record.
    fn flush(&mut self, disk: &SimFileSystem, log: &CommitLog, run: u64, rng: &mut fastrand::Rng) {
        let family = rng.u32(1..4);
        let Some(up_to) = rng.choice(self.acknowledged.iter().copied()) else { return };
        log.discard_completed(family, up_to).unwrap();
        self.forget(|model, at| at.segment >= run && *at <= up_to && model.family[at] == family);
        self.note_gone(disk);
    }

    fn delete_replayed(&mut self, disk: &SimFileSystem, log: &CommitLog, run: u64) {
        log.delete_replayed().unwrap();
        self.forget(|_, at| at.segment < run);
        self.note_gone(disk);
    }

    fn forget(&mut self, is_flushed: impl Fn(&Self, &Position) -> bool) {
        let keep = |positions: &[Position]| -> Vec<Position> {
            positions.iter().filter(|at| !is_flushed(self, at)).copied().collect()
        };
        (self.durable, self.acknowledged) = (keep(&self.durable), keep(&self.acknowledged));
    }

    fn note_gone(&mut self, disk: &SimFileSystem) {
        let files = disk.files();
        let is_gone = |at: &&Position| !files.contains(&path_of(at.segment));
        self.gone = self.written.keys().filter(is_gone).copied().collect();
    }

    /// Checks what replay has delivered; what it has not is forgotten.
    fn check(&mut self, found: &Records, must_be_there: &[Position]) {
        for (position, body) in found {
            assert_eq!(self.written.get(position), Some(body), "content of {position}");
            assert!(!self.gone.contains(position), "{position} had been discarded");
        }
        let found: Vec<Position> = found.iter().map(|record| record.0).collect();
        for position in must_be_there {
            assert!(found.binary_search(position).is_ok(), "{position} is lost");
        }
        self.forget(|_, at| found.binary_search(at).is_err());
    }
}

/// Several runs of the log on one disk, each with random work and a random end.
fn live_through(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut disk = disk::disk();
    let mut model = Model::default();
    for _ in 0..RUNS {
        let (replayed, found) = try_read_back(&disk, false).expect("a crash is no damage");
        let must_be_there = model.acknowledged.clone();
        model.check(&found, &must_be_there);
        let policy = if rng.bool() { BATCH } else { ON_DEMAND };
        let segment_bytes = rng.choice([300, 700, 5000]).unwrap();
        let log = open_behind(&disk, policy, segment_bytes, replayed);
        let run = log.position().segment;
        for _ in 0..rng.usize(..60) {
            match rng.u8(..20) {
                0..=13 => model.append(&log, &mut rng),
                14..=16 => model.sync(&log),
                17..=18 => model.flush(&disk, &log, run, &mut rng),
                _ => model.delete_replayed(&disk, &log, run),
            }
        }
        disk = match rng.u8(..4) {
            0 => {
                log.close().unwrap();
                model.durable.clone_from(&model.acknowledged);
                disk.after_power_loss(&mut rng)
            }
            1 => disk.after_kill(),
            _ => {
                model.acknowledged.clone_from(&model.durable);
                disk.after_power_loss(&mut rng)
            }
        };
    }
}

/// Changes a few bytes, or cuts or removes a file, of a log whose last run was not closed: replay
/// either refuses, or gives records that were written.
fn live_with_damage(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, rng.choice([300, 700, 5000]).unwrap());
    let mut model = Model::default();
    for _ in 0..rng.usize(1..60) {
        model.append(&log, &mut rng);
        if rng.u8(..10) == 0 {
            model.sync(&log);
        }
    }
    let disk = disk.after_kill();
    // A segment that is just being made may still be empty.
    let full = disk.files().into_iter().filter(|path| !disk.content(path).is_empty());
    let path = rng.choice(full.collect::<Vec<_>>()).unwrap();
    let mut content = disk.content(&path);
    match rng.u8(..4) {
        0 => content.truncate(rng.usize(..=content.len())),
        1 => {
            let at = rng.usize(..content.len());
            let length = rng.usize(..=(content.len() - at).min(600));
            content[at..at + length].fill(0);
        }
        _ => {
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..content.len());
                content[at] ^= 1 << rng.u8(..8);
            }
        }
    }
    disk.put(&path, &content);
    let accepted = try_read_back(&disk, true).unwrap();
    model.check(&accepted.1, &[]);
    match try_read_back(&disk, false) {
        Ok((replayed, found)) => {
            assert_eq!(found, accepted.1);
            assert_eq!(replayed.lost, vec![]);
        }
        Err(ReplayError::Damaged(damage)) => assert!(accepted.0.lost.contains(&damage)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_was_replayed_after_a_kill_survives_a_power_loss() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 700);
    let records = fill(&log, 1, 40);
    let killed = disk.after_kill();
    let _next = open(&killed, ON_DEMAND, 700);
    let lossy = killed.after_power_loss(&mut fastrand::Rng::with_seed(1));
    assert_eq!(read_back(&lossy).1, records);
}

/// The header, the name, the seal and the cut get durable in their order.
#[test]
fn a_power_loss_while_segments_are_made_or_closed_is_no_damage() {
    let mut is_complete = false;
    for changes in 0.. {
        for seed in 0..8 {
            let fs = SimFileSystem::new(seed);
            fs.create_dir_all(dir()).unwrap();
            fs.sync_everything();
            fs.power_off_after(changes);
            let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
            let clock = Arc::new(ManualClock::at_micros(5_000_000));
            let rng = fastrand::Rng::with_seed(seed);
            let options = options(ON_DEMAND, 300);
            let opened = CommitLog::open(shared, clock, rng, options, Replayed::default());
            let written = opened.and_then(|log| {
                for length in [60, 60, 60, 900, 60] {
                    log.append(&vec![7; length], &[1])?;
                }
                log.close()
            });
            fs.crash(&mut fastrand::Rng::with_seed(seed));
            let mut records = 0;
            let result =
                replay::<Infallible>(dir(), &fs, false, KnownLog::default(), &mut |_, _| {
                    records += 1;
                    Ok(())
                });
            assert!(result.is_ok(), "after {changes} changes, seed {seed}: {result:?}");
            assert!(written.is_err() || records == 5, "{records} after a clean close");
            is_complete = written.is_ok();
        }
        if is_complete {
            break;
        }
    }
}

proptest! {
    #![proptest_config(seeds(300))]

    #[test]
    fn crashes_lose_nothing_that_was_promised(seed: u64) {
        live_through(seed);
    }

    #[test]
    fn damage_never_gives_wrong_data(seed: u64) {
        live_with_damage(seed);
    }
}
