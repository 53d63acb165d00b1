//! The operations by which the ring grows, shrinks and heals, one at a time on each node.

use super::client::ReplicaClient;
use super::compare::{AntiEntropy, RepairScope};
use super::error::OperationError;
use super::host::{Host, RingSnapshot};
use super::legacy::LegacyPeers;
use super::operation::{OperationKind, OperationReport, OperationRun};
use super::service::Service;
use super::throttle::Throttle;
use super::topology::steps::Steps;
use super::traffic::Stream;
use super::transfer::Fetcher;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::gossip::NodePlace;
use crate::model::schema::FamilyId;
use crate::net::IncomingFile;
use crate::net::caller::Caller;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::replica::Blocking;
use crate::ring::{ReplicaPlacement, Token, TokenMetadata};
use crate::storage::Storage;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What operations work with.
#[derive(Debug)]
pub struct OperationsOptions {
    /// The address of this node.
    pub local: IpAddr,
    /// Its data.
    pub storage: Arc<Storage>,
    /// The way to the others.
    pub messenger: Arc<Messenger>,
    /// Where the replicas of each keyspace live.
    pub placements: BTreeMap<String, ReplicaPlacement>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where work is done that waits for the disk.
    pub blocking: Blocking,
    /// `StreamThroughputInMBPerSecond`, in bytes per second; none for no limit.
    pub bytes_per_second: Option<u64>,
    /// Seed of whatever is left to chance.
    pub seed: u64,
}

/// What an operator asks for.
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

/// What a node is about, and which data move between it and others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsNow {
    /// What it is doing, in words of 0.6 where it had any.
    pub mode: String,
    /// What others collect from it.
    pub sending: Vec<Stream>,
    /// What it collects from others.
    pub receiving: Vec<Stream>,
}

/// Changes the ring, answers the calls of other nodes that do, and gives them data.
#[derive(Debug)]
pub struct Operations {
    pub(super) storage: Arc<Storage>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) blocking: Blocking,
    pub(super) steps: Arc<Steps>,
    pub(super) service: Arc<Service>,
    pub(super) anti_entropy: AntiEntropy,
    pub(super) legacy: Arc<LegacyPeers>,
    /// The last one that was begun.
    pub(super) last: Mutex<rank::LastOperation, Option<Arc<OperationRun>>>,
}

impl Operations {
    /// None is under way.
    pub fn new(options: OperationsOptions) -> Arc<Self> {
        let OperationsOptions { local, storage, messenger, placements, clock, .. } = options;
        let (partitioner, caller) = (storage.partitioner(), Caller::new(Arc::clone(&messenger)));
        let throttle = Arc::new(Throttle::new(Arc::clone(&clock), options.bytes_per_second));
        let legacy = LegacyPeers::new(
            (Arc::clone(&storage), options.blocking),
            Arc::clone(&messenger),
            Arc::clone(&clock),
            Arc::clone(&throttle),
            placements.clone(),
        );
        let fetcher =
            Fetcher::new(Arc::clone(&legacy), caller.clone(), Arc::clone(&clock), throttle);
        let fetcher = Arc::new(fetcher);
        let service = Service::new(messenger, Arc::clone(&fetcher), Arc::clone(&clock));
        let client = ReplicaClient::new(local, caller, Arc::clone(&service), options.seed);
        let anti_entropy =
            AntiEntropy::new(Arc::clone(&client), Arc::clone(&legacy), placements.clone());
        let rng = Mutex::new(fastrand::Rng::with_seed(options.seed));
        let steps = Arc::new(Steps { local, partitioner, placements, client, fetcher, rng });
        let (blocking, last) = (options.blocking, Mutex::default());
        Arc::new(Self { storage, clock, blocking, steps, service, anti_entropy, legacy, last })
    }

    /// Answers a call of another node, or what a node of 0.6 says of streams, of trees and of
    /// tokens. False if the message is none of it. Must be called within a tokio
    /// runtime.
    pub fn receive(&self, message: &Message<'_>, host: &Arc<dyn Host>) -> bool {
        self.service.receive(message, host) || self.legacy.receive(message, host)
    }

    /// A node of 0.6 has removed another one, which has changed the ring: collects what this node
    /// has to have now. Must be called within a tokio runtime.
    pub fn restore(
        &self,
        by: IpAddr,
        rings: (&TokenMetadata, &TokenMetadata),
        host: &Arc<dyn Host>,
    ) {
        self.steps.restore(by, rings, host);
    }

    /// Takes a file that a node of 0.6 sends from this address, up to its end. Nothing says which
    /// it is: it is the next one that was announced.
    pub async fn receive_file(&self, from: IpAddr, file: IncomingFile) {
        self.legacy.receive_file(from, file).await;
    }

    /// Gives up what nobody waits for. To be called about once in a second.
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
        last.as_ref().map(|operation| operation.report(self.clock.monotonic()))
    }

    /// What the node is about, and which data move between it and others.
    pub fn streams(&self, host: &dyn Host) -> StreamsNow {
        let last = self.last.lock().clone();
        let running = last.filter(|operation| operation.is_running());
        let mode = match running {
            Some(operation) => operation.report(self.clock.monotonic()).mode,
            None if host.look().members.is_member(self.steps.local) => "Normal".to_owned(),
            None => "Decommissioned".to_owned(),
        };
        let mut sending = self.service.traffic.now();
        sending.extend(self.legacy.outgoing.now());
        let mut receiving = self.steps.fetcher.traffic.now();
        receiving.extend(self.legacy.incoming.now());
        StreamsNow { mode, sending, receiving }
    }

    /// Begins what an operator asks for, if that can be done; it goes on by itself, and
    /// [`Operations::report`] tells how. Must be called within a tokio runtime.
    pub fn begin(
        self: &Arc<Self>,
        wish: Operation,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let kind = match &wish {
            Operation::Decommission => OperationKind::Decommission,
            Operation::Move(_) => OperationKind::Move,
            Operation::Loadbalance => OperationKind::Loadbalance,
            Operation::Remove { .. } => OperationKind::Removetoken,
            Operation::Cleanup(_) => OperationKind::Cleanup,
            Operation::Repair(..) => OperationKind::Repair,
        };
        self.check(&wish, &host.look())?;
        let operation = self.enlist(kind)?;
        let (this, host) = (Arc::clone(self), Arc::clone(host));
        tokio::spawn(async move {
            let done = match wish {
                Operation::Decommission => this.decommission(&host, &operation).await,
                Operation::Move(token) => this.move_to(Some(token), &host, &operation).await,
                Operation::Loadbalance => this.move_to(None, &host, &operation).await,
                Operation::Remove { token, accepts_loss } => {
                    this.remove(&token, accepts_loss, &host, &operation).await
                }
                Operation::Cleanup(keyspace) => this.cleanup(keyspace, &host, &operation).await,
                Operation::Repair(families, scope) => {
                    // A large future, which would make that of all others large.
                    Box::pin(this.anti_entropy.repair(&families, scope, &host, &operation)).await
                }
            };
            operation.end(this.clock.monotonic(), done.map_err(|error| error.to_string()));
        });
        Ok(())
    }

    pub(super) fn end<T>(
        &self,
        operation: &OperationRun,
        result: Result<T, OperationError>,
        tell: impl FnOnce(&T) -> String,
    ) -> Result<T, OperationError> {
        let outcome = match &result {
            Ok(done) => Ok(tell(done)),
            Err(error) => Err(error.to_string()),
        };
        operation.end(self.clock.monotonic(), outcome);
        result
    }

    /// Makes a new operation the last one.
    pub(super) fn enlist(&self, kind: OperationKind) -> Result<Arc<OperationRun>, OperationError> {
        let mut last = self.last.lock();
        if let Some(running) = last.as_ref().filter(|last| last.is_running()) {
            return Err(OperationError::Busy(running.kind.name()));
        }
        let operation = OperationRun::new(kind, self.clock.monotonic());
        *last = Some(Arc::clone(&operation));
        Ok(operation)
    }

    /// Whether a wish can be fulfilled, as far as this node knows.
    fn check(&self, wish: &Operation, look: &RingSnapshot) -> Result<(), OperationError> {
        let ring = &look.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?;
        let gone = match wish {
            Operation::Remove { token, .. } => ring.owner(token),
            _ => None,
        };
        self.check_nobody_else(look, gone)?;
        let text = |token: &Token| self.steps.partitioner.display_token(token);
        match wish {
            Operation::Decommission | Operation::Loadbalance if ring.len() == 1 => {
                Err(OperationError::Alone)
            }
            Operation::Move(token) => match ring.owner(token) {
                _ if own == token => Err(OperationError::SameToken(text(token))),
                Some(owner) => Err(OperationError::OwnedToken { token: text(token), owner }),
                None if ring.len() == 1 => Err(OperationError::Alone),
                None => Ok(()),
            },
            Operation::Remove { token, .. } => self.dead_owner(token, look).map(|_| ()),
            Operation::Repair(families, scope) => self.anti_entropy.check(families, *scope, look),
            Operation::Decommission | Operation::Loadbalance | Operation::Cleanup(_) => Ok(()),
        }
    }

    /// The owner of a token, if it is dead.
    pub(super) fn dead_owner(
        &self,
        token: &Token,
        look: &RingSnapshot,
    ) -> Result<NodePlace, OperationError> {
        let text = || self.steps.partitioner.display_token(token);
        let Some(owner) = look.members.ring.owner(token) else {
            return Err(OperationError::NoSuchToken(text()));
        };
        if owner == self.steps.local {
            return Err(OperationError::OwnToken);
        }
        if look.live.contains(&owner) {
            return Err(OperationError::Alive(owner));
        }
        Ok(NodePlace { endpoint: owner, token: token.clone() })
    }
}
