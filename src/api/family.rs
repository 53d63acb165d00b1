//! Keyspaces and column families by the names that requests give them.

use super::invalid_request::InvalidRequest;
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};

/// A column family that exists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family<'s> {
    pub(super) id: FamilyId,
    pub(super) schema: &'s ColumnFamilySchema,
}

impl<'s> Family<'s> {
    /// The column family of a request, which may be empty or unknown.
    pub(super) fn find(
        schema: &'s Schema,
        keyspace: &str,
        name: &str,
    ) -> Result<Self, InvalidRequest> {
        if let Some(id) = schema.family_id(keyspace, name) {
            return Ok(Self { id, schema: schema.family(id) });
        }
        check_keyspace(schema, keyspace)?;
        if name.is_empty() {
            return Err(InvalidRequest::EmptyFamily);
        }
        Err(InvalidRequest::UnknownFamily(name.to_owned()))
    }

    /// An error that names the family.
    pub(super) fn refuse(&self, error: fn(String) -> InvalidRequest) -> InvalidRequest {
        error(self.schema.name.clone())
    }
}

/// The keyspace must exist.
pub(super) fn check_keyspace(schema: &Schema, keyspace: &str) -> Result<(), InvalidRequest> {
    if schema.has_keyspace(keyspace) {
        return Ok(());
    }
    Err(InvalidRequest::UnknownKeyspace(keyspace.to_owned()))
}
