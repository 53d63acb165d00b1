//! Log lines about the work of storage, for operators. Where 0.6 logged the same thing the line
//! keeps its words, so that old searches and alerts still find it.

use log::Level;
use std::fmt;
use std::sync::Arc;

type Receiver = dyn Fn(Level, &'static str, &str) + Send + Sync;

/// Receives the lines of one storage. Clones share the receiver.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Events {{ are_received: {} }}", receiver.is_some())]
pub struct Events {
    receiver: Option<Arc<Receiver>>,
}

impl Events {
    /// Drops all lines.
    pub fn ignored() -> Self {
        Self::default()
    }

    /// Writes all lines to the log.
    pub fn logging() -> Self {
        Self::received_by(|level, target, line| log::log!(target: target, level, "{line}"))
    }

    /// Hands all lines to a function, with their level and log target. It runs on the thread that
    /// tells, under the locks of that thread, so it must not call the storage.
    pub fn received_by(
        receiver: impl Fn(Level, &'static str, &str) + Send + Sync + 'static,
    ) -> Self {
        Self { receiver: Some(Arc::new(receiver)) }
    }

    /// Passes a line to the receiver.
    pub fn tell(&self, level: Level, target: &'static str, line: fmt::Arguments<'_>) {
        if let Some(receiver) = &self.receiver {
            receiver(level, target, &line.to_string());
        }
    }
}
