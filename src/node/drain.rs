//! How a node leaves its ring: at its end, or before, when an operator drains it.
//!
//! A drained node takes no writes and is dead to others, which keep hints for it. Everything is on
//! disk, so that the next start replays nothing, and an upgrade finds no commit log. It still
//! answers reads that need nobody else, and operators.

use super::Parts;
use super::member::Member;
use crate::coordinator::Peers;
use crate::net::tcp::TcpTransport;
use crate::replica::HintStore;
use crate::storage::Database;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a [`Drain`] works with.
#[derive(Debug)]
pub(super) struct DrainOptions {
    pub(super) member: Arc<Member>,
    pub(super) transport: Arc<TcpTransport>,
    pub(super) storage: Arc<Database>,
    pub(super) hints: Option<Arc<HintStore>>,
}

impl DrainOptions {
    pub(super) fn new(member: &Arc<Member>, parts: &Parts<'_>) -> Self {
        Self {
            member: Arc::clone(member),
            transport: Arc::clone(parts.transport),
            storage: Arc::clone(parts.storage),
            hints: parts.hints.clone(),
        }
    }
}

/// What a drain has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Memtables that were written to disk.
    #[serde(rename = "memtables_flushed")]
    pub flushed: usize,
    /// Memtables that could not be, for reasons in the log: they stay in the commit log, and the
    /// next start replays them.
    #[serde(rename = "memtables_left")]
    pub left: usize,
}

/// Takes a node out of its ring, once.
#[derive(Debug)]
pub struct Drain {
    options: DrainOptions,
    /// Ends what runs as long as the node is a member of its ring.
    pub(super) stop: CancellationToken,
    /// What that is.
    pub(super) tasks: TaskTracker,
    has_left: OnceCell<()>,
    drained: OnceCell<Drained>,
}

impl Drain {
    pub(super) fn new(options: DrainOptions) -> Arc<Self> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (has_left, drained) = (OnceCell::new(), OnceCell::new());
        Arc::new(Self { options, stop, tasks, has_left, drained })
    }

    /// Takes the node out of its ring and writes everything to disk. Another call waits for the
    /// first, and tells the same. Must be called within a tokio runtime, and not be given up in
    /// the middle.
    pub async fn run(&self) -> Drained {
        if self.drained.initialized() {
            log::warn!("Cannot drain node (did it already happen?)");
        }
        *self.drained.get_or_init(|| self.drain()).await
    }

    async fn drain(&self) -> Drained {
        log::info!("DRAINING: starting drain process");
        self.leave().await;
        let storage = Arc::clone(&self.options.storage);
        let before = storage.unflushed_memtables();
        if tokio::task::spawn_blocking(move || storage.close()).await.is_err() {
            log::error!("the data were not closed in order: the next start replays the commit log");
        }
        let left = self.options.storage.unflushed_memtables();
        log::info!("DRAINED: the node takes no writes until it is started anew");
        Drained { flushed: before.saturating_sub(left), left }
    }

    /// Takes the node out of its ring: it takes no more writes, nobody hears of it any more, and
    /// what others have not acknowledged becomes hints. Done once, whoever asks.
    pub(super) async fn leave(&self) {
        self.has_left.get_or_init(|| self.leave_ring()).await;
    }

    async fn leave_ring(&self) {
        let DrainOptions { member, transport, storage, hints } = &self.options;
        let coordinator = member.coordinator();
        coordinator.refuse_writes();
        coordinator.drain().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // Nobody is told apart from the dead any more, and none is asked in vain.
        coordinator.set_ring(coordinator.ring().as_ref().clone(), Peers::default());
        // Before the threads that may wait in a write are waited for.
        storage.stop_writes();
        let transport = Arc::clone(transport);
        if tokio::task::spawn_blocking(move || transport.shutdown()).await.is_err() {
            log::error!("the connections to other nodes were not closed in order");
        }
        member.finish().await;
        let Some(hints) = hints.clone() else { return };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || hints.sync()).await {
            log::warn!("{error}");
        }
    }
}
