//! An operator of this node wants the replicas of a column family to be alike.

use super::{Compared, LegacyPeers};
use crate::model::schema::FamilyId;
use crate::net::Verb;
use crate::net::bodies::TreeRequest;
use crate::repair::compare::FamilyRepair;
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::legacy::inbound::Session;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the tree of a replica, which it says nothing of meanwhile, and then for its
/// rows.
const PATIENCE: Duration = Duration::from_hours(6);

impl LegacyPeers {
    /// Compares all that this node has of a column family with what its neighbours of 0.6 have, and
    /// has all get what they lack. Returns when that is done, with what was done in the report.
    pub(crate) async fn repair(
        self: &Arc<Self>,
        family: FamilyId,
        report: &mut FamilyRepair,
    ) -> Result<()> {
        let replicas = self.neighbours(family, &self.node.look()?);
        if replicas.is_empty() {
            return Ok(());
        }
        let schema = self.node.storage.schema();
        let keyspace = &schema.family(family).keyspace;
        let now = self.node.clock.monotonic();
        // A tree for which an earlier repair has waited in vain would be compared with new ones.
        self.trees.forget(family);
        let sessions = replicas.into_iter().map(|replica| {
            self.trees.expect((family, replica));
            // Its rows, which come if something differs.
            (replica, self.inbound.await_one(replica, keyspace, now))
        });
        let sessions: Vec<(IpAddr, Arc<Session>)> = sessions.collect();
        let mut outcome = Ok(());
        for (replica, _) in &sessions {
            let body = TreeRequest { family }.encode(schema)?;
            let sent = self.node.messenger.send(Verb::TreeRequest, &body, *replica);
            outcome = outcome.and(sent.map_err(|why| OperationError::repair(*replica, why)));
        }
        self.want_tree(family, None);
        for (replica, rows) in sessions {
            if outcome.is_ok() {
                let done = self.await_replica((family, replica), &rows, report).await;
                outcome = done.map_err(|why| OperationError::repair(replica, why));
            }
            self.inbound.give_up(&rows);
        }
        outcome
    }

    /// Waits for what a replica does.
    async fn await_replica(
        &self,
        (family, replica): (FamilyId, IpAddr),
        rows: &Session,
        report: &mut FamilyRepair,
    ) -> Result<()> {
        let late = "it has not sent its tree, or its rows";
        let compared = || Ok(self.trees.outcome((family, replica)));
        let Some(compared) = self.wait_for(replica, PATIENCE, compared).await? else {
            return fail(late);
        };
        let Compared { ranges, differing, sent } = compared.map_err(OperationError::Failed)?;
        report.ranges += ranges;
        if differing == 0 {
            return Ok(());
        }
        let sum = report.collected.entry(replica).or_default();
        *sum = (sum.0 + sent.rows, sum.1 + sent.bytes);
        let Some(taken) = self.wait_for(replica, PATIENCE, || Ok(rows.outcome())).await? else {
            return fail(late);
        };
        let taken = taken.map_err(OperationError::Failed)?;
        let sum = report.collected.entry(self.node.local()).or_default();
        *sum = (sum.0 + taken.rows, sum.1 + taken.bytes);
        // Of rows in ranges that differ each counts, since nobody says which are alike.
        report.rows_differed += sent.rows.max(taken.rows);
        Ok(())
    }
}
