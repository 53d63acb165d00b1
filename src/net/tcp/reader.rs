//! Reads what a peer sends on one connection.

use super::Shared;
use crate::base::budget::Charge;
use crate::net::frame::{Frame, FrameError, FrameReader};
use crate::net::transport::{Inbound, IncomingFile};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// After so many messages the other connections of the thread have their turn.
const MESSAGES_AT_A_TIME: usize = 256;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("no memory is left for messages that have arrived in part")]
    Budget,
    /// The rest of it is a file, which begins with these bytes.
    #[error("a file follows")]
    File(Vec<u8>),
    /// The peer closed it, or it broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads until the connection ends or something is wrong with it, or hands it on if it carries a
/// file. However long nothing comes, it stays open.
pub(super) async fn run(
    mut stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    inbound: &dyn Inbound,
) {
    match read_all(&mut stream, peer, shared, inbound).await {
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

async fn read_all(
    stream: &mut TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    inbound: &dyn Inbound,
) -> Closed {
    let counters = shared.peers.get(peer.ip());
    let mut frames = FrameReader::new();
    let mut charge = Charge::new(Arc::clone(&shared.receiving));
    let mut since_pause = 0;
    loop {
        if !charge.try_set(frames.held() + frames.growth()) {
            return Closed::Budget;
        }
        // It may wait for long from here on, and has given back what a large message took.
        frames.space();
        charge.set(frames.held());
        let count = match stream.read(frames.space()).await {
            Ok(0) => return Closed::Io(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) => return Closed::Io(error),
        };
        frames.filled(count);
        let mut messages = 0;
        let outcome = loop {
            match frames.next_frame() {
                Ok(Some(Frame::Message(payload))) => {
                    inbound.receive(payload);
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
            counters.received.add(messages as u64);
            counters.received_bytes.add(count as u64);
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
