//! What the compaction threads do, and the housekeeper that wakes them.
//!
//! Families in which something may be due wait in a queue. A thread looks at all that wait and does
//! the compaction that helps reads most for its cost, whichever family it is in. One thread never
//! takes a long compaction, so that small files are merged however long the others are at it.
//!
//! The housekeeper removes files that were replaced as soon as nobody reads them, and asks for what
//! time makes due: a family whose compaction failed, and deletions that outlive their grace period.

use super::super::compaction::lines;
use super::super::compaction::{self, Candidate, Circumstances, CompactionError, Plan};
use super::super::family::{Choosable, Claim, ColumnFamily};
use super::Core;
use super::flushes::is_shortage;
use crate::base::lock::{Condvar, Mutex, MutexGuard, rank};
use crate::base::machine::set_thread_niceness;
use crate::model::schema::FamilyId;
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A compaction that reads more bytes is long: more than the first merge of flushed memtables.
const LONG: u64 = 256 << 20;

/// How often the housekeeper comes.
const ROUND: Duration = Duration::from_secs(1);

/// How often it comes while files wait for their last reader.
const ROUND_WITH_FILES: Duration = Duration::from_millis(50);

/// How often all families are looked at for what only time makes due.
const LOOK_AT_ALL: Duration = Duration::from_mins(10);

/// A family whose compaction failed is left alone for so long, doubled with each further failure,
const FIRST_POSTPONEMENT: Duration = Duration::from_secs(5);

/// up to this.
const LONGEST_POSTPONEMENT: Duration = Duration::from_mins(5);

/// Which compactions a thread takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Those that end soon.
    Short,
    /// Any.
    All,
}

impl Takes {
    fn max_bytes(self) -> u64 {
        match self {
            Self::Short => LONG,
            Self::All => u64::MAX,
        }
    }
}

/// Families in which a compaction may be due.
#[derive(Debug, Default)]
pub(super) struct CompactionQueue {
    state: Mutex<rank::State, QueueState>,
    changed: Condvar,
    /// Woken when the storage is closed.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    due: BTreeSet<FamilyId>,
    /// Families whose last compaction failed.
    postponed: BTreeMap<FamilyId, Postponed>,
    /// Grows with each change that a thread may have to look at.
    version: u64,
    closed: bool,
}

/// A family that is left alone for a while.
#[derive(Debug, Clone, Copy)]
struct Postponed {
    /// Until then, on the monotonic clock.
    until: Duration,
    /// How long the next one will be.
    next: Duration,
}

impl CompactionQueue {
    /// Asks to look whether the family has something to merge.
    pub(super) fn request(&self, family: FamilyId) {
        let mut state = self.lock();
        state.due.insert(family);
        state.version += 1;
        self.changed.notify_all();
    }

    /// Takes out all families that wait, those that are postponed excepted, when something has
    /// changed since `seen`; `None` when the storage is closed.
    pub(super) fn take_due(&self, seen: &mut u64, now: Duration) -> Option<Vec<FamilyId>> {
        let mut state = self.lock();
        while state.version == *seen && !state.closed {
            self.changed.wait(&mut state);
        }
        *seen = state.version;
        if state.closed {
            return None;
        }
        let due = std::mem::take(&mut state.due);
        let ready = due.into_iter().filter(|family| !state.is_postponed(*family, now));
        Some(ready.collect())
    }

    /// Puts families back for other threads. The one that does so has looked at them already.
    fn put_back(&self, families: Vec<FamilyId>, seen: &mut u64) {
        if families.is_empty() {
            return;
        }
        let mut state = self.lock();
        let others_have_come = state.version != *seen;
        state.due.extend(families);
        state.version += 1;
        if !others_have_come {
            *seen = state.version;
        }
        self.changed.notify_all();
    }

    /// Leaves a family alone for a while. False if that was so already before this failure.
    pub(super) fn postpone(&self, family: FamilyId, now: Duration) -> bool {
        let mut state = self.lock();
        let before = state.postponed.get(&family).copied();
        let pause = before.map_or(FIRST_POSTPONEMENT, |before| before.next);
        let next = (pause * 2).min(LONGEST_POSTPONEMENT);
        state.postponed.insert(family, Postponed { until: now + pause, next });
        before.is_none()
    }

    fn forgive(&self, family: FamilyId) {
        self.lock().postponed.remove(&family);
    }

    fn is_postponed(&self, family: FamilyId, now: Duration) -> bool {
        self.lock().is_postponed(family, now)
    }

    pub(super) fn is_failing(&self, family: FamilyId) -> bool {
        self.lock().postponed.contains_key(&family)
    }

    /// The families whose time has come again.
    fn over(&self, now: Duration) -> Vec<FamilyId> {
        let state = self.lock();
        let over = state.postponed.iter().filter(|(_, postponed)| postponed.until <= now);
        over.map(|(family, _)| *family).collect()
    }

    /// Waits; false when the storage is closed.
    pub(super) fn rest(&self, pause: Duration) -> bool {
        let mut state = self.lock();
        self.ended.wait_while_for(&mut state, |state| !state.closed, pause);
        !state.closed
    }

    /// Hands out no more work and wakes who waits.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.due.clear();
        self.changed.notify_all();
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

impl QueueState {
    fn is_postponed(&self, family: FamilyId, now: Duration) -> bool {
        self.postponed.get(&family).is_some_and(|postponed| now < postponed.until)
    }
}

impl Core {
    /// The loop of the thread that leaves long compactions to others.
    pub(super) fn run_short_compactions(&self) {
        self.run_compactions(Takes::Short);
    }

    /// The loop of a thread that does any compaction.
    pub(super) fn run_all_compactions(&self) {
        self.run_compactions(Takes::All);
    }

    /// The loop of a thread that compacts.
    fn run_compactions(&self, takes: Takes) {
        if let Err(error) = set_thread_niceness(self.compaction_niceness) {
            log::warn!("compaction competes with clients for the processor: {error}");
        }
        let mut seen = 0;
        loop {
            let now = self.environment.clock.monotonic();
            let Some(due) = self.compactions.take_due(&mut seen, now) else { return };
            let (waiting, best) = self.choose(due, takes);
            self.compactions.put_back(waiting, &mut seen);
            if let Some(family) = best {
                self.guarded(family, "compaction", || self.compact_minor(family, takes));
                // More may be due, and other families as well.
                self.request_compaction(self.family(family));
            }
        }
    }

    /// Those of the families in which something is to be merged, and the one of them in which this
    /// thread does that next.
    pub(super) fn choose(
        &self,
        due: Vec<FamilyId>,
        takes: Takes,
    ) -> (Vec<FamilyId>, Option<FamilyId>) {
        let mut best: Option<(f64, FamilyId)> = None;
        let mut waiting = Vec::new();
        for family in due {
            let store = self.family(family);
            let tables = store.choosable();
            if candidate(store, &tables, Takes::All).is_none() {
                // While another thread is at it nobody knows whether it fails again.
                if tables.claimed.is_empty() {
                    self.compactions.forgive(family);
                }
                continue;
            }
            waiting.push(family);
            if let Some(suitable) = candidate(store, &tables, takes)
                && best.is_none_or(|(urgency, _)| suitable.urgency() > urgency)
            {
                best = Some((suitable.urgency(), family));
            }
        }
        (waiting, best.map(|(_, family)| family))
    }

    /// Merges claimed SSTables, after a snapshot if the operator wants one.
    pub(super) fn compact_claimed(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
    ) -> Result<(), CompactionError> {
        self.snapshot_before_compaction(claim.store())?;
        self.compactor.compact(claim, plan, &self.stopping)
    }

    fn compact_minor(&self, family: FamilyId, takes: Takes) {
        let store = self.family(family);
        let mut plan = None;
        let claim = store.claim(|tables| {
            // Another thread may just have failed, and released what it had claimed.
            let now = self.environment.clock.monotonic();
            if self.compactions.is_postponed(family, now) {
                return None;
            }
            let candidate = candidate(store, tables, takes)?;
            plan = Some(candidate.plan);
            Some(candidate.tables)
        });
        // Another thread may have been faster.
        let (Some(mut claim), Some(plan)) = (claim, plan) else { return };
        let result = self.compact_claimed(&mut claim, plan);
        match result {
            Ok(()) => self.compactions.forgive(family),
            Err(CompactionError::Stopped) => {}
            Err(error) => {
                let found_damage = claim.tables().iter().any(|table| table.is_damaged());
                let now = self.environment.clock.monotonic();
                // The files that are not damaged may still be enough for a compaction.
                let is_first = found_damage || self.compactions.postpone(family, now);
                self.tell_failure(store, &error, is_first);
            }
        }
        drop(claim);
        store.remove_replaced();
    }

    /// What passes by itself is told once, however often it is tried.
    fn tell_failure(&self, store: &ColumnFamily, error: &CompactionError, is_first: bool) {
        let passes = match error {
            CompactionError::Failed(error) => is_shortage(error),
            _ => true,
        };
        if passes && !is_first {
            return;
        }
        let (events, family) = (&self.environment.events, store.schema());
        if let CompactionError::NoRoom { needed } = error {
            let line = format_args!(
                "insufficient space to compact {family}: {needed} bytes have to be free in a data \
                 directory. It is tried again by itself"
            );
            events.tell(Level::Warn, lines::TARGET, line);
        } else {
            let line = format_args!(
                "Compaction of {family} failed, its SSTables stay as they are: {error}"
            );
            events.tell(Level::Error, lines::TARGET, line);
        }
    }

    /// Works out what is due in the family, which writers and the throttle may have to feel, and
    /// wakes a thread that does it. To be called when its SSTables have changed.
    pub(super) fn request_compaction(&self, store: &ColumnFamily) {
        let thresholds = store.compaction_thresholds();
        let backlog = compaction::backlog(&store.view().tables, thresholds, store.options());
        let delay = if self.compactions.is_failing(store.id()) {
            // Slower writes would not help what cannot be compacted.
            Duration::ZERO
        } else {
            backlog.write_delay(thresholds)
        };
        store.pressure().note(backlog, delay);
        let haste = |store: &ColumnFamily| {
            let thresholds = store.compaction_thresholds();
            store.pressure().backlog().haste(thresholds)
        };
        let greatest = self.families().map(|store| haste(store)).fold(1.0, f64::max);
        self.compactor.set_haste(greatest);
        self.compactions.request(store.id());
    }

    /// The loop of the housekeeper.
    pub(super) fn keep_house(&self) {
        let clock = &*self.environment.clock;
        let mut looked_at_all = self.opened_at;
        let mut left = 0;
        while self.compactions.rest(if left > 0 { ROUND_WITH_FILES } else { ROUND }) {
            // Readers of a dropped family may have kept its files.
            left = self.stores.iter().map(|(_, store)| store.remove_replaced()).sum();
            let now = clock.monotonic();
            for family in self.compactions.over(now) {
                self.compactions.request(family);
            }
            if now.saturating_sub(looked_at_all) >= LOOK_AT_ALL {
                looked_at_all = now;
                self.families().for_each(|store| self.compactions.request(store.id()));
            }
        }
    }
}

/// The compaction that is due in a family.
fn candidate(store: &ColumnFamily, tables: &Choosable, takes: Takes) -> Option<Candidate> {
    if store.failure().is_some() {
        // What was not written to its disk may be needed to make sense of what was.
        return None;
    }
    let circumstances = Circumstances {
        strategy: store.options().compaction_strategy,
        leveled_table_bytes: store.options().leveled_table_bytes,
        thresholds: store.compaction_thresholds(),
        gc_before: store.gc_before(),
        now_micros: store.environment().clock.now_micros(),
    };
    compaction::next_minor(tables, &circumstances, takes.max_bytes())
}
