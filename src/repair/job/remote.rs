//! Jobs that this node has others do.

use super::messages::{Cancel, JobStatus, Output, Poll, Start, Task};
use crate::repair::client::{AskError, ReplicaClient};
use crate::repair::host::Host;
use crate::repair::progress::Progress;
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

/// A node that does a job, which may be this one.
#[derive(Debug, Clone)]
pub(in crate::repair) struct RemoteJob {
    pub(in crate::repair) client: Arc<ReplicaClient>,
    pub(in crate::repair) host: Arc<dyn Host>,
    pub(in crate::repair) at: IpAddr,
    /// Longest time that the node may be down.
    pub(in crate::repair) down_patience: Duration,
}

/// Why a job has no output.
#[derive(Debug, thiserror::Error)]
pub(in crate::repair) enum JobError {
    #[error("it is down")]
    Down,
    #[error("it loses what it is asked for again and again")]
    Lost,
    #[error("{0}")]
    Silent(AskError),
    #[error("{0}")]
    Failed(String),
}

impl RemoteJob {
    /// Has the node do a task, also if it is started anew meanwhile. Returns all of the output.
    pub(in crate::repair) async fn run(
        &self,
        task: Task,
        note: impl Fn(Progress),
    ) -> Result<(Progress, Output), JobError> {
        let job = self.client.number();
        let _guard = LocalJob { client: &self.client, at: self.at, job };
        let outcome = self.follow(&Start { job, task }, note).await;
        // Whether it hears that or forgets the job by itself makes no difference.
        let _: Result<(), AskError> = self.client.ask(self.at, &Cancel(job), &self.host).await;
        outcome
    }

    async fn follow(
        &self,
        start: &Start,
        note: impl Fn(Progress),
    ) -> Result<(Progress, Output), JobError> {
        let (mut is_known, mut losses) = (false, 0);
        let (mut heard, mut pause) = (Instant::now(), FIRST_POLL);
        let mut all = Vec::new();
        loop {
            let status = self.start_or_poll(start, is_known, all.len() as u64).await;
            if status.is_ok() {
                heard = Instant::now();
            }
            match status {
                Ok(JobStatus::Unknown) => {
                    losses += 1;
                    if losses == MAX_LOSSES {
                        return Err(JobError::Lost);
                    }
                    is_known = false;
                    all.clear();
                }
                Ok(JobStatus::Running(progress)) => {
                    is_known = true;
                    note(progress);
                }
                Ok(JobStatus::Done(progress, Output::Leaves { count, hashes })) => {
                    let is_last = hashes.is_empty();
                    all.extend(hashes);
                    if is_last || all.len() as u64 >= count {
                        return Ok((progress, Output::Leaves { count, hashes: all }));
                    }
                    continue;
                }
                Ok(JobStatus::Done(progress, output)) => {
                    note(progress);
                    return Ok((progress, output));
                }
                Ok(JobStatus::Failed(why)) => return Err(JobError::Failed(why)),
                Err(error) => self.bear(heard.elapsed(), error)?,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_POLL);
        }
    }

    async fn start_or_poll(
        &self,
        start: &Start,
        is_known: bool,
        from: u64,
    ) -> Result<JobStatus, AskError> {
        if is_known {
            let poll = Poll { job: start.job, from };
            return self.client.ask(self.at, &poll, &self.host).await;
        }
        self.client.ask(self.at, start, &self.host).await?;
        Ok(JobStatus::Running(Progress::default()))
    }

    /// Whether to go on with a node that has not answered.
    fn bear(&self, silence: Duration, error: AskError) -> Result<(), JobError> {
        let is_down = !self.host.look().live.contains(&self.at);
        if is_down && silence >= self.down_patience {
            return Err(JobError::Down);
        }
        if silence >= PATIENCE { Err(JobError::Silent(error)) } else { Ok(()) }
    }
}

/// Ends a job of this node as soon as nobody waits for it. Others notice by themselves.
struct LocalJob<'a> {
    client: &'a ReplicaClient,
    at: IpAddr,
    job: u64,
}

impl Drop for LocalJob<'_> {
    fn drop(&mut self) {
        if self.at == self.client.local {
            self.client.service.jobs.cancel(self.job);
        }
    }
}
