//! Work of one node for another, which takes longer than a call may.
//!
//! The node that wants it starts the job, polls it, and cancels it at the end ([`remote`]). It
//! starts it again if the other node has been restarted. A job that is not polled any more is given
//! up, so that a node that is gone leaves nothing here.

mod messages;
mod remote;

pub(super) use messages::{JobStatus, Output, Scope, Task};

use super::error::Result;
use super::progress::ProgressCounters;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, MutexGuard, rank};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A job that was not polled for this long is given up: the node that wanted it is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Most jobs that are kept at a time, done or not. Further ones fail; as many refusals are kept.
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
    /// None while it runs.
    outcome: Option<Result<Output, String>>,
}

/// Progress of a job, and whether it is to end.
#[derive(Debug, Clone, Default)]
pub(super) struct JobControl {
    pub(super) progress: Arc<ProgressCounters>,
    pub(super) stop: CancellationToken,
}

impl Jobs {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (by_number, stop, tasks) = Default::default();
        Self { clock, by_number, stop, tasks }
    }

    /// Starts a job, unless its number is known. Must be called within a tokio runtime.
    pub(super) fn start<F>(&self, number: u64, from: IpAddr, work: impl FnOnce(JobControl) -> F)
    where
        F: Future<Output = Result<Output>> + Send + 'static,
    {
        let mut jobs = self.lock();
        if jobs.contains_key(&number) || jobs.len() >= 2 * MAX_JOBS {
            // The node that polls it hears that it is unknown.
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
        let mut jobs = self.lock();
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

    /// Forgets a job, which ends if it runs.
    pub(super) fn cancel(&self, number: u64) {
        if let Some(job) = self.lock().remove(&number) {
            job.control.stop.cancel();
        }
    }

    /// Gives up jobs that nobody polls any more. To be called about once in a second.
    pub(super) fn tidy(&self) {
        let now = self.clock.monotonic();
        self.lock().retain(|_, job| {
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

    /// Ends all jobs.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Job>> {
        self.by_number.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;
    use crate::repair::error::OperationError;

    const NODE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

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
        let jobs = Jobs::new(Arc::clone(&clock) as _);
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
        jobs.stop().await;
    }

    #[tokio::test]
    async fn the_number_of_jobs_is_bounded() {
        let jobs = Jobs::new(Arc::new(ManualClock::default()));
        for number in 1..=MAX_JOBS as u64 {
            assert!(matches!(run(&jobs, number, Ok(Output::Collected)).await, JobStatus::Done(..)));
        }
        let refused = run(&jobs, 1000, Ok(Output::Collected)).await;
        assert_eq!(refused, JobStatus::Failed("too many are asking at once".to_owned()));
    }
}
