//! Why a request was not served.

use crate::base::context::TooLarge;
use crate::base::java::TooLong;
use crate::net::bodies::EncodeError;
use crate::replica::ReplicaError;

/// Why a request was not served. Clients try `Unavailable` and `TimedOut` again, elsewhere or
/// later.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CoordinatorError {
    /// Too few replicas are alive. Nothing has been sent to any of them.
    #[error("too few replicas are alive")]
    Unavailable,
    /// Enough replicas seemed alive, but too few answered in time. A write may have happened.
    #[error("too few replicas answered in time")]
    TimedOut,
    /// The answer would be larger than any may be. The same request will not do better.
    #[error("{0}")]
    TooLarge(String),
    /// Other nodes cannot be told of it, as of a key that is no text or of what no message can
    /// hold. It will not do better.
    #[error("{0}")]
    Unsendable(String),
    /// This node failed to do its part.
    #[error(transparent)]
    Failed(ReplicaError),
}

impl From<ReplicaError> for CoordinatorError {
    fn from(error: ReplicaError) -> Self {
        if error.is_too_large() { Self::TooLarge(error.to_string()) } else { Self::Failed(error) }
    }
}

impl From<TooLarge> for CoordinatorError {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error.to_string())
    }
}

impl From<EncodeError> for CoordinatorError {
    fn from(error: EncodeError) -> Self {
        Self::Unsendable(error.to_string())
    }
}

impl From<TooLong> for CoordinatorError {
    fn from(error: TooLong) -> Self {
        Self::Unsendable(error.to_string())
    }
}
