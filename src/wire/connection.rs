//! One client: reads requests, has them executed one after the other, writes the replies.

use std::future::poll_fn;
use std::io;
use std::mem::{swap, take};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::buffers::{Input, OverBudget, Pool};
use super::codec::{DecodeError, Malformed, Reader};
use super::limits::Limits;
use super::message::{Form, Header};
use super::reply::{Answered, Call, Head, Method};
use super::report::{Reason, Reporter};
use super::scan::{Scanner, Step};
use super::schema::wire_type;
use super::service::{Cassandra, dispatch, method_named};
use super::{ApiVersion, Clients};
use crate::base::budget::{Budget, Charge};

impl From<Malformed> for Close {
    fn from(malformed: Malformed) -> Self {
        Self::Undecodable(malformed.into())
    }
}

/// What the connections of a port have in common.
#[derive(Debug)]
pub(super) struct Border<S> {
    pub(super) service: Arc<S>,
    pub(super) clients: Clients,
}

/// What all connections of a server have in common.
#[derive(Debug)]
pub(super) struct Shared {
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
    /// Incomplete only until more bytes have come.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// What 0.4 and 0.5 closed the connection for, and 0.6 answers with an error.
    #[error("{0}")]
    Lacking(Box<str>),
    #[error("the client reads nothing")]
    Stalled,
    #[error("unread replies hold all memory that there is for them")]
    TooMuchUnsent,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection<S: Cassandra> {
    shared: Arc<Shared>,
    border: Arc<Border<S>>,
    pool: Arc<Pool>,
    stream: TcpStream,
    peer: SocketAddr,
    session: S::Session,
    form: Option<Form>,
    /// How far the arguments of an unfinished unframed request have been passed over.
    scanner: Option<Box<Scanner>>,
    /// Whether the operator was told of calls that are later than the generation of the port.
    has_told_of_later: bool,
}

impl<S: Cassandra> Connection<S> {
    pub(super) fn new(
        (shared, border): (Arc<Shared>, Arc<Border<S>>),
        pool: Arc<Pool>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Self {
        let session = S::Session::default();
        Self {
            shared,
            border,
            pool,
            stream,
            peer,
            session,
            form: None,
            scanner: None,
            has_told_of_later: false,
        }
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
            if self.stream.read_buf(input.room(&pool, shared.limits.max_message_bytes)?).await? == 0
            {
                return Ok(());
            }
            let mut ready = pool.take();
            let executed = self.execute(input.bytes(), &mut ready).await;
            // Also what was answered before a malformed message is sent.
            let flushed = flush(&self.stream, &self.shared, &mut ready).await;
            pool.give(ready);
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
        poll_fn(|context| {
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
    async fn execute(&mut self, bytes: &[u8], ready: &mut Vec<u8>) -> Result<usize, Close> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.next(rest, ready).await {
                Ok(length) => done += length,
                Err(Close::Undecodable(DecodeError::Incomplete)) => break,
                Err(close) => return Err(close),
            }
        }
        Ok(done)
    }

    /// Executes the request or the frame at the start of these bytes, and says how long it is.
    async fn next(&mut self, bytes: &[u8], ready: &mut Vec<u8>) -> Result<usize, Close> {
        if self.form.is_none() {
            self.form = Form::recognise(bytes, self.border.clients.prefer_framed)?;
        }
        match self.form {
            None => Err(DecodeError::Incomplete.into()),
            Some(Form::Unframed) => self.message(bytes, ready).await,
            Some(Form::Framed) => {
                let frame = self.frame(bytes)?;
                let mut rest = frame;
                while !rest.is_empty() {
                    let length = match self.message(rest, ready).await {
                        Err(Close::Undecodable(DecodeError::Incomplete)) => {
                            return Err(Malformed::ShortFrame.into());
                        }
                        other => other?,
                    };
                    rest = rest.get(length..).unwrap_or_default();
                }
                Ok(size_of::<i32>() + frame.len())
            }
        }
    }

    /// The next frame without its length.
    fn frame<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let mut reader = Reader::new(bytes);
        let length = reader.length()?;
        self.check_length(length as u64)?;
        reader.take(length)
    }

    /// Executes the request at the start of these bytes, and says how long it is.
    async fn message(&mut self, bytes: &[u8], ready: &mut Vec<u8>) -> Result<usize, Close> {
        // The other clients of the thread get their turn, however many requests came at once.
        tokio::task::coop::consume_budget().await;
        if ready.len() >= self.shared.limits.write_batch_bytes {
            flush(&self.stream, &self.shared, ready).await?;
        }
        let header = Header::decode(bytes)?;
        let args = bytes.get(header.length..).unwrap_or_default();
        if self.scanner.is_some() {
            self.end_of(args)?;
        }
        let framed = self.form == Some(Form::Framed);
        let own = self.border.clients.version;
        let head = Head { name: header.name, seqid: header.seqid, framed, version: own };
        let Some(method) = method_named(header.name) else {
            let length = self.end_of(args)?;
            head.unknown_method(ready);
            return Ok(header.length + length);
        };
        // Who makes a call that came later is of that generation.
        let (since, _) = method.versions;
        let version = own.max(since);
        if version > own && !self.has_told_of_later {
            self.has_told_of_later = true;
            self.report_later_call(method);
        }
        let head = Head { version, ..head };
        match self.call(method, head, args, ready).await {
            Ok(length) => Ok(header.length + length),
            Err(Close::Undecodable(DecodeError::Missing(why))) => {
                let length = self.end_of(args)?;
                if version < ApiVersion::V06 {
                    return Err(Close::Lacking(why));
                }
                head.protocol_error(&why, ready);
                Ok(header.length + length)
            }
            Err(Close::Undecodable(DecodeError::Incomplete)) => {
                // Decoding starts over when the scanner has seen the end, and not before.
                self.end_of(args)?;
                Err(DecodeError::Incomplete.into())
            }
            Err(other) => Err(other),
        }
    }

    /// Has the service answer one call, and says how long its arguments are.
    ///
    /// If it does not answer at once, the replies that are ready go out meanwhile: who pipelines
    /// waits for no later call. A call that has begun is always led to its end.
    async fn call(
        &mut self,
        method: &'static Method,
        head: Head<'_>,
        args: &[u8],
        ready: &mut Vec<u8>,
    ) -> Result<usize, Close> {
        let Self { shared, border, session, stream, .. } = self;
        let mut reply = if ready.is_empty() { take(ready) } else { self.pool.take() };
        let mut flushed = Ok(());
        let answered = {
            let reporter = &shared.reporter;
            let call = Call { method, head, args, out: &mut reply, reporter };
            let mut answer = pin!(dispatch(&*border.service, session, call));
            match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                Poll::Ready(answered) => answered,
                Poll::Pending if ready.is_empty() => answer.await,
                Poll::Pending => {
                    let written = flush(stream, shared, ready);
                    let (answered, written) = tokio::join!(answer, written);
                    flushed = written;
                    answered
                }
            }
        };
        if let Ok(Answered { sound: false, .. }) = answered {
            shared.reporter.error(
                Reason::Panic,
                format_args!("{} panicked; its caller gets an internal error", method.name),
            );
            reply.clear();
            head.internal_error(&mut reply);
        }
        if ready.is_empty() {
            swap(ready, &mut reply);
        } else {
            ready.extend_from_slice(&reply);
        }
        self.pool.give(reply);
        flushed?;
        Ok(answered?.length)
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

    /// Tells the operator of a call that clients of this port cannot know: who makes it is of a
    /// later generation, and his other calls are taken for those of this one.
    fn report_later_call(&self, method: &Method) {
        let (own, (since, _)) = (self.border.clients.version, method.versions);
        self.shared.reporter.warn(
            Reason::LaterCall,
            format_args!(
                "{} calls {}, which came with {since}, where other calls are answered as by {own}: \
                 see ThriftApiVersion and ThriftListeners",
                self.peer, method.name
            ),
        );
    }

    fn report(&self, close: &Close) {
        let (peer, reporter) = (self.peer, &self.shared.reporter);
        match close {
            Close::Undecodable(DecodeError::Malformed(Malformed::TooLong(length))) => reporter
                .warn(
                    Reason::TooLong,
                    format_args!(
                        "closing {peer}: it announced {length} bytes, and ThriftMaxMessageInMB \
                     allows {}",
                        self.shared.limits.max_message_bytes >> 20,
                    ),
                ),
            Close::Undecodable(error) => reporter
                .warn(Reason::Malformed, format_args!("closing {peer}: no message: {error}")),
            Close::Lacking(why) => {
                // What follows is what the client has sent, which is not for the log.
                let (what, _) = why.split_once(" Struct: ").unwrap_or((why, ""));
                let own = self.border.clients.version;
                let text = format_args!("closing {peer}, as clients of {own} expect: {what}");
                reporter.warn(Reason::Malformed, text);
            }
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
            Close::TooMuchUnsent => reporter.warn(
                Reason::UnsentBudget,
                format_args!(
                    "closing {peer}: it does not read its reply at once, and replies that clients \
                     have not read hold all memory that there is for them ({} MB)",
                    self.shared.limits.unsent_budget_bytes >> 20
                ),
            ),
            // Clients of the time close by resetting.
            Close::Io(error) => log::debug!("closing {peer}: {error}"),
        }
    }
}

/// Writes the replies. While the client does not read they count as unsent; if others hold the
/// whole budget already, the client is given up, so that those who do read are never held up.
async fn flush(stream: &TcpStream, shared: &Shared, ready: &mut Vec<u8>) -> Result<(), Close> {
    let mut unsent = None;
    let mut rest = ready.as_slice();
    while !rest.is_empty() {
        match stream.try_write(rest) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if unsent.is_none() {
                    if shared.unsent.is_used_up() {
                        return Err(Close::TooMuchUnsent);
                    }
                    // The buffer stays whole until its last byte is written.
                    let mut charge = Charge::new(shared.unsent.clone());
                    charge.set(ready.capacity());
                    unsent = Some(charge);
                }
                tokio::time::timeout(shared.limits.write_stall, stream.writable())
                    .await
                    .map_err(|_| Close::Stalled)??;
            }
            Err(error) => return Err(error.into()),
        }
    }
    ready.clear();
    Ok(())
}
