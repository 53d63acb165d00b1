//! The thread that brings complete segments into the archive.

use super::super::appender::Appender;
use super::super::error::LogError;
use super::copy::{Archive, ArchiveError};
use crate::base::clock::Clock;
use crate::base::lock::{Condvar, Mutex, MutexGuard, rank};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a segment is tried again that could not be archived.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two errors about an archive that takes nothing.
const REMINDER: Duration = Duration::from_mins(1);

/// Speed of copies as long as few segments wait: the disks have other things to do.
const COPY_BYTES_PER_SECOND: u64 = 64 << 20;

/// With more segments waiting the copy goes as fast as it can, or the log would outgrow the disk.
const MAX_UNHURRIED: usize = 4;

/// Archives segments, and removes those from the log that it does not need.
#[derive(Debug)]
pub(in super::super) struct Archiver {
    archive: Archive,
    appender: Arc<Appender>,
    clock: Arc<dyn Clock>,
    mailbox: Mutex<rank::State, Mailbox>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// Complete segments that were handed in lately, by id.
    offered: BTreeMap<u64, PathBuf>,
    closing: bool,
}

impl Archiver {
    /// An archiver that has not begun.
    pub(in super::super) fn new(
        archive: Archive,
        appender: Arc<Appender>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mailbox = Mutex::default();
        Self { archive, appender, clock, mailbox, wake: Condvar::default() }
    }

    /// Hands in a segment that is complete and durable.
    pub(in super::super) fn offer(&self, id: u64, path: PathBuf) {
        self.mailbox().offered.insert(id, path);
        self.wake.notify_one();
    }

    /// Ends [`Self::run`] after one more attempt for each segment.
    pub(in super::super) fn close(&self) {
        self.mailbox().closing = true;
        self.wake.notify_one();
    }

    /// Archives a segment on the caller's thread: the last one of a log that is closed.
    pub(in super::super) fn put_last(&self, id: u64, path: &std::path::Path) {
        match self.archive.put(id, path, &mut |_| {}) {
            Ok(()) => self.appender.note_archived(id),
            Err(error) => {
                log::error!("{} stays in the commit log: {error}", path.display());
            }
        }
    }

    /// Works until it is closed.
    pub(in super::super) fn run(&self) {
        let mut waiting = BTreeMap::new();
        let mut reminded: Option<Duration> = None;
        loop {
            let is_closing = self.collect(&mut waiting);
            let failure = self.archive(&mut waiting);
            let now = self.clock.monotonic();
            match failure {
                None if reminded.take().is_some() => {
                    log::info!(
                        "the commit log archive {} works again",
                        self.archive.dir().display()
                    );
                }
                None => {}
                Some(error) => {
                    let is_due = reminded.is_none_or(|last| now.saturating_sub(last) >= REMINDER);
                    if is_due || is_closing {
                        reminded = Some(now);
                        let (dir, count) = (self.archive.dir().display(), waiting.len());
                        log::error!(
                            "the commit log archive {dir} takes nothing, {count} segments stay in \
                             the commit log until it does: {error}"
                        );
                    }
                }
            }
            if is_closing {
                return;
            }
        }
    }

    /// Waits for something to do, and takes what was handed in. Whether this is the last time.
    fn collect(&self, waiting: &mut BTreeMap<u64, PathBuf>) -> bool {
        let mut mailbox = self.mailbox();
        let is_idle = |mailbox: &mut Mailbox| mailbox.offered.is_empty() && !mailbox.closing;
        if waiting.is_empty() {
            self.wake.wait_while(&mut mailbox, is_idle);
        } else {
            self.wake.wait_while_for(&mut mailbox, is_idle, RETRY_PAUSE);
        }
        waiting.append(&mut mailbox.offered);
        mailbox.closing
    }

    /// Tries all that wait once; returns the first failure.
    fn archive(&self, waiting: &mut BTreeMap<u64, PathBuf>) -> Option<ArchiveError> {
        let mut failure = None;
        let ids: Vec<u64> = waiting.keys().copied().collect();
        for id in ids {
            let Some(path) = waiting.get(&id).cloned() else { continue };
            let is_behind = waiting.len() > MAX_UNHURRIED;
            match self.archive.put(id, &path, &mut |bytes| self.pace(bytes, is_behind)) {
                Ok(()) => {
                    waiting.remove(&id);
                    self.appender.note_archived(id);
                    self.discard();
                }
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        failure
    }

    /// Removes what only the archive was still to get.
    fn discard(&self) {
        match self.appender.discard_obsolete() {
            // The next start removes it.
            Ok(()) | Err(LogError::Closed | LogError::Failed { .. }) => {}
            Err(error) => log::warn!("commit log segments stay longer than needed: {error}"),
        }
    }

    fn pace(&self, bytes: usize, is_behind: bool) {
        if !is_behind {
            let pause = Duration::from_secs_f64(bytes as f64 / COPY_BYTES_PER_SECOND as f64);
            let is_open = |mailbox: &mut Mailbox| !mailbox.closing;
            self.wake.wait_while_for(&mut self.mailbox(), is_open, pause);
        }
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock()
    }
}
