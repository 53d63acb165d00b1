//! Merkle trees of nodes of 0.6 and for them.
//!
//! ```text
//! pairs    which trees wait for which: of this node, and of its neighbours
//! build    the tree of this node
//! compare  in what two replicas differ, and what goes to the other one
//! repair   an operator of this node wants replicas to be alike
//! ```
//!
//! A node that is asked for its tree (TREE_REQUEST) sends it to all with which it shares ranges
//! (TREE_RESPONSE), whoever has asked. When it has its own tree and that of a neighbour, it sends
//! the neighbour its rows of the ranges in which they differ; the neighbour does the same. A
//! neighbour that has sent its tree unasked waits for the one of this node, for two days: it gets
//! it.

mod build;
mod compare;
pub(in crate::repair) mod java;
mod pairs;
mod repair;
mod tree;

pub(super) use build::TreeBuilds;
pub(super) use compare::Compared;
pub(super) use pairs::Pairs;

use super::LegacyPeers;
use crate::base::lock::{Mutex, rank};
use crate::model::schema::FamilyId;
use crate::net::bodies::{TreeRequest, TreeResponse};
use crate::net::message::Message;
use crate::repair::host::{Host, RingSnapshot};
use crate::ring::TokenRange;
use log::Level;
use pairs::Side;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::oneshot;
use tree::MerkleTree;

/// What came of a comparison, or why nothing did.
pub(super) type Outcome = Result<Compared, String>;

/// Who waits for what comes of comparisons.
#[derive(Debug, Default)]
pub(super) struct Waiters(
    Mutex<rank::LegacyPeers, BTreeMap<(FamilyId, IpAddr), oneshot::Sender<Outcome>>>,
);

impl Waiters {
    /// Waits for the next comparison with a node.
    fn wait(&self, family: FamilyId, other: IpAddr) -> oneshot::Receiver<Outcome> {
        let (sender, outcome) = oneshot::channel();
        let mut waiters = self.0.lock();
        waiters.insert((family, other), sender);
        outcome
    }

    fn tell(&self, family: FamilyId, other: IpAddr, outcome: Outcome) {
        let mut waiters = self.0.lock();
        if let Some(sender) = waiters.remove(&(family, other)) {
            // Who has waited may have given up.
            let _ = sender.send(outcome);
        }
    }
}

impl LegacyPeers {
    /// A node wants this one to send its tree to all neighbours.
    pub(super) fn on_tree_request(self: &Arc<Self>, message: &Message<'_>, host: &Arc<dyn Host>) {
        let request = TreeRequest::decode(message.body, self.storage.schema());
        match request {
            Ok(TreeRequest { family }) => {
                let name = self.storage.schema().family(family);
                self.messenger.log(
                    Level::Info,
                    message.from,
                    format_args!("{} asks for the tree of {name}", message.from),
                );
                self.want_tree(family, None, host);
            }
            Err(error) => self.complain(message.from, &error),
        }
    }

    /// A neighbour sends its tree.
    pub(super) fn on_tree_response(self: &Arc<Self>, message: &Message<'_>, host: &Arc<dyn Host>) {
        let from = message.from;
        let (family, bytes) = match TreeResponse::decode(message.body, self.storage.schema()) {
            Ok(TreeResponse { family, tree }) => (family, tree.to_vec()),
            Err(error) => return self.complain(from, &error),
        };
        if self.shared_with(family, from, &host.look()).is_empty() {
            return self.complain(from, &"it sends a tree, and shares no ranges with this node");
        }
        let (this, host) = (Arc::clone(self), Arc::clone(host));
        let partitioner = self.storage.partitioner();
        self.spawn(async move {
            let decoded = this.blocking.run(move || java::decode(&bytes, partitioner)).await;
            match decoded {
                Ok(Ok(tree)) => this.take_tree(family, from, Arc::new(tree), &host).await,
                Ok(Err(error)) => this.complain(from, &error),
                // The node stops.
                Err(_) => {}
            }
        });
    }

    async fn take_tree(
        self: &Arc<Self>,
        family: FamilyId,
        from: IpAddr,
        theirs: Arc<MerkleTree>,
        host: &Arc<dyn Host>,
    ) {
        let now = self.clock.monotonic();
        match self.pairs.pair((family, from), Side::Theirs, Arc::clone(&theirs), now) {
            Some(own) => self.compare(family, from, (&own, &theirs), host).await,
            // Nobody has asked this node, which is waited for now.
            None => self.want_tree(family, Some(from), host),
        }
    }

    /// The nodes of 0.6 that have ranges of a column family in common with this node, and live.
    fn neighbours(&self, family: FamilyId, look: &RingSnapshot) -> BTreeSet<IpAddr> {
        let live = look.live.iter().copied();
        let legacy = live.filter(|it| look.is_legacy(*it));
        legacy.filter(|it| !self.shared_with(family, *it, look).is_empty()).collect()
    }

    /// The ranges of which both this node and another one are replicas.
    fn shared_with(&self, family: FamilyId, other: IpAddr, look: &RingSnapshot) -> Vec<TokenRange> {
        let keyspace = &self.storage.schema().family(family).keyspace;
        let Some(placement) = self.placements.get(keyspace) else { return Vec::new() };
        let described = placement.describe_ring(&look.members.ring).into_iter();
        let local = self.messenger.local();
        let shared =
            described.filter(|it| it.endpoints.contains(&local) && it.endpoints.contains(&other));
        shared.map(|it| it.range).collect()
    }
}
