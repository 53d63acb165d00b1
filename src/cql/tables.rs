//! Tables that statements may name.

use super::ast::QualifiedName;
use super::error::CqlError;
use super::relations::Named;
use super::system::System;
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::model::table::Table;
use crate::service::Partitioner;
use crate::service::Service;
use std::sync::Arc;

/// A table of a statement.
#[derive(Debug, Clone)]
pub(super) struct TableRef {
    pub(super) keyspace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) table: Arc<Table>,
    pub(super) partitioner: Partitioner,
    source: Source,
}

/// Place of the rows.
#[derive(Debug, Clone)]
enum Source {
    Stored(FamilyId, Arc<ColumnFamilySchema>),
    /// They are made up when they are read.
    System,
}

impl TableRef {
    /// Finds a table, of the keyspace in use unless it names another.
    pub(super) fn find(
        name: &QualifiedName,
        in_use: Option<&str>,
        (service, system): (&Service, &System),
    ) -> Result<Self, CqlError> {
        let keyspace = keyspace(name, in_use)?;
        let partitioner = service.ring_partitioner();
        let found = |table: Arc<Table>, source| Self {
            keyspace: Arc::from(keyspace),
            name: Arc::from(name.name.as_str()),
            table,
            partitioner,
            source,
        };
        if let Some(table) = system.table(keyspace, &name.name) {
            return Ok(found(Arc::clone(table), Source::System));
        }
        let schema = service.schema();
        if let Some(id) = schema.find(keyspace, &name.name) {
            let family = Arc::clone(schema.family(id));
            return Ok(found(Arc::clone(&family.table), Source::Stored(id, family)));
        }
        if !schema.has_keyspace(keyspace) && !system.has_keyspace(keyspace) {
            return Err(CqlError::invalid(format!("Keyspace {keyspace} does not exist")));
        }
        Err(CqlError::invalid(format!("unconfigured table {}", name.name)))
    }

    /// The table with its names.
    pub(super) fn named(&self) -> Named<'_> {
        let Self { keyspace, name, table, partitioner, .. } = self;
        Named { keyspace, name, table, partitioner: *partitioner }
    }

    /// The column family of the rows; `None` for rows that are made up.
    pub(super) fn stored(&self) -> Option<(FamilyId, &ColumnFamilySchema)> {
        match &self.source {
            Source::Stored(id, family) => Some((*id, family)),
            Source::System => None,
        }
    }

    /// Whether this is still the table of its name.
    pub(super) fn is_current(&self, service: &Service) -> bool {
        match &self.source {
            Source::Stored(id, family) => {
                let schema = service.schema();
                schema.family_id(&self.keyspace, &family.name) == Some(*id)
                    && Arc::ptr_eq(schema.family(*id), family)
            }
            Source::System => true,
        }
    }

    /// The refusal of a change to rows that belong to the node.
    pub(super) fn check_writable(&self) -> Result<(), CqlError> {
        let is_own = self.stored().is_none() || *self.keyspace == *SYSTEM_KEYSPACE;
        if is_own {
            let why = format!("{} keyspace is not user-modifiable.", self.keyspace);
            return Err(CqlError::unauthorized(why));
        }
        Ok(())
    }
}

/// The keyspace of a name.
pub(super) fn keyspace<'n>(
    name: &'n QualifiedName,
    in_use: Option<&'n str>,
) -> Result<&'n str, CqlError> {
    let none = "No keyspace has been specified. USE a keyspace, or explicitly specify \
                keyspace.tablename";
    name.keyspace.as_deref().or(in_use).ok_or_else(|| CqlError::invalid(none))
}
