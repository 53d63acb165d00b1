//! Tables: column families as CQL sees them.
//!
//! The rows of a column family are partitions. A dense table has a CQL row for each column, whose
//! name holds the clustering columns; a sparse one has a CQL row for each super column, or for the
//! whole partition where there are none, and the names of its columns are those of the table.

use super::comparator::{CLASS_PREFIX, Comparator, top_level_parts};
use super::schema::ColumnFamilyKind;
use super::types::{CqlType, Native};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The column of a sparse table that holds the columns which are not declared.
const REST: &str = "rest";

/// Place of a column in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Part of the row key.
    PartitionKey,
    /// Part of the name of a super column or column.
    Clustering {
        /// `CLUSTERING ORDER BY … DESC`.
        is_descending: bool,
    },
    /// A value that all rows of a partition share.
    Static,
    /// A value of each row.
    Regular,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name in statements.
    pub name: String,
    /// Type of its values.
    pub of_type: CqlType,
    /// Its place.
    pub kind: ColumnKind,
    /// Name of the cells of a static or regular column of a sparse table; other names have none.
    pub cell_name: Box<[u8]>,
}

impl Column {
    /// A column whose cells have its own name.
    pub fn new(name: impl Into<String>, of_type: CqlType, kind: ColumnKind) -> Self {
        let name = name.into();
        let cell_name = match kind {
            ColumnKind::Static | ColumnKind::Regular => name.as_bytes().into(),
            ColumnKind::PartitionKey | ColumnKind::Clustering { .. } => Box::default(),
        };
        Self { name, of_type, kind, cell_name }
    }
}

/// Form of the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A CQL row for each column. The only regular column is its value.
    Dense,
    /// A CQL row for each super column or, in a standard family, for each partition.
    Sparse {
        /// Whether INSERT leaves a marker, so that a row without regular columns exists.
        has_markers: bool,
        /// Whether the last regular column is a map of the cells that have no column.
        has_rest: bool,
    },
}

/// Declarations of a column family of the configuration: how to show its keys, names and values.
/// The Thrift API ignores them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// `KeyName` (`key`).
    pub key_name: Option<String>,
    /// `KeyType` (text).
    pub key_type: Option<CqlType>,
    /// `ColumnName` (`column1`): of the name of the columns or super columns.
    pub column_name: Option<String>,
    /// `DefaultValueType` (blob).
    pub value_type: Option<CqlType>,
    /// `<Column>`: names as the comparator shows them, and types.
    pub columns: Vec<DeclaredColumn>,
}

/// A `<Column>` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredColumn {
    /// `Name`.
    pub name: String,
    /// The name in cells.
    pub cell_name: Box<[u8]>,
    /// `Type`.
    pub of_type: CqlType,
}

/// A column family as CQL sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Table {
    /// Partition key, clustering, static and regular columns, the last two sorted by the names of
    /// their cells: the order of `SELECT *`.
    pub columns: Vec<Column>,
    /// Form of its rows.
    pub form: Form,
    /// Clustering columns that are in the name of a super column.
    pub in_super_name: usize,
    /// Whether names of super columns, and of columns, are composites. Those of one clustering
    /// column may be its bare value.
    pub is_composite: (bool, bool),
    /// Time to live of values that are written without one, in seconds; 0 for none.
    pub default_ttl: i32,
}

impl Table {
    /// The table of a column family of the configuration.
    pub fn of_family(kind: &ColumnFamilyKind, declared: &Declared) -> Self {
        let key_type = declared.key_type.clone().unwrap_or(CqlType::Native(Native::Text));
        let key_name = declared.key_name.as_deref().unwrap_or("key");
        let mut columns = vec![Column::new(key_name, key_type, ColumnKind::PartitionKey)];
        let is_sparse = !declared.columns.is_empty();
        let (outer, inner) = match kind {
            ColumnFamilyKind::Standard { columns } => (None, Some(columns)),
            ColumnFamilyKind::Super { super_columns, columns } => {
                (Some(super_columns), Some(columns))
            }
        };
        let parts = |comparator: Option<&Comparator>| comparator.map_or_else(Vec::new, components);
        let (outer_parts, inner_parts) = (parts(outer), parts(inner.filter(|_| !is_sparse)));
        let in_super_name = outer_parts.len();
        for (at, (of_type, is_descending)) in outer_parts.into_iter().chain(inner_parts).enumerate()
        {
            let name = match &declared.column_name {
                Some(name) if at == 0 => name.clone(),
                _ => format!("column{}", at + 1),
            };
            columns.push(Column::new(name, of_type, ColumnKind::Clustering { is_descending }));
        }
        let blob = CqlType::Native(Native::Blob);
        let form = if is_sparse {
            let regular = declared.columns.iter().map(|it| Column {
                cell_name: it.cell_name.clone(),
                ..Column::new(it.name.clone(), it.of_type.clone(), ColumnKind::Regular)
            });
            let mut regular: Vec<Column> = regular.collect();
            regular.sort_by(|a, b| a.cell_name.cmp(&b.cell_name));
            columns.extend(regular);
            let value = declared.value_type.clone().unwrap_or(blob.clone());
            let name = unused_name(&columns, REST);
            let rest = CqlType::Map(Arc::new((blob, value)));
            let rest = Column::new(name, rest, ColumnKind::Regular);
            columns.push(Column { cell_name: Box::default(), ..rest });
            Form::Sparse { has_markers: false, has_rest: true }
        } else {
            let name = unused_name(&columns, "value");
            let value = declared.value_type.clone().unwrap_or(blob);
            columns.push(Column::new(name, value, ColumnKind::Regular));
            Form::Dense
        };
        let is_composite = (outer.is_some_and(is_composite), inner.is_some_and(is_composite));
        Self { columns, form, in_super_name, is_composite, default_ttl: 0 }
    }

    /// The column of this name, by its number.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Number of columns of the partition key.
    pub fn key_length(&self) -> usize {
        self.columns.iter().take_while(|it| it.kind == ColumnKind::PartitionKey).count()
    }

    /// Numbers of the clustering columns.
    pub fn clustering(&self) -> std::ops::Range<usize> {
        let is_clustering = |it: &&Column| matches!(it.kind, ColumnKind::Clustering { .. });
        let start = self.key_length();
        start..start + self.columns[start..].iter().take_while(is_clustering).count()
    }

    /// Numbers of the static columns.
    pub fn statics(&self) -> std::ops::Range<usize> {
        let start = self.clustering().end;
        let is_static = |it: &&Column| it.kind == ColumnKind::Static;
        start..start + self.columns[start..].iter().take_while(is_static).count()
    }

    /// Numbers of the regular columns.
    pub fn regular(&self) -> std::ops::Range<usize> {
        self.statics().end..self.columns.len()
    }
}

/// One line, since tables stand in settings: all that makes two tables differ.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { columns, form, in_super_name, is_composite, default_ttl } = self;
        write!(f, "{form:?} {in_super_name} {is_composite:?} ttl {default_ttl}:")?;
        columns.iter().try_for_each(|column| {
            let Column { name, of_type, kind, cell_name } = column;
            write!(f, " {name} {of_type} {kind:?} {},", cell_name.escape_ascii())
        })
    }
}

/// A name that no column has.
fn unused_name(columns: &[Column], name: &str) -> String {
    let taken: BTreeSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let numbered = (1..).map(|number| format!("{name}{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !taken.contains(name.as_str())).unwrap_or_default()
}

fn is_composite(comparator: &Comparator) -> bool {
    inner(&comparator.class_name(), "CompositeType").is_some()
}

/// The types of the parts of a name in this order, and whether they descend.
fn components(comparator: &Comparator) -> Vec<(CqlType, bool)> {
    let class = comparator.class_name();
    let parts = match inner(&class, "CompositeType") {
        Some(parts) => top_level_parts(parts).unwrap_or_default(),
        None => vec![class.as_str()],
    };
    let part = |class: &str| {
        let reversed = inner(class, "ReversedType");
        let shown = reversed.unwrap_or(class);
        let of_type = CqlType::from_class(shown).unwrap_or_else(|| CqlType::Custom(shown.into()));
        (of_type, reversed.is_some())
    };
    parts.into_iter().map(part).collect()
}

/// The text between the parentheses after a class name.
fn inner<'a>(class: &'a str, outer: &str) -> Option<&'a str> {
    let rest = class.trim().strip_prefix(CLASS_PREFIX)?.strip_prefix(outer)?;
    rest.strip_prefix('(')?.strip_suffix(')')
}
