//! Appends records to the active segment.
//!
//! A caller takes the queue's lock to get a place and to copy its record there. Then it takes the
//! writer's lock. The thread that gets it writes everything queued by then; the others find their
//! records written when they get the lock. A single writer pays three uncontended locks for that,
//! many writers share one `write`.
//!
//! Locks are taken in the order writer, segment maker, queue, sync state. The queue needs no bound:
//! each caller waits for its records, so there is one batch per thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use log::info;

use super::Position;
use super::error::{LogError, Poison};
use super::format::{Control, HEADER_BYTES, SEAL_BYTES, TIME_BYTES, encode_record};
use super::live::LiveSegments;
use super::segment::{SMALL_SEGMENT_BYTES, Segment, SegmentMaker};
use super::signal::{SyncCallback, SyncSignal};
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::base::operations::Transfers;
use crate::storage::log::{HEAD_BYTES, Head, MAX_BODY_BYTES};

/// Buffers that have grown above this are given back after use.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Interval of notes of the time: the precision of a restore to a point in time.
const TIME_MARK_MILLIS: i64 = 100;

/// A clock that goes back by less was not set back: two threads have read it and were queued in the
/// other order.
const CLOCK_JITTER_MILLIS: i64 = 1000;

/// Bytes that a run can append however full the disk is: a start has something to note.
const FIRST_RECORDS_BYTES: u64 = 1024;

/// The write side of the log, shared by all callers and the sync thread.
#[derive(Debug)]
pub(in crate::storage) struct Appender {
    pub(super) maker: SegmentMaker,
    /// Set by the first failed write or sync.
    pub(super) poison: Poison,
    /// Mailbox of the sync thread.
    pub(super) signal: SyncSignal,
    clock: Arc<dyn Clock>,
    queue: Mutex<rank::State, Queue>,
    writer: Mutex<rank::Files, Writer>,
    /// Number of records that the operating system has.
    written: AtomicU64,
    /// Syncs, and the bytes that were written.
    pub(super) syncs: Transfers,
}

/// The active segment, and the bytes to be written to it next.
#[derive(Debug)]
struct Queue {
    segment: Arc<Segment>,
    /// Offset of `pending` in the segment.
    start: u64,
    pending: Vec<u8>,
    /// Records queued since the log was opened.
    tickets: u64,
    /// Whether a record of a caller was queued since the last write.
    fresh: bool,
    /// Whether the sync thread has been asked for the segment after this one.
    spare_wanted: bool,
    closed: bool,
    /// The last noted time.
    noted_millis: u64,
    live: LiveSegments,
}

/// State of the thread that writes.
#[derive(Debug)]
struct Writer {
    /// Changes places with the queue's buffer, so that both are reused.
    buffer: Vec<u8>,
    /// The operating system has everything before this.
    written: Position,
    /// Segments with content that was not synced yet; the last is the active one.
    unsynced: Vec<Arc<Segment>>,
    /// Whether a record of a caller was written since the last sync began.
    fresh: bool,
}

/// One write to be done: the bytes are in the writer's buffer.
#[derive(Debug)]
struct Chunk {
    segment: Arc<Segment>,
    start: u64,
    tickets: u64,
    fresh: bool,
}

/// Segments to be synced, and the position up to which all is durable afterwards.
type SyncWork = (Vec<Arc<Segment>>, Position);

impl Queue {
    fn end(&self) -> u64 {
        self.start + self.pending.len() as u64
    }

    fn position(&self) -> Position {
        Position { segment: self.segment.id, offset: self.end() }
    }

    /// Whether the active segment can take `bytes` more and still be sealed.
    fn has_room(&self, bytes: u64) -> bool {
        self.end() + bytes + SEAL_BYTES <= self.segment.capacity
    }

    /// Whether it can also take a list of needed segments: on a full disk nothing can be removed
    /// without one.
    fn fits(&self, bytes: u64) -> bool {
        self.has_room(bytes + Control::needed_bytes(self.live.len()))
    }

    /// Whether all in the active segment is flushed, and its removal would free more space than a
    /// small segment needs.
    fn is_worth_leaving(&self) -> bool {
        self.segment.capacity > SMALL_SEGMENT_BYTES && self.live.is_active_clean()
    }

    fn push(&mut self, head: Head, body: &[u8], families: &[u32]) {
        let offset = self.end();
        encode_record(&mut self.pending, self.segment.salt, offset, head, body);
        self.tickets += 1;
        self.fresh |= !head.is_control;
        let end = self.end();
        self.live.mark(families, end);
    }

    fn push_control(&mut self, control: &Control) {
        let body = control.encode();
        self.push(Head::of(true, &body), &body, &[]);
    }

    /// Notes the time for what comes next, unless that was done a moment ago.
    fn note_time(&mut self, now_millis: u64) {
        let passed = now_millis.wrapping_sub(self.noted_millis) as i64;
        if !(-CLOCK_JITTER_MILLIS..TIME_MARK_MILLIS).contains(&passed) {
            self.begin_time(now_millis);
        }
    }

    fn begin_time(&mut self, millis: u64) {
        self.noted_millis = millis;
        self.push_control(&Control::Time { millis });
    }

    /// Makes this the active segment. Its first records are the needed segments and the time.
    fn activate(&mut self, segment: Arc<Segment>, now_millis: u64) {
        debug_assert!(self.pending.is_empty(), "what belongs to the old segment has been taken");
        self.live.add(segment.id, segment.path.clone(), None);
        self.segment = segment;
        self.start = HEADER_BYTES;
        self.spare_wanted = false;
        self.push_control(&Control::Needed(self.live.ids()));
        self.begin_time(now_millis);
    }

    /// Moves what is pending into `buffer`.
    fn take(&mut self, buffer: &mut Vec<u8>) -> Chunk {
        // Replay would lose what follows a gap.
        assert!(buffer.is_empty(), "a write to the commit log was broken off by a panic");
        let start = self.start;
        self.start = self.end();
        std::mem::swap(&mut self.pending, buffer);
        Chunk {
            segment: Arc::clone(&self.segment),
            start,
            tickets: self.tickets,
            fresh: std::mem::take(&mut self.fresh),
        }
    }
}

/// Bytes that a new segment must hold: its first records, `bytes`, another list of needed segments,
/// and the seal.
fn fresh_bytes(live: &LiveSegments, bytes: u64) -> u64 {
    let list_bytes = Control::needed_bytes(live.len() + 1);
    HEADER_BYTES + list_bytes + TIME_BYTES + bytes + list_bytes + SEAL_BYTES
}

impl Appender {
    /// Starts a run: creates its first segment, durably, with the list of needed segments.
    pub(super) fn start(
        maker: SegmentMaker,
        live: LiveSegments,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        let small = fresh_bytes(&live, FIRST_RECORDS_BYTES);
        let segment = Arc::new(maker.take(fresh_bytes(&live, 0), Some(small))?);
        let mut queue = Queue {
            segment: Arc::clone(&segment),
            start: HEADER_BYTES,
            pending: Vec::new(),
            tickets: 0,
            fresh: false,
            spare_wanted: false,
            closed: false,
            noted_millis: 0,
            live,
        };
        queue.activate(Arc::clone(&segment), clock.coarse_millis());
        let start = Position { segment: segment.id, offset: HEADER_BYTES };
        let writer = Writer {
            buffer: Vec::new(),
            written: start,
            unsynced: vec![Arc::clone(&segment)],
            fresh: false,
        };
        let appender = Self {
            maker,
            poison: Poison::default(),
            signal: SyncSignal::new(start),
            clock,
            queue: Mutex::new(queue),
            writer: Mutex::new(writer),
            written: AtomicU64::new(0),
            syncs: Transfers::default(),
        };
        appender.flush(&mut appender.writer.lock())?;
        segment.file.sync().map_err(|source| LogError::failed("sync", &segment.path, source))?;
        appender.signal.completed(appender.written_position());
        Ok(appender)
    }

    /// Appends records by one write, and returns where the last one ends; `None` for no records.
    /// After an error some of them may be there, except after [`LogError::WouldBlock`].
    pub(super) fn append_all<'a>(
        &self,
        records: impl Iterator<Item = (&'a [u8], &'a [u32])>,
        may_block: bool,
    ) -> Result<Option<Position>, LogError> {
        let mut last = None;
        for (body, families) in records {
            // A batch that has begun is completed, though it may have to wait for a segment.
            last = Some(self.enqueue(body, families, may_block || last.is_some())?);
        }
        let Some((ticket, position)) = last else { return Ok(None) };
        self.write_out(ticket)?;
        Ok(Some(position))
    }

    /// Gives a record its place in the queue; [`Self::write_out`] takes the ticket.
    fn enqueue(
        &self,
        body: &[u8],
        families: &[u32],
        may_block: bool,
    ) -> Result<(u64, Position), LogError> {
        let bytes = body.len() as u64;
        if bytes > MAX_BODY_BYTES {
            return Err(LogError::TooLarge { bytes, limit: MAX_BODY_BYTES });
        }
        // The checksum is the costly part of a record: no lock is held meanwhile.
        let head = Head::of(false, body);
        // The time may have to be noted before it.
        let needed = TIME_BYTES + HEAD_BYTES + bytes;
        let mut has_made_room = false;
        let (ticket, position, want_spare) = loop {
            self.poison.check()?;
            let now = self.clock.coarse_millis();
            {
                let mut queue = self.queue.lock();
                if queue.closed {
                    return Err(LogError::Closed);
                }
                if queue.fits(needed) {
                    queue.note_time(now);
                    queue.push(head, body, families);
                    // Early enough to be ready in time, and not for a log that is hardly used.
                    let want_spare =
                        !queue.spare_wanted && queue.end() > queue.segment.capacity / 2;
                    queue.spare_wanted |= want_spare;
                    break (queue.tickets, queue.position(), want_spare);
                }
            }
            if !may_block && !self.maker.is_ready() {
                return Err(LogError::WouldBlock);
            }
            match self.rotate(needed, |queue| queue.fits(needed), false) {
                Err(full @ LogError::NoSpace { .. }) => {
                    if std::mem::replace(&mut has_made_room, true) || !self.make_room()? {
                        return Err(full);
                    }
                }
                rotated => rotated?,
            }
        };
        if want_spare {
            self.signal.want_spare();
        }
        Ok((ticket, position))
    }

    /// Removes the segments that are not needed any more. Waits for a sync if there are any: the
    /// fact that a segment is not needed has to be durable first, so that replay does not miss it.
    /// Returns whether there were any.
    pub(in crate::storage) fn discard_obsolete(&self) -> Result<bool, LogError> {
        let obsolete = self.retire()?;
        if obsolete.is_empty() {
            return Ok(false);
        }
        self.wait(self.written_position(), true)?;
        for path in obsolete {
            info!("Discarding obsolete commit log:CommitLogSegment({})", path.display());
            self.maker.remove(&path);
        }
        Ok(true)
    }

    /// Makes room on a full disk: removes segments that are not needed, and the active one if all
    /// in it is flushed. Returns whether there were any.
    fn make_room(&self) -> Result<bool, LogError> {
        let leave = |found| Ok(found || self.leave_active()? && self.discard_obsolete()?);
        match self.discard_obsolete().and_then(leave) {
            Err(LogError::NoSpace { .. }) => Ok(false),
            discarded => discarded,
        }
    }

    /// Goes on in a small segment if the present one is needed only as the active one. Returns
    /// whether it did.
    fn leave_active(&self) -> Result<bool, LogError> {
        let active = {
            let queue = self.queue.lock();
            queue.is_worth_leaving().then_some(queue.segment.id)
        };
        let Some(active) = active else { return Ok(false) };
        self.rotate(0, |queue| queue.segment.id != active, true)?;
        if self.with_live(|live| live.archives) {
            // A segment is offered to the archive when it is synced, and a refused writer does not
            // ask for a sync. It is removed when the archive has it.
            self.wait(self.written_position(), true)?;
        }
        Ok(true)
    }

    /// Takes obsolete segments out of the list of needed ones, and writes the new list. Returns
    /// their paths; the files may be removed once the list is durable.
    fn retire(&self) -> Result<Vec<PathBuf>, LogError> {
        let (ticket, obsolete) = loop {
            self.poison.check()?;
            let list_bytes = {
                let mut queue = self.queue.lock();
                if queue.closed {
                    return Err(LogError::Closed);
                }
                let obsolete = queue.live.count_obsolete();
                if obsolete == 0 {
                    return Ok(Vec::new());
                }
                let list_bytes = Control::needed_bytes(queue.live.len() - obsolete);
                if queue.has_room(list_bytes) {
                    let obsolete = queue.live.take_obsolete();
                    let needed = Control::Needed(queue.live.ids());
                    queue.push_control(&needed);
                    break (queue.tickets, obsolete);
                }
                list_bytes
            };
            self.rotate(list_bytes, |queue| queue.has_room(list_bytes), true)?;
        };
        self.write_out(ticket)?;
        Ok(obsolete)
    }

    /// Calls back when everything up to `position` is durable or never will be; urgently or as the
    /// policy says.
    pub(super) fn wait_for(&self, position: Position, urgent: bool, callback: SyncCallback) {
        // A waiter for a position that no sync can reach would keep the sync thread busy forever.
        let position = position.min(self.position());
        self.signal.on_synced(position, urgent, callback);
    }

    /// Waits until everything up to `position` is durable.
    pub(super) fn wait(&self, position: Position, urgent: bool) -> Result<(), LogError> {
        let (tell, told) = mpsc::sync_channel(1);
        let callback = Box::new(move |result| {
            // Cannot fail: the other end is kept until the answer is there.
            let _ = tell.send(result);
        });
        self.wait_for(position, urgent, callback);
        // The callback is dropped without a call only if the sync thread has died in a panic.
        told.recv().unwrap_or(Err(LogError::Closed))
    }

    /// Reads or changes what is known of the segments that exist.
    pub(in crate::storage) fn with_live<T>(&self, f: impl FnOnce(&mut LiveSegments) -> T) -> T {
        f(&mut self.queue.lock().live)
    }

    /// End of the last record that has been queued.
    pub(super) fn position(&self) -> Position {
        self.queue.lock().position()
    }

    /// End of the last record that the operating system has.
    pub(super) fn written_position(&self) -> Position {
        self.writer.lock().written
    }

    /// Refuses every later append.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
    }

    /// Writes what is queued. Returns the segments to be synced in this order, the active one last,
    /// and the position up to which all is durable afterwards; nothing if no caller's record was
    /// written since the last sync, unless forced.
    pub(super) fn begin_sync(&self, force: bool) -> Result<Option<SyncWork>, LogError> {
        self.poison.check()?;
        let mut writer = self.writer.lock();
        self.flush(&mut writer)?;
        if !writer.fresh && !force {
            return Ok(None);
        }
        writer.fresh = false;
        let active = writer.unsynced.len().saturating_sub(1);
        let mut segments: Vec<_> = writer.unsynced.drain(..active).collect();
        segments.extend(writer.unsynced.first().cloned());
        Ok(Some((segments, writer.written)))
    }

    /// Notes for replay that everything before this was durable. At the very end of a segment
    /// there is no room for it; then the next sync notes it in the next segment.
    pub(super) fn mark_synced(&self, synced: Position) -> Result<(), LogError> {
        let mut writer = self.writer.lock();
        self.poison.check()?;
        {
            let mut queue = self.queue.lock();
            let Position { segment, offset } = synced;
            // The mark holds one number more than the seal.
            if queue.fits(SEAL_BYTES + 8) {
                queue.push_control(&Control::Synced { segment, offset });
            }
        }
        self.flush(&mut writer)
    }

    /// Seals the active segment for good; everything before was synced.
    pub(super) fn seal(&self) -> Result<Arc<Segment>, LogError> {
        let mut writer = self.writer.lock();
        self.queue.lock().push_control(&Control::Sealed { next: None });
        self.flush(&mut writer)?;
        Ok(Arc::clone(&self.queue.lock().segment))
    }

    /// Frees the unused space of the sealed segment. The seal is durable by now: a segment that is
    /// shorter than it was made and has no seal is damaged.
    pub(super) fn cut(&self, sealed: &Segment) -> Result<(), LogError> {
        let end = self.written_position().offset;
        let failed = |source| LogError::failed("cut", &sealed.path, source);
        sealed.file.set_size(end).map_err(|source| self.fail(failed(source)))
    }

    /// Stops the log for good. Returns the error that stopped it first.
    pub(super) fn fail(&self, error: LogError) -> LogError {
        let first = self.poison.set(error);
        self.signal.fail(&first);
        first
    }

    /// Writes everything queued, unless the record of this ticket is written already.
    fn write_out(&self, ticket: u64) -> Result<(), LogError> {
        if self.written.load(Ordering::Acquire) >= ticket {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        if self.written.load(Ordering::Acquire) >= ticket {
            return Ok(());
        }
        self.poison.check()?;
        self.flush(&mut writer)
    }

    fn flush(&self, writer: &mut Writer) -> Result<(), LogError> {
        let chunk = {
            let mut queue = self.queue.lock();
            if queue.pending.is_empty() {
                return Ok(());
            }
            queue.take(&mut writer.buffer)
        };
        self.write(writer, &chunk)
    }

    fn write(&self, writer: &mut Writer, chunk: &Chunk) -> Result<(), LogError> {
        let Chunk { segment, start, tickets, fresh } = chunk;
        if let Err(source) = segment.file.write_all_at(&writer.buffer, *start) {
            return Err(self.fail(LogError::failed("write", &segment.path, source)));
        }
        let bytes = writer.buffer.len() as u64;
        self.syncs.bytes.fetch_add(bytes, Ordering::Relaxed);
        let offset = start + bytes;
        writer.written = Position { segment: segment.id, offset };
        writer.fresh |= fresh;
        writer.buffer.clear();
        if writer.buffer.capacity() > KEPT_BUFFER_BYTES {
            writer.buffer = Vec::new();
        }
        self.written.store(*tickets, Ordering::Release);
        Ok(())
    }

    /// Goes on in a new segment with room for `bytes`, unless another thread has done so and
    /// `is_done` holds. If there is no new segment, nothing has changed, and smaller records may
    /// still fit.
    fn rotate(
        &self,
        bytes: u64,
        is_done: impl Fn(&Queue) -> bool,
        may_be_small: bool,
    ) -> Result<(), LogError> {
        if is_done(&self.queue.lock()) {
            return Ok(());
        }
        // Made before the lock is taken, since all other writers would have to wait as well. If
        // that fails, `take` below fails again and returns the error.
        let _ = self.maker.prepare();
        let mut writer = self.writer.lock();
        self.poison.check()?;
        let capacity = {
            let queue = self.queue.lock();
            if queue.closed {
                return Err(LogError::Closed);
            }
            if is_done(&queue) {
                return Ok(());
            }
            fresh_bytes(&queue.live, bytes)
        };
        let next = Arc::new(self.maker.take(capacity, may_be_small.then_some(capacity))?);
        let now = self.clock.coarse_millis();
        let chunk = {
            let mut queue = self.queue.lock();
            queue.push_control(&Control::Sealed { next: Some(next.id) });
            let chunk = queue.take(&mut writer.buffer);
            queue.activate(Arc::clone(&next), now);
            chunk
        };
        writer.unsynced.push(next);
        self.write(&mut writer, &chunk)
    }
}
