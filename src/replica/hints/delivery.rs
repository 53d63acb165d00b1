//! Delivery of the hints for a target: reading in order, its progress, and which hints still may be
//! delivered.

use super::format::{self, HEADER_BYTES, HintReader, Item, hint_bytes};
use super::store::{HintError, HintStats, Shared};
use super::target::{Answers, Extent, HintPosition, Place, Segment, State, TargetLog, remove};
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::ColumnFamilySchema;
use crate::net::bodies;
use crate::net::message::MAX_BODY_BYTES;
use crate::storage::error::FileError;
use log::warn;
use std::io;
use std::time::Duration;

/// A mutation that its target has not received.
#[derive(Debug, Clone)]
pub struct Hint {
    /// The mutation that the target is to apply.
    pub mutation: RowMutation,
    /// Time of storing, in milliseconds since the Unix epoch.
    pub created_ms: u64,
}

/// Some hints for one target, oldest first.
#[derive(Debug, Clone)]
pub struct HintBatch {
    /// The hints. Empty if all hints that were read have expired: acknowledge the batch and ask for
    /// the next one as usual.
    pub hints: Vec<Hint>,
    /// End of the batch, to be acknowledged when its hints are delivered.
    pub end: HintPosition,
}

/// Hints read between two places. Each is counted once.
struct Reading<'a> {
    log: &'a TargetLog,
    now_ms: u64,
    judged: Place,
    hints: Vec<Hint>,
}

impl TargetLog {
    /// The next hints that are not acknowledged: at least one record, and not many more bytes than
    /// these. None if there is nothing left.
    pub(super) fn read_batch(&self, max_bytes: u64) -> Result<Option<HintBatch>, HintError> {
        let (delivered, judged) = {
            let state = self.lock();
            (state.delivered, state.judged)
        };
        let now_ms = self.shared.clock.coarse_millis();
        let mut reading = Reading { log: self, now_ms, judged, hints: Vec::new() };
        let mut at = delivered;
        let mut left = max_bytes.max(1);
        while left > 0 {
            let Some(extent) = self.extent_at(&mut at) else { break };
            if self.shared.is_expired(extent.newest_ms, now_ms) {
                reading.pass_expired(&extent, at);
                at.1 = extent.hints_end();
                continue;
            }
            let from = at.1;
            at.1 = match reading.read(&extent, from, left) {
                Ok(end) => end,
                Err(_) if !self.is_there(extent.number) => break,
                // Hints read before can be delivered all the same.
                Err(_) if !reading.hints.is_empty() => break,
                Err(source) => {
                    let path = self.path(extent.number);
                    return Err(FileError::new("read", &path, source).into());
                }
            };
            left = left.saturating_sub(at.1 - from);
        }
        let mut state = self.lock();
        state.judged = state.judged.max(at);
        if at <= state.delivered {
            return Ok(None);
        }
        Ok(Some(HintBatch { hints: reading.hints, end: self.position(at) }))
    }

    /// The segment that stands at a place; the place moves on to the next one where one ends.
    fn extent_at(&self, at: &mut Place) -> Option<Extent> {
        let state = self.lock();
        let unread = |segment: &&Segment| {
            segment.extent.number > at.0
                || (segment.extent.number == at.0 && segment.extent.hints_end() > at.1)
        };
        let segment = state.segments.iter().find(unread)?;
        if segment.extent.number > at.0 {
            *at = (segment.extent.number, HEADER_BYTES);
        }
        Some(segment.extent)
    }

    /// Whether a segment is still part of the log.
    fn is_there(&self, number: u64) -> bool {
        self.lock().segment(number).is_some()
    }

    /// Marks everything before `end` as delivered. Segments that are delivered as a whole leave the
    /// log; their files go with the next sync.
    pub(super) fn acknowledge(&self, end: Place) {
        let mut state = self.lock();
        let Some(last) = state.segments.last().map(|it| (it.extent.number, it.extent.end)) else {
            return;
        };
        let end = end.min(last);
        if end <= state.delivered {
            return;
        }
        state.delivered = end;
        state.is_progress_new = true;
        let is_done =
            |segment: &Segment| (segment.extent.number, segment.extent.hints_end()) <= end;
        let done = state.segments.iter().take_while(|segment| is_done(segment)).count();
        let answers = state.take_first(done, &Ok(()));
        drop(state);
        answers.tell();
    }

    /// Appends hints that were read from it once more.
    pub(super) fn put_aside(&self, hints: &[Hint]) -> Result<HintPosition, HintError> {
        let mut first = None;
        for hint in hints {
            let record = hint.mutation.record();
            let HintPosition { segment, offset, .. } =
                self.append(record, hint.created_ms, u64::MAX)?;
            first.get_or_insert((segment, offset - hint_bytes(record)));
            self.lock().aside = Some((segment, offset));
        }
        Ok(self.position(first.unwrap_or((u64::MAX, 0))))
    }

    /// Throws away everything that is there now, as [`TargetLog::acknowledge`] does.
    pub(super) fn discard(&self) {
        let mut state = self.lock();
        self.shared.count(|stats| stats.discarded_bytes += state.bytes);
        let all = state.segments.len();
        let discarded = Err(HintError::Discarded { target: self.target });
        let answers = state.take_first(all, &discarded);
        drop(state);
        answers.tell();
    }

    /// Drops segments whose newest hint is too old, so that undelivered hints do not stay. Segments
    /// are in the order of their age.
    pub(super) fn drop_expired(&self) {
        let now_ms = self.shared.clock.coarse_millis();
        let mut state = self.lock();
        let is_expired =
            |segment: &&Segment| self.shared.is_expired(segment.extent.newest_ms, now_ms);
        let expired: Vec<_> =
            state.segments.iter().take_while(is_expired).map(|segment| segment.extent).collect();
        let mut reading = Reading { log: self, now_ms, judged: state.judged, hints: Vec::new() };
        for extent in &expired {
            let from = if extent.number == state.delivered.0 { state.delivered.1 } else { 0 };
            reading.pass_expired(extent, (extent.number, from));
        }
        let answers = state.take_first(expired.len(), &Ok(()));
        drop(state);
        answers.tell();
    }

    /// Removes the files that are no part of the log any more, and the empty folder. The caller
    /// holds the lock for upkeep, so that no file is removed during its sync.
    pub(super) fn remove_gone(&self) {
        let gone = {
            let mut state = self.lock();
            if state.may_forget() { std::mem::take(&mut state.gone) } else { Vec::new() }
        };
        for number in gone {
            remove(self.fs(), &self.path(number));
        }
        let mut state = self.lock();
        if !state.has_folder || !state.segments.is_empty() || !state.gone.is_empty() {
            return;
        }
        for path in [format::progress_path(&self.folder), format::owner_path(&self.folder)] {
            if self.fs().exists(&path) {
                remove(self.fs(), &path);
            }
        }
        state.owner.is_unsaved = state.owner.address.is_some();
        // A folder with other files stays.
        let _ = self.fs().remove_dir(&self.folder);
        state.has_folder = false;
    }
}

impl State {
    /// Takes the first segments off the log. Waiters for hints in them get this answer.
    fn take_first(&mut self, number: usize, answer: &Result<(), HintError>) -> Answers {
        let mut last = None;
        for segment in self.segments.drain(..number) {
            self.bytes -= segment.extent.end;
            self.gone.push(segment.extent.number);
            last = Some((segment.extent.number, segment.extent.end));
        }
        let Some(last) = last else { return Answers::default() };
        self.delivered = self.delivered.max(last);
        if self.segments.is_empty() {
            self.close();
            self.is_progress_new = false;
        }
        let done = self.waiters.extract_if(.., |waiter| waiter.place <= last);
        Answers::all(done, answer)
    }
}

impl Reading<'_> {
    /// Reads a segment from one of its records on, until `max_bytes` are read or it ends. Returns
    /// the end of the bytes read.
    fn read(&mut self, extent: &Extent, from: u64, max_bytes: u64) -> io::Result<u64> {
        let file = match self.log.fs().open(&self.log.path(extent.number)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.log.is_there(extent.number) => {
                if (extent.number, from) >= self.judged {
                    self.tell_damage(extent, from, extent.hints_end() - from);
                }
                return Ok(extent.hints_end());
            }
            file => file?,
        };
        let mut reader = HintReader::new(file, extent.salt, from, extent.hints_end())?;
        loop {
            let at = reader.offset();
            if at - from >= max_bytes {
                return Ok(at);
            }
            // Hints read before are delivered before the disk is asked again.
            let item = match reader.next() {
                Err(_) if at > from => return Ok(at),
                item => item?,
            };
            let is_new = (extent.number, at) >= self.judged;
            match item {
                None => {
                    if at < extent.hints_end() && is_new {
                        self.tell_damage(extent, at, extent.hints_end() - at);
                    }
                    return Ok(extent.hints_end());
                }
                Some(Item::Hint { created_ms, mutation }) => {
                    self.judge(extent, at, is_new, created_ms, mutation);
                }
                Some(Item::Seal) => {}
                Some(Item::Unreadable { bytes, is_tail: true, .. }) if !extent.is_whole => {
                    if is_new {
                        self.log.shared.count(|stats| stats.torn_bytes += bytes);
                    }
                }
                Some(Item::Unreadable { offset, bytes, .. }) => {
                    if is_new {
                        self.tell_damage(extent, offset, bytes);
                    }
                }
            }
        }
    }

    fn judge(&mut self, extent: &Extent, at: u64, is_new: bool, created_ms: u64, record: &[u8]) {
        let shared = &self.log.shared;
        let counter: fn(&mut HintStats) = match shared.judge(record, created_ms, self.now_ms) {
            Verdict::Deliver(mutation) => {
                self.hints.push(Hint { mutation, created_ms });
                |stats| stats.read += 1
            }
            Verdict::Expired => |stats| stats.expired += 1,
            Verdict::Unconfigured => |stats| stats.unconfigured += 1,
            Verdict::Malformed => {
                if is_new {
                    self.tell_damage(extent, at, record.len() as u64);
                }
                return;
            }
        };
        if is_new {
            shared.count(counter);
        }
    }

    /// Passes the rest of a segment whose newest hint is too old.
    fn pass_expired(&mut self, extent: &Extent, at: Place) {
        if at >= self.judged {
            self.log.shared.count(|stats| stats.expired += extent.hints_from(at.1));
        }
    }

    fn tell_damage(&self, extent: &Extent, offset: u64, bytes: u64) {
        self.log.shared.count(|stats| stats.damaged_bytes += bytes);
        let (path, target) = (self.log.path(extent.number), self.log.target);
        warn!(
            "{} is damaged at byte {offset}: {bytes} bytes of hints are lost. Repair {target} when \
             its other hints are delivered",
            path.display(),
        );
    }
}

/// Most families with a warning of their own.
const MAX_WARNINGS: usize = 100;

/// Decision about a hint.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Deliver it.
    Deliver(RowMutation),
    /// Too old: data that it deletes or overwrites may be forgotten elsewhere by now.
    Expired,
    /// For a column family that is not configured any more, or is another one now.
    Unconfigured,
    /// Sound on the disk, but no mutation.
    Malformed,
}

impl Shared {
    /// Fails if a mutation does not fit into a message. It would hold up the hints after it until
    /// it is too old.
    pub(super) fn check_size(&self, mutation: &RowMutation) -> Result<(), HintError> {
        // On the wire a cell takes less than twice as much as here, and the bytes around cells are
        // few.
        if mutation.record().len() <= MAX_BODY_BYTES / 4 {
            return Ok(());
        }
        // A mutation that cannot be encoded for another reason is left out at its delivery.
        let bytes =
            bodies::encode_mutation(mutation, &self.options.schema).map_or(0, |body| body.len());
        if bytes > MAX_BODY_BYTES {
            return Err(HintError::TooLarge { bytes: bytes as u64, limit: MAX_BODY_BYTES as u64 });
        }
        Ok(())
    }

    /// Whether a hint of this age is too old, whatever it is for.
    pub(super) fn is_expired(&self, created_ms: u64, now_ms: u64) -> bool {
        let age = age(created_ms, now_ms);
        age > *self.max_age
            || self.options.schema.families().all(|(_, family)| age > family.gc_grace)
    }

    /// Whether and how this hint is delivered. A deletion may be purged on the replicas that have
    /// it when its grace period is over, and a write that comes in after that would bring back
    /// what was deleted: so no hint outlives the shortest grace period of its families.
    pub(super) fn judge(&self, record: &[u8], created_ms: u64, now_ms: u64) -> Verdict {
        let age = age(created_ms, now_ms);
        if age > *self.max_age {
            return Verdict::Expired;
        }
        match RowMutation::decode(record, &self.options.schema) {
            Ok(mutation) => {
                let is_over = |id| age > self.options.schema.family(id).gc_grace;
                let is_earlier = |id| self.is_of_earlier_family(id, created_ms);
                if mutation.families.iter().any(|it| is_over(it.family) || is_earlier(it.family)) {
                    Verdict::Expired
                } else {
                    Verdict::Deliver(mutation)
                }
            }
            Err(DecodeError::Malformed(_)) => Verdict::Malformed,
            Err(DecodeError::UnknownFamily { family, .. })
                if ColumnFamilySchema::is_of_cql(&family) =>
            {
                // Its table was dropped, and none has that name again.
                Verdict::Expired
            }
            Err(error) => {
                self.warn_once(&error);
                Verdict::Unconfigured
            }
        }
    }

    fn warn_once(&self, error: &DecodeError) {
        let (DecodeError::UnknownFamily { keyspace, family }
        | DecodeError::OtherNames { keyspace, family }) = error
        else {
            return;
        };
        let mut warned = self.warned.lock();
        if warned.len() < MAX_WARNINGS && warned.insert((keyspace.clone(), family.clone())) {
            warn!("hints for {keyspace}.{family} are not delivered: {error}");
        }
    }
}

/// A hint that was stored in the future, on a clock that was wrong, is new.
fn age(created_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(created_ms))
}
