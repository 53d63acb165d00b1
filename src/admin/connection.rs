//! One connection of an operator: HTTP/1 with bounds on what a client may send and how long it may
//! take.

use crate::base::clock::Clock;
use crate::base::seats::Seat;
use axum::{Extension, Router};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutWriter;

/// A client that has not sent the whole head of a request after this time is cut off, and so is
/// one that sends none for so long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// A client that reads nothing for so long while an answer waits for it is cut off.
const WRITE_STALL: Duration = Duration::from_secs(30);

/// Time for answers under way after the server has been told to stop.
pub(super) const DRAIN: Duration = Duration::from_secs(5);

/// Bytes of the head of a request, and of parts of a body that are buffered.
const MAX_BUFFER: usize = 16 << 10;

/// Header lines of a request.
const MAX_HEADERS: usize = 64;

/// Where a request comes from.
#[derive(Debug, Clone)]
pub(super) struct Peer(Arc<Seat>);

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
pub(super) async fn serve(
    stream: TcpStream,
    seat: Arc<Seat>,
    router: Router,
    clock: Arc<dyn Clock>,
) {
    // Answers are written whole; a socket that the client has closed may refuse this.
    let _ = stream.set_nodelay(true);
    let (seat, clock) = (&seat, &clock);
    let peer = &Peer(Arc::clone(seat));
    let router = TowerToHyperService::new(router.layer(Extension(peer.clone())));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        // A body may come slowly. Until it is there such a request keeps nobody else out.
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
        served = tokio::time::timeout(DRAIN, connection).await.ok();
    }
    if let Some(Err(error)) = served {
        log::debug!("the admin connection of {} broke: {error}", seat.peer());
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Change;
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::base::seats::Seats;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

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
        tokio::spawn(serve(stream, seat, router, clock));
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
        let began = tokio::time::Instant::now();
        serve(stream, seat, router, clock).await;
        assert_eq!(began.elapsed().as_secs(), WRITE_STALL.as_secs());
    }
}
