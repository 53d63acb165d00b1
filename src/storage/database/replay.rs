//! Applies the records of a commit log, and opens the log after them. A full disk does not keep the
//! node from starting: reads are served meanwhile.

use super::super::archive::archive_all;
use super::super::commitlog::{
    self, CommitLog, LogError, LogOptions, Position, Replayed, segments_of_the_original,
};
use super::super::error::{FileContext, FileError, ReadError};
use super::super::family::{ColumnFamily, Environment};
use super::super::legacy::commitlog::{SegmentError, SegmentReader};
use super::super::options::Options;
use super::super::system::log_guard::LogGuard;
use super::StorageError;
use super::unconfigured::Records;
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::Schema;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Content of memtables at the end of the last run has room in memtables again. This part of the
/// budget may come on top while it cannot be flushed, since rows may take a little more by then.
const OVERDRAFT: u64 = 4;

/// A flush that had no room is tried again when memtables have grown by this part of the budget.
const FLUSH_AGAIN: u64 = 16;

/// Why a replay stopped at a record.
#[derive(Debug, derive_more::Display)]
pub(in crate::storage) enum Unapplied {
    /// The configuration cannot take the record that ends at this position.
    #[display("record {_0}: {_1}")]
    Record(Position, DecodeError),
    /// The memtables, of this many bytes, cannot be flushed.
    #[display("{_1}")]
    Flush(u64, ReadError),
}

impl From<Unapplied> for StorageError {
    fn from(error: Unapplied) -> Self {
        let (Position { segment, offset }, error) = match error {
            Unapplied::Record(position, error) => (position, error),
            Unapplied::Flush(bytes, source) => return Self::Flush { bytes, source },
        };
        let place = format!("segment {segment}, record ending at {offset}");
        match error {
            DecodeError::UnknownFamily { keyspace, family } => {
                Self::Unconfigured { place, family: format!("{keyspace}.{family}") }
            }
            error => Self::Replay(format!("{place}: {error}")),
        }
    }
}

/// Column families that are being opened.
#[derive(Clone, Copy)]
pub(in crate::storage) struct Opening<'a> {
    /// Their environment.
    pub(in crate::storage) environment: &'a Environment,
    /// The settings.
    pub(in crate::storage) options: &'a Options,
    /// By id.
    pub(in crate::storage) families: &'a [Arc<ColumnFamily>],
}

/// Applies records of a commit log to memtables, at a start or in a restore.
pub(in crate::storage) struct Replayer<'a> {
    opening: Opening<'a>,
    records: &'a Records<'a>,
    /// Whether records of keyspaces without a family are left out.
    is_partial: bool,
    memory: Memory,
    /// Records that were applied, in whole or in part.
    pub(in crate::storage) mutations: u64,
}

impl<'a> Replayer<'a> {
    pub(in crate::storage) fn new(
        opening: Opening<'a>,
        records: &'a Records<'a>,
        is_partial: bool,
    ) -> Self {
        let memory = Memory { used: 0, flush_above: opening.options.memtable_budget_bytes };
        Self { opening, records, is_partial, memory, mutations: 0 }
    }

    /// Applies the parts of a record that are not in SSTables. A segment stays as long as any
    /// family needs it. What others have flushed may have been deleted and purged since, and would
    /// come back.
    pub(in crate::storage) fn apply(
        &mut self,
        position: Position,
        record: &[u8],
    ) -> Result<(), Unapplied> {
        let Opening { environment, options, families } = self.opening;
        let mutation = match self.records.decode(record, position) {
            Ok(mutation) => mutation,
            Err(error) if self.may_drop(&error) => return Ok(()),
            Err(error) => return Err(Unapplied::Record(position, error)),
        };
        let key = environment.partitioner.decorate(mutation.key.clone());
        let mut is_applied = false;
        for change in &mutation.families {
            let at = families.binary_search_by_key(&change.family, |family| family.id());
            if let Ok(at) = at
                && position > families[at].flushed_position()
            {
                families[at].apply(&key, change);
                is_applied = true;
            }
        }
        self.mutations += u64::from(is_applied);
        self.memory.used = environment.memtable_memory.load(Ordering::Relaxed);
        let flush = || flush_all(families, position);
        self.memory.bound(options.memtable_budget_bytes, flush)
    }

    /// Whether a record that the configuration cannot take may be left out.
    fn may_drop(&self, error: &DecodeError) -> bool {
        let (DecodeError::UnknownFamily { keyspace, .. }
        | DecodeError::OtherNames { keyspace, .. }) = error
        else {
            return false;
        };
        let is_other = |family: &Arc<ColumnFamily>| family.schema().keyspace != *keyspace;
        if self.is_partial && self.opening.families.iter().all(is_other) {
            return true;
        }
        if self.opening.options.accept_commitlog_loss {
            log::warn!("a replayed mutation is dropped: {error}");
        }
        self.opening.options.accept_commitlog_loss
    }
}

impl Opening<'_> {
    /// Applies what the commit log holds to the memtables; before that what the one of the original
    /// holds, whose directories are being taken over.
    pub(super) fn replay(
        &self,
        records: &Records<'_>,
        takes_over: bool,
    ) -> Result<Replayed, StorageError> {
        if takes_over {
            self.replay_original(records.schema)?;
        }
        let Self { environment: Environment { fs, .. }, options, families } = *self;
        let is_unexpected = !options.accept_data_loss && !self.is_expected()?;
        let mut sink = Replayer::new(*self, records, false);
        let directory = &options.commit_log_directory;
        let mut apply = |position: Position, record: &[u8]| {
            if is_unexpected {
                return Err(StorageError::NoData(directory.clone()));
            }
            Ok(sink.apply(position, record)?)
        };
        let flushed = families.iter().map(|family| family.flushed_position());
        let known = LogGuard::known_log(&**fs, &options.data_directories, flushed)?;
        let accept_loss = options.accept_commitlog_loss;
        let replayed = commitlog::replay(directory, &**fs, accept_loss, known, &mut apply);
        let replayed = replayed.map_err(|error| match error {
            commitlog::ReplayError::Apply { source, .. } => source,
            other @ commitlog::ReplayError::OtherLog { .. } => {
                StorageError::OtherLog(other.to_string())
            }
            other => StorageError::Replay(other.to_string()),
        })?;
        if !replayed.segments.is_empty() {
            log::info!("Log replay complete, {} replayed mutations", sink.mutations);
        }
        Ok(replayed)
    }

    /// Applies what the commit log of the original holds to the memtables.
    fn replay_original(&self, schema: &Schema) -> Result<(), StorageError> {
        let Self { environment: Environment { fs, .. }, options, .. } = *self;
        let directory = &options.commit_log_directory;
        let segments = segments_of_the_original(&**fs, directory).context("list", directory)?;
        let mut memory = Memory { used: 0, flush_above: options.memtable_budget_bytes };
        let mut mutations = 0;
        for path in &segments {
            log::info!("Replaying {}", path.display());
            let mut reader = match SegmentReader::open(&**fs, path) {
                Ok(reader) => reader,
                Err(error) => {
                    self.skip_original(error.into())?;
                    continue;
                }
            };
            loop {
                match reader.next_mutation(schema) {
                    Ok(None) => break,
                    Ok(Some(mutation)) => {
                        self.apply_original(&mutation, &mut memory)?;
                        mutations += 1;
                    }
                    Err(error) => self.skip_original(error)?,
                }
            }
        }
        if !segments.is_empty() {
            log::info!("Log replay complete, {mutations} replayed mutations");
        }
        Ok(())
    }

    fn apply_original(&self, mutation: &RowMutation, memory: &mut Memory) -> Result<(), Unapplied> {
        let Self { environment, options, families } = *self;
        let key = environment.partitioner.decorate(mutation.key.clone());
        for change in &mutation.families {
            let at = families.binary_search_by_key(&change.family, |family| family.id());
            if let Ok(at) = at {
                families[at].apply(&key, change);
            }
        }
        memory.used = environment.memtable_memory.load(Ordering::Relaxed);
        let flush = || flush_all(families, Position::default());
        memory.bound(options.memtable_budget_bytes, flush)
    }

    /// Goes on after a mutation that cannot be applied, if that loss is accepted.
    fn skip_original(&self, error: SegmentError) -> Result<(), StorageError> {
        let is_damage = !matches!(error, SegmentError::Read(ReadError::Io(_)));
        if is_damage && self.options.accept_commitlog_loss {
            log::error!("a mutation is dropped: {error}. This loss is accepted");
            return Ok(());
        }
        Err(match error {
            SegmentError::Read(error) => unreadable(error),
            SegmentError::Write {
                file,
                offset,
                source: DecodeError::UnknownFamily { keyspace, family },
            } => {
                let place = format!("{}, write at byte {offset}", file.display());
                StorageError::Unconfigured { place, family: format!("{keyspace}.{family}") }
            }
            error @ SegmentError::Write { .. } => StorageError::Replay(error.to_string()),
        })
    }

    /// Whether the data directories know of a commit log: they have a mark of it, or SSTables that
    /// were written since it began. A server has marked its log before the first write.
    pub(super) fn is_expected(&self) -> Result<bool, FileError> {
        let mark = LogGuard::find(&*self.environment.fs, &self.options.data_directories)?;
        let mut flushed = self.families.iter().map(|family| family.flushed_position());
        Ok(mark.is_some() || flushed.any(|position| position > Position::default()))
    }

    /// Opens the log after the replay. If its disk has no room for even a small segment, what was
    /// replayed is flushed first, and its segments are removed.
    pub(super) fn open_log(&self, replayed: &mut Replayed) -> Result<CommitLog, StorageError> {
        let Self { environment: Environment { fs, clock, .. }, options, families } = *self;
        let flushed = families.iter().map(|family| family.flushed_position().segment).max();
        let log_options = LogOptions {
            dir: options.commit_log_directory.clone(),
            segment_bytes: options.segment_bytes,
            sync: options.sync,
            first_segment: flushed.unwrap_or(0) + 1,
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
                self.clear_log(replayed)?;
                Ok(open(replayed)?)
            }
            opened => Ok(opened?),
        }
    }

    /// Flushes what was replayed, and removes the segments that it came from. No list in the log
    /// can tell that they are not needed: the manifests do.
    fn clear_log(&self, replayed: &mut Replayed) -> Result<(), StorageError> {
        let Self { environment: Environment { fs, .. }, options, families } = *self;
        let end = replayed.end();
        let bytes = families.iter().map(|family| family.view().memory()).sum();
        flush_all(families, end).map_err(|source| StorageError::Flush { bytes, source })?;
        let directory = &options.commit_log_directory;
        if let Some(archive) = &options.commit_log_archive_directory {
            archive_all(&**fs, directory, archive)?;
        }
        for family in families {
            family.advance_flushed(end)?;
        }
        LogGuard::release(&**fs, &options.data_directories)?;
        Ok(replayed.remove_segments(&**fs).context("remove the segments of", directory)?)
    }
}

fn unreadable(error: ReadError) -> StorageError {
    match error {
        ReadError::Io(error) => error.into(),
        error => StorageError::Replay(error.to_string()),
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
    ) -> Result<(), Unapplied> {
        let bytes = self.used;
        if bytes <= self.flush_above {
            return Ok(());
        }
        match flush() {
            Ok(()) => self.flush_above = budget,
            Err(error) if error.is_shortage() && bytes <= budget + budget / OVERDRAFT => {
                log::error!(
                    "what was replayed stays in memory, and is replayed again if need be: {error}"
                );
                self.flush_above = bytes + budget / FLUSH_AGAIN;
            }
            Err(source) => return Err(Unapplied::Flush(bytes, source)),
        }
        Ok(())
    }
}

/// Writes all memtables to SSTables, which hold everything up to this position then.
pub(in crate::storage) fn flush_all(
    families: &[Arc<ColumnFamily>],
    position: Position,
) -> Result<(), ReadError> {
    for family in families {
        // What an earlier attempt could not write goes first, and is not divided further.
        for memtable in family.view().flushing.clone() {
            family.flush(&memtable)?;
        }
        if let Some(memtable) = family.switch_memtable() {
            memtable.seal(position);
            family.flush(&memtable)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(matches!(damaged, Unapplied::Flush(1100, _)), "{damaged:?}");
        memory.used = 1251;
        let full = memory.bound(1000, || Err(failure(io::ErrorKind::StorageFull))).unwrap_err();
        let text = StorageError::from(full).to_string();
        assert!(text.contains("1251 bytes") && text.contains("A-1.sst.tmp"), "{text}");
        memory.bound(1000, || Ok(())).unwrap();
        assert_eq!(memory.flush_above, 1000);
    }
}
