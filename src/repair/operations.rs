//! Operations on the ring, one at a time on each node.

use super::compare::RepairScope;
use super::error::{OperationError, Result, fail};
use super::host::{Host, Node, RingSnapshot};
use super::legacy::LegacyPeers;
use super::operation::{OperationKind, OperationReport, OperationRun};
use super::service::Service;
use super::traffic::Stream;
use super::transfer::Fetcher;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::base::worker::Spawner;
use crate::gossip::NodePlace;
use crate::model::schema::FamilyId;
use crate::net::IncomingFile;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::ring::{KeyspacePlacements, Token, TokenMetadata};
use crate::storage::Database;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Parts and settings of [`Operations`].
#[derive(Debug)]
pub struct OperationsOptions {
    /// The data of this node.
    pub storage: Arc<Database>,
    /// The way to the others.
    pub messenger: Arc<Messenger>,
    /// Replica placement of each keyspace.
    pub placements: Arc<KeyspacePlacements>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The node as a member of the ring.
    pub host: Weak<dyn Host>,
    /// Runs work that waits for the disk.
    pub spawner: Spawner,
    /// `StreamThroughputInMBPerSecond`, in bytes per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Seed of random choices.
    pub seed: u64,
}

/// An operation that an operator requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// This node leaves the ring.
    Decommission,
    /// This node moves to another token.
    Move(Token),
    /// This node moves to the busiest range.
    Loadbalance,
    /// The dead owner of a token is removed.
    Remove {
        /// The token.
        token: Token,
        /// Whether also if too few replicas of a range are alive: data that only the others have
        /// are lost.
        accepts_loss: bool,
    },
    /// Data of which this node is no replica are dropped, in one keyspace or all.
    Cleanup(Option<String>),
    /// Replicas compare these column families, and collect what they lack.
    Repair(Vec<FamilyId>, RepairScope),
}

/// The mode of a node, and its streams of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsNow {
    /// The mode, in words of 0.6 where it had any.
    pub mode: String,
    /// Data that others collect from it.
    pub sending: Vec<Stream>,
    /// Data that it collects from others.
    pub receiving: Vec<Stream>,
}

/// Changes the ring, and answers calls of other nodes that do.
#[derive(Debug)]
pub struct Operations {
    pub(super) node: Arc<Node>,
    pub(super) service: Arc<Service>,
    pub(super) legacy: Arc<LegacyPeers>,
    /// The last begun operation.
    last: Mutex<rank::Membership, Option<Arc<OperationRun>>>,
}

impl Operations {
    /// No operation is under way.
    pub fn new(options: OperationsOptions) -> Arc<Self> {
        let node = Node::new(options);
        let legacy = LegacyPeers::new(Arc::clone(&node));
        let fetcher = Fetcher { node: Arc::clone(&node), legacy: Arc::clone(&legacy) };
        Arc::new(Self { node, service: Service::new(fetcher), legacy, last: Mutex::default() })
    }

    /// Handles a call of another node, or a message of 0.6 about streams, trees or tokens. False
    /// for other messages. Must be called within a tokio runtime.
    pub fn receive(&self, message: &Message<'_>) -> bool {
        self.service.receive(message) || self.legacy.receive(message)
    }

    /// Collects the data that this node must have after a node of 0.6 removed another one. Must be
    /// called within a tokio runtime.
    pub fn restore(&self, by: IpAddr, before: &TokenMetadata, after: &TokenMetadata) {
        self.service.fetcher.restore(by, before, after);
    }

    /// Takes a file from a node of 0.6, the next announced one.
    pub async fn receive_file(&self, from: IpAddr, file: IncomingFile) {
        self.legacy.take_file(from, file).await;
    }

    /// Ends jobs and sessions that are not awaited any more. To be called about once a second.
    pub fn tidy(&self) {
        self.service.jobs.tidy();
        self.service.validator.tidy();
        self.legacy.tidy();
    }

    /// Ends everything under way.
    pub async fn stop(&self) {
        self.node.stop().await;
        self.service.validator.stop().await;
    }

    /// The last begun operation.
    pub fn report(&self) -> Option<OperationReport> {
        let last = self.last.lock();
        last.as_ref().map(|operation| operation.report(self.node.clock.monotonic()))
    }

    /// The limit of fetching, in bytes per second; `None` for none.
    pub fn rate(&self) -> Option<u64> {
        self.node.throttle.rate()
    }

    /// Fetches at most this many bytes per second from now on; `None` for no limit.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.node.throttle.set(bytes_per_second);
    }

    /// Whether the node has a place in the ring.
    pub fn is_member(&self) -> bool {
        let look = self.node.look();
        look.is_ok_and(|look| look.members.is_member(self.node.local()))
    }

    /// Whether a node without a place has not lost one since the start, by an operation or a
    /// removal.
    fn is_starting(&self) -> bool {
        let local = self.node.local();
        let is_removed = self.node.host().is_ok_and(|host| host.turns_away(local).is_some());
        self.last.lock().is_none() && !is_removed
    }

    /// The mode of the node, and its streams of data.
    pub fn streams(&self) -> StreamsNow {
        let running = self.report().filter(|operation| operation.outcome.is_none());
        let mode = match running {
            Some(operation) => operation.mode,
            None if self.node.stop.is_cancelled() => "Node is drained".to_owned(),
            None if self.is_member() => "Normal".to_owned(),
            None if self.is_starting() => "Starting".to_owned(),
            None => "Decommissioned".to_owned(),
        };
        StreamsNow { mode, sending: self.node.sending.now(), receiving: self.node.receiving.now() }
    }

    /// Begins an operation, if that is possible. It runs on a task, see [`Operations::report`].
    /// Must be called within a tokio runtime.
    pub fn begin(self: &Arc<Self>, request: Operation) -> Result<()> {
        let kind = match &request {
            Operation::Decommission => OperationKind::Decommission,
            Operation::Move(_) => OperationKind::Move,
            Operation::Loadbalance => OperationKind::Loadbalance,
            Operation::Remove { .. } => OperationKind::Removetoken,
            Operation::Cleanup(_) => OperationKind::Cleanup,
            Operation::Repair(..) => OperationKind::Repair,
        };
        if self.node.stop.is_cancelled() {
            return fail("this node has been drained, or is stopping: start it anew first");
        }
        self.check(&request, &self.node.look()?)?;
        let operation = self.enlist(kind)?;
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let work = async {
                match request {
                    Operation::Decommission => this.decommission(&operation).await,
                    Operation::Move(token) => this.move_to(Some(token), &operation).await,
                    Operation::Loadbalance => this.move_to(None, &operation).await,
                    Operation::Remove { token, accepts_loss } => {
                        this.remove(&token, accepts_loss, &operation).await
                    }
                    Operation::Cleanup(keyspace) => this.cleanup(keyspace, &operation).await,
                    Operation::Repair(families, scope) => {
                        // A large future, which would make that of all others large.
                        let repair = Box::pin(this.repair(&families, scope, &operation));
                        let done = operation.stop.run_until_cancelled(repair).await;
                        done.unwrap_or_else(|| fail("an operator has stopped it"))
                    }
                }
            };
            let done = this.node.stop.run_until_cancelled(work).await.unwrap_or_else(|| {
                fail("this node was drained, or is stopping: start it anew, and look at the ring")
            });
            // The operation has the result as well.
            let _: Result<()> = this.end(&operation, done);
        });
        Ok(())
    }

    /// Stops the repair that is under way. What replicas have got stays; nodes that work for it
    /// give up when nobody asks for their results any more.
    pub fn stop_repair(&self) -> Result<()> {
        let last = self.last.lock();
        let Some(running) = last.as_ref().filter(|last| last.is_running()) else {
            return fail("no operation is under way on this node");
        };
        if running.kind != OperationKind::Repair {
            return fail(format!(
                "{} cannot be stopped, only a repair can: wait until it is done",
                running.kind.name()
            ));
        }
        running.stop.cancel();
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
            return fail(format!(
                "{} is under way on this node: wait until it is done, `nodetool streams` shows it",
                running.kind.name()
            ));
        }
        let operation = OperationRun::new(kind, self.node.clock.monotonic());
        *last = Some(Arc::clone(&operation));
        Ok(operation)
    }

    /// Checks whether an operation is possible, as far as this node knows.
    fn check(&self, request: &Operation, look: &RingSnapshot) -> Result<()> {
        let ring = &look.members.ring;
        let own = ring.token(self.node.local()).ok_or(OperationError::NotMember)?;
        let gone = match request {
            Operation::Remove { token, .. } => ring.owner(token),
            _ => None,
        };
        self.check_no_rival(look, gone)?;
        match request {
            Operation::Move(token) if own == token => {
                fail(format!("this node has the token {} already", self.node.display(token)))
            }
            Operation::Decommission | Operation::Loadbalance | Operation::Move(_)
                if ring.len() == 1 =>
            {
                fail("no other normal nodes in the ring; decommission would be pointless")
            }
            Operation::Move(token) => match ring.owner(token) {
                Some(owner) => fail(format!(
                    "target token {} is already owned by another node: {owner}",
                    self.node.display(token)
                )),
                None => Ok(()),
            },
            Operation::Remove { token, .. } => self.dead_owner(token, look).map(|_| ()),
            Operation::Repair(families, scope) => self.check_repair(families, *scope, look),
            Operation::Decommission | Operation::Loadbalance | Operation::Cleanup(_) => Ok(()),
        }
    }

    /// The owner of a token, if it is dead.
    pub(super) fn dead_owner(&self, token: &Token, look: &RingSnapshot) -> Result<NodePlace> {
        let Some(owner) = look.members.ring.owner(token) else {
            let token = self.node.display(token);
            return fail(format!(
                "no node has the token {token}: `nodetool ring` shows which there are"
            ));
        };
        if owner == self.node.local() {
            return fail("Cannot remove node's own token");
        }
        if look.live.contains(&owner) {
            return Err(OperationError::alive(owner));
        }
        Ok(NodePlace { endpoint: owner, token: token.clone() })
    }
}
