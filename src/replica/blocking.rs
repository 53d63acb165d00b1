//! Work that may wait for a disk, off the threads that carry messages and gossip.

use super::workers::Abandoned;

/// Where work is done that may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// On a thread of its own, while the task that asked for it waits.
    Elsewhere,
    /// On the spot: where nothing really blocks, as in a simulation, in which one thing has to
    /// happen after the other.
    Inline,
}

impl Blocking {
    /// Does a piece of work. Whoever gives up waiting for it does not end it. Must be called
    /// within a tokio runtime.
    pub async fn run<T: Send + 'static>(
        self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Abandoned> {
        match self {
            Self::Elsewhere => tokio::task::spawn_blocking(job).await.map_err(|_| Abandoned),
            Self::Inline => Ok(job()),
        }
    }
}
