//! Jobs of other nodes for this one.

use super::messages::{JobStatus, Output, Task};
use crate::repair::calls::{CANCEL, POLL, START};
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::progress::{Progress, ProgressByNode};
use crate::repair::service::Service;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two polls: at first, and at most.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(500);

/// Longest silence of a node that seems alive.
const PATIENCE: Duration = Duration::from_secs(120);

/// Most times that a node may lose a job.
const MAX_LOSSES: u32 = 20;

impl Service {
    /// Has a node, which may be this one, do a task, also if it restarts meanwhile. It may be down
    /// for this long.
    pub(crate) async fn run_job(
        self: &Arc<Self>,
        at: IpAddr,
        down_patience: Duration,
        task: Task,
        progress: &ProgressByNode,
    ) -> Result<(Progress, Output)> {
        let job = self.node.job_number();
        let _guard = LocalJob { service: self, at, job };
        let outcome = self.follow_job(at, down_patience, &(job, task), progress).await;
        // If it does not hear this, it gives the job up by itself.
        let _: Result<()> = self.ask(at, CANCEL, &job).await;
        outcome
    }

    async fn follow_job(
        self: &Arc<Self>,
        at: IpAddr,
        down_patience: Duration,
        start: &(u64, Task),
        note: &ProgressByNode,
    ) -> Result<(Progress, Output)> {
        let (mut is_known, mut losses) = (false, 0);
        let (mut heard, mut pause) = (Instant::now(), FIRST_POLL);
        loop {
            let status = if is_known {
                self.ask(at, POLL, &start.0).await
            } else {
                let started = self.ask(at, START, start).await;
                started.map(|()| JobStatus::Running(Progress::default()))
            };
            if status.is_ok() {
                heard = Instant::now();
            }
            match status {
                Ok(JobStatus::Unknown) => {
                    losses += 1;
                    if losses == MAX_LOSSES {
                        return fail("it loses what it is asked for again and again");
                    }
                    is_known = false;
                }
                Ok(JobStatus::Running(progress)) => {
                    is_known = true;
                    note.note(at, progress);
                }
                Ok(JobStatus::Done(progress, output)) => {
                    note.note(at, progress);
                    return Ok((progress, output));
                }
                Ok(JobStatus::Failed(why)) => return Err(OperationError::Failed(why)),
                Err(error) => {
                    let (silence, is_live) =
                        (heard.elapsed(), self.node.look()?.live.contains(&at));
                    if !is_live && silence >= down_patience {
                        return Err(OperationError::Down(at));
                    }
                    if silence >= PATIENCE {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_POLL);
        }
    }
}

/// Cancels a job of this node when dropped. Other nodes give theirs up by themselves.
struct LocalJob<'a> {
    service: &'a Service,
    at: IpAddr,
    job: u64,
}

impl Drop for LocalJob<'_> {
    fn drop(&mut self) {
        if self.at == self.service.node.local() {
            self.service.jobs.cancel(self.job);
        }
    }
}
