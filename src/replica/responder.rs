//! Work of a replica for other nodes: their requests and the answers.

use super::hints::{HintError, HintStore};
use super::verbs::{RangeQuery, Replica, ReplicaError, RowQuery, VersionedRow};
use crate::base::context::RequestContext;
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::register::Ask;
use crate::model::schema::Schema;
use crate::model::version::RowVersion;
use crate::net::bodies::{
    self, BodyError, EncodeError, RangeCommand, RangeReply, ReadCommand, ReadReply, RegisterCall,
    WriteResponse,
};
use crate::net::extensions::{FULL_DIGEST, TAKES_REFUSAL, is_register_call};
use crate::net::message::{self, Message, MessageId};
use crate::net::messenger::{BodyTooLarge, Messenger};
use crate::net::{Drops, Verb};
use crate::ring::Partitioner;
use futures_util::FutureExt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Requests of other nodes that wait for the disk at a time. Further ones are dropped: their
/// senders have deadlines and other replicas, and waiting requests take memory.
const MAX_WAITING: usize = 4096;

/// Copies of a reply in memory besides the data read, on its way into the queue.
const REPLY_COPIES: usize = 2;

/// Memory of a reply, in multiples of its message. The data may take twice as much, since short
/// columns take more in memory; the reply is checked before it is encoded.
const MEMORY_FACTOR: usize = 2 + REPLY_COPIES;

/// Parts and settings of a [`Responder`].
#[derive(Debug)]
pub struct ResponderOptions {
    /// Does the work.
    pub replica: Arc<Replica>,
    /// The column families.
    pub schema: Arc<Schema>,
    /// From row keys to tokens.
    pub partitioner: Partitioner,
    /// The way of the answers.
    pub messenger: Arc<Messenger>,
    /// Keeps hints for other nodes; `None` if this node keeps none.
    pub hints: Option<Arc<HintStore>>,
    /// The address of this node.
    pub local: IpAddr,
    /// Counts dropped requests.
    pub drops: Arc<Drops>,
    /// Requests that this node must not answer yet.
    pub readiness: Arc<OwnReadiness>,
}

/// Answers the requests of other nodes.
///
/// Requests that memory can answer are answered on the thread that received them; the others become
/// tasks that end when the sender's timeout has passed.
#[derive(Debug)]
pub struct Responder {
    options: ResponderOptions,
    waiting: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Ends reads.
    stopping: CancellationToken,
}

/// Why a request of another node has no answer.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("{0}")]
    Encode(#[from] EncodeError),
    /// The write itself was done.
    #[error("it is written here, but not acknowledged: {0}")]
    Hint(#[from] HintError),
    #[error("{0}")]
    Replica(#[from] ReplicaError),
    /// Others may not have heard it, and those of 0.6 do not know of such a thing.
    #[error("this node collects the data of its place, and answers no reads before it has them")]
    Incomplete,
    /// A write itself was done. The same holds.
    #[error("it does not count, even if it is written here: the place of this node is not settled")]
    Unplaced,
    #[error("the answer is too large: {0}: ask for fewer columns or rows at a time")]
    TooLarge(#[from] BodyTooLarge),
}

impl Refusal {
    /// Whether the sender asked for more than it can get.
    fn is_too_large(&self) -> bool {
        match self {
            Self::TooLarge(_) => true,
            Self::Replica(error) => error.is_too_large(),
            Self::Body(_) | Self::Encode(_) | Self::Hint(_) => false,
            Self::Incomplete | Self::Unplaced => false,
        }
    }
}

impl Responder {
    /// A responder.
    pub fn new(options: ResponderOptions) -> Arc<Self> {
        let waiting = Arc::new(Semaphore::new(MAX_WAITING));
        let (tasks, stopping) = (TaskTracker::new(), CancellationToken::new());
        Arc::new(Self { options, waiting, tasks, stopping })
    }

    fn is_complete(&self) -> bool {
        self.options.readiness.get() == Readiness::Complete
    }

    /// Takes a request. Must be called within a tokio runtime. False if the verb is none that a
    /// replica answers.
    pub fn receive(self: &Arc<Self>, message: &Message<'_>) -> bool {
        let asked = Asked {
            from: message.from,
            id: message.id.clone(),
            verb: message.verb,
            takes_refusal: message.header(&TAKES_REFUSAL.name).is_some(),
        };
        let begun = match message.verb {
            Verb::Mutation | Verb::Binary | Verb::ReadRepair => self.begin_write(message),
            Verb::Read | Verb::RangeSlice if !self.is_complete() => Err(Refusal::Incomplete),
            Verb::Read => self.begin_read(message),
            Verb::RangeSlice => self.begin_scan(message),
            _ if is_register_call(message) => self.begin_vote(message),
            _ => return false,
        };
        match begun {
            Ok(work) => self.run(asked, work),
            Err(refusal) => {
                if matches!(refusal, Refusal::Body(BodyError::Row(DecodeError::NoMemory(_)))) {
                    self.options.drops.count(message.verb);
                }
                self.warn(message.from, message.verb, &refusal);
            }
        }
        true
    }

    /// Ends reads, and waits for writes that are under way.
    pub async fn drain(&self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn run(self: &Arc<Self>, asked: Asked, work: Work) {
        let (responder, verb) = (Arc::clone(self), asked.verb);
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let done = work.await;
            responder.answer(asked, done);
        });
        // Work without waiting is done now, without a task.
        if work.as_mut().now_or_never().is_some() {
            return;
        }
        let Ok(slot) = Arc::clone(&self.waiting).try_acquire_owned() else {
            self.options.drops.count(verb);
            return;
        };
        let (drops, timeout) = (Arc::clone(&self.options.drops), self.options.messenger.timeout());
        let reads = matches!(verb, Verb::Read | Verb::RangeSlice);
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            let work = tokio::time::timeout(timeout, work);
            let done =
                if reads { stopping.run_until_cancelled(work).await } else { Some(work.await) };
            if let Some(Err(_)) = done {
                drops.count(verb);
            }
            drop(slot);
        });
    }

    fn answer(&self, asked: Asked, done: Result<Option<Reply>, Refusal>) {
        let Asked { from, id, verb, takes_refusal } = asked;
        let messenger = &self.options.messenger;
        let answered = match done {
            Ok(Some(Reply { body, _context })) => messenger.reply(from, id, &body),
            Ok(None) => Ok(()),
            Err(refusal) if takes_refusal && refusal.is_too_large() => {
                messenger.refuse(from, id, &refusal.to_string())
            }
            Err(refusal) => {
                self.warn(from, verb, &refusal);
                Ok(())
            }
        };
        if let Err(error) = answered {
            messenger.warn(from, format_args!("{from} gets no answer: {error}"));
        }
    }

    fn begin_write(&self, message: &Message<'_>) -> Result<Work, Refusal> {
        let decode = match message.verb {
            Verb::Binary => bodies::decode_binary,
            _ => bodies::decode_mutation,
        };
        // Held until the write is done.
        let context = self.request(usize::MAX);
        let mutation = decode(message.body, &self.options.schema, &context)?;
        let hints = message.header(message::HINT);
        let kept = hints.map_or(Ok(Ok(())), |targets| self.keep_hints(&mutation, targets))?;
        let (replica, readiness) =
            (Arc::clone(&self.options.replica), Arc::clone(&self.options.readiness));
        let is_answered = message.verb != Verb::ReadRepair;
        Ok(Box::pin(async move {
            // A node of 0.6 sends batches that do nothing, and waits for their acknowledgements.
            if !mutation.families.is_empty() {
                replica.apply(std::slice::from_ref(&mutation)).await.wait().await?;
            }
            // The sender relies on the hint once this node has answered.
            kept?;
            if !is_answered {
                return Ok(None);
            }
            if readiness.get() < Readiness::Placed {
                return Err(Refusal::Unplaced);
            }
            let body = WriteResponse::encode(&mutation.keyspace(), &mutation.key)?;
            Ok(Some(Reply { body, _context: context }))
        }))
    }

    /// The sender could not reach these targets, and asks this node to remind them. The inner
    /// result says whether there is a hint for each of them now.
    fn keep_hints(
        &self,
        mutation: &RowMutation,
        targets: &[u8],
    ) -> Result<Result<(), HintError>, BodyError> {
        let targets = bodies::decode_hint(targets, self.options.local)?;
        let Some(hints) = &self.options.hints else { return Ok(Ok(())) };
        let others = targets.into_iter().filter(|target| *target != self.options.local);
        let kept = others.map(|target| hints.store(target, mutation).map(drop));
        Ok(kept.fold(Ok(()), Result::and))
    }

    fn begin_vote(&self, message: &Message<'_>) -> Result<Work, Refusal> {
        // Others would count it for a participant that it may not be.
        if self.options.readiness.get() < Readiness::Placed {
            return Err(Refusal::Unplaced);
        }
        let call = RegisterCall::decode(message.body)?;
        let context = self.request(usize::MAX);
        context.take(MEMORY_FACTOR * message.body.len()).map_err(ReplicaError::from)?;
        let (replica, messenger) =
            (Arc::clone(&self.options.replica), Arc::clone(&self.options.messenger));
        Ok(Box::pin(async move {
            let is_answered = !matches!(call.ask, Ask::Settle(_));
            let vote = replica.vote(call.name, call.ask).await.wait().await?;
            if !is_answered {
                return Ok(None);
            }
            let body = bodies::encode_vote(&vote);
            messenger.check_body(body.len())?;
            Ok(Some(Reply { body, _context: context }))
        }))
    }

    fn begin_read(&self, message: &Message<'_>) -> Result<Work, Refusal> {
        let command = ReadCommand::decode(message.body, &self.options.schema)?;
        let wants_full_digest = message.header(&FULL_DIGEST.name).is_some();
        let is_of_ours = wants_full_digest || message.header(&TAKES_REFUSAL.name).is_some();
        let from = message.from;
        let family = Arc::clone(self.options.schema.family(command.family));
        let replica = Arc::clone(&self.options.replica);
        let messenger = Arc::clone(&self.options.messenger);
        // However much it covers, a digest itself is short.
        let limit = if command.digest_only { usize::MAX } else { self.reply_memory() };
        let mut context = self.request(limit);
        Ok(Box::pin(async move {
            let ReadCommand { family: id, key, slice, digest_only } = command;
            let row = RowQuery { family: id, key: &key, slice: &slice };
            let read = if is_of_ours {
                replica.read_version(row, &mut context).await
            } else {
                replica.read_legacy_version(row, &mut context).await
            };
            let version = read.wait(&mut context).await?;
            if !digest_only {
                let bytes = least_bytes(&version);
                messenger.check_body(bytes)?;
                context.take(REPLY_COPIES * bytes).map_err(ReplicaError::from)?;
            }
            if !is_of_ours && !version.is_original() {
                return Err(EncodeError::LaterCells(from).into());
            }
            let reply = match (digest_only, wants_full_digest) {
                (false, _) => ReadReply::Data { key, version },
                (true, false) => ReadReply::Digest(version.digest(&family)),
                (true, true) => ReadReply::Digest(version.full_digest(&family)),
            };
            let body = reply.encode(&family)?;
            messenger.check_body(body.len())?;
            Ok(Some(Reply { body, _context: context }))
        }))
    }

    fn begin_scan(&self, message: &Message<'_>) -> Result<Work, Refusal> {
        let ResponderOptions { schema, partitioner, replica, messenger, .. } = &self.options;
        let command = RangeCommand::decode(message.body, schema, *partitioner)?;
        let family = Arc::clone(schema.family(command.family));
        let (replica, messenger) = (Arc::clone(replica), Arc::clone(messenger));
        let is_of_ours = message.header(&TAKES_REFUSAL.name).is_some();
        let is_original = |(key, row): &VersionedRow| key.is_text() && row.is_original();
        let from = message.from;
        let mut context = self.request(self.reply_memory());
        Ok(Box::pin(async move {
            let RangeCommand { family: id, slice, range, max_rows } = command;
            let rows = RangeQuery { family: id, range: &range, slice: &slice, max_rows };
            let scan = replica.scan_versions(rows, &mut context).await;
            let rows = scan.wait(&mut context).await?;
            if !is_of_ours && !rows.iter().all(is_original) {
                return Err(EncodeError::LaterCells(from).into());
            }
            let bytes = rows.iter().map(|(_, version)| least_bytes(version)).sum();
            messenger.check_body(bytes)?;
            context.take(REPLY_COPIES * bytes).map_err(ReplicaError::from)?;
            let body = RangeReply { rows }.encode(&family)?;
            messenger.check_body(body.len())?;
            Ok(Some(Reply { body, _context: context }))
        }))
    }

    fn request(&self, bytes: usize) -> RequestContext {
        self.options.replica.request(bytes, self.options.messenger.timeout())
    }

    /// Memory limit of a reply with data, in bytes.
    fn reply_memory(&self) -> usize {
        self.options.messenger.max_body_bytes().saturating_mul(MEMORY_FACTOR)
    }

    /// A request without an answer times out at its sender, which does not learn the reason.
    fn warn(&self, from: IpAddr, verb: Verb, refusal: &Refusal) {
        let line = format_args!("a {verb} of {from} was not done: {refusal}");
        self.options.messenger.warn(from, line);
    }
}

/// A request, reduced to the parts that its answer needs.
#[derive(Debug)]
struct Asked {
    from: IpAddr,
    id: MessageId,
    verb: Verb,
    /// Whether a refusal is understood there.
    takes_refusal: bool,
}

/// Least size of the cells of a version in a message.
fn least_bytes(version: &RowVersion) -> usize {
    version.cells.iter().map(|cell| cell.name().len() + cell.value().len()).sum()
}

/// A reply to a request, with the context that it was made by: its memory is given back when the
/// transport has the message.
#[derive(Debug)]
struct Reply {
    body: Vec<u8>,
    _context: RequestContext,
}

/// Work that may have to wait, and its reply, if there is one.
type Work = Pin<Box<dyn Future<Output = Result<Option<Reply>, Refusal>> + Send>>;

/// Stages of a starting node: first others have to agree on its place, then it collects its data.
/// Writes are applied all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// Others may know another node at its place. It acknowledges no writes: a coordinator that
    /// takes it for a replica by a ring of long ago must not count it for one.
    Unsure,
    /// It has taken a first place, and no other node has confirmed yet that its address never owned
    /// data. It serves its own clients only.
    Alone,
    /// All nodes agree on its place, but it lacks data: it answers no reads.
    Placed,
    /// It has all data of its place, or needs no place at all.
    Complete,
}

/// The readiness of this node, which only grows.
#[derive(Debug)]
pub struct OwnReadiness(AtomicU8);

impl OwnReadiness {
    /// The readiness at the start.
    pub fn new(readiness: Readiness) -> Self {
        Self(AtomicU8::new(readiness as u8))
    }

    /// The readiness now.
    pub fn get(&self) -> Readiness {
        match self.0.load(Ordering::Relaxed) {
            0 => Readiness::Unsure,
            1 => Readiness::Alone,
            2 => Readiness::Placed,
            _ => Readiness::Complete,
        }
    }

    /// Raises the readiness to at least this.
    pub fn raise(&self, to: Readiness) {
        self.0.fetch_max(to as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_grows() {
        let own = OwnReadiness::new(Readiness::Unsure);
        assert_eq!(own.get(), Readiness::Unsure);
        own.raise(Readiness::Placed);
        assert_eq!(own.get(), Readiness::Placed);
        own.raise(Readiness::Complete);
        own.raise(Readiness::Placed);
        assert_eq!(own.get(), Readiness::Complete);
    }
}
