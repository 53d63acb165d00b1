//! The thread that brings complete segments into the archive.

use super::copy::{ArchiveError, put};
use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::base::lock::{Condvar, Mutex, rank};
use crate::storage::commitlog::{Appender, LogError};
use crate::storage::directory;
use crate::storage::error::FileContext;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause before a segment is tried again that could not be archived.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two errors about an archive that takes nothing.
const REMINDER: Duration = Duration::from_mins(1);

/// Speed of copies while few segments wait: the disks have other things to do.
const COPY_BYTES_PER_SECOND: u64 = 64 << 20;

/// With more segments waiting, copies are not paced, or the log would outgrow the disk.
const MAX_PACED: usize = 4;

/// Archives segments, and removes those from the log that it does not need.
#[derive(Debug)]
pub(in crate::storage) struct Archiver {
    fs: Arc<dyn FileSystem>,
    /// The folder to which segments go.
    folder: PathBuf,
    /// Whether it was there when the log was opened, or was made since. One that vanishes later is
    /// not made again: the archive may not be mounted any more.
    has_folder: AtomicBool,
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
    pub(in crate::storage) fn new(
        fs: Arc<dyn FileSystem>,
        folder: PathBuf,
        appender: Arc<Appender>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let has_folder = AtomicBool::new(fs.exists(&folder));
        let (mailbox, wake) = (Mutex::default(), Condvar::default());
        Self { fs, folder, has_folder, appender, clock, mailbox, wake }
    }

    /// Hands in a segment that is complete and durable.
    pub(in crate::storage) fn offer(&self, id: u64, path: PathBuf) {
        self.mailbox.lock().offered.insert(id, path);
        self.wake.notify_one();
    }

    /// Ends [`Self::run`] after one more attempt for each segment.
    pub(in crate::storage) fn close(&self) {
        self.mailbox.lock().closing = true;
        self.wake.notify_one();
    }

    /// Archives a segment on the caller's thread: the last one of a log that is closed.
    pub(in crate::storage) fn put_last(&self, id: u64, path: &Path) {
        if let Err(error) = self.put(id, path, &mut |_| {}) {
            log::error!("{} stays in the commit log: {error}", path.display());
        }
    }

    fn put(&self, id: u64, path: &Path, pace: &mut dyn FnMut(usize)) -> Result<(), ArchiveError> {
        if !self.has_folder.load(Ordering::Relaxed) {
            directory::create(&*self.fs, &self.folder).context("create", &self.folder)?;
            self.has_folder.store(true, Ordering::Relaxed);
        }
        put(&*self.fs, &self.folder, id, path, pace)?;
        self.appender.with_live(|live| live.note_archived(id));
        Ok(())
    }

    /// Works until it is closed.
    pub(in crate::storage) fn run(&self) {
        let folder = self.folder.display();
        let mut waiting = BTreeMap::new();
        let mut reminded: Option<Duration> = None;
        loop {
            let is_closing = self.collect(&mut waiting);
            let failure = self.archive(&mut waiting).err();
            let now = self.clock.monotonic();
            let is_due = reminded.is_none_or(|last| now.saturating_sub(last) >= REMINDER);
            match failure {
                None => {
                    if reminded.take().is_some() {
                        log::info!("the commit log archive {folder} works again");
                    }
                }
                Some(error) if is_due || is_closing => {
                    reminded = Some(now);
                    let count = waiting.len();
                    log::error!(
                        "the commit log archive {folder} takes nothing, {count} segments stay in \
                         the commit log until it does: {error}"
                    );
                }
                Some(_) => {}
            }
            if is_closing {
                return;
            }
        }
    }

    /// Waits for segments, and takes those that were handed in. Returns whether this is the last
    /// time.
    fn collect(&self, waiting: &mut BTreeMap<u64, PathBuf>) -> bool {
        let mut mailbox = self.mailbox.lock();
        let is_idle = |mailbox: &mut Mailbox| mailbox.offered.is_empty() && !mailbox.closing;
        if waiting.is_empty() {
            self.wake.wait_while(&mut mailbox, is_idle);
        } else {
            self.wake.wait_while_for(&mut mailbox, is_idle, RETRY_PAUSE);
        }
        waiting.append(&mut mailbox.offered);
        mailbox.closing
    }

    /// Tries each waiting segment once. Fails with the first failure.
    fn archive(&self, waiting: &mut BTreeMap<u64, PathBuf>) -> Result<(), ArchiveError> {
        let mut failure = Ok(());
        for (id, path) in waiting.clone() {
            let is_paced = waiting.len() <= MAX_PACED;
            let mut pace = |bytes| self.pace(bytes, is_paced);
            match self.put(id, &path, &mut pace) {
                Ok(()) => {
                    waiting.remove(&id);
                    self.discard();
                }
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        failure
    }

    /// Removes segments from the log that only waited for the archive.
    fn discard(&self) {
        match self.appender.discard_obsolete() {
            // The next start removes them.
            Ok(_) | Err(LogError::Closed | LogError::Failed { .. }) => {}
            Err(error) => log::warn!("commit log segments stay longer than needed: {error}"),
        }
    }

    fn pace(&self, bytes: usize, is_paced: bool) {
        if is_paced {
            let pause = Duration::from_secs_f64(bytes as f64 / COPY_BYTES_PER_SECOND as f64);
            let is_open = |mailbox: &mut Mailbox| !mailbox.closing;
            self.wake.wait_while_for(&mut self.mailbox.lock(), is_open, pause);
        }
    }
}
