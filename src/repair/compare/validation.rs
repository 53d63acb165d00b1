//! What other nodes, or this one, want to know of the rows of this node: their hashes, which take
//! longer to work out than a call may.

use super::calls::{Findings, HashRows, Scope, TextRange, Validate, hash_text, token_ranges};
use super::hashing::{COLUMN_INDEX_BYTES, LeafSink, ListSink, ListedRow};
use super::leaves::{Leaves, Shape, row_ranges};
use super::remembered::{Division, Known, MAX_BYTES, Remembered, Tables};
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::repair::compare::HashError;
use crate::repair::text_key::TextKey;
use crate::replica::{Abandoned, Blocking};
use crate::ring::{DecoratedKey, RowRange, Token, TokenRange};
use crate::storage::Storage;
use crate::storage::engine::ValidationSet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What nobody has asked after for so long is given up: whoever wanted it is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Most requests that are kept at a time. Further ones are refused.
const MOST_SESSIONS: usize = 64;

/// Leaves that are sent at a time: 32 KiB, so that answers to clients do not wait behind them.
pub(super) const LEAVES_PER_ANSWER: usize = 512;

/// The requests that this node works on, or has answered.
#[derive(Debug)]
pub(in crate::repair) struct Validations {
    storage: Arc<Storage>,
    blocking: Blocking,
    clock: Arc<dyn Clock>,
    sessions: Mutex<rank::RepairProgress, BTreeMap<u64, Session>>,
    remembered: Mutex<rank::RowHashes, Remembered>,
    /// One column family is read at a time, as it was on the one compaction thread of 0.6; lists of
    /// rows, which are short, do not wait for that.
    scan: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Session {
    from: IpAddr,
    asked: Duration,
    progress: Arc<RowsRead>,
    outcome: Option<Result<Found, String>>,
    stop: CancellationToken,
}

/// What was worked out.
#[derive(Debug)]
enum Found {
    Leaves(Leaves),
    Rows { rows: Vec<ListedRow>, next: Option<RowKey> },
}

/// How far a request is.
#[derive(Debug, Default)]
pub(super) struct RowsRead {
    pub(super) rows: Arc<AtomicU64>,
    /// About how many there are to read.
    of: AtomicU64,
}

/// Why a request cannot be worked on.
#[derive(Debug, thiserror::Error)]
enum ValidationError {
    #[error("there is no column family {0}.{1}")]
    NoFamily(String, String),
    #[error("the ranges make no sense: {0}")]
    Ranges(String),
    #[error(transparent)]
    Hash(#[from] HashError),
}

impl Validations {
    pub(in crate::repair) fn new(
        storage: Arc<Storage>,
        blocking: Blocking,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let (sessions, remembered, stop, tasks) = Default::default();
        let scan = Arc::new(Semaphore::new(1));
        Arc::new(Self { storage, blocking, clock, sessions, remembered, scan, stop, tasks })
    }

    /// Works the hashes of leaves out, unless the request is known already. Must be called within a
    /// tokio runtime.
    pub(in crate::repair) fn validate(self: &Arc<Self>, from: IpAddr, request: Validate) {
        let (session, this) = (request.session, Arc::clone(self));
        self.begin(session, from, true, move |progress, stop| {
            this.leaves(&request, progress, stop)
        });
    }

    /// The same for a list of rows.
    pub(in crate::repair) fn hash_rows(self: &Arc<Self>, from: IpAddr, request: HashRows) {
        let (session, this) = (request.session, Arc::clone(self));
        self.begin(session, from, false, move |progress, stop| this.list(&request, progress, stop));
    }

    fn begin(
        self: &Arc<Self>,
        number: u64,
        from: IpAddr,
        takes_turns: bool,
        work: impl FnOnce(&RowsRead, &CancellationToken) -> Result<Found, ValidationError>
        + Send
        + 'static,
    ) {
        let mut sessions = self.lock();
        if sessions.contains_key(&number) {
            return;
        }
        let is_refused = sessions.len() >= MOST_SESSIONS;
        let session = Session {
            from,
            asked: self.clock.monotonic(),
            progress: Arc::default(),
            outcome: is_refused.then(|| Err("too many are asking at once".to_owned())),
            stop: self.stop.child_token(),
        };
        let (progress, stop) = (Arc::clone(&session.progress), session.stop.clone());
        if is_refused && sessions.len() >= 2 * MOST_SESSIONS {
            // Who asks after it hears that it is unknown.
            return;
        }
        sessions.insert(number, session);
        drop(sessions);
        if is_refused {
            return;
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let turn = async { if takes_turns { this.scan.acquire().await.ok() } else { None } };
            let _turn = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                turn = turn => turn,
            };
            let done = this.blocking.run(move || work(&progress, &stop)).await;
            let outcome = match done {
                Ok(outcome) => outcome.map_err(|error| error.to_string()),
                Err(abandoned) => Err(abandoned.to_string()),
            };
            if let Some(session) = this.lock().get_mut(&number) {
                session.outcome = Some(outcome);
            }
        });
    }

    fn leaves(
        &self,
        Validate { scope, shape, .. }: &Validate,
        progress: &RowsRead,
        stop: &CancellationToken,
    ) -> Result<Found, ValidationError> {
        let (family, ranges) = self.resolve(scope)?;
        let leaves = Leaves::new(self.storage.partitioner(), &ranges, shape);
        let leaves = leaves.map_err(|error| ValidationError::Ranges(error.to_string()))?;
        let set = self.storage.validation_set(family).map_err(HashError::from)?;
        let division = Division { ranges: scope.ranges.clone(), shape: shape.clone() };
        let mut leaves = self.known(family, &set, &division, leaves)?;
        let unknown = leaves.empty_unknown(scope.gc_before);
        if !unknown.is_empty() {
            let builder = self.storage.row_builder(family, COLUMN_INDEX_BYTES);
            let builder = builder.map_err(HashError::from)?;
            progress.of.store(rows_within(&set, &leaves, unknown.len()), Ordering::Relaxed);
            let read = Arc::clone(&progress.rows);
            let mut sink = LeafSink::new(builder, leaves, read, stop.clone());
            self.storage.validate(&set, &row_ranges(&unknown), scope.gc_before, &mut sink)?;
            leaves = sink.finish();
        }
        self.remembered().keep(family, set.identities(), division, leaves.clone());
        self.save(family);
        Ok(Found::Leaves(leaves))
    }

    /// These leaves as far as they are known of SSTables.
    fn known(
        &self,
        family: FamilyId,
        set: &ValidationSet,
        division: &Division,
        mut empty: Leaves,
    ) -> Result<Leaves, HashError> {
        self.load(family);
        self.storage.store(family).want_merged_keys();
        let (now, merges) = (&set.identities(), set.merges());
        let known = self.remembered().find(family, Tables { now, merges }, division, &empty);
        let Some(Known { mut leaves, added }) = known else {
            empty.lose_if(|_| true);
            return Ok(empty);
        };
        let is_added = |generation| added.contains(&generation);
        if set.rows_of(is_added) > set.rows() / 2 {
            leaves.lose_if(|_| true);
        } else if !added.is_empty() {
            let scanned = row_ranges(leaves.ranges());
            let lose = |key: &DecoratedKey| leaves.lose(key.token());
            self.storage.visit_keys(set, is_added, &scanned, lose)?;
        }
        Ok(leaves)
    }

    /// How the leaves of these ranges were made the last time, if that is known.
    pub(super) fn shape(&self, family: FamilyId, ranges: &[TextRange]) -> Option<Shape> {
        self.load(family);
        self.remembered().shape(family, ranges).cloned()
    }

    /// Reads what is kept of a family, if that was not done. Without it all is read anew.
    fn load(&self, family: FamilyId) {
        if self.remembered().is_loaded(family) {
            return;
        }
        let content = self.storage.kept_hashes(family, MAX_BYTES);
        let content = content.unwrap_or_else(|error| {
            log::warn!("what is known of hashes cannot be read: {error}");
            None
        });
        let kind = (self.storage.partitioner(), &**self.storage.schema().family(family));
        self.remembered().load(family, &content.unwrap_or_default(), kind);
    }

    /// Keeps what is known of a family for the next start. Without it all is read anew then.
    fn save(&self, family: FamilyId) {
        let content = self.remembered().save(family, self.storage.schema().family(family));
        if let Err(error) = self.storage.keep_hashes(family, &content) {
            log::warn!("what is known of hashes cannot be kept: {error}");
        }
    }

    fn list(
        &self,
        HashRows { scope, after, .. }: &HashRows,
        progress: &RowsRead,
        stop: &CancellationToken,
    ) -> Result<Found, ValidationError> {
        let (family, ranges) = self.resolve(scope)?;
        let after = after.as_ref().map(|TextKey(key)| key);
        let token = after.map(|key| self.storage.partitioner().token(key.as_bytes()));
        let is_open = |range: &RowRange| match (&range.end, &token) {
            (Bound::Included(end) | Bound::Excluded(end), Some(token)) => end >= token,
            _ => true,
        };
        let builder = self.storage.row_builder(family, COLUMN_INDEX_BYTES);
        let builder = builder.map_err(HashError::from)?;
        let mut sink = ListSink::new(builder, Arc::clone(&progress.rows), stop.clone());
        let mut is_complete = true;
        for range in row_ranges(&ranges).into_iter().filter(is_open) {
            let is_within = token.as_ref().is_some_and(|token| range.contains(token));
            let after = after.filter(|_| is_within);
            let storage = &self.storage;
            if !storage.visit_rows(family, &range, after, scope.gc_before, &mut sink)? {
                is_complete = false;
                break;
            }
        }
        let next = if is_complete { None } else { sink.last };
        Ok(Found::Rows { rows: sink.list, next })
    }

    fn resolve(&self, scope: &Scope) -> Result<(FamilyId, Vec<TokenRange>), ValidationError> {
        let Scope { keyspace, family, ranges, .. } = scope;
        let Some(id) = self.storage.schema().family_id(keyspace, family) else {
            return Err(ValidationError::NoFamily(keyspace.clone(), family.clone()));
        };
        let ranges = token_ranges(self.storage.partitioner(), ranges);
        let ranges = ranges.map_err(|error| ValidationError::Ranges(error.to_string()))?;
        Ok((id, ranges))
    }

    /// What has come of a request; of leaves some, from a number on.
    pub(in crate::repair) fn findings(&self, session: u64, from: usize) -> Findings {
        let now = self.clock.monotonic();
        let mut sessions = self.lock();
        let Some(session) = sessions.get_mut(&session) else { return Findings::Unknown };
        session.asked = now;
        let read = session.progress.rows.load(Ordering::Relaxed);
        match &session.outcome {
            None => {
                let of = session.progress.of.load(Ordering::Relaxed);
                Findings::Running { rows: read, of: of.max(read) }
            }
            Some(Err(why)) => Findings::Failed { why: why.clone() },
            Some(Ok(Found::Leaves(leaves))) => {
                let hashes = leaves.hashes().iter().skip(from).take(LEAVES_PER_ANSWER);
                Findings::Leaves {
                    rows: read,
                    count: leaves.hashes().len(),
                    hashes: hashes.map(hash_text).collect(),
                }
            }
            Some(Ok(Found::Rows { rows, next })) => {
                let row = |row: &ListedRow| (TextKey(row.key.clone()), hash_text(&row.hash));
                Findings::Rows {
                    rows: rows.iter().map(row).collect(),
                    bytes: rows.iter().map(|row| row.bytes).collect(),
                    next: next.clone().map(TextKey),
                }
            }
        }
    }

    /// Forgets a request, which is given up if it is being worked on.
    pub(in crate::repair) fn forget(&self, session: u64) {
        if let Some(session) = self.lock().remove(&session) {
            session.stop.cancel();
        }
    }

    /// Gives up what nobody asks after any more, and follows merges of SSTables. To be called now
    /// and then, within a tokio runtime.
    pub(in crate::repair) fn tidy(self: &Arc<Self>) {
        self.give_up_unwanted();
        if let Ok(turn) = Arc::clone(&self.scan).try_acquire_owned() {
            let changed = self.catch_up();
            if !changed.is_empty() {
                let (this, blocking) = (Arc::clone(self), self.blocking);
                self.tasks.spawn(async move {
                    let save = move || changed.into_iter().for_each(|family| this.save(family));
                    // A node that stops does so itself.
                    let _: Result<(), Abandoned> = blocking.run(save).await;
                    drop(turn);
                });
            }
        }
    }

    /// Follows merges of SSTables; returns the families of which something else is known since.
    /// Nobody must be working out hashes meanwhile.
    fn catch_up(&self) -> Vec<FamilyId> {
        let families = self.remembered().families();
        let has_changed = |family: &FamilyId| {
            let now = self.storage.store(*family).tables_now();
            let tables = Tables { now: &now.identities(), merges: &now.merges };
            self.remembered().catch_up(*family, tables)
        };
        families.into_iter().filter(has_changed).collect()
    }

    fn give_up_unwanted(&self) {
        let now = self.clock.monotonic();
        self.lock().retain(|_, session| {
            let is_wanted = now.saturating_sub(session.asked) < FORGOTTEN_AFTER;
            if !is_wanted {
                session.stop.cancel();
                if session.outcome.is_none() {
                    log::warn!("{} asks no more after hashes of this node", session.from);
                }
            }
            is_wanted
        });
    }

    /// Ends all of them.
    pub(in crate::repair) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.catch_up().into_iter().for_each(|family| self.save(family));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Session>> {
        self.sessions.lock()
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock()
    }
}

/// About how many rows there are in so many of the leaves.
fn rows_within(set: &ValidationSet, leaves: &Leaves, count: usize) -> u64 {
    let (ranges, samples) = (leaves.ranges(), set.sampled_tokens());
    let is_within = |token: &&Token| leaves.contain(token);
    let inside = samples.iter().filter(is_within).count() as u64;
    let rows = match samples.len() as u64 {
        0 => set.rows(),
        all => set.rows().saturating_mul(inside) / all,
    };
    rows.saturating_mul(count as u64) / (ranges.len() as u64).max(1)
}

#[cfg(test)]
mod tests;
