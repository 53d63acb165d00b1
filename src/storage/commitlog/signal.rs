//! Messages between callers and the sync thread.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::lock::{Condvar, Mutex, rank};

use super::error::LogError;
use super::{Position, SyncPolicy};

/// Shortest period of periodic sync: with none, the sync thread would never sleep.
const MIN_PERIOD: Duration = Duration::from_millis(1);

/// Called once, on the sync thread or at once on the caller's, when a position is durable or
/// never will be.
pub type SyncCallback = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// The mailbox of the sync thread.
#[derive(Debug)]
pub(super) struct SyncSignal {
    state: Mutex<rank::State, State>,
    wake: Condvar,
}

#[derive(derive_more::Debug)]
#[debug("State {{ {synced}, {} waiting, .. }}", waiters.len())]
struct State {
    /// Everything before this is durable.
    synced: Position,
    waiters: Vec<(Position, SyncCallback)>,
    /// Whether a caller cannot wait for the period or the window.
    urgent: bool,
    spare_wanted: bool,
    closing: bool,
    /// Why there will be no further sync.
    ended: Option<LogError>,
}

impl State {
    fn is_hurried(&self) -> bool {
        self.urgent || self.closing || self.ended.is_some()
    }
}

/// Next task of the sync thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Sync what is new; also if nothing is, when forced.
    Sync {
        /// Whether somebody waits.
        force: bool,
    },
    /// Make the next segment.
    Prepare,
    /// Sync, seal, and end.
    Close,
    /// End: the log has failed.
    End,
}

impl SyncSignal {
    /// A mailbox for a log that is durable up to here.
    pub(super) fn new(synced: Position) -> Self {
        let state = State {
            synced,
            waiters: Vec::new(),
            urgent: false,
            spare_wanted: false,
            closing: false,
            ended: None,
        };
        Self { state: Mutex::new(state), wake: Condvar::default() }
    }

    /// Calls back when everything before `position` is durable.
    pub(super) fn on_synced(&self, position: Position, urgent: bool, callback: SyncCallback) {
        let mut state = self.state.lock();
        let answer = if state.synced >= position {
            Ok(())
        } else if let Some(error) = &state.ended {
            Err(error.clone())
        } else {
            state.waiters.push((position, callback));
            state.urgent |= urgent;
            drop(state);
            self.wake.notify_one();
            return;
        };
        drop(state);
        callback(answer);
    }

    /// Asks for the next segment to be made.
    pub(super) fn want_spare(&self) {
        self.state.lock().spare_wanted = true;
        self.wake.notify_one();
    }

    /// Asks the sync thread to sync and end.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.wake.notify_one();
    }

    /// Says that there will be no further sync. The sync thread calls the waiters back, because
    /// their callbacks must not run under the locks that the caller may hold.
    pub(super) fn fail(&self, error: &LogError) {
        self.state.lock().ended.get_or_insert_with(|| error.clone());
        self.wake.notify_one();
    }

    /// Says that everything before this is durable, and calls back those who waited for it.
    pub(super) fn completed(&self, synced: Position) {
        let mut state = self.state.lock();
        state.synced = state.synced.max(synced);
        let done: Vec<_> = state.waiters.extract_if(.., |(at, _)| *at <= synced).collect();
        drop(state);
        for (_, callback) in done {
            callback(Ok(()));
        }
    }

    /// Ends the service: tells all who still wait.
    pub(super) fn end(&self, error: &LogError) {
        let mut state = self.state.lock();
        let error = state.ended.get_or_insert_with(|| error.clone()).clone();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for (_, callback) in waiters {
            callback(Err(error.clone()));
        }
    }

    /// Everything before this is durable.
    #[cfg(test)]
    pub(super) fn synced(&self) -> Position {
        self.state.lock().synced
    }

    /// Sleeps until there is something to do. `last_sync` is when the last period ended, on the
    /// clock's monotonic side.
    pub(super) fn next(
        &self,
        policy: SyncPolicy,
        clock: &dyn Clock,
        last_sync: &mut Duration,
    ) -> Task {
        let mut state = self.state.lock();
        loop {
            if state.ended.is_some() {
                return Task::End;
            }
            if state.closing {
                return Task::Close;
            }
            if std::mem::take(&mut state.urgent) {
                *last_sync = clock.monotonic();
                return Task::Sync { force: true };
            }
            // Before any further batch: under load there is always a waiter for one.
            if std::mem::take(&mut state.spare_wanted) {
                return Task::Prepare;
            }
            match policy {
                SyncPolicy::Batch { .. } if state.waiters.is_empty() => self.wake.wait(&mut state),
                SyncPolicy::Batch { window } => {
                    if !window.is_zero() {
                        // Others who come in this time share the sync.
                        let gather = |state: &mut State| !state.is_hurried();
                        self.wake.wait_while_for(&mut state, gather, window);
                    }
                    if !state.is_hurried() {
                        return Task::Sync { force: true };
                    }
                }
                SyncPolicy::Periodic { every } => {
                    let passed = clock.monotonic().saturating_sub(*last_sync);
                    let left = every.max(MIN_PERIOD).saturating_sub(passed);
                    let is_over = !self.wake.wait_for(&mut state, left);
                    if is_over && !state.is_hurried() {
                        *last_sync = clock.monotonic();
                        return Task::Sync { force: !state.waiters.is_empty() };
                    }
                }
            }
        }
    }
}
