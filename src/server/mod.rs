//! Client connections of any protocol: listeners, worker threads, limits, memory and drain. A
//! [`Protocol`] turns bytes into requests, and requests into replies.
//!
//! ```text
//!   listener      ports, workers, drain
//!     accept      new connections, and idle ones that make room for them
//!     worker      threads, each with its connections
//!       connection  reads, has requests answered, writes
//!         beside    requests that are answered while later ones are read
//!       buffers, limits    memory and bounds
//!       traffic    counters
//! ```

mod accept;
mod beside;
mod buffers;
mod connection;
mod limits;
mod listener;
#[cfg(test)]
mod tests;
mod traffic;
mod worker;

pub use connection::Close;
pub use limits::Limits;
pub use listener::{Listening, Server, ServerOptions, listen};
pub use traffic::{Traffic, TrafficTotals};

use crate::base::budget::Budget;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A protocol of a port.
///
/// [`Protocol::decode`] reads one request from the bytes at hand and says how it is answered: in
/// place, before the next one is looked at, or beside others, in whatever order they are done. An
/// answer that need not wait is there at once in either case, without a task of its own. Once
/// begun, a request is never dropped before its end unless it only reads, or a stopping server
/// runs out of patience.
///
/// The connections of a worker share its thread: an answer that would block, or compute for long,
/// does so elsewhere and awaits the outcome. A panic ends the connection unless the protocol
/// answers it, by [`catch_panic`]. Requests above [`Room::longest`] are for the protocol to refuse.
pub trait Protocol: Send + Sync + 'static {
    /// Parse state of a connection.
    type Framing: Send + 'static;
    /// State that the requests of a connection share, such as its login.
    type Session: Send + Sync + 'static;
    /// A decoded request. It may borrow from the received bytes.
    type Request<'a>: Send + Sync;

    /// Begins a connection.
    fn connect(&self, peer: SocketAddr) -> (Self::Framing, Self::Session);

    /// Decodes the request at the start of these bytes, which are not empty. The same bytes, and
    /// more, come again until they were decoded or passed over.
    fn decode<'a>(
        &self,
        framing: &mut Self::Framing,
        bytes: &'a [u8],
        room: &'a Room,
    ) -> Result<Decoded<'a, Self>, Close>;

    /// Answers the request at the start of these bytes, which may go on beyond them: it is refused.
    /// From now on [`Protocol::decode`] passes over its bytes. Returns what was
    /// refused, for the log; `None` if too little has come to answer.
    fn refuse(
        &self,
        framing: &mut Self::Framing,
        bytes: &[u8],
        refusal: &Refusal<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<&'static str>;

    /// Answers a request: writes the bytes of the reply to the buffer, which is empty.
    fn answer(
        &self,
        session: &Self::Session,
        request: &Self::Request<'_>,
        reply: &mut Vec<u8>,
    ) -> impl Future<Output = ()> + Send;

    /// Bytes that a client gets without a request, such as an event. Asked while the connection
    /// waits for something to do.
    fn poll_push(
        &self,
        _session: &Self::Session,
        _context: &mut Context<'_>,
    ) -> Poll<Result<Vec<u8>, Close>> {
        Poll::Pending
    }
}

/// Why a request is not even looked at.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// For people.
    pub why: &'a str,
    /// Its kind, for programs.
    pub kind: RefusalKind,
}

/// Kind of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no memory now: it may be repeated later.
    Passing,
    /// There is never enough memory for it.
    TooLarge,
    /// It is plain text, at a port for TLS alone.
    Plain,
}

/// Limits of decoding.
#[derive(Debug)]
pub struct Room {
    /// Memory for requests and replies.
    pub memory: Arc<Budget>,
    /// Longest request, in bytes.
    pub longest: usize,
    /// Prefix of the settings in log lines.
    pub settings: &'static str,
}

/// The first item of the bytes at hand.
pub enum Decoded<'a, P: Protocol + ?Sized> {
    /// A request that needs further bytes.
    Incomplete,
    /// A request that needs more memory than is free: at least this many bytes.
    NoMemory(usize),
    /// Bytes without an answer: at least one.
    PassOver(usize),
    /// A request that is answered before anything else of its connection.
    InPlace(Whole<P::Request<'a>>),
    /// A request that is answered while later ones are read.
    Beside(Whole<P::Request<'static>>),
}

/// A whole request.
pub struct Whole<R> {
    /// The decoded request.
    pub request: R,
    /// Bytes that it took.
    pub length: usize,
    /// Whether it changes nothing, so that it may be cancelled when its client leaves.
    pub only_reads: bool,
}

/// Drives an answer to its end; `None` if it panicked. The future may not be polled again then.
pub async fn catch_panic<T, F: Future<Output = T>>(mut answer: Pin<&mut F>) -> Option<T> {
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}
