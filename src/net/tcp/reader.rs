//! Reads what a peer sends on one connection.

use super::Shared;
use crate::base::intake::Unfinished;
use crate::base::seats::Seat;
use crate::net::frame::{Frame, FrameError, FrameReader, INITIAL_BYTES};
use crate::net::transport::{Inbound, IncomingFile};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// After so many messages the other connections of the thread have their turn.
const MESSAGES_AT_A_TIME: usize = 256;

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
pub(super) async fn run(
    mut stream: TcpStream,
    seat: &Seat,
    shared: &Shared,
    inbound: &dyn Inbound,
) {
    let peer = seat.peer();
    match read_all(&mut stream, seat, shared, inbound).await {
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
        // It may wait for long from here on, and has given back what a large message took.
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
