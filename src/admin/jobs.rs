//! Long work, on threads of its own. It goes on when its client has gone away.

use super::error::AdminError;
use axum::http::StatusCode;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Jobs that run at a time; further ones are refused.
const MAX_JOBS: usize = 8;

const PANICKED: &str = "the operation failed by a defect of the server: its log says more";

/// Runs what may take long.
#[derive(Debug, Clone)]
pub(super) struct Jobs(Arc<Semaphore>);

impl Default for Jobs {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_JOBS)))
    }
}

impl Jobs {
    /// Runs a job on a thread that may block, and waits for its result.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, AdminError> {
        Self::join(self.begin(job)?).await
    }

    /// The result of a job.
    pub(super) async fn join<T>(job: JoinHandle<Result<T, AdminError>>) -> Result<T, AdminError> {
        match job.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(AdminError::failed(PANICKED)),
            Err(_) => Err(AdminError::stopping()),
        }
    }

    /// Begins a job on a thread that may block. It goes on when its client has gone away.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
    ) -> Result<JoinHandle<Result<T, AdminError>>, AdminError> {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            let text = format!("{MAX_JOBS} operations are running: wait until one has ended");
            return Err(AdminError::new(StatusCode::SERVICE_UNAVAILABLE, text));
        };
        Ok(tokio::task::spawn_blocking(move || {
            let result = job();
            drop(permit);
            result
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn as_many_jobs_run_as_may_and_a_panic_ends_only_one() {
        let jobs = Jobs::default();
        let panicked = jobs.run::<()>(|| panic!("on purpose")).await;
        assert_eq!(panicked, Err(AdminError::failed(PANICKED)));
        let mut running = Vec::new();
        let mut gates = Vec::new();
        for _ in 0..MAX_JOBS {
            let (gate, opened) = mpsc::channel::<()>();
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            gates.push(gate);
            let jobs = jobs.clone();
            running.push(tokio::spawn(async move {
                let job = move || {
                    begun.send(()).unwrap();
                    opened.recv().unwrap();
                    Ok(())
                };
                jobs.run(job).await
            }));
            has_begun.await.unwrap();
        }
        let refused = jobs.run(|| Ok(())).await.unwrap_err().to_string();
        assert_eq!(refused, "8 operations are running: wait until one has ended");
        // One whose client has gone away goes on.
        running.remove(0).abort();
        let refused = jobs.run(|| Ok(())).await.unwrap_err().to_string();
        assert_eq!(refused, "8 operations are running: wait until one has ended");
        for gate in gates {
            gate.send(()).unwrap();
        }
        for job in running {
            job.await.unwrap().unwrap();
        }
    }
}
