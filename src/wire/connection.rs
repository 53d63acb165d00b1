//! One client: reads requests, has them executed one after the other, writes the replies.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::ApiVersion;
use super::buffers::{Input, OverBudget, Pool};
use super::codec::{DecodeError, Malformed};
use super::limits::{Budget, Charge, Limits};
use super::message::{Form, Header};
use super::reply::{Call, Head};
use super::report::{Reason, Reporter};
use super::scan::{Scanner, Step};
use super::schema::wire_type;
use super::service::{Cassandra, dispatch, method_named};

/// What the connections of a server have in common.
#[derive(Debug)]
pub(super) struct Shared<S> {
    pub(super) service: Arc<S>,
    pub(super) version: ApiVersion,
    pub(super) prefer_framed: bool,
    pub(super) limits: Limits,
    /// Memory for unfinished requests.
    pub(super) received: Arc<Budget>,
    /// Replies that wait for their clients.
    pub(super) unsent: Arc<Budget>,
    pub(super) reporter: Reporter,
    /// Set before `stop` is cancelled: cheaper to ask than the token.
    pub(super) stopping: AtomicBool,
    /// Wakes connections at rest.
    pub(super) stop: CancellationToken,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum Close {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error("the client reads nothing")]
    Stalled,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection<S: Cassandra> {
    shared: Arc<Shared<S>>,
    pool: Arc<Pool>,
    stream: TcpStream,
    peer: SocketAddr,
    session: S::Session,
    form: Option<Form>,
    /// How far the arguments of an unfinished unframed request have been passed over.
    scanner: Option<Box<Scanner>>,
}

impl<S: Cassandra> Connection<S> {
    pub(super) fn new(
        shared: Arc<Shared<S>>,
        pool: Arc<Pool>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Self {
        let session = S::Session::default();
        Self { shared, pool, stream, peer, session, form: None, scanner: None }
    }

    /// Serves the client until it leaves, misbehaves, or the server stops.
    pub(super) async fn run(mut self) {
        if let Err(close) = self.serve().await {
            self.report(&close);
        }
    }

    async fn serve(&mut self) -> Result<(), Close> {
        let shared = self.shared.clone();
        let pool = self.pool.clone();
        let mut stop = pin!(shared.stop.cancelled());
        let mut stop_seen = false;
        let mut input = Input::new(Charge::new(shared.received.clone()));
        loop {
            if !self.readable(stop.as_mut(), &mut stop_seen).await? {
                return Ok(());
            }
            if self.stream.read_buf(input.room(&pool)?).await? == 0 {
                return Ok(());
            }
            let mut out = pool.take();
            let executed = self.execute(input.bytes(), &mut out).await;
            // Also what was answered before a malformed message is sent.
            let flushed = self.flush(&mut out).await;
            pool.give(out);
            let count = executed?;
            flushed?;
            input.consume(count, &pool)?;
        }
    }

    /// Waits without a buffer until there is something to read; false if the server stops.
    async fn readable(
        &mut self,
        mut stop: Pin<&mut WaitForCancellationFuture<'_>>,
        stop_seen: &mut bool,
    ) -> io::Result<bool> {
        std::future::poll_fn(|context| {
            if self.shared.stopping.load(Ordering::Acquire) {
                return Poll::Ready(Ok(false));
            }
            if let Poll::Ready(ready) = self.stream.poll_read_ready(context) {
                return Poll::Ready(ready.map(|()| true));
            }
            // The token takes a lock that all connections share, so it is asked once, to have this
            // task woken; the flag then tells whether it was.
            if !*stop_seen {
                *stop_seen = true;
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(false));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Executes all whole requests in order, and says how many bytes they took.
    async fn execute(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Close> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            if self.form.is_none() {
                self.form = match Form::recognise(rest, self.shared.prefer_framed) {
                    Ok(form) => form,
                    Err(error) => return Self::unfinished(&error).map(|()| done),
                };
            }
            let executed = match self.form {
                None => return Ok(done),
                Some(Form::Unframed) => self.message(rest, out).await,
                Some(Form::Framed) => match self.frame(rest)? {
                    None => return Ok(done),
                    Some(frame) => self.messages_of(frame, out).await.map(|()| 4 + frame.len()),
                },
            };
            match executed {
                Ok(length) => done += length,
                Err(error) => return Self::unfinished(&error).map(|()| done),
            }
            if out.len() >= self.shared.limits.write_batch_bytes {
                self.flush(out).await?;
            }
        }
        Ok(done)
    }

    fn unfinished(error: &DecodeError) -> Result<(), Close> {
        match error {
            DecodeError::Incomplete => Ok(()),
            DecodeError::Malformed(malformed) => Err((*malformed).into()),
            DecodeError::Missing(_) => unreachable!("a missing field is answered"),
        }
    }

    /// The next frame without its length, if it has arrived.
    fn frame<'a>(&self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let declared = i32::from_be_bytes(*length);
        let length = usize::try_from(declared).map_err(|_| Malformed::NegativeLength(declared))?;
        self.check_length(length as u64)?;
        Ok(rest.get(..length))
    }

    /// Executes the requests of one frame; usually there is one.
    async fn messages_of(
        &mut self,
        mut frame: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        while !frame.is_empty() {
            let length = match self.message(frame, out).await {
                Err(DecodeError::Incomplete) => return Err(Malformed::ShortFrame.into()),
                other => other?,
            };
            frame = frame.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    /// Executes the request at the start of these bytes, and says how long it is.
    async fn message(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, DecodeError> {
        let header = Header::decode(bytes)?;
        let args = bytes.get(header.length..).unwrap_or_default();
        if self.scanner.is_some() {
            self.end_of(args)?;
        }
        self.shared.unsent.available().await;
        let version = self.shared.version;
        let framed = self.form == Some(Form::Framed);
        let head = Head { name: header.name, seqid: header.seqid, framed, version };
        let Some(method) = method_named(header.name, version) else {
            let length = self.end_of(args)?;
            head.unknown_method(out);
            return Ok(header.length + length);
        };
        let start = out.len();
        let call = Call { method, head, args, out: &mut *out };
        match dispatch(&*self.shared.service, &mut self.session, call).await {
            Ok(answered) => {
                if !answered.sound {
                    log::error!("{} panicked; its caller gets an internal error", method.name);
                    out.truncate(start);
                    head.internal_error(out);
                }
                Ok(header.length + answered.length)
            }
            Err(DecodeError::Missing(why)) => {
                let length = self.end_of(args)?;
                head.protocol_error(&why, out);
                Ok(header.length + length)
            }
            Err(DecodeError::Incomplete) => {
                // Decoding starts over when the scanner has seen the end, and not before.
                self.end_of(args)?;
                Err(DecodeError::Incomplete)
            }
            Err(malformed) => Err(malformed),
        }
    }

    /// Length of the arguments. While they are incomplete the scanner remembers how far it came.
    fn end_of(&mut self, args: &[u8]) -> Result<usize, DecodeError> {
        let mut scanner = match self.scanner.take() {
            Some(scanner) => scanner,
            None => Box::new(Scanner::value(wire_type::STRUCT)?),
        };
        let step = scanner.advance(args)?;
        self.check_length(scanner.least_length())?;
        match step {
            Step::Done(length) => Ok(length),
            Step::More => {
                self.scanner = Some(scanner);
                Err(DecodeError::Incomplete)
            }
        }
    }

    fn check_length(&self, length: u64) -> Result<(), Malformed> {
        let limit = self.shared.limits.max_message_bytes as u64;
        if length > limit { Err(Malformed::TooLong(length)) } else { Ok(()) }
    }

    /// Writes the replies. While the client does not read they count as unsent.
    async fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), Close> {
        let mut unsent = None;
        let mut rest = out.as_slice();
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    unsent
                        .get_or_insert_with(|| Charge::new(self.shared.unsent.clone()))
                        .set(rest.len());
                    let stall = self.shared.limits.write_stall;
                    tokio::time::timeout(stall, self.stream.writable())
                        .await
                        .map_err(|_| Close::Stalled)??;
                }
                Err(error) => return Err(error.into()),
            }
        }
        out.clear();
        Ok(())
    }

    fn report(&self, close: &Close) {
        let (peer, reporter) = (self.peer, &self.shared.reporter);
        match close {
            Close::Malformed(Malformed::TooLong(length)) => reporter.warn(
                Reason::TooLong,
                format_args!(
                    "closing {peer}: it announced {length} bytes, and ThriftMaxMessageInMB allows {}",
                    self.shared.limits.max_message_bytes >> 20,
                ),
            ),
            Close::Malformed(malformed) => reporter
                .warn(Reason::Malformed, format_args!("closing {peer}: no message: {malformed}")),
            Close::OverBudget(_) => reporter.warn(
                Reason::ReceiveBudget,
                format_args!(
                    "closing {peer}: unfinished requests hold all that ThriftReceiveBudgetInMB \
                     allows ({})",
                    self.shared.limits.receive_budget_bytes >> 20,
                ),
            ),
            Close::Stalled => reporter.warn(
                Reason::Stalled,
                format_args!(
                    "closing {peer}: it has read nothing of its reply for {:?}",
                    self.shared.limits.write_stall
                ),
            ),
            // Clients of the time close by resetting.
            Close::Io(error) => log::debug!("closing {peer}: {error}"),
        }
    }
}
