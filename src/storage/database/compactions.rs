//! The compaction threads, and the housekeeper that wakes them.
//!
//! Families in which a compaction may be due wait in a queue. A thread looks at all of them and
//! does the compaction that helps reads most for its cost, whichever family it is in. One thread
//! never takes a long compaction, so that small files are merged while the others are busy.
//!
//! The housekeeper removes replaced files as soon as no reader has them, and requests what time
//! makes due: families whose compaction failed, and deletions that outlive their grace period.

use super::super::compaction::{self, Candidate, Circumstances, CompactionError, Plan};
use super::super::family::{Choosable, Claim, ColumnFamily};
use super::Core;
use crate::base::worker::Queue;
use crate::model::schema::FamilyId;
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Bytes from which on a compaction is long: more than the first merge of flushed memtables.
pub(super) const LONG: u64 = 256 << 20;

/// Period of the housekeeper.
const ROUND: Duration = Duration::from_secs(1);

/// Its period while files wait for their last reader.
const ROUND_WITH_FILES: Duration = Duration::from_millis(50);

/// Period at which all families are looked at for what only time makes due.
const LOOK_AT_ALL: Duration = Duration::from_mins(10);

/// Pause after a failed compaction of a family, doubled with each further failure,
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// up to this, which is also the pause after one that an operator has stopped.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Families in which a compaction may be due.
#[derive(Debug, Default)]
pub(super) struct CompactionQueue(Queue<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    due: BTreeSet<FamilyId>,
    /// Families whose last compaction failed: until when they pause, on the monotonic clock, and
    /// how long the next pause will be.
    postponed: BTreeMap<FamilyId, (Duration, Duration)>,
    /// Grows with each change that a thread may have to look at.
    version: u64,
}

impl CompactionQueue {
    /// Requests a look at a family.
    pub(super) fn request(&self, id: FamilyId) {
        self.0.push_for_all(|state| {
            state.due.insert(id);
            state.version += 1;
        });
    }

    /// Takes out all families that are not postponed, when something has changed since `seen`;
    /// `None` when the storage is closed.
    pub(super) fn take_due(&self, seen: &mut u64, now: Duration) -> Option<Vec<FamilyId>> {
        self.0.take(|state| {
            if state.version == *seen {
                return None;
            }
            *seen = state.version;
            let due = std::mem::take(&mut state.due);
            Some(due.into_iter().filter(|id| !state.is_postponed(*id, now)).collect())
        })
    }

    /// Puts families back for other threads. The calling thread has looked at them already.
    fn put_back(&self, families: Vec<FamilyId>, seen: &mut u64) {
        if families.is_empty() {
            return;
        }
        self.0.push_for_all(|state| {
            let others_have_come = state.version != *seen;
            state.due.extend(families);
            state.version += 1;
            if !others_have_come {
                *seen = state.version;
            }
        });
    }

    /// Leaves a family alone for a while. False if that was so before this failure.
    pub(super) fn postpone(&self, id: FamilyId, now: Duration) -> bool {
        self.0.with(|state| {
            let before = state.postponed.get(&id);
            let pause = before.map_or(FIRST_PAUSE, |(_, next)| *next);
            let next = (pause * 2).min(LONGEST_PAUSE);
            state.postponed.insert(id, (now + pause, next)).is_none()
        })
    }

    /// Leaves a family alone for long, since an operator wants that.
    fn set_aside(&self, id: FamilyId, now: Duration) {
        self.0.with(|state| state.postponed.insert(id, (now + LONGEST_PAUSE, FIRST_PAUSE)));
    }

    fn forgive(&self, id: FamilyId) {
        self.0.with(|state| state.postponed.remove(&id));
    }

    fn is_postponed(&self, id: FamilyId, now: Duration) -> bool {
        self.0.with(|state| state.is_postponed(id, now))
    }

    pub(super) fn is_failing(&self, id: FamilyId) -> bool {
        self.0.with(|state| state.postponed.contains_key(&id))
    }

    /// Requests the families whose pause is over.
    fn request_postponed(&self, now: Duration) {
        self.0.push_for_all(|state| {
            let over = state.postponed.iter().filter(|(_, (until, _))| *until <= now);
            let before = state.due.len();
            state.due.extend(over.map(|(id, _)| *id));
            state.version += u64::from(state.due.len() > before);
        });
    }

    /// Drops all requests and wakes the threads.
    pub(super) fn close(&self) {
        self.0.close(|state| state.due.clear());
    }
}

impl QueueState {
    fn is_postponed(&self, id: FamilyId, now: Duration) -> bool {
        self.postponed.get(&id).is_some_and(|(until, _)| now < *until)
    }
}

impl Core {
    /// The loop of a thread that does compactions of up to this many bytes.
    pub(super) fn run_compactions(&self, max_bytes: u64) {
        let mut seen = 0;
        let now = || self.environment.clock.monotonic();
        while let Some(due) = self.compactions.take_due(&mut seen, now()) {
            let (waiting, best) = self.choose(due, max_bytes);
            self.compactions.put_back(waiting, &mut seen);
            if let Some(id) = best {
                let family = self.family(id);
                Self::guarded(family, "compaction", || self.compact_minor(family, max_bytes));
                // More may be due, also in other families.
                self.request_compaction(family);
            }
        }
    }

    /// Returns the families in which something is to be merged, and the one of them in which a
    /// thread does that next.
    pub(super) fn choose(
        &self,
        due: Vec<FamilyId>,
        max_bytes: u64,
    ) -> (Vec<FamilyId>, Option<FamilyId>) {
        let mut best: Option<(f64, FamilyId)> = None;
        let mut waiting = Vec::new();
        for id in due {
            let family = self.family(id);
            let tables = family.choosable();
            if candidate(family, &tables, u64::MAX).is_none() {
                // A compaction that another thread does may still fail again.
                if tables.claimed.is_empty() {
                    self.compactions.forgive(id);
                }
                continue;
            }
            waiting.push(id);
            if let Some(suitable) = candidate(family, &tables, max_bytes)
                && best.is_none_or(|(urgency, _)| suitable.urgency() > urgency)
            {
                best = Some((suitable.urgency(), id));
            }
        }
        (waiting, best.map(|(_, id)| id))
    }

    /// Merges claimed SSTables, after a snapshot if the operator wants one.
    pub(super) fn compact_claimed(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
    ) -> Result<(), CompactionError> {
        self.snapshot_before_compaction(claim.family())?;
        self.compactor.compact(claim, plan, None).map(drop)
    }

    fn compact_minor(&self, family: &ColumnFamily, max_bytes: u64) {
        let (id, now) = (family.id(), || self.environment.clock.monotonic());
        let mut plan = None;
        let claim = family.claim(|tables| {
            // Another thread may just have failed, and released its claim.
            if self.compactions.is_postponed(id, now()) {
                return None;
            }
            let candidate = candidate(family, tables, max_bytes)?;
            plan = Some(candidate.plan);
            Some(candidate.tables)
        });
        // Another thread may have been faster.
        let (Some(mut claim), Some(plan)) = (claim, plan) else { return };
        match self.compact_claimed(&mut claim, plan) {
            Ok(()) => self.compactions.forgive(id),
            Err(CompactionError::Stopped) => {}
            Err(CompactionError::Cancelled) if family.is_being_dropped() => {}
            Err(CompactionError::Cancelled) => {
                self.compactions.set_aside(id, now());
                let (name, minutes) = (family.schema(), LONGEST_PAUSE.as_secs() / 60);
                let line = format_args!(
                    "An operator has stopped a compaction of {name}: the next begins after \
                     {minutes} minutes"
                );
                self.environment.events.tell(Level::Info, compaction::TARGET, line);
            }
            Err(error) => {
                let found_damage = claim.tables().iter().any(|table| table.is_damaged());
                // The files that are not damaged may still be enough for a compaction.
                let is_first = found_damage || self.compactions.postpone(id, now());
                self.tell_failure(family, &error, is_first);
            }
        }
        drop(claim);
        family.remove_replaced();
    }

    /// Tells of a failure that passes by itself once, however often it is retried.
    fn tell_failure(&self, family: &ColumnFamily, error: &CompactionError, is_first: bool) {
        let passes = match error {
            CompactionError::Failed(error) => error.is_shortage(),
            _ => true,
        };
        if passes && !is_first {
            return;
        }
        let (events, family) = (&self.environment.events, family.schema());
        if let CompactionError::NoRoom { needed } = error {
            let line = format_args!(
                "insufficient space to compact {family}: {needed} bytes have to be free in a data \
                 directory. It is tried again by itself"
            );
            events.tell(Level::Warn, compaction::TARGET, line);
        } else {
            let line = format_args!(
                "Compaction of {family} failed, its SSTables stay as they are: {error}"
            );
            events.tell(Level::Error, compaction::TARGET, line);
        }
    }

    /// Works out what is due in the family, which slows writers and loosens the throttle, and wakes
    /// the threads. To be called when its SSTables have changed.
    pub(super) fn request_compaction(&self, family: &ColumnFamily) {
        family.pressure().note(|| {
            let thresholds = family.compaction_thresholds();
            let backlog = compaction::backlog(&family.view().tables, thresholds, family.options());
            let delay = if self.compactions.is_failing(family.id()) {
                // Slower writes would not help a family that cannot be compacted.
                Duration::ZERO
            } else {
                backlog.write_delay(thresholds)
            };
            (backlog, delay)
        });
        let haste = |family: &Arc<ColumnFamily>| {
            family.pressure().backlog().haste(family.compaction_thresholds())
        };
        self.compactor.set_haste(self.families().map(haste).fold(1.0, f64::max));
        self.compactions.request(family.id());
    }

    /// The loop of the housekeeper.
    pub(super) fn keep_house(&self) {
        let clock = &*self.environment.clock;
        let mut looked_at_all = self.opened_at;
        let mut left = 0;
        while self.workers.rest(if left > 0 { ROUND_WITH_FILES } else { ROUND }) {
            // Readers of a dropped family may have kept its files.
            left = self.families.iter().map(|(_, family)| family.remove_replaced()).sum();
            let now = clock.monotonic();
            self.compactions.request_postponed(now);
            if now.saturating_sub(looked_at_all) >= LOOK_AT_ALL {
                looked_at_all = now;
                self.families().for_each(|family| self.compactions.request(family.id()));
            }
        }
    }
}

/// The compaction of at most this many bytes that is due in a family.
fn candidate(family: &ColumnFamily, tables: &Choosable, max_bytes: u64) -> Option<Candidate> {
    if family.check_writable().is_err() {
        // Data that were not written to the disk of a failed family may be needed to make sense of
        // the others.
        return None;
    }
    let circumstances = Circumstances {
        strategy: family.options().compaction_strategy,
        leveled_table_bytes: family.options().leveled_table_bytes,
        thresholds: family.compaction_thresholds(),
        gc_before: family.gc_before(),
        now_micros: family.environment().clock.now_micros(),
    };
    compaction::next_minor(tables, &circumstances, max_bytes)
}
