//! The table of resources, one row each: the routes and the list in docs/nodetool.md come from
//! here.
//!
//! A handler is plain code that checks what was sent, and returns the answer or a job that may take
//! long.

#![expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "handlers have one signature"
)]

use super::context::AdminContext;
use super::error::AdminError;
use super::metrics::{self, Format};
use super::operations::{CleanupScope, DeadToken, NewToken, RepairScopeChange};
use super::report::{Done, Snapshot};
use super::request::{
    CapacityChange, NewSnapshot, Nothing, OneNode, Selection, SelectionQuery, SnapshotQuery,
    SuspicionChange, ThresholdsChange, Work,
};
use super::ring_report::{AllowedReturn, Changed};
use crate::config::settings::PHI_CONVICT_THRESHOLDS;
use crate::model::schema::FamilyId;
use crate::repair::Operation;
use crate::storage::Storage;
use crate::storage::compaction;
use axum::Json;
use axum::extract::Query;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;

/// A resource, used by one method. Everybody may `GET`; the others are changes, on which
/// [`super::Access`] decides.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// For docs/nodetool.md.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the document"))]
    what: &'static str,
    pub(super) handle: Handler,
}

/// A request, its body read.
pub(super) struct Call {
    pub(super) context: Arc<AdminContext>,
    pub(super) head: Parts,
    pub(super) body: Vec<u8>,
}

impl Call {
    fn query<T: DeserializeOwned>(&self) -> Result<T, AdminError> {
        let Query(query) = Query::try_from_uri(&self.head.uri)?;
        Ok(query)
    }

    /// The column families that the address names.
    fn families(&self) -> Result<Vec<FamilyId>, AdminError> {
        let query: SelectionQuery = self.query()?;
        Selection::from(query).families(self.context.storage.schema())
    }

    fn change<T: DeserializeOwned>(&self) -> Result<T, AdminError> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// Begins an operation on the ring; the answer is its state.
    fn begin(&self, operation: Operation) -> Result<Reply, AdminError> {
        ready(self.context.begin(operation)?)
    }
}

/// Result of a handler.
pub(super) enum Reply {
    /// The answer.
    Ready(Response),
    /// A look at the disk.
    Look(Job),
    /// A change that may take long.
    Job(Job),
    /// The same, answered before it is done.
    Background(Job, Response),
    /// A change that is no job: no number of jobs keeps it from starting.
    Task(Pin<Box<dyn Future<Output = Result<Response, AdminError>> + Send>>),
}

/// Work on a thread of its own, which ends in the answer.
pub(super) type Job = Box<dyn FnOnce() -> Result<Response, AdminError> + Send>;

fn ready(answer: impl Serialize) -> Result<Reply, AdminError> {
    Ok(Reply::Ready(Json(answer).into_response()))
}

fn job<T: Serialize>(work: impl FnOnce() -> Result<T, AdminError> + Send + 'static) -> Job {
    Box::new(move || Ok(Json(work()?).into_response()))
}

type Handler = fn(Call) -> Result<Reply, AdminError>;

const fn row(method: Method, path: &'static str, what: &'static str, handle: Handler) -> Resource {
    Resource { method, path, what, handle }
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

/// All resources.
pub(super) const RESOURCES: &[Resource] = &[
    row(GET, "/api/v1/info", "the node and its memory", |it| ready(it.context.info())),
    row(
        GET,
        "/api/v1/health",
        "200 if the node takes writes, else 503: for load balancers",
        health,
    ),
    row(
        GET,
        "/api/v1/cfstats",
        "column families; `?keyspace=` and `&column_family=` choose",
        |it| ready(it.context.keyspaces(&it.families()?)),
    ),
    row(GET, "/api/v1/cfhistograms", "how long operations took; the same choice", |it| {
        let families = it.families()?.into_iter();
        ready(families.map(|id| it.context.latencies(id)).collect::<Vec<_>>())
    }),
    row(GET, "/api/v1/pools", "work that is done, waits, or was done since the start", |it| {
        ready(it.context.pools())
    }),
    row(GET, "/api/v1/compactions", "those that are running, and totals since the start", |it| {
        ready(it.context.compactions())
    }),
    row(GET, "/api/v1/compaction-thresholds", "of the same choice of column families", |it| {
        ready(it.context.thresholds(&it.families()?))
    }),
    row(
        PUT,
        "/api/v1/compaction-thresholds",
        "`{\"min\": 4, \"max\": 32}`; a missing one stays",
        set_thresholds,
    ),
    row(
        PUT,
        "/api/v1/cache-capacities",
        "`{\"keyspace\": \"K\", \"column_family\": \"A\", \"key_cache\": 1000, \"row_cache\": 0}`",
        set_cache_capacities,
    ),
    row(POST, "/api/v1/flush", "writes memtables to disk", |it| {
        for_each(it, |storage, id, family| {
            storage.flush(id).map_err(|source| AdminError::Flush { family, source })
        })
    }),
    row(POST, "/api/v1/compact", "merges all SSTables of each column family into one", |it| {
        for_each(it, |storage, id, family| {
            storage.compact(id).map_err(|source| AdminError::Compaction { family, source })
        })
    }),
    row(
        GET,
        "/api/v1/snapshots",
        "all, or those of `?keyspace=` and of the tag or name `&name=`",
        |it| {
            let query: SnapshotQuery = it.query()?;
            Ok(Reply::Look(job(move || {
                let mut found = it.context.storage.snapshots()?;
                found.retain(|snapshot| query.means(snapshot));
                let found = query.checked(found, it.context.storage.schema())?;
                Ok(found.into_iter().map(Snapshot::from).collect::<Vec<_>>())
            })))
        },
    ),
    row(
        POST,
        "/api/v1/snapshots",
        "takes one: `{\"keyspace\": \"K\", \"tag\": \"nightly\"}`",
        |it| {
            let NewSnapshot { keyspace, tag } = it.change()?;
            Ok(Reply::Job(job(move || {
                let taken = it.context.storage.snapshot(keyspace.as_deref(), tag.as_deref())?;
                Ok(taken.into_iter().map(Snapshot::from).collect::<Vec<_>>())
            })))
        },
    ),
    row(
        DELETE,
        "/api/v1/snapshots",
        "removes the same choice as `GET`; takes no body",
        clear_snapshots,
    ),
    row(GET, "/api/v1/status", "all nodes at a glance; `healthy` of each, and of all", |it| {
        ready(it.context.status())
    }),
    row(GET, "/api/v1/cluster", "which live nodes agree; as `look_at`, those that differ", |it| {
        ready(it.context.description())
    }),
    row(
        POST,
        "/api/v1/drain",
        "takes the node out of its ring and writes everything to disk",
        drain,
    ),
    row(
        GET,
        "/api/v1/ring",
        "the nodes as this one knows them, and those that were removed",
        |it| ready(it.context.ring()),
    ),
    row(
        POST,
        "/api/v1/ring/allow-return",
        "`{\"address\": \"10.0.0.2\"}`: takes a removed node back with the data that it has",
        allow_return,
    ),
    row(GET, "/api/v1/ring/operation", "the operation that was begun last: how far it is", |it| {
        ready(it.context.operation())
    }),
    row(POST, "/api/v1/ring/decommission", "begins it", |it| {
        let Nothing {} = it.change()?;
        it.begin(Operation::Decommission)
    }),
    row(POST, "/api/v1/ring/loadbalance", "begins it", |it| {
        let Nothing {} = it.change()?;
        it.begin(Operation::Loadbalance)
    }),
    row(POST, "/api/v1/ring/move", "`{\"token\": \"5\"}`", |it| {
        let NewToken { token } = it.change()?;
        it.begin(Operation::Move(it.context.parse_token(&token)?))
    }),
    row(POST, "/api/v1/ring/remove-token", "`{\"token\": \"5\", \"accept_loss\": false}`", |it| {
        let DeadToken { token, accept_loss: accepts_loss } = it.change()?;
        let token = it.context.parse_token(&token)?;
        it.begin(Operation::Remove { token, accepts_loss })
    }),
    row(POST, "/api/v1/cleanup", "`{\"keyspace\": \"K\"}`, or nothing for all", |it| {
        let scope: CleanupScope = it.change()?;
        it.begin(it.context.cleanup(scope)?)
    }),
    row(
        POST,
        "/api/v1/repair",
        "`{\"keyspace\": \"K\", \"column_families\": [\"A\"], \"primary_range\": true}`, or less",
        |it| {
            let scope: RepairScopeChange = it.change()?;
            it.begin(it.context.repair(scope)?)
        },
    ),
    row(GET, "/api/v1/streams", "what the node is doing, and which data move", |it| {
        ready(it.context.streams())
    }),
    row(GET, "/api/v1/gossip", "what the nodes say of themselves", |it| ready(it.context.gossip())),
    row(GET, "/api/v1/failure-detector", "above which phi a silent node counts as dead", |it| {
        ready(it.context.failure_detection())
    }),
    row(
        PUT,
        "/api/v1/failure-detector",
        "`{\"phi_convict_threshold\": 8}`: changes that until the next start",
        set_failure_detector,
    ),
    row(
        GET,
        "/api/v1/messages",
        "messages of each node; speculative reads and read repairs",
        |it| ready(it.context.messages()),
    ),
    row(GET, "/api/v1/hints", "what is kept for nodes that are down, and totals", |it| {
        ready(it.context.hints())
    }),
    row(
        POST,
        "/api/v1/hints/deliver",
        "`{\"address\": \"10.0.0.2\"}`: does not wait half a minute after a failed delivery",
        deliver_hints,
    ),
    row(
        POST,
        "/api/v1/rack-file",
        "reads the rack file again, otherwise done within ten seconds of a change",
        read_rack_file,
    ),
    row(GET, "/metrics", "for Prometheus", prometheus),
];

/// Tells whether the node takes writes, by the status of the answer, too.
fn health(call: Call) -> Result<Reply, AdminError> {
    let health = call.context.health();
    let code = if health.takes_writes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(Reply::Ready((code, Json(health)).into_response()))
}

fn set_cache_capacities(call: Call) -> Result<Reply, AdminError> {
    let change: CapacityChange = call.change()?;
    let family = change.family(call.context.storage.schema())?;
    // Many entries may have to leave.
    Ok(Reply::Job(job(move || {
        call.context.storage.store(family).set_cache_capacity(change.key_cache, change.row_cache);
        Ok(call.context.caches(family))
    })))
}

fn set_thresholds(call: Call) -> Result<Reply, AdminError> {
    let change: ThresholdsChange = call.change()?;
    if change.min.is_none() && change.max.is_none() {
        return Err(AdminError::NoThresholds);
    }
    let storage = &call.context.storage;
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
    ready(call.context.thresholds(&families))
}

/// Does something to each of the selected column families, one after the other, and stops at the
/// first failure.
fn for_each(
    call: Call,
    act: fn(&Storage, FamilyId, String) -> Result<(), AdminError>,
) -> Result<Reply, AdminError> {
    let work: Work = call.change()?;
    let schema = Arc::clone(call.context.storage.schema());
    let families = work.selection().families(&schema)?;
    let name = |id: &FamilyId| schema.family(*id).to_string();
    let column_families: Vec<String> = families.iter().map(name).collect();
    let done = Done { column_families: column_families.clone() };
    let answer = (StatusCode::ACCEPTED, Json(done.clone())).into_response();
    let job = job(move || {
        let mut named = families.into_iter().zip(column_families);
        named.try_for_each(|(id, name)| act(&call.context.storage, id, name))?;
        Ok(done)
    });
    Ok(if work.is_waited_for() { Reply::Job(job) } else { Reply::Background(job, answer) })
}

fn clear_snapshots(call: Call) -> Result<Reply, AdminError> {
    let query: SnapshotQuery = call.query()?;
    Ok(Reply::Job(job(move || {
        let (keyspace, name) = (query.keyspace.as_deref(), query.name.as_deref());
        let cleared = call.context.storage.clear_snapshots(keyspace, name)?;
        let cleared = query.checked(cleared, call.context.storage.schema())?;
        Ok(cleared.into_iter().map(Snapshot::from).collect::<Vec<_>>())
    })))
}

fn drain(call: Call) -> Result<Reply, AdminError> {
    let Nothing {} = call.change()?;
    Ok(Reply::Task(Box::pin(
        async move { Ok(Json(call.context.drain.run().await).into_response()) },
    )))
}

fn allow_return(call: Call) -> Result<Reply, AdminError> {
    let OneNode { address } = call.change()?;
    Ok(Reply::Job(job(move || {
        let returned = call.context.member.allow_return(address);
        let returned = returned.ok_or(AdminError::NotRemoved(address))?;
        Ok(AllowedReturn { address, returned })
    })))
}

fn set_failure_detector(call: Call) -> Result<Reply, AdminError> {
    let SuspicionChange { phi_convict_threshold } = call.change()?;
    if !PHI_CONVICT_THRESHOLDS.contains(&phi_convict_threshold) {
        return Err(AdminError::Phi(phi_convict_threshold));
    }
    call.context.member.set_phi_convict_threshold(f64::from(phi_convict_threshold));
    ready(call.context.failure_detection())
}

fn deliver_hints(call: Call) -> Result<Reply, AdminError> {
    let OneNode { address } = call.change()?;
    if call.context.hints().targets.iter().all(|target| target.address != address) {
        return Err(AdminError::NoHints(address));
    }
    ready(Changed { changed: call.context.member.hasten_hints(address) })
}

fn read_rack_file(call: Call) -> Result<Reply, AdminError> {
    let Nothing {} = call.change()?;
    let rack_file = call.context.rack_file.clone().ok_or(AdminError::NoRackFile)?;
    Ok(Reply::Job(job(move || {
        let changed = rack_file.reload()?;
        if changed {
            call.context.member.refresh();
        }
        Ok(Changed { changed })
    })))
}

fn prometheus(call: Call) -> Result<Reply, AdminError> {
    let accept = call.head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::preferred(accept.unwrap_or_default());
    let text = metrics::render(call.context, format)?;
    Ok(Reply::Ready(([(CONTENT_TYPE, format.content_type())], text).into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::check_part;

    #[test]
    fn the_manual_has_the_rows_of_the_table() {
        let row = |Resource { method, path, what, .. }: &Resource| {
            format!("| `{method} {path}` | {what} |\n")
        };
        let rows: String = RESOURCES.iter().map(row).collect();
        check_part("docs/nodetool.md", "resources", &format!("| resource | |\n|---|---|\n{rows}"));
    }
}
