//! What other nodes, or this one, want to know of the rows of this node: their hashes, which take
//! longer to work out than a call may.

use super::calls::{Findings, HashRows, Scope, Validate, hash_text, token_ranges};
use super::hashing::{COLUMN_INDEX_BYTES, HashError, LeafSink, ListSink};
use super::leaves::{Leaves, row_ranges};
use super::remembered::Remembered;
use crate::base::clock::Clock;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::repair::merkle::TreeHash;
use crate::replica::Blocking;
use crate::ring::{RowRange, TokenRange};
use crate::storage::Storage;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What nobody has asked after for so long is given up: whoever wanted it is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Most requests that are kept at a time. Further ones are refused.
const MOST_SESSIONS: usize = 64;

/// Leaves that are sent at a time.
pub(super) const LEAVES_PER_ANSWER: usize = 4096;

/// The requests that this node works on, or has answered.
#[derive(Debug)]
pub(in crate::repair) struct Validations {
    storage: Arc<Storage>,
    blocking: Blocking,
    clock: Arc<dyn Clock>,
    sessions: Mutex<BTreeMap<u64, Session>>,
    remembered: Mutex<Remembered>,
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
    rows: Arc<AtomicU64>,
    outcome: Option<Result<Found, String>>,
    stop: CancellationToken,
}

/// What was worked out.
#[derive(Debug)]
enum Found {
    Leaves(Leaves),
    Rows { rows: Vec<(RowKey, TreeHash)>, next: Option<RowKey> },
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
        self.begin(session, from, true, move |rows, stop| this.leaves(&request, rows, stop));
    }

    /// The same for a list of rows.
    pub(in crate::repair) fn hash_rows(self: &Arc<Self>, from: IpAddr, request: HashRows) {
        let (session, this) = (request.session, Arc::clone(self));
        self.begin(session, from, false, move |rows, stop| this.list(&request, rows, stop));
    }

    fn begin(
        self: &Arc<Self>,
        number: u64,
        from: IpAddr,
        takes_turns: bool,
        work: impl FnOnce(&Arc<AtomicU64>, &CancellationToken) -> Result<Found, ValidationError>
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
            rows: Arc::default(),
            outcome: is_refused.then(|| Err("too many are asking at once".to_owned())),
            stop: self.stop.child_token(),
        };
        let (rows, stop) = (Arc::clone(&session.rows), session.stop.clone());
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
            let done = this.blocking.run(move || work(&rows, &stop)).await;
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
        read: &Arc<AtomicU64>,
        stop: &CancellationToken,
    ) -> Result<Found, ValidationError> {
        let (family, ranges) = self.resolve(scope)?;
        let leaves = Leaves::new(self.storage.partitioner(), &ranges, shape);
        let leaves = leaves.map_err(|error| ValidationError::Ranges(error.to_string()))?;
        let set = self.storage.validation_set(family).map_err(HashError::from)?;
        let (generations, gc_before) = (set.generations(), scope.gc_before);
        let known = self.remembered().find(family, &generations, gc_before, &leaves);
        if let Some(known) = known {
            return Ok(Found::Leaves(known));
        }
        let builder = self.storage.row_builder(family, COLUMN_INDEX_BYTES);
        let builder = builder.map_err(HashError::from)?;
        let mut sink = LeafSink::new(builder, leaves, Arc::clone(read), stop.clone());
        let scanned = row_ranges(&ranges);
        let validated = self.storage.validate(&set, &scanned, gc_before, &mut sink)?;
        let leaves = sink.finish();
        self.remembered().keep(family, generations, validated.span, leaves.clone());
        Ok(Found::Leaves(leaves))
    }

    fn list(
        &self,
        HashRows { scope, after, .. }: &HashRows,
        read: &Arc<AtomicU64>,
        stop: &CancellationToken,
    ) -> Result<Found, ValidationError> {
        let (family, ranges) = self.resolve(scope)?;
        let after = after.as_deref().map(RowKey::from);
        let token = after.as_ref().map(|key| self.storage.partitioner().token(key.as_bytes()));
        let is_open = |range: &RowRange| match (&range.end, &token) {
            (Bound::Included(end) | Bound::Excluded(end), Some(token)) => end >= token,
            _ => true,
        };
        let builder = self.storage.row_builder(family, COLUMN_INDEX_BYTES);
        let builder = builder.map_err(HashError::from)?;
        let mut sink = ListSink::new(builder, Arc::clone(read), stop.clone());
        let mut is_complete = true;
        for range in row_ranges(&ranges).into_iter().filter(is_open) {
            let is_within = token.as_ref().is_some_and(|token| range.contains(token));
            let after = after.as_ref().filter(|_| is_within);
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
        let read = session.rows.load(Ordering::Relaxed);
        match &session.outcome {
            None => Findings::Running { rows: read },
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
                let text = |key: &RowKey| String::from_utf8_lossy(key.as_bytes()).into_owned();
                let row = |(key, hash): &(RowKey, TreeHash)| (text(key), hash_text(hash));
                Findings::Rows {
                    rows: rows.iter().map(row).collect(),
                    next: next.as_ref().map(text),
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

    /// Gives up what nobody asks after any more. To be called now and then.
    pub(in crate::repair) fn tidy(&self) {
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
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::text_ranges;
    use super::super::leaves::Shape;
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::events::Events;
    use crate::base::sim_fs::SimFileSystem;
    use crate::model::comparator::Comparator;
    use crate::model::mutation::MutationBuilder;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
    use crate::ring::{Partitioner, Token};
    use crate::storage::engine::Components;
    use crate::storage::options::{FamilyOptions, Options};

    const FAMILY: FamilyId = FamilyId(0);

    fn node() -> IpAddr {
        [10, 0, 0, 1].into()
    }

    fn open() -> (Arc<ManualClock>, Arc<Validations>) {
        let clock = Arc::new(ManualClock::default());
        let components = Components {
            fs: Arc::new(SimFileSystem::new(1)),
            clock: Arc::clone(&clock) as _,
            events: Events::ignored(),
        };
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = ("Blog".into(), "Authors".into());
        let family = ColumnFamilySchema { keyspace, name, kind, comment: None };
        let options = Options { segment_bytes: 1 << 20, ..Options::new("/data", "/log") };
        let schema = Schema::new([family.into()]);
        let family = |_| FamilyOptions { max_compaction_threshold: 0, ..FamilyOptions::default() };
        let (partitioner, schema) = (Partitioner::Random, Arc::new(schema));
        let storage = Storage::open(components, options, partitioner, schema, family).unwrap();
        let blocking = Blocking::Inline;
        (Arc::clone(&clock), Validations::new(Arc::new(storage), blocking, clock))
    }

    fn insert(validations: &Validations, key: &str, value: &[u8]) {
        let storage = &validations.storage;
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
        mutation.family(FAMILY).insert((b"", b"name"), value, 1);
        storage.apply(&mutation.finish(), true).unwrap();
    }

    fn scope(family: &str) -> Scope {
        let range = TokenRange { start: Token::Minimum, end: Token::Minimum };
        let ranges = text_ranges(Partitioner::Random, &[range]);
        Scope { keyspace: "Blog".into(), family: family.into(), gc_before: 0, ranges }
    }

    /// What comes of a request for leaves, after all that a task can do.
    async fn validate(validations: &Arc<Validations>, session: u64, depth: u8) -> Findings {
        let (scope, shape) = (scope("Authors"), Shape::Even(depth));
        validations.validate(node(), Validate { session, scope, shape });
        settled(validations, session).await
    }

    async fn settled(validations: &Validations, session: u64) -> Findings {
        loop {
            match validations.findings(session, 0) {
                Findings::Running { .. } => tokio::task::yield_now().await,
                findings => return findings,
            }
        }
    }

    fn leaves(findings: Findings) -> (u64, Vec<String>) {
        let Findings::Leaves { rows, count, hashes } = findings else { panic!("{findings:?}") };
        assert_eq!(hashes.len(), count.min(LEAVES_PER_ANSWER));
        (rows, hashes)
    }

    #[tokio::test]
    async fn what_has_not_changed_is_not_read_again() {
        let (_, validations) = open();
        for row in 0..100 {
            insert(&validations, &format!("row {row}"), b"a");
        }
        let (rows, first) = leaves(validate(&validations, 1, 4).await);
        assert_eq!((rows, first.len()), (100, 16));
        let (rows, again) = leaves(validate(&validations, 2, 4).await);
        assert_eq!((rows, &again), (0, &first));
        // Wider leaves follow from narrower ones, the other way round they do not.
        assert_eq!(leaves(validate(&validations, 3, 2).await).0, 0);
        assert_eq!(leaves(validate(&validations, 4, 5).await).0, 100);
        // One row more is in one leaf, and all are read.
        insert(&validations, "another row", b"a");
        let (rows, changed) = leaves(validate(&validations, 5, 4).await);
        let differing = first.iter().zip(&changed).filter(|(a, b)| a != b).count();
        assert_eq!((rows, differing), (101, 1));
    }

    #[tokio::test]
    async fn rows_are_listed_with_their_hashes_in_pages() {
        let (_, validations) = open();
        for row in 0..5000 {
            insert(&validations, &format!("row {row}"), b"a");
        }
        let (mut found, mut after, mut session) = (Vec::new(), None, 0);
        loop {
            session += 1;
            let request = HashRows { session, scope: scope("Authors"), after };
            validations.hash_rows(node(), request);
            let findings = settled(&validations, session).await;
            let Findings::Rows { rows, next } = findings else { panic!("{findings:?}") };
            found.extend(rows);
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((found.len(), session), (5000, 2));
        let token = |(key, _): &(String, String)| Partitioner::Random.token(key.as_bytes());
        assert!(found.is_sorted_by_key(token));
    }

    #[tokio::test]
    async fn many_leaves_are_told_in_pages() {
        let (_, validations) = open();
        insert(&validations, "row", b"a");
        let findings = validate(&validations, 1, 13).await;
        assert_eq!(leaves(findings).1.len(), LEAVES_PER_ANSWER);
        let Findings::Leaves { hashes, .. } = validations.findings(1, LEAVES_PER_ANSWER) else {
            panic!("there are more")
        };
        assert_eq!(hashes.len(), LEAVES_PER_ANSWER);
    }

    #[tokio::test]
    async fn what_nobody_asks_after_is_forgotten() {
        let (clock, validations) = open();
        leaves(validate(&validations, 1, 0).await);
        leaves(validate(&validations, 2, 0).await);
        clock.advance(FORGOTTEN_AFTER / 2);
        validations.findings(1, 0);
        clock.advance(FORGOTTEN_AFTER / 2);
        validations.tidy();
        leaves(validations.findings(1, 0));
        assert_eq!(validations.findings(2, 0), Findings::Unknown);
        validations.forget(1);
        assert_eq!(validations.findings(1, 0), Findings::Unknown);
    }

    #[tokio::test]
    async fn requests_that_make_no_sense_fail_and_there_is_a_bound() {
        let (_, validations) = open();
        let failed = |findings| {
            let Findings::Failed { why } = findings else { panic!("{findings:?}") };
            why
        };
        validations.hash_rows(node(), HashRows { session: 1, scope: scope("Nobody"), after: None });
        let why = failed(settled(&validations, 1).await);
        assert!(why.contains("no column family Blog.Nobody"), "{why}");
        let why = failed(validate(&validations, 2, 200).await);
        assert!(why.contains("leaves"), "{why}");
        for session in 3..=MOST_SESSIONS as u64 {
            leaves(validate(&validations, session, 0).await);
        }
        let why = failed(validate(&validations, 1000, 0).await);
        assert!(why.contains("too many"), "{why}");
    }
}
