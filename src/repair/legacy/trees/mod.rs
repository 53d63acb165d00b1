//! Merkle trees of nodes of 0.6 and for them.
//!
//! ```text
//! table    requested trees, and trees that wait for their counterpart
//! build    the tree of this node
//! repair   repair by an operator of this node
//! tree     a tree; `java` has its bytes
//! ```
//!
//! A node that is asked for its tree (TREE_REQUEST) sends it to all nodes with which it shares
//! ranges (TREE_RESPONSE). When it has its own tree and that of a neighbour, it sends the neighbour
//! its rows of the ranges in which they differ, and the neighbour does the same. A neighbour that
//! sends its tree unasked waits two days for this node's tree, and gets it.

mod build;
pub(crate) mod java;
mod repair;
mod table;
mod tree;

pub(super) use table::TreeTable;

use super::{LegacyPeers, Load};
use crate::model::schema::FamilyId;
use crate::net::bodies::{TreeRequest, TreeResponse};
use crate::net::message::Message;
use crate::repair::error::{Result, fail};
use crate::repair::host::RingSnapshot;
use crate::ring::TokenRange;
use crate::storage::database::TakenIn;
use log::Level;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use table::{Pair, Side};
use tree::MerkleTree;

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Compared {
    /// Shared ranges.
    ranges: usize,
    /// Differing ranges.
    differing: usize,
    /// Rows that were sent to the neighbour.
    sent: TakenIn,
}

/// Result of a comparison, or the reason of its failure.
type Outcome = Result<Compared, String>;

impl LegacyPeers {
    /// Handles a request to send the tree to all neighbours.
    pub(super) fn on_tree_request(self: &Arc<Self>, message: &Message<'_>) -> Result<()> {
        let (from, schema) = (message.from, self.node.storage.schema());
        let TreeRequest { family } = TreeRequest::decode(message.body, schema)?;
        let name = schema.family(family);
        self.log(Level::Info, from, format_args!("{from} asks for the tree of {name}"));
        self.want_tree(family, None);
        Ok(())
    }

    /// Handles the tree of a neighbour.
    pub(super) fn on_tree_response(self: &Arc<Self>, message: &Message<'_>) -> Result<()> {
        let from = message.from;
        let response = TreeResponse::decode(message.body, self.node.storage.schema())?;
        let (family, bytes) = (response.family, response.tree.to_vec());
        if self.shared_with((family, from), &self.node.look()?).is_empty() {
            return fail("it sends a tree, and shares no ranges with this node");
        }
        let (this, partitioner) = (Arc::clone(self), self.node.partitioner());
        self.spawn(async move {
            let decoded = this.node.run(move || java::decode(&bytes, partitioner)).await;
            let taken = match decoded {
                Ok(tree) => this.take_tree((family, from), Arc::new(tree)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                this.complain(from, &error);
            }
        });
        Ok(())
    }

    async fn take_tree(self: &Arc<Self>, pair: Pair, theirs: Arc<MerkleTree>) -> Result<()> {
        let now = self.node.clock.monotonic();
        if let Some(own) = self.trees.pair(pair, Side::Neighbour, &theirs, now) {
            return self.compare(pair, &own, &theirs).await;
        }
        // It came unasked: the neighbour waits for the tree of this node.
        self.want_tree(pair.0, Some(pair.1));
        Ok(())
    }

    /// Compares the tree of this node with that of a neighbour, and sends the neighbour all rows of
    /// differing ranges.
    async fn compare(&self, pair: Pair, own: &MerkleTree, theirs: &MerkleTree) -> Result<()> {
        let (family, other) = pair;
        let schema = self.node.storage.schema().family(family);
        let shared = self.shared_with(pair, &self.node.look()?);
        let ranges = own.differences(theirs, &shared);
        let (differing, sent) = (ranges.len(), TakenIn::default());
        let mut outcome = Ok(Compared { ranges: shared.len(), differing, sent });
        if differing == 0 {
            let line = format_args!("this node and {other} are consistent for {schema}");
            self.log(Level::Info, other, line);
        } else {
            let line = format!(
                "Performing streaming repair of {differing} ranges to {other} for {schema}"
            );
            self.log(Level::Info, other, line);
            let load = Load { keyspace: &schema.keyspace, ranges: &ranges, family: Some(family) };
            let pushed = self.push(other, load).await;
            match &pushed {
                Ok(_) => {
                    let line = format_args!("Finished streaming repair to {other} for {schema}");
                    self.log(Level::Info, other, line);
                }
                Err(why) => {
                    let line = format_args!("the repair of {schema} at {other} failed: {why}");
                    self.log(Level::Error, other, line);
                }
            }
            outcome = pushed
                .map(|sent| Compared { ranges: shared.len(), differing, sent })
                .map_err(|error| error.to_string());
        }
        self.end_comparison(pair, outcome);
        Ok(())
    }

    fn end_comparison(&self, pair: Pair, outcome: Outcome) {
        self.trees.end(pair, outcome);
        self.changed.notify_waiters();
    }

    /// The live nodes of 0.6 that share ranges of a column family with this node.
    fn neighbours(&self, family: FamilyId, look: &RingSnapshot) -> BTreeSet<IpAddr> {
        let legacy = look.live.iter().copied().filter(|it| look.is_legacy(*it));
        legacy.filter(|it| !self.shared_with((family, *it), look).is_empty()).collect()
    }

    /// The ranges of which both this node and another one are replicas.
    fn shared_with(&self, (family, other): Pair, look: &RingSnapshot) -> Vec<TokenRange> {
        let keyspace = &self.node.storage.schema().family(family).keyspace;
        let Some(placement) = self.node.placements.get(keyspace) else { return Vec::new() };
        let described = placement.describe_ring(&look.members.ring).into_iter();
        let both = [self.node.local(), other];
        let shared = described.filter(|it| both.iter().all(|both| it.endpoints.contains(both)));
        shared.map(|it| it.range).collect()
    }
}
