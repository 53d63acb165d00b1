//! CREATE TABLE as a table.

use super::ast::{ColumnDefinition, CreateTable, TypeName};
use super::error::CqlError;
use super::types::TypeNames;
use crate::model::table::{Column, ColumnKind, Table};
use crate::model::types::{CqlType, Native};
use std::collections::BTreeMap;

/// The table of a statement. Its types are looked up in this keyspace.
pub(super) fn table(
    statement: &CreateTable,
    keyspace: &str,
    types: &dyn TypeNames,
) -> Result<Table, CqlError> {
    let mut defined: BTreeMap<&str, (&ColumnDefinition, CqlType)> = BTreeMap::new();
    for column in &statement.columns {
        check_name(&column.name)?;
        let of_type = types.resolve(&column.of_type, keyspace)?;
        check_type(&of_type, &column.of_type)?;
        if defined.insert(&column.name, (column, of_type)).is_some() {
            let why = format!("Multiple definition of identifier {}", column.name);
            return Err(CqlError::invalid(why));
        }
    }
    let (partition_key, clustering) = primary_key(statement)?;
    let directions = directions(statement, clustering)?;
    let mut columns = Vec::new();
    let keys = partition_key.iter().map(|name| (name, ColumnKind::PartitionKey));
    let clustering = clustering.iter().map(|name| {
        let is_descending = directions.get(name.as_str()).copied().unwrap_or(false);
        (name, ColumnKind::Clustering { is_descending })
    });
    for (key, kind) in keys.chain(clustering) {
        let Some((column, of_type)) = defined.remove(key.as_str()) else {
            let is_repeated = columns.iter().any(|it: &Column| it.name == *key);
            let why = if is_repeated {
                format!("Duplicate column {key} in PRIMARY KEY")
            } else {
                format!("Unknown definition {key} referenced in PRIMARY KEY")
            };
            return Err(CqlError::invalid(why));
        };
        check_key_column(column, &of_type)?;
        let of_type = of_type.frozen();
        columns.push(Column::new(key, of_type, kind));
    }
    let clustering_count = columns.len() - partition_key.len();
    let (statics, regular): (Vec<_>, Vec<_>) =
        defined.into_values().partition(|(column, _)| column.is_static);
    if !statics.is_empty() && clustering_count == 0 {
        return Err(CqlError::invalid(
            "Static columns are only useful (and thus allowed) if the table has at least one \
             clustering column",
        ));
    }
    let others = |defined: Vec<(&ColumnDefinition, CqlType)>, kind| -> Vec<Column> {
        let column = |(it, of_type): (&ColumnDefinition, _)| Column::new(&it.name, of_type, kind);
        defined.into_iter().map(column).collect()
    };
    let statics = others(statics, ColumnKind::Static);
    let regular = others(regular, ColumnKind::Regular);
    if statement.is_compact {
        return compact(columns, clustering_count, &statics, regular);
    }
    columns.extend(statics);
    columns.extend(regular);
    Ok(Table::of_columns(columns, false))
}

/// The one PRIMARY KEY of a statement: partition key and clustering columns.
fn primary_key(statement: &CreateTable) -> Result<&(Vec<String>, Vec<String>), CqlError> {
    match &statement.primary_keys[..] {
        [one] => Ok(one),
        [] => Err(CqlError::invalid("No PRIMARY KEY specifed (exactly one required)")),
        _ => Err(CqlError::invalid("Multiple PRIMARY KEYs specifed (exactly one required)")),
    }
}

/// A table WITH COMPACT STORAGE: the families that Thrift users expect.
fn compact(
    mut columns: Vec<Column>,
    clustering_count: usize,
    statics: &[Column],
    mut regular: Vec<Column>,
) -> Result<Table, CqlError> {
    if !statics.is_empty() {
        let why = "Static columns are not supported in COMPACT STORAGE tables";
        return Err(CqlError::invalid(why));
    }
    if regular.iter().any(|it| it.of_type.is_multicell()) {
        return Err(CqlError::invalid(
            "Non-frozen collection types are not supported with COMPACT STORAGE",
        ));
    }
    if clustering_count == 0 {
        if regular.is_empty() {
            let why = "No definition found that is not part of the PRIMARY KEY";
            return Err(CqlError::invalid(why));
        }
        columns.extend(regular);
        return Ok(Table::of_columns(columns, true));
    }
    if regular.len() > 1 {
        let names: Vec<&str> = regular.iter().map(|it| it.name.as_str()).collect();
        return Err(CqlError::invalid(format!(
            "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of \
             the PRIMARY KEY (got: {})",
            names.join(", ")
        )));
    }
    let empty = Column::new("value", CqlType::Native(Native::Empty), ColumnKind::Regular);
    let value = regular.pop().unwrap_or(empty);
    columns.push(value);
    Ok(Table::of_columns(columns, true))
}

/// Names that no column can have: a zero byte ends the name in those of the cells of elements, and
/// is the name of the marker of a row.
pub(super) fn check_name(name: &str) -> Result<(), CqlError> {
    if name.contains('\0') {
        return Err(CqlError::invalid(format!(
            "Invalid column name {}: it must not contain the character NUL",
            name.replace('\0', "\\0")
        )));
    }
    Ok(())
}

/// Types that no column can have.
pub(super) fn check_type(of_type: &CqlType, written: &TypeName) -> Result<(), CqlError> {
    if *of_type == CqlType::Native(Native::Counter) {
        return Err(CqlError::unsupported("counters"));
    }
    if holds(of_type, Native::Counter) {
        let what = if matches!(of_type, CqlType::Tuple(_)) { "tuples" } else { "collections" };
        let why = format!("Counters are not allowed inside {what}: {written}");
        return Err(CqlError::invalid(why));
    }
    match of_type.unfrozen() {
        CqlType::Set(inner) if holds(inner, Native::Duration) => {
            let why = format!("Durations are not allowed inside sets: {written}");
            return Err(CqlError::invalid(why));
        }
        CqlType::Map(inner) if holds(&inner.0, Native::Duration) => {
            let why = format!("Durations are not allowed as map keys: {written}");
            return Err(CqlError::invalid(why));
        }
        _ => {}
    }
    let inner: Vec<&CqlType> = match of_type {
        CqlType::List(inner) | CqlType::Set(inner) => vec![inner],
        CqlType::Map(inner) => vec![&inner.0, &inner.1],
        CqlType::User(user) => user.fields.iter().map(|(_, it)| it).collect(),
        _ => Vec::new(),
    };
    if let Some(nested) = inner.iter().find(|it| it.is_multicell()) {
        let what = if matches!(nested, CqlType::User(_)) { "UDTs" } else { "collections" };
        return Err(CqlError::invalid(match of_type {
            CqlType::User(_) => "Non-frozen UDTs with nested non-frozen collections are not \
                supported"
                .to_owned(),
            _ => format!("Non-frozen {what} are not allowed inside collections: {written}"),
        }));
    }
    Ok(())
}

/// Whether values are of a type, or have values of it in them.
fn holds(of_type: &CqlType, part: Native) -> bool {
    match of_type {
        CqlType::Native(native) => *native == part,
        CqlType::Custom(_) => false,
        CqlType::List(inner) | CqlType::Set(inner) | CqlType::Frozen(inner) => holds(inner, part),
        CqlType::Map(inner) => holds(&inner.0, part) || holds(&inner.1, part),
        CqlType::Tuple(fields) => fields.iter().any(|field| holds(field, part)),
        CqlType::User(user) => user.fields.iter().any(|(_, field)| holds(field, part)),
    }
}

fn check_key_column(column: &ColumnDefinition, of_type: &CqlType) -> Result<(), CqlError> {
    let name = &column.name;
    if column.is_static {
        let why = format!("Static column {name} cannot be part of the PRIMARY KEY");
        return Err(CqlError::invalid(why));
    }
    if of_type.is_multicell() {
        let what = if matches!(of_type, CqlType::User(_)) { "user-defined" } else { "collection" };
        return Err(CqlError::invalid(format!(
            "Invalid non-frozen {what} type for PRIMARY KEY component {name}"
        )));
    }
    if holds(of_type, Native::Duration) {
        let why = format!("duration type is not supported for PRIMARY KEY part {name}");
        return Err(CqlError::invalid(why));
    }
    Ok(())
}

/// The directions of `CLUSTERING ORDER BY`.
fn directions<'s>(
    statement: &'s CreateTable,
    clustering: &[String],
) -> Result<BTreeMap<&'s str, bool>, CqlError> {
    let order = &statement.clustering_order;
    for (at, (name, _)) in order.iter().enumerate() {
        if !clustering.contains(name) {
            return Err(CqlError::invalid(
                "Only clustering key columns can be defined in CLUSTERING ORDER directive",
            ));
        }
        if clustering.get(at) != Some(name) {
            return Err(CqlError::invalid(format!(
                "The order of columns in the CLUSTERING ORDER directive must be the one of the \
                 clustering key ({} must appear before {name})",
                clustering[at.min(clustering.len() - 1)]
            )));
        }
    }
    Ok(order.iter().map(|(name, descends)| (name.as_str(), *descends)).collect())
}
