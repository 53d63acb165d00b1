//! The carrier of messages between nodes: the network, or a simulated one.

use super::message::MessageError;
use super::verb::Channel;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// A boxed future.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection to a peer that takes the bytes of one file, and is closed after them.
pub type FileConnection = Pin<Box<dyn AsyncWrite + Send>>;

/// Carries encoded messages to other nodes, best effort: a message may get lost without notice.
/// Messages of one channel to one peer arrive in the order in which they were sent.
pub trait Transport: Send + Sync + Debug {
    /// Queues a message, as [`Message::encode`](super::message::Message::encode) gives it. Never
    /// waits: what does not fit into the queue of that channel is dropped and counted, and so is
    /// what is not on its way by `deadline`, in the time of
    /// [`Clock::monotonic`](crate::base::clock::Clock::monotonic).
    fn send(&self, to: IpAddr, channel: Channel, message: Arc<[u8]>, deadline: Duration);

    /// Closes the connections to a peer that was found dead or has restarted. Queued messages stay
    /// queued, and take a new connection.
    fn disconnect(&self, peer: IpAddr);

    /// Makes a connection to a peer that carries nothing but a file. What is written there, up to
    /// its end, is the file. Its sender is known only by the address that it is dialled from, which
    /// is that of this node. Must be called within a tokio runtime.
    fn dial_for_file(&self, to: IpAddr) -> Doing<'_, io::Result<FileConnection>> {
        let why = format!("no files go to {to} by this transport");
        Box::pin(async { Err(io::Error::new(io::ErrorKind::Unsupported, why)) })
    }

    /// Whether messages to a peer get checksums: it has said that it checks them.
    fn set_checksums(&self, peer: IpAddr, checksums: bool);
}

/// Receives messages and files from other nodes.
pub trait Inbound: Send + Sync {
    /// Takes the payload of a frame: a message, perhaps with meaningless bytes after it. Runs on
    /// the thread of the connection, which serves others too, so it must not block.
    ///
    /// # Errors
    /// If the payload is not a message. The connection goes on.
    fn receive(&self, payload: &[u8]) -> Result<(), MessageError>;

    /// Takes a file that comes from this address. Nothing says which it is. The connection is
    /// closed when this has come to its end, and given up when the node stops.
    fn receive_file(&self, from: IpAddr, _file: IncomingFile) -> Doing<'_, ()> {
        log::warn!("{from} sends a file, and nobody takes any here");
        Box::pin(async {})
    }
}

/// A file on its way from another node: all bytes up to the end of the connection.
#[derive(derive_more::Debug)]
#[debug("IncomingFile {{ begun: {}, .. }}", begun.len())]
pub struct IncomingFile {
    /// Bytes that have arrived and are not read yet.
    begun: Vec<u8>,
    rest: Pin<Box<dyn AsyncRead + Send>>,
}

impl IncomingFile {
    /// The file that begins with these bytes and goes on with those.
    pub fn new(begun: Vec<u8>, rest: impl AsyncRead + Send + 'static) -> Self {
        Self { begun, rest: Box::pin(rest) }
    }

    /// Reads some bytes into the room; 0 at the end of the file. May wait without limit.
    pub async fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.begun.is_empty() {
            return self.rest.read(room).await;
        }
        let count = room.len().min(self.begun.len());
        room[..count].copy_from_slice(&self.begun[..count]);
        self.begun.drain(..count);
        Ok(count)
    }
}

/// Counters of the traffic with a peer since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStats {
    /// Messages that were handed to the system for sending.
    pub sent: u64,
    /// Bytes that were handed to the system, with frames.
    pub sent_bytes: u64,
    /// Messages that arrived from the address of the peer.
    pub received: u64,
    /// Bytes that arrived, with frames.
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
