//! The resources.

use super::access::Access;
use super::connection::Peer;
use super::context::AdminContext;
use super::error::AdminError;
use super::jobs::Jobs;
use super::metrics::{self, Format};
use super::operations::{CleanupScope, DeadToken, NewToken, RepairScopeChange};
use super::report::{
    Caches, Compactions, Done, DrainReport, Health, Info, KeyspaceReport, LatencyReport,
    OperationState, Pool, Snapshot, Streams, Thresholds,
};
use super::request::{
    AllowReturn, CapacityChange, Change, HintDelivery, NewSnapshot, NoBody, Nothing, Selection,
    SelectionQuery, SnapshotQuery, SuspicionChange, ThresholdsChange, Work,
};
use super::ring_report::{
    AllowedReturn, Changed, ClusterDescription, ClusterStatus, FailureDetection, GossipEndpoint,
    Hints, Messages, Ring,
};
use crate::base::clock::Clock;
use crate::config::settings::PHI_CONVICT_THRESHOLDS;
use crate::model::schema::FamilyId;
use crate::node::Drained;
use crate::repair::Operation;
use crate::storage::Storage;
use crate::storage::compaction;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What handlers share.
#[derive(Debug, Clone)]
struct Shared {
    context: Arc<AdminContext>,
    jobs: Jobs,
    /// Looks at the disk. Anybody may look, and must not keep an operator from a change.
    looks: Jobs,
}

/// A query, or why it cannot be read.
type Queried<T = SelectionQuery> = Result<Query<T>, QueryRejection>;

/// All resources, behind the guard.
pub(super) fn router(context: Arc<AdminContext>, access: Access) -> Router {
    let clock = Arc::clone(&context.clock);
    let shared = Shared { context, jobs: Jobs::default(), looks: Jobs::default() };
    let thresholds = get(thresholds).put(set_thresholds);
    let snapshots = get(snapshots).post(take_snapshot).delete(clear_snapshots);
    Router::new()
        .route("/api/v1/info", get(info))
        .route("/api/v1/health", get(health))
        .route("/api/v1/cfstats", get(cfstats))
        .route("/api/v1/cfhistograms", get(cfhistograms))
        .route("/api/v1/pools", get(pools))
        .route("/api/v1/compactions", get(compactions))
        .route("/api/v1/compaction-thresholds", thresholds)
        .route("/api/v1/cache-capacities", put(set_cache_capacities))
        .route("/api/v1/flush", post(flush))
        .route("/api/v1/compact", post(compact))
        .route("/api/v1/snapshots", snapshots)
        .route("/api/v1/status", get(status))
        .route("/api/v1/cluster", get(cluster))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/ring", get(ring))
        .route("/api/v1/ring/allow-return", post(allow_return))
        .route("/api/v1/ring/operation", get(operation))
        .route("/api/v1/ring/decommission", post(decommission))
        .route("/api/v1/ring/loadbalance", post(loadbalance))
        .route("/api/v1/ring/move", post(move_to))
        .route("/api/v1/ring/remove-token", post(remove_token))
        .route("/api/v1/cleanup", post(cleanup))
        .route("/api/v1/streams", get(streams))
        .route("/api/v1/repair", post(repair))
        .route("/api/v1/gossip", get(gossip))
        .route("/api/v1/failure-detector", get(failure_detector).put(set_failure_detector))
        .route("/api/v1/messages", get(messages))
        .route("/api/v1/hints", get(hints))
        .route("/api/v1/hints/deliver", post(deliver_hints))
        .route("/api/v1/rack-file", post(read_rack_file))
        .route("/metrics", get(prometheus))
        .fallback(async || AdminError::NoResource)
        .method_not_allowed_fallback(async || AdminError::Method)
        .layer(middleware::from_fn_with_state(Arc::new(Guard::new(access, clock)), guard))
        .with_state(shared)
}

/// Decides on requests, and keeps those that it refuses from filling the log.
#[derive(Debug)]
struct Guard {
    access: Access,
    clock: Arc<dyn Clock>,
    /// Second on the monotonic clock in which a refusal was logged last.
    logged_at: AtomicU64,
}

impl Guard {
    fn new(access: Access, clock: Arc<dyn Clock>) -> Self {
        Self { access, clock, logged_at: AtomicU64::new(u64::MAX) }
    }

    /// Whether none was logged in this second.
    fn may_log(&self) -> bool {
        let now = self.clock.monotonic().as_secs();
        self.logged_at.swap(now, Ordering::Relaxed) != now
    }
}

/// Lets a request through if its sender may, and notes changes in the log.
async fn guard(
    State(guard): State<Arc<Guard>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (peer, method) = (peer.address(), request.method().clone());
    let path = request.uri().path().to_owned();
    match guard.access.check(peer, &method, request.headers()) {
        Ok(()) if method.is_safe() => next.run(request).await,
        Ok(()) => {
            let response = next.run(request).await;
            log::info!("{method} {path} of {peer}: {}", response.status());
            response
        }
        Err(refusal) => {
            if guard.may_log() {
                log::warn!("{method} {path} of {peer} is refused: {refusal}");
            }
            AdminError::from(refusal).into_response()
        }
    }
}

async fn info(State(Shared { context, .. }): State<Shared>) -> Json<Info> {
    Json(context.info())
}

/// Tells whether the node takes writes, by the status of the answer, too.
async fn health(State(Shared { context, .. }): State<Shared>) -> (StatusCode, Json<Health>) {
    let troubles = context.troubles();
    let takes_writes = !troubles.iter().any(|trouble| trouble.kind.refuses_writes());
    let code = if takes_writes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Health { takes_writes, troubles }))
}

async fn cfstats(
    State(Shared { context, .. }): State<Shared>,
    query: Queried,
) -> Result<Json<Vec<KeyspaceReport>>, AdminError> {
    let families = queried(query, &context)?;
    Ok(Json(context.keyspaces(&families)))
}

async fn cfhistograms(
    State(Shared { context, .. }): State<Shared>,
    query: Queried,
) -> Result<Json<Vec<LatencyReport>>, AdminError> {
    let families = queried(query, &context)?;
    Ok(Json(families.into_iter().map(|id| context.latencies(id)).collect()))
}

async fn pools(State(Shared { context, .. }): State<Shared>) -> Json<Vec<Pool>> {
    Json(context.pools())
}

async fn compactions(State(Shared { context, .. }): State<Shared>) -> Json<Compactions> {
    Json(context.compactions())
}

async fn set_cache_capacities(
    State(Shared { context, jobs, .. }): State<Shared>,
    Change(change): Change<CapacityChange>,
) -> Result<Json<Caches>, AdminError> {
    let family = change.family(context.storage.schema())?;
    // Many entries may have to leave.
    let job = move || {
        context.storage.set_cache_capacity(family, change.key_cache, change.row_cache);
        Ok(Json(context.caches(family)))
    };
    jobs.run(job).await
}

async fn thresholds(
    State(Shared { context, .. }): State<Shared>,
    query: Queried,
) -> Result<Json<Vec<Thresholds>>, AdminError> {
    let families = queried(query, &context)?;
    Ok(Json(context.thresholds(&families)))
}

async fn set_thresholds(
    State(Shared { context, .. }): State<Shared>,
    Change(change): Change<ThresholdsChange>,
) -> Result<Json<Vec<Thresholds>>, AdminError> {
    if change.min.is_none() && change.max.is_none() {
        return Err(AdminError::NoThresholds);
    }
    let storage = &context.storage;
    let families = change.selection().families(storage.schema())?;
    let new = |family: &FamilyId| {
        let compaction::Thresholds { min, max } = storage.store(*family).compaction_thresholds();
        compaction::Thresholds::new(change.min.unwrap_or(min), change.max.unwrap_or(max))
    };
    // All of them make sense, or none is changed.
    let changes = families.iter().map(new).collect::<Result<Vec<_>, _>>()?;
    for (family, compaction::Thresholds { min, max }) in families.iter().zip(changes) {
        storage.set_compaction_thresholds(*family, min, max)?;
    }
    Ok(Json(context.thresholds(&families)))
}

async fn flush(
    State(shared): State<Shared>,
    Change(work): Change<Work>,
) -> Result<(StatusCode, Json<Done>), AdminError> {
    for_each(shared, &work, |storage, id, family| {
        storage.flush(id).map_err(|source| AdminError::Flush { family, source })
    })
    .await
}

async fn compact(
    State(shared): State<Shared>,
    Change(work): Change<Work>,
) -> Result<(StatusCode, Json<Done>), AdminError> {
    for_each(shared, &work, |storage, id, family| {
        storage.compact(id).map_err(|source| AdminError::Compaction { family, source })
    })
    .await
}

/// Does something to each of the selected column families, one behind the other, and stops at the
/// first failure.
async fn for_each(
    Shared { context, jobs, .. }: Shared,
    work: &Work,
    act: fn(&Storage, FamilyId, String) -> Result<(), AdminError>,
) -> Result<(StatusCode, Json<Done>), AdminError> {
    let schema = Arc::clone(context.storage.schema());
    let families = work.selection().families(&schema)?;
    let name = |id: &FamilyId| schema.family(*id).to_string();
    let column_families: Vec<String> = families.iter().map(name).collect();
    let names = column_families.clone();
    let job = move || {
        families.into_iter().zip(names).try_for_each(|(id, name)| act(&context.storage, id, name))
    };
    let done = Json(Done { column_families });
    if work.is_waited_for() {
        jobs.run(job).await?;
        return Ok((StatusCode::OK, done));
    }
    let logged = move || job().inspect_err(|error| log::error!("{error}"));
    drop(jobs.begin(logged)?);
    Ok((StatusCode::ACCEPTED, done))
}

async fn snapshots(
    State(Shared { context, looks, .. }): State<Shared>,
    query: Queried<SnapshotQuery>,
) -> Result<Json<Vec<Snapshot>>, AdminError> {
    let Query(query) = query?;
    let job = move || {
        let mut found = context.storage.snapshots()?;
        found.retain(|snapshot| query.means(snapshot));
        let found = query.checked(found, context.storage.schema())?;
        Ok(Json(found.into_iter().map(Snapshot::from).collect()))
    };
    looks.run(job).await
}

async fn take_snapshot(
    State(Shared { context, jobs, .. }): State<Shared>,
    Change(NewSnapshot { keyspace, tag }): Change<NewSnapshot>,
) -> Result<Json<Vec<Snapshot>>, AdminError> {
    let job = move || {
        let taken = context.storage.snapshot(keyspace.as_deref(), tag.as_deref())?;
        Ok(Json(taken.into_iter().map(Snapshot::from).collect()))
    };
    jobs.run(job).await
}

async fn clear_snapshots(
    State(Shared { context, jobs, .. }): State<Shared>,
    query: Queried<SnapshotQuery>,
    _: NoBody,
) -> Result<Json<Vec<Snapshot>>, AdminError> {
    let Query(query) = query?;
    let job = move || {
        let (keyspace, name) = (query.keyspace.as_deref(), query.name.as_deref());
        let cleared = context.storage.clear_snapshots(keyspace, name)?;
        let cleared = query.checked(cleared, context.storage.schema())?;
        Ok(Json(cleared.into_iter().map(Snapshot::from).collect()))
    };
    jobs.run(job).await
}

async fn status(State(Shared { context, .. }): State<Shared>) -> Json<ClusterStatus> {
    Json(context.status())
}

async fn cluster(State(Shared { context, .. }): State<Shared>) -> Json<ClusterDescription> {
    Json(context.description())
}

async fn drain(
    State(Shared { context, .. }): State<Shared>,
    Change(Nothing {}): Change<Nothing>,
) -> Result<Json<DrainReport>, AdminError> {
    // It goes on when its client has gone away.
    let draining = tokio::spawn(async move { context.drain.run().await });
    let Drained { flushed, left } = draining.await.map_err(|error| {
        if error.is_panic() { AdminError::Panicked } else { AdminError::Stopping }
    })?;
    Ok(Json(DrainReport { memtables_flushed: flushed, memtables_left: left }))
}

async fn ring(State(Shared { context, .. }): State<Shared>) -> Json<Ring> {
    Json(context.ring())
}

async fn allow_return(
    State(Shared { context, jobs, .. }): State<Shared>,
    Change(AllowReturn { address }): Change<AllowReturn>,
) -> Result<Json<AllowedReturn>, AdminError> {
    let job = move || {
        let returned = context.member.allow_return(address);
        let returned = returned.ok_or(AdminError::NotRemoved(address))?;
        Ok(Json(AllowedReturn { address, returned }))
    };
    jobs.run(job).await
}

async fn operation(State(Shared { context, .. }): State<Shared>) -> Json<Option<OperationState>> {
    Json(context.operation())
}

async fn decommission(
    State(Shared { context, .. }): State<Shared>,
    Change(Nothing {}): Change<Nothing>,
) -> Result<Json<OperationState>, AdminError> {
    context.begin(Operation::Decommission).map(Json)
}

async fn loadbalance(
    State(Shared { context, .. }): State<Shared>,
    Change(Nothing {}): Change<Nothing>,
) -> Result<Json<OperationState>, AdminError> {
    context.begin(Operation::Loadbalance).map(Json)
}

async fn move_to(
    State(Shared { context, .. }): State<Shared>,
    Change(NewToken { token }): Change<NewToken>,
) -> Result<Json<OperationState>, AdminError> {
    context.begin(Operation::Move(context.parse_token(&token)?)).map(Json)
}

async fn remove_token(
    State(Shared { context, .. }): State<Shared>,
    Change(DeadToken { token, accept_loss: accepts_loss }): Change<DeadToken>,
) -> Result<Json<OperationState>, AdminError> {
    let token = context.parse_token(&token)?;
    context.begin(Operation::Remove { token, accepts_loss }).map(Json)
}

async fn cleanup(
    State(Shared { context, .. }): State<Shared>,
    Change(scope): Change<CleanupScope>,
) -> Result<Json<OperationState>, AdminError> {
    context.begin(context.cleanup(scope)?).map(Json)
}

async fn streams(State(Shared { context, .. }): State<Shared>) -> Json<Streams> {
    Json(context.streams())
}

async fn repair(
    State(Shared { context, .. }): State<Shared>,
    Change(scope): Change<RepairScopeChange>,
) -> Result<Json<OperationState>, AdminError> {
    context.begin(context.repair(scope)?).map(Json)
}

async fn gossip(State(Shared { context, .. }): State<Shared>) -> Json<Vec<GossipEndpoint>> {
    Json(context.gossip())
}

async fn failure_detector(State(Shared { context, .. }): State<Shared>) -> Json<FailureDetection> {
    Json(context.failure_detection())
}

async fn set_failure_detector(
    State(Shared { context, .. }): State<Shared>,
    Change(SuspicionChange { phi_convict_threshold }): Change<SuspicionChange>,
) -> Result<Json<FailureDetection>, AdminError> {
    if !PHI_CONVICT_THRESHOLDS.contains(&phi_convict_threshold) {
        return Err(AdminError::Phi(phi_convict_threshold));
    }
    context.member.set_phi_convict_threshold(f64::from(phi_convict_threshold));
    Ok(Json(context.failure_detection()))
}

async fn messages(State(Shared { context, .. }): State<Shared>) -> Json<Messages> {
    Json(context.messages())
}

async fn hints(State(Shared { context, .. }): State<Shared>) -> Json<Hints> {
    Json(context.hints())
}

async fn deliver_hints(
    State(Shared { context, .. }): State<Shared>,
    Change(HintDelivery { address }): Change<HintDelivery>,
) -> Result<Json<Changed>, AdminError> {
    if context.hints().targets.iter().all(|target| target.address != address) {
        return Err(AdminError::NoHints(address));
    }
    Ok(Json(Changed { changed: context.member.hasten_hints(address) }))
}

async fn read_rack_file(
    State(Shared { context, jobs, .. }): State<Shared>,
    Change(Nothing {}): Change<Nothing>,
) -> Result<Json<Changed>, AdminError> {
    let rack_file = context.rack_file.clone().ok_or(AdminError::NoRackFile)?;
    let job = move || {
        let changed = rack_file.reload()?;
        if changed {
            context.member.refresh();
        }
        Ok(Json(Changed { changed }))
    };
    jobs.run(job).await
}

async fn prometheus(
    State(Shared { context, .. }): State<Shared>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, AdminError> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::preferred(accept.unwrap_or_default());
    Ok(([(CONTENT_TYPE, format.content_type())], metrics::render(context, format)?))
}

fn queried(query: Queried, context: &AdminContext) -> Result<Vec<FamilyId>, AdminError> {
    let Query(query) = query?;
    Selection::from(query).families(context.storage.schema())
}
