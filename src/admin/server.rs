//! The listener, and the thread that it is served on.

use super::access::Access;
use super::connection::{self, DRAIN};
use super::context::AdminContext;
use super::http;
use crate::base::clock::Clock;
use crate::base::limited_log::LimitedLog;
use crate::base::machine::ConnectionKind::Operator;
use crate::base::seats::{Seat, Seats};
use axum::Router;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections at a time. A further one takes the place of the one that has been idle the longest,
/// so that slow clients shut no operator out.
const MAX_CONNECTIONS: usize = 64;

/// Shortest time between two log lines of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after the machine refused to accept a connection, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Times between two looks at the counters, from which the recent means come.
const SNAPSHOT_PERIOD: Duration = Duration::from_secs(30);

/// A listener that is bound and not served yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Binds the address; port 0 is a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Serves on a thread of its own.
    pub fn start(self, context: AdminContext, access: Access) -> io::Result<RunningAdmin> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("admin-job")
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(self.listener)?
        };
        // Here, so that no client comes before it.
        context.remember();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            let context = Arc::new(context);
            let router = http::router(Arc::clone(&context), access);
            let look = remember(&context);
            runtime.block_on(async {
                let served = serve(listener, router, Arc::clone(&context.clock), stopped);
                tokio::select! {
                    () = served => {}
                    () = look => {}
                }
            });
            // Jobs under way have been told to stop by the storage, which waits for none of them.
            runtime.shutdown_timeout(DRAIN);
        })?;
        Ok(RunningAdmin { address: self.address, stop, thread: Some(thread) })
    }
}

/// Looks at the counters now and then, later than just now. Never ends.
async fn remember(context: &AdminContext) {
    let mut period = interval_at(Instant::now() + SNAPSHOT_PERIOD, SNAPSHOT_PERIOD);
    loop {
        period.tick().await;
        context.remember();
    }
}

/// Accepts until it is told to stop, then lets answers under way end.
async fn serve(
    listener: TcpListener,
    router: Router,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let mut seats = Seats::new(MAX_CONNECTIONS, Arc::clone(&clock), stop.clone());
    let log = LimitedLog::new("alexandra::admin", Arc::clone(&clock), LOG_INTERVAL);
    let tasks = TaskTracker::new();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(seat) = admit(&mut seats, &log, peer).await {
                        let clock = Arc::clone(&clock);
                        tasks.spawn(connection::serve(stream, seat, router.clone(), clock));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log::warn!("cannot accept an admin connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
    // Clients that come later are refused instead of waiting.
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// A seat for a new connection; `None` if there is no room and no connection is idle.
async fn admit(
    seats: &mut Seats,
    log: &LimitedLog<&'static str>,
    peer: SocketAddr,
) -> Option<Arc<Seat>> {
    if seats.are_taken() || Operator.files_lacking() > 0 {
        seats.settle().await;
        let Some(ended) = seats.end_longest_idle() else {
            let line = "closing a new admin connection: too many requests are under way";
            log.warn(line, format_args!("{line} ({peer})"));
            return None;
        };
        let line = "closing the admin connection that was idle the longest for a new one";
        log.warn(line, format_args!("{line} ({})", ended.peer));
    }
    Some(seats.seat(peer))
}

/// A served admin side. Stops when dropped.
#[derive(Debug)]
pub struct RunningAdmin {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl RunningAdmin {
    /// Where it listens; tells the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, lets answers under way end for a few seconds, and ends the thread. Blocks.
    pub fn stop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the admin thread panicked");
        }
    }
}

impl Drop for RunningAdmin {
    fn drop(&mut self) {
        self.stop();
    }
}
