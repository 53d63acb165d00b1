//! Tables and their columns.

use super::super::ast::{AlterTable, ColumnDefinition, CreateTable, QualifiedName, Term};
use super::super::definition;
use super::super::error::CqlError;
use super::super::types::TypeNames;
use super::{Changed, Ground, MAX_NAME, configured, is_word, properties};
use crate::model::table::{Column, ColumnKind, Form, Table};
use crate::model::types::{CqlType, Native};
use crate::schema::{Definitions, DroppedColumn, KeyspaceDefinition, TableDefinition, kind};
use crate::service::Partitioner;
use std::collections::BTreeMap;
use std::sync::Arc;

/// CREATE TABLE.
pub(super) fn create(create: &CreateTable, ground: &Ground, now: &Definitions) -> Changed {
    let keyspace = ground.keyspace(&create.table)?;
    let name = &create.table.name;
    check_name(name)?;
    if !ground.has_keyspace(now, keyspace) {
        return Err(CqlError::config(format!("Keyspace {keyspace} doesn't exist")));
    }
    let table = definition::table(create, keyspace, now)?;
    let [id, rows] = ground.ids;
    let mut definition = TableDefinition {
        id,
        rows,
        table: Arc::new(table),
        properties: BTreeMap::new(),
        dropped: BTreeMap::new(),
    };
    properties::set(&create.properties, &mut definition.properties)?;
    take_ttl(&mut definition);
    check_keys(&definition.table, ground.partitioner)?;
    if ground.has_table(now, keyspace, name) {
        let exists = CqlError::table_exists(keyspace, name);
        return if create.if_not_exists { Ok(None) } else { Err(exists) };
    }
    let mut next = now.clone();
    next.keyspace_mut(keyspace).tables.insert(name.clone(), Arc::new(definition));
    Ok(Some(next))
}

fn check_name(name: &str) -> Result<(), CqlError> {
    if !is_word(name) {
        return Err(CqlError::invalid(format!(
            "\"{name}\" is not a valid table name (must be alphanumeric character or underscore \
             only: [a-zA-Z_0-9]+)"
        )));
    }
    if name.len() > MAX_NAME {
        return Err(CqlError::invalid(format!(
            "Table names shouldn't be more than {MAX_NAME} characters long (got \"{name}\")"
        )));
    }
    Ok(())
}

/// Fails for keys that the storage cannot put in order.
fn check_keys(table: &Table, partitioner: Partitioner) -> Result<(), CqlError> {
    if kind(table).is_none() {
        let types = table.columns[table.clustering()].iter();
        let types: Vec<String> = types.map(|column| column.of_type.to_string()).collect();
        return Err(CqlError::invalid(format!(
            "Clustering columns of these types cannot be put in order: {}",
            types.join(", ")
        )));
    }
    let is_text =
        |column: &Column| matches!(column.of_type, CqlType::Native(Native::Text | Native::Ascii));
    let has_text_key = table.key_length() == 1 && table.columns.first().is_some_and(is_text);
    if partitioner != Partitioner::Random && !has_text_key {
        return Err(CqlError::invalid(format!(
            "The partitioner {} keeps rows in the order of their keys as texts: the partition key \
             must be one column of type text or ascii",
            partitioner.class_name()
        )));
    }
    Ok(())
}

/// ALTER TABLE.
pub(super) fn alter(
    name: &QualifiedName,
    change: &AlterTable,
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    let keyspace = ground.keyspace(name)?;
    find(name, keyspace, ground, now)?;
    replace(now, (keyspace, &name.name), |definition| match change {
        AlterTable::Add(columns) => {
            columns.iter().try_for_each(|column| add(definition, column, keyspace, now))
        }
        AlterTable::Drop(columns, timestamp) => {
            let micros = timestamp.as_ref().map_or(Ok(ground.micros), micros)?;
            columns
                .iter()
                .try_for_each(|column| drop_column(definition, column, &name.name, micros))
        }
        AlterTable::Type(..) => Err(CqlError::invalid("Altering of types is not allowed")),
        AlterTable::Rename(renamings) => {
            let in_table = (keyspace, name.name.as_str());
            renamings.iter().try_for_each(|it| rename(definition, it, in_table))
        }
        AlterTable::With(given) => {
            properties::set(given, &mut definition.properties)?;
            take_ttl(definition);
            Ok(())
        }
        AlterTable::DropCompactStorage if !definition.table.is_compact() => {
            Err(CqlError::invalid("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE"))
        }
        AlterTable::DropCompactStorage => Err(CqlError::unsupported("DROP COMPACT STORAGE")),
    })
}

/// DROP TABLE.
pub(super) fn drop(
    name: &QualifiedName,
    if_exists: bool,
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    let keyspace = ground.keyspace(name)?;
    if if_exists && !ground.has_table(now, keyspace, &name.name) {
        return Ok(None);
    }
    find(name, keyspace, ground, now)?;
    let mut next = now.clone();
    next.keyspace_mut(keyspace).tables.remove(&name.name);
    forget_if_empty(&mut next, keyspace);
    Ok(Some(next))
}

/// Fails unless this is a table that was made over CQL.
fn find(
    name: &QualifiedName,
    keyspace: &str,
    ground: &Ground,
    now: &Definitions,
) -> Result<(), CqlError> {
    if !ground.has_keyspace(now, keyspace) {
        return Err(CqlError::invalid(format!("Keyspace {keyspace} does not exist")));
    }
    if ground.is_configured(keyspace, &name.name) {
        return Err(configured(&format!("table {keyspace}.{}", name.name)));
    }
    let unknown = || CqlError::invalid(format!("unconfigured table {}", name.name));
    now.table(keyspace, &name.name).map(std::mem::drop).ok_or_else(unknown)
}

/// Forgets a keyspace of the configuration that has neither tables nor types of CQL.
pub(super) fn forget_if_empty(definitions: &mut Definitions, keyspace: &str) {
    let is_empty = |it: &KeyspaceDefinition| {
        it.replication.is_none() && it.tables.is_empty() && it.types.is_empty()
    };
    if definitions.keyspaces.get(keyspace).is_some_and(is_empty) {
        definitions.keyspaces.remove(keyspace);
    }
}

/// The definitions with a changed table.
pub(super) fn replace(
    now: &Definitions,
    (keyspace, name): (&str, &str),
    change: impl FnOnce(&mut TableDefinition) -> Result<(), CqlError>,
) -> Changed {
    let unknown = || CqlError::invalid(format!("unconfigured table {name}"));
    let mut definition = TableDefinition::clone(now.table(keyspace, name).ok_or_else(unknown)?);
    // A new value even if only properties change: those who use the table notice by it.
    definition.table = Arc::new(Table::clone(&definition.table));
    change(&mut definition)?;
    let mut next = now.clone();
    next.keyspace_mut(keyspace).tables.insert(name.to_owned(), Arc::new(definition));
    Ok(Some(next))
}

/// Changes the types of columns of all tables of a keyspace.
pub(super) fn replace_all(
    keyspace: &mut KeyspaceDefinition,
    change: impl Fn(&Column) -> Option<CqlType>,
) {
    for definition in keyspace.tables.values_mut() {
        let mut table = Table::clone(&definition.table);
        let mut is_changed = false;
        for column in &mut table.columns {
            if let Some(of_type) = change(column) {
                column.of_type = of_type;
                is_changed = true;
            }
        }
        if is_changed {
            let table = Arc::new(table);
            *definition = Arc::new(TableDefinition { table, ..TableDefinition::clone(definition) });
        }
    }
}

/// Gives the table its default time to live.
fn take_ttl(definition: &mut TableDefinition) {
    let default_ttl = definition.number("default_time_to_live", 0);
    definition.table = Arc::new(Table { default_ttl, ..Table::clone(&definition.table) });
}

/// Puts other columns into a table.
fn set_columns(definition: &mut TableDefinition, columns: Vec<Column>) {
    let old = &definition.table;
    let default_ttl = old.default_ttl;
    let table = Table::of_columns(columns, old.is_compact());
    let has_dropped = !definition.dropped.is_empty();
    definition.table = Arc::new(Table { default_ttl, has_dropped, ..table });
}

/// The timestamp of `DROP … USING TIMESTAMP`.
fn micros(term: &Term) -> Result<i64, CqlError> {
    match term {
        Term::Constant(_, text) => text
            .parse()
            .map_err(|_| CqlError::syntax(format!("Invalid value for TIMESTAMP: {text}"))),
        _ => Err(CqlError::invalid("TIMESTAMP of a dropped column must be a constant")),
    }
}

fn add(
    definition: &mut TableDefinition,
    column: &ColumnDefinition,
    keyspace: &str,
    now: &Definitions,
) -> Result<(), CqlError> {
    let table = &definition.table;
    let name = &column.name;
    let invalid = |why: &str| Err(CqlError::invalid(why));
    if table.form == Form::Dense {
        return invalid("Cannot add new column to a COMPACT STORAGE table");
    }
    if column.is_static && table.is_compact() {
        return invalid("Static columns are not allowed in COMPACT STORAGE tables");
    }
    if column.is_static && table.clustering().is_empty() {
        return invalid(
            "Static columns are only useful (and thus allowed) if the table has at least one \
             clustering column",
        );
    }
    if let Some(at) = table.column(name) {
        let what = match table.columns[at].kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering { .. } => "a PRIMARY KEY part",
            ColumnKind::Static | ColumnKind::Regular => "an existing column",
        };
        return invalid(&format!("Invalid column name {name} because it conflicts with {what}"));
    }
    definition::check_name(name)?;
    let of_type = (now as &dyn TypeNames).resolve(&column.of_type, keyspace)?;
    definition::check_type(&of_type, &column.of_type)?;
    if of_type.is_multicell() && table.is_compact() {
        return invalid("Cannot use non-frozen collections in COMPACT STORAGE tables");
    }
    if let Some(dropped) = definition.dropped.get(name) {
        check_again(name, &of_type, column.is_static, dropped)?;
    }
    let kind = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
    let hidden_up_to = definition.hidden_up_to(name, kind);
    let column = Column { hidden_up_to, ..Column::new(name, of_type, kind) };
    let columns = definition.table.columns.iter().cloned().chain([column]).collect();
    set_columns(definition, columns);
    Ok(())
}

/// Fails if values of a dropped column that are still there would not fit a new one: those written
/// with timestamps of the future are shown.
fn check_again(
    name: &str,
    of_type: &CqlType,
    is_static: bool,
    dropped: &DroppedColumn,
) -> Result<(), CqlError> {
    if of_type.is_multicell() != dropped.of_type.is_multicell()
        || of_type.is_multicell() && !of_type.assignable_from(&dropped.of_type)
    {
        return Err(CqlError::invalid(format!(
            "Cannot add a collection with the name {name} because a collection with the same name \
             and a different type ({}) has already been used in the past",
            dropped.of_type
        )));
    }
    let kind = |is_static| if is_static { "STATIC" } else { "REGULAR" };
    if is_static != dropped.is_static {
        return Err(CqlError::invalid(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with \
             previous kind {}",
            kind(is_static),
            kind(dropped.is_static)
        )));
    }
    if !of_type.assignable_from(&dropped.of_type) {
        return Err(CqlError::invalid(format!(
            "Cannot re-add previously dropped column '{name}' of type {of_type}, incompatible with \
             previous type {}",
            dropped.of_type
        )));
    }
    Ok(())
}

fn drop_column(
    definition: &mut TableDefinition,
    name: &str,
    table_name: &str,
    micros: i64,
) -> Result<(), CqlError> {
    let table = Arc::clone(&definition.table);
    if table.is_compact() {
        return Err(CqlError::invalid("Cannot drop columns from a non-CQL3 table"));
    }
    let Some(at) = table.column(name) else {
        let why = format!("Column {name} was not found in table {table_name}");
        return Err(CqlError::invalid(why));
    };
    let column = &table.columns[at];
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering { .. }) {
        return Err(CqlError::invalid(format!("Cannot drop PRIMARY KEY part {name}")));
    }
    let dropped = DroppedColumn {
        of_type: column.of_type.clone(),
        is_static: column.kind == ColumnKind::Static,
        micros,
    };
    definition.dropped.insert(name.to_owned(), dropped);
    let columns = table.columns.iter().filter(|it| it.name != name).cloned().collect();
    set_columns(definition, columns);
    Ok(())
}

fn rename(
    definition: &mut TableDefinition,
    (from, to): &(String, String),
    (keyspace, name): (&str, &str),
) -> Result<(), CqlError> {
    let mut table = Table::clone(&definition.table);
    let Some(at) = table.column(from) else {
        let why = format!("Cannot rename unknown column {from} in table {name}");
        return Err(CqlError::invalid(why));
    };
    if table.column(to).is_some() {
        return Err(CqlError::invalid(format!(
            "Cannot rename column {from} to {to} in keyspace {keyspace}; another column of that \
             name already exist"
        )));
    }
    if matches!(table.columns[at].kind, ColumnKind::Static | ColumnKind::Regular) {
        return Err(CqlError::invalid(format!("Cannot rename non PRIMARY KEY part {from}")));
    }
    definition::check_name(to)?;
    table.columns[at].name.clone_from(to);
    definition.table = Arc::new(table);
    Ok(())
}
