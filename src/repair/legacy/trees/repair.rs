//! An operator of this node wants the replicas of a column family to be alike.

use super::{Compared, LegacyPeers, Outcome};
use crate::model::schema::FamilyId;
use crate::net::Verb;
use crate::net::bodies::TreeRequest;
use crate::repair::compare::FamilyRepair;
use crate::repair::error::OperationError;
use crate::repair::host::Host;
use crate::repair::legacy::inbound::Session;
use crate::repair::legacy::peer_timeout::PeerTimeout;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

/// How long a replica may take for its tree, which it says nothing of meanwhile, and then for its
/// rows.
const PATIENCE: Duration = Duration::from_hours(6);

const POLL: Duration = Duration::from_millis(500);

/// A replica that takes part.
struct Party {
    replica: IpAddr,
    compared: Receiver<Outcome>,
    /// Its rows, which come if something differs.
    rows: Arc<Session>,
}

impl LegacyPeers {
    /// Compares all that this node has of a column family with what its neighbours of 0.6 have, and
    /// has all get what they lack. Returns when that is done, with what was done in the report.
    pub(in crate::repair) async fn repair(
        self: &Arc<Self>,
        family: FamilyId,
        host: &Arc<dyn Host>,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let replicas = self.neighbours(family, &host.look());
        if replicas.is_empty() {
            return Ok(());
        }
        let schema = Arc::clone(self.storage.schema());
        let keyspace = schema.family(family).keyspace.clone();
        let failed = |replica: IpAddr, why: String| OperationError::Repair { replica, why };
        let now = self.clock.monotonic();
        // A tree for which an earlier repair has waited in vain would be compared with new ones.
        self.pairs.forget(family, now);
        let party = |replica: IpAddr| {
            let compared = self.waiters.wait(family, replica);
            Party { replica, compared, rows: self.arrivals.await_one(replica, &keyspace, now) }
        };
        let parties: Vec<Party> = replicas.into_iter().map(party).collect();
        let mut outcome = Ok(());
        for Party { replica, .. } in &parties {
            let sent = TreeRequest { family }.encode(&schema).map_err(|error| error.to_string());
            let sent = sent.and_then(|body| {
                let sent = self.messenger.send(Verb::TreeRequest, &body, *replica);
                sent.map_err(|error| error.to_string())
            });
            outcome = outcome.and(sent.map_err(|why| failed(*replica, why)));
        }
        self.want_tree(family, None, host);
        for mut party in parties {
            if outcome.is_ok() {
                outcome = self.await_party(&mut party, host, report).await;
            }
            self.arrivals.give_up(&party.rows, "it is not waited for any longer");
        }
        outcome
    }

    async fn await_party(
        &self,
        party: &mut Party,
        host: &Arc<dyn Host>,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let replica = party.replica;
        let failed = |why: &str| OperationError::Repair { replica, why: why.to_owned() };
        let received = &mut party.compared;
        let compared = || match received.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err("another repair has begun meanwhile".into())),
        };
        let outcome = self.patiently(replica, host, compared).await?;
        let compared = outcome.map_err(|why| failed(&why))?;
        let Compared { ranges, differing, sent } = compared;
        report.ranges += ranges;
        if differing == 0 {
            return Ok(());
        }
        let entry = report.collected.entry(replica).or_default();
        *entry = (entry.0 + sent.rows, entry.1 + sent.bytes);
        let rows = Arc::clone(&party.rows);
        let outcome = self.patiently(replica, host, || rows.outcome()).await?;
        let taken = outcome.map_err(|why| failed(&why))?;
        let entry = report.collected.entry(self.messenger.local()).or_default();
        *entry = (entry.0 + taken.rows, entry.1 + taken.bytes);
        // Of rows in ranges that differ each counts, since nobody says which are alike.
        report.rows_differed += sent.rows.max(taken.rows);
        Ok(())
    }

    /// Waits for what a replica does.
    async fn patiently<T>(
        &self,
        replica: IpAddr,
        host: &Arc<dyn Host>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, OperationError> {
        let failed = |why: &str| OperationError::Repair { replica, why: why.to_owned() };
        let mut timeout = PeerTimeout::begin();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if timeout.is_lost(replica, &**host) {
                return Err(failed("it is down"));
            }
            if timeout.lasts() >= PATIENCE {
                return Err(failed("it has not sent its tree, or its rows"));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
