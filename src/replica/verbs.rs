//! The verbs of a replica.

use std::io;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::local_store::{Applied, LocalStore, LogPosition, WriteError};
use super::workers::{Abandoned, PoolLoad, Waiters, WorkerPool};
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{RowRange, RowSamples, TokenRange};
use crate::storage::answer::{self, AnswerRoom};
use crate::storage::error::ReadError;
use crate::storage::sstable::Access;

/// A row of a scan: its key, and what the slice found in it.
pub type Row = (RowKey, RowSlice);

/// A row of a scan for another replica: its key, and what is known of the slice.
pub type VersionedRow = (RowKey, RowVersion);

/// How many threads a replica has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaOptions {
    /// `ConcurrentReads`: threads for reads that are not answered from memory.
    pub concurrent_reads: usize,
    /// `ConcurrentWrites`: threads for writes that have to wait.
    pub concurrent_writes: usize,
    /// Most bytes that the answer to one request may take.
    pub max_answer_bytes: usize,
    /// Whether everything is done on the thread that asks, with no threads besides: where nothing
    /// really blocks, as in a simulation, in which one thing has to happen after the other.
    pub runs_inline: bool,
}

/// This node's share of the data, and what it does with it on request of a coordinator.
///
/// Each verb first asks the store on the spot, since handing work to a thread costs as much as a
/// whole read from memory. What would block goes to a bounded pool.
pub struct Replica {
    store: Arc<dyn LocalStore>,
    reads: WorkerPool,
    writes: WorkerPool,
    runs_inline: bool,
    tickets: Arc<Semaphore>,
    /// Requests that wait for a ticket's permit, before they may ask a thread.
    not_admitted: Waiters,
    max_answer_bytes: usize,
}

/// Why a replica did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplicaError {
    /// The data cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The mutation was not written, or is not known to be on disk.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The work panicked, or the node is shutting down.
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    /// Another replica says that its answer would be larger than any may be.
    #[error("{0}")]
    TooLarge(String),
}

impl ReplicaError {
    /// Whether the request asked for more than any answer may hold.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Read(ReadError::TooLarge { .. }) | Self::TooLarge(_))
    }
}

/// The answer to a verb: at hand, or still to come.
#[derive(Debug)]
#[must_use = "the verb is done only when its answer is here"]
pub enum Answer<T> {
    /// At hand.
    Ready(Result<T, ReplicaError>),
    /// To come from a worker.
    Working(oneshot::Receiver<Result<T, ReplicaError>>),
}

impl<T> Answer<T> {
    /// Waits for the answer.
    pub async fn wait(self) -> Result<T, ReplicaError> {
        match self {
            Self::Ready(answer) => answer,
            Self::Working(receiver) => receiver.await.map_err(|_| Abandoned)?,
        }
    }
}

/// What a request holds until its answer has been written for the client. However many clients ask
/// for much at a time, few large answers are in memory, and none is larger than it may be.
#[derive(Debug)]
pub struct Ticket {
    /// There from the moment when the request needs more than memory at hand. There are as many as
    /// threads that read.
    permit: Option<OwnedSemaphorePermit>,
    /// For all that the request reads.
    room: Arc<AnswerRoom>,
}

impl Ticket {
    /// Takes room for a part of the answer that was not read by this ticket.
    pub fn take_room_for(&self, key: &RowKey) -> Result<(), ReplicaError> {
        Ok(self.room.take(answer::row_cost(key.as_bytes()))?)
    }

    /// Takes room for what another replica has sent of a row.
    pub fn take_room_for_version(
        &self,
        key: &RowKey,
        version: &RowVersion,
    ) -> Result<(), ReplicaError> {
        Ok(self.room.take(cost(key, &version.cells))?)
    }

    /// Takes room for a row of the answer that was put together of what other tickets have read.
    pub fn take_room_for_row(&self, key: &RowKey, row: &RowSlice) -> Result<(), ReplicaError> {
        Ok(self.room.take(cost(key, &row.cells))?)
    }

    /// Lets others read, as long as this request only waits for other nodes.
    pub fn release(&mut self) {
        self.permit = None;
    }

    /// A ticket for a part of the same answer, which holds up others only as long as it is there.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { permit: None, room: Arc::clone(&self.room) }
    }

    /// A ticket for what is read on the way to the answer, and is no part of it: the room that it
    /// has taken is given back when it and all its parts are gone.
    #[must_use]
    pub fn passing(&self) -> Self {
        Self { permit: None, room: Arc::new(AnswerRoom::passing(&self.room)) }
    }

    /// Gives back what a passing ticket has taken, since that was dropped and is read anew.
    pub fn renew(&mut self) {
        if let Some(whole) = self.room.whole() {
            self.room = Arc::new(AnswerRoom::passing(whole));
        }
    }
}

fn cost(key: &RowKey, cells: &[Cell]) -> usize {
    let encoded = cells.iter().map(Cell::encoded_length).sum();
    answer::row_cost(key.as_bytes()) + answer::cells_cost(cells.len(), encoded)
}

/// Rows that are written without leaving the thread of the connection, which others need too.
const INLINE_MUTATIONS: usize = 64;

impl Replica {
    /// A replica over a store; fails if the threads cannot be started.
    pub fn start(store: Arc<dyn LocalStore>, options: ReplicaOptions) -> io::Result<Self> {
        let ReplicaOptions { max_answer_bytes, runs_inline, .. } = options;
        let threads = |wanted: usize| if runs_inline { 0 } else { wanted.max(1) };
        let reads = WorkerPool::start("read", threads(options.concurrent_reads))?;
        let writes = WorkerPool::start("write", threads(options.concurrent_writes))?;
        let tickets = Arc::new(Semaphore::new(options.concurrent_reads));
        let not_admitted = Waiters::default();
        Ok(Self { store, reads, writes, runs_inline, tickets, not_admitted, max_answer_bytes })
    }

    /// Whether everything is done on the thread that asks.
    pub fn runs_inline(&self) -> bool {
        self.runs_inline
    }

    /// What one request reads by.
    pub fn ticket(&self) -> Ticket {
        Ticket { permit: None, room: Arc::new(AnswerRoom::new(self.max_answer_bytes)) }
    }

    /// What one request reads by whose answer may take no more than so many bytes.
    pub fn ticket_within(&self, bytes: usize) -> Ticket {
        let room = AnswerRoom::new(self.max_answer_bytes.min(bytes));
        Ticket { permit: None, room: Arc::new(room) }
    }

    /// Begins to apply mutations. The answer comes when they may be acknowledged.
    pub async fn apply(&self, mutations: &[RowMutation]) -> Answer<()> {
        let inline = if self.runs_inline {
            self.store.apply(mutations, true)
        } else if mutations.len() > INLINE_MUTATIONS {
            Err(WriteError::WouldBlock)
        } else {
            self.store.apply(mutations, false)
        };
        match inline {
            Ok(Applied::Durable) => Answer::Ready(Ok(())),
            Ok(Applied::Pending(position)) => Answer::Working(self.when_durable(position)),
            Err(WriteError::WouldBlock) => {
                let (store, mutations) = (Arc::clone(&self.store), mutations.to_vec());
                let (sender, receiver) = oneshot::channel();
                let job = move || match store.apply(&mutations, true) {
                    Ok(Applied::Pending(position)) => {
                        notify_when_durable(&*store, position, sender);
                    }
                    applied => acknowledge(sender, applied.map(drop)),
                };
                match self.writes.submit(job).await {
                    Ok(_) => Answer::Working(receiver),
                    Err(abandoned) => Answer::Ready(Err(abandoned.into())),
                }
            }
            Err(error) => Answer::Ready(Err(error.into())),
        }
    }

    fn when_durable(&self, position: LogPosition) -> oneshot::Receiver<Result<(), ReplicaError>> {
        let (sender, receiver) = oneshot::channel();
        notify_when_durable(&*self.store, position, sender);
        receiver
    }

    /// Begins to read a slice of a row.
    pub async fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        ticket: &mut Ticket,
    ) -> Answer<RowSlice> {
        let room = Arc::clone(&ticket.room);
        let inline = self.store.read(family, key, slice, &room, self.inline_access());
        self.or_on_a_worker(inline, ticket, || {
            let (key, slice) = (key.clone(), slice.clone());
            move |store: &dyn LocalStore| store.read(family, &key, &slice, &room, Access::Cached)
        })
        .await
    }

    /// Begins to count the columns, or super columns, of a slice of a row.
    pub async fn count(&self, family: FamilyId, key: &RowKey, slice: &Slice) -> Answer<usize> {
        let inline = self.store.count(family, key, slice, self.inline_access());
        self.or_on_a_worker(inline, &mut self.ticket(), || {
            let (key, slice) = (key.clone(), slice.clone());
            move |store: &dyn LocalStore| store.count(family, &key, &slice, Access::Cached)
        })
        .await
    }

    /// Begins to read a slice of each of the first `max_rows` rows of a range.
    pub async fn scan(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        ticket: &mut Ticket,
    ) -> Answer<Vec<Row>> {
        let room = Arc::clone(&ticket.room);
        let inline = self.store.scan(family, range, slice, max_rows, &room, self.inline_access());
        self.or_on_a_worker(inline, ticket, || {
            let (range, slice) = (range.clone(), slice.clone());
            move |store: &dyn LocalStore| {
                store.scan(family, &range, &slice, max_rows, &room, Access::Cached)
            }
        })
        .await
    }

    /// Begins to read what is known here of a slice of a row, deletions included.
    pub async fn read_version(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        ticket: &mut Ticket,
    ) -> Answer<RowVersion> {
        let room = Arc::clone(&ticket.room);
        let inline = self.store.read_version(family, key, slice, &room, self.inline_access());
        self.or_on_a_worker(inline, ticket, || {
            let (key, slice) = (key.clone(), slice.clone());
            move |store: &dyn LocalStore| {
                store.read_version(family, &key, &slice, &room, Access::Cached)
            }
        })
        .await
    }

    /// Begins to read what is known here of a slice of each of the first `max_rows` rows of a
    /// range, deletions included.
    pub async fn scan_versions(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        ticket: &mut Ticket,
    ) -> Answer<Vec<VersionedRow>> {
        let (room, access) = (Arc::clone(&ticket.room), self.inline_access());
        let inline = self.store.scan_versions(family, range, slice, max_rows, &room, access);
        self.or_on_a_worker(inline, ticket, || {
            let (range, slice) = (range.clone(), slice.clone());
            move |store: &dyn LocalStore| {
                store.scan_versions(family, &range, &slice, max_rows, &room, Access::Cached)
            }
        })
        .await
    }

    /// How the thread that asks may read.
    fn inline_access(&self) -> Access {
        if self.runs_inline { Access::Cached } else { Access::CachedOnly }
    }

    /// Waits until few enough requests have large answers in memory.
    async fn admit(&self, ticket: &mut Ticket) {
        if ticket.permit.is_none() {
            // Nobody closes the semaphore.
            let permit = Arc::clone(&self.tickets).acquire_owned();
            ticket.permit = self.not_admitted.wait(permit).await.ok();
        }
    }

    /// Does what would keep the thread of a connection for long on one that reads.
    pub async fn elsewhere<T: Send + 'static>(
        &self,
        ticket: &mut Ticket,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReplicaError> {
        if self.runs_inline {
            return Ok(job());
        }
        self.admit(ticket).await;
        let receiver = self.reads.ask(job).await?;
        Ok(receiver.await.map_err(|_| Abandoned)?)
    }

    /// The rows of a range that are stored here as samples.
    pub fn row_samples(&self, range: TokenRange) -> RowSamples {
        self.store.row_samples(range)
    }

    /// The reads that memory cannot answer: those on a thread, and those that wait.
    pub fn read_load(&self) -> PoolLoad {
        let PoolLoad { active, waiting } = self.reads.load();
        PoolLoad { active, waiting: waiting + self.not_admitted.count() }
    }

    /// The writes that have to wait for memory or the disk: those on a thread, and those that wait
    /// for one.
    pub fn write_load(&self) -> PoolLoad {
        self.writes.load()
    }

    /// Finishes what is under way and ends the threads. Blocks.
    pub fn shutdown(&self) {
        self.reads.shutdown();
        self.writes.shutdown();
    }

    /// The inline answer, or the same question asked where it may block. What the job needs is
    /// only copied then.
    async fn or_on_a_worker<T, J>(
        &self,
        inline: Result<T, ReadError>,
        ticket: &mut Ticket,
        job: impl FnOnce() -> J,
    ) -> Answer<T>
    where
        T: Send + 'static,
        J: FnOnce(&dyn LocalStore) -> Result<T, ReadError> + Send + 'static,
    {
        if !matches!(inline, Err(ReadError::WouldBlock)) {
            return Answer::Ready(inline.map_err(ReplicaError::from));
        }
        self.admit(ticket).await;
        let (store, job) = (Arc::clone(&self.store), job());
        match self.reads.ask(move || job(&*store).map_err(ReplicaError::from)).await {
            Ok(receiver) => Answer::Working(receiver),
            Err(abandoned) => Answer::Ready(Err(abandoned.into())),
        }
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reads, writes, .. } = self;
        f.debug_struct("Replica")
            .field("reads", reads)
            .field("writes", writes)
            .finish_non_exhaustive()
    }
}

/// Answers when the log is on disk up to this position, without a thread that waits.
fn notify_when_durable(
    store: &dyn LocalStore,
    position: LogPosition,
    sender: oneshot::Sender<Result<(), ReplicaError>>,
) {
    let callback = move |durable: Result<(), WriteError>| acknowledge(sender, durable);
    store.on_durable(position, Box::new(callback));
}

/// Tells the caller, or the log where the caller has given up waiting or never did.
fn acknowledge(sender: oneshot::Sender<Result<(), ReplicaError>>, applied: Result<(), WriteError>) {
    if let Err(Err(error)) = sender.send(applied.map_err(ReplicaError::from)) {
        log::warn!("a write that nobody waits for failed: {error}");
    }
}
