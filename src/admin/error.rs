//! Why a request is not done, and how that is answered.

use super::access::Refusal;
use super::report::Failure;
use crate::config::rack_file::RackFileError;
use crate::config::settings::PHI_CONVICT_THRESHOLDS;
use crate::repair::OperationError;
use crate::ring::TokenError;
use crate::storage::compaction::{CompactionError, ThresholdError};
use crate::storage::error::{FileError, ReadError};
use crate::storage::snapshot::SnapshotError;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::time::Duration;

/// Why a request is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    /// Its sender may not.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such resource.
    #[error("there is nothing here: the resources are below /api/v1/ and at /metrics")]
    NoResource,
    /// The resource is used in other ways.
    #[error("this resource is not used by this method")]
    Method,
    /// The address asks for something that cannot be.
    #[error("{0}")]
    Query(#[from] QueryRejection),
    /// A change that does not say that it is JSON.
    #[error("send application/json as the Content-Type of a change")]
    NotJson,
    /// What was sent is not what the resource takes.
    #[error("the body cannot be read: {0}")]
    Body(#[from] serde_json::Error),
    /// A body where the address says everything.
    #[error("this resource takes no body here: say what is meant in the address")]
    UnwantedBody,
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The client takes too long to send it, or went away.
    #[error("the body did not come within {} seconds", .0.as_secs())]
    TooSlow(Duration),
    /// Column families were named without their keyspace.
    #[error("column families were named without their keyspace")]
    NoKeyspaceNamed,
    /// No keyspace has this name.
    #[error("keyspace {0} does not exist")]
    NoKeyspace(String),
    /// The keyspace has no such column family.
    #[error("keyspace {keyspace} has no column family {name}")]
    NoFamily {
        /// The keyspace.
        keyspace: String,
        /// What was named.
        name: String,
    },
    /// A change of thresholds without any.
    #[error("Missing threshold value(s)")]
    NoThresholds,
    /// Thresholds that make no sense.
    #[error(transparent)]
    Thresholds(#[from] ThresholdError),
    /// As many jobs are running as may.
    #[error("{0} operations are running: wait until one has ended")]
    Busy(usize),
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopping,
    /// A flush failed.
    #[error("{family} was not flushed: {source}")]
    Flush {
        /// The column family.
        family: String,
        /// Why.
        source: ReadError,
    },
    /// A compaction failed.
    #[error("{family} was not compacted: {source}")]
    Compaction {
        /// The column family.
        family: String,
        /// Why.
        source: CompactionError,
    },
    /// A snapshot was not taken.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// No snapshot has this name or tag.
    #[error("no snapshot {0} was found")]
    NoSnapshot(String),
    /// Snapshots cannot be looked at or removed.
    #[error(transparent)]
    SnapshotFiles(#[from] FileError),
    /// There are no hints for this node.
    #[error("there are no hints for {0}")]
    NoHints(IpAddr),
    /// No such node was removed from the ring, or it is back.
    #[error(
        "{0} is not among the removed nodes: those are told as `removed` by /api/v1/ring, or \
         nodetool --json ring"
    )]
    NotRemoved(IpAddr),
    /// The threshold of the failure detector is out of its range.
    #[error(
        "phi_convict_threshold must be between {least} and {most}, as PhiConvictThreshold, and not \
         {0}",
        least = PHI_CONVICT_THRESHOLDS.start(), most = PHI_CONVICT_THRESHOLDS.end()
    )]
    Phi(u32),
    /// No snitch has a file of racks.
    #[error("no keyspace has a snitch that reads a rack file")]
    NoRackFile,
    /// The rack file cannot be read.
    #[error("{0}; what it said before stays in force")]
    RackFile(#[from] RackFileError),
    /// The ring is not changed.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A token is none.
    #[error("{token} is no token: {source}")]
    Token {
        /// What was sent.
        token: String,
        /// What is wrong with it.
        source: TokenError,
    },
    /// The operation panicked.
    #[error("the operation failed by a defect of the server: its log says more")]
    Panicked,
    /// The counters cannot be written as text.
    #[error("the metrics cannot be written")]
    Metrics(#[from] std::fmt::Error),
}

impl AdminError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(Refusal::TokenMissing | Refusal::TokenWrong) => StatusCode::UNAUTHORIZED,
            Self::Refused(_) => StatusCode::FORBIDDEN,
            Self::NoResource
            | Self::NoKeyspace(_)
            | Self::NoFamily { .. }
            | Self::NoSnapshot(_)
            | Self::NoHints(_)
            | Self::NotRemoved(_)
            | Self::NoRackFile
            | Self::Snapshot(SnapshotError::UnknownKeyspace(_)) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Query(_)
            | Self::Body(_)
            | Self::UnwantedBody
            | Self::NoKeyspaceNamed
            | Self::NoThresholds
            | Self::Phi(_)
            | Self::Token { .. }
            | Self::Snapshot(SnapshotError::Tag(_))
            | Self::Thresholds(_) => StatusCode::BAD_REQUEST,
            Self::Operation(_) => StatusCode::CONFLICT,
            Self::Busy(_)
            | Self::Stopping
            | Self::Compaction { source: CompactionError::Stopped, .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Flush { .. }
            | Self::Compaction { .. }
            | Self::Snapshot(_)
            | Self::SnapshotFiles(_)
            | Self::RackFile(_)
            | Self::Panicked
            | Self::Metrics(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, Json(Failure { error: self.to_string() })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
