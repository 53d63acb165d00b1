//! What happened inside a node, told once and heard by many: the operator's log, the metrics and
//! the tests all listen to the same [`Event`]s.
//!
//! A component gets an [`Events`] handle when it is built and calls [`Events::emit`] where a state
//! changes. It writes no log line of its own for the same thing. Listeners run on the thread that
//! emits, under whatever locks that thread holds, so they must be quick and must not call back.

mod cache;
mod commitlog;
mod compaction;
mod disk;
mod event;
mod flush;
mod snapshot;
mod sstable;
#[cfg(test)]
mod tests;

use crate::base::lock::{Condvar, Mutex, MutexGuard, rank};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use cache::{CacheEvent, CacheKind};
pub use commitlog::CommitLogEvent;
pub use compaction::{CompactionEvent, CompactionKind};
pub use disk::{DiskEvent, DiskOperation};
pub use event::Event;
pub use flush::{Family, FlushCause, FlushEvent, Memtable};
pub use snapshot::SnapshotEvent;
pub use sstable::SSTableEvent;

/// Hears of events.
pub trait Listener: Send + Sync + fmt::Debug {
    /// Called for each event, on the thread where it happened. Must be quick and must not emit.
    fn on_event(&self, event: &Event);
}

/// The handle that components emit through. Cloning it is cheap, its listeners never change, and
/// without listeners it does nothing.
#[derive(Debug, Clone, Default)]
pub struct Events {
    listeners: Arc<[Arc<dyn Listener>]>,
}

impl Events {
    /// A handle that nobody listens to.
    pub fn ignored() -> Self {
        Self::default()
    }

    /// A handle that writes every event to the log, at the event's level and target.
    pub fn logging() -> Self {
        Self::ignored().and(Arc::new(LogListener))
    }

    /// A handle for tests, together with what it will have heard.
    pub fn recording() -> (Self, Arc<Recorder>) {
        let recorder = Arc::new(Recorder::default());
        (Self::ignored().and(recorder.clone()), recorder)
    }

    /// A handle with one listener more. This handle itself stays as it is.
    #[must_use]
    pub fn and(&self, listener: Arc<dyn Listener>) -> Self {
        let listeners = self.listeners.iter().cloned().chain([listener]).collect();
        Self { listeners }
    }

    /// Tells all listeners, in the order in which they were added.
    pub fn emit(&self, event: impl Into<Event>) {
        if self.listeners.is_empty() {
            return;
        }
        let event = event.into();
        for listener in self.listeners.iter() {
            listener.on_event(&event);
        }
    }
}

/// Writes events to the log.
#[derive(Debug)]
struct LogListener;

impl Listener for LogListener {
    fn on_event(&self, event: &Event) {
        log::log!(target: event.target(), event.level(), "{event}");
    }
}

/// Keeps the events it hears, so that a test can look at them or wait for one.
#[derive(Debug, Default)]
pub struct Recorder {
    heard: Mutex<rank::Events, VecDeque<Event>>,
    arrived: Condvar,
}

impl Recorder {
    /// The oldest events are forgotten beyond this number, so that a long run stays bounded.
    pub const CAPACITY: usize = 65_536;

    /// All events so far, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.lock().iter().cloned().collect()
    }

    /// All events since the last call of this function, oldest first.
    pub fn take(&self) -> Vec<Event> {
        self.lock().drain(..).collect()
    }

    /// The first recorded event that `wanted` accepts, waiting for it up to `timeout`.
    pub fn wait_for(&self, timeout: Duration, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let mut heard = self.lock();
        let is_missing = |heard: &mut VecDeque<Event>| !heard.iter().any(&wanted);
        self.arrived.wait_while_for(&mut heard, is_missing, timeout);
        heard.iter().find(|event| wanted(event)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.heard.lock()
    }
}

impl Listener for Recorder {
    fn on_event(&self, event: &Event) {
        let mut heard = self.lock();
        if heard.len() == Self::CAPACITY {
            heard.pop_front();
        }
        heard.push_back(event.clone());
        self.arrived.notify_all();
    }
}
