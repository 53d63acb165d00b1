//! Cleanup: drops data of ranges of which this node is no replica.

use crate::repair::error::{OperationError, Result};
use crate::repair::operation::OperationRun;
use crate::repair::operations::Operations;
use crate::ring::{RowRange, ranges_of};
use std::sync::Arc;

impl Operations {
    pub(in crate::repair) async fn cleanup(
        &self,
        keyspace: Option<String>,
        operation: &OperationRun,
    ) -> Result<String> {
        operation.enter("Cleaning up: waiting until all nodes know of each other");
        let look = self.settled(None).await?;
        self.check_no_rival(&look, None)?;
        let (schema, local) = (Arc::clone(self.node.storage.schema()), self.node.local());
        let (mut before, mut after) = (0, 0);
        for (name, placement) in self.node.placements.iter() {
            if keyspace.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let ranges = ranges_of(placement, &look.members.ring, local);
            let keep: Vec<RowRange> = ranges.iter().flat_map(|it| it.row_ranges()).collect();
            for (id, family) in schema.families().filter(|(_, family)| family.keyspace == *name) {
                operation.enter(&format!("Cleaning up {name}.{}", family.name));
                let (storage, keep) = (Arc::clone(&self.node.storage), keep.clone());
                let (host, members) = (self.node.host()?, look.members.clone());
                // Others may change the ring meanwhile. This node hears of it before it collects
                // any data for them.
                let is_same = move || host.look().members == members;
                let clean = move || storage.cleanup(id, &keep, &is_same);
                let cleaned = self.node.run(clean).await.map_err(|error| {
                    OperationError::Failed(format!(
                        "the cleanup of {family} failed, what was done before stays done: {error}"
                    ))
                })?;
                if cleaned.is_cut_short {
                    return Err(OperationError::RingChanged);
                }
                before += cleaned.bytes_before;
                after += cleaned.bytes_after;
            }
        }
        Ok(format!("{before} bytes of SSTables before, {after} after"))
    }
}
