//! Reads of ranges of rows.
//!
//! A range is cut where the ring changes hands, and each piece is asked of its own replicas. Of
//! what several replicas send only as much counts as all of them have told of: so rows that one of
//! them lacks do not make the answer too short, or end it early. Where the first piece has brought
//! few rows, several pieces are read at once.

use super::answers::{Answers, Next};
use super::coordinator::Coordinator;
use super::own_reads::{Reading, Reason};
use super::range_read::{self, MergedRow, Page};
use super::requirement::Requirement;
use super::row_cursor::RowCursor;
use super::row_read::Resolved;
use super::view::{Endpoints, ReadReplicas, View};
use super::{ConsistencyLevel, CoordinatorError};
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::net::Verb;
use crate::net::bodies::{RangeCommand, RangeReply};
use crate::net::extensions::TAKES_REFUSAL;
use crate::net::messenger::{Replies, Request};
use crate::replica::{Blocking, RangeQuery, ReplicaError, Row, RowQuery, Ticket, VersionedRow};
use crate::ring::RowRange;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Pieces of a range that are read at once at most.
const MAX_CONCURRENT: usize = 16;

/// Rows of a page that are repaired at once at most, so that queues to other nodes hold them.
const REPAIRED_AT_A_TIME: usize = 256;

/// Cells of pages that are merged without leaving the connection's thread.
const MERGED_INLINE: usize = 4096;

/// So many times fewer rows are read at a time where more are too large.
const FEWER: usize = 16;

/// What is read of each row of which ranges.
#[derive(Debug, Clone, Copy)]
struct Scan<'a> {
    family: FamilyId,
    slice: &'a Slice,
    level: ConsistencyLevel,
}

/// A stretch of the ring whose rows all have the same replicas.
#[derive(Debug, Clone)]
struct Stretch {
    range: RowRange,
    replicas: ReadReplicas,
}

/// What is read in one go: mostly one stretch. Those in a row that this node answers alone are read
/// together, since one scan is cheaper than several; what it cannot read is asked of the others of
/// each stretch, who know nothing of the rest.
#[derive(Debug, Clone)]
struct Piece {
    range: RowRange,
    stretches: SmallVec<[Stretch; 1]>,
}

impl Stretch {
    /// The same without this node, if there are others.
    fn of_others(self, local: IpAddr) -> Self {
        let Self { range, replicas } = self;
        Self { range, replicas: replicas.others(local) }
    }
}

impl From<Stretch> for Piece {
    fn from(stretch: Stretch) -> Self {
        Self { range: stretch.range.clone(), stretches: SmallVec::from_iter([stretch]) }
    }
}

impl Piece {
    /// Whether this node alone can answer.
    fn is_answered_by(&self, local: IpAddr) -> bool {
        self.stretches.iter().all(|stretch| stretch.replicas.is_answered_by(local))
    }

    /// Takes what comes behind it.
    fn append(&mut self, stretch: Stretch) {
        self.range.end = stretch.range.end.clone();
        self.stretches.push(stretch);
    }
}

#[derive(Debug)]
struct Arrival {
    from: IpAddr,
    /// `None` for what is no answer to the question.
    rows: Option<Result<Vec<VersionedRow>, ReplicaError>>,
}

/// Takes the replies to a scan off the threads that receive them.
struct Inbox {
    coordinator: Arc<Coordinator>,
    family: FamilyId,
    slice: Slice,
    arrivals: mpsc::UnboundedSender<Arrival>,
}

impl Replies for Inbox {
    fn on_reply(&self, _tag: u32, from: IpAddr, body: &[u8], took: Duration) {
        self.coordinator.latencies.record_answer(from, took);
        let family = self.coordinator.schema.family(self.family);
        let rows = RangeReply::decode(body, family).map(|mut reply| {
            reply.rows.iter_mut().for_each(|(_, row)| row.keep_within(family, &self.slice));
            Ok(reply.rows)
        });
        let rows = rows.inspect_err(|error| {
            let line = format_args!("an answer of {from} to a range read is not sound: {error}");
            self.coordinator.messenger.warn(from, line);
        });
        // Nobody listens any more when the scan is done.
        let _ = self.arrivals.send(Arrival { from, rows: rows.ok() });
    }

    fn on_refusal(&self, _tag: u32, from: IpAddr, why: &str) {
        let refused = Some(Err(ReplicaError::TooLarge(why.to_owned())));
        let _ = self.arrivals.send(Arrival { from, rows: refused });
    }

    fn on_timeout(&self, _tag: u32, missing: &[IpAddr]) {
        for endpoint in missing {
            self.coordinator.latencies.record_silence(*endpoint, self.coordinator.rpc_timeout);
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("family", &self.family).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Reads a slice of each of the first `max_rows` rows of these ranges, one range after the
    /// other. Rows of which nothing is visible count as well, as long as something of them is
    /// stored anywhere.
    pub async fn scan(
        self: &Arc<Self>,
        family: FamilyId,
        ranges: &[RowRange],
        slice: &Slice,
        max_rows: usize,
        level: ConsistencyLevel,
        ticket: &mut Ticket,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let view = self.view();
        let scan = Scan { family, slice, level };
        let mut pieces = self.pieces(&view, scan, ranges);
        let mut rows: Vec<Row> = Vec::new();
        let (mut at_once, mut most_at_once) = (1, MAX_CONCURRENT);
        while rows.len() < max_rows && !pieces.is_empty() {
            let wanted = max_rows - rows.len();
            let batch: Vec<Piece> = pieces.drain(..at_once.min(pieces.len())).collect();
            let count = batch.len();
            let before = rows.len();
            let tickets: Vec<Ticket> = batch.iter().map(|_| ticket.scratch()).collect();
            let reads = batch.iter().cloned().zip(tickets).map(|(piece, mut part)| {
                let (coordinator, view) = (Arc::clone(self), Arc::clone(&view));
                async move {
                    let read = coordinator.scan_piece(&view, scan, piece, wanted, &mut part);
                    let found = read.await;
                    part.release();
                    (found, part)
                }
            });
            let found = super::concurrently::all(reads).await;
            for (place, (found, part)) in found.into_iter().enumerate() {
                if rows.len() >= max_rows {
                    // What lies behind is not wanted, and neither are its errors.
                    break;
                }
                let is_too_large = matches!(found, Err(CoordinatorError::TooLarge(_)));
                if is_too_large && count > 1 {
                    // Perhaps only together with what is not wanted.
                    batch[place..].iter().rev().for_each(|it| pieces.push_front(it.clone()));
                    most_at_once = 1;
                    break;
                }
                if is_too_large && !batch[place].is_answered_by(self.local) {
                    drop(part);
                    let (piece, view) = (batch[place].clone(), &view);
                    rows.extend(self.scan_by_fewer(view, scan, piece, wanted, ticket).await?);
                    break;
                }
                let found = found?;
                drop(part);
                for (key, row) in found.into_iter().take(max_rows - rows.len()) {
                    ticket.charge_row(&key, &row.cells)?;
                    rows.push((key, row));
                }
            }
            let found = rows.len() - before;
            let rest = max_rows - rows.len();
            at_once = (rest * count).div_ceil(found.max(1)).clamp(1, most_at_once);
        }
        Ok(rows)
    }

    fn pieces(&self, view: &View, scan: Scan<'_>, ranges: &[RowRange]) -> VecDeque<Piece> {
        let Some(keyspace) = self.keyspace_of(scan.family) else {
            let replicas = ReadReplicas::only(self.local);
            let own =
                |range: &RowRange| Stretch { range: range.clone(), replicas: replicas.clone() };
            return ranges.iter().map(|range| Piece::from(own(range))).collect();
        };
        let mut pieces: VecDeque<Piece> = VecDeque::new();
        for range in ranges {
            let cut =
                if view.ring.len() <= 1 { vec![range.clone()] } else { view.ring.split(range) };
            for range in cut {
                let replicas = view.read_replicas(keyspace, range.right_token(), scan.level);
                let is_own = replicas.is_answered_by(self.local);
                let stretch = Stretch { range, replicas };
                match pieces.back_mut() {
                    Some(last)
                        if is_own
                            && last.is_answered_by(self.local)
                            && follows(&stretch.range, &last.range) =>
                    {
                        last.append(stretch);
                    }
                    _ => pieces.push_back(Piece::from(stretch)),
                }
            }
        }
        pieces
    }

    async fn scan_piece(
        self: &Arc<Self>,
        view: &Arc<View>,
        scan: Scan<'_>,
        piece: Piece,
        max_rows: usize,
        ticket: &mut Ticket,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let Piece { range, mut stretches } = piece;
        let are_together = stretches.len() > 1;
        if !are_together && let Some(stretch) = stretches.pop() {
            return self.scan_stretch(view, scan, stretch, max_rows, ticket).await;
        }
        let has_others = stretches.iter().any(|it| it.replicas.are_several());
        let own = self.scan_here(scan, &range, max_rows, ticket.child());
        let theirs = ticket.child();
        let others = |reason| async move {
            let (mut rows, mut theirs) = (Vec::new(), theirs);
            for stretch in stretches {
                let rest = max_rows - rows.len();
                if rest == 0 {
                    break;
                }
                theirs.release();
                rows.extend(match reason {
                    // One may be damaged, and the others at hand.
                    Reason::Failed => {
                        self.scan_stretch(view, scan, stretch, rest, &mut theirs).await?
                    }
                    Reason::Slow => {
                        let stretch = stretch.of_others(self.local);
                        self.scan_elsewhere(view, scan, stretch, rest, &mut theirs).await?
                    }
                });
            }
            Ok((rows, theirs))
        };
        let found = self.own_or_others(Reading::Range, has_others, own, others).await?;
        let rows;
        (rows, *ticket) = found;
        Ok(rows)
    }

    /// Reads a piece by fewer rows at a time: what several replicas send takes more room than what
    /// comes of it.
    async fn scan_by_fewer(
        self: &Arc<Self>,
        view: &Arc<View>,
        scan: Scan<'_>,
        piece: Piece,
        max_rows: usize,
        ticket: &mut Ticket,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let (mut rows, mut at_a_time) = (Vec::new(), max_rows / FEWER);
        for Stretch { range, replicas } in piece.stretches {
            let mut cursor = RowCursor::new(self.partitioner, range);
            while rows.len() < max_rows && !cursor.is_at_end() {
                at_a_time = at_a_time.min(max_rows - rows.len()).max(1);
                let asked = cursor.rows_for(at_a_time);
                let (range, replicas) = (cursor.range().clone(), replicas.clone());
                let (stretch, mut part) = (Stretch { range, replicas }, ticket.scratch());
                let page = self.scan_stretch(view, scan, stretch, asked, &mut part).await;
                if matches!(page, Err(CoordinatorError::TooLarge(_))) && at_a_time > 1 {
                    at_a_time /= FEWER;
                    continue;
                }
                let page = page?;
                drop(part);
                for (key, row) in cursor.take(asked, page).take(max_rows - rows.len()) {
                    ticket.charge_row(&key, &row.cells)?;
                    rows.push((key, row));
                }
            }
        }
        Ok(rows)
    }

    async fn scan_stretch(
        self: &Arc<Self>,
        view: &Arc<View>,
        scan: Scan<'_>,
        stretch: Stretch,
        max_rows: usize,
        ticket: &mut Ticket,
    ) -> Result<Vec<Row>, CoordinatorError> {
        if !stretch.replicas.are_enough() {
            return Err(CoordinatorError::Unavailable);
        }
        if !stretch.replicas.is_answered_by(self.local) {
            return self.scan_elsewhere(view, scan, stretch, max_rows, ticket).await;
        }
        let (has_others, range) = (stretch.replicas.are_several(), stretch.range.clone());
        let own = self.scan_here(scan, &range, max_rows, ticket.child());
        let mut theirs = ticket.child();
        let others = |_| async move {
            let stretch = stretch.of_others(self.local);
            let rows = self.scan_elsewhere(view, scan, stretch, max_rows, &mut theirs).await?;
            Ok((rows, theirs))
        };
        let found = self.own_or_others(Reading::Range, has_others, own, others).await?;
        let rows;
        (rows, *ticket) = found;
        Ok(rows)
    }

    /// What this node has. Gives the ticket back; if it fails, others may read.
    async fn scan_here(
        &self,
        scan: Scan<'_>,
        range: &RowRange,
        max_rows: usize,
        mut ticket: Ticket,
    ) -> Result<(Vec<Row>, Ticket), ReplicaError> {
        let Scan { family, slice, .. } = scan;
        let rows = RangeQuery { family, range, slice, max_rows };
        let own = self.replica.scan(rows, &mut ticket).await;
        Ok((own.wait(&mut ticket).await?, ticket))
    }

    /// Asks replicas for their rows, also if this node could answer.
    async fn scan_elsewhere(
        self: &Arc<Self>,
        view: &Arc<View>,
        scan: Scan<'_>,
        stretch: Stretch,
        max_rows: usize,
        ticket: &mut Ticket,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let Stretch { range, replicas } = stretch;
        let deadline = Instant::now() + self.rpc_timeout;
        let scratch = ticket.scratch();
        let pages = self.pages(scan, &range, &replicas, max_rows, deadline, &scratch).await?;
        let (family, slice) = (Arc::clone(self.schema.family(scan.family)), scan.slice.clone());
        let cells = pages.iter().flat_map(|page| &page.rows).map(|(_, row)| row.cells.len());
        let is_small = self.replica.runs_inline() || cells.sum::<usize>() <= MERGED_INLINE;
        let partitioner = self.partitioner;
        let merge = move || range_read::merge(&family, partitioner, &slice, max_rows, pages);
        let place = if is_small { Blocking::Inline } else { Blocking::Elsewhere };
        let merged = place.run(merge).await.map_err(ReplicaError::from)?;
        let mut merged = merged.into_iter().take(max_rows).peekable();
        let mut rows = Vec::new();
        while merged.peek().is_some() {
            // Each may have to wait for a repair.
            let some = merged.by_ref().take(REPAIRED_AT_A_TIME).map(|row| {
                let part = scratch.scratch();
                self.finish_row(view, scan, row, &replicas, deadline, part)
            });
            for row in super::concurrently::all(some).await {
                rows.push(row?);
            }
            // Other connections of this thread want to be served as well.
            tokio::task::yield_now().await;
        }
        drop(scratch);
        for (key, row) in &rows {
            ticket.charge_row(key, &row.cells)?;
        }
        Ok(rows)
    }

    /// What the client sees of a merged row; replicas that lack something of it get that.
    async fn finish_row(
        self: &Arc<Self>,
        view: &Arc<View>,
        scan: Scan<'_>,
        row: MergedRow,
        replicas: &ReadReplicas,
        deadline: Instant,
        mut ticket: Ticket,
    ) -> Result<Row, CoordinatorError> {
        let MergedRow { key, version, is_short, consistent, repairs } = row;
        let wanted = RowQuery { family: scan.family, key: &key, slice: scan.slice };
        let mut resolved = Resolved { version, consistent, repairs };
        if is_short {
            // Some columns were cut off that are wanted now: seldom, so that the row is read anew.
            let read = self.row_read(view, wanted, replicas);
            resolved = self.resolve(view, wanted, read, deadline, &mut ticket).await?;
        }
        let slice: RowSlice = resolved.version.resolve(self.schema.family(scan.family), scan.slice);
        self.repair(wanted, resolved, replicas, deadline).await?;
        Ok((key, slice))
    }

    /// Asks as many replicas as are needed for their rows of a range, and others if these are slow.
    async fn pages(
        self: &Arc<Self>,
        scan: Scan<'_>,
        range: &RowRange,
        replicas: &ReadReplicas,
        max_rows: usize,
        deadline: Instant,
        ticket: &Ticket,
    ) -> Result<Vec<Page>, CoordinatorError> {
        let requirement: &Requirement = &replicas.requirement;
        let (arrivals, mut answers) = Answers::new(self.latencies.range_patience(), deadline);
        let (coordinator, family, slice) = (Arc::clone(self), scan.family, scan.slice.clone());
        let replies = Arc::new(Inbox { coordinator, family, slice, arrivals });
        let mut ask: Vec<IpAddr> = requirement.choose(&replicas.live);
        let mut unasked: Endpoints =
            replicas.live.iter().copied().filter(|endpoint| !ask.contains(endpoint)).collect();
        let (mut pages, began) = (Vec::<Page>::new(), Instant::now());
        loop {
            if requirement.is_met_by(pages.iter().map(|page| page.from)) {
                self.latencies.record_range(began.elapsed());
                return Ok(pages);
            }
            for endpoint in std::mem::take(&mut ask) {
                self.ask_for_page(scan, range, max_rows, endpoint, &replies, ticket)?;
            }
            match answers.next().await {
                Next::Arrived(Arrival { from, rows: Some(Ok(rows)) })
                    if range_read::is_sound(self.partitioner, range, max_rows, &rows) =>
                {
                    for (key, version) in rows.iter().filter(|_| from != self.local) {
                        ticket.charge_row(key, &version.cells)?;
                    }
                    pages.push(Page { from, rows });
                    continue;
                }
                Next::Arrived(Arrival { from, rows: Some(Ok(_)) }) => {
                    let line = format_args!("{from} has answered a range read with other rows");
                    self.messenger.warn(from, line);
                }
                Next::Arrived(Arrival { rows: Some(Err(error)), .. }) => {
                    if replicas.live.len() == 1 || error.is_too_large() {
                        return Err(error.into());
                    }
                    self.warn_of_own(&error);
                }
                Next::Arrived(Arrival { rows: None, .. }) | Next::AreSlow => {}
                Next::IsOver => return Err(CoordinatorError::TimedOut),
            }
            ask.extend((!unasked.is_empty()).then(|| unasked.remove(0)));
            if unasked.is_empty() {
                answers.ask_no_more();
            }
        }
    }

    fn ask_for_page(
        self: &Arc<Self>,
        scan: Scan<'_>,
        range: &RowRange,
        max_rows: usize,
        endpoint: IpAddr,
        replies: &Arc<Inbox>,
        ticket: &Ticket,
    ) -> Result<(), CoordinatorError> {
        let (family, range, slice) = (scan.family, range.clone(), scan.slice.clone());
        if endpoint == self.local {
            let (replica, replies) = (Arc::clone(&self.replica), Arc::clone(replies));
            let began = Instant::now();
            let mut part = ticket.child();
            self.begin_read(replies.arrivals.clone(), ticket.child(), async move {
                let rows = RangeQuery { family, range: &range, slice: &slice, max_rows };
                let own = replica.scan_versions(rows, &mut part).await;
                let rows = Some(own.wait(&mut part).await);
                if let Some(Ok(_)) = rows {
                    replies.coordinator.latencies.record_answer(endpoint, began.elapsed());
                }
                Arrival { from: endpoint, rows }
            });
            return Ok(());
        }
        let command = RangeCommand { family, slice, range, max_rows };
        let body = command.encode(&self.schema, self.partitioner)?;
        let refusals = self.view().gives_refusals(endpoint).then_some(TAKES_REFUSAL);
        let (verb, headers) = (Verb::RangeSlice, refusals.into_iter().collect());
        let message = Request { verb, headers, body: &body, tag: 0 };
        let replies: Arc<dyn Replies> = Arc::clone(replies) as _;
        Ok(self.messenger.request(message, &[endpoint], &replies)?)
    }
}

/// Whether a range begins where another ends.
fn follows(range: &RowRange, other: &RowRange) -> bool {
    match (&other.end, &range.start) {
        (Bound::Included(end), Bound::Excluded(start)) => end == start,
        _ => false,
    }
}
