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
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// A client that has not sent the whole head of a request after this time is cut off, and so is
/// one that sends none for so long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// A client that reads nothing for so long while an answer waits for it is cut off.
const WRITE_STALL: Duration = Duration::from_secs(30);

/// How long answers under way may go on after the server has been told to stop.
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
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Impatient::new(stream, WRITE_STALL)), service);
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

/// A stream that fails when nobody reads what is written to it for too long.
#[derive(Debug)]
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    /// Ends when the client has been waited for long enough.
    end: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl Impatient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        let end = Box::pin(tokio::time::sleep(patience));
        Self { stream, patience, end, is_waiting: false }
    }

    /// What the stream answered to a write, or a failure when the client takes too long.
    fn bound<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.end.as_mut().reset(Instant::now() + self.patience);
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing");
                Poll::Ready(Err(error))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.bound(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.bound(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::read_change;
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::base::seats::Seats;
    use axum::extract::Request;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn a_change_under_way_does_not_make_room_for_others() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut seats = Seats::new(1, Arc::clone(&clock), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, ends) = (Arc::clone(&begun), Arc::clone(&end));
        let change = async move |request: Request| {
            read_change(request).await.unwrap();
            begins.notify_one();
            ends.notified().await;
        };
        let router = Router::new().route("/", post(change));
        tokio::spawn(serve(stream, seats.seat(address), router, clock));
        let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n";
        client.write_all(format!("{head}{{}}").as_bytes()).await.unwrap();
        begun.notified().await;
        assert_eq!(seats.end_longest_idle(), None);
        end.notify_one();
        let mut answer = [0; 15];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = Impatient::new(stream, Duration::from_millis(50));
        let error = stream.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }
}
