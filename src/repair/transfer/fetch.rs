//! Fetches rows from other nodes, page by page, into SSTables.
//!
//! The receiver asks for one page after the other, and names the position after which the next one
//! begins. So the source keeps no state, and a lost page is requested again, whichever side
//! restarts or pauses. While one page is written the next is on its way.

use super::plan::{
    FetchQueue, FetchTask, WantedRange, by_source, queue_of_rows, queues, sources, start,
};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::net::bodies::{Body, PageCommand, PageReply, PageRows, RangeReply};
use crate::net::caller::Caller;
use crate::repair::calls::PAGE;
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::host::Node;
use crate::repair::legacy::LegacyPeers;
use crate::repair::progress::ProgressCounters;
use crate::ring::DecoratedKey;
use crate::storage::database::{Ingest, IngestError};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the first page.
const FIRST_PAGE: u32 = 256 << 10;

/// Most and fewest bytes of a page: it grows with each answer in time, and shrinks without one.
pub(crate) const MAX_PAGE: u32 = 1 << 20;
const MIN_PAGE: u32 = 16 << 10;

/// Bytes of a column family that become SSTables at a time, and are fetched again after a failure.
const INGEST_BYTES: u64 = 256 << 20;

/// Queues that are fetched at a time, and nodes of 0.6 that send at a time.
const MAX_QUEUES: usize = 2;
const MAX_LEGACY_SOURCES: usize = 3;

/// Most failed requests for one page to a node that seems alive.
const ATTEMPTS: u32 = 20;

/// Pause after a node did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Fetches rows.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    pub(crate) node: Arc<Node>,
    /// Fetches from nodes of 0.6.
    pub(crate) legacy: Arc<LegacyPeers>,
}

/// A fetch within another one.
type Fetching<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Runs fetches, this many at a time, until one fails.
async fn run_all(fetches: Vec<Fetching<'_>>, at_a_time: usize) -> Result<()> {
    stream::iter(fetches).map(Ok).try_for_each_concurrent(at_a_time, |fetch| fetch).await
}

impl Fetcher {
    /// Fetches ranges. When this returns they are in live SSTables.
    pub(crate) async fn fetch(
        &self,
        wanted: &[WantedRange],
        progress: &ProgressCounters,
    ) -> Result<()> {
        let look = self.node.look()?;
        let queues = queues(wanted, &look, self.node.context())?;
        let of_legacy = by_source(wanted, &look);
        progress.expect_ranges(queues.iter().map(|queue| queue.tasks.len()).sum());
        progress.expect_ranges(of_legacy.values().map(BTreeMap::len).sum());
        // Large futures, which would make their callers large.
        let by_calls = queues
            .into_iter()
            .map(|queue| -> Fetching<'_> { Box::pin(self.fetch_queue(queue, progress)) });
        // One keyspace after the other: a node of 0.6 does no two things at once.
        let from_legacy = of_legacy.into_iter().map(|(source, of_source)| -> Fetching<'_> {
            Box::pin(async move {
                for (keyspace, wanted) in of_source {
                    self.fetch_from_legacy(source, &keyspace, &wanted, progress).await?;
                }
                Ok(())
            })
        });
        let by_calls = run_all(by_calls.collect(), MAX_QUEUES);
        let from_legacy = run_all(from_legacy.collect(), MAX_LEGACY_SOURCES);
        tokio::try_join!(by_calls, from_legacy).map(|_| ())
    }

    /// Fetches rows, whose keys are in the order of their tokens for each source. When this returns
    /// they are in live SSTables.
    pub(crate) async fn fetch_rows(
        &self,
        family: FamilyId,
        sources: &[(IpAddr, Vec<RowKey>)],
        progress: &ProgressCounters,
    ) -> Result<()> {
        let queue = queue_of_rows(family, sources);
        progress.expect_ranges(queue.tasks.len());
        Box::pin(self.fetch_queue(queue, progress)).await
    }

    /// Fetches ranges of a keyspace from a node of 0.6; if that one is dead, from others.
    fn fetch_from_legacy<'a>(
        &'a self,
        source: IpAddr,
        keyspace: &'a str,
        wanted: &'a [WantedRange],
        progress: &'a ProgressCounters,
    ) -> Fetching<'a> {
        Box::pin(async move {
            let fetched = self.legacy.fetch_from(source, keyspace, wanted).await;
            progress.finish_range();
            match fetched {
                Ok(taken) => {
                    progress.add(taken.bytes as usize, taken.rows as usize);
                    Ok(())
                }
                Err(OperationError::Down(_)) => {
                    log::warn!("{source} is down, which was to send ranges of keyspace {keyspace}");
                    self.fetch(wanted, progress).await
                }
                Err(error) => Err(error),
            }
        })
    }

    async fn fetch_queue(
        &self,
        FetchQueue { family, mut tasks }: FetchQueue,
        progress: &ProgressCounters,
    ) -> Result<()> {
        let (node, partitioner) = (&self.node, self.node.partitioner());
        let mut fetch = QueueFetch { node, family, progress, size: FIRST_PAGE };
        let mut written = Written { node, family, ingest: None, last: None };
        while let Some(mut task) = tasks.pop_front() {
            if !written.goes_on_with(&task) {
                written.finish().await?;
            }
            let wanted = match (fetch.run(&mut task, &mut written).await, &task.wanted) {
                (Ok(()), _) => {
                    progress.finish_range();
                    continue;
                }
                (Err(OperationError::Down(_)), Some(wanted)) => Arc::clone(wanted),
                (Err(error), _) => return Err(error),
            };
            let look = node.look()?;
            let others = sources(&wanted, look.local, &look);
            let others = others.ok_or_else(|| wanted.without_source(partitioner))?;
            let (source, keyspace) = (task.source, &wanted.keyspace);
            log::warn!(
                "{source} is down, from which a range of keyspace {keyspace} was to come: the rest \
                 comes from {others:?}"
            );
            progress.expect_ranges(others.len());
            progress.finish_range();
            written.finish().await?;
            for source in others.into_iter().rev() {
                if look.is_legacy(source) {
                    let wanted = [(*wanted).clone()];
                    self.fetch_from_legacy(source, keyspace, &wanted, progress).await?;
                } else {
                    tasks.push_front(FetchTask { source, ..task.clone() });
                }
            }
        }
        written.finish().await
    }
}

/// Fetches the rows of one queue.
struct QueueFetch<'a> {
    node: &'a Arc<Node>,
    family: FamilyId,
    progress: &'a ProgressCounters,
    /// Bytes of the next page.
    size: u32,
}

impl QueueFetch<'_> {
    /// Runs a task. If its source dies, the task is the remaining part.
    async fn run(&mut self, task: &mut FetchTask, written: &mut Written<'_>) -> Result<()> {
        self.size = FIRST_PAGE;
        let mut page = self.page(task).await?;
        loop {
            let PageReply { rows, next } = page;
            let source = task.source;
            let has_more = match next {
                Some(next) => task.advance(next).ok_or_else(|| unasked(source))?,
                None => false,
            };
            if !has_more {
                return written.write(rows).await;
            }
            let (asked, stored) = tokio::join!(self.page(task), written.write(rows));
            stored?;
            page = asked?;
        }
    }

    /// Requests the next page until it comes. Fails when the source is down, or does not answer for
    /// long.
    async fn page(&mut self, task: &FetchTask) -> Result<PageReply> {
        let node = self.node;
        let caller = Caller::new(Arc::clone(&node.messenger));
        let mut attempts = 0;
        loop {
            let FetchTask { rows, after, source, .. } = task.clone();
            let command = PageCommand { family: self.family, rows, after, max_bytes: self.size };
            let body = command.encode(node.context())?;
            let error = match caller.call(source, PAGE, &body).await {
                Ok(answer) => {
                    self.size = self.size.saturating_mul(2).min(MAX_PAGE);
                    return self.take(task, &answer).await;
                }
                Err(error) => error,
            };
            attempts += 1;
            if !node.look()?.live.contains(&source) {
                return Err(OperationError::Down(source));
            }
            if attempts >= ATTEMPTS {
                return fail(format!(
                    "a piece of a range was asked for {ATTEMPTS} times in vain: {error}"
                ));
            }
            self.size = (self.size / 2).max(MIN_PAGE);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Decodes a page, and waits as long as the throttle demands.
    async fn take(&self, task: &FetchTask, answer: &[u8]) -> Result<PageReply> {
        let (node, from) = (self.node, task.source);
        let page = PageReply::decode(answer, node.storage.schema().family(self.family));
        let unreadable = |error| format!("what {from} has sent cannot be read: {error}");
        let page = page.map_err(|error| OperationError::Failed(unreadable(error)))?;
        if let PageRows::Keys(keys) = &task.rows {
            // They come in the requested order.
            let mut wanted = keys.iter();
            if !page.rows.rows.iter().all(|(key, _)| wanted.any(|it| it == key)) {
                return Err(unasked(from));
            }
        }
        // A row that continues in the next page is counted there.
        let open = page.next.as_ref().filter(|next| next.cell.is_some()).map(|next| &next.key);
        let complete = page.rows.rows.iter().filter(|(key, _)| Some(key) != open).count();
        self.progress.add(answer.len(), complete);
        node.receiving.add(from, self.family, answer.len());
        node.throttle.take(answer.len()).await;
        Ok(page)
    }
}

fn unasked(from: IpAddr) -> OperationError {
    OperationError::Failed(format!("{from} sends rows that it was not asked for"))
}

/// SSTables of a column family that are being written.
struct Written<'a> {
    node: &'a Node,
    family: FamilyId,
    ingest: Option<Ingest>,
    /// The last written row.
    last: Option<DecoratedKey>,
}

impl Written<'_> {
    /// Whether the rows of a task come after the written ones.
    fn goes_on_with(&self, task: &FetchTask) -> bool {
        let Some(last) = &self.last else { return true };
        match &task.rows {
            PageRows::Range(range) => start(range).is_some_and(|start| last.token() <= start),
            PageRows::Keys(keys) => keys
                .first()
                .is_some_and(|first| *last < self.node.partitioner().decorate(first.clone())),
        }
    }

    async fn write(&mut self, RangeReply { rows }: RangeReply) -> Result<()> {
        let Some((last, _)) = rows.last() else { return Ok(()) };
        self.last = Some(self.node.partitioner().decorate(last.clone()));
        let (storage, family, ingest) =
            (Arc::clone(&self.node.storage), self.family, self.ingest.take());
        let push = move || {
            let mut ingest = match ingest {
                Some(ingest) => ingest,
                None => storage.ingest(family)?,
            };
            for (key, version) in &rows {
                ingest.push(key, version)?;
            }
            Ok::<_, IngestError>(ingest)
        };
        let ingest = self.node.run(push).await?;
        let is_full = ingest.bytes() >= INGEST_BYTES;
        self.ingest = Some(ingest);
        if is_full { self.finish().await } else { Ok(()) }
    }

    /// Makes live SSTables of the written rows.
    async fn finish(&mut self) -> Result<()> {
        self.last = None;
        let Some(ingest) = self.ingest.take() else { return Ok(()) };
        self.node.run(move || ingest.finish()).await.map(|_| ())
    }
}
