//! Requests of operators: bodies with their bounds, and the column families that are meant.

use super::error::AdminError;
use super::server::Peer;
use crate::model::schema::{FamilyId, Schema};
use axum::body::{HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Bytes of a body.
const MAX_BODY: usize = 64 << 10;

/// Time limit for sending it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a change: JSON, and said to be. Without a body it is `{}`.
pub(super) struct Change<T, const BYTES: usize = MAX_BODY>(pub(super) T);

impl<S: Sync, T: DeserializeOwned, const BYTES: usize> FromRequest<S> for Change<T, BYTES> {
    type Rejection = AdminError;

    async fn from_request(request: Request, _: &S) -> Result<Self, AdminError> {
        if !is_json(request.headers()) {
            let text = "send application/json as the Content-Type of a change";
            return Err(AdminError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        let (head, body) = request.into_parts();
        let body = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, BYTES)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                let text = format!("the body is longer than {BYTES} bytes");
                return Err(AdminError::new(StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            Err(_) => {
                let seconds = BODY_TIMEOUT.as_secs();
                let text = format!("the body did not come within {seconds} seconds");
                return Err(AdminError::new(StatusCode::REQUEST_TIMEOUT, text));
            }
        };
        if let Some(peer) = head.extensions.get::<Peer>() {
            peer.begin().await;
        }
        let is_empty = body.trim_ascii().is_empty();
        let parsed = serde_json::from_slice(if is_empty { b"{}" } else { &body });
        let unreadable =
            |error| AdminError::bad_request(format_args!("the body cannot be read: {error}"));
        parsed.map(Self).map_err(unreadable)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|text| text.split(';').next());
    media_type.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

/// Parameters in the address of a request.
pub(super) struct Choice<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Choice<T> {
    type Rejection = AdminError;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, AdminError> {
        let query = Query::try_from_uri(&head.uri).map_err(AdminError::bad_request)?;
        Ok(Self(query.0))
    }
}

/// A request without a body. Where the address says what is meant, a body that was to say it would
/// be ignored, and more be removed than was meant.
pub(super) struct NoBody;

impl<S: Sync> FromRequest<S> for NoBody {
    type Rejection = AdminError;

    async fn from_request(request: Request, _: &S) -> Result<Self, AdminError> {
        if request.body().is_end_stream() {
            return Ok(Self);
        }
        let text = "this resource takes no body here: say what is meant in the address";
        Err(AdminError::bad_request(text))
    }
}

/// The numbers of the column families that are meant: all without a keyspace, all of it without
/// names.
pub(super) fn families(
    schema: &Schema,
    keyspace: Option<&str>,
    names: &[String],
) -> Result<Vec<FamilyId>, AdminError> {
    let Some(keyspace) = keyspace else {
        if names.is_empty() {
            return Ok(schema.families().map(|(id, _)| id).collect());
        }
        let text = "column families were named without their keyspace";
        return Err(AdminError::bad_request(text));
    };
    check_keyspace(schema, keyspace)?;
    if names.is_empty() {
        let all = schema.families_of(keyspace);
        return all.iter().map(|it| find_family(schema, keyspace, it.table_name())).collect();
    }
    names.iter().map(|name| find_family(schema, keyspace, name)).collect()
}

/// The number of a column family.
pub(super) fn find_family(
    schema: &Schema,
    keyspace: &str,
    name: &str,
) -> Result<FamilyId, AdminError> {
    check_keyspace(schema, keyspace)?;
    let missing =
        || AdminError::not_found(format_args!("keyspace {keyspace} has no column family {name}"));
    schema.find(keyspace, name).ok_or_else(missing)
}

/// Refuses a keyspace that does not exist.
pub(super) fn check_keyspace(schema: &Schema, keyspace: &str) -> Result<(), AdminError> {
    if schema.has_keyspace(keyspace) {
        return Ok(());
    }
    Err(AdminError::not_found(format_args!("keyspace {keyspace} does not exist")))
}
