//! Reads of rows by key, by this node alone or by several replicas, and when other replicas are
//! asked in the place of this node.

use super::consistency::Requirement;
use super::coordinator::Coordinator;
use super::latencies::Latencies;
use super::quorum::{Exchange, Outgoing, Request};
use super::row_read::{Ask, Reply, Resolved, RowPart, RowRead};
use super::view::{Endpoints, ReadReplicas, View};
use super::{ConsistencyLevel, CoordinatorError, ReplicaCounts};
use crate::base::context::{RequestContext, TooLarge};
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::net::Verb;
use crate::net::bodies::{ReadCommand, ReadReply};
use crate::net::extensions::{FULL_DIGEST, TAKES_REFUSAL};
use crate::replica::{self, PendingRead, Replica, ReplicaError, RowQuery};
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Rows of one request that are read before other requests on the thread get their turn.
const ROWS_AT_A_TIME: usize = 32;

/// Rows of one request that threads read at once: more would only make other requests wait.
const READS_AT_ONCE: usize = 16;

/// Columns of one row that are counted at a time, where they have to be compared for that.
const COUNTED_AT_A_TIME: usize = 10_000;

/// Fewest of them: the last one is the first of the next page.
const FEWEST_COUNTED: usize = 2;

/// Fraction of the longest message that a page of counted columns may take, about.
const COUNTED_SHARE: usize = 8;

/// Kind of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// This many rows by key.
    Rows(usize),
    /// All of a row, which may be large.
    Count,
    /// A range of rows.
    Range,
}

/// Why others are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// This node failed at it, as with a damaged file.
    Failed,
    /// It is slow.
    Slow,
}

/// Asks the replicas of one row.
struct RowExchange {
    family: FamilyId,
    key: RowKey,
    /// All rounds are about these columns, if not always about as many.
    slice: Slice,
    schema: Arc<Schema>,
}

impl Exchange for RowExchange {
    type What = RowPart;
    type Reply = Reply;

    const ACTION: &'static str = "read";
    const IS_READ: bool = true;

    fn encode<'a>(
        &'a self,
        view: &View,
        request: &'a Request<RowPart>,
    ) -> Result<Outgoing<'a>, CoordinatorError> {
        let Request { to, what: RowPart { ask, slice }, .. } = request;
        let command = ReadCommand {
            family: self.family,
            key: self.key.clone(),
            slice: slice.clone(),
            digest_only: *ask == Ask::Digest,
        };
        let is_full = *ask == Ask::Digest && view.takes_full_digests(*to);
        let mut headers = if is_full { vec![FULL_DIGEST] } else { Vec::new() };
        headers.extend(view.gives_refusals(*to).then_some(TAKES_REFUSAL));
        let body = command.encode(&self.schema)?.into();
        Ok(Outgoing { verb: Verb::Read, headers, body })
    }

    fn decode(&self, from: IpAddr, body: &[u8]) -> Result<Reply, String> {
        let family = self.schema.family(self.family);
        match ReadReply::decode(body, family) {
            Ok(ReadReply::Data { key, mut version }) if key == self.key => {
                version.keep_within(family, &self.slice);
                Ok(Reply::Data(version))
            }
            Ok(ReadReply::Digest(digest)) => Ok(Reply::Digest(digest)),
            Ok(ReadReply::Data { key, .. }) => {
                Err(format!("{from} has answered with row {key} instead of {}", self.key))
            }
            Err(error) => Err(format!("an answer of {from} to a read is not sound: {error}")),
        }
    }

    async fn do_here(
        self: Arc<Self>,
        replica: Arc<Replica>,
        what: RowPart,
        mut context: RequestContext,
    ) -> Result<Reply, ReplicaError> {
        let row = RowQuery { family: self.family, key: &self.key, slice: &what.slice };
        let read = replica.read_version(row, &mut context).await;
        read.wait(&mut context).await.map(Reply::Data)
    }

    fn take_memory(&self, reply: &Reply, context: &RequestContext) -> Result<(), TooLarge> {
        match reply {
            Reply::Data(version) => replica::take_row(context, &self.key, &version.cells),
            Reply::Digest(_) => Ok(()),
        }
    }

    fn record(&self, latencies: &Latencies, from: IpAddr, took: Duration) {
        latencies.record(from, took);
    }
}

impl Coordinator {
    /// Reads a slice of a row. The context is held until the answer has been written.
    pub async fn read(
        self: &Arc<Self>,
        wanted: RowQuery<'_>,
        level: ConsistencyLevel,
        context: &mut RequestContext,
    ) -> Result<RowSlice, CoordinatorError> {
        let view = self.trusted_view()?;
        let replicas = self.read_replicas(&view, wanted, level)?;
        self.check_in_background(&view, wanted, &replicas);
        if !replicas.is_answered_by(self.local) {
            return Box::pin(self.read_from(&view, wanted, replicas, context)).await;
        }
        let has_others = replicas.are_several();
        let others = |_| async {
            // The own one may be held by a read that stands still.
            let (replicas, mut theirs) = (replicas.others(self.local), self.request());
            let row = self.read_from(&view, wanted, replicas, &mut theirs).await?;
            Ok((row, false))
        };
        let (row, is_own) = {
            let own = pin!(async {
                let row = self.replica.read(wanted, context).await.wait(context).await?;
                Ok((row, true))
            });
            self.read_local_or_speculate(Reading::Rows(1), has_others, own, others).await?
        };
        if !is_own {
            context.release();
            replica::take_row(context, wanted.key, &row.cells)?;
        }
        Ok(row)
    }

    /// Reads the same slice of several rows, in the order of the keys. Nothing is read unless
    /// enough replicas of all rows are alive; reads from disk run in parallel.
    pub async fn read_many(
        self: &Arc<Self>,
        family: FamilyId,
        keys: &[RowKey],
        slice: &Slice,
        level: ConsistencyLevel,
        context: &mut RequestContext,
    ) -> Result<Vec<RowSlice>, CoordinatorError> {
        let view = self.trusted_view()?;
        let mut replicas = Vec::with_capacity(keys.len());
        for key in keys {
            replicas.push(self.read_replicas(&view, RowQuery { family, key, slice }, level)?);
        }
        let view = &view;
        let each_of = |replicas: Vec<ReadReplicas>, context: RequestContext| {
            let reads = keys.iter().zip(replicas).map(move |(key, replicas)| {
                let (coordinator, view) = (Arc::clone(self), Arc::clone(view));
                let (key, slice, mut part) = (key.clone(), slice.clone(), context.child());
                async move {
                    let wanted = RowQuery { family, key: &key, slice: &slice };
                    coordinator.read_from(&view, wanted, replicas, &mut part).await
                }
            });
            async { join_all(reads).await.into_iter().collect() }
        };
        for (key, replicas) in keys.iter().zip(&replicas) {
            self.check_in_background(view, RowQuery { family, key, slice }, replicas);
        }
        if !replicas.iter().all(|replicas| replicas.is_answered_by(self.local)) {
            return each_of(replicas, context.child()).await;
        }
        let has_others = replicas.iter().any(ReadReplicas::are_several);
        let mut here = context.scratch();
        // After a failure others read.
        let own = pin!(async move {
            let rows = self.read_many_here(family, keys, slice, &mut here).await?;
            Ok((rows, Some(here)))
        });
        let others = |reason| {
            // Each row on its own: one may be damaged, and the others readable.
            let replicas = match reason {
                Reason::Failed => replicas,
                Reason::Slow => replicas.into_iter().map(|it| it.others(self.local)).collect(),
            };
            let rows = each_of(replicas, context.child());
            async { rows.await.map(|rows| (rows, None)) }
        };
        let reading = Reading::Rows(keys.len());
        let (rows, here) = self.read_local_or_speculate(reading, has_others, own, others).await?;
        if let Some(here) = here {
            *context = here;
        }
        Ok(rows)
    }

    async fn read_many_here(
        &self,
        family: FamilyId,
        keys: &[RowKey],
        slice: &Slice,
        context: &mut RequestContext,
    ) -> Result<Vec<RowSlice>, ReplicaError> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut begun: VecDeque<PendingRead<'_, _>> = VecDeque::new();
        for (number, key) in keys.iter().enumerate() {
            if number % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1 {
                // Other connections of this thread want to be served as well.
                tokio::task::yield_now().await;
            }
            if begun.len() == READS_AT_ONCE
                && let Some(first) = begun.pop_front()
            {
                rows.push(first.wait(context).await?);
            }
            match self.replica.read(RowQuery { family, key, slice }, context).await {
                PendingRead::Ready(answer) if begun.is_empty() => rows.push(answer?),
                pending => begun.push_back(pending),
            }
        }
        for reading in begun {
            rows.push(reading.wait(context).await?);
        }
        Ok(rows)
    }

    /// Counts the columns, or super columns, below a parent.
    pub async fn count(
        self: &Arc<Self>,
        family: FamilyId,
        key: &RowKey,
        super_name: Option<&[u8]>,
        level: ConsistencyLevel,
        context: &RequestContext,
    ) -> Result<usize, CoordinatorError> {
        let view = self.trusted_view()?;
        let all = Slice::all(super_name);
        let wanted = RowQuery { family, key, slice: &all };
        let replicas = self.read_replicas(&view, wanted, level)?;
        self.check_in_background(&view, wanted, &replicas);
        if !replicas.is_answered_by(self.local) {
            return Box::pin(self.count_of(&view, wanted, replicas, context)).await;
        }
        let mut here = context.child();
        let own = pin!(async { self.replica.count(wanted, &mut here).await.wait(&mut here).await });
        let has_others = replicas.are_several();
        let others = |_| self.count_of(&view, wanted, replicas.others(self.local), context);
        self.read_local_or_speculate(Reading::Count, has_others, own, others).await
    }

    /// Counts the columns that replicas know together, a page at a time: there may be more columns
    /// than fit into memory, and those of a page may be more than a message can hold.
    async fn count_of(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        replicas: ReadReplicas,
        context: &RequestContext,
    ) -> Result<usize, CoordinatorError> {
        let RowQuery { family, key, slice: all } = wanted;
        let super_name = all.super_name();
        let (mut count, mut start, mut at_a_time) = (0, Vec::new(), COUNTED_AT_A_TIME);
        loop {
            let page = Slice::range(super_name, &start, b"", false, at_a_time);
            let (wanted, mut scratch) = (RowQuery { family, key, slice: &page }, context.scratch());
            let row = self.read_from(view, wanted, replicas.clone(), &mut scratch).await;
            if matches!(row, Err(CoordinatorError::TooLarge(_))) && at_a_time > FEWEST_COUNTED {
                at_a_time = (at_a_time / 4).max(FEWEST_COUNTED);
                continue;
            }
            let row = row?;
            count += row.count;
            let Some(last) = row.cells.last().filter(|_| row.count >= at_a_time) else {
                return Ok(count);
            };
            let bytes: usize = row.cells.iter().map(Cell::encoded_length).sum();
            let fitting = self.messenger.max_body_bytes() / COUNTED_SHARE * row.count / bytes;
            at_a_time = fitting.clamp(FEWEST_COUNTED, COUNTED_AT_A_TIME);
            let is_group = self.schema.family(family).is_super() && super_name.is_none();
            start = if is_group { last.super_name() } else { last.name() }.to_vec();
            // The last one is the first of the next page.
            count -= 1;
        }
    }

    /// The replicas that a read may ask, if there are enough.
    pub(super) fn read_replicas(
        &self,
        view: &View,
        wanted: RowQuery<'_>,
        level: ConsistencyLevel,
    ) -> Result<ReadReplicas, CoordinatorError> {
        let Some(keyspace) = self.keyspace_of(wanted.family) else {
            return Ok(ReadReplicas::only(self.local));
        };
        let replicas = if view.is_alone {
            // All tokens are alike then, and a token may be costly to compute.
            view.own_read_replicas(keyspace, level)
        } else {
            let token = self.partitioner.token(wanted.key.as_bytes());
            view.read_replicas(keyspace, &token, level)
        };
        replicas.check().map(|()| replicas)
    }

    /// Reads from replicas, and repairs those that lack some of the data.
    async fn read_from(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        replicas: ReadReplicas,
        context: &mut RequestContext,
    ) -> Result<RowSlice, CoordinatorError> {
        let look = |_: &RowVersion| {};
        Ok(self.read_and_look(view, wanted, replicas, look, context).await?.0)
    }

    /// The same with a look at all that the replicas know together, deletions included.
    pub(super) async fn read_and_look<T>(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        replicas: ReadReplicas,
        look: impl FnOnce(&RowVersion) -> T,
        context: &mut RequestContext,
    ) -> Result<(RowSlice, T), CoordinatorError> {
        let mut scratch = context.scratch();
        let read = self.row_read(view, wanted, &replicas);
        let resolved = self.resolve(view, wanted, read, &mut scratch).await?;
        let family = self.schema.family(wanted.family);
        let answer = resolved.version.resolve(family, wanted.slice, resolved.now);
        let seen = look(&resolved.version);
        self.repair(view, wanted, resolved, &replicas, context).await?;
        drop(scratch);
        replica::take_row(context, wanted.key, &answer.cells)?;
        Ok((answer, seen))
    }

    /// A read that may ask these replicas.
    pub(super) fn row_read(
        &self,
        view: &View,
        wanted: RowQuery<'_>,
        replicas: &ReadReplicas,
    ) -> RowRead {
        let family = Arc::clone(self.schema.family(wanted.family));
        let candidates = replicas.live.iter().map(|it| (*it, view.takes_full_digests(*it)));
        let asked = (wanted.slice.clone(), self.replica.now_secs());
        RowRead::new(family, asked, replicas.requirement.clone(), candidates)
    }

    /// Asks replicas until enough have answered and agree. Rounds that are over give back the
    /// memory that they have taken of a scratch context.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        view: &View,
        wanted: RowQuery<'_>,
        read: RowRead,
        context: &mut RequestContext,
    ) -> Result<Resolved, CoordinatorError> {
        let RowQuery { family, key, slice } = wanted;
        let (key, slice, schema) = (key.clone(), slice.clone(), Arc::clone(&self.schema));
        let exchange = RowExchange { family, key, slice, schema };
        self.drive(view, read, exchange, self.latencies.row_delay(), context).await
    }
}

impl Coordinator {
    /// Reads on this node. If that fails and there are other replicas, they are asked instead; if
    /// it takes longer than usual they are asked as well, and the first answer wins. An answer from
    /// memory costs no clock reading.
    pub(super) async fn read_local_or_speculate<T, O>(
        &self,
        reading: Reading,
        has_others: bool,
        mut own: Pin<&mut impl Future<Output = Result<T, ReplicaError>>>,
        others: impl FnOnce(Reason) -> O,
    ) -> Result<T, CoordinatorError>
    where
        O: Future<Output = Result<T, CoordinatorError>>,
    {
        match own.as_mut().now_or_never() {
            Some(Ok(answer)) => Ok(answer),
            // Seldom, and large.
            Some(failed) => Box::pin(self.or_others(failed, has_others, others)).await,
            None => Box::pin(self.wait_or_speculate(reading, has_others, own, others)).await,
        }
    }

    /// The answer of this node, or that of others if it has failed.
    async fn or_others<T, O>(
        &self,
        own: Result<T, ReplicaError>,
        has_others: bool,
        others: impl FnOnce(Reason) -> O,
    ) -> Result<T, CoordinatorError>
    where
        O: Future<Output = Result<T, CoordinatorError>>,
    {
        match own {
            Err(error) if has_others && !error.is_too_large() => {
                self.warn_of_own("read", &error);
                others(Reason::Failed).await
            }
            answer => Ok(answer?),
        }
    }

    async fn wait_or_speculate<T, O>(
        &self,
        reading: Reading,
        has_others: bool,
        mut own: Pin<&mut impl Future<Output = Result<T, ReplicaError>>>,
        others: impl FnOnce(Reason) -> O,
    ) -> Result<T, CoordinatorError>
    where
        O: Future<Output = Result<T, CoordinatorError>>,
    {
        let began = Instant::now();
        let deadline = began + self.rpc_timeout();
        let until = if has_others { began + self.local_delay(reading) } else { deadline };
        let mut own = pin!(async {
            let answer = own.as_mut().await;
            if answer.is_ok() {
                self.record_own(reading, began.elapsed());
            }
            answer
        });
        if let Ok(answer) = timeout_at(until, own.as_mut()).await {
            return self.or_others(answer, has_others, others).await;
        }
        self.latencies.record_answer(self.local, began.elapsed());
        if !has_others {
            return Err(CoordinatorError::TimedOut(ReplicaCounts::NONE));
        }
        self.update_stats(|stats| stats.speculations += 1);
        let first = self.first_of(own, others(Reason::Slow));
        let done = timeout_at(deadline, first).await;
        done.map_err(|_| CoordinatorError::TimedOut(ReplicaCounts::NONE))?
    }

    /// The first answer, or the one that is no failure.
    async fn first_of<T>(
        &self,
        mut own: Pin<&mut impl Future<Output = Result<T, ReplicaError>>>,
        others: impl Future<Output = Result<T, CoordinatorError>>,
    ) -> Result<T, CoordinatorError> {
        let mut others = pin!(others);
        tokio::select! {
            biased;
            answer = own.as_mut() => match answer {
                Err(error) if !error.is_too_large() => {
                    self.warn_of_own("read", &error);
                    others.await
                }
                answer => Ok(answer?),
            },
            answer = others.as_mut() => match answer {
                Ok(_) | Err(CoordinatorError::TooLarge(_)) => answer,
                Err(_) => Ok(own.await?),
            },
        }
    }

    /// Answers from memory are not measured, since the clock would cost as much as the read.
    fn record_own(&self, reading: Reading, took: Duration) {
        match reading {
            Reading::Rows(1) => self.latencies.record(self.local, took),
            // Says little of how long a row takes.
            Reading::Rows(_) | Reading::Count => {}
            Reading::Range => {
                self.latencies.record_range(took);
                self.latencies.record_answer(self.local, took);
            }
        }
    }

    /// Delay before other replicas are asked as well.
    fn local_delay(&self, reading: Reading) -> Duration {
        let most = self.rpc_timeout() / 2;
        let delay = match reading {
            Reading::Rows(rows) => {
                let rows = u32::try_from(rows).unwrap_or(u32::MAX);
                self.latencies.row_delay().map(|delay| delay.saturating_mul(rows))
            }
            Reading::Count => None,
            Reading::Range => self.latencies.range_delay(),
        };
        delay.map_or(most, |delay| delay.min(most))
    }
}

impl ReadReplicas {
    /// The replicas of rows that each node keeps for itself.
    pub(super) fn only(local: IpAddr) -> Self {
        Self { live: Endpoints::from_iter([local]), requirement: Requirement::any(1) }
    }

    /// Whether there is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.live.len() > 1
    }

    /// The replicas to ask instead of this node: the others, if there are any.
    pub(super) fn others(mut self, local: IpAddr) -> Self {
        if self.are_several() {
            self.live.retain(|replica| *replica != local);
        }
        self
    }
}
