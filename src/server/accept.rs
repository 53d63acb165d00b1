//! Accepts connections, and decides which ones make room when there is none.

use super::connection::Shared;
use super::limits::{Limits, Reason};
use super::listener::Port;
use super::worker::Local;
use crate::base::machine::ConnectionKind::Client;
use crate::base::runtimes::Runtimes;
use crate::base::seats::{Seat, Seats};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// Time between two searches for connections that have to end although no new one comes.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// Why there is no room for a connection although there may be more of them.
const NO_FILES: &str = "the files that may still be opened are kept for data and operators \
                        (raise `ulimit -n` or LimitNOFILE)";

/// Accepts connections and gives each to the thread that has the fewest. Takes the listeners, so
/// that clients that come later are refused instead of waiting.
pub(super) async fn accept(
    ports: Vec<Port>,
    shared: &Shared,
    threads: &Runtimes,
    locals: &[Local],
) {
    let mut entrance = Entrance::new(shared);
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    let mut turn = 0;
    loop {
        let (port, accepted) = tokio::select! {
            accepted = next(&ports, &mut turn) => accepted,
            _ = sweep.tick() => {
                entrance.sweep().await;
                continue;
            }
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                let index = threads.least_loaded();
                if let Some((seat, local)) = entrance.admit(peer).await.zip(locals.get(index)) {
                    let (protocol, guard) = (Arc::clone(&port.protocol), port.at.guard.clone());
                    threads.spawn(index, protocol.serve(stream, guard, seat, local.clone()));
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
async fn next<'a>(
    ports: &'a [Port],
    turn: &mut usize,
) -> (&'a Port, io::Result<(TcpStream, SocketAddr)>) {
    *turn = turn.wrapping_add(1);
    let (before, from) = ports.split_at(*turn % ports.len().max(1));
    poll_fn(|context| {
        for port in from.iter().chain(before) {
            if let Poll::Ready(accepted) = port.at.listener.poll_accept(context) {
                return Poll::Ready((port, accepted));
            }
        }
        Poll::Pending
    })
    .await
}

/// Seats for connections: the one that has been idle the longest leaves for a new one.
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
        let Limits { settings, max_connections, .. } = &**self.shared.limits;
        self.seats.set_limit(*max_connections);
        let no_room = if self.seats.are_taken() {
            Some(format!("{settings}MaxConnections allows {max_connections}"))
        } else {
            (Client.files_lacking() > 0).then(|| NO_FILES.to_owned())
        };
        if let Some(why) = no_room
            && !self.make_room(&why).await
        {
            let line =
                format_args!("closing the new connection of {peer}: {why}, and none is idle");
            self.shared.reporter.warn(Reason::NoRoom, line);
            self.shared.traffic.refused();
            return None;
        }
        Some(self.seats.seat(peer))
    }

    /// Ends the connection that has been idle the longest. False if none is idle.
    async fn make_room(&mut self, why: &str) -> bool {
        self.seats.settle().await;
        let Some(ended) = self.seats.end_longest_idle() else { return false };
        let (peer, idle) = (ended.peer, ended.idle.as_secs());
        let line = format_args!("closing {peer}, idle for {idle} s, to make room: {why}");
        self.shared.reporter.warn(Reason::Displaced, line);
        self.shared.traffic.displaced();
        true
    }

    /// Ends connections that have been idle for too long, and as many as data and operators need
    /// files.
    async fn sweep(&mut self) {
        let Limits { settings, idle_timeout, .. } = &**self.shared.limits;
        for ended in idle_timeout.map_or_else(Vec::new, |limit| self.seats.end_idle_for(limit)) {
            let (peer, idle) = (ended.peer, ended.idle.as_secs());
            let line =
                format_args!("closing {peer}, idle for {idle} s ({settings}IdleTimeoutInSeconds)");
            self.shared.reporter.log(log::Level::Info, Reason::Idle, line);
        }
        // Storage may have opened files since the last connection came.
        for _ in 0..Client.files_lacking() {
            if !self.make_room(NO_FILES).await {
                break;
            }
        }
    }
}
