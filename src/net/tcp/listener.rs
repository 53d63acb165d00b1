//! Connections that others make.

use super::Shared;
use super::reader;
use super::worker::Workers;
use crate::base::machine::{self, ConnectionKind::Peer};
use crate::base::seats::{Seat, Seats};
use crate::net::transport::Inbound;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
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
    workers: Workers,
    inbound: Arc<dyn Inbound>,
) {
    let stop = shared.stop.clone();
    stop.run_until_cancelled(accept_all(listener, shared, workers, inbound)).await;
}

async fn accept_all(
    listener: TcpListener,
    shared: Arc<Shared>,
    workers: Workers,
    inbound: Arc<dyn Inbound>,
) {
    // Nobody logs in here: the other files are for clients, operators and data.
    let files = machine::file_limit().map_or(usize::MAX, |files| (files / 4) as usize);
    let (limit, clock) = (shared.options.max_inbound.min(files), Arc::clone(&shared.clock));
    let mut seats = Seats::new(limit, clock, shared.stop.clone());
    loop {
        let accepted = listener.accept().await.and_then(|(stream, peer)| {
            // It may go to another thread.
            Ok((stream.into_std()?, peer))
        });
        match accepted {
            Ok((stream, peer)) => {
                if let Some(seat) = admit(&mut seats, peer, &shared).await {
                    let (shared, inbound) = (Arc::clone(&shared), Arc::clone(&inbound));
                    workers.spawn(serve(stream, seat, shared, inbound));
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

/// A seat for a new connection, unless its address may not connect or there is no room.
async fn admit(seats: &mut Seats, peer: SocketAddr, shared: &Shared) -> Option<Arc<Seat>> {
    let (address, log) = (peer.ip().to_canonical(), &shared.reporter);
    let is_own = address == shared.options.listen.ip();
    if !is_own && !shared.options.peer_networks.admit(address) {
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
            let read = reader::run(stream, &seat, &shared, &*inbound);
            seat.end().run_until_cancelled(read).await;
        }
        Err(error) => log::debug!("closing the connection of {}: {error}", seat.peer()),
    }
}
