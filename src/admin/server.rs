//! The listener, its thread, and connections of operators: HTTP/1 with bounds on what a client may
//! send and how long it may take.

use super::context::AdminContext;
use super::http;
use crate::base::clock::Clock;
use crate::base::limited_log::LimitedLog;
use crate::base::machine::ConnectionKind::Operator;
use crate::base::seats::{Seat, Seats};
use crate::base::tls::{Guard, Stream};
use axum::{Extension, Router};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, interval_at, timeout};
use tokio_io_timeout::TimeoutWriter;
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

/// A client that has not sent the whole head of a request after this time is cut off, and so is
/// one that sends none for so long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// A client that reads nothing for so long while an answer waits for it is cut off.
const WRITE_STALL: Duration = Duration::from_secs(30);

/// Time for answers under way when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Bytes of the head of a request, and of parts of a body that are buffered.
const MAX_BUFFER: usize = 16 << 10;

/// Header lines of a request.
const MAX_HEADERS: usize = 64;

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
    pub fn start(self, context: AdminContext, guard: Guard) -> io::Result<RunningAdmin> {
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
            let router = http::router(Arc::clone(&context));
            let look = remember(&context);
            runtime.block_on(async {
                let accepting = (listener, guard);
                let served = serve(accepting, router, Arc::clone(&context.clock), stopped);
                tokio::select! {
                    () = served => {}
                    () = look => {}
                }
            });
            // The storage stops jobs under way, and waits for none of them.
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

/// Accepts connections until `stop`, then lets answers under way end.
async fn serve(
    (listener, guard): (TcpListener, Guard),
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
                        let (guard, router) = (guard.clone(), router.clone());
                        let stream = (stream, guard);
                        tasks.spawn(serve_connection(stream, seat, router, Arc::clone(&clock)));
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
    /// Address on which it listens, with the port that the system chose.
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

/// Sender of a request.
#[derive(Debug, Clone)]
pub(super) struct Peer(pub(super) Arc<Seat>);

impl Peer {
    /// Its address.
    pub(super) fn address(&self) -> IpAddr {
        self.0.peer().ip()
    }

    /// Notes that the request has come whole: from now on its connection is not idle. Never
    /// returns if the connection is being dropped.
    pub(super) async fn begin(&self) {
        if !self.0.resume() {
            std::future::pending::<()>().await;
        }
    }
}

/// Serves a connection until the client has had enough, or its seat is taken from it. It is idle
/// as long as no request that has come whole is being answered.
async fn serve_connection(
    (stream, guard): (TcpStream, Guard),
    seat: Arc<Seat>,
    router: Router,
    clock: Arc<dyn Clock>,
) {
    // Answers are written whole; a socket that the client has closed may refuse this.
    let _ = stream.set_nodelay(true);
    let mut stream = Stream::new(stream);
    let opening = timeout(HEAD_TIMEOUT, stream.open(&guard));
    match seat.end().run_until_cancelled(opening).await {
        Some(Ok(Ok(()))) => {}
        Some(Ok(Err(error))) if error.kind() == io::ErrorKind::PermissionDenied => {
            let _ = timeout(WRITE_STALL, refuse_plain(stream, &error)).await;
            return;
        }
        _ => return,
    }
    let (seat, clock) = (&seat, &clock);
    let peer = &Peer(Arc::clone(seat));
    let router = TowerToHyperService::new(router.layer(Extension(peer.clone())));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        // A body may come slowly. Until it is there the connection counts as idle.
        let has_body = !request.body().is_end_stream();
        let answer = router.call(request);
        async move {
            if !has_body {
                peer.begin().await;
            }
            let answer = answer.await;
            seat.rest(clock.monotonic());
            answer
        }
    });
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(WRITE_STALL));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = pin!(connection);
    let mut served = seat.end().run_until_cancelled(connection.as_mut()).await;
    if served.is_none() && !seat.is_ending() {
        connection.as_mut().graceful_shutdown();
        served = timeout(DRAIN, connection).await.ok();
    }
    if let Some(Err(error)) = served {
        log::debug!("the admin connection of {} broke: {error}", seat.peer());
    }
}

/// Answers a client that speaks plain text where TLS is required.
async fn refuse_plain(mut stream: Stream, why: &io::Error) -> io::Result<()> {
    let body = serde_json::json!({ "error": format!("{why}: use https") }).to_string();
    let head = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    // Closing while the client still sends would take the answer from it.
    let _ = stream.read(&mut vec![0; MAX_BUFFER]).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::super::request::Change;
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::base::tls::Port;
    use axum::routing::{get, post};
    use tokio::sync::Notify;

    /// A seat and the two ends of a connection.
    async fn connected(clock: &Arc<dyn Clock>) -> (Seats, Arc<Seat>, TcpStream, TcpStream) {
        let mut seats = Seats::new(1, Arc::clone(clock), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let seat = seats.seat(address);
        (seats, seat, client, stream)
    }

    #[tokio::test]
    async fn a_change_under_way_does_not_make_room_for_others() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (mut seats, seat, mut client, stream) = connected(&clock).await;
        let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, ends) = (Arc::clone(&begun), Arc::clone(&end));
        let change = async move |Change(_): Change<serde_json::Value>| {
            begins.notify_one();
            ends.notified().await;
        };
        let router = Router::new().route("/", post(change));
        tokio::spawn(serve_connection((stream, Guard::off(Port::Admin)), seat, router, clock));
        let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n";
        client.write_all(format!("{head}{{}}").as_bytes()).await.unwrap();
        begun.notified().await;
        assert_eq!(seats.end_longest_idle(), None);
        end.notify_one();
        let mut answer = [0; 15];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (_seats, seat, mut client, stream) = connected(&clock).await;
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let router = Router::new().route("/", get(async || vec![0_u8; 64 << 20]));
        let began = Instant::now();
        let stream = (stream, Guard::off(Port::Admin));
        serve_connection(stream, seat, router, clock).await;
        assert_eq!(began.elapsed().as_secs(), WRITE_STALL.as_secs());
    }
}
