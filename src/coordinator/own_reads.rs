//! What this node reads by itself, and when others are asked in its place.

use super::CoordinatorError;
use super::coordinator::Coordinator;
use super::view::ReadReplicas;
use crate::replica::ReplicaError;
use futures_util::FutureExt;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// So many rows by their keys.
    Rows(usize),
    /// All of a row, which may be large.
    Count,
    /// A range of rows.
    Range,
}

/// Why others are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// This node failed at it, as with a damaged file.
    Failed,
    /// It takes long.
    Slow,
}

impl Coordinator {
    /// What this node reads. If it fails and there are others, they are asked instead; if it takes
    /// longer than is usual they are asked as well, and the first answer counts. What is at hand
    /// costs no look at a clock.
    pub(super) async fn read_local_or_speculate<T, O>(
        &self,
        reading: Reading,
        has_others: bool,
        own: impl Future<Output = Result<T, ReplicaError>>,
        others: impl FnOnce(Reason) -> O,
    ) -> Result<T, CoordinatorError>
    where
        O: Future<Output = Result<T, CoordinatorError>>,
    {
        let mut own = pin!(own);
        let own_answer = if let Some(answer) = own.as_mut().now_or_never() {
            answer
        } else {
            let began = Instant::now();
            let deadline = began + self.rpc_timeout;
            let delay = self.local_delay(reading);
            let until = if has_others { began + delay } else { deadline };
            let Ok(answer) = timeout_at(until, own.as_mut()).await else {
                self.latencies.record_silence(self.local, began.elapsed());
                if !has_others {
                    return Err(CoordinatorError::TimedOut);
                }
                self.counters.speculations.fetch_add(1, Ordering::Relaxed);
                let own = async {
                    let answer = own.as_mut().await;
                    if answer.is_ok() {
                        self.record_own(reading, began.elapsed());
                    }
                    answer
                };
                let own = pin!(own);
                let first = self.first_of(own, Box::pin(others(Reason::Slow)));
                return timeout_at(deadline, first)
                    .await
                    .map_err(|_| CoordinatorError::TimedOut)?;
            };
            if answer.is_ok() {
                self.record_own(reading, began.elapsed());
            }
            answer
        };
        match own_answer {
            Err(error) if has_others && !error.is_too_large() => {
                self.warn_of_own("read", &error);
                // Seldom, and large.
                Box::pin(others(Reason::Failed)).await
            }
            answer => Ok(answer?),
        }
    }

    /// The first answer, or the one that is no failure.
    async fn first_of<T>(
        &self,
        mut own: Pin<&mut impl Future<Output = Result<T, ReplicaError>>>,
        others: impl Future<Output = Result<T, CoordinatorError>>,
    ) -> Result<T, CoordinatorError> {
        let mut others = pin!(others);
        tokio::select! {
            biased;
            answer = own.as_mut() => match answer {
                Err(error) if !error.is_too_large() => {
                    self.warn_of_own("read", &error);
                    others.await
                }
                answer => Ok(answer?),
            },
            answer = others.as_mut() => match answer {
                Ok(_) | Err(CoordinatorError::TooLarge(_)) => answer,
                Err(_) => Ok(own.await?),
            },
        }
    }

    /// What was at hand is not measured, since the clock would cost as much as the read.
    fn record_own(&self, reading: Reading, took: Duration) {
        match reading {
            Reading::Rows(1) => self.latencies.record(self.local, took),
            // Says little of how long a row takes.
            Reading::Rows(_) | Reading::Count => {}
            Reading::Range => {
                self.latencies.record_range(took);
                self.latencies.record_answer(self.local, took);
            }
        }
    }

    /// How long this node is waited for alone.
    fn local_delay(&self, reading: Reading) -> Duration {
        let most = self.rpc_timeout / 2;
        let delay = match reading {
            Reading::Rows(rows) => {
                let rows = u32::try_from(rows).unwrap_or(u32::MAX);
                self.latencies.row_delay().map(|delay| delay.saturating_mul(rows))
            }
            Reading::Count => None,
            Reading::Range => self.latencies.range_delay(),
        };
        delay.map_or(most, |delay| delay.min(most))
    }
}

impl ReadReplicas {
    /// Whether there is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.live.len() > 1
    }

    /// Those that are asked in the place of this node: the others, if there are any.
    pub(super) fn others(mut self, local: std::net::IpAddr) -> Self {
        if self.are_several() {
            self.live.retain(|replica| *replica != local);
        }
        self
    }
}
