//! The verbs of a replica.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::batches::Batches;
use super::registers::Registers;
use crate::base::budget::{Budget, Charge};
use crate::base::context::{CancelOnDrop, RequestContext, TooLarge};
use crate::base::worker::{Abandoned, PoolLoad, Spawner, WorkerPool};
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{RowRange, Token, TokenRange};
use crate::storage::Database;
use crate::storage::commitlog::Position;
use crate::storage::database::{Applied, WriteError};
use crate::storage::error::ReadError;
use crate::storage::family::ColumnFamily;
use crate::storage::sstable::Access;
use crate::storage::system::later_data;

/// A slice of one row.
#[derive(Debug, Clone, Copy)]
pub struct RowQuery<'a> {
    /// The column family.
    pub family: FamilyId,
    /// The row.
    pub key: &'a RowKey,
    /// The part of the row.
    pub slice: &'a Slice,
}

/// A slice of each of the first rows of a range.
#[derive(Debug, Clone, Copy)]
pub struct RangeQuery<'a> {
    /// The column family.
    pub family: FamilyId,
    /// The rows, in the order of their tokens.
    pub range: &'a RowRange,
    /// The part of each row that is wanted.
    pub slice: &'a Slice,
    /// Most rows of the answer.
    pub max_rows: usize,
}

/// A row of a scan: its key and the slice.
pub type Row = (RowKey, RowSlice);

/// A row of a scan for another replica: its key and the version of the slice.
pub type VersionedRow = (RowKey, RowVersion);

/// Number of threads of a replica.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    /// `ConcurrentReads`: threads for reads that are not answered from memory.
    pub concurrent_reads: usize,
    /// `ConcurrentWrites`: threads for writes that have to wait.
    pub concurrent_writes: usize,
    /// Memory for the data of all requests.
    pub memory: Arc<Budget>,
    /// Where work runs that may block.
    pub spawner: Spawner,
}

/// This node's share of the data, and its work for coordinators.
///
/// Each verb first asks the storage on the spot, since handing work to a thread costs as much as a
/// whole read from memory. What would block goes to a bounded pool. A read that turns out to take
/// long there begins again in a lane of its own, and so do all further ones of its request.
#[derive(derive_more::Debug)]
#[debug("Replica {{ reads: {reads:?}, writes: {writes:?}, .. }}")]
pub struct Replica {
    pub(super) storage: Arc<Database>,
    reads: WorkerPool,
    /// For requests that take long, so that the others never wait for them.
    long_reads: WorkerPool,
    pub(super) writes: WorkerPool,
    pub(super) registers: Arc<Registers>,
    pub(super) batches: Batches,
    /// Whether there is a note of [`later_data`].
    has_later_data: AtomicBool,
    spawner: Spawner,
    memory: Arc<Budget>,
}

/// Why a replica did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplicaError {
    /// The data cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The mutation was not written, or is not known to be on disk.
    #[error("the store refuses writes: {0}")]
    Write(#[from] WriteError),
    /// The work panicked, or the node is shutting down.
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    /// Another replica says that its answer would be larger than any may be.
    #[error("{0}")]
    TooLarge(String),
}

impl From<TooLarge> for ReplicaError {
    fn from(error: TooLarge) -> Self {
        Self::Read(ReadError::TooLarge(error))
    }
}

impl ReplicaError {
    /// Whether the request asked for more than any answer may hold.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Read(ReadError::TooLarge(_)) | Self::TooLarge(_))
    }

    /// Whether the column family was dropped, or is being dropped or emptied.
    pub fn is_of_dropped_family(&self) -> bool {
        matches!(self, Self::Write(WriteError::Refused(refusal)) if refusal.is_of_dropped())
    }
}

/// The answer to a write: ready, or still to come.
#[derive(Debug)]
#[must_use = "the write is done only when its answer is here"]
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

/// A read that was begun. It is given up when this is dropped.
#[must_use = "the read is done only when its answer is here"]
pub enum PendingRead<'r, T> {
    /// The answer is ready.
    Ready(Result<T, ReplicaError>),
    /// The answer comes from a thread.
    Begun(Begun<'r, T>),
}

/// A read that was not answered from memory.
pub struct Begun<'r, T> {
    replica: &'r Replica,
    job: Arc<ReadJob<T>>,
    /// The first attempt, which ends without an answer if it takes long; `None` if the request is
    /// known to take long.
    short: Option<Asked<T>>,
}

/// A read that may be tried more than once.
type ReadJob<T> = dyn Fn(&Database, &RequestContext) -> Result<T, ReadError> + Send + Sync;

/// A read of one row by the storage.
type ReadRow<T> =
    fn(&ColumnFamily, &RowKey, &Slice, &RequestContext, Access) -> Result<T, ReadError>;

/// A read of many rows by the storage.
type ReadRange<T> =
    fn(&ColumnFamily, &RowRange, &Slice, usize, &RequestContext, Access) -> Result<T, ReadError>;

/// The place where the answer of a thread comes, which has the thread give up when it is dropped.
type Asked<T> = (oneshot::Receiver<Result<T, ReadError>>, CancelOnDrop);

impl<T: Send + 'static> PendingRead<'_, T> {
    /// Waits for the answer, with the context by which the read was begun.
    pub async fn wait(self, context: &mut RequestContext) -> Result<T, ReplicaError> {
        match self {
            Self::Ready(answer) => answer,
            // Seldom, and large.
            Self::Begun(begun) => Box::pin(begun.wait(context)).await,
        }
    }
}

impl<T: Send + 'static> Begun<'_, T> {
    /// Waits for the answer. A read that takes long begins again in the lane for such reads.
    async fn wait(self, context: &mut RequestContext) -> Result<T, ReplicaError> {
        let Self { replica, job, short } = self;
        if let Some((receiver, _guard)) = short {
            let answer = receiver.await.map_err(|_| Abandoned)?;
            if !matches!(answer, Err(ReadError::WouldBlock)) {
                return Ok(answer?);
            }
        }
        let work = context.child();
        let (receiver, _guard) = replica.ask(&replica.long_reads, context, work, job).await?;
        Ok(receiver.await.map_err(|_| Abandoned)??)
    }
}

/// Niceness of the threads that read for long, above that of the others: connections come first.
const LONG_READ_NICENESS: i32 = 5;

/// Rows that are written without leaving the thread of the connection, which others need too.
const INLINE_MUTATIONS: usize = 64;

impl Replica {
    /// A replica over a storage core; fails if the threads cannot be started.
    pub fn start(storage: Arc<Database>, options: ReplicaOptions) -> io::Result<Self> {
        let ReplicaOptions { memory, spawner, concurrent_reads, concurrent_writes } = options;
        let start = |name, threads: usize, niceness| {
            WorkerPool::start(spawner, name, threads.max(1), niceness)
        };
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let reads = start("read", concurrent_reads, 0)?;
        let long_reads = start("long-read", cores / 2, LONG_READ_NICENESS)?;
        let writes = start("write", concurrent_writes, 0)?;
        let (registers, batches) = (Arc::default(), Batches::new(storage.schema()));
        let has_later_data = AtomicBool::new(false);
        Ok(Self {
            storage,
            reads,
            long_reads,
            writes,
            registers,
            batches,
            has_later_data,
            spawner,
            memory,
        })
    }

    /// Memory for the data of all requests.
    pub fn memory(&self) -> &Budget {
        &self.memory
    }

    /// Where work runs that may block.
    pub fn spawner(&self) -> Spawner {
        self.spawner
    }

    /// The context of a request whose answer may take at most this many bytes.
    pub fn request(&self, bytes: usize, timeout: Duration) -> RequestContext {
        RequestContext::within(&self.memory, bytes, timeout)
    }

    /// The present second of the storage's clock, since the Unix epoch.
    pub fn now_secs(&self) -> i64 {
        self.storage.now_millis().div_euclid(1000)
    }

    /// Begins to apply mutations. The answer comes when they may be acknowledged.
    pub async fn apply(&self, mutations: &[RowMutation]) -> Answer<()> {
        self.batches.note(mutations);
        let has_later = self.has_later_data.load(Ordering::Relaxed);
        if !has_later && !mutations.iter().all(RowMutation::is_original) {
            self.has_later_data.store(true, Ordering::Relaxed);
            let mut with_note = mutations.to_vec();
            with_note.push(later_data::note(&self.storage));
            return Box::pin(self.apply_all(&with_note)).await;
        }
        self.apply_all(mutations).await
    }

    async fn apply_all(&self, mutations: &[RowMutation]) -> Answer<()> {
        let inline = if self.spawner.is_inline() || mutations.len() <= INLINE_MUTATIONS {
            self.storage.apply_all(mutations, self.spawner.is_inline())
        } else {
            Err(WriteError::WouldBlock)
        };
        match inline {
            Ok(Applied::Done) => Answer::Ready(Ok(())),
            Ok(Applied::Pending(position)) => {
                let (sender, receiver) = oneshot::channel();
                notify_when_durable(&self.storage, position, sender);
                Answer::Working(receiver)
            }
            Err(WriteError::WouldBlock) => {
                let (storage, mutations) = (Arc::clone(&self.storage), mutations.to_vec());
                let (sender, receiver) = oneshot::channel();
                // The request may be given up long before a full store takes the write.
                let mut held = Charge::new(Arc::clone(&self.memory));
                held.set(mutations.iter().map(RowMutation::memory).sum());
                let job = move || {
                    match storage.apply_all(&mutations, true) {
                        Ok(Applied::Pending(position)) => {
                            notify_when_durable(&storage, position, sender);
                        }
                        applied => acknowledge(sender, applied.map(drop)),
                    }
                    drop(held);
                };
                // Seldom, and large.
                match Box::pin(self.writes.submit(job)).await {
                    Ok(_) => Answer::Working(receiver),
                    Err(abandoned) => Answer::Ready(Err(abandoned.into())),
                }
            }
            Err(error) => Answer::Ready(Err(error.into())),
        }
    }

    /// Looks whether this node was given what no node of 0.6 can have. To be called at the start.
    pub fn look_for_later_data(&self) -> Result<(), ReadError> {
        self.has_later_data.store(later_data::is_noted(&self.storage)?, Ordering::Relaxed);
        Ok(())
    }

    /// Whether this node has, or may have, what no node of 0.6 can have.
    pub fn has_later_data(&self) -> bool {
        let mut families = self.storage.schema().families();
        self.has_later_data.load(Ordering::Relaxed)
            || families.any(|(_, family)| ColumnFamilySchema::is_of_cql(&family.name))
    }

    /// Begins to read a slice of a row.
    pub fn read(
        &self,
        row: RowQuery<'_>,
        context: &mut RequestContext,
    ) -> impl Future<Output = PendingRead<'_, RowSlice>> {
        self.read_row(row, context, ColumnFamily::read)
    }

    /// Begins to count the columns, or super columns, of a slice of a row.
    pub fn count(
        &self,
        row: RowQuery<'_>,
        context: &mut RequestContext,
    ) -> impl Future<Output = PendingRead<'_, usize>> {
        self.read_row(row, context, ColumnFamily::count)
    }

    /// Begins to read the version of a slice of a row, deletions included.
    pub fn read_version(
        &self,
        row: RowQuery<'_>,
        context: &mut RequestContext,
    ) -> impl Future<Output = PendingRead<'_, RowVersion>> {
        self.read_row(row, context, ColumnFamily::read_version)
    }

    /// [`Replica::read_version`] for a coordinator of 0.6.
    pub fn read_legacy_version(
        &self,
        row: RowQuery<'_>,
        context: &mut RequestContext,
    ) -> impl Future<Output = PendingRead<'_, RowVersion>> {
        self.read_row(row, context, ColumnFamily::read_legacy_version)
    }

    /// Begins to read a slice of each of the first rows of a range.
    pub fn scan(
        &self,
        rows: RangeQuery<'_>,
        context: &mut RequestContext,
    ) -> impl Future<Output = PendingRead<'_, Vec<Row>>> {
        self.read_range(rows, context, ColumnFamily::scan)
    }

    /// Begins to read the versions of a slice of each of the first rows of a range, deletions
    /// included.
    pub fn scan_versions(
        &self,
        rows: RangeQuery<'_>,
        context: &mut RequestContext,
    ) -> impl Future<Output = PendingRead<'_, Vec<VersionedRow>>> {
        self.read_range(rows, context, ColumnFamily::scan_versions)
    }

    fn read_row<T: Send + 'static>(
        &self,
        row: RowQuery<'_>,
        context: &mut RequestContext,
        read: ReadRow<T>,
    ) -> impl Future<Output = PendingRead<'_, T>> {
        let RowQuery { family, key, slice } = row;
        let store = self.storage.family(family);
        let inline = read(store, key, slice, context, self.inline_access());
        self.or_on_a_worker(inline, context, move || {
            let (key, slice) = (key.clone(), slice.clone());
            move |storage: &Database, context: &RequestContext| {
                read(storage.family(family), &key, &slice, context, Access::Cached)
            }
        })
    }

    fn read_range<T: Send + 'static>(
        &self,
        rows: RangeQuery<'_>,
        context: &mut RequestContext,
        read: ReadRange<T>,
    ) -> impl Future<Output = PendingRead<'_, T>> {
        let RangeQuery { family, range, slice, max_rows } = rows;
        let store = self.storage.family(family);
        let inline = read(store, range, slice, max_rows, context, self.inline_access());
        self.or_on_a_worker(inline, context, move || {
            let (range, slice) = (range.clone(), slice.clone());
            move |storage: &Database, context: &RequestContext| {
                read(storage.family(family), &range, &slice, max_rows, context, Access::Cached)
            }
        })
    }

    /// Access of the calling thread.
    fn inline_access(&self) -> Access {
        if self.spawner.is_inline() { Access::Cached } else { Access::CachedOnly }
    }

    /// Does work that would keep the thread of a connection for long on one that reads.
    pub async fn spawn_read<T: Send + 'static>(
        &self,
        context: &mut RequestContext,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReplicaError> {
        if self.spawner.is_inline() {
            return Ok(job());
        }
        let lane = if context.is_long() { &self.long_reads } else { &self.reads };
        let receiver = lane.ask(context, job).await?;
        Ok(receiver.await.map_err(|_| Abandoned)?)
    }

    /// Tokens that divide a range into parts of about this many rows, judged by the rows of this
    /// node. It visits the samples of all rows in memory.
    pub async fn splits(
        &self,
        range: TokenRange,
        keys_per_split: NonZero<i32>,
        context: &mut RequestContext,
    ) -> Result<Vec<Token>, ReplicaError> {
        if self.spawner.is_inline() {
            let samples = self.storage.row_samples(range, context)?;
            return Ok(samples.splits(keys_per_split));
        }
        let job = move |storage: &Database, context: &RequestContext| {
            Ok(storage.row_samples(range.clone(), context)?.splits(keys_per_split))
        };
        Begun { replica: self, job: Arc::new(job), short: None }.wait(context).await
    }

    /// Load of the reads that memory cannot answer.
    pub fn read_load(&self) -> PoolLoad {
        let (short, long) = (self.reads.load(), self.long_reads.load());
        PoolLoad { active: short.active + long.active, waiting: short.waiting + long.waiting }
    }

    /// Load of the writes that have to wait for memory or the disk.
    pub fn write_load(&self) -> PoolLoad {
        self.writes.load()
    }

    /// Finishes what is under way and ends the threads. Blocks.
    pub fn shutdown(&self) {
        self.reads.shutdown();
        self.long_reads.shutdown();
        self.writes.shutdown();
    }

    /// The inline answer, or the same question asked where it may block. What the job needs is
    /// only copied then.
    async fn or_on_a_worker<T, J>(
        &self,
        inline: Result<T, ReadError>,
        context: &mut RequestContext,
        job: impl FnOnce() -> J,
    ) -> PendingRead<'_, T>
    where
        T: Send + 'static,
        J: Fn(&Database, &RequestContext) -> Result<T, ReadError> + Send + Sync + 'static,
    {
        if !matches!(inline, Err(ReadError::WouldBlock)) {
            return PendingRead::Ready(inline.map_err(ReplicaError::from));
        }
        let job: Arc<ReadJob<T>> = Arc::new(job());
        if context.is_long() {
            return PendingRead::Begun(Begun { replica: self, job, short: None });
        }
        let work = context.short();
        // Seldom, and large.
        match Box::pin(self.ask(&self.reads, context, work, Arc::clone(&job))).await {
            Ok(asked) => PendingRead::Begun(Begun { replica: self, job, short: Some(asked) }),
            Err(abandoned) => PendingRead::Ready(Err(abandoned.into())),
        }
    }

    /// Has a thread of a lane read.
    async fn ask<T: Send + 'static>(
        &self,
        lane: &WorkerPool,
        context: &mut RequestContext,
        work: RequestContext,
        job: Arc<ReadJob<T>>,
    ) -> Result<Asked<T>, Abandoned> {
        let storage = Arc::clone(&self.storage);
        let (work, guard) = work.cancellable();
        let receiver = lane.ask(context, move || job(&storage, &work)).await?;
        Ok((receiver, guard))
    }
}

/// Answers when the log is on disk up to this position, without a thread that waits.
fn notify_when_durable(
    storage: &Database,
    position: Position,
    sender: oneshot::Sender<Result<(), ReplicaError>>,
) {
    let callback = move |durable: Result<(), _>| {
        acknowledge(sender, durable.map_err(WriteError::Log));
    };
    storage.on_durable(position, Box::new(callback));
}

/// Tells the caller, or the log where the caller has given up waiting or never did.
fn acknowledge(sender: oneshot::Sender<Result<(), ReplicaError>>, applied: Result<(), WriteError>) {
    if let Err(Err(error)) = sender.send(applied.map_err(ReplicaError::from)) {
        log::warn!("a write that nobody waits for failed: {error}");
    }
}
