//! Rows that operators look at: those that are read and written most, and the widest ones.

use super::error::AdminError;
use super::report::{BusyRow, BusyRows, Sampled, WideRow};
use super::request::{Change, Choice, families};
use super::resources::{Admin, Answer};
use super::rows::{HIDDEN, Keys};
use super::server::Peer;
use crate::model::key::RowKey;
use crate::model::schema::{FamilyId, Schema};
use crate::storage::family::{self, Sample};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Milliseconds for which operations are counted, and those unless a request says how many.
const DURATIONS: RangeInclusive<u64> = 1..=600_000;
const USUAL_DURATION: u64 = 10_000;

/// Rows that have counters, and those unless a request says how many.
const CAPACITIES: RangeInclusive<u64> = 1..=10_000;
const USUAL_CAPACITY: u64 = 256;

/// Rows of an answer, unless the request says how many.
const USUAL_COUNT: u64 = 10;

/// Operations to count.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BusyChoice {
    keyspace: Option<String>,
    column_family: Option<String>,
    duration_millis: Option<u64>,
    capacity: Option<u64>,
    count: Option<u64>,
    /// All kinds without it.
    samplers: Option<Vec<Sampler>>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Sampler {
    Reads,
    Writes,
}

/// Counts operations by row for some time. It ends early when the client leaves.
pub(super) async fn busy(
    State(it): State<Admin>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Change(choice): Change<BusyChoice>,
) -> Answer<BusyRows> {
    let duration_millis = choice.duration_millis.unwrap_or(USUAL_DURATION);
    let capacity = choice.capacity.unwrap_or(USUAL_CAPACITY);
    let count = choice.count.unwrap_or(USUAL_COUNT);
    check("duration_millis", &DURATIONS, duration_millis)?;
    check("capacity", &CAPACITIES, capacity)?;
    check("count", &(1..=capacity), count)?;
    let storage = &it.context.storage;
    let names = choice.column_family.as_slice();
    let families = families(storage.schema(), choice.keyspace.as_deref(), names)?;
    let rows = |kind: Sampler| {
        let is_chosen = choice.samplers.as_ref().is_none_or(|kinds| kinds.contains(&kind));
        is_chosen.then(|| family::BusyRows::new(capacity as usize))
    };
    let (reads, writes) = (rows(Sampler::Reads), rows(Sampler::Writes));
    let sample = Sample { families: families.into_iter().collect(), reads, writes };
    let sampling = storage.sampler().begin(sample).ok_or_else(|| {
        let text = "operations are being counted for another request: try again when it has ended";
        AdminError::new(StatusCode::CONFLICT, text)
    })?;
    tokio::time::sleep(Duration::from_millis(duration_millis)).await;
    let Sample { reads, writes, .. } = sampling.end().ok_or_else(AdminError::stopping)?;
    let shown = Shown::new(&it, peer.address(), &headers);
    let sampled = |rows: family::BusyRows| Sampled {
        operations: rows.total(),
        rows: rows
            .top()
            .take(count as usize)
            .map(|((id, key), counter)| BusyRow {
                family: (&**storage.schema().family(*id)).into(),
                key: shown.key(*id, key),
                count: counter.count,
                error: counter.error,
            })
            .collect(),
    };
    let (reads, writes) = (reads.map(sampled), writes.map(sampled));
    Ok(Json(BusyRows { duration_millis, reads, writes }))
}

fn check(name: &str, range: &RangeInclusive<u64>, value: u64) -> Result<(), AdminError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    let text = format!("{name} must be between {least} and {most}, and not {value}");
    Err(AdminError::bad_request(text))
}

/// Wide rows to show.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WidestChoice {
    keyspace: Option<String>,
    column_family: Option<String>,
    count: Option<u64>,
}

/// The widest rows of some column families, the widest first.
pub(super) async fn widest(
    State(it): State<Admin>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Choice(choice): Choice<WidestChoice>,
) -> Answer<Vec<WideRow>> {
    let storage = &it.context.storage;
    let names = choice.column_family.as_slice();
    let families = families(storage.schema(), choice.keyspace.as_deref(), names)?;
    let of_family = |id: FamilyId| {
        let rows = storage.family(id).widest_rows().into_iter();
        rows.map(move |row| (id, row))
    };
    let mut rows: Vec<_> = families.into_iter().flat_map(of_family).collect();
    rows.sort_by_key(|(_, (row, _))| Reverse(row.bytes));
    rows.truncate(choice.count.unwrap_or(USUAL_COUNT) as usize);
    let shown = Shown::new(&it, peer.address(), &headers);
    let rows = rows.into_iter().map(|(id, (row, sstables))| WideRow {
        family: (&**storage.schema().family(id)).into(),
        key: shown.key(id, &row.key),
        bytes: row.bytes,
        cells: row.cells,
        sstables,
    });
    Ok(Json(rows.collect()))
}

/// Keys as the sender of a request may see them.
struct Shown<'a> {
    schema: &'a Schema,
    shows_keys: bool,
}

impl<'a> Shown<'a> {
    fn new(it: &'a Admin, peer: IpAddr, headers: &HeaderMap) -> Self {
        let shows_keys = it.context.shows_keys(peer, headers);
        Self { schema: it.context.storage.schema(), shows_keys }
    }

    fn key(&self, id: FamilyId, key: &RowKey) -> String {
        if self.shows_keys {
            Keys::of(&self.schema.family(id).table).show(key)
        } else {
            HIDDEN.to_owned()
        }
    }
}
