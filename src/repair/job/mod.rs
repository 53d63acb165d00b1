//! Jobs: work by one node for another that takes longer than a call may.
//!
//! The requesting node starts the job, polls it, and cancels it at the end ([`remote`]). It starts
//! it again if the other node has restarted. A job that is not polled any more is given up.

mod messages;
mod remote;

pub(super) use messages::{JobStatus, Output, Scope, Task};

use super::error::Result;
use super::progress::ProgressCounters;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time without a poll after which a job is given up: the requesting node is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Most jobs, done or not. Further ones are refused; as many refusals are kept.
const MAX_JOBS: usize = 64;

/// Jobs of this node for others and for itself.
#[derive(Debug)]
pub(super) struct Jobs {
    clock: Arc<dyn Clock>,
    by_number: Arc<Mutex<rank::State, BTreeMap<u64, Job>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Job {
    from: IpAddr,
    polled: Duration,
    control: JobControl,
    /// `None` while it runs.
    outcome: Option<Result<Output, String>>,
}

/// Progress of a job, and its cancellation.
#[derive(Debug, Clone, Default)]
pub(super) struct JobControl {
    pub(super) progress: Arc<ProgressCounters>,
    pub(super) stop: CancellationToken,
}

impl Jobs {
    /// Jobs that run on these tasks, and end when `stop` is cancelled.
    pub(super) fn new(clock: Arc<dyn Clock>, stop: CancellationToken, tasks: TaskTracker) -> Self {
        Self { clock, by_number: Arc::default(), stop, tasks }
    }

    /// Starts a job, unless its number is known. Must be called within a tokio runtime.
    pub(super) fn start<F>(&self, number: u64, from: IpAddr, work: impl FnOnce(JobControl) -> F)
    where
        F: Future<Output = Result<Output>> + Send + 'static,
    {
        let mut jobs = self.by_number.lock();
        if jobs.contains_key(&number) || jobs.len() >= 2 * MAX_JOBS {
            // Polls are answered with `Unknown`.
            return;
        }
        let is_refused = jobs.len() >= MAX_JOBS;
        let control = JobControl { stop: self.stop.child_token(), ..JobControl::default() };
        let job = Job {
            from,
            polled: self.clock.monotonic(),
            control: control.clone(),
            outcome: is_refused.then(|| Err("too many are asking at once".to_owned())),
        };
        jobs.insert(number, job);
        drop(jobs);
        if is_refused {
            return;
        }
        let (jobs, work) = (Arc::clone(&self.by_number), work(control));
        self.tasks.spawn(async move {
            let outcome = work.await.map_err(|error| error.to_string());
            if let Some(job) = jobs.lock().get_mut(&number) {
                job.outcome = Some(outcome);
            }
        });
    }

    pub(super) fn status(&self, number: u64) -> JobStatus {
        let now = self.clock.monotonic();
        let mut jobs = self.by_number.lock();
        let Some(job) = jobs.get_mut(&number) else { return JobStatus::Unknown };
        job.polled = now;
        let (counters, outcome) = (Arc::clone(&job.control.progress), job.outcome.clone());
        drop(jobs);
        match outcome {
            None => JobStatus::Running(counters.now()),
            Some(Ok(output)) => JobStatus::Done(counters.now(), output),
            Some(Err(why)) => JobStatus::Failed(why),
        }
    }

    /// Drops a job, which ends if it runs.
    pub(super) fn cancel(&self, number: u64) {
        if let Some(job) = self.by_number.lock().remove(&number) {
            job.control.stop.cancel();
        }
    }

    /// Gives up jobs that are not polled any more. To be called about once a second.
    pub(super) fn tidy(&self) {
        let now = self.clock.monotonic();
        self.by_number.lock().retain(|_, job| {
            let is_wanted = now.saturating_sub(job.polled) < FORGOTTEN_AFTER;
            if !is_wanted {
                job.control.stop.cancel();
                if job.outcome.is_none() {
                    log::warn!("{} does not poll the job any more that it started here", job.from);
                }
            }
            is_wanted
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;
    use crate::repair::error::OperationError;

    const NODE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn jobs(clock: &Arc<ManualClock>) -> Jobs {
        Jobs::new(Arc::clone(clock) as _, CancellationToken::new(), TaskTracker::new())
    }

    async fn run(jobs: &Jobs, number: u64, outcome: Result<Output>) -> JobStatus {
        jobs.start(number, NODE, |_| async move { outcome });
        while let JobStatus::Running(_) = jobs.status(number) {
            tokio::task::yield_now().await;
        }
        jobs.status(number)
    }

    #[tokio::test]
    async fn a_job_that_is_not_polled_is_given_up() {
        let clock = Arc::new(ManualClock::default());
        let jobs = jobs(&clock);
        let stopped = CancellationToken::new();
        let waits = async |control: JobControl, stopped: CancellationToken| {
            control.stop.cancelled().await;
            stopped.cancel();
            Err(OperationError::GivenUp)
        };
        jobs.start(1, NODE, |control| waits(control, CancellationToken::new()));
        jobs.start(2, NODE, |control| waits(control, stopped.clone()));
        clock.advance(FORGOTTEN_AFTER / 2);
        assert!(matches!(jobs.status(1), JobStatus::Running(_)));
        clock.advance(FORGOTTEN_AFTER / 2);
        jobs.tidy();
        assert!(matches!(jobs.status(1), JobStatus::Running(_)));
        assert_eq!(jobs.status(2), JobStatus::Unknown);
        stopped.cancelled().await;
        jobs.cancel(1);
        assert_eq!(jobs.status(1), JobStatus::Unknown);
    }

    #[tokio::test]
    async fn the_number_of_jobs_is_bounded() {
        let jobs = jobs(&Arc::default());
        for number in 1..=MAX_JOBS as u64 {
            assert!(matches!(run(&jobs, number, Ok(Output::Collected)).await, JobStatus::Done(..)));
        }
        let refused = run(&jobs, 1000, Ok(Output::Collected)).await;
        assert_eq!(refused, JobStatus::Failed("too many are asking at once".to_owned()));
    }
}
