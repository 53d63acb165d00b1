//! Tests of the whole log on a disk in memory.

mod appending;
mod archiving;
mod crashes;
mod damage;
mod disk;
mod full;
mod segments;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::storage::log::Reason;

use super::*;

/// Syncs only when told to.
const ON_DEMAND: SyncPolicy = SyncPolicy::Periodic { every: Duration::from_hours(1) };

const BATCH: SyncPolicy = SyncPolicy::Batch { window: Duration::ZERO };

/// Shorter forms for tests.
impl CommitLog {
    fn append(&self, body: &[u8], families: &[u32]) -> Result<Position, LogError> {
        let end = self.append_all([(body, families)].into_iter(), true)?;
        Ok(end.expect("there is a record"))
    }

    fn wait_synced(&self, position: Position) -> Result<(), LogError> {
        self.appender.wait(position, false)
    }

    fn synced_position(&self) -> Position {
        self.appender.signal.synced()
    }
}

fn dir() -> &'static Path {
    Path::new("/data/commitlog")
}

fn options(sync: SyncPolicy, segment_bytes: u64) -> LogOptions {
    let (dir, archive) = (dir().to_path_buf(), None);
    LogOptions { dir, segment_bytes, sync, first_segment: 0, archive }
}

/// Opens the log of a disk without looking at what replay delivers.
fn open(disk: &SimFileSystem, sync: SyncPolicy, segment_bytes: u64) -> CommitLog {
    let (replayed, _) = read_back(disk);
    open_behind(disk, sync, segment_bytes, replayed)
}

fn open_behind(
    disk: &SimFileSystem,
    sync: SyncPolicy,
    segment_bytes: u64,
    replayed: Replayed,
) -> CommitLog {
    let clock = Arc::new(ManualClock::at_micros(5_000_000));
    let rng = fastrand::Rng::with_seed(replayed.newest_id);
    let fs = Arc::new(disk.clone());
    CommitLog::open(fs, clock, rng, options(sync, segment_bytes), replayed).unwrap()
}

type Records = Vec<(Position, Vec<u8>)>;

fn try_read_back(
    disk: &SimFileSystem,
    accept_loss: bool,
) -> Result<(Replayed, Records), ReplayError<Infallible>> {
    let mut records = Vec::new();
    let replayed = replay(dir(), disk, accept_loss, KnownLog::default(), &mut |position, body| {
        records.push((position, body.to_vec()));
        Ok(())
    })?;
    assert!(records.is_sorted_by(|a, b| a.0 < b.0), "positions ascend");
    assert_eq!(replayed.records, records.len() as u64);
    Ok((replayed, records))
}

fn read_back(disk: &SimFileSystem) -> (Replayed, Records) {
    try_read_back(disk, false).unwrap()
}

/// Appends `count` records of distinct content, all of one family.
fn fill(log: &CommitLog, family: u32, count: u32) -> Records {
    let body = |n: u32| format!("record {n} of family {family}").into_bytes();
    (0..count).map(|n| (log.append(&body(n), &[family]).unwrap(), body(n))).collect()
}

fn path_of(id: u64) -> PathBuf {
    files::segment_path(dir(), id)
}
