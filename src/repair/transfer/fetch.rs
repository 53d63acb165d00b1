//! Fetches ranges from other nodes, piece by piece, and makes SSTables of them.
//!
//! Who fetches asks for one piece after the other, and says behind what the next one begins. So
//! the other side keeps nothing in mind, whichever side is started anew or stands still for a
//! while: what was lost is asked for again. While one piece is written the next is on its way.

use super::plan::{Lane, NoSource, PlanError, Unit, lanes, sources, start};
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::model::key::RowKey;
use crate::model::position::RowPosition;
use crate::model::schema::FamilyId;
use crate::model::version::RowVersion;
use crate::net::bodies::{BodyError, EncodeError, PieceCommand, PieceReply};
use crate::net::caller::{CallError, Caller};
use crate::repair::calls::{PIECE, WantedRange};
use crate::repair::host::{Host, RingSnapshot};
use crate::repair::legacy::{AskLegacyError, LegacyPeers, by_source};
use crate::repair::progress::Progress;
use crate::repair::throttle::Throttle;
use crate::repair::traffic::{Stream, Traffic};
use crate::replica::{Abandoned, Blocking};
use crate::ring::DecoratedKey;
use crate::storage::Storage;
use crate::storage::engine::{Ingest, IngestError};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are asked for at a time, at first.
pub(in crate::repair) const FIRST_PIECE: u32 = 256 << 10;

/// Most and fewest bytes of a piece: it grows while the other side answers in time, and shrinks
/// when it does not.
pub(in crate::repair) const MAX_PIECE: u32 = 1 << 20;
pub(in crate::repair) const MIN_PIECE: u32 = 16 << 10;

/// So much of a column family makes SSTables at a time. After a failure as much is fetched again.
const INGEST_BYTES: u64 = 256 << 20;

/// So often one piece is asked for in vain of a node that seems alive.
pub(in crate::repair) const ATTEMPTS: u32 = 20;

/// How long a node is left alone that did not answer.
pub(in crate::repair) const PAUSE: Duration = Duration::from_millis(500);

/// Why ranges cannot be fetched. What has come until then is kept.
#[derive(Debug, thiserror::Error)]
pub(in crate::repair) enum FetchError {
    #[error(transparent)]
    NoSource(#[from] NoSource),
    #[error("{0}")]
    Plan(PlanError),
    #[error("a piece of a range was asked for {ATTEMPTS} times in vain: {0}")]
    Call(CallError),
    #[error("what {from} has sent cannot be read: {source}")]
    Body { from: IpAddr, source: BodyError },
    #[error("the range cannot be asked for: {0}")]
    Encode(#[from] EncodeError),
    #[error("what has come cannot be kept: {0}")]
    Ingest(#[from] IngestError),
    #[error("{0} sends rows that it was not asked for")]
    Unasked(IpAddr),
    #[error(transparent)]
    Original(#[from] AskLegacyError),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

impl From<PlanError> for FetchError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::NoSource(error) => Self::NoSource(error),
            error @ PlanError::Token(_) => Self::Plan(error),
        }
    }
}

/// Fetches.
#[derive(Debug)]
pub(in crate::repair) struct Fetcher {
    pub(in crate::repair) storage: Arc<Storage>,
    pub(in crate::repair) caller: Caller,
    pub(in crate::repair) blocking: Blocking,
    pub(in crate::repair) throttle: Arc<Throttle>,
    pub(in crate::repair) traffic: Arc<Traffic>,
    /// Fetches from nodes of 0.6.
    pub(in crate::repair) legacy: Arc<LegacyPeers>,
}

/// A fetch within another one.
type Fetching<'a> = Pin<Box<dyn Future<Output = Result<(), FetchError>> + Send + 'a>>;

/// What is written of a column family at the moment.
#[derive(Default)]
struct Written {
    ingest: Option<Ingest>,
    /// The last row that was given to it.
    last: Option<DecoratedKey>,
}

/// Why a unit did not come to its end.
enum Failure {
    /// Its source is dead. It may be fetched from others, behind this.
    Dead(Option<RowPosition>),
    Error(FetchError),
}

impl<E: Into<FetchError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Fetcher {
    pub(in crate::repair) fn new(
        storage: Arc<Storage>,
        caller: Caller,
        blocking: Blocking,
        clock: Arc<dyn Clock>,
        throttle: Arc<Throttle>,
        legacy: Arc<LegacyPeers>,
    ) -> Self {
        Self { storage, caller, blocking, throttle, traffic: Traffic::new(clock), legacy }
    }

    /// What comes at the moment.
    pub(in crate::repair) fn streams(&self) -> Vec<Stream> {
        self.traffic.now()
    }

    /// Fetches all of these ranges. They are on disk, and read, when this returns.
    pub(in crate::repair) async fn fetch(
        &self,
        wanted: &[WantedRange],
        host: &dyn Host,
        progress: &Progress,
    ) -> Result<(), FetchError> {
        let (schema, partitioner) = (self.storage.schema(), self.storage.partitioner());
        let look = host.look();
        let lanes = lanes(wanted, &look, schema, partitioner)?;
        let of_originals = by_source(wanted, &look);
        progress.expect(lanes.iter().map(|lane| lane.units.len()).sum());
        progress.expect(of_originals.values().map(BTreeMap::len).sum());
        let waiting = Mutex::<rank::RepairProgress, _>::new(VecDeque::from(lanes));
        let next = || waiting.lock().pop_front();
        let legacy = Mutex::<rank::RepairProgress, _>::new(of_originals);
        let next_original = || legacy.lock().pop_first();
        let work = async || {
            while let Some(lane) = next() {
                self.fetch_lane(lane, host, progress).await?;
            }
            Ok::<(), FetchError>(())
        };
        // Each is asked for one keyspace after the other: it does no two things at once.
        let ask_originals = async || {
            while let Some((source, of_source)) = next_original() {
                for (keyspace, wanted) in of_source {
                    self.fetch_from_legacy(source, &keyspace, &wanted, host, progress).await?;
                }
            }
            Ok(())
        };
        let ask_originals =
            async { tokio::try_join!(ask_originals(), ask_originals(), ask_originals()) };
        // A large future, which would make all that wait for it large.
        tokio::try_join!(work(), work(), Box::pin(ask_originals)).map(|_| ())
    }

    /// Fetches ranges of a keyspace from a node of 0.6; if that one is dead, from others.
    fn fetch_from_legacy<'a>(
        &'a self,
        source: IpAddr,
        keyspace: &'a str,
        wanted: &'a [WantedRange],
        host: &'a dyn Host,
        progress: &'a Progress,
    ) -> Fetching<'a> {
        Box::pin(async move {
            let fetched = self.legacy.fetch_from(source, keyspace, wanted, host).await;
            progress.finish_range();
            match fetched {
                Ok(taken) => {
                    progress.add(taken.bytes as usize, taken.rows as usize);
                    Ok(())
                }
                Err(AskLegacyError::Dead(_)) => {
                    log::warn!("{source} is down, which was to send ranges of keyspace {keyspace}");
                    self.fetch(wanted, host, progress).await
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    async fn fetch_lane(
        &self,
        mut lane: Lane,
        host: &dyn Host,
        progress: &Progress,
    ) -> Result<(), FetchError> {
        let mut written = Written::default();
        while let Some(unit) = lane.units.pop_front() {
            if !written.goes_on_with(&unit) {
                self.finish(&mut written).await?;
            }
            match self.fetch_unit(lane.family, &unit, &mut written, host, progress).await {
                Ok(()) => progress.finish_range(),
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Dead(after)) => {
                    let others = instead(&unit, after.as_ref(), &host.look())?;
                    log::warn!(
                        "{} is down, from which a range of keyspace {} was to come: the rest comes \
                         from {:?}",
                        unit.source,
                        unit.wanted.keyspace,
                        others.iter().map(|it| it.source).collect::<Vec<_>>()
                    );
                    progress.expect(others.len());
                    progress.finish_range();
                    self.finish(&mut written).await?;
                    for unit in others.into_iter().rev() {
                        if !host.look().is_legacy(unit.source) {
                            lane.units.push_front(unit);
                            continue;
                        }
                        let (keyspace, wanted) = (&unit.wanted.keyspace, [(*unit.wanted).clone()]);
                        let (source, wanted) = (unit.source, &wanted);
                        self.fetch_from_legacy(source, keyspace, wanted, host, progress).await?;
                    }
                }
            }
        }
        self.finish(&mut written).await
    }

    async fn fetch_unit(
        &self,
        family: FamilyId,
        unit: &Unit,
        written: &mut Written,
        host: &dyn Host,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let mut size = FIRST_PIECE;
        let mut after = unit.after.clone();
        let mut piece = self.ask(family, unit, after.as_ref(), &mut size, host, progress).await?;
        loop {
            let PieceReply { rows, next } = piece;
            let Some(next) = next else {
                return Ok(self.write(family, rows.rows, written).await?);
            };
            let (asked, stored) = tokio::join!(
                self.ask(family, unit, Some(&next), &mut size, host, progress),
                self.write(family, rows.rows, written)
            );
            stored?;
            after = Some(next);
            piece = match asked {
                Err(Failure::Dead(_)) => return Err(Failure::Dead(after)),
                asked => asked?,
            };
        }
    }

    /// Asks for the piece behind `after` until it is there. Gives up when the source is dead, or
    /// alive and no use.
    async fn ask(
        &self,
        family: FamilyId,
        unit: &Unit,
        after: Option<&RowPosition>,
        size: &mut u32,
        host: &dyn Host,
        progress: &Progress,
    ) -> Result<PieceReply, Failure> {
        let (schema, partitioner) = (self.storage.schema(), self.storage.partitioner());
        let mut attempts = 0;
        loop {
            let (range, after) = (unit.range.clone(), after.cloned());
            let command = PieceCommand { family, range, after, max_bytes: *size };
            let body = command.encode(schema, partitioner)?;
            let error = match self.caller.call(unit.source, PIECE, &body).await {
                Ok(answer) => {
                    *size = size.saturating_mul(2).min(MAX_PIECE);
                    let piece = PieceReply::decode(&answer, schema.family(family));
                    let from = unit.source;
                    let piece = piece.map_err(|source| FetchError::Body { from, source })?;
                    progress.add(answer.len(), piece.rows.rows.len());
                    self.traffic.add(from, family, answer.len());
                    self.throttle.take(answer.len()).await;
                    return Ok(piece);
                }
                Err(error) => error,
            };
            attempts += 1;
            if !host.look().live.contains(&unit.source) {
                return Err(Failure::Dead(command.after));
            }
            if attempts >= ATTEMPTS {
                return Err(FetchError::Call(error).into());
            }
            *size = (*size / 2).max(MIN_PIECE);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Gives rows to the SSTables that are being written.
    async fn write(
        &self,
        family: FamilyId,
        rows: Vec<(RowKey, RowVersion)>,
        written: &mut Written,
    ) -> Result<(), FetchError> {
        let Some((last, _)) = rows.last() else { return Ok(()) };
        let partitioner = self.storage.partitioner();
        written.last = Some(partitioner.decorate(last.clone()));
        let (storage, ingest) = (Arc::clone(&self.storage), written.ingest.take());
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
        let ingest = self.blocking.run(push).await??;
        let is_full = ingest.bytes() >= INGEST_BYTES;
        written.ingest = Some(ingest);
        if is_full { self.finish(written).await } else { Ok(()) }
    }

    /// Makes what was written count.
    async fn finish(&self, written: &mut Written) -> Result<(), FetchError> {
        written.last = None;
        let Some(ingest) = written.ingest.take() else { return Ok(()) };
        self.blocking.run(move || ingest.finish()).await??;
        Ok(())
    }
}

impl Written {
    /// Whether the rows of a unit come behind those that were written.
    fn goes_on_with(&self, unit: &Unit) -> bool {
        let Some(last) = &self.last else { return true };
        start(&unit.range).is_some_and(|start| last.token() <= start)
    }
}

/// From whom the rest of a unit is fetched whose source is dead.
fn instead(
    unit: &Unit,
    after: Option<&RowPosition>,
    look: &RingSnapshot,
) -> Result<Vec<Unit>, NoSource> {
    let others = sources(&unit.wanted, look.local, look)?;
    let unit = |source| Unit { source, after: after.cloned(), ..unit.clone() };
    Ok(others.into_iter().map(unit).collect())
}
