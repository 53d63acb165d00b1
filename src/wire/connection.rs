//! One client: reads requests, has them executed one after the other, writes the replies.

use std::future::poll_fn;
use std::io;
use std::mem::{swap, take};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::AbortOnDropHandle;

use super::buffers::{Input, OverBudget, Pool};
use super::codec::{DecodeError, Malformed, Reader};
use super::foreign::{self, Foreign, Guess};
use super::limits::Limits;
use super::message::{Form, Header};
use super::reply::{Answered, Call, Failure, Head, Method, Reply};
use super::report::{Reason, Reporter};
use super::scan::{Scanner, Step};
use super::schema::wire_type;
use super::service::{Cassandra, dispatch, method_named};
use super::{ApiVersion, Clients};
use crate::base::budget::{Budget, Charge};
use crate::base::clock::Clock;
use crate::base::intake::Intake;
use crate::base::seats::Seat;

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

/// Bytes of a request that are decoded on the thread of its connection, which others need too:
/// a few milliseconds of work at most. Longer ones go to threads of their own.
const LARGE_BYTES: usize = 128 << 10;

/// Bytes of replies that are written by one call to the system.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// How often it is looked whether the client of a call under way is still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What all connections of a server have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    /// Memory for requests and replies.
    pub(super) memory: Arc<Budget>,
    /// The part of it for unfinished requests.
    pub(super) received: Arc<Intake>,
    /// The part of it for replies that wait for their clients.
    pub(super) unsent: Arc<Budget>,
    pub(super) reporter: Reporter,
    pub(super) clock: Arc<dyn Clock>,
    /// The threads for long requests.
    pub(super) large: Handle,
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
    #[error("{0}")]
    Foreign(Foreign),
    #[error("the client reads nothing")]
    Stalled,
    #[error("the client does not complete its request")]
    Unfinished,
    #[error("unread replies hold all memory that there is for them")]
    TooMuchUnsent,
    #[error("nobody waits for its call any more")]
    Abandoned,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A request that was refused before it had arrived whole. The rest is passed over.
#[derive(Debug)]
enum Refused {
    /// So many bytes of its frame are still to come.
    Frame(usize),
    /// Its arguments, as far as they have come.
    Arguments(Box<Scanner>),
}

impl Refused {
    /// How many of these bytes belong to it, and whether it ends with them.
    fn pass_over(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        match self {
            Self::Frame(left) => {
                let passed = bytes.len().min(*left);
                *left -= passed;
                Ok((passed, *left == 0))
            }
            Self::Arguments(scanner) => scanner.pass_over(bytes),
        }
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection<S: Cassandra> {
    shared: Arc<Shared>,
    border: Arc<Border<S>>,
    pool: Arc<Pool>,
    stream: TcpStream,
    seat: Arc<Seat>,
    session: S::Session,
    form: Option<Form>,
    /// How far the arguments of an unfinished unframed request have been passed over.
    scanner: Option<Box<Scanner>>,
    /// A request that was refused, and has not ended yet.
    refused: Option<Refused>,
    /// Whether the operator was told of calls that are later than the generation of the port.
    has_told_of_later: bool,
}

impl<S: Cassandra> Connection<S> {
    pub(super) fn new(
        (shared, border): (Arc<Shared>, Arc<Border<S>>),
        pool: Arc<Pool>,
        stream: TcpStream,
        seat: Arc<Seat>,
    ) -> Self {
        let session = S::Session::from(seat.peer());
        Self {
            shared,
            border,
            pool,
            stream,
            seat,
            session,
            form: None,
            scanner: None,
            refused: None,
            has_told_of_later: false,
        }
    }

    /// Serves the client until it leaves, misbehaves, or the server stops.
    pub(super) async fn run(mut self) {
        let (shared, seat) = (self.shared.clone(), self.seat.clone());
        let mut end = pin!(seat.end().cancelled());
        let mut end_seen = false;
        let mut input = Input::new(shared.received.clone());
        loop {
            let is_unfinished = !input.bytes().is_empty();
            let received = match self.wait(is_unfinished, end.as_mut(), &mut end_seen).await {
                Ok(true) => self.receive(&mut input).await,
                Ok(false) => return,
                Err(close) => Err(close),
            };
            let served = match received {
                Ok(0) => return,
                Ok(_) if input.bytes().len() > LARGE_BYTES => {
                    let serving = async move {
                        let served = self.serve(&mut input).await;
                        (self, input, served)
                    };
                    let Ok(done) = AbortOnDropHandle::new(shared.large.spawn(serving)).await else {
                        // It has panicked outside of the service, or the server stops.
                        return;
                    };
                    let served;
                    (self, input, served) = done;
                    served
                }
                Ok(_) => self.serve(&mut input).await,
                Err(close) => Err(close),
            };
            if let Err(close) = served {
                // Its memory is there for others when the client sees the end.
                drop(input);
                return self.close(close).await;
            }
        }
    }

    /// Tells why the connection ends: the operator, and a client that speaks another protocol.
    async fn close(mut self, close: Close) {
        self.report(&close);
        if let Close::Foreign(foreign) = close {
            foreign::turn_away(&mut self.stream, foreign).await;
        }
    }

    /// Waits until there is something to read; false if the connection has to end. The rest of a
    /// request must not be long in coming.
    async fn wait(
        &mut self,
        is_unfinished: bool,
        end: Pin<&mut WaitForCancellationFuture<'_>>,
        end_seen: &mut bool,
    ) -> Result<bool, Close> {
        let stall = self.shared.limits.read_stall;
        let readable = self.readable(end, end_seen);
        if !is_unfinished {
            return Ok(readable.await?);
        }
        Ok(tokio::time::timeout(stall, readable).await.map_err(|_| Close::Unfinished)??)
    }

    /// Reads what has come, and says how many bytes that are. A request for which there is no
    /// memory is refused, and passed over.
    async fn receive(&mut self, input: &mut Input) -> Result<usize, Close> {
        let longest = self.shared.limits.max_message_bytes;
        if let Err(over_budget) = input.make_room(&self.pool, longest).await {
            let passed = self.refuse_unfinished(input.bytes(), over_budget).await?;
            input.consume(passed, &self.pool).await?;
            input.make_room(&self.pool, longest).await?;
        }
        let count = self.stream.read_buf(input.buffer()).await?;
        if let Some(refused) = &mut self.refused {
            let (passed, is_over) = refused.pass_over(input.bytes())?;
            if is_over {
                self.refused = None;
            }
            input.consume(passed, &self.pool).await?;
        }
        Ok(count)
    }

    /// Executes all whole requests, and sends their replies.
    async fn serve(&mut self, input: &mut Input) -> Result<(), Close> {
        if self.refused.is_some() {
            return Ok(());
        }
        let mut ready = self.pool.take();
        let executed = self.execute(input.bytes(), &mut ready).await;
        // Also what was answered before a malformed message is sent.
        let flushed = flush(&self.stream, &self.shared, &mut ready).await;
        self.pool.give(ready);
        let count = executed?;
        flushed?;
        Ok(input.consume(count, &self.pool).await?)
    }

    /// Answers a request for whose rest there is no memory, and begins to pass over it. Returns how
    /// many bytes of it are done with.
    async fn refuse_unfinished(
        &mut self,
        bytes: &[u8],
        over_budget: OverBudget,
    ) -> Result<usize, Close> {
        let is_framed = self.form == Some(Form::Framed);
        let start = if is_framed { size_of::<i32>() } else { 0 };
        let message = bytes.get(start..).unwrap_or_default();
        // Without a head there is nothing to answer to.
        let header = Header::decode(message).map_err(|_| over_budget)?;
        let (refused, args_at) = if is_framed {
            let length = Reader::new(bytes).length()?;
            (Refused::Frame(start + length), 0)
        } else {
            let scanner = match self.scanner.take() {
                Some(scanner) => scanner,
                None => Box::new(Scanner::value(wire_type::STRUCT)?),
            };
            (Refused::Arguments(scanner), header.length)
        };
        let refused = self.refused.insert(refused);
        let (passed, _) = refused.pass_over(bytes.get(args_at..).unwrap_or_default())?;
        let mut ready = self.pool.take();
        let (method, head) = self.head(&header);
        match method {
            Some(method) => self.refuse(method, head, &mut ready),
            None => head.unknown_method(&mut ready),
        }
        let flushed = flush(&self.stream, &self.shared, &mut ready).await;
        self.pool.give(ready);
        flushed.map(|()| args_at + passed)
    }

    /// Answers a call for which there is no memory.
    fn refuse(&self, method: &'static Method, head: Head<'_>, ready: &mut Vec<u8>) {
        let Shared { memory, reporter, .. } = &*self.shared;
        let megabytes = memory.limit() >> 20;
        let why = format!(
            "the request takes more memory than is free: requests and answers have {megabytes} MB \
             of MemoryBudgetInMB, unfinished requests what ThriftReceiveBudgetInMB allows. Send \
             fewer rows, columns or keys at a time, or try again later"
        );
        reporter.warn(
            Reason::Refused,
            format_args!("refusing {} of {}: {why}", method.name, self.seat.peer()),
        );
        let call = Call { method, head, args: &[], out: ready, memory, reporter };
        let _ = Reply::<()>::new(call).fail(Failure::InvalidRequest(why));
    }

    /// The method that is called, and what its answer repeats.
    fn head<'a>(&mut self, header: &Header<'a>) -> (Option<&'static Method>, Head<'a>) {
        let framed = self.form == Some(Form::Framed);
        let own = self.border.clients.version;
        let head = Head { name: header.name, seqid: header.seqid, framed, version: own };
        let Some(method) = method_named(header.name) else { return (None, head) };
        // Who makes a call that came later is of that generation.
        let (since, _) = method.versions;
        let version = own.max(since);
        if version > own && !self.has_told_of_later {
            self.has_told_of_later = true;
            self.report_later_call(method);
        }
        (Some(method), Head { version, ..head })
    }

    /// Waits without a buffer until there is something to read; false if the connection has to end.
    async fn readable(
        &mut self,
        mut end: Pin<&mut WaitForCancellationFuture<'_>>,
        end_seen: &mut bool,
    ) -> io::Result<bool> {
        poll_fn(|context| {
            if self.shared.stopping.load(Ordering::Acquire) || self.seat.is_ending() {
                return Poll::Ready(Ok(false));
            }
            if let Poll::Ready(ready) = self.stream.poll_read_ready(context) {
                return Poll::Ready(ready.map(|()| self.seat.resume()));
            }
            // The token takes a lock, so it is asked once, to have this task woken; the flags then
            // tell whether it was.
            if !*end_seen {
                *end_seen = true;
                if end.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(false));
                }
            }
            self.seat.rest(self.shared.clock.monotonic());
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
            match Guess::of(bytes) {
                Guess::Thrift => {}
                Guess::Undecided => return Err(DecodeError::Incomplete.into()),
                Guess::Foreign(foreign) => return Err(Close::Foreign(foreign)),
            }
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
        let frame = reader.take(length);
        if frame.is_err() {
            // What cannot become a message is not waited for.
            Header::decode(bytes.get(size_of::<i32>()..).unwrap_or_default())?;
        }
        frame
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
        let (method, head) = self.head(&header);
        let Some(method) = method else {
            let length = self.end_of(args)?;
            head.unknown_method(ready);
            return Ok(header.length + length);
        };
        match self.call_when_free(method, head, args, ready).await {
            Ok(length) => Ok(header.length + length),
            Err(Close::Undecodable(DecodeError::OverBudget(_))) => {
                let length = self.end_of(args)?;
                self.refuse(method, head, ready);
                Ok(header.length + length)
            }
            Err(Close::Undecodable(DecodeError::Missing(why))) => {
                let length = self.end_of(args)?;
                if head.version < ApiVersion::V06 {
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

    /// [`Connection::call`], which waits while others hold the memory that the arguments take.
    async fn call_when_free(
        &mut self,
        method: &'static Method,
        head: Head<'_>,
        args: &[u8],
        ready: &mut Vec<u8>,
    ) -> Result<usize, Close> {
        let called = self.call(method, head, args, ready).await;
        let Err(Close::Undecodable(DecodeError::OverBudget(mut bytes))) = called else {
            return called;
        };
        let deadline = Instant::now() + self.shared.limits.memory_wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.shared.memory.wait_for(bytes, left).await {
                return Err(DecodeError::OverBudget(bytes).into());
            }
            // The arguments take it anew as they are decoded.
            self.shared.memory.give_back(bytes);
            match self.call(method, head, args, ready).await {
                Err(Close::Undecodable(DecodeError::OverBudget(more))) => bytes = more,
                called => return called,
            }
        }
    }

    /// Has the service answer one call, and says how long its arguments are.
    ///
    /// If it does not answer at once, the replies that are ready go out meanwhile: who pipelines
    /// waits for no later call. A call that changes something is always led to its end; one that
    /// only asks is given up when its client leaves or the server stops.
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
            let Shared { memory, reporter, .. } = &**shared;
            let call = Call { method, head, args, out: &mut reply, memory, reporter };
            let mut answer = pin!(dispatch(&*border.service, session, call));
            match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                Poll::Ready(answered) => answered,
                Poll::Pending => {
                    let served = async {
                        if ready.is_empty() {
                            return answer.await;
                        }
                        let written = flush(stream, shared, ready);
                        let (answered, written) = tokio::join!(answer, written);
                        flushed = written;
                        answered
                    };
                    if method.only_asks() {
                        tokio::select! {
                            biased;
                            answered = served => answered,
                            () = abandoned(stream, shared) => return Err(Close::Abandoned),
                        }
                    } else {
                        served.await
                    }
                }
            }
        };
        if let Ok(Answered { sound: false, .. }) = answered {
            shared.reporter.log(
                log::Level::Error,
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
                self.seat.peer(),
                method.name
            ),
        );
    }

    fn report(&self, close: &Close) {
        let (peer, reporter) = (self.seat.peer(), &self.shared.reporter);
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
                    "closing {peer}: unfinished requests hold all that ThriftReceiveBudgetInMB and \
                     MemoryBudgetInMB allow ({} MB)",
                    self.shared.received.limit() >> 20,
                ),
            ),
            Close::Unfinished => reporter.warn(
                Reason::Unfinished,
                format_args!(
                    "closing {peer}: it has sent nothing of the rest of its request for {:?}",
                    self.shared.limits.read_stall
                ),
            ),
            Close::Foreign(foreign) => {
                reporter.warn(Reason::Foreign, format_args!("closing {peer}: {foreign}"));
            }
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
                    self.shared.unsent.limit() >> 20
                ),
            ),
            Close::Abandoned => log::debug!("closing {peer}: {close}"),
            // Clients of the time close by resetting.
            Close::Io(error) => log::debug!("closing {peer}: {error}"),
        }
    }
}

/// Waits until nobody waits for a call that only asks: the client has closed the connection, or the
/// server has been stopping for some time.
async fn abandoned(stream: &TcpStream, shared: &Shared) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if shared.stopping.load(Ordering::Acquire) {
            return tokio::time::sleep(shared.limits.drain_reads).await;
        }
        let mut state = pin!(stream.ready(Interest::READABLE));
        let state = poll_fn(|context| Poll::Ready(state.as_mut().poll(context))).await;
        if matches!(state, Poll::Ready(Ok(state)) if state.is_read_closed()) {
            return;
        }
    }
}

/// Writes the replies. While the client does not read they count as unsent; if others hold the
/// whole budget already, the client is given up, so that those who do read are never held up.
async fn flush(stream: &TcpStream, shared: &Shared, ready: &mut Vec<u8>) -> Result<(), Close> {
    let mut unsent = None;
    let mut rest = ready.as_slice();
    while !rest.is_empty() {
        // The other clients of the thread get their turn, however fast this one reads.
        tokio::task::coop::consume_budget().await;
        match stream.try_write(rest.get(..WRITTEN_AT_ONCE).unwrap_or(rest)) {
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
