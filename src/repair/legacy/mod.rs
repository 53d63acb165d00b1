//! Rows to and from nodes of 0.6, when the ring changes or replicas are compared.
//!
//! ```text
//! LegacyPeers    takes the messages of 0.6 about streams, trees and tokens
//!   inbound      sessions of files that were announced, by the nodes that send them
//!   receive      announced files become rows of this node
//!   outbound     sessions of files to other nodes, and what these say of them
//!   send         rows go to a node as files
//!   request      ranges that nodes ask for, and that they are asked for
//!   restore      a node of 0.6 has removed another one: replicas collect its data
//!   peer_timeout waiting for nodes, which may die meanwhile
//!   token        the token that halves the load of a node
//!   trees        the hashes of replicas, and what follows from them
//! ```
//!
//! A node of 0.6 announces files (STREAM_INITIATE), is told that they may come
//! (STREAM_INITIATE_DONE), and sends one after the other on connections that carry nothing else;
//! for each it hears whether it has arrived (STREAM_FINISHED). Nothing of a file says which one it
//! is: it is the next of those that were announced from the address that it comes from. So between
//! two nodes, in one direction, there is one such session at a time.
//!
//! A node that asks for ranges (STREAM_REQUEST) gets one session for each keyspace that it names,
//! also if it has no files: that says that there is nothing. One that leaves, or has found that
//! another lacks something, begins a session unasked.
//!
//! 0.6 waits for ever for whatever does not come. Here everything has an end: who waits in vain
//! gives up, and says so.

mod inbound;
mod outbound;
mod peer_timeout;
mod receive;
mod request;
mod restore;
mod send;
mod token;
pub(super) mod trees;

pub(super) use request::{AskLegacyError, by_source, is_pushed};
pub(super) use send::{Load, PushError};

use super::host::Host;
use super::throttle::Throttle;
use super::traffic::Traffic;
use crate::base::clock::Clock;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::net::{IncomingFile, Verb};
use crate::replica::Blocking;
use crate::ring::ReplicaPlacement;
use crate::storage::Storage;
use inbound::InboundSessions;
use log::Level;
use outbound::OutboundSessions;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trees::{Pairs, TreeBuilds, Waiters};

/// Tables that are written for other nodes at a time, so that clients have the rest of the disk.
const MAX_WRITING: usize = 1;

/// Sessions that other nodes have asked for and that wait. Further ones are dropped.
const MAX_ASKED: usize = 64;

/// What moves data between this node and nodes of 0.6.
#[derive(Debug)]
pub(super) struct LegacyPeers {
    pub(super) storage: Arc<Storage>,
    messenger: Arc<Messenger>,
    pub(super) blocking: Blocking,
    clock: Arc<dyn Clock>,
    throttle: Arc<Throttle>,
    arrivals: InboundSessions,
    departures: OutboundSessions,
    placements: BTreeMap<String, ReplicaPlacement>,
    pairs: Pairs,
    builds: TreeBuilds,
    waiters: Waiters,
    /// What comes from nodes of 0.6.
    pub(super) incoming: Arc<Traffic>,
    /// What goes to them.
    pub(super) outgoing: Arc<Traffic>,
    writing: Semaphore,
    asked: Arc<Semaphore>,
    stop: CancellationToken,
    /// The same, for what is done on other threads.
    stopping: Arc<AtomicBool>,
    tasks: TaskTracker,
}

impl LegacyPeers {
    /// Nothing is under way.
    pub(super) fn new(
        (storage, blocking): (Arc<Storage>, Blocking),
        messenger: Arc<Messenger>,
        clock: Arc<dyn Clock>,
        throttle: Arc<Throttle>,
        placements: BTreeMap<String, ReplicaPlacement>,
    ) -> Arc<Self> {
        let [incoming, outgoing] = [(); 2].map(|()| Traffic::new(Arc::clone(&clock)));
        let (arrivals, departures, stop, stopping, tasks) = Default::default();
        let (pairs, builds, waiters) = Default::default();
        let (writing, asked) = (Semaphore::new(MAX_WRITING), Arc::new(Semaphore::new(MAX_ASKED)));
        Arc::new(Self {
            storage,
            messenger,
            blocking,
            clock,
            throttle,
            arrivals,
            departures,
            placements,
            pairs,
            builds,
            waiters,
            incoming,
            outgoing,
            writing,
            asked,
            stop,
            stopping,
            tasks,
        })
    }

    /// Takes a message, if it is one about streams, trees or tokens. Must be called within a tokio
    /// runtime.
    pub(super) fn receive(self: &Arc<Self>, message: &Message<'_>, host: &Arc<dyn Host>) -> bool {
        match message.verb {
            Verb::StreamInitiate => self.on_initiate(message, &**host),
            Verb::StreamInitiateDone => self.departures.tell_ready(message.from),
            Verb::StreamFinished => self.on_finished(message),
            Verb::StreamRequest => self.on_request(message, host),
            Verb::BootstrapToken => self.on_token(message, host),
            Verb::TreeRequest => self.on_tree_request(message, host),
            Verb::TreeResponse => self.on_tree_response(message, host),
            _ => return false,
        }
        true
    }

    /// Takes a file that comes from this address, up to its end.
    pub(super) async fn receive_file(&self, from: IpAddr, file: IncomingFile) {
        self.take_file(from, file).await;
    }

    /// Gives up what does not come. To be called about once in a second.
    pub(super) fn tidy(&self) {
        for session in self.arrivals.expire(self.clock.monotonic()) {
            self.messenger.log(
                Level::Warn,
                session.source,
                format_args!(
                    "the files of keyspace {} that {} has announced do not come",
                    session.keyspace, session.source
                ),
            );
        }
    }

    /// Ends what is under way.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Does some work on a task of its own, until the node stops.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }

    /// Logs what is wrong with what a node has sent. One that goes on gets a line now and then.
    fn complain(&self, about: IpAddr, what: &dyn std::fmt::Display) {
        self.messenger.warn(about, format_args!("{about}: {what}"));
    }
}
