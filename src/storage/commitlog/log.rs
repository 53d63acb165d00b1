//! The commit log as the store sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use log::{error, info, warn};

use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::base::lock::{Mutex, rank};
use crate::base::operations::Transfers;
use crate::storage::archive::Archiver;
use crate::storage::directory;
use crate::storage::error::FileContext;

use super::Position;
use super::appender::Appender;
use super::error::LogError;
use super::files::segment_ids;
use super::live::{LiveSegments, OldestDirty};
use super::replay::Replayed;
use super::segment::SegmentMaker;
use super::signal::SyncCallback;
use super::syncer::Syncer;

/// Times at which records become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Once in a period, if there is something new. Writers do not wait.
    Periodic {
        /// `CommitLogSyncPeriodInMS`.
        every: Duration,
    },
    /// As soon as a writer waits for it, after a window for others to join.
    Batch {
        /// `CommitLogSyncBatchWindowInMS`; may be zero.
        window: Duration,
    },
}

/// Settings of a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// `CommitLogDirectory`. No other process may use it.
    pub dir: PathBuf,
    /// `CommitLogRotationThresholdInMB`, in bytes: the preallocated size of a segment. A record
    /// that is larger gets a segment of its own size.
    pub segment_bytes: u64,
    /// Times at which records become durable.
    pub sync: SyncPolicy,
    /// Segment ids start above the segments that exist, and not below this: a caller that keeps
    /// positions elsewhere passes the greatest segment it knows plus one, so that positions grow
    /// even if the directory is emptied and the clock set back.
    pub first_segment: u64,
    /// Folder of the archive for segments that the log has no use for any more. No other process
    /// may use it.
    pub archive: Option<PathBuf>,
}

/// An open commit log. All methods may be called from many threads.
#[derive(Debug)]
pub struct CommitLog {
    pub(super) appender: Arc<Appender>,
    archiver: Option<Arc<Archiver>>,
    threads: Mutex<rank::State, Option<Threads>>,
}

/// Threads that work until the log is closed.
#[derive(Debug)]
struct Threads {
    sync: JoinHandle<Result<(), LogError>>,
    archive: Option<JoinHandle<()>>,
}

impl CommitLog {
    /// Opens the log after what [`super::replay()`] has found. Never writes to an old segment;
    /// they stay until [`CommitLog::delete_replayed`]. Removes the files that replay had no use
    /// for. `rng` draws the identity of a log that begins.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        mut rng: fastrand::Rng,
        options: LogOptions,
        replayed: Replayed,
    ) -> Result<Self, LogError> {
        let LogOptions { dir, segment_bytes, sync, first_segment, archive } = options;
        directory::create(&*fs, &dir).context("create", &dir)?;
        // Milliseconds, as the names of 0.6 had them: operators see when a run began.
        let millis = u64::try_from(clock.now_micros() / 1000).unwrap_or(0);
        let in_archive = archive.as_deref().map_or(Ok(0), |folder| newest_segment(&*fs, folder))?;
        // Older segments may be gone from here; what is known of them elsewhere counts.
        let previous = replayed.newest_id.max(first_segment.saturating_sub(1));
        let run = (previous.max(in_archive) + 1).max(millis);
        let mut live = LiveSegments::new(archive.is_some());
        for segment in &replayed.segments {
            live.add(segment.id, segment.path.clone(), Some(segment.bytes));
        }
        let identity = replayed.identity.unwrap_or_else(|| rng.u64(..));
        let ids = (previous, run);
        let maker = SegmentMaker::new(Arc::clone(&fs), dir.clone(), ids, segment_bytes, identity);
        for path in &replayed.leftovers {
            // The newest list, which replay has made durable, leaves them out.
            info!("Discarding unused commit log file {}", path.display());
            maker.remove(path);
        }
        let appender = Arc::new(Appender::start(maker, live, Arc::clone(&clock))?);
        let archiver = archive.map(|folder| {
            Arc::new(Archiver::new(fs, folder, Arc::clone(&appender), Arc::clone(&clock)))
        });
        // The segments of earlier runs are complete, and replay has synced them.
        for segment in replayed.segments {
            if let Some(archiver) = &archiver {
                archiver.offer(segment.id, segment.path);
            }
        }
        let syncer = Syncer {
            appender: Arc::clone(&appender),
            archiver: archiver.clone(),
            policy: sync,
            last_sync: clock.monotonic(),
            clock,
        };
        let sync = spawn("commitlog-sync", &dir, move || syncer.run())?;
        // Should this one not start, dropping the log ends the other.
        let mut threads = Threads { sync, archive: None };
        if let Some(archiver) = archiver.clone() {
            let archive = spawn("commitlog-archive", &dir, move || archiver.run());
            match archive {
                Ok(archive) => threads.archive = Some(archive),
                Err(error) => {
                    drop(Self { appender, archiver: None, threads: Mutex::new(Some(threads)) });
                    return Err(error);
                }
            }
        }
        Ok(Self { appender, archiver, threads: Mutex::new(Some(threads)) })
    }

    /// Appends records, each a body and the column families with data in it, by one write. Returns
    /// where the last one ends, `None` for no records, once the operating system has them: the end
    /// of the process alone does not lose them. Without `may_block` it does not wait until a
    /// segment is made: that is [`LogError::WouldBlock`].
    ///
    /// After [`LogError::NoSpace`], [`LogError::Io`] or [`LogError::TooLarge`] the record that it
    /// speaks of was not taken, and those before it may be replayed. After [`LogError::Failed`] any
    /// of them may be.
    pub fn append_all<'a>(
        &self,
        records: impl Iterator<Item = (&'a [u8], &'a [u32])>,
        may_block: bool,
    ) -> Result<Option<Position>, LogError> {
        self.appender.append_all(records, may_block)
    }

    /// Calls back once, when everything up to `position` is durable or never will be: at once if
    /// that is known, otherwise on the sync thread, which the callback must not keep. With
    /// periodic sync that is at the end of the period. A position that was not handed out yet
    /// counts as the present end.
    pub fn on_synced(&self, position: Position, callback: SyncCallback) {
        self.appender.wait_for(position, false, callback);
    }

    /// Makes everything that has been appended durable now, whatever the policy.
    pub fn sync_now(&self) -> Result<(), LogError> {
        self.appender.wait(self.appender.written_position(), true)?;
        // What a failed write was to append is not durable, whatever was before.
        match self.failure() {
            Some(failed @ LogError::Failed { .. }) => Err(failed),
            _ => Ok(()),
        }
    }

    /// End of the last record: what is appended from now on has a greater position.
    pub fn position(&self) -> Position {
        self.appender.position()
    }

    /// Number that all segments of this log carry, and those of no other.
    pub fn identity(&self) -> u64 {
        self.appender.maker.identity
    }

    /// Failure that has stopped the log, if any: it takes nothing any more until the next start.
    pub fn failure(&self) -> Option<LogError> {
        self.appender.poison.check().err()
    }

    /// Makes the next segment ready if it is not yet.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] where the machine has no room for it.
    pub fn prepare_segment(&self) -> Result<(), LogError> {
        self.appender.maker.prepare()
    }

    /// Bytes written into all segments that are needed, those of earlier runs included.
    pub fn total_bytes(&self) -> u64 {
        self.appender.with_live(|live| live.total_bytes())
    }

    /// Number of segments, those that only wait for the archive included.
    pub fn segments(&self) -> usize {
        self.appender.with_live(|live| live.len())
    }

    /// Syncs since the start, and the bytes that were written.
    pub fn syncs(&self) -> &Transfers {
        &self.appender.syncs
    }

    /// Column families that keep the oldest segment. Flushing them frees it.
    pub fn oldest_dirty(&self) -> Option<OldestDirty> {
        self.appender.with_live(|live| live.oldest_dirty())
    }

    /// Notes that all data of the family up to `up_to` are flushed, and removes the segments that
    /// are not needed any more. Waits for a sync if there are any: the fact that a segment is
    /// not needed has to be durable first, so that replay does not miss it.
    pub fn discard_completed(&self, family: u32, up_to: Position) -> Result<(), LogError> {
        self.appender.with_live(|live| live.clean(family, up_to));
        self.appender.discard_obsolete().map(drop)
    }

    /// Removes the segments of earlier runs: everything that was replayed is flushed now.
    pub fn delete_replayed(&self) -> Result<(), LogError> {
        self.appender.with_live(|live| live.replayed_is_flushed = true);
        self.appender.discard_obsolete().map(drop)
    }

    /// Makes everything durable, seals the log and ends the sync thread. Later appends get
    /// [`LogError::Closed`]. The second and later calls do nothing.
    pub fn close(&self) -> Result<(), LogError> {
        let threads = self.threads.lock().take();
        let Some(Threads { sync, archive }) = threads else { return Ok(()) };
        if let (Some(archiver), Some(archive)) = (&self.archiver, archive) {
            // The log still has to work for what the archive gets now to be removed. A log that has
            // failed has nothing to hand in.
            let _ = self.sync_now();
            archiver.close();
            if archive.join().is_err() {
                error!("the archive thread of the commit log ended by a panic");
            }
        }
        // Later no list can be written any more.
        match self.appender.discard_obsolete() {
            Ok(_) | Err(LogError::Closed | LogError::Failed { .. }) => {}
            Err(error) => warn!("commit log segments stay longer than needed: {error}"),
        }
        self.appender.close();
        self.appender.signal.close();
        let closed = sync.join().unwrap_or(Err(LogError::Closed));
        if let (Ok(()), Some(archiver)) = (&closed, &self.archiver) {
            for (id, path) in self.appender.with_live(|live| live.unarchived()) {
                archiver.put_last(id, &path);
            }
        }
        closed
    }

    /// Closes the log, and removes its last segment if that is not needed: then the next start has
    /// nothing to replay, whatever the configuration is by then. `may_clear` is called just before.
    pub fn close_and_clear(&self, may_clear: impl FnOnce() -> bool) -> Result<(), LogError> {
        self.close()?;
        if let Some(path) = self.appender.with_live(|live| live.last_unneeded())
            && may_clear()
        {
            self.appender.maker.remove_last(&path).context("remove", &path)?;
        }
        Ok(())
    }
}

fn newest_segment(fs: &dyn FileSystem, folder: &Path) -> Result<u64, LogError> {
    let ids = segment_ids(fs, folder).context("read", folder)?;
    Ok(ids.last().copied().unwrap_or(0))
}

fn spawn<T: Send + 'static>(
    name: &str,
    dir: &Path,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LogError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    Ok(thread.context("start a thread of", dir)?)
}

impl Drop for CommitLog {
    fn drop(&mut self) {
        if let Err(failure) = self.close() {
            error!("closing the commit log: {failure}");
        }
    }
}
