//! Keyspaces, tables and types that were made over CQL.

use super::encoding;
use crate::config::classes::StrategyName;
use crate::model::schema::ColumnFamilySchema;
use crate::model::table::{ColumnKind, Table};
use crate::model::types::{CqlType, UserType};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// All keyspaces, tables and types that were made over CQL.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Definitions {
    /// Number of changes that led here.
    pub version: u64,
    /// By name. Keyspaces of the configuration are here if they have tables or types.
    pub keyspaces: BTreeMap<String, KeyspaceDefinition>,
}

/// A keyspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyspaceDefinition {
    /// Its replication; `None` for a keyspace of the configuration.
    pub replication: Option<Replication>,
    /// `durable_writes`, which is only kept: all writes go to the commit log.
    pub durable_writes: bool,
    /// By name.
    pub tables: BTreeMap<String, Arc<TableDefinition>>,
    /// By name.
    pub types: BTreeMap<String, Arc<UserType>>,
}

/// Number and places of the replicas of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// Choice of the replicas.
    pub strategy: StrategyName,
    /// Number of replicas, unless each data centre has its own.
    pub factor: u32,
    /// Numbers of replicas by data centre.
    pub data_centers: BTreeMap<String, u32>,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDefinition {
    /// Its id, which drivers see.
    pub id: Uuid,
    /// Id of its rows: another after each TRUNCATE.
    pub rows: Uuid,
    /// Its columns.
    pub table: Arc<Table>,
    /// The properties that were set.
    pub properties: BTreeMap<String, PropertyValue>,
    /// Columns that were dropped, by name.
    pub dropped: BTreeMap<String, DroppedColumn>,
}

/// Value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    /// A constant, as text.
    Text(String),
    /// A map of constants, as texts.
    Map(BTreeMap<String, String>),
}

/// A column that was dropped. A later column of its name does not show its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedColumn {
    /// Its type.
    pub of_type: CqlType,
    /// Whether it was static.
    pub is_static: bool,
    /// Greatest timestamp of its values, in microseconds.
    pub micros: i64,
}

impl Definitions {
    /// A table.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<TableDefinition>> {
        self.keyspaces.get(keyspace)?.tables.get(name)
    }

    /// A user type.
    pub fn user_type(&self, keyspace: &str, name: &str) -> Option<&Arc<UserType>> {
        self.keyspaces.get(keyspace)?.types.get(name)
    }

    /// The keyspace that is to be changed. One of the configuration comes in with its first change,
    /// and goes with its last table and type.
    pub fn keyspace_mut(&mut self, name: &str) -> &mut KeyspaceDefinition {
        self.keyspaces.entry(name.to_owned()).or_insert_with(|| KeyspaceDefinition {
            durable_writes: true,
            ..KeyspaceDefinition::default()
        })
    }

    /// All tables with their keyspaces and names.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str, &Arc<TableDefinition>)> {
        self.keyspaces.iter().flat_map(|(keyspace, definition)| {
            let tables = definition.tables.iter();
            tables.map(|(name, table)| (keyspace.as_str(), name.as_str(), table))
        })
    }

    /// A UUID of the content: nodes with the same definitions have the same.
    pub fn digest(&self) -> Uuid {
        let content = Self { version: 0, keyspaces: self.keyspaces.clone() };
        uuid::Builder::from_md5_bytes(Md5::digest(encoding::encode(&content)).into()).into_uuid()
    }
}

impl TableDefinition {
    /// The name of its files, and in records and messages.
    pub fn stored_name(&self, name: &str) -> String {
        ColumnFamilySchema::stored_name(name, self.rows)
    }

    /// A property that is one constant, if it was set.
    pub fn text(&self, property: &str) -> Option<&str> {
        match self.properties.get(property)? {
            PropertyValue::Text(text) => Some(text),
            PropertyValue::Map(_) => None,
        }
    }

    /// A property that is a map, if it was set.
    pub fn map(&self, property: &str) -> Option<&BTreeMap<String, String>> {
        match self.properties.get(property)? {
            PropertyValue::Text(_) => None,
            PropertyValue::Map(map) => Some(map),
        }
    }

    /// A property that is a number.
    pub fn number<T: std::str::FromStr>(&self, property: &str, default: T) -> T {
        self.text(property).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    /// The greatest timestamp of values of an earlier column of this name, which was dropped;
    /// `i64::MIN` if there was none.
    pub fn hidden_up_to(&self, column: &str, kind: ColumnKind) -> i64 {
        let dropped = self.dropped.get(column);
        let is_it = matches!(kind, ColumnKind::Static | ColumnKind::Regular);
        dropped.filter(|_| is_it).map_or(i64::MIN, |it| it.micros)
    }
}
