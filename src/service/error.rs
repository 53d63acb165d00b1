//! The error of the service.

use crate::coordinator::{CoordinatorError, ReplicaCounts};
use crate::model::comparator::InvalidName;
use crate::ring::TokenError;
use std::borrow::Cow;

/// Why a request has no result. Texts are for the client unless something is said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The request makes no sense: in the words of 0.6, where it has any.
    #[error("invalid request: {0}")]
    Invalid(Cow<'static, str>),
    /// The client may not do this: refused in the words of 0.6, as an invalid request.
    #[error("refused: {0}")]
    Refused(Cow<'static, str>),
    /// The answer takes more memory than it may, or than is free: ask for less.
    #[error("too large: {0}")]
    TooLarge(String),
    /// There is nothing of the name that was asked for.
    #[error("not found")]
    NotFound,
    /// Too few replicas are alive.
    #[error("unavailable")]
    Unavailable(ReplicaCounts),
    /// Too few replicas answered in time.
    #[error("timed out")]
    TimedOut(ReplicaCounts),
    /// The login was refused.
    #[error("authentication failed: {0}")]
    Unauthenticated(String),
    /// The user may not do this.
    #[error("not authorized: {0}")]
    Unauthorized(String),
    /// Something of ours failed. The text is for the log.
    #[error("internal error: {0}")]
    Internal(String),
}

impl ServiceError {
    /// A refusal with its text.
    pub fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(why.into())
    }

    /// The text for the client or the log, or nothing.
    pub fn text(&self) -> &str {
        match self {
            Self::Invalid(why) | Self::Refused(why) => why,
            Self::TooLarge(why)
            | Self::Unauthenticated(why)
            | Self::Unauthorized(why)
            | Self::Internal(why) => why,
            Self::NotFound | Self::Unavailable(_) | Self::TimedOut(_) => "",
        }
    }
}

impl From<CoordinatorError> for ServiceError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Unavailable(counts) => Self::Unavailable(counts),
            CoordinatorError::TimedOut(counts) => Self::TimedOut(counts),
            CoordinatorError::TooLarge(why) => Self::TooLarge(why),
            CoordinatorError::Unsendable(why) => Self::invalid(why),
            CoordinatorError::Failed(error) => Self::Internal(error.to_string()),
        }
    }
}

impl From<InvalidName> for ServiceError {
    fn from(error: InvalidName) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<TokenError> for ServiceError {
    fn from(error: TokenError) -> Self {
        Self::invalid(error.to_string())
    }
}
