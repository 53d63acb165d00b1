//! Repair of a column family with nodes of 0.6, by an operator of this node.

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

/// Longest wait for the tree of a replica, and then for its rows.
const PATIENCE: Duration = Duration::from_hours(6);

impl LegacyPeers {
    /// Compares a column family with all neighbours of 0.6, and has all collect what they lack.
    /// Adds the results to the report.
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
        // An old tree must not be compared with new ones.
        self.trees.forget(family);
        let sessions = replicas.into_iter().map(|replica| {
            self.trees.expect((family, replica));
            // For its rows, which come if there are differences.
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

    /// Waits for the comparison and the rows of a replica.
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
        report.note_received(replica, sent.rows, sent.bytes);
        let Some(taken) = self.wait_for(replica, PATIENCE, || Ok(rows.outcome())).await? else {
            return fail(late);
        };
        let taken = taken.map_err(OperationError::Failed)?;
        report.note_received(self.node.local(), taken.rows, taken.bytes);
        // All rows of differing ranges count, since it is not known which are equal.
        let (rows, bytes) = (sent.rows, sent.bytes).max((taken.rows, taken.bytes));
        report.rows_differed += rows;
        report.bytes_differed += bytes;
        Ok(())
    }
}
