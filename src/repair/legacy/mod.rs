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
//! 0.6 waits for ever for whatever does not come. Here every wait has an end, which is logged.

mod inbound;
mod outbound;
mod receive;
mod request;
mod restore;
mod send;
mod token;
pub(super) mod trees;

pub(super) use send::Load;

use super::error::{OperationError, Result};
use super::host::Node;
use crate::net::Verb;
use crate::net::bodies::StreamFinished;
use crate::net::message::Message;
use inbound::InboundSessions;
use log::Level;
use outbound::{News, OutboundSessions};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trees::TreeTable;

/// Tables that are written for other nodes at a time, so that clients have the rest of the disk.
const MAX_WRITING: usize = 1;

/// Sessions that other nodes have asked for and that wait. Further ones are dropped.
const MAX_ASKED: usize = 64;

/// Time that a node may seem dead before it is given up, and how often that is checked.
const DEAD: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(1);

/// Moves data between this node and nodes of 0.6.
#[derive(Debug)]
pub(super) struct LegacyPeers {
    node: Arc<Node>,
    inbound: InboundSessions,
    outbound: OutboundSessions,
    trees: TreeTable,
    /// A peer has said or done something that may be waited for.
    changed: Notify,
    writing: Semaphore,
    asked: Arc<Semaphore>,
    stop: CancellationToken,
    /// The same, for what is done on other threads.
    stopping: Arc<AtomicBool>,
    tasks: TaskTracker,
}

/// A node of 0.6 as it runs now. It knows nothing of sessions before its start, and what it asks
/// for since is not to be mistaken for what it asked for before.
#[derive(Debug, Clone, Copy)]
struct Peer {
    at: IpAddr,
    start: Option<i32>,
}

impl LegacyPeers {
    /// Nothing is under way.
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        let (inbound, outbound, trees, changed) = Default::default();
        let (stop, stopping, tasks) = Default::default();
        let (writing, asked) = (Semaphore::new(MAX_WRITING), Arc::new(Semaphore::new(MAX_ASKED)));
        Arc::new(Self {
            node,
            inbound,
            outbound,
            trees,
            changed,
            writing,
            asked,
            stop,
            stopping,
            tasks,
        })
    }

    /// Takes a message, if it is one about streams, trees or tokens. Must be called within a tokio
    /// runtime.
    pub(super) fn receive(self: &Arc<Self>, message: &Message<'_>) -> bool {
        let taken = match message.verb {
            Verb::StreamInitiate => self.on_initiate(message),
            Verb::StreamInitiateDone => {
                self.outbound.tell(message.from, News::Ready);
                Ok(())
            }
            Verb::StreamFinished => StreamFinished::decode(message.body)
                .map(|finished| self.outbound.tell(message.from, News::Finished(finished)))
                .map_err(Into::into),
            Verb::StreamRequest => self.on_request(message),
            Verb::BootstrapToken => {
                self.on_token(message);
                Ok(())
            }
            Verb::TreeRequest => self.on_tree_request(message),
            Verb::TreeResponse => self.on_tree_response(message),
            _ => return false,
        };
        if let Err(error) = taken {
            self.complain(message.from, &error);
        }
        self.changed.notify_waiters();
        true
    }

    /// Gives up what does not come. To be called about once in a second.
    pub(super) fn tidy(&self) {
        for session in self.inbound.expire(self.node.clock.monotonic()) {
            let (keyspace, source) = (&session.keyspace, session.source);
            let line = format_args!(
                "the files of keyspace {keyspace} that {source} has announced do not come"
            );
            self.log(Level::Warn, source, line);
        }
        self.changed.notify_waiters();
    }

    /// Ends what is under way.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Does some work on a task of its own, until the node stops.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }

    fn peer(&self, at: IpAddr) -> Result<Peer> {
        Ok(Peer { at, start: self.node.look()?.generations.get(&at).copied() })
    }

    /// An error if a peer has been restarted.
    fn check(&self, peer: Peer) -> Result<()> {
        let is_same = self.peer(peer.at)?.start == peer.start;
        is_same.then_some(()).ok_or(OperationError::Restarted)
    }

    fn is_live(&self, peer: IpAddr) -> Result<bool> {
        Ok(self.node.look()?.live.contains(&peer))
    }

    /// Waits until a peer has done what `find` looks for. None if it does not in time.
    async fn wait_for<T>(
        &self,
        peer: IpAddr,
        patience: Duration,
        mut find: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let began = Instant::now();
        let mut seen_alive = began;
        loop {
            let changed = self.changed.notified();
            if let Some(found) = find()? {
                return Ok(Some(found));
            }
            if self.is_live(peer)? {
                seen_alive = Instant::now();
            }
            if seen_alive.elapsed() >= DEAD {
                return Err(OperationError::Down(peer));
            }
            if began.elapsed() >= patience {
                return Ok(None);
            }
            // In either case it looks again.
            let _ = tokio::time::timeout(POLL, changed).await;
        }
    }

    fn log(&self, level: Level, about: IpAddr, line: fmt::Arguments<'_>) {
        self.node.messenger.log(level, about, line);
    }

    /// Logs what is wrong with what a node has sent. One that goes on gets a line now and then.
    fn complain(&self, about: IpAddr, what: &dyn fmt::Display) {
        self.node.messenger.warn(about, format_args!("{about}: {what}"));
    }
}
