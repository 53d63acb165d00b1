//! Why a request is not done, and how that is answered.

use super::access::Refusal;
use super::report::Failure;
use crate::config::ConfigError;
use crate::repair::OperationError;
use crate::storage::compaction::{CompactionError, ThresholdError};
use crate::storage::error::{FileError, ReadError};
use crate::storage::snapshot::SnapshotError;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

/// The answer to a request that is not done.
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

    /// The server is the cause.
    pub(super) fn failed(text: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the node is stopping")
    }

    pub(super) fn flush(family: &str, error: &ReadError) -> Self {
        Self::failed(format_args!("{family} was not flushed: {error}"))
    }

    pub(super) fn compaction(family: &str, error: &CompactionError) -> Self {
        let text = format!("{family} was not compacted: {error}");
        match error {
            CompactionError::Stopped => Self::new(StatusCode::SERVICE_UNAVAILABLE, text),
            _ => Self::failed(text),
        }
    }
}

impl Display for AdminError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> Self {
        let is_about_token = matches!(refusal, Refusal::TokenMissing | Refusal::TokenWrong);
        let status = if is_about_token { StatusCode::UNAUTHORIZED } else { StatusCode::FORBIDDEN };
        Self::new(status, refusal)
    }
}

impl From<QueryRejection> for AdminError {
    fn from(error: QueryRejection) -> Self {
        Self::bad_request(error)
    }
}

impl From<serde_json::Error> for AdminError {
    fn from(error: serde_json::Error) -> Self {
        Self::bad_request(format_args!("the body cannot be read: {error}"))
    }
}

impl From<ThresholdError> for AdminError {
    fn from(error: ThresholdError) -> Self {
        Self::bad_request(error)
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

impl From<FileError> for AdminError {
    fn from(error: FileError) -> Self {
        Self::failed(error)
    }
}

/// Of the rack file.
impl From<ConfigError> for AdminError {
    fn from(error: ConfigError) -> Self {
        Self::failed(format_args!("{error}; what it said before stays in force"))
    }
}

impl From<OperationError> for AdminError {
    fn from(error: OperationError) -> Self {
        Self::new(StatusCode::CONFLICT, error)
    }
}

impl From<std::fmt::Error> for AdminError {
    fn from(_: std::fmt::Error) -> Self {
        Self::failed("the metrics cannot be written")
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
