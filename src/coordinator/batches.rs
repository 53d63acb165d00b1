//! Logged batches: writes to several rows, all of which are done in the end if one is.
//!
//! Two nodes keep a batch before its writes are sent, and forget it when these are acknowledged.
//! The coordinator may fail before that, or replicas may not answer. Then the keepers replay the
//! batch, with its timestamps, until each row has one acknowledgement; other replicas get hints.

use super::coordinator::Coordinator;
use super::view::{Endpoints, View, WriteReplicas};
use super::{ConsistencyLevel, CoordinatorError, ReplicaCounts, consistency::Requirement};
use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::slice::Slice;
use crate::replica::{RangeQuery, ReplicaError, RowQuery, kept_batches};
use crate::ring::RowRange;
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::{MissedTickBehavior, interval};

/// Nodes that keep a batch.
const KEEPERS: usize = 2;

/// Rows of the column family of batches that are read at a time.
const PAGE: usize = 1000;

/// Request timeouts from one round of replay to the next. No batch is replayed while its
/// coordinator still waits.
const TIMEOUTS_OF_A_ROUND: u32 = 2;

/// Why a logged batch is not written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BatchError {
    /// It was not kept, so that none of it was sent. After [`CoordinatorError::TimedOut`] a node
    /// may have it all the same, and write it.
    #[error("the batch is not kept: {0}")]
    NotKept(CoordinatorError),
    /// After [`CoordinatorError::TimedOut`] it is going to be written.
    #[error(transparent)]
    NotWritten(CoordinatorError),
}

impl Coordinator {
    /// Writes to rows so that all of them are written in the end if one is.
    pub async fn write_batch(
        self: &Arc<Self>,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), BatchError> {
        // A mutation is atomic by itself.
        if mutations.len() < 2 {
            return self.write(mutations, level).await.map_err(BatchError::NotWritten);
        }
        let kept = Box::pin(self.keep_batch(mutations, level)).await;
        let (id, keepers) = kept.map_err(BatchError::NotKept)?;
        let written = match self.write(mutations, level).await {
            Ok(()) => Ok(()),
            // No retry would do better.
            Err(error @ CoordinatorError::Unsendable(_)) => Err(error),
            Err(error) => {
                log::debug!("the batch {id} is left to the nodes that keep it: {error}");
                let counts = match error {
                    CoordinatorError::TimedOut(counts) => counts,
                    CoordinatorError::Unavailable(counts) => ReplicaCounts { present: 0, ..counts },
                    _ => ReplicaCounts::NONE,
                };
                return Err(BatchError::NotWritten(CoordinatorError::TimedOut(counts)));
            }
        };
        self.forget_batch(&id, keepers).await;
        written.map_err(BatchError::NotWritten)
    }

    /// Has nodes keep a batch. Nothing is kept unless enough replicas of all rows are alive.
    async fn keep_batch(
        self: &Arc<Self>,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(RowKey, WriteReplicas), CoordinatorError> {
        let view = self.trusted_view()?;
        let check =
            |it: &RowMutation| self.check_write(&self.write_replicas(&view, it, level), level);
        mutations.iter().try_for_each(check)?;
        let micros = self.messenger.now_micros();
        let id = format!("{micros:x}-{:016x}", self.chance.lock().u64(..));
        let rows = [kept_batches::row_of(&self.schema, &id, mutations, micros)];
        let keepers = self.keepers(&view, mutations);
        self.write_to(&view, &rows, vec![keepers.clone()], ConsistencyLevel::All).await?;
        Ok((RowKey::from(&*id), keepers))
    }

    /// Has its keepers forget a batch, without waiting for them. One that does not hear of it
    /// replays the batch.
    async fn forget_batch(self: &Arc<Self>, id: &RowKey, keepers: WriteReplicas) {
        let (view, now) = (self.view(), self.messenger.now_micros());
        let rows = [kept_batches::deletion_of(&self.schema, id, now)];
        let forgotten = self.write_to(&view, &rows, vec![keepers], ConsistencyLevel::Zero);
        if let Err(error) = Box::pin(forgotten).await {
            log::debug!("the batch {id} is done, and is not forgotten: {error}");
        }
    }

    /// Replays unfinished batches that this node keeps, in rounds. Never returns.
    pub async fn replay_batches(self: &Arc<Self>) {
        let mut ticks = interval(TIMEOUTS_OF_A_ROUND * self.rpc_timeout());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut are_found = false;
        loop {
            ticks.tick().await;
            if !are_found {
                let found = self.find_batches().await;
                let found = found.inspect_err(|it| log::warn!("batches cannot be read: {it}"));
                are_found = found.is_ok();
            }
            for id in self.replica.take_overdue_batches() {
                if let Err(error) = self.replay_batch(&id).await {
                    log::debug!("a batch that was left is not written yet: {error}");
                    self.replica.note_batch(id);
                }
            }
        }
    }

    /// Other nodes of the data centre, if there are enough, else this one as well.
    fn keepers(&self, view: &View, mutations: &[RowMutation]) -> WriteReplicas {
        let family = mutations.first().and_then(|it| it.families.first()).map(|it| it.family);
        let keyspace = family.and_then(|family| self.keyspace_of(family));
        let mut live = view.keepers_of_batches(keyspace);
        self.chance.lock().shuffle(&mut live);
        live.truncate(KEEPERS);
        let is_local = live.len() < KEEPERS;
        let requirement = Requirement::any(live.len() + usize::from(is_local));
        WriteReplicas { live, dead: Endpoints::new(), is_local, pending: 0, requirement }
    }

    /// Finds the batches that were left when this node stopped.
    async fn find_batches(&self) -> Result<(), ReplicaError> {
        let family = kept_batches::family(&self.schema);
        let slice = Slice::range(None, b"", b"", false, 1);
        let mut range = RowRange::all();
        loop {
            let mut context = RequestContext::default();
            let query = RangeQuery { family, range: &range, slice: &slice, max_rows: PAGE };
            let rows = self.replica.scan(query, &mut context).await.wait(&mut context).await?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            range.start = Bound::Excluded(self.partitioner.token(last.as_bytes()));
            let left = rows.into_iter().filter(|(_, row)| !row.cells.is_empty());
            left.for_each(|(id, _)| self.replica.note_batch(id));
        }
    }

    async fn replay_batch(self: &Arc<Self>, id: &RowKey) -> Result<(), CoordinatorError> {
        let (family, slice) = (kept_batches::family(&self.schema), Slice::all(None));
        let mut context = RequestContext::default();
        let query = RowQuery { family, key: id, slice: &slice };
        let row = self.replica.read(query, &mut context).await.wait(&mut context).await?;
        let now = self.messenger.now_micros();
        match kept_batches::writes_of(&row.cells, &self.schema, now) {
            Ok(rows) => {
                if rows.is_empty() && !row.cells.is_empty() {
                    log::warn!(
                        "the batch {id} is dropped: a table of it has a shorter gc_grace_seconds \
                         than the time for which it was left, or all of its tables are gone"
                    );
                }
                self.write(&rows, ConsistencyLevel::One).await?;
                let deletion = [kept_batches::deletion_of(&self.schema, id, now)];
                self.replica.apply(&deletion).await.wait().await?;
            }
            Err(error) => log::error!("the batch {id} stays in system.Batches unwritten: {error}"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;
    use crate::kit::lone_node::LoneNode;
    use crate::kit::storage;
    use crate::model::comparator::Comparator;
    use crate::model::mutation::MutationBuilder;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
    use crate::ring::{Partitioner, Token};
    use std::time::Duration;
    use tokio::time::sleep;

    const ROWS: FamilyId = FamilyId(0);

    /// The node that wrote it may be gone, with none of its writes sent, or a part of them.
    #[tokio::test]
    async fn a_batch_that_is_left_is_written_and_forgotten() {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let rows = Arc::new(ColumnFamilySchema::new("Blog".into(), "Rows".into(), kind));
        let schema = Arc::new(Schema::new([rows].into_iter().chain(storage::system_families())));
        let clock = Arc::new(ManualClock::at_micros(1_300_000_000_000_000));
        let place = (Partitioner::OrderPreserving, Token::ordered(b"m".as_slice().into()));
        let timeout = Duration::from_millis(20);
        let node = LoneNode::start(&schema, "Blog", place, timeout, &clock).coordinator;
        let writes = ["a", "b"].map(|key| {
            let mut row = MutationBuilder::new(&schema, "Blog", key.as_bytes());
            row.family(ROWS).insert((b"", b"name"), b"value", 7);
            row.finish()
        });
        let batch = kept_batches::row_of(&schema, "1", &writes, node.messenger.now_micros());
        node.write(&[batch], ConsistencyLevel::One).await.unwrap();
        let count = |family, key: &'static str| {
            let (node, slice) = (Arc::clone(&node), Slice::all(None));
            async move {
                let (key, mut context) = (RowKey::from(key), node.request());
                let row = RowQuery { family, key: &key, slice: &slice };
                node.read(row, ConsistencyLevel::One, &mut context).await.unwrap().cells.len()
            }
        };
        assert_eq!(count(ROWS, "b").await, 0);
        let keeps = async {
            while count(kept_batches::family(&schema), "1").await > 0 {
                sleep(timeout).await;
            }
        };
        tokio::select! {
            () = node.replay_batches() => {}
            () = keeps => {}
        }
        assert_eq!((count(ROWS, "a").await, count(ROWS, "b").await), (1, 1));
    }
}
