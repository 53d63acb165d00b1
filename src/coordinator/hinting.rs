//! What is kept for replicas that were not there.

use crate::model::mutation::RowMutation;
use crate::replica::{HintError, HintPosition, HintStore};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Keeps hints for others.
#[derive(Debug)]
pub struct Hinting {
    store: Arc<HintStore>,
    waits_for_sync: bool,
}

impl Hinting {
    /// Keeps them in this store. With `waits_for_sync` a hint that stands for an acknowledgement
    /// has to be on disk first, as with a commit log in batch mode.
    pub fn new(store: Arc<HintStore>, waits_for_sync: bool) -> Self {
        Self { store, waits_for_sync }
    }

    /// The store.
    pub fn store(&self) -> &Arc<HintStore> {
        &self.store
    }

    /// Keeps a mutation for a node. What goes wrong is told in the log: the write itself does not
    /// depend on it.
    pub(super) fn keep(&self, target: IpAddr, mutation: &RowMutation) -> Option<HintPosition> {
        let stored = self.store.store(target, mutation);
        stored.inspect_err(|error| log::debug!("no hint for {target}: {error}")).ok()
    }

    /// Waits until a hint may stand for an acknowledgement.
    pub(super) async fn when_safe(&self, position: HintPosition) -> Result<(), HintError> {
        if !self.waits_for_sync {
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        // The write may have been given up.
        self.store.on_durable(position, Box::new(move |result| drop(sender.send(result))));
        receiver.await.unwrap_or(Ok(()))
    }
}
