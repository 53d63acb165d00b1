//! Sends what is queued for a peer on one channel.

use super::Shared;
use super::peer::Peer;
use super::queue::{Queue, Queued};
use crate::net::frame::put_frame;
use crate::net::verb::Channel;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

/// About how many bytes are written at a time.
const BATCH_BYTES: usize = 256 << 10;

/// A buffer larger than this is given back when it has been written.
const KEPT_BYTES: usize = 4 * BATCH_BYTES;

/// Dials when there is something to send, and sends, until the queue is closed or the node stops.
pub(super) async fn run(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    channel: Channel,
    address: SocketAddr,
) {
    let queue = peer.queue(channel);
    let mut disconnects = queue.disconnects();
    let mut batch = Batch::default();
    let stop = shared.stop.clone();
    while let Some(true) = stop.run_until_cancelled(queue.wait()).await {
        let dialled = stop.run_until_cancelled(dial(&shared, &peer, queue, address)).await;
        let Some(Some(stream)) = dialled else { continue };
        // What was to be closed before is closed.
        disconnects.borrow_and_update();
        log::debug!("connected to {address} ({channel})");
        queue.set_connected(true);
        let mut sender = Sender { shared: &shared, peer: &peer, queue, batch: &mut batch };
        let end = sender.send_all(&stream, &mut disconnects).await;
        log::debug!("the connection to {address} ({channel}) has ended: {end}");
        queue.put_back(batch.unsent());
        queue.set_connected(false);
        if !matches!(end, End::Disconnected) {
            // A peer that closes whatever it accepts is not dialled all the time.
            let pause = tokio::time::sleep(shared.options.least_backoff);
            stop.run_until_cancelled(pause).await;
        }
    }
}

/// Tries to connect, for as long as there is something to send.
async fn dial(
    shared: &Shared,
    peer: &Peer,
    queue: &Queue,
    address: SocketAddr,
) -> Option<TcpStream> {
    let options = &shared.options;
    let mut backoff = options.least_backoff;
    loop {
        peer.dropped_late.add(queue.expire(shared.clock.monotonic()));
        if queue.waiting().0 == 0 {
            return None;
        }
        let attempt = connect(shared.options.listen, address);
        match tokio::time::timeout(options.connect_timeout, attempt).await {
            Ok(Ok(stream)) => {
                peer.connects.add(1);
                return Some(stream);
            }
            Ok(Err(error)) => log::debug!("cannot connect to {address}: {error}"),
            Err(_) => log::debug!("cannot connect to {address}: no answer"),
        }
        peer.failed_connects.add(1);
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(options.greatest_backoff);
    }
}

async fn connect(listen: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Peers know a node by the address that it listens on.
    if listen.is_ipv4() == to.is_ipv4() {
        socket.bind(SocketAddr::new(listen.ip(), 0))?;
    }
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.connect(to).await
}

/// Messages in their frames, which are being written.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The messages, each with the place where its frame ends.
    messages: Vec<(Queued, usize)>,
    written: usize,
}

impl Batch {
    fn fill(&mut self, messages: Vec<Queued>, checksums: bool) {
        self.clear();
        for queued in messages {
            // What no frame can hold was not queued.
            if put_frame(&mut self.bytes, &queued.message, checksums).is_ok() {
                self.messages.push((queued, self.bytes.len()));
            }
        }
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.written = 0;
    }

    /// The messages that were not written, or not to their end. The batch is empty then.
    fn unsent(&mut self) -> std::vec::IntoIter<Queued> {
        let written = self.written;
        let unsent = self.messages.drain(..).filter(|(_, end)| *end > written);
        let unsent: Vec<Queued> = unsent.map(|(queued, _)| queued).collect();
        self.clear();
        unsent.into_iter()
    }

    async fn write(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.written < self.bytes.len() {
            stream.writable().await?;
            match stream.try_write(&self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
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

/// Sends on one connection.
struct Sender<'a> {
    shared: &'a Shared,
    peer: &'a Peer,
    queue: &'a Queue,
    batch: &'a mut Batch,
}

impl Sender<'_> {
    async fn send_all(
        &mut self,
        stream: &TcpStream,
        disconnects: &mut watch::Receiver<u64>,
    ) -> End {
        let stop = self.shared.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.send_last(stream).await,
                _ = disconnects.changed() => return End::Disconnected,
                end = closed(stream) => return end,
                more = self.queue.wait() => if !more { return End::Stopped },
            }
            self.take();
            tokio::select! {
                biased;
                written = self.batch.write(stream) => if let Err(error) = written {
                    return End::Io(error);
                },
                _ = disconnects.changed() => return End::Disconnected,
                () = stop.cancelled() => return self.send_last(stream).await,
            }
            self.count();
        }
    }

    fn take(&mut self) {
        let (messages, late) = self.queue.take(self.shared.clock.monotonic(), BATCH_BYTES);
        self.peer.dropped_late.add(late);
        self.batch.fill(messages, self.peer.checksums.load(Ordering::Relaxed));
    }

    /// Counts a batch that was written.
    fn count(&mut self) {
        self.peer.sent.add(self.batch.messages.len() as u64);
        self.peer.sent_bytes.add(self.batch.bytes.len() as u64);
        self.batch.clear();
    }

    /// Sends the rest of the batch and what is queued, for as long as a node may take to stop.
    async fn send_last(&mut self, stream: &TcpStream) -> End {
        let drain = self.shared.options.drain;
        let rest = async {
            while self.batch.write(stream).await.is_ok() {
                self.count();
                if self.queue.waiting().0 == 0 {
                    break;
                }
                self.take();
            }
        };
        // What takes longer is lost, as if the node had been killed.
        let _ = tokio::time::timeout(drain, rest).await;
        End::Stopped
    }
}

/// Waits until the peer closes the connection. It never says anything on it.
async fn closed(stream: &TcpStream) -> End {
    loop {
        if let Err(error) = stream.readable().await {
            return End::Io(error);
        }
        match stream.try_read(&mut [0; 1]) {
            Ok(_) => return End::ClosedByPeer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return End::Io(error),
        }
    }
}
