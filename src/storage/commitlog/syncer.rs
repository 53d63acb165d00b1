//! The sync thread: the only place that syncs what callers have written.

use std::sync::Arc;
use std::time::Duration;

use log::{error, warn};

use crate::base::clock::Clock;
use crate::storage::archive::Archiver;

use super::SyncPolicy;
use super::appender::Appender;
use super::error::LogError;
use super::segment::Segment;
use super::signal::Task;

/// A sync that takes longer is logged: writers in batch mode have waited for it.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// The sync thread.
#[derive(Debug)]
pub(super) struct Syncer {
    pub(super) appender: Arc<Appender>,
    /// Takes the segments that are complete.
    pub(super) archiver: Option<Arc<Archiver>>,
    pub(super) policy: SyncPolicy,
    /// For the period, and for noticing slow disks.
    pub(super) clock: Arc<dyn Clock>,
    /// End of the last period, on the monotonic clock.
    pub(super) last_sync: Duration,
}

/// Stops the log when the sync thread ends, also by a panic: later records would never become
/// durable, and waiters would wait forever.
struct StopAtEnd<'a>(&'a Appender);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        let reason = self.0.poison.set(LogError::Closed);
        self.0.signal.end(&reason);
    }
}

impl Syncer {
    /// Works until the log is closed or fails.
    pub(super) fn run(self) -> Result<(), LogError> {
        let _stop = StopAtEnd(&self.appender);
        let mut last_sync = self.last_sync;
        loop {
            match self.appender.signal.next(self.policy, &*self.clock, &mut last_sync) {
                Task::Sync { force } => {
                    if let Err(failure) = self.sync(force) {
                        error!("{failure}");
                        return Err(failure);
                    }
                }
                Task::Prepare => {
                    if let Err(failure) = self.appender.maker.prepare() {
                        // The writer that needs the segment tries again and gets the error.
                        warn!("cannot make the next commit log segment ahead of need: {failure}");
                    }
                }
                Task::Close => return self.close(),
                Task::End => {
                    let failure = self.appender.poison.check();
                    if let Err(failure) = &failure {
                        error!("{failure}");
                    }
                    return failure;
                }
            }
        }
    }

    fn sync(&self, force: bool) -> Result<(), LogError> {
        let Some((segments, target)) = self.appender.begin_sync(force)? else { return Ok(()) };
        for segment in &segments {
            self.sync_segment(segment)?;
        }
        // The mark first, so that it outlives the process if any caller knows of the sync.
        let marked = self.appender.mark_synced(target);
        self.appender.signal.completed(target);
        if let (Some(archiver), [complete @ .., _active]) = (&self.archiver, &segments[..]) {
            for segment in complete {
                archiver.offer(segment.id, segment.path.clone());
            }
        }
        marked
    }

    fn close(&self) -> Result<(), LogError> {
        self.sync(true)?;
        let segment = self.appender.seal()?;
        self.sync_segment(&segment)?;
        self.appender.cut(&segment)?;
        self.sync_segment(&segment)?;
        self.appender.signal.completed(self.appender.written_position());
        self.appender.maker.discard_ready();
        Ok(())
    }

    fn sync_segment(&self, segment: &Segment) -> Result<(), LogError> {
        let began = self.clock.monotonic();
        let failed = |source| LogError::failed("sync", &segment.path, source);
        segment.file.sync().map_err(|source| self.appender.fail(failed(source)))?;
        let took = self.clock.monotonic().saturating_sub(began);
        self.appender.syncs.operations.record(took);
        if took > SLOW_SYNC {
            let (path, took) = (segment.path.display(), took.as_millis());
            warn!("syncing CommitLogSegment({path}) took {took} ms");
        }
        Ok(())
    }
}
