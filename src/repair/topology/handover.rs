//! Handover: future replicas collect their data.

use crate::repair::error::{OperationError, Result, fail};
use crate::repair::host::RingSnapshot;
use crate::repair::job::Task;
use crate::repair::legacy::Load;
use crate::repair::operations::Operations;
use crate::repair::progress::{Progress, ProgressByNode};
use crate::repair::transfer::WantedRange;
use crate::repair::transfer::plan::{is_pushed, ranges_by_receiver, sources};
use crate::ring::{TokenMetadata, TokenRange};
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Longest time that a receiver may be down.
const DOWN_PATIENCE: Duration = Duration::from_secs(120);

/// Ranges that each future replica collects.
pub(super) type RangesByReceiver = BTreeMap<IpAddr, Vec<WantedRange>>;

impl Operations {
    /// Ranges that nodes have to collect when one ring becomes another.
    pub(super) fn receivers(
        &self,
        before: &TokenMetadata,
        after: &TokenMetadata,
    ) -> RangesByReceiver {
        ranges_by_receiver(&self.node.placements, before, after)
    }

    /// Checks that all needed nodes are alive.
    pub(super) fn check_receivers(
        &self,
        receivers: &RangesByReceiver,
        look: &RingSnapshot,
    ) -> Result<()> {
        for (receiver, wanted) in receivers {
            if *receiver != self.node.local() && !look.live.contains(receiver) {
                return Err(OperationError::receiver_down(*receiver));
            }
            for range in wanted {
                sources(range, Some(*receiver), look)
                    .ok_or_else(|| range.without_source(self.node.partitioner()))?;
            }
            if look.is_legacy(*receiver) && !is_pushed(*receiver, wanted, look) {
                return fail(format!(
                    "{receiver} is a node of 0.6, and would have to take over data from others \
                     than this node, which nobody can order it to: replace that one first"
                ));
            }
        }
        Ok(())
    }

    /// Has all future replicas collect their data. The first failure ends the others, which notice
    /// that they are not polled any more.
    pub(super) async fn hand_over(
        &self,
        receivers: &RangesByReceiver,
        progress: &ProgressByNode,
    ) -> Result<()> {
        let look = self.node.look()?;
        self.check_receivers(receivers, &look)?;
        let handed = receivers.iter().map(async |(receiver, wanted)| {
            let handed = if look.is_legacy(*receiver) {
                self.push(*receiver, wanted, progress).await
            } else {
                self.order(*receiver, wanted, progress).await
            };
            handed.map_err(|error| match error {
                OperationError::Down(down) if down == *receiver => {
                    OperationError::receiver_down(down)
                }
                error => error,
            })
        });
        try_join_all(handed).await.map(|_| ())
    }

    /// Sends a node of 0.6 its new data.
    async fn push(
        &self,
        receiver: IpAddr,
        wanted: &[WantedRange],
        progress: &ProgressByNode,
    ) -> Result<()> {
        let mut done = Progress { ranges: wanted.len() as u64, ..Progress::default() };
        progress.note(receiver, done);
        for wanted in wanted.chunk_by(|a, b| a.keyspace == b.keyspace) {
            let ranges: Vec<TokenRange> = wanted.iter().map(|it| it.range.clone()).collect();
            let load = Load { keyspace: &wanted[0].keyspace, ranges: &ranges, family: None };
            let sent = self.legacy.push(receiver, load).await.map_err(|error| match error {
                OperationError::Down(down) => OperationError::Down(down),
                why => OperationError::Failed(format!(
                    "{receiver}, a node of 0.6, could not be sent its data: {why}"
                )),
            })?;
            done.ranges_done += wanted.len() as u64;
            (done.bytes, done.rows) = (done.bytes + sent.bytes, done.rows + sent.rows);
            progress.note(receiver, done);
        }
        Ok(())
    }

    /// Has a node collect its data, also if it restarts meanwhile.
    async fn order(
        &self,
        at: IpAddr,
        wanted: &[WantedRange],
        progress: &ProgressByNode,
    ) -> Result<()> {
        let task = Task::Ranges(wanted.to_vec());
        let done = self.service.run_job(at, DOWN_PATIENCE, task, progress).await;
        done.map(|_| ()).map_err(|error| match error {
            OperationError::Down(down) => OperationError::Down(down),
            why => OperationError::Failed(format!("{at} could not collect its data: {why}")),
        })
    }
}
