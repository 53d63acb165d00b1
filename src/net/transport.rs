//! What carries messages between nodes: the network, or in a simulation something like it.

use super::verb::Channel;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Carries encoded messages to other nodes, as well as that can be done: a message may get lost,
/// and then nobody is told. Messages of one channel to one peer arrive in the order in which they
/// were sent.
pub trait Transport: Send + Sync + Debug {
    /// Queues a message, as [`Message::encode`](super::message::Message::encode) gives it. Never
    /// waits: what does not fit into the queue of that channel is dropped and counted, and so is
    /// what is not on its way by `deadline`, in the time of
    /// [`Clock::monotonic`](crate::base::clock::Clock::monotonic).
    fn send(&self, to: IpAddr, channel: Channel, message: Arc<[u8]>, deadline: Duration);

    /// Closes what is open to a peer, which was found dead or was started anew. What waits for it
    /// stays queued, and takes a new connection.
    fn disconnect(&self, peer: IpAddr);

    /// Whether messages to a peer get checksums: it has said that it checks them.
    fn set_checksums(&self, peer: IpAddr, checksums: bool);
}

/// Takes what arrives from other nodes.
pub trait Inbound: Send + Sync {
    /// Takes the payload of a frame: a message, perhaps with bytes behind it that mean nothing.
    /// Called on the thread of the connection, which serves others too, so that it must not block.
    fn receive(&self, payload: &[u8]);
}

/// What happened between this node and a peer since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// Messages that were handed to the system for sending.
    pub sent: u64,
    /// Bytes that were handed to the system, with what frames take.
    pub sent_bytes: u64,
    /// Messages that arrived from the address of the peer.
    pub received: u64,
    /// Bytes that arrived, with what frames take.
    pub received_bytes: u64,
    /// Connections to the peer that were made.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
    /// Messages that were dropped because their time was over before they could be sent.
    pub dropped_late: u64,
    /// Messages that were dropped because too much was queued already.
    pub dropped_full: u64,
    /// Messages that were dropped because no frame can hold them.
    pub dropped_large: u64,
    /// Messages that wait to be sent now.
    pub queued: u64,
    /// Bytes of the messages that wait.
    pub queued_bytes: u64,
}
