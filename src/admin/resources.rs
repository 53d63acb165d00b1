//! The table of resources, one row each. docs/nodetool.md says what they are.

use super::access::{self, Reader};
use super::context::AdminContext;
use super::error::AdminError;
use super::jobs::Jobs;
use super::metrics::{self, Format};
use super::report::{Caches, Done, OperationState, Snapshot, Stopped, Thresholds};
use super::request::{Change, Choice, NoBody, check_keyspace, families, find_family};
use super::ring_report::AllowedReturn;
use super::rows::{RowsChoice, RowsPage};
use super::server::Peer;
use super::settings;
use super::top_rows;
use crate::config::settings::PHI_CONVICT_THRESHOLDS;
use crate::model::key::RowKey;
use crate::model::schema::{FamilyId, Schema};
use crate::node::Drained;
use crate::repair::{Operation, RepairScope};
use crate::storage::compaction::CompactionError;
use crate::storage::{Database, compaction, snapshot};
use axum::extract::{FromRequest, Request, State};
use axum::handler::Handler;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A resource, used by one method. Everybody may `GET`; the others are changes, on which
/// [`super::Access`] decides, but for [`ROWS`].
pub(super) struct Resource {
    /// For the test of the document.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it"))]
    method: Method,
    /// Whether a support bundle has it: it tells of the node without a choice, and of no rows.
    is_of_node: bool,
    pub(super) path: &'static str,
    pub(super) route: MethodRouter<Admin>,
}

/// Parts of the node that resources report on.
#[derive(Debug, Clone)]
pub(super) struct Admin {
    pub(super) context: Arc<AdminContext>,
    pub(super) jobs: Jobs,
    /// Looks at the disk. Anybody may look, and must not keep an operator from a change.
    looks: Jobs,
    /// The turn to write metrics.
    rendering: Arc<Semaphore>,
}

impl Admin {
    pub(super) fn new(context: Arc<AdminContext>) -> Self {
        let rendering = Arc::new(Semaphore::new(1));
        Self { context, jobs: Jobs::default(), looks: Jobs::default(), rendering }
    }

    fn schema(&self) -> &Schema {
        self.context.storage.schema()
    }

    fn reader(&self, peer: &Peer, headers: &HeaderMap) -> Result<Reader, AdminError> {
        let reader = access::reader(&self.context.settings.admin, peer.address(), headers);
        reader.map_err(|(status, why)| AdminError::new(status, why))
    }
}

const DELETE: Method = Method::DELETE;
const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;

/// Bytes of a choice of rows: a key and two names, in hexadecimal digits, have 384 KB.
const MAX_CHOICE: usize = 512 << 10;

/// Rows of clients.
pub(super) const ROWS: &str = "/api/v1/rows";

pub(super) type Answer<T> = Result<Json<T>, AdminError>;

fn row<T: 'static>(
    method: Method,
    path: &'static str,
    handler: impl Handler<T, Admin>,
) -> Resource {
    let filter = MethodFilter::try_from(method.clone()).expect("the table has common methods");
    Resource { method, path, is_of_node: false, route: on(filter, handler) }
}

fn of_node(resource: Resource) -> Resource {
    Resource { is_of_node: true, ..resource }
}

/// A look at what is in memory.
fn look<T: Serialize + 'static>(path: &'static str, answer: fn(&AdminContext) -> T) -> Resource {
    of_node(row(GET, path, async move |State(it): State<Admin>| Json(answer(&it.context))))
}

/// The same at column families that the address chooses.
fn look_at_families<T: Serialize + 'static>(
    path: &'static str,
    answer: fn(&AdminContext, &[FamilyId]) -> Vec<T>,
) -> Resource {
    let answer = async move |State(it): State<Admin>, Choice(choice): Choice<FamilyChoice>| {
        let FamilyChoice { keyspace, column_family } = choice;
        let names: Vec<String> = column_family.into_iter().collect();
        let families = families(it.schema(), keyspace.as_deref(), &names)?;
        Ok::<_, AdminError>(Json(answer(&it.context, &families)))
    };
    of_node(row(GET, path, answer))
}

/// A change that begins an operation on the ring; the answer is its state.
fn operation<T: DeserializeOwned + Send + 'static>(
    path: &'static str,
    wish: fn(&AdminContext, T) -> Result<Operation, AdminError>,
) -> Resource {
    let begin = async move |State(it): State<Admin>, Change(change): Change<T>| {
        let operation = wish(&it.context, change)?;
        Ok::<_, AdminError>(Json(it.context.begin(operation)?))
    };
    row(POST, path, begin)
}

/// All resources.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        look("/api/v1/info", AdminContext::info),
        // Left out of the bundle, which has the same in /api/v1/info.
        row(GET, "/api/v1/health", health),
        look_at_families("/api/v1/cfstats", AdminContext::keyspaces),
        look_at_families("/api/v1/schema", AdminContext::types),
        row(GET, ROWS, rows),
        row(POST, ROWS, chosen_rows),
        look_at_families("/api/v1/cfhistograms", AdminContext::latencies),
        look("/api/v1/pools", AdminContext::pools),
        look("/api/v1/compactions", AdminContext::compactions),
        row(POST, "/api/v1/compactions/stop", stop_compactions),
        look_at_families("/api/v1/compaction-thresholds", AdminContext::thresholds),
        row(PUT, "/api/v1/compaction-thresholds", set_thresholds),
        row(PUT, "/api/v1/cache-capacities", set_cache_capacities),
        row(POST, "/api/v1/flush", flush),
        row(POST, "/api/v1/compact", compact),
        of_node(row(GET, "/api/v1/snapshots", list_snapshots)),
        row(POST, "/api/v1/snapshots", take_snapshot),
        row(DELETE, "/api/v1/snapshots", clear_snapshots),
        look("/api/v1/status", AdminContext::status),
        look("/api/v1/cluster", AdminContext::description),
        row(POST, "/api/v1/drain", drain),
        look("/api/v1/ring", AdminContext::ring),
        row(GET, "/api/v1/endpoints", endpoints),
        row(POST, "/api/v1/ring/allow-return", allow_return),
        look("/api/v1/ring/operation", AdminContext::operation),
        row(POST, "/api/v1/ring/operation/stop", stop_repair),
        operation("/api/v1/ring/decommission", |_, Nothing {}| Ok(Operation::Decommission)),
        operation("/api/v1/ring/loadbalance", |_, Nothing {}| Ok(Operation::Loadbalance)),
        operation("/api/v1/ring/move", move_to),
        operation("/api/v1/ring/remove-token", remove),
        operation("/api/v1/cleanup", cleanup),
        operation("/api/v1/repair", repair),
        look("/api/v1/streams", AdminContext::streams),
        look("/api/v1/gossip", AdminContext::gossip),
        look("/api/v1/failure-detector", AdminContext::failure_detection),
        row(PUT, "/api/v1/failure-detector", set_failure_detector),
        look("/api/v1/messages", AdminContext::messages),
        look("/api/v1/hints", AdminContext::hints),
        row(POST, "/api/v1/hints/deliver", deliver_hints),
        row(POST, "/api/v1/rack-file", read_rack_file),
        row(POST, "/api/v1/reload", settings::reload),
        look("/api/v1/log-levels", |_| settings::present_levels()),
        row(PUT, "/api/v1/log-levels", settings::set_log_levels),
        look("/api/v1/throughputs", AdminContext::throughputs),
        row(PUT, "/api/v1/throughputs", settings::set_throughputs),
        row(GET, "/api/v1/slow", settings::slow),
        row(PUT, "/api/v1/slow", settings::set_slow_threshold),
        row(POST, "/api/v1/busy-rows", top_rows::busy),
        row(GET, "/api/v1/widest-rows", top_rows::widest),
        of_node(row(GET, "/metrics", prometheus)),
    ]
}

/// A row in an address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowChoice {
    keyspace: String,
    key: String,
}

async fn endpoints(
    State(it): State<Admin>,
    Choice(RowChoice { keyspace, key }): Choice<RowChoice>,
) -> Answer<Vec<IpAddr>> {
    check_keyspace(it.schema(), &keyspace)?;
    Ok(Json(it.context.endpoints(&keyspace, &RowKey::new(key.as_bytes()))))
}

/// Paths of the resources that a support bundle has.
pub fn looks() -> Vec<&'static str> {
    resources().into_iter().filter(|it| it.is_of_node).map(|it| it.path).collect()
}

/// Column families in an address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyChoice {
    keyspace: Option<String>,
    column_family: Option<String>,
}

/// A change that needs no words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The node that a change is about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneNode {
    address: IpAddr,
}

/// Tells whether the node takes writes, by the status of the answer, too.
async fn health(State(it): State<Admin>) -> impl IntoResponse {
    let health = it.context.health();
    let code = if health.takes_writes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(health))
}

/// Shows rows to those who may see them.
async fn rows(
    State(it): State<Admin>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Choice(choice): Choice<RowsChoice>,
) -> Answer<RowsPage> {
    let reader = it.reader(&peer, &headers)?;
    Ok(Json(it.context.rows((reader, peer.address()), &choice).await?))
}

/// Shows rows that a body chooses: keys and names may be longer than an address.
async fn chosen_rows(
    State(it): State<Admin>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answer<RowsPage> {
    // Nothing is read of strangers.
    let reader = it.reader(&peer, request.headers())?;
    let Change(choice) = Change::<_, MAX_CHOICE>::from_request(request, &()).await?;
    Ok(Json(it.context.rows((reader, peer.address()), &choice).await?))
}

/// New capacities of the caches of one column family: keys and rows; 0 switches one off.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityChange {
    keyspace: String,
    column_family: String,
    key_cache: u64,
    row_cache: u64,
}

async fn set_cache_capacities(
    State(it): State<Admin>,
    Change(change): Change<CapacityChange>,
) -> Answer<Caches> {
    let family = find_family(it.schema(), &change.keyspace, &change.column_family)?;
    // Many entries may have to leave.
    it.jobs
        .run(move || {
            let store = it.context.storage.family(family);
            store.set_cache_capacity(change.key_cache, change.row_cache);
            Ok(Json(it.context.caches(family)))
        })
        .await
}

/// New thresholds; what is missing stays as it is. A maximum of 0 is for no minor compactions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThresholdsChange {
    keyspace: Option<String>,
    #[serde(default)]
    column_families: Vec<String>,
    min: Option<usize>,
    max: Option<usize>,
}

async fn set_thresholds(
    State(it): State<Admin>,
    Change(change): Change<ThresholdsChange>,
) -> Answer<Vec<Thresholds>> {
    if change.min.is_none() && change.max.is_none() {
        return Err(AdminError::bad_request("Missing threshold value(s)"));
    }
    let storage = &it.context.storage;
    let families = families(it.schema(), change.keyspace.as_deref(), &change.column_families)?;
    let new = |family: &FamilyId| {
        let compaction::Thresholds { min, max } = storage.family(*family).compaction_thresholds();
        compaction::Thresholds::new(change.min.unwrap_or(min), change.max.unwrap_or(max))
    };
    // All of them make sense, or none is changed.
    let all = families.iter().map(new).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(AdminError::bad_request)?;
    for (family, compaction::Thresholds { min, max }) in families.iter().zip(all) {
        storage.set_compaction_thresholds(*family, min, max).map_err(AdminError::bad_request)?;
    }
    Ok(Json(it.context.thresholds(&families)))
}

/// Work on column families that may take long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    keyspace: Option<String>,
    #[serde(default)]
    column_families: Vec<String>,
    /// Whether the answer comes when the work is done, which is so unless said otherwise.
    wait: Option<bool>,
}

async fn flush(State(it): State<Admin>, Change(work): Change<Work>) -> WorkAnswer {
    it.work(work, |storage, id, family| {
        let failed = |error| AdminError::failed(format_args!("{family} was not flushed: {error}"));
        storage.flush(id).map_err(failed)
    })
    .await
}

async fn compact(State(it): State<Admin>, Change(work): Change<Work>) -> WorkAnswer {
    it.work(work, |storage, id, family| {
        storage.compact(id).map_err(|error| {
            let text = format!("{family} was not compacted: {error}");
            match error {
                CompactionError::Stopped => AdminError::new(StatusCode::SERVICE_UNAVAILABLE, text),
                CompactionError::Cancelled => AdminError::new(StatusCode::CONFLICT, text),
                _ => AdminError::failed(text),
            }
        })
    })
    .await
}

/// A running compaction; all without a number.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactionChoice {
    id: Option<u64>,
}

async fn stop_compactions(
    State(it): State<Admin>,
    Change(CompactionChoice { id }): Change<CompactionChoice>,
) -> Answer<Stopped> {
    let stopped = it.context.storage.cancel_compactions(id);
    match id {
        Some(id) if stopped.is_empty() => {
            let text = format!("no compaction with the number {id} is running");
            Err(AdminError::not_found(text))
        }
        _ => Ok(Json(Stopped { stopped })),
    }
}

async fn stop_repair(
    State(it): State<Admin>,
    Change(Nothing {}): Change<Nothing>,
) -> Answer<Option<OperationState>> {
    let stopped = it.context.member.operations().stop_repair();
    stopped.map_err(|error| AdminError::new(StatusCode::CONFLICT, error))?;
    Ok(Json(it.context.operation()))
}

type WorkAnswer = Result<(StatusCode, Json<Done>), AdminError>;

impl Admin {
    /// Does something to each of the chosen column families, one after the other, and stops at the
    /// first failure.
    async fn work(
        self,
        work: Work,
        act: fn(&Database, FamilyId, &str) -> Result<(), AdminError>,
    ) -> WorkAnswer {
        let families = families(self.schema(), work.keyspace.as_deref(), &work.column_families)?;
        let name = |id: &FamilyId| self.schema().family(*id).to_string();
        let column_families: Vec<String> = families.iter().map(name).collect();
        let done = Json(Done { column_families: column_families.clone() });
        let Self { context, jobs, .. } = self;
        let job = jobs.begin(move || {
            let mut named = families.into_iter().zip(&column_families);
            let done = named.try_for_each(|(id, name)| act(&context.storage, id, name));
            if work.wait == Some(false) {
                let _ = done.as_ref().inspect_err(|error| log::error!("{error}"));
            }
            done
        })?;
        if work.wait == Some(false) {
            return Ok((StatusCode::ACCEPTED, done));
        }
        Jobs::join(job).await?;
        Ok((StatusCode::OK, done))
    }
}

/// Snapshots in an address: of a keyspace, or of a name or tag.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotChoice {
    keyspace: Option<String>,
    name: Option<String>,
}

impl SnapshotChoice {
    fn means(&self, snapshot: &snapshot::Snapshot) -> bool {
        self.keyspace.as_ref().is_none_or(|keyspace| *keyspace == snapshot.keyspace)
            && self.name.as_ref().is_none_or(|name| snapshot.name.is_meant_by(name))
    }

    /// The answer, or an error if the choice finds nothing: it names what is not there. A keyspace
    /// that is configured no more may still have snapshots.
    fn answer(&self, found: Vec<snapshot::Snapshot>, schema: &Schema) -> Answer<Vec<Snapshot>> {
        if found.is_empty() {
            self.keyspace.as_ref().map_or(Ok(()), |keyspace| check_keyspace(schema, keyspace))?;
            if let Some(name) = &self.name {
                let text = format!("no snapshot {name} was found");
                return Err(AdminError::not_found(text));
            }
        }
        Ok(Json(found.into_iter().map(Snapshot::from).collect()))
    }
}

async fn list_snapshots(
    State(it): State<Admin>,
    Choice(choice): Choice<SnapshotChoice>,
) -> Answer<Vec<Snapshot>> {
    it.looks
        .run(move || {
            let mut found = it.context.storage.snapshots().map_err(AdminError::failed)?;
            found.retain(|snapshot| choice.means(snapshot));
            choice.answer(found, it.context.storage.schema())
        })
        .await
}

async fn clear_snapshots(
    State(it): State<Admin>,
    Choice(choice): Choice<SnapshotChoice>,
    NoBody: NoBody,
) -> Answer<Vec<Snapshot>> {
    it.jobs
        .run(move || {
            let (keyspace, name) = (choice.keyspace.as_deref(), choice.name.as_deref());
            let cleared = it.context.storage.clear_snapshots(keyspace, name);
            let cleared = cleared.map_err(AdminError::failed)?;
            choice.answer(cleared, it.context.storage.schema())
        })
        .await
}

/// A snapshot that is to be taken: of all keyspaces without one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSnapshot {
    keyspace: Option<String>,
    tag: Option<String>,
}

async fn take_snapshot(
    State(it): State<Admin>,
    Change(NewSnapshot { keyspace, tag }): Change<NewSnapshot>,
) -> Answer<Vec<Snapshot>> {
    it.jobs
        .run(move || {
            let taken = it.context.storage.snapshot(keyspace.as_deref(), tag.as_deref())?;
            Ok(Json(taken.into_iter().map(Snapshot::from).collect()))
        })
        .await
}

async fn drain(State(it): State<Admin>, Change(Nothing {}): Change<Nothing>) -> Answer<Drained> {
    // It goes on when its client has gone away, and no number of jobs keeps it from starting.
    Jobs::join(tokio::spawn(async move { Ok(Json(it.context.drain.run().await)) })).await
}

async fn allow_return(
    State(it): State<Admin>,
    Change(OneNode { address }): Change<OneNode>,
) -> Answer<AllowedReturn> {
    it.jobs
        .run(move || {
            let returned = it.context.member.allow_return(address).ok_or_else(|| {
                AdminError::not_found(format_args!(
                    "{address} is not among the removed nodes: those are told as `removed` by \
                 /api/v1/ring, or nodetool --json ring"
                ))
            })?;
            Ok(Json(AllowedReturn { address, returned }))
        })
        .await
}

/// The place to move to, as the partitioner writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    token: String,
}

fn move_to(it: &AdminContext, NewToken { token }: NewToken) -> Result<Operation, AdminError> {
    Ok(Operation::Move(it.parse_token(&token)?))
}

/// The node to remove.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadToken {
    token: String,
    /// Also if too few replicas of a range are alive.
    #[serde(default)]
    accept_loss: bool,
}

fn remove(
    it: &AdminContext,
    DeadToken { token, accept_loss: accepts_loss }: DeadToken,
) -> Result<Operation, AdminError> {
    Ok(Operation::Remove { token: it.parse_token(&token)?, accepts_loss })
}

/// The keyspace that is to be cleaned up; all without one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CleanupScope {
    keyspace: Option<String>,
}

fn cleanup(it: &AdminContext, scope: CleanupScope) -> Result<Operation, AdminError> {
    if let Some(keyspace) = &scope.keyspace {
        check_keyspace(it.storage.schema(), keyspace)?;
    }
    Ok(Operation::Cleanup(scope.keyspace))
}

/// Scope of a repair.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepairChange {
    keyspace: String,
    /// All of the keyspace without any.
    #[serde(default)]
    column_families: Vec<String>,
    /// Only the range that the node owns, not all of which it is a replica.
    #[serde(default)]
    primary_range: bool,
}

fn repair(
    it: &AdminContext,
    RepairChange { keyspace, column_families, primary_range }: RepairChange,
) -> Result<Operation, AdminError> {
    let families = families(it.storage.schema(), Some(&keyspace), &column_families)?;
    let scope = if primary_range { RepairScope::Primary } else { RepairScope::All };
    Ok(Operation::Repair(families, scope))
}

/// New threshold above which a silent node counts as dead.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuspicionChange {
    phi_convict_threshold: u32,
}

async fn set_failure_detector(
    State(it): State<Admin>,
    Change(SuspicionChange { phi_convict_threshold: phi }): Change<SuspicionChange>,
) -> Answer<Value> {
    if !PHI_CONVICT_THRESHOLDS.contains(&phi) {
        let (least, most) = PHI_CONVICT_THRESHOLDS.into_inner();
        return Err(AdminError::bad_request(format_args!(
            "phi_convict_threshold must be between {least} and {most}, as PhiConvictThreshold, \
             and not {phi}"
        )));
    }
    it.context.member.set_phi_convict_threshold(f64::from(phi));
    Ok(Json(it.context.failure_detection()))
}

async fn deliver_hints(
    State(it): State<Admin>,
    Change(OneNode { address }): Change<OneNode>,
) -> Answer<Value> {
    if it.context.hints().targets.iter().all(|target| target.address != address) {
        return Err(AdminError::not_found(format_args!("there are no hints for {address}")));
    }
    let handoff = it.context.member.handoff();
    let is_changed = handoff.is_some_and(|handoff| handoff.hasten(address));
    Ok(Json(json!({ "changed": is_changed })))
}

async fn read_rack_file(
    State(it): State<Admin>,
    Change(Nothing {}): Change<Nothing>,
) -> Answer<Value> {
    let missing = || AdminError::not_found("no keyspace has a snitch that reads a rack file");
    let rack_file = it.context.rack_file.clone().ok_or_else(missing)?;
    it.jobs
        .run(move || {
            let changed = rack_file.reload().map_err(|error| {
                AdminError::failed(format_args!("{error}; what it said before stays in force"))
            })?;
            if changed {
                it.context.member.refresh();
            }
            Ok(Json(json!({ "changed": changed })))
        })
        .await
}

async fn prometheus(State(it): State<Admin>, headers: HeaderMap) -> Result<Response, AdminError> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::preferred(accept.unwrap_or_default());
    // Of a thousand column families it is megabytes, for which other requests need not wait; those
    // for metrics do, so that clients that leave do not pile them up. It is never closed.
    let turn = Arc::clone(&it.rendering).acquire_owned().await;
    let rendering = tokio::task::spawn_blocking(move || {
        let text = metrics::render(it.context, format);
        drop(turn);
        text.map_err(|_| AdminError::failed("the metrics cannot be written"))
    });
    let text = Jobs::join(rendering).await?;
    Ok(([(CONTENT_TYPE, format.content_type())], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::part;

    #[test]
    fn the_manual_has_the_rows_of_the_table() {
        let [_, documented, _] = part("docs/nodetool.md", "resources");
        let documented = documented.lines().skip(2).filter_map(|line| line.split('`').nth(1));
        let served: Vec<String> =
            resources().iter().map(|it| format!("{} {}", it.method, it.path)).collect();
        let documented: Vec<_> = documented.collect();
        assert_eq!(
            documented, served,
            "the table of resources in docs/nodetool.md is written by hand"
        );
    }
}
