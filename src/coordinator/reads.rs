//! Reads of rows by key.

use super::answers::{Answers, Next};
use super::coordinator::Coordinator;
use super::own_reads::{Reading, Reason};
use super::requirement::Requirement;
use super::row_read::{Ask, Reply, Request, Resolved, RowRead};
use super::view::{Endpoints, ReadReplicas, View};
use super::{ConsistencyLevel, CoordinatorError};
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::net::Verb;
use crate::net::bodies::{ReadCommand, ReadReply};
use crate::net::extensions::{FULL_DIGEST, TAKES_REFUSAL};
use crate::net::messenger::{self, Replies};
use crate::replica::{PendingRead, ReplicaError, RowQuery, Ticket};
use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Rows of one request that are read before other requests on the thread get their turn.
const ROWS_AT_A_TIME: usize = 32;

/// Rows of one request that threads read at once: more would only make other requests wait.
const READS_AT_ONCE: usize = 16;

/// Columns of one row that are counted at a time, where they have to be compared for that.
const COUNTED_AT_A_TIME: usize = 10_000;

/// Fewest of them: the last one is the first of the next page.
const FEWEST_COUNTED: usize = 2;

/// What a page of columns that are counted takes of the longest message, about, if they are long.
const COUNTED_SHARE: usize = 8;

/// Who has read a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Own,
    Others,
}

/// What comes in for a read.
#[derive(Debug)]
struct Arrival {
    round: u32,
    from: IpAddr,
    /// `None` for what is no answer to the question.
    reply: Option<Result<Reply, ReplicaError>>,
}

/// Takes the replies to a read off the threads that receive them.
struct Inbox {
    coordinator: Arc<Coordinator>,
    family: FamilyId,
    key: RowKey,
    /// All rounds are about these columns, if not always about as many.
    slice: Slice,
    arrivals: mpsc::UnboundedSender<Arrival>,
}

impl Replies for Inbox {
    fn on_reply(&self, round: u32, from: IpAddr, body: &[u8], took: Duration) {
        self.coordinator.latencies.record(from, took);
        let family = self.coordinator.schema.family(self.family);
        let reply = match ReadReply::decode(body, family) {
            Ok(ReadReply::Data { key, mut version }) if key == self.key => {
                version.keep_within(family, &self.slice);
                Some(Reply::Data(version))
            }
            Ok(ReadReply::Digest(digest)) => Some(Reply::Digest(digest)),
            Ok(ReadReply::Data { key, .. }) => {
                let line =
                    format_args!("{from} has answered with row {key} instead of {}", self.key);
                self.coordinator.messenger.warn(from, line);
                None
            }
            Err(error) => {
                let line = format_args!("an answer of {from} to a read is not sound: {error}");
                self.coordinator.messenger.warn(from, line);
                None
            }
        };
        // Nobody listens any more when the read is done.
        let _ = self.arrivals.send(Arrival { round, from, reply: reply.map(Ok) });
    }

    fn on_refusal(&self, round: u32, from: IpAddr, why: &str) {
        let refused = Some(Err(ReplicaError::TooLarge(why.to_owned())));
        let _ = self.arrivals.send(Arrival { round, from, reply: refused });
    }

    fn on_timeout(&self, _round: u32, missing: &[IpAddr]) {
        for endpoint in missing {
            self.coordinator.latencies.record_silence(*endpoint, self.coordinator.rpc_timeout);
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Reads a slice of a row. The ticket is held until the answer has been written.
    pub async fn read(
        self: &Arc<Self>,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        level: ConsistencyLevel,
        ticket: &mut Ticket,
    ) -> Result<RowSlice, CoordinatorError> {
        let view = self.view();
        let wanted = RowQuery { family, key, slice };
        let replicas = self.read_replicas(&view, wanted, level)?;
        self.check_in_background(&view, wanted, &replicas);
        if !replicas.is_answered_by(self.local) {
            return self.read_from(&view, wanted, replicas, ticket).await;
        }
        let own = async {
            let row = self.replica.read(wanted, ticket).await.wait(ticket).await?;
            Ok((row, Reader::Own))
        };
        let has_others = replicas.are_several();
        let others = |_| async {
            // The own one may be held by a read that stands still.
            let (replicas, mut theirs) = (replicas.others(self.local), self.ticket());
            let row = self.read_from(&view, wanted, replicas, &mut theirs).await?;
            Ok((row, Reader::Others))
        };
        let (row, reader) = self.own_or_others(Reading::Rows(1), has_others, own, others).await?;
        if reader == Reader::Others {
            ticket.release();
            ticket.charge_row(key, &row.cells)?;
        }
        Ok(row)
    }

    /// Reads the same slice of several rows, in the order of the keys. Nothing is read unless
    /// enough replicas of all rows are alive; what is not in memory here is read in parallel.
    pub async fn read_many(
        self: &Arc<Self>,
        family: FamilyId,
        keys: &[RowKey],
        slice: &Slice,
        level: ConsistencyLevel,
        ticket: &mut Ticket,
    ) -> Result<Vec<RowSlice>, CoordinatorError> {
        let view = self.view();
        let mut replicas = Vec::with_capacity(keys.len());
        for key in keys {
            replicas.push(self.read_replicas(&view, RowQuery { family, key, slice }, level)?);
        }
        let view = &view;
        let each_of = |replicas: Vec<ReadReplicas>, ticket: Ticket| {
            let reads = keys.iter().zip(replicas).map(move |(key, replicas)| {
                let (coordinator, view) = (Arc::clone(self), Arc::clone(view));
                let (key, slice, mut part) = (key.clone(), slice.clone(), ticket.child());
                async move {
                    let wanted = RowQuery { family, key: &key, slice: &slice };
                    coordinator.read_from(&view, wanted, replicas, &mut part).await
                }
            });
            async { super::concurrently::all(reads).await.into_iter().collect() }
        };
        for (key, replicas) in keys.iter().zip(&replicas) {
            self.check_in_background(view, RowQuery { family, key, slice }, replicas);
        }
        if !replicas.iter().all(|replicas| replicas.is_answered_by(self.local)) {
            return each_of(replicas, ticket.child()).await;
        }
        let has_others = replicas.iter().any(ReadReplicas::are_several);
        let mut here = ticket.scratch();
        // What fails lets others read.
        let own = async move {
            let rows = self.read_many_here(family, keys, slice, &mut here).await?;
            Ok((rows, Some(here)))
        };
        let others = |reason| {
            // Each row on its own: one may be damaged, and the others at hand.
            let replicas = match reason {
                Reason::Failed => replicas,
                Reason::Slow => replicas.into_iter().map(|it| it.others(self.local)).collect(),
            };
            let rows = each_of(replicas, ticket.child());
            async { rows.await.map(|rows| (rows, None)) }
        };
        let reading = Reading::Rows(keys.len());
        let (rows, here) = self.own_or_others(reading, has_others, own, others).await?;
        if let Some(here) = here {
            *ticket = here;
        }
        Ok(rows)
    }

    async fn read_many_here(
        &self,
        family: FamilyId,
        keys: &[RowKey],
        slice: &Slice,
        ticket: &mut Ticket,
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
                rows.push(first.wait(ticket).await?);
            }
            match self.replica.read(RowQuery { family, key, slice }, ticket).await {
                PendingRead::Ready(answer) if begun.is_empty() => rows.push(answer?),
                pending => begun.push_back(pending),
            }
        }
        for reading in begun {
            rows.push(reading.wait(ticket).await?);
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
    ) -> Result<usize, CoordinatorError> {
        let view = self.view();
        let all = Slice::all(super_name);
        let wanted = RowQuery { family, key, slice: &all };
        let replicas = self.read_replicas(&view, wanted, level)?;
        self.check_in_background(&view, wanted, &replicas);
        let ticket = self.ticket();
        if !replicas.is_answered_by(self.local) {
            return self.count_of(&view, wanted, replicas, &ticket).await;
        }
        let mut here = ticket.child();
        let own = async { self.replica.count(wanted, &mut here).await.wait(&mut here).await };
        let has_others = replicas.are_several();
        let others = |_| self.count_of(&view, wanted, replicas.others(self.local), &ticket);
        self.own_or_others(Reading::Count, has_others, own, others).await
    }

    /// Counts what replicas know together, a page at a time: there may be more columns than fit
    /// into memory, and those of a page may be more than a message can hold.
    async fn count_of(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        replicas: ReadReplicas,
        ticket: &Ticket,
    ) -> Result<usize, CoordinatorError> {
        let RowQuery { family, key, slice: all } = wanted;
        let super_name = all.super_name();
        let (mut count, mut start, mut at_a_time) = (0, Vec::new(), COUNTED_AT_A_TIME);
        loop {
            let page = Slice::range(super_name, &start, b"", false, at_a_time);
            let (wanted, mut scratch) = (RowQuery { family, key, slice: &page }, ticket.scratch());
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

    /// Tells that this node could not do its part, and others have to do.
    pub(super) fn warn_of_own(&self, error: &ReplicaError) {
        let line = format_args!("this node could not read what it is a replica of: {error}");
        self.messenger.warn(self.local, line);
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
        let replicas = if view.is_alone() {
            // All tokens are alike then, and a token may be costly to compute.
            view.own_read_replicas(keyspace, level)
        } else {
            let token = self.partitioner.token(wanted.key.as_bytes());
            view.read_replicas(keyspace, &token, level)
        };
        if replicas.are_enough() { Ok(replicas) } else { Err(CoordinatorError::Unavailable) }
    }

    /// Reads from replicas, and repairs those that lack something of what was read.
    async fn read_from(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        replicas: ReadReplicas,
        ticket: &mut Ticket,
    ) -> Result<RowSlice, CoordinatorError> {
        let deadline = Instant::now() + self.rpc_timeout;
        let mut scratch = ticket.scratch();
        let read = self.row_read(view, wanted, &replicas);
        let resolved = self.resolve(view, wanted, read, deadline, &mut scratch).await?;
        let family = self.schema.family(wanted.family);
        let answer = resolved.version.resolve(family, wanted.slice);
        self.repair(wanted, resolved, &replicas, deadline).await?;
        drop(scratch);
        ticket.charge_row(wanted.key, &answer.cells)?;
        Ok(answer)
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
        RowRead::new(family, wanted.slice.clone(), replicas.requirement.clone(), candidates)
    }

    /// Asks replicas until enough have answered and agree. Rounds that are over give back the room
    /// that they have taken by a scratch ticket.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        view: &View,
        wanted: RowQuery<'_>,
        mut read: RowRead,
        deadline: Instant,
        ticket: &mut Ticket,
    ) -> Result<Resolved, CoordinatorError> {
        let (arrivals, mut answers) = Answers::new(self.latencies.patience(), deadline);
        let replies = Arc::new(Inbox {
            coordinator: Arc::clone(self),
            family: wanted.family,
            key: wanted.key.clone(),
            slice: wanted.slice.clone(),
            arrivals,
        });
        let mut requests = read.begin();
        loop {
            for request in std::mem::take(&mut requests) {
                self.carry(view, wanted, &request, &replies, ticket)?;
            }
            match answers.next().await {
                // Takes no room: it is dropped here.
                Next::Arrived(Arrival { round, .. }) if round != read.round() => {}
                Next::Arrived(Arrival { round, from, reply: Some(Ok(reply)) }) => {
                    if from != self.local {
                        take_room(&reply, wanted.key, ticket)?;
                    }
                    requests = read.on_reply(round, from, reply);
                    if !requests.is_empty() {
                        ticket.renew();
                        answers.begin_round();
                    }
                }
                Next::Arrived(Arrival { reply: Some(Err(error)), .. }) => {
                    if read.has_only_one() || error.is_too_large() {
                        return Err(error.into());
                    }
                    self.warn_of_own(&error);
                    requests = read.on_slow();
                }
                Next::Arrived(Arrival { reply: None, .. }) => requests = read.on_slow(),
                Next::AreSlow => {
                    requests = read.on_slow();
                    self.counters.speculations.fetch_add(requests.len() as u64, Ordering::Relaxed);
                    if read.is_exhausted() {
                        answers.ask_no_more();
                    }
                }
                Next::IsOver => {
                    requests = read.on_deadline().ok_or(CoordinatorError::TimedOut)?;
                    ticket.renew();
                    answers.extend(Instant::now() + self.rpc_timeout);
                }
            }
            if read.is_resolved() {
                return read.resolved().ok_or(CoordinatorError::TimedOut);
            }
        }
    }

    /// Asks one replica.
    fn carry(
        self: &Arc<Self>,
        view: &View,
        wanted: RowQuery<'_>,
        request: &Request,
        replies: &Arc<Inbox>,
        ticket: &Ticket,
    ) -> Result<(), CoordinatorError> {
        let RowQuery { family, key, .. } = wanted;
        let Request { to, ask, ref slice, round } = *request;
        if to == self.local {
            let (replica, replies) = (Arc::clone(&self.replica), Arc::clone(replies));
            let began = Instant::now();
            // It holds up others only while it reads, not while the other replicas are waited for.
            let (key, slice, mut part) = (key.clone(), slice.clone(), ticket.child());
            self.begin_read(replies.arrivals.clone(), ticket.child(), async move {
                let row = RowQuery { family, key: &key, slice: &slice };
                let read = replica.read_version(row, &mut part).await;
                let reply = Some(read.wait(&mut part).await.map(Reply::Data));
                if let Some(Ok(_)) = reply {
                    replies.coordinator.latencies.record_answer(to, began.elapsed());
                }
                Arrival { round, from: to, reply }
            });
            return Ok(());
        }
        let command = ReadCommand {
            family,
            key: key.clone(),
            slice: slice.clone(),
            digest_only: ask == Ask::Digest,
        };
        let body = command.encode(&self.schema)?;
        let is_full = ask == Ask::Digest && view.takes_full_digests(to);
        let mut headers = if is_full { vec![FULL_DIGEST] } else { Vec::new() };
        headers.extend(view.gives_refusals(to).then_some(TAKES_REFUSAL));
        let message = messenger::Request { verb: Verb::Read, headers, body: &body, tag: round };
        let replies: Arc<dyn Replies> = Arc::clone(replies) as _;
        Ok(self.messenger.request(message, &[to], &replies)?)
    }
}

/// What comes over the network counts towards the size of the answer as well.
fn take_room(reply: &Reply, key: &RowKey, ticket: &Ticket) -> Result<(), CoordinatorError> {
    match reply {
        Reply::Data(version) => Ok(ticket.charge_row(key, &version.cells)?),
        Reply::Digest(_) => Ok(()),
    }
}

impl ReadReplicas {
    /// Those of what each node keeps for itself.
    pub(super) fn only(local: IpAddr) -> Self {
        Self { live: Endpoints::from_iter([local]), requirement: Requirement::any(1) }
    }
}
