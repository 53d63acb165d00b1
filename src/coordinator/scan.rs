//! Reads of ranges of rows.
//!
//! A scan is an iterator of pages. Each page is cut where the ring changes hands, and each
//! sub-range is asked of its own replicas. Pages of several replicas count only up to the row that
//! all of them have reported, so rows that one of them lacks do not make the answer too short, or
//! end it early. If the first sub-range has few rows, several are read at once.

use super::coordinator::Coordinator;
use super::latencies::Latencies;
use super::quorum::{Exchange, Outgoing, Request};
use super::range_read::{self, MergedRow, Page, RangeRead, RowCursor};
use super::reads::{Reading, Reason};
use super::view::{ReadReplicas, View};
use super::{ConsistencyLevel, CoordinatorError};
use crate::base::context::{RequestContext, TooLarge};
use crate::base::worker::Spawner;
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::Slice;
use crate::net::Verb;
use crate::net::bodies::{RangeCommand, RangeReply};
use crate::net::extensions::TAKES_REFUSAL;
use crate::replica::{self, RangeQuery, Replica, ReplicaError, Row, RowQuery, VersionedRow};
use crate::ring::{Partitioner, RowRange};
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Sub-ranges that are read at once at most.
const MAX_CONCURRENT: usize = 16;

/// Rows of a page that are repaired at once at most, so that queues to other nodes hold them.
const REPAIRED_AT_A_TIME: usize = 256;

/// Cells of pages that are merged without leaving the connection's thread.
const MERGED_INLINE: usize = 4096;

/// Factor by which the next page has fewer rows where one is too large.
const FEWER: usize = 8;

/// A read of the first rows of ranges.
#[derive(Debug, Clone, Copy)]
pub struct ScanQuery<'a> {
    /// The column family.
    pub family: FamilyId,
    /// The part of each row that is wanted.
    pub slice: &'a Slice,
    /// Number of replicas that have to answer.
    pub level: ConsistencyLevel,
    /// Most rows of all pages.
    pub max_rows: usize,
    /// Most rows of a page.
    pub page_rows: usize,
}

/// The rows of some ranges, one range after the other, page by page. Rows of which nothing is
/// visible count as well, as long as something of them is stored anywhere.
#[derive(Debug)]
pub struct Scan<'a> {
    coordinator: &'a Arc<Coordinator>,
    query: ScanQuery<'a>,
    ranges: std::vec::IntoIter<RowRange>,
    /// The place in the range that is being read.
    cursor: Option<RowCursor>,
    /// Rows that are still wanted.
    left: usize,
    page_rows: usize,
}

impl Scan<'_> {
    /// Sets the number of rows of the pages that follow.
    pub fn set_page_rows(&mut self, rows: usize) {
        self.page_rows = rows;
    }

    /// The next rows, with the context that holds their memory; `None` at the end. There may be no
    /// rows although others follow.
    pub async fn next_page(
        &mut self,
        context: &RequestContext,
    ) -> Result<Option<(Vec<Row>, RequestContext)>, CoordinatorError> {
        while self.left > 0 {
            let mut scratch = context.scratch();
            let Some(cursor) = self.cursor.as_mut().filter(|cursor| !cursor.is_at_end()) else {
                let Some(range) = self.ranges.next() else { break };
                self.cursor = Some(RowCursor::new(self.coordinator.partitioner, range));
                continue;
            };
            let wanted = self.page_rows.min(self.left);
            let asked = cursor.rows_for(wanted);
            let page = self.coordinator.read_page(self.query, cursor.range(), asked, &mut scratch);
            let page = match page.await {
                Err(CoordinatorError::TooLarge(_)) if wanted > 1 => {
                    self.page_rows = (wanted / FEWER).max(1);
                    continue;
                }
                page => page?,
            };
            let page = if cursor.is_at_start() && asked == self.left {
                // The only page of a range, as usual, needs no cursor.
                self.cursor = None;
                page
            } else {
                cursor.take(asked, page).take(self.left).collect()
            };
            self.left -= page.len();
            return Ok(Some((page, scratch)));
        }
        Ok(None)
    }
}

/// A part of a range whose rows all have the same replicas.
#[derive(Debug, Clone)]
struct SubRange {
    range: RowRange,
    replicas: ReadReplicas,
}

/// A part of a range that is read in one go: mostly one sub-range. Adjacent ones that this node
/// answers alone are read together, since one scan is cheaper than several; if it fails the other
/// replicas of each sub-range are asked.
#[derive(Debug, Clone)]
struct Piece {
    range: RowRange,
    sub_ranges: SmallVec<[SubRange; 1]>,
    /// Whether this node alone can answer.
    is_own: bool,
}

/// Asks the replicas of a range.
struct RangeExchange {
    command: RangeCommand,
    schema: Arc<Schema>,
    partitioner: Partitioner,
}

impl Exchange for RangeExchange {
    type What = ();
    type Reply = Vec<VersionedRow>;

    const ACTION: &'static str = "read";
    const IS_READ: bool = true;

    fn encode<'a>(
        &'a self,
        view: &View,
        request: &'a Request<()>,
    ) -> Result<Outgoing<'a>, CoordinatorError> {
        let body = self.command.encode(&self.schema, self.partitioner)?.into();
        let refusals = view.gives_refusals(request.to).then_some(TAKES_REFUSAL);
        Ok(Outgoing { verb: Verb::RangeSlice, headers: refusals.into_iter().collect(), body })
    }

    fn decode(&self, from: IpAddr, body: &[u8]) -> Result<Vec<VersionedRow>, String> {
        let RangeCommand { family, slice, range, max_rows } = &self.command;
        let family = self.schema.family(*family);
        let reply = RangeReply::decode(body, family);
        let mut rows = reply
            .map_err(|error| format!("an answer of {from} to a range read is not sound: {error}"))?
            .rows;
        for (_, row) in &mut rows {
            row.keep_within(family, slice);
        }
        if range_read::is_sound(self.partitioner, range, *max_rows, &rows) {
            Ok(rows)
        } else {
            Err(format!("{from} has answered a range read with other rows"))
        }
    }

    async fn do_here(
        self: Arc<Self>,
        replica: Arc<Replica>,
        (): (),
        mut context: RequestContext,
    ) -> Result<Vec<VersionedRow>, ReplicaError> {
        let RangeCommand { family, ref slice, ref range, max_rows } = self.command;
        let rows = RangeQuery { family, range, slice, max_rows };
        let scan = replica.scan_versions(rows, &mut context).await;
        scan.wait(&mut context).await
    }

    fn take_memory(
        &self,
        rows: &Vec<VersionedRow>,
        context: &RequestContext,
    ) -> Result<(), TooLarge> {
        rows.iter().try_for_each(|(key, row)| replica::take_row(context, key, &row.cells))
    }

    fn record(&self, latencies: &Latencies, from: IpAddr, took: Duration) {
        latencies.record_answer(from, took);
    }
}

impl Coordinator {
    /// Begins to read a slice of each of the first rows of these ranges.
    pub fn scan<'a>(self: &'a Arc<Self>, query: ScanQuery<'a>, ranges: Vec<RowRange>) -> Scan<'a> {
        let ScanQuery { max_rows, page_rows, .. } = query;
        let ranges = ranges.into_iter();
        Scan { coordinator: self, query, ranges, cursor: None, left: max_rows, page_rows }
    }

    /// Reads the first rows of a range.
    async fn read_page(
        self: &Arc<Self>,
        query: ScanQuery<'_>,
        range: &RowRange,
        max_rows: usize,
        context: &mut RequestContext,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let view = self.trusted_view()?;
        let mut pieces = self.pieces(&view, query, range);
        let mut rows: Vec<Row> = Vec::new();
        let (mut at_once, mut most_at_once) = (1, MAX_CONCURRENT);
        while rows.len() < max_rows && !pieces.is_empty() {
            let wanted = max_rows - rows.len();
            let batch: Vec<Piece> = pieces.drain(..at_once.min(pieces.len())).collect();
            let (count, before) = (batch.len(), rows.len());
            let scratches: Vec<RequestContext> = batch.iter().map(|_| context.scratch()).collect();
            let reads = batch.iter().cloned().zip(scratches).map(|(piece, mut scratch)| {
                let (coordinator, view) = (Arc::clone(self), Arc::clone(&view));
                async move {
                    let read = coordinator.read_piece(&view, query, piece, wanted, &mut scratch);
                    let found = read.await;
                    scratch.release();
                    (found, scratch)
                }
            });
            for (place, (found, scratch)) in join_all(reads).await.into_iter().enumerate() {
                if rows.len() >= max_rows {
                    // Later rows are not wanted, and neither are their errors.
                    break;
                }
                if matches!(found, Err(CoordinatorError::TooLarge(_))) && count > 1 {
                    // Perhaps only together with rows that are not wanted.
                    batch[place..].iter().rev().for_each(|it| pieces.push_front(it.clone()));
                    most_at_once = 1;
                    break;
                }
                let found = found?;
                drop(scratch);
                for (key, row) in found.into_iter().take(max_rows - rows.len()) {
                    replica::take_row(context, &key, &row.cells)?;
                    rows.push((key, row));
                }
            }
            let found = rows.len() - before;
            let rest = max_rows - rows.len();
            at_once = (rest * count).div_ceil(found.max(1)).clamp(1, most_at_once);
        }
        Ok(rows)
    }

    fn pieces(&self, view: &View, query: ScanQuery<'_>, range: &RowRange) -> VecDeque<Piece> {
        let keyspace = self.keyspace_of(query.family);
        let is_cut = keyspace.is_some() && view.ring.len() > 1;
        let mut pieces: VecDeque<Piece> = VecDeque::new();
        for range in if is_cut { view.ring.split(range) } else { vec![range.clone()] } {
            let replicas = keyspace.map_or_else(
                || ReadReplicas::only(self.local),
                |keyspace| view.read_replicas(keyspace, range.right_token(), query.level),
            );
            let is_own = replicas.is_answered_by(self.local);
            let follows = |last: &&mut Piece| last.is_own && is_own && follows(&range, &last.range);
            if let Some(last) = pieces.back_mut().filter(follows) {
                last.range.end = range.end.clone();
                last.sub_ranges.push(SubRange { range, replicas });
            } else {
                pieces.push_back(self.piece(SubRange { range, replicas }));
            }
        }
        pieces
    }

    fn piece(&self, sub_range: SubRange) -> Piece {
        let is_own = sub_range.replicas.is_answered_by(self.local);
        let range = sub_range.range.clone();
        Piece { range, sub_ranges: SmallVec::from_iter([sub_range]), is_own }
    }

    async fn read_piece(
        self: &Arc<Self>,
        view: &Arc<View>,
        query: ScanQuery<'_>,
        piece: Piece,
        max_rows: usize,
        context: &mut RequestContext,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let ScanQuery { family, slice, .. } = query;
        let Piece { range, mut sub_ranges, is_own } = piece;
        if !is_own && let Some(only) = sub_ranges.pop() {
            only.replicas.check()?;
            return Box::pin(self.read_replicas_of(view, query, only, max_rows, context)).await;
        }
        let has_others = sub_ranges.iter().any(|it| it.replicas.are_several());
        let (mut here, mut theirs) = (context.child(), context.child());
        let own = pin!(async {
            let rows = RangeQuery { family, range: &range, slice, max_rows };
            let rows = self.replica.scan(rows, &mut here).await.wait(&mut here).await?;
            Ok((rows, here))
        });
        let others = |reason| async move {
            let (mut rows, count) = (Vec::new(), sub_ranges.len());
            for SubRange { range, replicas } in sub_ranges {
                let rest = max_rows - rows.len();
                if rest == 0 {
                    break;
                }
                theirs.release();
                rows.extend(if reason == Reason::Failed && count > 1 {
                    // One may be damaged, and the others readable.
                    let piece = self.piece(SubRange { range, replicas });
                    Box::pin(self.read_piece(view, query, piece, rest, &mut theirs)).await?
                } else {
                    let sub_range = SubRange { range, replicas: replicas.others(self.local) };
                    self.read_replicas_of(view, query, sub_range, rest, &theirs).await?
                });
            }
            Ok((rows, theirs))
        };
        let (rows, used) =
            self.read_local_or_speculate(Reading::Range, has_others, own, others).await?;
        *context = used;
        Ok(rows)
    }

    /// Asks replicas for their rows, also if this node could answer.
    async fn read_replicas_of(
        self: &Arc<Self>,
        view: &Arc<View>,
        query: ScanQuery<'_>,
        sub_range: SubRange,
        max_rows: usize,
        context: &RequestContext,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let SubRange { range, replicas } = sub_range;
        let mut scratch = context.scratch();
        let (family, slice) = (query.family, query.slice.clone());
        let command = RangeCommand { family, slice, range, max_rows };
        let (schema, partitioner) = (Arc::clone(&self.schema), self.partitioner);
        let exchange = RangeExchange { command, schema, partitioner };
        let (read, began) = (RangeRead::new(&replicas), Instant::now());
        let delay = self.latencies.range_delay();
        let pages = self.drive(view, read, exchange, delay, &mut scratch).await?;
        self.latencies.record_range(began.elapsed());
        let mut merged = self.merge(query, max_rows, pages).await?.into_iter().take(max_rows);
        let mut rows = Vec::new();
        loop {
            // Each may have to wait for a repair.
            let some = merged.by_ref().take(REPAIRED_AT_A_TIME);
            let some = some.map(|row| self.finish_row(view, query, row, &replicas, &scratch));
            let some = join_all(some).await;
            if some.is_empty() {
                break;
            }
            for row in some {
                rows.push(row?);
            }
            // Other connections of this thread want to be served as well.
            tokio::task::yield_now().await;
        }
        drop(scratch);
        for (key, row) in &rows {
            replica::take_row(context, key, &row.cells)?;
        }
        Ok(rows)
    }

    async fn merge(
        &self,
        query: ScanQuery<'_>,
        max_rows: usize,
        pages: Vec<Page>,
    ) -> Result<Vec<MergedRow>, CoordinatorError> {
        let (family, slice) = (Arc::clone(self.schema.family(query.family)), query.slice.clone());
        let cells = pages.iter().flat_map(|page| &page.rows).map(|(_, row)| row.cells.len());
        let is_small = cells.sum::<usize>() <= MERGED_INLINE;
        let partitioner = self.partitioner;
        let now = self.replica.now_secs();
        let merge = move || range_read::merge(&family, partitioner, (&slice, now), max_rows, pages);
        let spawner = if is_small { Spawner::Inline } else { self.replica.spawner() };
        Ok(spawner.run(merge).await.map_err(ReplicaError::from)?)
    }

    /// Visible part of a merged row, for the client; replicas get the parts that they lack.
    async fn finish_row(
        self: &Arc<Self>,
        view: &Arc<View>,
        query: ScanQuery<'_>,
        row: MergedRow,
        replicas: &ReadReplicas,
        context: &RequestContext,
    ) -> Result<Row, CoordinatorError> {
        let MergedRow { key, mut resolved, is_short } = row;
        let wanted = RowQuery { family: query.family, key: &key, slice: query.slice };
        let mut scratch = context.scratch();
        if is_short {
            // Some columns were cut off that are wanted now: seldom, so that the row is read again.
            let read = self.row_read(view, wanted, replicas);
            resolved = self.resolve(view, wanted, read, &mut scratch).await?;
        }
        let family = self.schema.family(query.family);
        let slice = resolved.version.resolve(family, query.slice, resolved.now);
        self.repair(view, wanted, resolved, replicas, &scratch).await?;
        Ok((key, slice))
    }
}

/// Whether a range begins where another ends.
fn follows(range: &RowRange, other: &RowRange) -> bool {
    match (&other.end, &range.start) {
        (Bound::Included(end), Bound::Excluded(start)) => end == start,
        _ => false,
    }
}
