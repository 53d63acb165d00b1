//! The writer of one channel to a peer.

use super::peer::Peer;
use super::queue::{Batch, Queue, Turn};
use super::{Shared, TcpOptions};
use crate::base::tls::{Mode, Stream};
use crate::net::verb::Channel;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longest time without TCP acknowledgement before a connection counts as broken. A device in
/// between may have forgotten it while others between the same machines work, so the peer seems
/// alive; the system alone would take 15 minutes.
#[cfg(target_os = "linux")]
const MAX_UNANSWERED: Duration = Duration::from_secs(20);

/// Most batches that a task sends on its way, since others may queue as fast as it sends.
const MOST_ROUNDS: usize = 4;

/// Sends what is queued for a peer on one channel.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: Arc<Peer>,
    pub(super) channel: Channel,
}

impl Sender {
    fn queue(&self) -> &Queue {
        self.peer.queue(self.channel)
    }

    /// Dials when there is something to send, and sends, until the queue is closed or the node
    /// stops.
    pub(super) async fn run(self, address: SocketAddr) {
        let (queue, channel) = (self.queue(), self.channel);
        let mut disconnects = queue.disconnects();
        let stop = self.shared.stop.clone();
        // The peer has refused this node after the handshake.
        let mut is_refused = false;
        while let Some(true) = stop.run_until_cancelled(queue.wait()).await {
            let dialled = stop.run_until_cancelled(self.dial(address, is_refused)).await;
            let Some(Some(stream)) = dialled else { continue };
            // Earlier requests to close the connection are done.
            disconnects.borrow_and_update();
            log::debug!("connected to {address} ({channel})");
            let stream = Arc::new(stream);
            queue.connected(Arc::clone(&stream));
            let end = self.send_all(&stream, &mut disconnects).await;
            log::debug!("the connection to {address} ({channel}) has ended: {end}");
            queue.disconnected().await;
            is_refused = matches!(&end, End::Io(why) if why.kind() == io::ErrorKind::InvalidData);
            if is_refused {
                let line = format_args!("{address} has refused this node by TLS: {end}");
                self.shared.reporter.warn(address.ip(), line);
            }
            if !matches!(end, End::Disconnected) {
                // A peer that closes whatever it accepts is not dialled all the time.
                let pause = tokio::time::sleep(self.shared.options.least_backoff);
                stop.run_until_cancelled(pause).await;
            }
        }
    }

    /// Tries to connect, for as long as there is something to send.
    async fn dial(&self, address: SocketAddr, is_refused: bool) -> Option<Stream> {
        let Self { shared, peer, .. } = self;
        let options = &shared.options;
        let mut backoff = options.least_backoff;
        loop {
            peer.count_late(self.queue().expire(shared.clock.monotonic()));
            if self.queue().waiting().0 == 0 {
                return None;
            }
            match connect(options, address, is_refused).await {
                Ok(stream) => {
                    peer.count(|stats| stats.connects += 1);
                    return Some(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let line = format_args!("cannot connect to {address} by TLS: {error}");
                    shared.reporter.warn(address.ip(), line);
                }
                Err(error) => log::debug!("cannot connect to {address}: {error}"),
            }
            peer.count(|stats| stats.failed_connects += 1);
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(options.greatest_backoff);
        }
    }

    async fn send_all(&self, stream: &Stream, disconnects: &mut watch::Receiver<u64>) -> End {
        let stop = self.shared.stop.clone();
        loop {
            let turn = tokio::select! {
                biased;
                () = stop.cancelled() => return self.send_last().await,
                _ = disconnects.changed() => return End::Disconnected,
                end = closed(stream) => return end,
                turn = self.queue().turn() => turn,
            };
            let Some(mut turn) = turn else { return End::Stopped };
            self.fill(&mut turn.batch);
            let end = tokio::select! {
                biased;
                written = turn.batch.write(stream) => written.err().map(End::Io),
                _ = disconnects.changed() => Some(End::Disconnected),
                () = stop.cancelled() => None,
            };
            if end.is_none() && turn.batch.is_written() {
                self.count(&mut turn.batch);
            }
            self.queue().give_back(turn, false);
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Takes further messages if all before are written.
    fn fill(&self, batch: &mut Batch) {
        if batch.is_empty() {
            let (messages, late) = self.queue().take(self.shared.clock.monotonic());
            self.peer.count_late(late);
            batch.fill(messages, self.peer.checksums.load(Ordering::Relaxed));
        }
    }

    /// Counts a batch that was written.
    fn count(&self, batch: &mut Batch) {
        let (messages, bytes) = batch.finish();
        self.peer.count(|stats| {
            stats.sent += messages as u64;
            stats.sent_bytes += bytes as u64;
        });
    }

    /// Sends the rest of the batch and the queue, for at most the drain time.
    async fn send_last(&self) -> End {
        let rest = async {
            while self.queue().has_unsent()
                && let Some(mut turn) = self.queue().turn().await
            {
                self.fill(&mut turn.batch);
                let written = turn.batch.write(&turn.stream).await;
                self.count(&mut turn.batch);
                self.queue().give_back(turn, false);
                if written.is_err() {
                    break;
                }
            }
        };
        // The rest is lost, as if the node had been killed.
        let _ = tokio::time::timeout(self.shared.options.drain, rest).await;
        End::Stopped
    }
}

/// Connects from the address that this node listens on, by TLS if that is on. Where it is optional
/// the peer may have none, or may refuse this node.
pub(super) async fn connect(
    options: &TcpOptions,
    to: SocketAddr,
    is_refused: bool,
) -> io::Result<Stream> {
    let TcpOptions { listen, guard, connect_timeout: patience, .. } = options;
    let is_optional = guard.mode() == Mode::Optional;
    if let Some(trust) = guard.dialing()
        && !(is_optional && is_refused)
    {
        let attempt = async { Stream::dial(connect_plainly(*listen, to).await?, &trust).await };
        match timeout(*patience, attempt).await.unwrap_or_else(|late| Err(late.into())) {
            Err(error) if is_optional => log::debug!("{to} has no TLS: {error}"),
            dialled => return dialled,
        }
    }
    timeout(*patience, connect_plainly(*listen, to)).await?.map(Stream::new)
}

async fn connect_plainly(listen: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Peers know a node by the address that it listens on.
    if listen.is_ipv4() == to.is_ipv4() {
        socket.bind(SocketAddr::new(listen.ip(), 0))?;
    }
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(&socket, MAX_UNANSWERED.as_millis() as u32)?;
    socket.connect(to).await
}

/// Why nothing is sent any more on a connection.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("it was to be closed")]
    Disconnected,
    #[error("the peer has closed it")]
    ClosedByPeer,
    #[error("the node stops")]
    Stopped,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Sends what is queued, without waiting: the writer sends what the system does not take at once,
/// or all if this is dropped before.
pub(super) struct Flush {
    pub(super) sender: Sender,
    pub(super) turn: Option<Turn>,
}

impl Flush {
    pub(super) fn run(mut self) {
        for rounds_left in (0..MOST_ROUNDS).rev() {
            let Some(mut turn) = self.turn.take() else { return };
            self.sender.fill(&mut turn.batch);
            if let Ok(true) = turn.batch.try_write(&turn.stream) {
                self.sender.count(&mut turn.batch);
            }
            // The writer gets the same error.
            self.turn = self.sender.queue().give_back(turn, rounds_left > 0);
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.sender.queue().give_back(turn, false);
        }
    }
}

/// Waits until the peer closes the connection. It never says anything on it.
async fn closed(stream: &Stream) -> End {
    loop {
        if let Err(error) = poll_fn(|context| stream.poll_read_ready(context)).await {
            return End::Io(error);
        }
        match stream.try_read(&mut [0; 1]) {
            Ok(_) => return End::ClosedByPeer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return End::Io(error),
        }
    }
}
