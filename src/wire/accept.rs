//! Accepts connections, and decides which ones make room when there is none.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::connection::{Border, Shared};
use super::report::Reason;
use super::server::{Accepted, Worker};
use super::service::Cassandra;
use crate::base::machine::ConnectionKind::Client;
use crate::base::seats::{Seat, Seats};

/// Time between two searches for connections that have to end although no new one comes.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// A port with what its connections are served by.
#[derive(Debug)]
pub(super) struct Port<S> {
    pub(super) listener: TcpListener,
    pub(super) border: Arc<Border<S>>,
}

/// Accepts connections and hands each to the worker that has the fewest. Takes the listeners, so
/// that clients that come later are refused instead of waiting.
pub(super) async fn accept<S: Cassandra>(
    ports: Vec<Port<S>>,
    shared: &Shared,
    workers: &[Worker<S>],
) {
    let mut entrance = Entrance::new(shared);
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    let mut turn = 0;
    loop {
        let (border, accepted) = tokio::select! {
            accepted = next(&ports, &mut turn) => accepted,
            _ = sweep.tick() => {
                entrance.sweep().await;
                continue;
            }
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                let least = workers.iter().min_by_key(|worker| worker.load());
                if let Some((seat, worker)) = entrance.admit(peer).await.zip(least) {
                    worker.assign(Accepted { stream, border, seat });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Most likely out of file descriptors: the connection stays in the backlog, and
                // accepting at once again would only burn the processor.
                shared
                    .reporter
                    .warn(Reason::Accept, format_args!("cannot accept a connection: {error}"));
                tokio::time::sleep(shared.limits.accept_pause).await;
            }
        }
    }
}

/// The next connection at any port, each of which comes first in its turn.
async fn next<S>(
    ports: &[Port<S>],
    turn: &mut usize,
) -> (Arc<Border<S>>, io::Result<(TcpStream, SocketAddr)>) {
    *turn = turn.wrapping_add(1);
    let (before, from) = ports.split_at(*turn % ports.len().max(1));
    poll_fn(|context| {
        for port in from.iter().chain(before) {
            if let Poll::Ready(accepted) = port.listener.poll_accept(context) {
                return Poll::Ready((Arc::clone(&port.border), accepted));
            }
        }
        Poll::Pending
    })
    .await
}

/// Why there is no room for a connection.
#[derive(Debug, Clone, Copy)]
enum NoRoom {
    Connections(usize),
    Files,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connections(limit) => write!(f, "ThriftMaxConnections allows {limit}"),
            Self::Files => f.write_str(
                "the files that may still be opened are kept for data and operators \
                 (raise `ulimit -n` or LimitNOFILE)",
            ),
        }
    }
}

/// Who may come in, and who has to leave for them.
#[derive(Debug)]
struct Entrance<'a> {
    shared: &'a Shared,
    seats: Seats,
}

impl<'a> Entrance<'a> {
    fn new(shared: &'a Shared) -> Self {
        let (limit, clock) = (shared.limits.max_connections, Arc::clone(&shared.clock));
        Self { shared, seats: Seats::new(limit, clock, shared.stop.clone()) }
    }

    /// A seat for a new connection. Without room the one that has been idle the longest is closed
    /// for it, and if none is idle the new one.
    async fn admit(&mut self, peer: SocketAddr) -> Option<Arc<Seat>> {
        let no_room = if self.seats.are_taken() {
            Some(NoRoom::Connections(self.shared.limits.max_connections))
        } else {
            (Client.files_lacking() > 0).then_some(NoRoom::Files)
        };
        if let Some(why) = no_room
            && !self.make_room(why).await
        {
            let line =
                format_args!("closing the new connection of {peer}: {why}, and none is idle");
            self.shared.reporter.warn(Reason::NoRoom, line);
            return None;
        }
        Some(self.seats.seat(peer))
    }

    /// Ends the connection that has been idle the longest. False if none is idle.
    async fn make_room(&mut self, why: NoRoom) -> bool {
        self.seats.settle().await;
        let Some(ended) = self.seats.end_longest_idle() else { return false };
        let (peer, idle) = (ended.peer, ended.idle.as_secs());
        let line = format_args!("closing {peer}, idle for {idle} s, to make room: {why}");
        self.shared.reporter.warn(Reason::Displaced, line);
        true
    }

    /// Ends connections that have been idle for too long, and as many as data and operators need
    /// files.
    async fn sweep(&mut self) {
        let idle_timeout = self.shared.limits.idle_timeout;
        for ended in idle_timeout.map_or_else(Vec::new, |limit| self.seats.end_idle_for(limit)) {
            let (peer, idle) = (ended.peer, ended.idle.as_secs());
            let line =
                format_args!("closing {peer}, idle for {idle} s (ThriftIdleTimeoutInSeconds)");
            self.shared.reporter.log(log::Level::Info, Reason::Idle, line);
        }
        // Storage may have opened files since the last connection came.
        for _ in 0..Client.files_lacking() {
            if !self.make_room(NoRoom::Files).await {
                break;
            }
        }
    }
}
