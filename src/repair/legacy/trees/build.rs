//! The tree of this node.

use super::table::{Receivers, Side};
use super::tree::MerkleTree;
use super::{LegacyPeers, java};
use crate::model::schema::FamilyId;
use crate::model::visibility::STORED;
use crate::net::Verb;
use crate::net::bodies::TreeResponse;
use crate::repair::compare::{HashSink, HashedRow};
use crate::repair::error::{OperationError, Result};
use crate::repair::job::JobControl;
use crate::ring::RowRange;
use crate::storage::Database;
use crate::storage::legacy::can_have_key;
use log::Level;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Fewest and most leaves of a tree, the latter as in 0.6.
const LEAVES: (u64, u64) = (64, 1 << 15);

/// Delay of this node's tree after an unasked one: a repairing node asks all, and its request may
/// still be on its way.
const GRACE: Duration = Duration::from_secs(5);

impl LegacyPeers {
    /// Builds the tree of a column family for a neighbour, or for all.
    pub(super) fn want_tree(self: &Arc<Self>, family: FamilyId, by: Option<IpAddr>) {
        if !self.trees.want(family, by) {
            return;
        }
        let this = Arc::clone(self);
        self.spawn(async move {
            if !this.trees.is_wanted_by_all(family) {
                tokio::time::sleep(GRACE).await;
            }
            while let Some(receivers) = this.trees.take_receivers(family) {
                if let Err(error) = this.give_tree(family, receivers).await {
                    log::error!("a tree is not sent: {error}");
                }
            }
        });
    }

    async fn give_tree(self: &Arc<Self>, family: FamilyId, receivers: Receivers) -> Result<()> {
        let now = self.node.clock.monotonic();
        let mut to = self.neighbours(family, &self.node.look()?);
        if !receivers.all {
            // Unless it got the tree of this node since.
            to.retain(|it| receivers.some.contains(it) && self.trees.waits((family, *it), now));
        }
        if to.is_empty() {
            return Ok(());
        }
        let name = self.node.storage.schema().family(family);
        let Ok(_permit) = self.writing.acquire().await else { return Ok(()) };
        let storage = Arc::clone(&self.node.storage);
        let control = JobControl { stop: self.node.stop.clone(), ..JobControl::default() };
        let work = move || {
            let tree = build(&storage, family, &control)?;
            let body = TreeResponse { family, tree: &java::encode(&tree)? };
            Ok::<_, OperationError>((Arc::new(tree), body.encode(storage.schema())?))
        };
        let local = self.node.local();
        let (tree, body) = match self.node.run(work).await {
            Ok(built) => built,
            Err(error) => {
                let line = format_args!(
                    "the tree of {name} that {to:?} wait for cannot be built: {error}"
                );
                self.log(Level::Error, local, line);
                for other in to {
                    self.end_comparison((family, other), Err(error.to_string()));
                }
                return Ok(());
            }
        };
        let line = format_args!("Sending AEService tree for {name} to: {to:?}");
        self.log(Level::Info, local, line);
        for other in to {
            if let Err(error) = self.node.messenger.send(Verb::TreeResponse, &body, other) {
                self.complain(other, &error);
            }
            let (pair, now) = ((family, other), self.node.clock.monotonic());
            if let Some(theirs) = self.trees.pair(pair, Side::Own, &tree, now) {
                let (this, tree) = (Arc::clone(self), Arc::clone(&tree));
                self.spawn(async move {
                    if let Err(error) = this.compare(pair, &tree, &theirs).await {
                        this.complain(other, &error);
                    }
                });
            }
        }
        Ok(())
    }
}

/// Builds a tree of all rows, after a flush.
pub(crate) fn build(
    storage: &Database,
    family: FamilyId,
    control: &JobControl,
) -> Result<MerkleTree> {
    let set = storage.validation_set(family)?;
    let (partitioner, store) = (storage.partitioner(), storage.family(family));
    let leaves = set.rows().clamp(LEAVES.0, LEAVES.1);
    let mut tree = if partitioner.preserves_order() {
        MerkleTree::by_samples(partitioner, set.sampled_tokens(), leaves as usize)
    } else {
        MerkleTree::even(partitioner, leaves.next_power_of_two().ilog2() as u8)
    };
    let builder = storage.row_builder(family, store.options().column_index_bytes)?;
    let mut sink = HashSink::new(builder, control, |row: HashedRow<'_>| {
        // A row that the neighbours cannot have would always differ.
        if let Some(hash) = row.hash.filter(|_| can_have_key(row.key.key())) {
            tree.add(row.key.token(), &hash);
        }
        true
    });
    storage.validate(&set, &[RowRange::all()], store.gc_before(), STORED, &mut sink)?;
    Ok(tree)
}
