//! Connections that others make.

use super::Shared;
use super::reader;
use super::worker::Workers;
use crate::net::transport::Inbound;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that the kernel completes while they wait to be accepted.
const BACKLOG: u32 = 1024;

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
    let permits = Arc::new(Semaphore::new(shared.options.max_inbound));
    loop {
        let accepted = listener.accept().await.and_then(|(stream, peer)| {
            // It may go to another thread.
            Ok((stream.into_std()?, peer))
        });
        match accepted {
            Ok((stream, peer)) => {
                if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
                    let (shared, inbound) = (Arc::clone(&shared), Arc::clone(&inbound));
                    workers.spawn(serve(stream, peer, permit, shared, inbound));
                } else {
                    let line = "closing a connection from another node: there are too many";
                    shared.reporter.warn(peer.ip(), format_args!("{line} ({peer})"));
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

async fn serve(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    shared: Arc<Shared>,
    inbound: Arc<dyn Inbound>,
) {
    match TcpStream::from_std(stream) {
        Ok(stream) => {
            let stop = shared.stop.clone();
            stop.run_until_cancelled(reader::run(stream, peer, &shared, &*inbound)).await;
        }
        Err(error) => log::debug!("closing the connection of {peer}: {error}"),
    }
    drop(permit);
}
