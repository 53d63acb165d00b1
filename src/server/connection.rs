//! One client: reads requests, has them answered, writes the replies.

use super::beside::{Beside, Reply, Speaker};
use super::buffers::Input;
use super::limits::{Limits, Reason, Reporter};
use super::worker::Local;
use super::{Decoded, Protocol, Refusal, RefusalKind, Room, Traffic, Whole};
use crate::base::budget::{Budget, Charge};
use crate::base::clock::Clock;
use crate::base::intake::Intake;
use crate::base::latest::Latest;
use crate::base::seats::Seat;
use crate::base::tls::{Guard, Stream};
use futures_util::FutureExt;
use std::future::poll_fn;
use std::io;
use std::mem::{swap, take};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::AbortOnDropHandle;

/// Bytes of a request that are decoded on the thread of its connection, which others need too:
/// a few milliseconds of work at most. Longer ones go to threads of their own.
const LARGE_BYTES: usize = 128 << 10;

/// Bytes of replies that are written by one call to the system.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Bytes by which the forms of requests are told apart.
const FORM_BYTES: usize = 8;

/// Period of the check whether the client of a request under way is still connected.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest time for a rejected client to read its last words.
const FAREWELL: Duration = Duration::from_secs(2);

/// Most bytes of such a client that are read and dropped, so that its last words are not lost.
const MAX_DROPPED_BYTES: u64 = 1 << 20;

/// State that all connections of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: Arc<Latest<Limits>>,
    pub(super) room: Room,
    /// The part of the memory for unfinished requests.
    pub(super) received: Arc<Intake>,
    /// The part of it for replies that wait for their clients.
    pub(super) unsent: Arc<Budget>,
    pub(super) reporter: Reporter,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) traffic: Arc<Traffic>,
    /// The threads for long requests.
    pub(super) large: Handle,
    /// Set before `stop` is cancelled: cheaper to ask than the token.
    pub(super) stopping: AtomicBool,
    /// Wakes connections at rest.
    pub(super) stop: CancellationToken,
}

/// Why a connection ends, for the log.
#[derive(Debug)]
pub struct Close {
    /// `None` if an operator does not have to know.
    reason: Option<Reason>,
    why: String,
    /// For the client.
    last_words: Vec<u8>,
}

impl Close {
    fn new(reason: impl Into<Option<Reason>>, why: impl Into<String>) -> Self {
        Self { reason: reason.into(), why: why.into(), last_words: Vec::new() }
    }

    /// The bytes can never become a request.
    pub fn malformed(why: impl Into<String>) -> Self {
        Self::new(Reason::Malformed, why)
    }

    /// A request announced more bytes than one may have.
    pub fn too_long(length: u64, room: &Room) -> Self {
        let Room { settings, longest, .. } = room;
        let allowed = longest >> 20;
        let why =
            format!("it announced {length} bytes, and {settings}MaxMessageInMB allows {allowed}");
        Self::new(Reason::TooLong, why)
    }

    /// The client speaks another protocol, and reads the last words in it.
    pub fn foreign(why: &str, last_words: Vec<u8>) -> Self {
        Self::new(Reason::Foreign, why).with_last_words(last_words)
    }

    /// The client does not read what it has asked for.
    pub fn unread(what: &str) -> Self {
        Self::new(Reason::Stalled, format!("it does not read {what}"))
    }

    /// Gives the client these bytes to read before the end.
    #[must_use]
    pub fn with_last_words(self, last_words: Vec<u8>) -> Self {
        Self { last_words, ..self }
    }
}

/// Clients of the time close by resetting.
impl From<io::Error> for Close {
    fn from(error: io::Error) -> Self {
        // Of TLS.
        let is_wrong = error.kind() == io::ErrorKind::InvalidData;
        Self::new(is_wrong.then_some(Reason::Foreign), error.to_string())
    }
}

/// The event that woke a connection at rest.
enum Woken {
    Readable,
    Replied(Reply),
    /// Bytes that the client gets without a request.
    Pushed(Vec<u8>),
    /// The connection has to end.
    End,
}

/// One client.
pub(super) struct Connection<P: Protocol> {
    local: Local,
    speaker: Arc<Speaker<P>>,
    stream: Stream,
    seat: Arc<Seat>,
    framing: P::Framing,
    beside: Beside,
}

impl<P: Protocol> Connection<P> {
    pub(super) fn new(protocol: Arc<P>, local: Local, stream: TcpStream, seat: Arc<Seat>) -> Self {
        let (framing, session) = protocol.connect(seat.peer());
        let (speaker, beside) = (Arc::new(Speaker { protocol, session }), Beside::default());
        let stream = Stream::new(stream);
        Self { local, speaker, stream, seat, framing, beside }
    }

    /// Serves the client until it leaves, misbehaves, or the server stops.
    pub(super) async fn run(mut self, guard: Guard) {
        let (shared, seat) = (Arc::clone(&self.local.shared), Arc::clone(&self.seat));
        let _open = shared.traffic.begin();
        let mut end = pin!(seat.end().cancelled());
        let mut end_seen = false;
        // Until the first byte is there.
        let mut guard = Some(guard);
        let mut input = Input::new(Arc::clone(&shared.received));
        loop {
            let is_full = self.is_full();
            let is_unfinished =
                !is_full && (!input.bytes.is_empty() || self.stream.is_unfinished());
            let served = match self.wait(is_unfinished, end.as_mut(), &mut end_seen).await {
                Ok(Woken::Readable) => match self.begin(&mut guard, &mut input).await {
                    Ok(None) => self.consume(0, &mut input).await,
                    Ok(Some(0)) => return,
                    Ok(_) if input.bytes.len() > LARGE_BYTES => {
                        let room = Arc::clone(&shared);
                        let serving = async move {
                            let served = self.serve(&mut input, &room.room).await;
                            (self, input, served)
                        };
                        let handle = AbortOnDropHandle::new(shared.large.spawn(serving));
                        // It has panicked outside of the protocol, or the server stops.
                        let Ok(done) = handle.await else { return };
                        let served;
                        (self, input, served) = done;
                        served
                    }
                    Ok(_) => self.serve(&mut input, &shared.room).await,
                    Err(close) => Err(close),
                },
                Ok(Woken::Replied(reply)) => match self.write(reply).await {
                    // Requests may wait in the buffer until others are done.
                    Ok(()) if is_full => self.serve(&mut input, &shared.room).await,
                    written => written,
                },
                Ok(Woken::Pushed(mut bytes)) => self.flush(&mut bytes).await,
                Ok(Woken::End) => return self.finish().await,
                Err(close) => Err(close),
            };
            if let Err(close) = served {
                // Its memory is there for others when the client sees the end.
                drop(input);
                return self.close(close).await;
            }
        }
    }

    /// Reads the bytes that have come, the first time if they are TLS or plain text as they may be.
    /// `None` if there are none after all.
    async fn begin(
        &mut self,
        guard: &mut Option<Guard>,
        input: &mut Input,
    ) -> Result<Option<usize>, Close> {
        if let Some(at_port) = guard {
            match poll_fn(|context| self.stream.poll_open(at_port, context)).now_or_never() {
                None => return Ok(None),
                Some(Ok(false)) => return Err(self.refuse_plain(&at_port.refusal(), input).await),
                Some(opened) => opened?,
            };
            *guard = None;
        }
        self.receive(input).await
    }

    /// Refuses a client that speaks plain text, in the words of its protocol: as soon as enough of
    /// its request has come to tell which one that is.
    async fn refuse_plain(&mut self, why: &str, input: &mut Input) -> Close {
        let mut last_words = Vec::new();
        let refusing = async {
            while let Ok(received) = self.receive(input).await {
                let (protocol, framing) = (&self.speaker.protocol, &mut self.framing);
                // The first bytes of a request tell its form, and are no whole one.
                let begin = input.bytes.get(..FORM_BYTES).unwrap_or(&input.bytes);
                protocol.decode(framing, begin, &self.local.shared.room)?;
                let refusal = Refusal { why, kind: RefusalKind::Plain };
                let told = protocol.refuse(framing, &input.bytes, &refusal, &mut last_words);
                if told.is_some() || received == Some(0) {
                    break;
                }
                poll_fn(|context| self.stream.poll_read_ready(context)).await?;
            }
            Ok(())
        };
        match timeout(FAREWELL, refusing).await {
            Ok(Err(close)) => close,
            _ => Close::foreign(why, last_words),
        }
    }

    /// Waits for something to read, for a reply that is ready, or for the end. The rest of a
    /// request must not be long in coming.
    async fn wait(
        &mut self,
        is_unfinished: bool,
        end: Pin<&mut WaitForCancellationFuture<'_>>,
        end_seen: &mut bool,
    ) -> Result<Woken, Close> {
        let stall = self.local.shared.limits.read_stall;
        let woken = self.woken(end, end_seen);
        if !is_unfinished {
            return woken.await;
        }
        timeout(stall, woken).await.map_err(|_| {
            let why = format!("it has sent nothing of the rest of its request for {stall:?}");
            Close::new(Reason::Unfinished, why)
        })?
    }

    /// Waits without a buffer.
    async fn woken(
        &mut self,
        mut end: Pin<&mut WaitForCancellationFuture<'_>>,
        end_seen: &mut bool,
    ) -> Result<Woken, Close> {
        poll_fn(|context| {
            let shared = &self.local.shared;
            if shared.stopping.load(Ordering::Acquire) || self.seat.is_ending() {
                return Poll::Ready(Ok(Woken::End));
            }
            if let Poll::Ready(reply) = self.beside.poll_next(context) {
                return Poll::Ready(Ok(Woken::Replied(reply)));
            }
            if !self.is_full()
                && let Poll::Ready(ready) = self.stream.poll_read_ready(context)
            {
                let woken = if self.seat.resume() { Woken::Readable } else { Woken::End };
                return Poll::Ready(ready.map(|()| woken).map_err(Close::from));
            }
            let Speaker { protocol, session } = &*self.speaker;
            if let Poll::Ready(pushed) = protocol.poll_push(session, context) {
                return Poll::Ready(pushed.map(Woken::Pushed));
            }
            // The token takes a lock, so it is asked once, to have this task woken; the flags then
            // tell whether it was.
            if !*end_seen {
                *end_seen = true;
                if end.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(Woken::End));
                }
            }
            if self.beside.under_way == 0 {
                self.seat.rest(shared.clock.monotonic());
            }
            Poll::Pending
        })
        .await
    }

    /// Whether as many requests are under way as may be.
    fn is_full(&self) -> bool {
        self.beside.under_way >= self.local.shared.limits.max_requests
    }

    /// Reads the bytes that have come, and returns their number; `None` if there are none, as when
    /// only a part of what is encrypted has come. A request for which there is no memory is
    /// refused, and passed over.
    async fn receive(&mut self, input: &mut Input) -> Result<Option<usize>, Close> {
        let longest = self.local.shared.room.longest;
        if !input.make_room(&self.local.pool, longest).await {
            self.refuse_unfinished(input).await?;
            if !input.make_room(&self.local.pool, longest).await {
                return Err(self.over_budget());
            }
        }
        let received = self.stream.read_buf(&mut input.bytes).now_or_never().transpose()?;
        self.local.shared.traffic.received(received.unwrap_or_default());
        Ok(received)
    }

    /// Refuses a request for whose rest there is no memory, and forgets its bytes.
    async fn refuse_unfinished(&mut self, input: &mut Input) -> Result<(), Close> {
        let mut ready = self.local.pool.take();
        let (needed, limit) = {
            let Shared { room, received, .. } = &*self.local.shared;
            (input.grown(room.longest), received.limit())
        };
        self.refuse(&input.bytes, (needed, limit), &mut ready)?;
        self.flush(&mut ready).await?;
        self.local.pool.give(ready);
        let room = &self.local.shared.room;
        let Decoded::PassOver(passed) =
            self.speaker.protocol.decode(&mut self.framing, &input.bytes, room)?
        else {
            return Err(self.over_budget());
        };
        self.consume(passed, input).await
    }

    /// Answers all whole requests, or begins to, and sends the replies.
    async fn serve(&mut self, input: &mut Input, room: &Room) -> Result<(), Close> {
        let mut ready = self.local.pool.take();
        let executed = self.execute(input, room, &mut ready).await;
        // Answers before a malformed request are sent as well.
        let flushed = self.flush(&mut ready).await;
        self.local.pool.give(ready);
        let count = executed?;
        flushed?;
        self.consume(count, input).await
    }

    async fn consume(&mut self, count: usize, input: &mut Input) -> Result<(), Close> {
        let is_held = input.consume(count, &self.local.pool).await;
        if is_held { Ok(()) } else { Err(self.over_budget()) }
    }

    /// Sends replies of requests that were answered beside others.
    async fn write(&mut self, first: Reply) -> Result<(), Close> {
        // Written bytes count as unsent again if the client does not read them.
        let mut ready = first.bytes;
        while ready.len() < self.local.shared.limits.write_batch_bytes
            && let Some(next) = self.beside.try_next()
        {
            ready.extend_from_slice(&next.bytes);
            self.local.pool.give(next.bytes);
        }
        self.flush(&mut ready).await?;
        self.local.pool.give(ready);
        Ok(())
    }

    /// Executes whole requests in order, and returns how many bytes they took.
    async fn execute(
        &mut self,
        input: &Input,
        room: &Room,
        ready: &mut Vec<u8>,
    ) -> Result<usize, Close> {
        let (mut done, mut deadline) = (0, None);
        while let Some(rest) = input.bytes.get(done..).filter(|rest| !rest.is_empty())
            && !self.is_full()
        {
            // The other clients of the thread get their turn, however many requests came at once.
            tokio::task::coop::consume_budget().await;
            if ready.len() >= self.local.shared.limits.write_batch_bytes {
                self.flush(ready).await?;
            }
            let length = match self.speaker.protocol.decode(&mut self.framing, rest, room)? {
                Decoded::Incomplete => break,
                Decoded::NoMemory(needed) => {
                    // The buffer stays while the request is decoded, but for requests before it.
                    let own = if done == 0 { input.held() } else { rest.len() };
                    let needed = (needed, needed.saturating_add(own));
                    if !wait_for_memory(&self.local.shared, needed, &mut deadline).await {
                        self.refuse(rest, (needed.1, room.memory.limit()), ready)?;
                    }
                    continue;
                }
                Decoded::PassOver(count) => count,
                Decoded::InPlace(whole) => self.call(whole, ready).await?,
                Decoded::Beside(whole) => {
                    let length = whole.length;
                    self.beside.begin(&self.local, &self.speaker, whole, ready);
                    length
                }
            };
            (done, deadline) = (done + length, None);
        }
        Ok(done)
    }

    /// Refuses a request for which memory is short: for good if it needs more than the limit.
    fn refuse(
        &mut self,
        bytes: &[u8],
        (needed, limit): (usize, usize),
        ready: &mut Vec<u8>,
    ) -> Result<(), Close> {
        let Shared { room, reporter, traffic, .. } = &*self.local.shared;
        traffic.refused_request();
        let (settings, megabytes) = (room.settings, room.memory.limit() >> 20);
        let is_passing = needed <= limit;
        let why = if is_passing {
            format!(
                "the request takes more memory than is free: requests and answers have \
                 {megabytes} MB of MemoryBudgetInMB, unfinished requests what \
                 {settings}ReceiveBudgetInMB allows. Send fewer rows, columns or keys at a time, \
                 or try again later"
            )
        } else {
            let setting = if limit < room.memory.limit() / 4 * 3 {
                format!("{settings}ReceiveBudgetInMB")
            } else {
                "MemoryBudgetInMB".to_owned()
            };
            let (needed, allowed) = (needed.div_ceil(1 << 20), limit >> 20);
            format!(
                "the request takes at least {needed} MB of memory, and {setting} leaves {allowed} \
                 MB for it: raise that, or send fewer rows, columns or keys at a time"
            )
        };
        let mut reply = self.local.pool.take();
        let kind = if is_passing { RefusalKind::Passing } else { RefusalKind::TooLarge };
        let refusal = Refusal { why: &why, kind };
        let refused = self.speaker.protocol.refuse(&mut self.framing, bytes, &refusal, &mut reply);
        let Some(what) = refused else { return Err(self.over_budget()) };
        ready.extend_from_slice(&reply);
        self.local.pool.give(reply);
        let line = format_args!("refusing {what} of {}: {why}", self.seat.peer());
        reporter.warn(Reason::Refused, line);
        Ok(())
    }

    /// Has a request answered in its place, and returns how long it is.
    ///
    /// If that takes time, the replies that are ready go out meanwhile, so that a client that
    /// pipelines waits for no later request. A request that changes something is always led to its
    /// end; one that only reads is given up when its client leaves or the server stops.
    async fn call(
        &mut self,
        whole: Whole<P::Request<'_>>,
        ready: &mut Vec<u8>,
    ) -> Result<usize, Close> {
        let Self { local: Local { shared, pool, .. }, speaker, stream, .. } = self;
        let mut reply = if ready.is_empty() { take(ready) } else { pool.take() };
        let mut flushed = Ok(());
        {
            let mut answer =
                pin!(speaker.protocol.answer(&speaker.session, &whole.request, &mut reply));
            if answer.as_mut().now_or_never().is_none() {
                // Seldom, and large.
                let served = Box::pin(async {
                    if ready.is_empty() {
                        return answer.await;
                    }
                    ((), flushed) = tokio::join!(answer, flush(stream, shared, ready));
                });
                if whole.only_reads {
                    tokio::select! {
                        biased;
                        () = served => {}
                        () = Box::pin(abandoned(stream, shared)) => {
                            let why = "nobody waits for its request any more";
                            return Err(Close::new(None, why));
                        }
                    }
                } else {
                    served.await;
                }
            }
        }
        if ready.is_empty() {
            swap(ready, &mut reply);
        } else {
            ready.extend_from_slice(&reply);
        }
        pool.give(reply);
        flushed.map(|()| whole.length)
    }

    async fn flush(&mut self, ready: &mut Vec<u8>) -> Result<(), Close> {
        flush(&self.stream, &self.local.shared, ready).await
    }

    /// Lets requests under way end, reads for a shorter time than writes, and sends the replies.
    async fn finish(mut self) {
        let mut reads_end = pin!(sleep(self.local.shared.limits.drain_reads));
        let mut has_given_up = false;
        while self.beside.under_way > 0 {
            tokio::select! {
                biased;
                reply = poll_fn(|context| self.beside.poll_next(context)) => {
                    if let Err(close) = self.write(reply).await {
                        return self.close(close).await;
                    }
                }
                () = &mut reads_end, if !has_given_up => {
                    has_given_up = true;
                    self.beside.give_up_reads();
                }
            }
        }
    }

    /// Tells why the connection ends: the operator, and a client that speaks another protocol.
    async fn close(mut self, close: Close) {
        let (peer, Close { reason, why, last_words }) = (self.seat.peer(), close);
        match reason {
            Some(reason) => {
                let line = format_args!("closing {peer}: {why}");
                self.local.shared.reporter.warn(reason, line);
            }
            None => log::debug!("closing {peer}: {why}"),
        }
        if last_words.is_empty() {
            return;
        }
        // Closing while the client still sends would take the last words from it.
        let farewell = async {
            self.stream.write_all(&last_words).await?;
            self.stream.shutdown().await?;
            let mut rest = (&mut self.stream).take(MAX_DROPPED_BYTES);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
        };
        // A client that is gone, or does not end, misses nothing.
        let _ = timeout(FAREWELL, farewell).await;
    }

    fn over_budget(&self) -> Close {
        let Shared { room, received, .. } = &*self.local.shared;
        let (settings, megabytes) = (room.settings, received.limit() >> 20);
        let why = format!(
            "unfinished requests hold all that {settings}ReceiveBudgetInMB and MemoryBudgetInMB \
             allow ({megabytes} MB)"
        );
        Close::new(Reason::ReceiveBudget, why)
    }
}

/// Waits until a request that only reads is abandoned: its client has closed the connection, or the
/// server has been stopping for some time.
async fn abandoned(stream: &Stream, shared: &Shared) {
    loop {
        sleep(LOOK_EVERY).await;
        if shared.stopping.load(Ordering::Acquire) {
            return sleep(shared.limits.drain_reads).await;
        }
        let state = stream.socket().ready(Interest::READABLE).now_or_never();
        if matches!(state, Some(Ok(state)) if state.is_read_closed()) {
            return;
        }
    }
}

/// Waits while others hold the memory that a request takes. False if they hold it beyond the
/// deadline, or if the request itself does: its bytes stay while it is decoded.
async fn wait_for_memory(
    shared: &Shared,
    (needed, with_own): (usize, usize),
    deadline: &mut Option<Instant>,
) -> bool {
    let memory = &shared.room.memory;
    if with_own > memory.limit() {
        return false;
    }
    let until = *deadline.get_or_insert_with(|| Instant::now() + shared.limits.memory_wait);
    let left = until.saturating_duration_since(Instant::now());
    let is_there = memory.wait_for(needed, left).await;
    if is_there {
        // Decoding takes it.
        memory.give_back(needed);
    }
    is_there
}

/// Writes the replies. While the client does not read they count as unsent; if others hold the
/// whole budget already, the client is disconnected, so that it never holds up others.
async fn flush(stream: &Stream, shared: &Shared, ready: &mut Vec<u8>) -> Result<(), Close> {
    let mut unsent = None;
    let mut rest = ready.as_slice();
    loop {
        let written = match rest.get(..WRITTEN_AT_ONCE).unwrap_or(rest) {
            [] => stream.try_flush().map(|()| None),
            bytes => {
                // The other clients of the thread get their turn, however fast this one reads.
                tokio::task::coop::consume_budget().await;
                stream.try_write(bytes).map(Some)
            }
        };
        match written {
            Ok(None) => break,
            Ok(Some(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Ok(Some(count)) => {
                shared.traffic.sent(count);
                rest = rest.get(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if unsent.is_none() {
                    if shared.unsent.is_used_up() {
                        let megabytes = shared.unsent.limit() >> 20;
                        let why = format!(
                            "it does not read its reply at once, and replies that clients have \
                             not read hold all memory that there is for them ({megabytes} MB)"
                        );
                        return Err(Close::new(Reason::UnsentBudget, why));
                    }
                    // The buffer stays whole until its last byte is written.
                    let mut charge = Charge::new(Arc::clone(&shared.unsent));
                    charge.set(ready.capacity());
                    unsent = Some(charge);
                }
                let stall = shared.limits.write_stall;
                timeout(stall, stream.socket().writable()).await.map_err(|_| {
                    let why = format!("it has read nothing of its reply for {stall:?}");
                    Close::new(Reason::Stalled, why)
                })??;
            }
            Err(error) => return Err(error.into()),
        }
    }
    ready.clear();
    Ok(())
}
