//! Those that take part in a repair: replicas, of which this node may be one.

use super::calls::{CollectRows, Findings, Forget, Validated};
use crate::base::lock::{Mutex, rank};
use crate::net::caller::Caller;
use crate::repair::calls::{Accepted, Call, HowFar, JobStatus, Withdraw, ask};
use crate::repair::error::OperationError;
use crate::repair::host::Host;
use crate::repair::service::Service;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long it takes until a replica is asked again how far it is: at first, and at most.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(500);

/// How long a replica may be away that seems alive, and one that is known to be down.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_WITH_THE_DEAD: Duration = Duration::from_secs(30);

/// How often a replica may lose what it was asked for.
pub(super) const MOST_LOSSES: u32 = 20;

/// Asks replicas.
#[derive(Debug, Clone)]
pub(super) struct Parties {
    pub(super) local: IpAddr,
    pub(super) caller: Caller,
    pub(super) service: Arc<Service>,
    pub(super) host: Arc<dyn Host>,
    pub(super) hashing: Arc<Hashing>,
}

/// How far replicas are with the hashes of leaves: rows that each has read, and of about how many.
#[derive(Debug, Default)]
pub(in crate::repair) struct Hashing(Mutex<rank::RepairProgress, BTreeMap<IpAddr, (u64, u64)>>);

impl Hashing {
    pub(super) fn note(&self, replica: IpAddr, rows: u64, of: u64) {
        let mut noted = self.0.lock();
        noted.insert(replica, (rows, of));
    }

    /// All together.
    pub(in crate::repair) fn now(&self) -> RowsHashed {
        let noted = self.0.lock();
        let add = |sum: RowsHashed, it: &(u64, u64)| RowsHashed {
            rows: sum.rows.saturating_add(it.0),
            of: sum.of.saturating_add(it.1),
        };
        noted.values().fold(RowsHashed::default(), add)
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// How far replicas are with the hashes of what is being compared, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowsHashed {
    /// Rows that they have read.
    pub rows: u64,
    /// About how many they are to read.
    pub of: u64,
}

/// Waits for one replica.
struct Patience {
    heard: Instant,
    losses: u32,
    poll: Duration,
}

impl Patience {
    fn new() -> Self {
        Self { heard: Instant::now(), losses: 0, poll: FIRST_POLL }
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.poll).await;
        self.poll = (self.poll * 2).min(LAST_POLL);
    }

    fn hear(&mut self) {
        self.heard = Instant::now();
    }

    fn count_loss(&mut self, replica: IpAddr) -> Result<(), OperationError> {
        self.hear();
        self.losses += 1;
        if self.losses < MOST_LOSSES {
            return Ok(());
        }
        Err(Parties::loses(replica))
    }
}

impl Parties {
    /// A replica is of no use.
    pub(super) fn loses(replica: IpAddr) -> OperationError {
        let why = "it loses what it is asked for again and again".to_owned();
        OperationError::Repair { replica, why }
    }

    /// Has a replica work something out, and waits for what comes of it.
    pub(super) async fn work_out<C: Call<Answer = Accepted>>(
        &self,
        replica: IpAddr,
        session: u64,
        request: &C,
    ) -> Result<Findings, OperationError> {
        let mut patience = Patience::new();
        let mut is_known = false;
        loop {
            let answered = if is_known {
                self.ask(replica, &Validated { session, from: 0 }).await
            } else {
                let accepted = self.ask(replica, request).await;
                accepted.map(|Accepted {}| Findings::Running { rows: 0, of: 0 })
            };
            match answered {
                Ok(Findings::Unknown) => {
                    is_known = false;
                    patience.count_loss(replica)?;
                }
                Ok(Findings::Running { rows, of }) => {
                    is_known = true;
                    patience.hear();
                    if of > 0 {
                        self.hashing.note(replica, rows, of);
                    }
                }
                Ok(Findings::Failed { why }) => {
                    return Err(OperationError::Repair { replica, why });
                }
                Ok(findings) => return Ok(findings),
                Err(why) => self.bear(replica, &patience, why)?,
            }
            patience.pause().await;
        }
    }

    /// More of the leaves that a replica has worked out; `None` if it has lost them.
    pub(super) async fn more_leaves(
        &self,
        replica: IpAddr,
        session: u64,
        from: usize,
    ) -> Result<Option<Vec<String>>, OperationError> {
        let mut patience = Patience::new();
        loop {
            match self.ask(replica, &Validated { session, from }).await {
                Ok(Findings::Leaves { hashes, .. }) => return Ok(Some(hashes)),
                Ok(_) => return Ok(None),
                Err(why) => self.bear(replica, &patience, why)?,
            }
            patience.pause().await;
        }
    }

    /// Nobody needs what a replica has worked out any more. Whether it hears that or forgets by
    /// itself makes no difference.
    pub(super) async fn forget(&self, replica: IpAddr, session: u64) {
        let _: Result<Accepted, String> = self.ask(replica, &Forget { session }).await;
    }

    /// Has a replica collect rows; returns how many rows and bytes it was.
    pub(super) async fn collect(
        &self,
        replica: IpAddr,
        request: &CollectRows,
    ) -> Result<(u64, u64), OperationError> {
        let (mut patience, order) = (Patience::new(), request.order);
        let mut is_known = false;
        let outcome = loop {
            let standing = if is_known {
                self.ask(replica, &HowFar { order }).await
            } else {
                let accepted = self.ask(replica, request).await;
                let running = JobStatus::Running { bytes: 0, rows: 0, ranges_done: 0, ranges: 0 };
                accepted.map(|Accepted {}| running)
            };
            match standing {
                Ok(JobStatus::Unknown) => {
                    is_known = false;
                    patience.count_loss(replica)?;
                }
                Ok(JobStatus::Running { .. }) => {
                    is_known = true;
                    patience.hear();
                }
                Ok(JobStatus::Done { bytes, rows }) => break Ok((rows, bytes)),
                Ok(JobStatus::Failed { why }) => {
                    break Err(OperationError::Repair { replica, why });
                }
                Err(why) => self.bear(replica, &patience, why)?,
            }
            patience.pause().await;
        };
        let _: Result<Accepted, String> = self.ask(replica, &Withdraw { order }).await;
        outcome
    }

    async fn ask<C: Call>(&self, replica: IpAddr, call: &C) -> Result<C::Answer, String> {
        if replica != self.local {
            return ask(&self.caller, replica, call).await.map_err(|error| error.to_string());
        }
        let body = serde_json::to_vec(call).map_err(|error| error.to_string())?;
        let host = Arc::clone(&self.host);
        let answer = self.service.answer(replica, C::NAME, &body, host).await;
        let answer = answer.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }

    /// Whether to go on with a replica that has not answered.
    fn bear(
        &self,
        replica: IpAddr,
        patience: &Patience,
        why: String,
    ) -> Result<(), OperationError> {
        let silent = patience.heard.elapsed();
        let is_dead = !self.host.look().live.contains(&replica);
        if is_dead && silent >= PATIENCE_WITH_THE_DEAD {
            let why = "it is down".to_owned();
            return Err(OperationError::Repair { replica, why });
        }
        if silent >= PATIENCE { Err(OperationError::Repair { replica, why }) } else { Ok(()) }
    }
}
