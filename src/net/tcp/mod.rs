//! The transport of real nodes: TCP, as nodes of 0.6 use it.
//!
//! All nodes listen at the same port. To each peer there are a few connections, one for each
//! [`Channel`], which are dialled when there is something to send, from the address that this node
//! listens on. Nothing ever comes back on them: answers come on the connections that the peer has
//! dialled. Those are read for as long as they are open, however idle: a node of 0.6 loses the
//! first message that it writes to a connection that was closed.
//!
//! A file takes a connection of its own, and is known by the address that it comes from alone.
//!
//! A few threads carry all connections, each with a runtime of its own. What waits for a peer
//! stands in a `queue` with bounds in number, bytes and time, and a `writer` sends all that waits
//! in one write. While it is idle, the task that queues a message also sends it, together with what
//! others queue until then: waking the writer would cost more. `inbound` hands messages on where it
//! reads them.

mod inbound;
mod peer;
mod queue;
#[cfg(test)]
mod tests;
mod writer;

use super::LOG_INTERVAL;
use super::frame::{FILE_HEAD, MAX_FRAME_BYTES};
use super::transport::{Doing, FileConnection, Inbound, PeerStats, Transport};
use super::verb::Channel;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::intake::Intake;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, rank};
use crate::base::runtimes::{RuntimeEnd, Runtimes};
use crate::base::tls::{Guard, Port};
use crate::config::settings::PeerNetworks;
use peer::Peers;
use queue::Pushed;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use writer::{Flush, Sender};

/// Settings and limits of the transport.
#[derive(Debug, Clone)]
pub struct TcpOptions {
    /// `ListenAddress` and `StoragePort`. All peers have the same port; with port 0 it is the one
    /// that the system chose.
    pub listen: SocketAddr,
    /// Threads for all connections.
    pub threads: usize,
    /// Most messages that wait for one peer on one channel.
    pub max_queued_messages: usize,
    /// Most bytes that wait for one peer on one channel. One message may be larger, alone.
    pub max_queued_bytes: usize,
    /// Most peers. The address of a peer is whatever a message says, so that there has to be one.
    pub max_peers: usize,
    /// Most connections from others. A further one takes the place of an idle one of the address
    /// that has the most of them.
    pub max_inbound: usize,
    /// `PeerNetworks` at first: where others may connect from.
    pub peer_networks: PeerNetworks,
    /// TLS of `StoragePort`.
    pub guard: Guard,
    /// Memory for partly received messages and for queued ones, over all connections. Others may
    /// take from it as well.
    pub memory: Arc<Budget>,
    /// Longest wait of a message for memory, before its connection is closed.
    pub memory_wait: Duration,
    /// A peer that sends nothing for so long in the middle of a message is cut off.
    pub read_stall: Duration,
    /// Timeout of an attempt to connect.
    pub connect_timeout: Duration,
    /// The shortest pause between two attempts.
    pub least_backoff: Duration,
    /// The longest pause between two attempts.
    pub greatest_backoff: Duration,
    /// Longest time for the last messages when the node stops.
    pub drain: Duration,
}

impl TcpOptions {
    /// The defaults, for a node that listens here.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            threads: 2,
            // More than the largest call of a client takes, be it for one peer.
            max_queued_messages: 1 << 20,
            max_queued_bytes: 160 << 20,
            max_peers: 1024,
            max_inbound: 4096,
            peer_networks: PeerNetworks::default(),
            guard: Guard::off(Port::Storage),
            memory: Budget::new(1 << 30),
            memory_wait: Duration::from_secs(10),
            read_stall: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            least_backoff: Duration::from_millis(100),
            greatest_backoff: Duration::from_secs(1),
            drain: Duration::from_secs(1),
        }
    }
}

/// Why a node cannot speak to others.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken, or is none of this machine.
    #[error("cannot listen for other nodes on {address} (ListenAddress and StoragePort): {source}")]
    Listen {
        /// The address of the configuration.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start a thread for connections to other nodes: {0}")]
    Thread(#[source] io::Error),
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    options: TcpOptions,
    peer_networks: watch::Sender<PeerNetworks>,
    /// Ends all connections.
    renewals: watch::Sender<()>,
    clock: Arc<dyn Clock>,
    /// Memory that readers hold.
    receiving: Arc<Intake>,
    reporter: LimitedLog<IpAddr>,
    peers: Peers,
    /// Cancelled when the node stops.
    stop: CancellationToken,
}

/// Sends and receives messages over TCP until it is shut down or dropped.
#[derive(Debug)]
pub struct TcpTransport {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Arc<Runtimes>,
    /// Until [`TcpTransport::serve`].
    listener: Mutex<rank::State, Option<TcpListener>>,
}

impl TcpTransport {
    /// Starts the threads and listens; connections are accepted by [`TcpTransport::serve`].
    pub fn bind(options: TcpOptions, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let stop = CancellationToken::new();
        let end = RuntimeEnd { stop: stop.clone(), drain: options.drain * 2, on_cut: |_| {} };
        let threads = Runtimes::start("net", 1, options.threads, &end);
        let threads = Arc::new(threads.map_err(StartError::Thread)?);
        let listening = threads.enter(|| {
            let listener = inbound::listen(options.listen)?;
            listener.local_addr().map(|address| (listener, address))
        });
        let (listener, address) =
            listening.map_err(|source| StartError::Listen { address: options.listen, source })?;
        // Received requests must be executed, and answered.
        let receiving = options.memory.part(options.memory.limit() / 4 * 3);
        let queued = options.memory.part(options.memory.limit() / 2);
        let shared = Shared {
            receiving: Intake::new(receiving, MAX_FRAME_BYTES, options.memory_wait),
            reporter: LimitedLog::new("alexandra::net", Arc::clone(&clock), LOG_INTERVAL),
            peers: Peers::new(options.max_peers, queued),
            peer_networks: watch::Sender::new(options.peer_networks.clone()),
            renewals: watch::Sender::new(()),
            options,
            clock,
            stop,
        };
        let listener = Mutex::new(Some(listener));
        Ok(Self { shared: Arc::new(shared), address, threads, listener })
    }

    /// The address on which it listens, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to accept connections. Only the first call does something.
    pub fn serve(&self, inbound: Arc<dyn Inbound>) {
        let listener = self.listener.lock().take();
        if let Some(listener) = listener {
            let (shared, threads) = (Arc::clone(&self.shared), Arc::clone(&self.threads));
            self.threads.spawn(0, inbound::accept(listener, shared, threads, inbound));
        }
    }

    /// Changes from where others may connect. Connections from elsewhere end.
    pub fn set_peer_networks(&self, networks: PeerNetworks) {
        self.shared.peer_networks.send_replace(networks);
    }

    /// Ends all connections, so that new ones follow the guard as it is now.
    pub fn renew(&self) {
        self.shared.renewals.send_replace(());
        for peer in self.shared.peers.all() {
            self.disconnect(peer.address);
        }
    }

    /// Counters of all peers, sorted by their addresses.
    pub fn stats(&self) -> Vec<(IpAddr, PeerStats)> {
        self.shared.peers.all().iter().map(|peer| (peer.address, peer.stats())).collect()
    }

    /// Stops accepting and reading, sends queued messages to connected peers, for at most
    /// [`TcpOptions::drain`], closes everything and waits for the threads. Must not be called from
    /// a task.
    pub fn shutdown(&self) {
        self.shared.stop.cancel();
        self.listener.lock().take();
        self.threads.join();
    }
}

impl Transport for TcpTransport {
    fn send(&self, to: IpAddr, channel: Channel, message: Arc<[u8]>, deadline: Duration) {
        let Some(peer) = self.shared.peers.get(to) else {
            let line = "dropping messages to a further peer: there are too many";
            self.shared.reporter.warn(to, format_args!("{line}"));
            return;
        };
        let pushed = peer.push(channel, message, deadline, &self.shared);
        let sender = || Sender { shared: Arc::clone(&self.shared), peer, channel };
        match pushed {
            Pushed::Queued | Pushed::Full => {}
            Pushed::First => {
                let writer = sender().run(SocketAddr::new(to, self.address.port()));
                self.threads.spawn(self.threads.least_loaded(), writer);
            }
            Pushed::Yours(turn) => {
                let flush = Flush { sender: sender(), turn: Some(turn) };
                match Handle::try_current() {
                    // Those tasks go first that can run now: they may have more to send.
                    Ok(runtime) => drop(runtime.spawn(async { flush.run() })),
                    Err(_) => flush.run(),
                }
            }
        }
    }

    fn disconnect(&self, peer: IpAddr) {
        if let Some(peer) = self.shared.peers.find(peer) {
            for channel in Channel::ALL {
                peer.queue(channel).disconnect();
            }
        }
    }

    fn dial_for_file(&self, to: IpAddr) -> Doing<'_, io::Result<FileConnection>> {
        let address = SocketAddr::new(to, self.address.port());
        Box::pin(async move {
            let mut stream = writer::connect(&self.shared.options, address, false).await?;
            stream.write_all(&FILE_HEAD).await?;
            Ok(Box::pin(stream) as FileConnection)
        })
    }

    fn set_checksums(&self, peer: IpAddr, checksums: bool) {
        if let Some(peer) = self.shared.peers.get(peer) {
            peer.checksums.store(checksums, Ordering::Relaxed);
        }
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
