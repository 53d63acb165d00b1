//! CREATE, ALTER, DROP and TRUNCATE as changes of the definitions: pure functions, which may be
//! called again when another change came first.
//!
//! ```text
//!   keyspaces    keyspaces and their replication
//!   tables       tables and their columns
//!   types        user types
//!   properties   properties of tables
//! ```

mod keyspaces;
mod properties;
mod tables;
#[cfg(test)]
mod tests;
mod types;

pub(super) use properties::{DEFAULTS, MAPS};

use super::ast::{QualifiedName, SchemaStatement};
use super::error::CqlError;
use super::events::{Change, SchemaChange, SchemaTarget};
use super::tables::keyspace;
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::schema::Definitions;
use crate::service::{Partitioner, Service};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Longest name of a keyspace, table or type.
pub(super) const MAX_NAME: usize = 48;

/// Keyspaces of the node itself.
const OWN_KEYSPACES: [&str; 2] = [SYSTEM_KEYSPACE, "system_schema"];

/// Facts besides the definitions on which changes depend.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    /// Keyspaces of the configuration, with their column families.
    pub(super) configured: BTreeMap<String, BTreeSet<String>>,
    /// The keyspace in use.
    pub(super) in_use: Option<String>,
    /// Data centres of the nodes of the ring.
    pub(super) data_centers: BTreeSet<String>,
    pub(super) partitioner: Partitioner,
    /// The time, in microseconds.
    pub(super) micros: i64,
    /// Ids that nothing else has.
    pub(super) ids: [Uuid; 2],
}

/// The result of a statement: `None` if there is nothing to do.
pub(super) type Changed = Result<Option<Definitions>, CqlError>;

impl Ground {
    /// The knowledge of a node at this time.
    pub(super) fn new(
        service: &Service,
        in_use: Option<&str>,
        (micros, ids): (i64, [Uuid; 2]),
    ) -> Self {
        let configured = service.keyspaces().iter().map(|keyspace| {
            let families = keyspace.column_families.iter().map(|it| it.schema.name.clone());
            (keyspace.name.clone(), families.collect())
        });
        Self {
            configured: configured.collect(),
            in_use: in_use.map(str::to_owned),
            data_centers: service.ring_nodes().into_iter().map(|node| node.data_center).collect(),
            partitioner: service.ring_partitioner(),
            micros,
            ids,
        }
    }

    fn has_keyspace(&self, now: &Definitions, name: &str) -> bool {
        let is_made = now.keyspaces.get(name).is_some_and(|it| it.replication.is_some());
        is_made || self.configured.contains_key(name)
    }

    fn has_table(&self, now: &Definitions, keyspace: &str, name: &str) -> bool {
        now.table(keyspace, name).is_some() || self.is_configured(keyspace, name)
    }

    /// Whether this is a column family of the configuration.
    pub(super) fn is_configured(&self, keyspace: &str, name: &str) -> bool {
        self.configured.get(keyspace).is_some_and(|families| families.contains(name))
    }

    /// The keyspace of a name that is to be changed.
    pub(super) fn keyspace<'n>(&'n self, name: &'n QualifiedName) -> Result<&'n str, CqlError> {
        keyspace(name, self.in_use.as_deref())
    }
}

/// The definitions after a statement.
pub(super) fn apply(statement: &SchemaStatement, ground: &Ground, now: &Definitions) -> Changed {
    check_own(statement, ground)?;
    match statement {
        SchemaStatement::CreateKeyspace { name, if_not_exists, properties } => {
            keyspaces::create((name, *if_not_exists), properties, ground, now)
        }
        SchemaStatement::AlterKeyspace { name, properties } => {
            keyspaces::alter(name, properties, ground, now)
        }
        SchemaStatement::DropKeyspace { name, if_exists } => {
            keyspaces::drop(name, *if_exists, ground, now)
        }
        SchemaStatement::CreateTable(create) => tables::create(create, ground, now),
        SchemaStatement::AlterTable(table, change) => tables::alter(table, change, ground, now),
        SchemaStatement::DropTable { table, if_exists } => {
            tables::drop(table, *if_exists, ground, now)
        }
        SchemaStatement::CreateType { name, if_not_exists, fields } => {
            types::create((name, *if_not_exists), fields, ground, now)
        }
        SchemaStatement::AlterType(name, change) => types::alter(name, change, ground, now),
        SchemaStatement::DropType { name, if_exists } => types::drop(name, *if_exists, ground, now),
    }
}

/// The definitions after TRUNCATE of a table that was made over CQL.
pub(super) fn truncate(table: &QualifiedName, ground: &Ground, now: &Definitions) -> Changed {
    let keyspace = ground.keyspace(table)?;
    tables::replace(now, (keyspace, &table.name), |definition| {
        [_, definition.rows] = ground.ids;
        Ok(())
    })
}

/// The change that clients are told of when a statement has changed something.
pub(super) fn told(statement: &SchemaStatement, in_use: Option<&str>) -> SchemaChange {
    use SchemaStatement::{
        AlterKeyspace, AlterTable, AlterType, CreateKeyspace, CreateTable, CreateType,
        DropKeyspace, DropTable, DropType,
    };
    let change = match statement {
        CreateKeyspace { .. } | CreateTable(_) | CreateType { .. } => Change::Created,
        AlterKeyspace { .. } | AlterTable(..) | AlterType(..) => Change::Updated,
        DropKeyspace { .. } | DropTable { .. } | DropType { .. } => Change::Dropped,
    };
    let name = match statement {
        CreateKeyspace { name, .. } | AlterKeyspace { name, .. } | DropKeyspace { name, .. } => {
            return SchemaChange { change, keyspace: name.clone(), target: None };
        }
        CreateTable(create) => &create.table,
        AlterTable(name, _) | DropTable { table: name, .. } => name,
        CreateType { name, .. } | AlterType(name, _) | DropType { name, .. } => name,
    };
    let target = match statement {
        CreateType { .. } | AlterType(..) | DropType { .. } => SchemaTarget::Type,
        _ => SchemaTarget::Table,
    };
    let keyspace = name.keyspace.as_deref().or(in_use).unwrap_or_default().to_owned();
    SchemaChange { change, keyspace, target: Some(target(name.name.clone())) }
}

/// The keyspace that a statement changes.
pub(super) fn keyspace_of(statement: &SchemaStatement, in_use: Option<&str>) -> String {
    told(statement, in_use).keyspace
}

fn check_own(statement: &SchemaStatement, ground: &Ground) -> Result<(), CqlError> {
    let keyspace = keyspace_of(statement, ground.in_use.as_deref());
    if OWN_KEYSPACES.contains(&keyspace.to_lowercase().as_str()) {
        let why = format!("{} keyspace is not user-modifiable.", keyspace.to_lowercase());
        return Err(CqlError::unauthorized(why));
    }
    Ok(())
}

/// The refusal to change what the configuration defines.
pub(super) fn configured(what: &str) -> CqlError {
    CqlError::invalid(format!("The {what} is defined in storage-conf.xml: change it there"))
}

/// Whether a name can be that of a keyspace or table.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
