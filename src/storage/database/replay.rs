//! What the commit log holds is applied at the start, and the log is opened behind it. Both may
//! meet a full disk, which is no reason not to start: reads are served meanwhile.

use super::super::commitlog::archive::archive_all;
use super::super::commitlog::{self, CommitLog, LogError, LogOptions, Position, Replayed};
use super::super::error::{FileContext, ReadError};
use super::super::family::{ColumnFamily, Environment};
use super::super::options::Options;
use super::super::system::log_guard::LogGuard;
use super::StorageError;
use super::flushes::is_shortage;
use super::unconfigured::Records;
use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::model::mutation::DecodeError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What was in memtables at the end of the last run has room in memtables again. This part of the
/// budget may come on top while it cannot be flushed, since rows may take a little more by then.
const OVERDRAFT: u64 = 4;

/// A flush that had no room is tried again when memtables have grown by this part of the budget.
const FLUSH_AGAIN: u64 = 16;

/// Applies what the commit log holds to the memtables.
pub(super) fn replay(
    fs: &dyn FileSystem,
    options: &Options,
    records: &Records<'_>,
    environment: &Environment,
    stores: &[Arc<ColumnFamily>],
) -> Result<Replayed, StorageError> {
    let mut needed = 0_u64;
    let mut memory = Memory { used: 0, flush_above: options.memtable_budget_bytes };
    let is_unexpected = !options.accept_data_loss && !is_expected(fs, options, stores)?;
    let mut apply = |position: Position, record: &[u8]| -> Result<(), StorageError> {
        if is_unexpected {
            return Err(StorageError::NoData(options.commit_log_directory.clone()));
        }
        let mutation = match records.decode(record, position) {
            Ok(mutation) => mutation,
            Err(error @ (DecodeError::UnknownFamily { .. } | DecodeError::OtherNames { .. }))
                if options.accept_commitlog_loss =>
            {
                log::warn!("a replayed mutation is dropped: {error}");
                return Ok(());
            }
            Err(error) => {
                return Err(unreadable(position, error));
            }
        };
        let key = environment.partitioner.decorate(mutation.key.clone());
        let mut is_needed = false;
        for family in &mutation.families {
            let store = &stores[family.family.0 as usize];
            // A segment stays as long as any family needs it. What others have flushed may have
            // been deleted and purged since, and would come back.
            if position > store.flushed_position() {
                store.apply(&key, family);
                is_needed = true;
            }
        }
        needed += u64::from(is_needed);
        memory.used = environment.memtable_memory.load(Ordering::Relaxed);
        memory.bound(options.memtable_budget_bytes, || flush_all(stores, position))
    };
    let (directory, accept_loss) = (&options.commit_log_directory, options.accept_commitlog_loss);
    let flushed = stores.iter().map(|store| store.flushed_position());
    let known = LogGuard::known_log(fs, &options.data_directories, flushed)?;
    let replayed = commitlog::replay(directory, fs, accept_loss, known, &mut apply);
    let replayed = replayed.map_err(|error| match error {
        commitlog::ReplayError::Apply { source, .. } => source,
        other @ commitlog::ReplayError::OtherLog { .. } => {
            StorageError::OtherLog(other.to_string())
        }
        other => StorageError::Replay(other.to_string()),
    })?;
    if !replayed.segments.is_empty() {
        log::info!("Log replay complete, {needed} replayed mutations");
    }
    Ok(replayed)
}

/// Whether the data directories know of a commit log: they have a mark of it, or SSTables that were
/// written since it began. A server has marked its log before the first write.
pub(super) fn is_expected(
    fs: &dyn FileSystem,
    options: &Options,
    stores: &[Arc<ColumnFamily>],
) -> Result<bool, StorageError> {
    let has_flushed = |store: &Arc<ColumnFamily>| store.flushed_position() > Position::default();
    let mark = LogGuard::find(fs, &options.data_directories)?;
    Ok(mark.is_some() || stores.iter().any(has_flushed))
}

/// Why the start is refused at a record, and the way out.
fn unreadable(Position { segment, offset }: Position, error: DecodeError) -> StorageError {
    let place = format!("segment {segment}, record ending at {offset}");
    match error {
        DecodeError::UnknownFamily { keyspace, family } => {
            StorageError::Unconfigured { place, family: format!("{keyspace}.{family}") }
        }
        error => StorageError::Replay(format!("{place}: {error}")),
    }
}

/// The memory of memtables during a replay, in bytes.
struct Memory {
    used: u64,
    /// When it is time to flush, or to try that again.
    flush_above: u64,
}

impl Memory {
    /// Keeps it within the budget, or close to it while the disk has no room. What was replayed is
    /// in the log still, and is flushed when the disk has room, as it is while the node runs.
    fn bound(
        &mut self,
        budget: u64,
        flush: impl FnOnce() -> Result<(), ReadError>,
    ) -> Result<(), StorageError> {
        let bytes = self.used;
        if bytes <= self.flush_above {
            return Ok(());
        }
        match flush() {
            Ok(()) => self.flush_above = budget,
            Err(error) if is_shortage(&error) && bytes <= budget + budget / OVERDRAFT => {
                log::error!("what was replayed stays in memory and in the commit log: {error}");
                self.flush_above = bytes + budget / FLUSH_AGAIN;
            }
            Err(source) => return Err(StorageError::Flush { bytes, source }),
        }
        Ok(())
    }
}

/// Writes all memtables to SSTables, which hold everything up to this position then.
fn flush_all(stores: &[Arc<ColumnFamily>], position: Position) -> Result<(), ReadError> {
    for store in stores {
        // What an earlier attempt could not write goes first, and is not divided further.
        for memtable in store.view().flushing.clone() {
            store.flush(&memtable)?;
        }
        if let Some(memtable) = store.switch_memtable() {
            memtable.seal(position);
            store.flush(&memtable)?;
        }
    }
    Ok(())
}

/// Opens the log behind what was replayed. If its disk has no room for even a small segment, what
/// was replayed is flushed first, and its segments are removed.
pub(super) fn open_log(
    fs: &Arc<dyn FileSystem>,
    clock: &Arc<dyn Clock>,
    options: &Options,
    stores: &[Arc<ColumnFamily>],
    replayed: &mut Replayed,
) -> Result<CommitLog, StorageError> {
    let flushed = stores.iter().map(|store| store.flushed_position()).max().unwrap_or_default();
    let log_options = LogOptions {
        dir: options.commit_log_directory.clone(),
        segment_bytes: options.segment_bytes,
        sync: options.sync,
        first_segment: flushed.segment + 1,
        archive: options.commit_log_archive_directory.clone(),
    };
    let open = |replayed: &Replayed| {
        let rng = fastrand::Rng::with_seed(options.seed);
        let (fs, clock) = (Arc::clone(fs), Arc::clone(clock));
        CommitLog::open(fs, clock, rng, log_options.clone(), replayed.clone())
    };
    match open(replayed) {
        Err(full @ LogError::NoSpace { .. }) if !replayed.segments.is_empty() => {
            log::warn!("{full}: what the commit log holds is flushed, to make room there");
            clear_log(fs, options, stores, replayed)?;
            Ok(open(replayed)?)
        }
        opened => Ok(opened?),
    }
}

/// Flushes what was replayed, and removes the segments that it came from. No list in the log can
/// tell that they are not needed: the manifests do.
fn clear_log(
    fs: &Arc<dyn FileSystem>,
    options: &Options,
    stores: &[Arc<ColumnFamily>],
    replayed: &mut Replayed,
) -> Result<(), StorageError> {
    let end = replayed.end();
    let bytes = stores.iter().map(|store| store.view().memory()).sum();
    flush_all(stores, end).map_err(|source| StorageError::Flush { bytes, source })?;
    let directory = &options.commit_log_directory;
    if let Some(archive) = &options.commit_log_archive_directory {
        archive_all(fs, directory, archive)?;
    }
    for store in stores {
        store.advance_flushed(end)?;
    }
    LogGuard::release(&**fs, &options.data_directories)?;
    Ok(replayed.remove_segments(&**fs).context("remove the segments of", directory)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::error::FileError;
    use std::io;
    use std::path::Path;

    fn failure(kind: io::ErrorKind) -> ReadError {
        FileError::new("write", Path::new("/data/K/A-1.sst.tmp"), kind.into()).into()
    }

    #[test]
    fn what_cannot_be_flushed_may_overdraw_the_budget_by_a_little() {
        let mut memory = Memory { used: 1000, flush_above: 1000 };
        memory.bound(1000, || unreachable!("it is within the budget")).unwrap();
        memory.used = 1001;
        memory.bound(1000, || Err(failure(io::ErrorKind::StorageFull))).unwrap();
        memory.used = 1050;
        memory.bound(1000, || unreachable!("it was tried a moment ago")).unwrap();
        memory.used = 1100;
        let damaged = memory.bound(1000, || Err(failure(io::ErrorKind::Other))).unwrap_err();
        assert!(matches!(damaged, StorageError::Flush { bytes: 1100, .. }), "{damaged}");
        memory.used = 1251;
        let full = memory.bound(1000, || Err(failure(io::ErrorKind::StorageFull))).unwrap_err();
        let text = full.to_string();
        assert!(text.contains("1251 bytes") && text.contains("A-1.sst.tmp"), "{text}");
        memory.bound(1000, || Ok(())).unwrap();
        assert_eq!(memory.flush_above, 1000);
    }
}
