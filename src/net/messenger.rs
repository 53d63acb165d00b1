//! Requests to other nodes: each gets a number, and its replies find the way back by it.
//!
//! Each reply is passed on as it arrives, on the thread that received it; at the end the replicas
//! that have not answered in time are reported. So no task has to live on for a request without a
//! waiter, for example for the hint of a write that timed out.

use super::bodies::EncodeError;
use super::extensions::REFUSED;
use super::message::{Header, MAX_BODY_BYTES, Message, MessageId};
use super::transport::Transport;
use super::verb::{Channel, Verb};
use super::{LOG_BURST, LOG_INTERVAL};
use crate::base::clock::Clock;
use crate::base::java::TooLong;
use crate::base::latest::Latest;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, MutexGuard, RwLock, rank};
use crate::model::mutation::RowMutation;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Receiver of the replies to a request.
pub trait Replies: Send + Sync + fmt::Debug {
    /// One has come. `tag` is that of the request, `took` the time since it was sent. Called on a
    /// thread that receives for all, which must not be kept.
    fn on_reply(&self, tag: u32, from: IpAddr, body: &[u8], took: Duration);

    /// The time is over, and these have not answered.
    fn on_timeout(&self, tag: u32, missing: &[IpAddr]);

    /// A node has refused, with a reason. By default that counts as a timeout.
    fn on_refusal(&self, tag: u32, from: IpAddr, _why: &str) {
        self.on_timeout(tag, &[from]);
    }
}

/// A request to one or more nodes.
#[derive(Debug)]
pub struct Request<'a> {
    /// The verb of the message.
    pub verb: Verb,
    /// Headers of the message.
    pub headers: Vec<Header<'a>>,
    /// Its body.
    pub body: &'a [u8],
    /// Distinguishes the requests of one receiver.
    pub tag: u32,
}

/// The body is longer than any message may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are more than the {limit} that a message between nodes can hold")]
pub struct BodyTooLarge {
    /// Length of the body.
    pub bytes: usize,
    /// Greatest length of one.
    pub limit: usize,
}

/// Longest part of a refusal that is passed on, in bytes.
const MOST_REFUSAL_BYTES: usize = 500;

/// Locks among which requests are spread, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Sends requests, and routes replies to their receivers.
#[derive(Debug)]
pub struct Messenger {
    local: IpAddr,
    timeout: Latest<Duration>,
    max_body_bytes: usize,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
    reporter: LimitedLog<IpAddr>,
    next_id: AtomicU64,
    shards: [Mutex<rank::State, Shard>; SHARDS],
    /// Nodes that know cells which 0.6 does not have.
    cells: RwLock<rank::State, BTreeSet<IpAddr>>,
}

/// Requests that are under way.
#[derive(Debug, Default)]
struct Shard {
    by_id: HashMap<u64, Waiting>,
    /// In the order in which they were sent, which is that of their deadlines.
    deadlines: VecDeque<(Duration, u64)>,
    /// Replies that arrived in time.
    answers: u64,
}

#[derive(Debug)]
struct Waiting {
    tag: u32,
    sent: Duration,
    missing: SmallVec<[IpAddr; 4]>,
    replies: Arc<dyn Replies>,
}

impl Messenger {
    /// A messenger of the node at this address. Requests expire after the timeout
    /// (`RpcTimeoutInMillis`).
    pub fn new(
        local: IpAddr,
        timeout: Duration,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let (next_id, shards) = (AtomicU64::new(1), Default::default());
        let reporter = LimitedLog::new("alexandra::net", Arc::clone(&clock), LOG_INTERVAL);
        let reporter = reporter.with_burst(LOG_BURST);
        let max_body_bytes = MAX_BODY_BYTES;
        let (timeout, cells) = (Latest::new(timeout), RwLock::default());
        Self { local, timeout, max_body_bytes, clock, transport, reporter, next_id, shards, cells }
    }

    /// Limits bodies to this many bytes instead of [`MAX_BODY_BYTES`].
    #[must_use]
    pub fn with_max_body(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes.min(MAX_BODY_BYTES);
        self
    }

    /// Numbers its requests from a value that no earlier start of this node has reached: a late
    /// answer to one of those would otherwise count for another request.
    #[must_use]
    pub fn starting_at(mut self, generation: i32) -> Self {
        let first = (u64::from(generation.unsigned_abs()) << 32) + 1;
        self.next_id = AtomicU64::new(first);
        self
    }

    /// The node that it sends for.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The time by which its deadlines are, a monotonic one.
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Microseconds since the Unix epoch, by the clock of this node.
    pub fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    /// Sends a request to these nodes, one after the other under the same number.
    pub fn request(
        &self,
        request: Request<'_>,
        to: &[IpAddr],
        replies: &Arc<dyn Replies>,
    ) -> Result<(), TooLong> {
        let now = self.clock.monotonic();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let Request { verb, headers, body, tag } = request;
        let message = Message { headers, ..Message::new(id.into(), self.local, verb, body) };
        let message: Arc<[u8]> = message.encode()?.into();
        let (deadline, missing) = (now + *self.timeout, SmallVec::from_slice(to));
        let waiting = Waiting { tag, sent: now, missing, replies: Arc::clone(replies) };
        let mut shard = self.shard(id);
        shard.by_id.insert(id, waiting);
        shard.deadlines.push_back((deadline, id));
        drop(shard);
        for to in to {
            self.transport.send(*to, verb.channel(), Arc::clone(&message), deadline);
        }
        Ok(())
    }

    /// Sends a message that has no reply.
    pub fn send(&self, verb: Verb, body: &[u8], to: IpAddr) -> Result<(), TooLong> {
        self.send_with(verb, Vec::new(), body, to)
    }

    /// Sends a message that has no reply, with these headers.
    pub fn send_with(
        &self,
        verb: Verb,
        headers: Vec<Header<'_>>,
        body: &[u8],
        to: IpAddr,
    ) -> Result<(), TooLong> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = Message { headers, ..Message::new(id.into(), self.local, verb, body) };
        self.pass_on(verb.channel(), &message, to)
    }

    /// Answers a request.
    pub fn reply(&self, to: IpAddr, id: MessageId, body: &[u8]) -> Result<(), TooLong> {
        self.pass_on(Channel::Ack, &self.response(id, body), to)
    }

    /// Answers a request with much data, on a connection of its own.
    pub fn reply_in_bulk(&self, to: IpAddr, id: MessageId, body: &[u8]) -> Result<(), TooLong> {
        self.pass_on(Channel::Bulk, &self.response(id, body), to)
    }

    /// Refuses a request, whose sender understands that, with a reason.
    pub fn refuse(&self, to: IpAddr, id: MessageId, why: &str) -> Result<(), TooLong> {
        let headers = vec![Header { name: REFUSED.into(), value: why.as_bytes() }];
        self.pass_on(Channel::Ack, &Message { headers, ..self.response(id, b"") }, to)
    }

    fn response<'a>(&self, id: MessageId, body: &'a [u8]) -> Message<'a> {
        Message::new(id, self.local, Verb::ReadResponse, body)
    }

    fn pass_on(&self, channel: Channel, message: &Message<'_>, to: IpAddr) -> Result<(), TooLong> {
        let deadline = self.clock.monotonic() + *self.timeout;
        self.transport.send(to, channel, message.encode()?.into(), deadline);
        Ok(())
    }

    /// Takes a reply. Late replies are dropped.
    pub fn on_response(&self, message: &Message<'_>) {
        let Some(id) = message.id.as_u64() else { return };
        let mut guard = self.shard(id);
        let shard = &mut *guard;
        let Some(waiting) = shard.by_id.get_mut(&id) else { return };
        let Some(place) = waiting.missing.iter().position(|it| *it == message.from) else { return };
        waiting.missing.swap_remove(place);
        shard.answers += 1;
        let (tag, sent, replies) = (waiting.tag, waiting.sent, Arc::clone(&waiting.replies));
        if waiting.missing.is_empty() {
            shard.by_id.remove(&id);
        }
        drop(guard);
        if let Some(why) = message.header(REFUSED) {
            let why = why.get(..MOST_REFUSAL_BYTES).unwrap_or(why);
            replies.on_refusal(tag, message.from, &String::from_utf8_lossy(why));
            return;
        }
        let took = self.clock.monotonic().saturating_sub(sent);
        replies.on_reply(tag, message.from, message.body, took);
    }

    /// Expires requests that have waited too long. To be called often.
    pub fn expire(&self) {
        self.expire_until(self.clock.monotonic());
    }

    fn expire_until(&self, now: Duration) {
        for shard in &self.shards {
            let mut expired = Vec::new();
            let mut guard = shard.lock();
            while let Some((_, id)) = guard.deadlines.pop_front_if(|(at, _)| *at <= now) {
                expired.extend(guard.by_id.remove(&id));
            }
            drop(guard);
            for Waiting { tag, missing, replies, .. } in expired {
                replies.on_timeout(tag, &missing);
            }
        }
    }

    /// Expires all requests, when no replies can come any more: their receivers keep hints, as
    /// after a timeout.
    pub fn give_up_all(&self) {
        self.expire_until(Duration::MAX);
    }

    /// Longest body that may be sent, in bytes. Callers must check bodies that may be longer: the
    /// transport drops messages that no frame can hold.
    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    /// Fails if a body of this length must not be sent.
    pub fn check_body(&self, bytes: usize) -> Result<(), BodyTooLarge> {
        let limit = self.max_body_bytes;
        if bytes > limit { Err(BodyTooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Says which nodes announce [`super::extensions::CELLS`].
    pub fn set_cells(&self, nodes: BTreeSet<IpAddr>) {
        *self.cells.write() = nodes;
    }

    /// Fails if a mutation must not be sent to a node, which cannot read all of it.
    pub fn check_cells(&self, mutation: &RowMutation, to: IpAddr) -> Result<(), EncodeError> {
        if mutation.is_original() || self.cells.read().contains(&to) {
            return Ok(());
        }
        Err(EncodeError::LaterCells(to))
    }

    /// Number of requests under way.
    pub fn pending(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().by_id.len()).sum()
    }

    /// Number of replies in time, since the start.
    pub fn answers(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().answers).sum()
    }

    /// Time after which requests expire.
    pub fn timeout(&self) -> Duration {
        *self.timeout
    }

    /// Gives later requests another time.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// Logs a line for which a node gives reason, which may be this one. Of a node that goes on
    /// giving reason for lines only a few are written.
    pub fn log(&self, level: log::Level, about: IpAddr, line: fmt::Arguments<'_>) {
        self.reporter.log(level, about, line);
    }

    /// Logs such a warning.
    pub fn warn(&self, about: IpAddr, line: fmt::Arguments<'_>) {
        self.reporter.warn(about, line);
    }

    /// The transport of the messages.
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, Shard> {
        self.shards[(id % SHARDS as u64) as usize].lock()
    }
}
