//! What the flush threads do: write memtables to disk, and let the commit log forget them.

use super::super::background::{FlushCause, Next, Work};
use super::super::commitlog::{self, Position};
use super::super::error::{ReadError, is_out_of_handles};
use super::super::family::{self, ColumnFamily};
use super::super::memtable::Memtable;
use super::Core;
use crate::base::fs::is_disk_full;
use log::Level;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often flush threads look for memtables that have become too old.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Pause before a flush is tried again for which the machine had no room or no file handle.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Segments of the commit log from which on the families that pin the oldest one are flushed.
const MAX_LOG_SEGMENTS: u64 = 8;

/// Counts a memtable as long as it is being written.
struct Writing<'a>(&'a AtomicUsize);

impl<'a> Writing<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Switches the memtable and writes the old one to disk. What fails is tried again later, or
    /// stops writing to the family: the caller has nothing to do about it.
    pub(super) fn flush_for(
        &self,
        store: &Arc<ColumnFamily>,
        cause: FlushCause,
    ) -> Result<(), ReadError> {
        let flushed = self.flush_once(store, cause);
        flushed.inspect_err(|error| self.note_failed_flush(store, cause, error))
    }

    /// [`Core::flush_for`] for who gives up after a failure.
    pub(super) fn flush_once(
        &self,
        store: &Arc<ColumnFamily>,
        cause: FlushCause,
    ) -> Result<(), ReadError> {
        let _one_at_a_time = store.flush_lock();
        let left_over = store.view().flushing.clone();
        let is_asked_for_size = matches!(cause, FlushCause::Throughput | FlushCause::Operations);
        if is_asked_for_size && left_over.is_empty() && store.full_cause().is_none() {
            // Writers ask until the memtable is switched, the last of them while the flush that the
            // first has asked for is under way.
            return Ok(());
        }
        // What an earlier flush could not write goes first: the log forgets in order.
        for memtable in left_over {
            self.write_memtable(store, &memtable)?;
        }
        let gate = store.close_gate();
        let position = self.log.position();
        let switched = store.switch_memtable();
        drop(gate);
        if let Some(memtable) = switched {
            self.tell_switched(store, &memtable, position, cause);
            memtable.seal(self.sync_log_for(store.schema(), position));
            self.write_memtable(store, &memtable)?;
        }
        // Before the log lets its records go: until then they say that it was not noted yet.
        self.note_families();
        self.after_flush(store, position);
        Ok(())
    }

    /// Syncs the log up to this position before what it holds goes to SSTables: else a power loss
    /// could leave a mutation of two families by half, in the SSTable of the one, and not in the
    /// log for the other. Returns up to where the log is not needed any more.
    ///
    /// A log that has failed is no reason to keep from the disk what was acknowledged. It takes
    /// nothing more, and the place in its last segment is left open: the next start must not take
    /// everything before it for durable.
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
    fn write_memtable(
        &self,
        store: &ColumnFamily,
        memtable: &Arc<Memtable>,
    ) -> Result<(), ReadError> {
        let _one = Writing::new(&self.writing);
        let flushed = store.flush(memtable);
        match &flushed {
            Ok(()) => self.shortages.end(Some(store.id())),
            Err(error) if is_shortage(error) => self.shortages.flush_waits(store, error),
            Err(_) => {}
        }
        flushed
    }

    pub(super) fn tell_switched(
        &self,
        store: &ColumnFamily,
        memtable: &Memtable,
        position: Position,
        cause: FlushCause,
    ) {
        let name = &store.schema().name;
        let Position { segment, offset } = position;
        let file = commitlog::segment_file(&self.log_directory, position);
        let (file, memtable) = (file.display(), memtable.described(name, segment));
        let line = format_args!(
            "{name} {cause}; switching in a fresh Memtable at \
             CommitLogContext(file='{file}', position={offset}). Enqueuing flush of {memtable}"
        );
        self.environment.events.tell(Level::Info, family::FLUSH_TARGET, line);
    }

    /// Everything that was written to the store up to this position of the log is in SSTables.
    pub(super) fn after_flush(&self, store: &ColumnFamily, position: Position) {
        if let Err(error) = self.log.discard_completed(store.id().0, position) {
            log::warn!("commit log segments stay longer than needed: {error}");
        }
        self.wake_writers();
        self.request_compaction(store);
    }

    /// What each of the flush threads does.
    pub(super) fn run_flushes(&self) {
        loop {
            match self.flushes.next(AGE_CHECK) {
                Next::Closed => return,
                Next::Work(work @ Work::Flush(family, cause)) => {
                    let _running = self.flushes.running(work);
                    self.flushing.fetch_add(1, Ordering::Relaxed);
                    let flush = || drop(self.flush_for(self.family(family), cause));
                    self.guarded(family, "flush", flush);
                    self.flushing.fetch_sub(1, Ordering::Relaxed);
                    // Who waits for memory asks for no flush while one is under way.
                    self.request_for_memory();
                    self.wake_writers();
                }
                Next::Work(work @ Work::ReplayIsFlushed) => {
                    let _running = self.flushes.running(work);
                    self.forget_replayed_or_put_off();
                }
                Next::Idle => {}
            }
            self.request_oldest();
            self.request_what_pins_the_log();
            self.look_for_room();
        }
    }

    /// After a shortage the flush is tried again later, and other families go on meanwhile; any
    /// other failure stops writing to the family.
    pub(super) fn note_failed_flush(
        &self,
        store: &ColumnFamily,
        cause: FlushCause,
        error: &ReadError,
    ) {
        if is_shortage(error) {
            self.flushes.put_off(Work::Flush(store.id(), cause));
        } else {
            store.fail(format!("its memtable cannot be written to disk: {error}"));
        }
    }

    fn forget_replayed_or_put_off(&self) {
        if self.holds_replayed(|store| store.failure().is_none()) {
            // Another thread is still at it, or about to be, or waits for room.
            self.flushes.put_off(Work::ReplayIsFlushed);
        } else {
            self.forget_replayed();
        }
    }

    pub(super) fn forget_replayed(&self) {
        if self.holds_replayed(|_| true) {
            // A flush failed. The segments stay for the next start.
            return;
        }
        if let Err(error) = self.log.delete_replayed() {
            log::warn!("replayed commit log segments cannot be removed: {error}");
        }
    }

    /// Whether one of these stores has something in memory that was replayed. It may be in a
    /// memtable that is not even switched yet.
    fn holds_replayed(&self, which: impl Fn(&ColumnFamily) -> bool) -> bool {
        // Families that were added since have nothing that was replayed.
        let families = self.families();
        let mut holders =
            families.filter_map(|it| Some((it, self.replayed_into.get(it.id().0 as usize)?)));
        holders.any(|(store, replayed)| {
            let view = store.view();
            let mut held = view.memtables().filter(|memtable| !memtable.is_empty());
            let is_replayed = |memtable: &Arc<Memtable>| {
                replayed.iter().any(|replayed| Arc::as_ptr(memtable) == replayed.as_ptr())
            };
            which(store) && held.any(is_replayed)
        })
    }

    /// One memtable at a time, so that those which began together do not all end together.
    fn request_oldest(&self) {
        let now = self.environment.clock.monotonic();
        let age = |store: &ColumnFamily| {
            let active = Arc::clone(&store.view().active);
            let age = now.saturating_sub(active.created_at());
            (!active.is_empty() && age >= store.options().memtable_age).then_some(age)
        };
        // What could not be written would be tried again at once, and again, before all others.
        let sound = self.families().filter(|store| store.failure().is_none());
        let aged = sound.filter_map(|store| Some((age(store)?, store.id())));
        if let Some((_, family)) = aged.max() {
            self.flushes.push(Work::Flush(family, FlushCause::Age));
        }
    }

    /// A family that is hardly written to must not keep the log of all others from shrinking.
    fn request_what_pins_the_log(&self) {
        if self.log.total_bytes() <= MAX_LOG_SEGMENTS * self.segment_bytes {
            return;
        }
        // The active segment stays whoever is flushed.
        let active = self.log.position().segment;
        if self.log.oldest_dirty().is_some_and(|oldest| oldest.segment < active) {
            self.request_what_pins_the_oldest_segment();
        }
    }

    /// The families that keep the oldest segment, be it the active one: when all in that is flushed
    /// the log can do without.
    pub(super) fn request_what_pins_the_oldest_segment(&self) {
        let oldest = self.log.oldest_dirty();
        for family in oldest.into_iter().flat_map(|oldest| oldest.families) {
            let sound = self.stores.get(family as usize).filter(|s| s.failure().is_none());
            if let Some(store) = sound {
                self.flushes.push(Work::Flush(store.id(), FlushCause::CommitLogSize));
            }
        }
    }
}

/// Whether the machine lacks something that it may have again later. Nothing was damaged.
pub(super) fn is_shortage(error: &ReadError) -> bool {
    let ReadError::Io(file) = error else { return false };
    is_disk_full(&file.source) || is_out_of_handles(&file.source)
}
