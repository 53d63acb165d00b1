//! Reading the hints for a target in order, and the progress of their delivery.

use std::io;

use log::warn;

use crate::model::mutation::RowMutation;
use crate::storage::error::FileError;

use super::error::HintError;
use super::files;
use super::format::{HEADER_BYTES, hint_bytes};
use super::reader::{HintReader, Item};
use super::stats::count;
use super::target::{Extent, HintPosition, Place, Segment, State, TargetLog, remove};
use super::terms::Verdict;
use super::upkeep::Answers;

/// A mutation that its target has not received.
#[derive(Debug, Clone)]
pub struct Hint {
    /// What the target is to apply.
    pub mutation: RowMutation,
    /// When the hint was stored, in milliseconds since the Unix epoch.
    pub created_ms: u64,
}

/// Some hints for one target, oldest first.
#[derive(Debug, Clone)]
pub struct HintBatch {
    /// The hints. None at all, if those that were read are not to be delivered: then too the batch
    /// is to be acknowledged, and the next one to be asked for.
    pub hints: Vec<Hint>,
    /// Where the batch ends: what to acknowledge when its hints are delivered.
    pub end: HintPosition,
}

/// What was found between two places, and is counted once.
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
            if self.shared.terms.is_expired(extent.newest_ms, now_ms) {
                reading.pass_expired(&extent, at);
                at.1 = extent.hints_end();
                continue;
            }
            let from = at.1;
            at.1 = match reading.read(&extent, from, left) {
                Ok(end) => end,
                Err(_) if !self.is_there(extent.number) => break,
                // What was read before can be delivered all the same.
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

    /// Everything before `end` was delivered. What is delivered as a whole is no part of the log
    /// any more; its files go with the next sync, which this does not wait for.
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
        count(&self.shared.counters.discarded_bytes, state.bytes);
        let all = state.segments.len();
        let discarded = Err(HintError::Discarded { target: self.target });
        let answers = state.take_first(all, &discarded);
        drop(state);
        answers.tell();
    }

    /// Throws away segments whose newest hint is too old, so that what nobody asks for does not
    /// stay. They are in the order of their age.
    pub(super) fn drop_expired(&self) {
        let now_ms = self.shared.clock.coarse_millis();
        let mut state = self.lock();
        let terms = &self.shared.terms;
        let is_expired = |segment: &&Segment| terms.is_expired(segment.extent.newest_ms, now_ms);
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

    /// Removes the files that are no part of the log any more; the folder too, if nothing is left
    /// in it. For who has the turn of the log: nobody syncs a file that goes.
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
        for path in [files::progress(&self.folder), files::owner(&self.folder)] {
            if self.fs().exists(&path) {
                remove(self.fs(), &path);
            }
        }
        state.owner.is_unsaved = state.owner.address.is_some();
        // A folder with something else in it stays; whether it is there is asked anew.
        let _ = self.fs().remove_dir(&self.folder);
        state.has_folder = false;
    }
}

impl State {
    /// Takes the first segments off the log. Whoever waited for something in them gets this answer.
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
    /// Reads a segment from one of its records on, until so many bytes are read or it ends.
    /// Returns where it stopped.
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
            // What was read before can be delivered before the disk is asked again.
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
                        count(&self.log.shared.counters.torn_bytes, bytes);
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
        let counters = &shared.counters;
        let counter = match shared.terms.judge(record, created_ms, self.now_ms) {
            Verdict::Deliver(mutation) => {
                self.hints.push(Hint { mutation, created_ms });
                &counters.read
            }
            Verdict::Expired => &counters.expired,
            Verdict::Unconfigured => &counters.unconfigured,
            Verdict::Malformed => {
                if is_new {
                    self.tell_damage(extent, at, record.len() as u64);
                }
                return;
            }
        };
        if is_new {
            count(counter, 1);
        }
    }

    /// The rest of a segment is too old, which its newest hint tells.
    fn pass_expired(&mut self, extent: &Extent, at: Place) {
        if at >= self.judged {
            count(&self.log.shared.counters.expired, extent.hints_from(at.1));
        }
    }

    fn tell_damage(&self, extent: &Extent, offset: u64, bytes: u64) {
        count(&self.log.shared.counters.damaged_bytes, bytes);
        let (path, target) = (self.log.path(extent.number), self.log.target);
        warn!(
            "{} is damaged at byte {offset}: {bytes} bytes of hints are lost. Repair {target} when \
             its other hints are delivered",
            path.display(),
        );
    }
}
