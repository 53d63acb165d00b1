//! Leaving the ring, when the node stops or an operator drains it.
//!
//! A drained node takes no writes and is dead to others, which keep hints for it. Everything is on
//! disk, so that the next start replays nothing, and an upgrade finds no commit log. It still
//! serves operators, and reads that need no other node.

use super::member::Member;
use crate::coordinator::Peers;
use crate::net::tcp::TcpTransport;
use crate::storage::Database;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Memtables that were written to disk.
    #[serde(rename = "memtables_flushed")]
    pub flushed: usize,
    /// Memtables that could not be written, for reasons in the log: the next start replays them
    /// from the commit log.
    #[serde(rename = "memtables_left")]
    pub left: usize,
}

/// Takes a node out of its ring, once.
#[derive(Debug)]
pub struct Drain {
    member: Arc<Member>,
    transport: Arc<TcpTransport>,
    storage: Arc<Database>,
    /// Ends the tasks of a member of the ring.
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    has_left: OnceCell<()>,
    drained: OnceCell<Drained>,
}

impl Drain {
    pub(super) fn new(
        member: Arc<Member>,
        transport: Arc<TcpTransport>,
        storage: Arc<Database>,
    ) -> Arc<Self> {
        let (stop, tasks, has_left, drained) = Default::default();
        Arc::new(Self { member, transport, storage, stop, tasks, has_left, drained })
    }

    /// Takes the node out of its ring and writes everything to disk. A second call waits for the
    /// first and returns its result. Must be called within a tokio runtime, and not be cancelled.
    pub async fn run(&self) -> Drained {
        if self.drained.initialized() {
            log::warn!("Cannot drain node (did it already happen?)");
        }
        *self.drained.get_or_init(|| self.drain()).await
    }

    async fn drain(&self) -> Drained {
        log::info!("DRAINING: starting drain process");
        self.leave().await;
        let storage = Arc::clone(&self.storage);
        let before = storage.unflushed_memtables();
        if tokio::task::spawn_blocking(move || storage.close()).await.is_err() {
            log::error!("the data were not closed in order: the next start replays the commit log");
        }
        let left = self.storage.unflushed_memtables();
        log::info!("DRAINED: the node takes no writes until it is started anew");
        Drained { flushed: before.saturating_sub(left), left }
    }

    /// Takes the node out of its ring, once: it takes no more writes, sends nothing any more, and
    /// unacknowledged messages become hints.
    pub(super) async fn leave(&self) {
        self.has_left.get_or_init(|| self.leave_ring()).await;
    }

    async fn leave_ring(&self) {
        let coordinator = self.member.coordinator();
        coordinator.refuse_writes();
        coordinator.drain().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // All peers count as dead, so that no request waits for one.
        coordinator.set_ring(coordinator.ring().as_ref().clone(), Peers::default());
        // Before the wait for threads that may be in a write.
        self.storage.stop_writes();
        let transport = Arc::clone(&self.transport);
        if tokio::task::spawn_blocking(move || transport.shutdown()).await.is_err() {
            log::error!("the connections to other nodes were not closed in order");
        }
        self.member.finish().await;
        let Some(hints) = self.member.hints().cloned() else { return };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || hints.sync()).await {
            log::warn!("{error}");
        }
    }
}
