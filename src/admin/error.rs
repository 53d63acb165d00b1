//! Errors of requests, and their responses.

use super::report::Failure;
use crate::service::ServiceError;
use crate::storage::snapshot::SnapshotError;
use axum::Json;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

/// Response to a request that failed or was refused.
#[derive(Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
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

impl From<SnapshotError> for AdminError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::UnknownKeyspace(_) => Self::not_found(error),
            SnapshotError::Tag(_) => Self::bad_request(error),
            _ => Self::failed(error),
        }
    }
}

impl From<ServiceError> for AdminError {
    fn from(error: ServiceError) -> Self {
        let status = match &error {
            ServiceError::Invalid(_) => StatusCode::BAD_REQUEST,
            ServiceError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            ServiceError::NotFound => StatusCode::NOT_FOUND,
            ServiceError::Unavailable(_) => {
                let text = "too few replicas of these rows are alive: see the ring";
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, text);
            }
            ServiceError::TimedOut(_) => {
                let text = "too few replicas answered in time: try again, or ask for less";
                return Self::new(StatusCode::GATEWAY_TIMEOUT, text);
            }
            ServiceError::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            ServiceError::Refused(_) | ServiceError::Unauthorized(_) => StatusCode::FORBIDDEN,
            ServiceError::Internal(_) => {
                log::error!("rows cannot be read: {error}");
                return Self::failed("the rows cannot be read: the log of the node says why");
            }
        };
        Self::new(status, error)
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
