//! Failures of operations, by kind.

use crate::thrift::idl::Exception;
use crate::thrift::remote::CallError;

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TroubleKind {
    TimedOut,
    Unavailable,
    InvalidRequest,
    Connection,
    /// Answers that no stress run expects, such as those about rights.
    Other,
    /// A row or column is not there.
    Missing,
    WrongValue,
    /// The run ended before the answer came.
    Unanswered,
}

impl TroubleKind {
    /// The name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Unavailable => "unavailable",
            Self::InvalidRequest => "invalid_request",
            Self::Connection => "connection",
            Self::Other => "other",
            Self::Missing => "missing",
            Self::WrongValue => "wrong_value",
            Self::Unanswered => "unanswered",
        }
    }
}

/// Failure of an operation.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) kind: TroubleKind,
    pub(super) text: String,
}

impl Trouble {
    pub(super) fn new(kind: TroubleKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        let kind = match &error {
            CallError::Declared(Exception::TimedOut, _) => TroubleKind::TimedOut,
            CallError::Declared(Exception::Unavailable, _) => TroubleKind::Unavailable,
            CallError::Declared(Exception::InvalidRequest, _) => TroubleKind::InvalidRequest,
            CallError::Declared(Exception::NotFound, _) => TroubleKind::Missing,
            CallError::Broken(_) | CallError::Senseless(_) => TroubleKind::Connection,
            CallError::Declared(..) | CallError::Application(_) => TroubleKind::Other,
        };
        let text = match error {
            CallError::Declared(Exception::TimedOut, _) => {
                "too few replicas answered in time".into()
            }
            CallError::Declared(Exception::Unavailable, _) => "too few replicas are alive".into(),
            CallError::Declared(_, text) => text,
            other => other.to_string(),
        };
        Self { kind, text }
    }
}
