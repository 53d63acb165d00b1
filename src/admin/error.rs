//! Errors of requests, and their responses.

use super::report::Failure;
use crate::storage::snapshot::SnapshotError;
use axum::Json;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

/// Response to a request that failed or was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdminError {
    status: StatusCode,
    text: String,
}

impl AdminError {
    pub(super) fn new(status: StatusCode, text: impl Display) -> Self {
        Self { status, text: text.to_string() }
    }

    pub(super) fn bad_request(text: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn not_found(text: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The server is at fault.
    pub(super) fn failed(text: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the node is stopping")
    }
}

impl Display for AdminError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<SnapshotError> for AdminError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::UnknownKeyspace(_) => Self::not_found(error),
            SnapshotError::Tag(_) => Self::bad_request(error),
            _ => Self::failed(error),
        }
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let Self { status, text: error } = self;
        let mut response = (status, Json(Failure { error })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
