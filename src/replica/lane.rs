//! Threads for reads, and the requests that may use them.

use super::workers::{Abandoned, PoolLoad, Waiters, WorkerPool};
use crate::base::context::RequestContext;
use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A pool of threads, and as many permits for requests whose answers are in memory.
#[derive(Debug)]
pub(super) struct Lane {
    pool: WorkerPool,
    permits: Arc<Semaphore>,
    /// Requests that wait for a permit, before they may ask a thread.
    not_admitted: Waiters,
}

impl Lane {
    /// Starts the threads; without any, no job is ever done.
    pub(super) fn start(name: &'static str, threads: usize, niceness: i32) -> io::Result<Self> {
        let pool = WorkerPool::start(name, threads, niceness)?;
        let permits = Arc::new(Semaphore::new(threads));
        Ok(Self { pool, permits, not_admitted: Waiters::default() })
    }

    /// Has a job done when its turn comes, unless nobody waits for it any more then. Waits before
    /// until few enough requests of the lane have answers in memory. A permit that the request
    /// has for another lane is given back.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        context: &mut RequestContext,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Abandoned> {
        let is_ours = |permit| Arc::ptr_eq(OwnedSemaphorePermit::semaphore(permit), &self.permits);
        if !context.read_permit.as_ref().is_some_and(is_ours) {
            context.read_permit = None;
            let permit = Arc::clone(&self.permits).acquire_owned();
            context.read_permit =
                Some(self.not_admitted.wait(permit).await.map_err(|_| Abandoned)?);
        }
        self.pool.ask(job).await
    }

    /// The requests that a thread works for, and those that wait.
    pub(super) fn load(&self) -> PoolLoad {
        let PoolLoad { active, waiting } = self.pool.load();
        PoolLoad { active, waiting: waiting + self.not_admitted.count() }
    }

    /// Finishes what is under way and ends the threads. Blocks.
    pub(super) fn shutdown(&self) {
        self.pool.shutdown();
    }
}
