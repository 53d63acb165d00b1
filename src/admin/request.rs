//! What operators send: which column families are meant, and bodies with their bounds.

use super::connection::Peer;
use super::error::AdminError;
use crate::model::schema::{FamilyId, Schema};
use crate::storage::snapshot::Snapshot;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;

/// Bytes of a body.
const MAX_BODY: usize = 64 << 10;

/// How long a client may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Which column families are meant: all, those of a keyspace, or some of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selection {
    /// `None` for all.
    keyspace: Option<String>,
    /// Empty for all.
    #[serde(default)]
    column_families: Vec<String>,
}

/// A selection in an address.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectionQuery {
    keyspace: Option<String>,
    column_family: Option<String>,
}

impl From<SelectionQuery> for Selection {
    fn from(query: SelectionQuery) -> Self {
        let SelectionQuery { keyspace, column_family } = query;
        Self { keyspace, column_families: column_family.into_iter().collect() }
    }
}

impl Selection {
    /// Some column families of a keyspace; all of them without any.
    pub(super) fn of(keyspace: String, column_families: Vec<String>) -> Self {
        Self { keyspace: Some(keyspace), column_families }
    }

    /// The numbers of the column families that are meant.
    pub(super) fn families(&self, schema: &Schema) -> Result<Vec<FamilyId>, AdminError> {
        let Some(keyspace) = &self.keyspace else {
            if self.column_families.is_empty() {
                return Ok(schema.families().map(|(id, _)| id).collect());
            }
            return Err(AdminError::NoKeyspaceNamed);
        };
        if !schema.has_keyspace(keyspace) {
            return Err(AdminError::NoKeyspace(keyspace.clone()));
        }
        let find = |name: &str| find(schema, keyspace, name);
        if self.column_families.is_empty() {
            return schema.families_of(keyspace).iter().map(|family| find(&family.name)).collect();
        }
        self.column_families.iter().map(|name| find(name)).collect()
    }
}

/// Work on column families that may take long.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Work {
    keyspace: Option<String>,
    #[serde(default)]
    column_families: Vec<String>,
    /// Whether the answer comes when the work is done, which is so unless said otherwise.
    wait: Option<bool>,
}

impl Work {
    /// On which column families.
    pub(super) fn selection(&self) -> Selection {
        let (keyspace, column_families) = (self.keyspace.clone(), self.column_families.clone());
        Selection { keyspace, column_families }
    }

    /// Whether the answer comes when it is done.
    pub(super) fn is_waited_for(&self) -> bool {
        self.wait.unwrap_or(true)
    }
}

/// New thresholds; what is missing stays as it is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThresholdsChange {
    keyspace: Option<String>,
    #[serde(default)]
    column_families: Vec<String>,
    /// SSTables of similar size that a minor compaction takes at least.
    pub(super) min: Option<usize>,
    /// At most; 0 for no minor compactions.
    pub(super) max: Option<usize>,
}

impl ThresholdsChange {
    /// For which column families.
    pub(super) fn selection(&self) -> Selection {
        let (keyspace, column_families) = (self.keyspace.clone(), self.column_families.clone());
        Selection { keyspace, column_families }
    }
}

/// New capacities of the caches of one column family.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityChange {
    pub(super) keyspace: String,
    pub(super) column_family: String,
    /// Of the key cache, in keys; 0 switches it off.
    pub(super) key_cache: u64,
    /// Of the row cache, in rows; 0 switches it off.
    pub(super) row_cache: u64,
}

impl CapacityChange {
    /// For which column family.
    pub(super) fn family(&self, schema: &Schema) -> Result<FamilyId, AdminError> {
        find(schema, &self.keyspace, &self.column_family)
    }
}

/// A snapshot that is to be taken.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSnapshot {
    /// `None` for all.
    pub(super) keyspace: Option<String>,
    /// A name for it, besides the time.
    pub(super) tag: Option<String>,
}

/// Which snapshots are meant, in an address.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotQuery {
    /// `None` for those of all keyspaces.
    pub(super) keyspace: Option<String>,
    /// Their name or tag; `None` for all.
    pub(super) name: Option<String>,
}

impl SnapshotQuery {
    /// Whether this one is meant.
    pub(super) fn means(&self, snapshot: &Snapshot) -> bool {
        self.keyspace.as_ref().is_none_or(|keyspace| *keyspace == snapshot.keyspace)
            && self.name.as_ref().is_none_or(|name| snapshot.name.is_meant_by(name))
    }

    /// What was found, or what is wrong with a query that finds nothing: it names what is not
    /// there. A keyspace that is configured no more may still have snapshots.
    pub(super) fn checked(
        self,
        found: Vec<Snapshot>,
        schema: &Schema,
    ) -> Result<Vec<Snapshot>, AdminError> {
        if !found.is_empty() {
            return Ok(found);
        }
        match self {
            Self { keyspace: Some(keyspace), .. } if !schema.has_keyspace(&keyspace) => {
                Err(AdminError::NoKeyspace(keyspace))
            }
            Self { name: Some(name), .. } => Err(AdminError::NoSnapshot(name)),
            Self { name: None, .. } => Ok(found),
        }
    }
}

/// The node that a change is about.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneNode {
    pub(super) address: IpAddr,
}

/// When a silent node is to count as dead.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspicionChange {
    pub(super) phi_convict_threshold: u32,
}

/// A change that needs no words.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

fn find(schema: &Schema, keyspace: &str, name: &str) -> Result<FamilyId, AdminError> {
    if !schema.has_keyspace(keyspace) {
        return Err(AdminError::NoKeyspace(keyspace.to_owned()));
    }
    schema.family_id(keyspace, name).ok_or_else(|| AdminError::NoFamily {
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
    })
}

/// The head and the body of a change: JSON, and said to be. Without a body it is `{}`.
pub(super) async fn read_change(request: Request) -> Result<(Parts, Vec<u8>), AdminError> {
    if !is_json(request.headers()) {
        return Err(AdminError::NotJson);
    }
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    if let Some(peer) = head.extensions.get::<Peer>() {
        peer.begin().await;
    }
    let is_empty = body.trim_ascii().is_empty();
    Ok((head, if is_empty { b"{}".to_vec() } else { body }))
}

/// The head of a request without a body. Where the address says what is meant, a body that was to
/// say it would be ignored, and more be removed than was meant.
pub(super) fn has_no_body(request: Request) -> Result<Parts, AdminError> {
    if request.body().is_end_stream() {
        Ok(request.into_parts().0)
    } else {
        Err(AdminError::UnwantedBody)
    }
}

async fn read(body: Body) -> Result<Vec<u8>, AdminError> {
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(_)) => Err(AdminError::TooLong(MAX_BODY)),
        Err(_) => Err(AdminError::TooSlow(BODY_TIMEOUT)),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|text| text.split(';').next());
    media_type.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}
