//! The operations by which the ring grows, shrinks and heals.

use super::context::AdminContext;
use super::error::AdminError;
use super::report::{Collected, OperationState, Repaired, StreamReport, Streams};
use super::request::Selection;
use crate::repair::{Operation, OperationReport, RepairScope, Stream, StreamsNow};
use serde::Deserialize;

/// The place to move to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    /// As the partitioner writes it.
    pub(super) token: String,
}

/// Whom to remove.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadToken {
    /// As the partitioner writes it.
    pub(super) token: String,
    /// Also if too few replicas of a range are alive.
    #[serde(default)]
    pub(super) accept_loss: bool,
}

/// What is to be repaired.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepairScopeChange {
    keyspace: String,
    /// All of the keyspace without any.
    #[serde(default)]
    column_families: Vec<String>,
    /// Only the range that the node owns, not all of which it is a replica.
    #[serde(default)]
    primary_range: bool,
}

/// The keyspace that is to be cleaned up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CleanupScope {
    /// All of them without one.
    pub(super) keyspace: Option<String>,
}

impl AdminContext {
    /// Begins an operation, which goes on by itself.
    pub(super) fn begin(&self, wish: Operation) -> Result<OperationState, AdminError> {
        self.member.operations().begin(wish)?;
        self.operation().ok_or(AdminError::Stopping)
    }

    /// The operation that was begun last.
    pub(super) fn operation(&self) -> Option<OperationState> {
        self.member.operations().report().map(state)
    }

    /// What the node is about, and which data move.
    pub(super) fn streams(&self) -> Streams {
        let StreamsNow { mode, sending, receiving } = self.member.operations().streams();
        let report = |Stream { peer, family, bytes }: Stream| {
            let family = self.storage.schema().family(family);
            StreamReport {
                address: peer,
                keyspace: family.keyspace.clone(),
                column_family: family.name.clone(),
                bytes,
            }
        };
        let report = |streams: Vec<Stream>| streams.into_iter().map(report).collect();
        Streams { mode, sending: report(sending), receiving: report(receiving) }
    }

    /// A token as text.
    pub(super) fn parse_token(&self, token: &str) -> Result<crate::ring::Token, AdminError> {
        let parsed = self.storage.partitioner().parse_token(token);
        parsed.map_err(|source| AdminError::Token { token: token.to_owned(), source })
    }

    /// What a repair is about.
    pub(super) fn repair(&self, scope: RepairScopeChange) -> Result<Operation, AdminError> {
        let RepairScopeChange { keyspace, column_families, primary_range } = scope;
        let selection = Selection::of(keyspace, column_families);
        let families = selection.families(self.storage.schema())?;
        let scope = if primary_range { RepairScope::Primary } else { RepairScope::All };
        Ok(Operation::Repair(families, scope))
    }

    /// What a cleanup is about.
    pub(super) fn cleanup(&self, scope: CleanupScope) -> Result<Operation, AdminError> {
        let CleanupScope { keyspace } = scope;
        match keyspace {
            Some(name) if !self.storage.schema().has_keyspace(&name) => {
                Err(AdminError::NoKeyspace(name))
            }
            keyspace => Ok(Operation::Cleanup(keyspace)),
        }
    }
}

fn state(report: OperationReport) -> OperationState {
    let OperationReport { kind, mode, fetched, repaired, hashed, took, outcome } = report;
    let collected = fetched.into_iter().map(|(address, fetched)| Collected {
        address,
        ranges: fetched.ranges,
        ranges_done: fetched.ranges_done,
        rows: fetched.rows,
        bytes: fetched.bytes,
    });
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
