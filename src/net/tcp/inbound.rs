//! Connections that others make: admission and reading.

use super::Shared;
use crate::base::intake::Unfinished;
use crate::base::machine::{self, ConnectionKind::Peer};
use crate::base::runtimes::Runtimes;
use crate::base::seats::{Seat, Seats};
use crate::base::tls::Stream;
use crate::net::frame::{Frame, FrameError, FrameReader, INITIAL_BYTES};
use crate::net::transport::{Inbound, IncomingFile};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that the kernel completes while they wait to be accepted.
const BACKLOG: u32 = 1024;

/// Connections of one address that none of another address displaces: a node has one for each
/// channel and for each file under way.
const MAX_SHARE: usize = 16;

/// Pause after the machine refused to accept a connection, as when file descriptors run out: it
/// stays in the backlog, and another attempt at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds the address. To be called within a runtime.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Connections inherit it: a peer whose machine is gone is noticed some day.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the node stops, and gives each to a thread.
pub(super) async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    threads: Arc<Runtimes>,
    inbound: Arc<dyn Inbound>,
) {
    let stop = shared.stop.clone();
    stop.run_until_cancelled(accept_all(listener, shared, threads, inbound)).await;
}

async fn accept_all(
    listener: TcpListener,
    shared: Arc<Shared>,
    threads: Arc<Runtimes>,
    inbound: Arc<dyn Inbound>,
) {
    // Peers do not log in, so the rest of the files is reserved for clients, operators and data.
    let files = machine::file_limit().map_or(usize::MAX, |files| (files / 4) as usize);
    let (limit, clock) = (shared.options.max_inbound.min(files), Arc::clone(&shared.clock));
    let mut seats = Seats::new(limit, clock, shared.stop.clone());
    let mut networks = shared.peer_networks.subscribe();
    let mut renewals = shared.renewals.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Their senders live as long as this does.
            _ = renewals.changed() => {
                seats.end_where(|_| true);
                continue;
            }
            _ = networks.changed() => {
                seats.end_where(|peer| !shared.may_connect(peer.ip().to_canonical()));
                continue;
            }
        };
        // It may go to another thread.
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                if let Some(seat) = admit(&mut seats, peer, &shared).await {
                    let (shared, inbound) = (Arc::clone(&shared), Arc::clone(&inbound));
                    threads.spawn(threads.least_loaded(), serve(stream, seat, shared, inbound));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let about = shared.options.listen.ip();
                let line = "cannot accept a connection of another node";
                shared.reporter.warn(about, format_args!("{line}: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Shared {
    /// Whether connections of this address are served. Those of the node itself always are.
    fn may_connect(&self, address: IpAddr) -> bool {
        address == self.options.listen.ip() || self.peer_networks.borrow().admit(address)
    }
}

/// A seat for a new connection, unless its address may not connect or there is no room.
async fn admit(seats: &mut Seats, peer: SocketAddr, shared: &Shared) -> Option<Arc<Seat>> {
    let (address, log) = (peer.ip().to_canonical(), &shared.reporter);
    if !shared.may_connect(address) {
        log.warn(address, format_args!("refusing {peer} at StoragePort: not in PeerNetworks"));
        return None;
    }
    if seats.are_taken() || Peer.files_lacking() > 0 {
        seats.settle().await;
        let Some(ended) = seats.end_idle_of_largest(MAX_SHARE) else {
            let line = "closing the new connection of another node: too many are open";
            log.warn(address, format_args!("{line} ({peer})"));
            return None;
        };
        let line = "closing an idle connection for a new one: no other address has so many";
        log.warn(ended.peer.ip(), format_args!("{line} ({})", ended.peer));
    }
    Some(seats.seat(peer))
}

async fn serve(
    stream: std::net::TcpStream,
    seat: Arc<Seat>,
    shared: Arc<Shared>,
    inbound: Arc<dyn Inbound>,
) {
    match TcpStream::from_std(stream) {
        Ok(stream) => {
            let read = read(Stream::new(stream), &seat, &shared, &*inbound);
            seat.end().run_until_cancelled(read).await;
        }
        Err(error) => log::debug!("closing the connection of {}: {error}", seat.peer()),
    }
}

/// After this many messages the other connections of the thread have their turn.
const MESSAGES_AT_A_TIME: u64 = 256;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error(
        "messages that have arrived in part hold all memory that MemoryBudgetInMB leaves for them \
         ({0} MB)"
    )]
    Budget(usize),
    #[error("it has sent nothing of the rest of its message for {0:?}")]
    Stalled(Duration),
    /// The rest of it is a file, which begins with these bytes.
    #[error("a file follows")]
    File(Vec<u8>),
    /// The peer closed it, or it broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads until the connection ends or something is wrong with it, or hands it on if it carries a
/// file. However long nothing comes, it stays open.
async fn read(mut stream: Stream, seat: &Seat, shared: &Shared, inbound: &dyn Inbound) {
    let peer = seat.peer();
    let opened = async {
        stream.open(&shared.options.guard).await?;
        tokio::time::timeout(shared.options.read_stall, stream.handshake()).await?
    };
    if let Err(error) = opened.await {
        return match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let line = format_args!("refusing {peer}, which speaks plain text: {error}");
                shared.reporter.warn(peer.ip(), line);
            }
            io::ErrorKind::InvalidData | io::ErrorKind::TimedOut => {
                let line = format_args!("closing the connection of {peer}, by TLS: {error}");
                shared.reporter.warn(peer.ip(), line);
            }
            _ => log::debug!("the connection of {peer} has ended: {error}"),
        };
    }
    match read_all(&mut stream, seat, shared, inbound).await {
        Closed::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            let line = format_args!("closing the connection of {peer}, by TLS: {error}");
            shared.reporter.warn(peer.ip(), line);
        }
        Closed::Io(error) => log::debug!("the connection of {peer} has ended: {error}"),
        Closed::File(begun) => {
            let file = IncomingFile::new(begun, stream);
            inbound.receive_file(peer.ip().to_canonical(), file).await;
        }
        wrong => {
            shared
                .reporter
                .warn(peer.ip(), format_args!("closing the connection of {peer}: {wrong}"));
        }
    }
}

/// Hands a payload on, and warns of one that is not a message.
fn deliver(payload: &[u8], peer: SocketAddr, shared: &Shared, inbound: &dyn Inbound) {
    if let Err(error) = inbound.receive(payload) {
        let line = format_args!("a message of {peer} is not sound: {error}");
        shared.reporter.warn(peer.ip(), line);
    }
}

async fn read_all(
    stream: &mut Stream,
    seat: &Seat,
    shared: &Shared,
    inbound: &dyn Inbound,
) -> Closed {
    let counters = shared.peers.get(seat.peer().ip());
    let mut frames = FrameReader::new();
    let mut held = Unfinished::new(Arc::clone(&shared.receiving));
    let mut since_pause = 0;
    loop {
        // The room that every connection keeps does not count.
        let beyond = |bytes: usize| bytes.saturating_sub(INITIAL_BYTES);
        if !held.hold(beyond(frames.held() + frames.growth())).await {
            return Closed::Budget(shared.receiving.limit() >> 20);
        }
        // It may wait for long here, so give back the memory of a large message.
        frames.space();
        held.hold(beyond(frames.held())).await;
        seat.rest(shared.clock.monotonic());
        let stall = shared.options.read_stall;
        let read = if frames.rest().is_empty() {
            stream.read(frames.space()).await
        } else {
            match tokio::time::timeout(stall, stream.read(frames.space())).await {
                Ok(read) => read,
                Err(_) => return Closed::Stalled(stall),
            }
        };
        if !seat.resume() {
            return Closed::Io(io::ErrorKind::ConnectionAborted.into());
        }
        let count = match read {
            Ok(0) => return Closed::Io(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) => return Closed::Io(error),
        };
        frames.filled(count);
        let mut messages = 0;
        let outcome = loop {
            match frames.next_frame() {
                Ok(Some(Frame::Message(payload))) => {
                    deliver(payload, seat.peer(), shared, inbound);
                    messages += 1;
                }
                Ok(Some(Frame::FileStream)) => {
                    break Err(Closed::File(frames.rest().to_vec()));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(Closed::Frame(error)),
            }
        };
        if let Some(counters) = &counters {
            counters.count(|stats| {
                stats.received += messages;
                stats.received_bytes += count as u64;
            });
        }
        if let Err(closed) = outcome {
            return closed;
        }
        since_pause += messages;
        if since_pause >= MESSAGES_AT_A_TIME {
            since_pause = 0;
            tokio::task::yield_now().await;
        }
    }
}
