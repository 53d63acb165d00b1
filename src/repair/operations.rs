//! The operations by which the ring grows, shrinks and heals, one at a time on each node.

use super::compare::RepairScope;
use super::error::{OperationError, Result};
use super::host::{Host, Node, RingSnapshot};
use super::legacy::LegacyPeers;
use super::operation::{OperationKind, OperationReport, OperationRun};
use super::service::Service;
use super::traffic::Stream;
use super::transfer::Fetcher;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::gossip::NodePlace;
use crate::model::schema::FamilyId;
use crate::net::IncomingFile;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::replica::Blocking;
use crate::ring::{ReplicaPlacement, Token, TokenMetadata};
use crate::storage::Database;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Parts and settings of [`Operations`].
#[derive(Debug)]
pub struct OperationsOptions {
    /// The data of this node.
    pub storage: Arc<Database>,
    /// The way to the others.
    pub messenger: Arc<Messenger>,
    /// Where the replicas of each keyspace live.
    pub placements: BTreeMap<String, ReplicaPlacement>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The node as a member of the ring.
    pub host: Weak<dyn Host>,
    /// Where work is done that waits for the disk.
    pub blocking: Blocking,
    /// `StreamThroughputInMBPerSecond`, in bytes per second; none for no limit.
    pub bytes_per_second: Option<u64>,
    /// Seed of whatever is left to chance.
    pub seed: u64,
}

/// An operation that an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// This node shall leave the ring.
    Decommission,
    /// This node shall go to another token.
    Move(Token),
    /// This node shall go to where the most is to be done.
    Loadbalance,
    /// The dead owner of a token shall be removed.
    Remove {
        /// The token.
        token: Token,
        /// Whether also if too few replicas of a range are alive: what only the others have is
        /// given up.
        accepts_loss: bool,
    },
    /// Data of ranges that this node is no replica of shall be dropped; of one keyspace, or of all.
    Cleanup(Option<String>),
    /// Replicas shall compare these column families, and get what they lack.
    Repair(Vec<FamilyId>, RepairScope),
}

/// The mode of a node, and the data that move between it and others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsNow {
    /// In words of 0.6 where it had any.
    pub mode: String,
    /// Data that others collect from it.
    pub sending: Vec<Stream>,
    /// Data that it collects from others.
    pub receiving: Vec<Stream>,
}

/// Changes the ring, answers the calls of other nodes that do, and gives them data.
#[derive(Debug)]
pub struct Operations {
    pub(super) node: Arc<Node>,
    pub(super) service: Arc<Service>,
    pub(super) legacy: Arc<LegacyPeers>,
    /// The last one that was begun.
    last: Mutex<rank::Membership, Option<Arc<OperationRun>>>,
}

impl Operations {
    /// None is under way.
    pub fn new(options: OperationsOptions) -> Arc<Self> {
        let node = Node::new(options);
        let legacy = LegacyPeers::new(Arc::clone(&node));
        let fetcher = Fetcher { node: Arc::clone(&node), legacy: Arc::clone(&legacy) };
        Arc::new(Self { node, service: Service::new(fetcher), legacy, last: Mutex::default() })
    }

    /// Answers a call of another node, or what a node of 0.6 says of streams, of trees and of
    /// tokens. False if the message is none of it. Must be called within a tokio runtime.
    pub fn receive(&self, message: &Message<'_>) -> bool {
        self.service.receive(message) || self.legacy.receive(message)
    }

    /// A node of 0.6 has removed another one, which has changed the ring: collects what this node
    /// has to have now. Must be called within a tokio runtime.
    pub fn restore(&self, by: IpAddr, before: &TokenMetadata, after: &TokenMetadata) {
        self.service.fetcher.restore(by, before, after);
    }

    /// Takes a file that a node of 0.6 sends from this address, up to its end. Nothing says which
    /// it is: it is the next one that was announced.
    pub async fn receive_file(&self, from: IpAddr, file: IncomingFile) {
        self.legacy.take_file(from, file).await;
    }

    /// Gives up what is not waited for any more. To be called about once in a second.
    pub fn tidy(&self) {
        self.service.jobs.tidy();
        self.service.validator.tidy();
        self.legacy.tidy();
    }

    /// Ends what is under way.
    pub async fn stop(&self) {
        self.legacy.stop().await;
        self.service.stop().await;
    }

    /// The operation that was begun last.
    pub fn report(&self) -> Option<OperationReport> {
        let last = self.last.lock();
        last.as_ref().map(|operation| operation.report(self.node.clock.monotonic()))
    }

    /// The mode of the node, and the data that move between it and others.
    pub fn streams(&self) -> StreamsNow {
        let running = self.report().filter(|operation| operation.outcome.is_none());
        let is_member = || {
            let look = self.node.look();
            look.is_ok_and(|look| look.members.is_member(self.node.local()))
        };
        let mode = match running {
            Some(operation) => operation.mode,
            None if is_member() => "Normal".to_owned(),
            None => "Decommissioned".to_owned(),
        };
        StreamsNow { mode, sending: self.node.sending.now(), receiving: self.node.receiving.now() }
    }

    /// Begins what an operator asks for, if that can be done; it goes on by itself, and
    /// [`Operations::report`] tells how. Must be called within a tokio runtime.
    pub fn begin(self: &Arc<Self>, wish: Operation) -> Result<()> {
        let kind = match &wish {
            Operation::Decommission => OperationKind::Decommission,
            Operation::Move(_) => OperationKind::Move,
            Operation::Loadbalance => OperationKind::Loadbalance,
            Operation::Remove { .. } => OperationKind::Removetoken,
            Operation::Cleanup(_) => OperationKind::Cleanup,
            Operation::Repair(..) => OperationKind::Repair,
        };
        self.check(&wish, &self.node.look()?)?;
        let operation = self.enlist(kind)?;
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let done = match wish {
                Operation::Decommission => this.decommission(&operation).await,
                Operation::Move(token) => this.move_to(Some(token), &operation).await,
                Operation::Loadbalance => this.move_to(None, &operation).await,
                Operation::Remove { token, accepts_loss } => {
                    this.remove(&token, accepts_loss, &operation).await
                }
                Operation::Cleanup(keyspace) => this.cleanup(keyspace, &operation).await,
                Operation::Repair(families, scope) => {
                    // A large future, which would make that of all others large.
                    Box::pin(this.repair(&families, scope, &operation)).await
                }
            };
            // The operation has it as well.
            let _: Result<()> = this.end(&operation, done);
        });
        Ok(())
    }

    pub(super) fn end(&self, operation: &OperationRun, done: Result<String>) -> Result<()> {
        let outcome = done.as_ref().map(String::clone).map_err(ToString::to_string);
        operation.end(self.node.clock.monotonic(), outcome);
        done.map(|_| ())
    }

    /// Makes a new operation the last one.
    pub(super) fn enlist(&self, kind: OperationKind) -> Result<Arc<OperationRun>> {
        let mut last = self.last.lock();
        if let Some(running) = last.as_ref().filter(|last| last.is_running()) {
            return Err(OperationError::Failed(format!(
                "{} is under way on this node: wait until it is done, `nodetool streams` shows it",
                running.kind.name()
            )));
        }
        let operation = OperationRun::new(kind, self.node.clock.monotonic());
        *last = Some(Arc::clone(&operation));
        Ok(operation)
    }

    /// Whether a wish can be fulfilled, as far as this node knows.
    fn check(&self, wish: &Operation, look: &RingSnapshot) -> Result<()> {
        let failed = |why: String| Err(OperationError::Failed(why));
        let ring = &look.members.ring;
        let own = ring.token(self.node.local()).ok_or(OperationError::NotMember)?;
        let gone = match wish {
            Operation::Remove { token, .. } => ring.owner(token),
            _ => None,
        };
        self.check_no_rival(look, gone)?;
        let owned = |token: &Token, owner: IpAddr| {
            let token = self.node.display(token);
            format!("target token {token} is already owned by another node: {owner}")
        };
        match wish {
            Operation::Move(token) if own == token => {
                failed(format!("this node has the token {} already", self.node.display(token)))
            }
            Operation::Decommission | Operation::Loadbalance | Operation::Move(_)
                if ring.len() == 1 =>
            {
                failed("no other normal nodes in the ring; decommission would be pointless".into())
            }
            Operation::Move(token) => {
                ring.owner(token).map_or(Ok(()), |owner| failed(owned(token, owner)))
            }
            Operation::Remove { token, .. } => self.dead_owner(token, look).map(|_| ()),
            Operation::Repair(families, scope) => self.check_repair(families, *scope, look),
            Operation::Decommission | Operation::Loadbalance | Operation::Cleanup(_) => Ok(()),
        }
    }

    /// The owner of a token, if it is dead.
    pub(super) fn dead_owner(&self, token: &Token, look: &RingSnapshot) -> Result<NodePlace> {
        let Some(owner) = look.members.ring.owner(token) else {
            let token = self.node.display(token);
            let why =
                format!("no node has the token {token}: `nodetool ring` shows which there are");
            return Err(OperationError::Failed(why));
        };
        if owner == self.node.local() {
            return Err(OperationError::Failed("Cannot remove node's own token".to_owned()));
        }
        if look.live.contains(&owner) {
            return Err(OperationError::alive(owner));
        }
        Ok(NodePlace { endpoint: owner, token: token.clone() })
    }
}
