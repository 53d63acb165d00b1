//! Exchange of rows with nodes of 0.6, for changes of the ring and repair.
//!
//! ```text
//! LegacyPeers    handles messages of 0.6 about streams, trees and tokens
//!   inbound      sessions of announced files, by source
//!   receive      files to rows
//!   outbound     sessions of files to other nodes
//!   send         rows to files
//!   request      requests for ranges, in both directions
//!   ring         tokens for joining nodes, data of removed nodes
//!   trees        Merkle trees, and repair with them
//! ```
//!
//! A node of 0.6 announces files (STREAM_INITIATE), waits for the permission to send them
//! (STREAM_INITIATE_DONE), and sends each on a connection of its own, one after the other; each is
//! confirmed or requested again (STREAM_FINISHED). A file does not say which one it is: it is the
//! next announced one of its source. So there is one session at a time between two nodes in one
//! direction.
//!
//! A node that requests ranges (STREAM_REQUEST) gets one session for each keyspace that it names,
//! also without files: then there are no rows. A node that leaves, or has found that another one
//! lacks rows, begins a session unasked.
//!
//! 0.6 waits forever for what does not come. Here every wait has a limit, and its end is logged.

mod inbound;
mod outbound;
mod receive;
mod request;
mod ring;
mod send;
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
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use trees::TreeTable;

/// Tables that are written for other nodes at a time, so that clients get the rest of the disk.
const MAX_WRITING: usize = 1;

/// Most waiting requests of other nodes for sessions. Further ones are dropped.
const MAX_ASKED: usize = 64;

/// Longest time that a node may seem dead, and the pause between two checks.
const DEAD: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(1);

/// Exchanges rows with nodes of 0.6.
#[derive(Debug)]
pub(super) struct LegacyPeers {
    node: Arc<Node>,
    inbound: InboundSessions,
    outbound: OutboundSessions,
    trees: TreeTable,
    /// Notified of messages and files of peers.
    changed: Notify,
    writing: Semaphore,
    asked: Arc<Semaphore>,
}

/// One run of a node of 0.6. After a restart it has forgotten its sessions, and requests of two
/// runs must not be mixed up.
#[derive(Debug, Clone, Copy)]
struct Peer {
    at: IpAddr,
    start: Option<i32>,
}

impl LegacyPeers {
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        let (inbound, outbound, trees, changed) = Default::default();
        let (writing, asked) = (Semaphore::new(MAX_WRITING), Arc::new(Semaphore::new(MAX_ASKED)));
        Arc::new(Self { node, inbound, outbound, trees, changed, writing, asked })
    }

    /// Handles a message about streams, trees or tokens. False for other messages. Must be called
    /// within a tokio runtime.
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

    /// Ends silent sessions. To be called about once a second.
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

    /// Runs work on a task of its own, until the node stops.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.node.tasks.spawn(self.node.stop.clone().run_until_cancelled_owned(work));
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

    /// Waits until `find` has found something. `None` if it does not in time.
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
            // In either case `find` is called again.
            let _ = tokio::time::timeout(POLL, changed).await;
        }
    }

    fn log(&self, level: Level, about: IpAddr, line: impl fmt::Display) {
        self.node.messenger.log(level, about, format_args!("{line}"));
    }

    /// Logs a fault of a message or file, with a limit for each node.
    fn complain(&self, about: IpAddr, what: &dyn fmt::Display) {
        self.node.messenger.warn(about, format_args!("{about}: {what}"));
    }
}
