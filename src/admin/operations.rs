//! The operations by which the ring grows, shrinks and heals.

use super::context::AdminContext;
use super::error::AdminError;
use super::report::{Collected, OperationState, Repaired, StreamReport, Streams};
use crate::repair::{Operation, OperationReport, Stream, StreamsNow};
use crate::ring::Token;

impl AdminContext {
    /// Begins an operation, which goes on by itself.
    pub(super) fn begin(&self, wish: Operation) -> Result<OperationState, AdminError> {
        self.member.operations().begin(wish)?;
        self.operation().ok_or_else(AdminError::stopping)
    }

    /// The operation that was begun last.
    pub(super) fn operation(&self) -> Option<OperationState> {
        self.member.operations().report().map(state)
    }

    /// State of the node, and the data that move.
    pub(super) fn streams(&self) -> Streams {
        let StreamsNow { mode, sending, receiving } = self.member.operations().streams();
        let report = |Stream { peer, family, bytes }: Stream| {
            let family = (&**self.storage.schema().family(family)).into();
            StreamReport { address: peer, family, bytes }
        };
        let report = |streams: Vec<Stream>| streams.into_iter().map(report).collect();
        Streams { mode, sending: report(sending), receiving: report(receiving) }
    }

    /// A token as text.
    pub(super) fn parse_token(&self, token: &str) -> Result<Token, AdminError> {
        let parsed = self.storage.partitioner().parse_token(token);
        parsed.map_err(|why| AdminError::bad_request(format_args!("{token} is no token: {why}")))
    }
}

fn state(report: OperationReport) -> OperationState {
    let OperationReport { kind, mode, fetched, repaired, hashed, took, outcome } = report;
    let collected = fetched.into_iter();
    let collected = collected.map(|(address, progress)| Collected { address, progress });
    let (done, error) = match outcome {
        None => (None, None),
        Some(Ok(done)) => (Some(done), None),
        Some(Err(error)) => (None, Some(error)),
    };
    OperationState {
        operation: kind.name().to_owned(),
        mode,
        seconds: took.as_secs_f64(),
        collected: collected.collect(),
        repaired: repaired.into_iter().map(Repaired::from).collect(),
        rows_hashed: hashed.0,
        rows_to_hash: hashed.1,
        done,
        error,
    }
}
