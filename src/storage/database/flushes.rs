//! Writes memtables to disk, and lets the commit log forget them.

use super::super::commitlog::{Position, segment_path};
use super::super::error::ReadError;
use super::super::family::{self, ColumnFamily};
use super::super::flush_queue::FlushCause;
use super::super::memtable::Memtable;
use super::Core;
use log::Level;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Period of the search for memtables that are too old.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Pause before a flush is retried for which the machine had no room or no file handle.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Segments of the commit log from which on the families that pin the oldest one are flushed.
const MAX_LOG_SEGMENTS: u64 = 8;

impl Core {
    /// Switches the memtable and writes the old one to disk. A failure is retried later, or stops
    /// writing to the family: the caller need not act on it.
    pub(super) fn flush_for(
        &self,
        family: &ColumnFamily,
        cause: FlushCause,
    ) -> Result<(), ReadError> {
        let flushed = self.flush_once(family, cause);
        flushed.inspect_err(|error| self.note_failed_flush(family, cause, error))
    }

    /// [`Core::flush_for`] without a retry.
    pub(super) fn flush_once(
        &self,
        family: &ColumnFamily,
        cause: FlushCause,
    ) -> Result<(), ReadError> {
        let _one_at_a_time = family.flush_lock();
        let left_over = family.view().flushing.clone();
        let is_asked_for_size = matches!(cause, FlushCause::Throughput | FlushCause::Operations);
        if is_asked_for_size && left_over.is_empty() && family.full_cause().is_none() {
            // Writers ask until the memtable is switched, the last of them during the flush that
            // the first has asked for.
            return Ok(());
        }
        // Memtables that an earlier flush could not write go first: the log forgets in order.
        for memtable in left_over {
            self.write_memtable(family, &memtable)?;
        }
        let gate = family.close_gate();
        let position = self.log.position();
        let switched = family.switch_memtable();
        drop(gate);
        if let Some(memtable) = switched {
            self.tell_switched(family, &memtable, position, cause);
            memtable.seal(self.sync_log_for(family.schema(), position));
            self.write_memtable(family, &memtable)?;
        }
        // Before the log lets its records go: until then they prove that there are data.
        self.note_families();
        self.after_flush(family, position);
        Ok(())
    }

    /// Syncs the log up to this position before its records go to SSTables: else a power loss
    /// could leave half of a mutation of two families, in the SSTable of the one, and not in the
    /// log for the other. Returns up to where the log is not needed any more.
    ///
    /// A log that has failed is no reason to keep acknowledged writes from the disk. It takes
    /// no more writes, and the place in its last segment is left open: the next start must not
    /// take everything before it for durable.
    pub(super) fn sync_log_for(&self, what: &dyn fmt::Display, position: Position) -> Position {
        match self.log.sync_now() {
            Ok(()) => position,
            Err(error) => {
                log::warn!("{what}: memtables are flushed, but not the commit log: {error}");
                Position { offset: u64::MAX, ..position }
            }
        }
    }

    /// Writes a memtable to disk that was switched before.
    pub(super) fn write_memtable(
        &self,
        family: &ColumnFamily,
        memtable: &Arc<Memtable>,
    ) -> Result<(), ReadError> {
        let _counted = self.writing.count();
        let flushed = family.flush(memtable);
        match &flushed {
            Ok(()) => self.shortages.end(Some(family.id())),
            Err(error) if error.is_shortage() => self.shortages.flush_waits(family, error),
            Err(_) => {}
        }
        flushed
    }

    pub(super) fn tell_switched(
        &self,
        family: &ColumnFamily,
        memtable: &Memtable,
        position: Position,
        cause: FlushCause,
    ) {
        let name = &family.schema().name;
        let Position { segment, offset } = position;
        let file = segment_path(&self.options.commit_log_directory, segment);
        let (file, memtable) = (file.display(), memtable.described(name, segment));
        let line = format_args!(
            "{name} {cause}; switching in a fresh Memtable at \
             CommitLogContext(file='{file}', position={offset}). Enqueuing flush of {memtable}"
        );
        self.environment.events.tell(Level::Info, family::FLUSH_TARGET, line);
    }

    /// Releases the log up to this position: everything before it is in SSTables of the family.
    pub(super) fn after_flush(&self, family: &ColumnFamily, position: Position) {
        if let Err(error) = self.log.discard_completed(family.id().0, position) {
            log::warn!("commit log segments stay longer than needed: {error}");
        }
        self.wake_writers();
        self.request_compaction(family);
    }

    /// The loop of a flush thread.
    pub(super) fn run_flushes(&self) {
        while let Ok(next) = self.flushes.next(AGE_CHECK) {
            if let Some(flushing) = next {
                let family = self.family(flushing.family);
                let flush = || drop(self.flush_for(family, flushing.cause));
                Self::guarded(family, "flush", flush);
                drop(flushing);
                // Writers that wait for memory request no flush while one is running.
                self.request_for_memory();
                self.wake_writers();
            }
            self.forget_replayed();
            self.request_oldest();
            self.request_what_pins_the_log();
            self.look_for_room();
        }
    }

    /// After a shortage the flush is retried later, and other families go on meanwhile; any other
    /// failure stops writing to the family.
    pub(super) fn note_failed_flush(
        &self,
        family: &ColumnFamily,
        cause: FlushCause,
        error: &ReadError,
    ) {
        if error.is_shortage() {
            self.flushes.defer(family.id(), cause);
        } else {
            family.fail(format!("its memtable cannot be written to disk: {error}"));
        }
    }

    /// Removes the replayed segments of the log as soon as all of their records are in SSTables.
    pub(super) fn forget_replayed(&self) {
        if !self.has_replayed.load(Ordering::Relaxed)
            || self.families().any(|it| self.holds_replayed(it))
        {
            return;
        }
        if self.has_replayed.swap(false, Ordering::Relaxed)
            && let Err(error) = self.log.delete_replayed()
        {
            log::warn!("replayed commit log segments cannot be removed: {error}");
        }
    }

    /// Whether a family has replayed records in memory, perhaps in its active memtable.
    fn holds_replayed(&self, family: &ColumnFamily) -> bool {
        // Families that were added since the start have none.
        let Some(replayed) = self.replayed_into.get(family.id().0 as usize) else { return false };
        let is_replayed = |memtable: &Arc<Memtable>| {
            replayed.iter().any(|replayed| Arc::as_ptr(memtable) == replayed.as_ptr())
        };
        family.view().memtables().any(|memtable| !memtable.is_empty() && is_replayed(memtable))
    }

    /// Requests one memtable at a time, so that those which began together do not all end
    /// together.
    fn request_oldest(&self) {
        let now = self.environment.clock.monotonic();
        let age = |family: &ColumnFamily| {
            let active = Arc::clone(&family.view().active);
            let age = now.saturating_sub(active.created_at());
            (!active.is_empty() && age >= family.options().memtable_age).then_some(age)
        };
        // A failed family would be tried again and again, before all others.
        let aged = self.sound_families().filter_map(|it| Some((age(it)?, it.id())));
        if let Some((_, id)) = aged.max() {
            self.flushes.push(id, FlushCause::Age);
        }
    }

    /// A family that is hardly written to must not keep the log of all others from shrinking.
    fn request_what_pins_the_log(&self) {
        if self.log.total_bytes() <= MAX_LOG_SEGMENTS * self.options.segment_bytes {
            return;
        }
        // No flush removes the active segment.
        let active = self.log.position().segment;
        if self.log.oldest_dirty().is_some_and(|oldest| oldest.segment < active) {
            self.request_what_pins_the_oldest_segment();
        }
    }

    /// Requests the families that keep the oldest segment, even if that is the active one: without
    /// unflushed records the log needs no segment.
    pub(super) fn request_what_pins_the_oldest_segment(&self) {
        let oldest = self.log.oldest_dirty();
        for number in oldest.into_iter().flat_map(|oldest| oldest.families) {
            let family = self.families.get(number as usize);
            if let Some(family) = family.filter(|family| family.failure().is_none()) {
                self.flushes.push(family.id(), FlushCause::CommitLogSize);
            }
        }
    }
}
