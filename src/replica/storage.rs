//! The storage core as the store of a replica.

use super::local_store::{Applied, LocalStore, LogPosition, WriteError};
use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{RowRange, RowSamples, TokenRange};
use crate::storage::commitlog::Position;
use crate::storage::error::ReadError;
use crate::storage::sstable::Access;
use crate::storage::{Storage, engine};
use std::sync::Arc;

impl LocalStore for Storage {
    fn apply(&self, mutations: &[RowMutation], may_block: bool) -> Result<Applied, WriteError> {
        match self.apply_all(mutations, may_block) {
            Ok(engine::Applied::Done) => Ok(Applied::Durable),
            Ok(engine::Applied::Pending(Position { segment, offset })) => {
                Ok(Applied::Pending(LogPosition { segment, offset }))
            }
            Err(engine::WriteError::WouldBlock) => Err(WriteError::WouldBlock),
            Err(refused) => Err(WriteError::Refused(Arc::new(refused))),
        }
    }

    fn on_durable(
        &self,
        position: LogPosition,
        callback: Box<dyn FnOnce(Result<(), WriteError>) + Send>,
    ) {
        let LogPosition { segment, offset } = position;
        let report = move |result: Result<(), _>| {
            callback(result.map_err(|error| WriteError::Refused(Arc::new(error))));
        };
        Self::on_durable(self, Position { segment, offset }, Box::new(report));
    }

    fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        self.read_within(family, key, slice, context, access)
    }

    fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError> {
        Self::count(self, family, key, slice, context, access)
    }

    fn scan(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        self.scan_within(family, range, slice, max_rows, context, access)
    }

    fn read_version(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        Self::read_version(self, family, key, slice, context, access)
    }

    fn scan_versions(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowVersion)>, ReadError> {
        Self::scan_versions(self, family, range, slice, max_rows, context, access)
    }

    fn row_samples(
        &self,
        range: TokenRange,
        context: &RequestContext,
    ) -> Result<RowSamples, ReadError> {
        Self::row_samples(self, range, context)
    }
}
