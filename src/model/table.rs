//! Tables: column families as CQL sees them.
//!
//! The rows of a column family are partitions. A dense table has a CQL row for each column, whose
//! name holds the clustering columns; a sparse one has a CQL row for each super column, or for the
//! whole partition where there are none, and the names of its columns are those of the table.

use super::comparator::{CLASS_PREFIX, Comparator, ComparatorRegistry, top_level_parts};
use super::schema::ColumnFamilyKind;
use super::types::{CqlType, Native, quoted};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The column of a sparse table that holds the columns which are not declared.
const REST: &str = "rest";

/// The byte between the name of a collection and the name of an element, in the names of its cells.
pub const ELEMENT: u8 = 0;

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
    /// Cells with timestamps up to this one are of an earlier column of the name, which was
    /// dropped; `i64::MIN` if there was none.
    pub hidden_up_to: i64,
}

impl Column {
    /// A column whose cells have its own name.
    pub fn new(name: impl Into<String>, of_type: CqlType, kind: ColumnKind) -> Self {
        let name = name.into();
        let cell_name = match kind {
            ColumnKind::Static | ColumnKind::Regular => name.as_bytes().into(),
            ColumnKind::PartitionKey | ColumnKind::Clustering { .. } => Box::default(),
        };
        Self { name, of_type, kind, cell_name, hidden_up_to: i64::MIN }
    }

    /// Whether statements do not see it: the empty value of the rows of a dense table that has no
    /// other.
    pub fn is_hidden(&self) -> bool {
        self.of_type == CqlType::Native(Native::Empty)
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

impl DeclaredColumn {
    /// A column of this name, as its comparator shows it; the error says why there is none.
    pub fn new(name: &str, of_type: CqlType, comparator: &Comparator) -> Result<Self, String> {
        if is_composite(comparator) {
            return Err("names of several components are not declared one by one".to_owned());
        }
        let cell_name = comparator.parse(name)?;
        comparator.validate(&cell_name).map_err(|invalid| invalid.to_string())?;
        Ok(Self { name: name.to_owned(), cell_name: cell_name.into(), of_type })
    }
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
    /// Whether cells may be of columns that were dropped.
    pub has_dropped: bool,
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
        Self { columns, form, in_super_name, is_composite, default_ttl: 0, has_dropped: false }
    }

    /// A table that is made over CQL of these columns: partition key, clustering columns, and the
    /// others in any order. `COMPACT STORAGE` gives it the form that Thrift users expect.
    pub fn of_columns(mut columns: Vec<Column>, is_compact: bool) -> Self {
        let rank = |column: &Column| match column.kind {
            ColumnKind::PartitionKey => 0,
            ColumnKind::Clustering { .. } => 1,
            ColumnKind::Static => 2,
            ColumnKind::Regular => 3,
        };
        columns.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cell_name.cmp(&b.cell_name)));
        let count = columns.iter().filter(|column| rank(column) == 1).count();
        let is_dense = is_compact && count > 0;
        let form = if is_dense {
            Form::Dense
        } else {
            Form::Sparse { has_markers: !is_compact, has_rest: false }
        };
        let in_super_name = if is_compact { 0 } else { count };
        let is_composite = (in_super_name > 0, is_dense && count > 1);
        Self { columns, form, in_super_name, is_composite, default_ttl: 0, has_dropped: false }
    }

    /// Whether a table that was made over CQL has `COMPACT STORAGE`.
    pub fn is_compact(&self) -> bool {
        !matches!(self.form, Form::Sparse { has_markers: true, .. })
    }

    /// The column of this name, by its number.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Type of the value of a cell, by its name within a row or super column; `None` for the marker
    /// of a row, and for elements of sets.
    pub fn value_type(&self, name: &[u8]) -> Option<&CqlType> {
        let regular = &self.columns[self.regular()];
        let Form::Sparse { has_rest, .. } = self.form else {
            return regular.first().map(|column| &column.of_type);
        };
        if !has_rest {
            return self.value_type_of_cql(name);
        }
        let (rest, named) = regular.split_last()?;
        if let Ok(at) = named.binary_search_by(|column| (*column.cell_name).cmp(name)) {
            return Some(&named[at].of_type);
        }
        match &rest.of_type {
            CqlType::Map(types) => Some(&types.1),
            _ => None,
        }
    }

    /// The same in a sparse table that was made over CQL, where elements of collections have cells.
    fn value_type_of_cql(&self, name: &[u8]) -> Option<&CqlType> {
        let (column, element) = self.column_of(name)?;
        match (&column.of_type, element) {
            (of_type, None) => Some(of_type).filter(|it| !it.is_multicell()),
            (CqlType::Map(types), Some(_)) => Some(&types.1),
            (CqlType::List(inner), Some(_)) => Some(inner),
            (CqlType::User(user), Some(field)) => {
                let at = u16::from_be_bytes(field.try_into().ok()?);
                user.fields.get(usize::from(at)).map(|(_, of_type)| of_type)
            }
            _ => None,
        }
    }

    /// The column of a cell of such a table, and the element of a collection.
    fn column_of<'n>(&self, name: &'n [u8]) -> Option<(&Column, Option<&'n [u8]>)> {
        let mut parts = name.splitn(2, |byte| *byte == ELEMENT);
        let (head, element) = (parts.next()?, parts.next());
        let mut columns = self.columns[self.statics().start..].iter();
        Some((columns.find(|column| *column.cell_name == *head)?, element))
    }

    /// The name for people of a cell of a declared column, of an element of a collection, and of
    /// the marker of a row.
    pub fn shown_name(&self, cell_name: &[u8]) -> Option<String> {
        if let Some(declared) = self.declared_name(cell_name) {
            return Some(declared.to_owned());
        }
        if !matches!(self.form, Form::Sparse { has_markers: true, .. }) {
            return None;
        }
        if cell_name == [ELEMENT] {
            return Some("(row marker)".to_owned());
        }
        let (Column { name, of_type, .. }, element) = self.column_of(cell_name)?;
        let element = match of_type {
            CqlType::Map(types) => types.0.render(element?),
            CqlType::Set(inner) => inner.render(element?),
            CqlType::List(_) => CqlType::from(Native::Timeuuid).render(element?),
            CqlType::User(user) => {
                let at = u16::from_be_bytes(element?.try_into().ok()?);
                return Some(format!("{name}.{}", user.fields.get(usize::from(at))?.0));
            }
            _ => return None,
        };
        Some(format!("{name}[{element}]"))
    }

    /// Number of columns of the partition key.
    pub fn key_length(&self) -> usize {
        self.columns.iter().take_while(|it| it.kind == ColumnKind::PartitionKey).count()
    }

    /// Type of the row keys. Those of several parts are bytes.
    pub fn key_type(&self) -> CqlType {
        match &self.columns[..self.key_length()] {
            [key] => key.of_type.clone(),
            _ => Native::Blob.into(),
        }
    }

    /// The form of row keys of several parts, which are those of composite names.
    pub fn composite_keys(&self) -> Option<Comparator> {
        let parts = self.columns[..self.key_length()].iter();
        let classes: Vec<String> = parts.map(|it| it.of_type.class_name()).collect();
        let class = format!("CompositeType({})", classes.join(","));
        (classes.len() > 1).then(|| ComparatorRegistry::default().resolve(&class))?
    }

    /// The name for people of a column that is declared, by its name in cells.
    pub fn declared_name(&self, cell_name: &[u8]) -> Option<&str> {
        let columns = self.columns[self.statics().start..].iter();
        let mut named = columns.filter(|it| !it.is_hidden() && *it.cell_name == *cell_name);
        named.next().map(|column| column.name.as_str())
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

    fn names(&self, columns: std::ops::Range<usize>) -> String {
        let names = self.columns[columns].iter().map(|column| quoted(&column.name));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Shows columns, key and order as a statement that creates the table has them.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for column in &self.columns {
            let is_static = if column.kind == ColumnKind::Static { " static" } else { "" };
            write!(f, "{} {}{is_static}, ", quoted(&column.name), column.of_type)?;
        }
        let (keys, clustering) = (self.names(0..self.key_length()), self.clustering());
        let comma = if clustering.is_empty() { "" } else { ", " };
        let keys = if self.key_length() > 1 { format!("({keys})") } else { keys };
        write!(f, "PRIMARY KEY ({keys}{comma}{}))", self.names(clustering.clone()))?;
        let descends = |it: &Column| it.kind == ColumnKind::Clustering { is_descending: true };
        let clustering = &self.columns[clustering];
        if clustering.iter().any(descends) {
            let order = |it| if descends(it) { "DESC" } else { "ASC" };
            let orders = clustering.iter().map(|it| format!("{} {}", quoted(&it.name), order(it)));
            let orders = orders.collect::<Vec<_>>().join(", ");
            write!(f, " WITH CLUSTERING ORDER BY ({orders})")?;
        }
        Ok(())
    }
}

/// One line, since tables stand in settings: all that makes two tables differ.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { columns, form, in_super_name, is_composite, default_ttl, .. } = self;
        write!(f, "{form:?} {in_super_name} {is_composite:?} ttl {default_ttl}:")?;
        columns.iter().try_for_each(|column| {
            let Column { name, of_type, kind, cell_name, .. } = column;
            write!(f, " {name} {of_type} {kind:?} {},", cell_name.escape_ascii())
        })
    }
}

/// A name that no column has.
pub fn unused_name(columns: &[Column], name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::super::types::UserType;
    use super::*;

    fn by_class(class: &str) -> Comparator {
        ComparatorRegistry::default().resolve(class).unwrap()
    }

    fn standard(columns: &str) -> ColumnFamilyKind {
        ColumnFamilyKind::Standard { columns: by_class(columns) }
    }

    fn of_super(super_columns: &str, columns: &str) -> ColumnFamilyKind {
        let [super_columns, columns] = [super_columns, columns].map(by_class);
        ColumnFamilyKind::Super { super_columns, columns }
    }

    fn undeclared(kind: &ColumnFamilyKind) -> Table {
        Table::of_family(kind, &Declared::default())
    }

    fn declared(kind: &ColumnFamilyKind, columns: &[(&str, Native)]) -> Table {
        let (ColumnFamilyKind::Standard { columns: names }
        | ColumnFamilyKind::Super { columns: names, .. }) = kind;
        let column = |(name, native): &(&str, Native)| {
            DeclaredColumn::new(name, CqlType::Native(*native), names).unwrap()
        };
        let columns = columns.iter().map(column).collect();
        let names = ["post", "time"].map(|name| Some(name.to_owned()));
        let [key_name, column_name] = names;
        let (key_type, value_type) = (Some(Native::Uuid.into()), Some(Native::Int.into()));
        let declared = Declared { key_name, key_type, column_name, value_type, columns };
        Table::of_family(kind, &declared)
    }

    #[test]
    fn undeclared_families_have_a_row_for_each_column() {
        let table = undeclared(&standard("LongType"));
        let text = "(key text, column1 bigint, value blob, PRIMARY KEY (key, column1))";
        assert_eq!((table.to_string().as_str(), table.form), (text, Form::Dense));
        assert_eq!((table.in_super_name, table.is_composite), (0, (false, false)));
        assert_eq!(table.value_type(b"any name"), Some(&CqlType::Native(Native::Blob)));
        let table = undeclared(&of_super("LexicalUUIDType", "BytesType"));
        let text = "(key text, column1 'org.apache.cassandra.db.marshal.LexicalUUIDType', \
                    column2 blob, value blob, PRIMARY KEY (key, column1, column2))";
        assert_eq!((table.to_string().as_str(), table.in_super_name), (text, 1));
    }

    #[test]
    fn the_parts_of_a_composite_are_columns_each_in_its_order() {
        let kind = standard("CompositeType(UTF8Type,ReversedType(TimeUUIDType))");
        let table = undeclared(&kind);
        let text = "(key text, column1 text, column2 timeuuid, value blob, \
                    PRIMARY KEY (key, column1, column2)) \
                    WITH CLUSTERING ORDER BY (column1 ASC, column2 DESC)";
        assert_eq!((table.to_string().as_str(), table.is_composite), (text, (false, true)));
        let table = undeclared(&of_super("CompositeType(LongType,LongType)", "UTF8Type"));
        assert_eq!((table.in_super_name, table.clustering()), (2, 1..4));
        assert_eq!(table.is_composite, (true, false));
        let named = declared(&kind, &[]);
        let text = "(post uuid, time text, column2 timeuuid, value int, ";
        assert!(named.to_string().starts_with(text), "{named}");
    }

    #[test]
    fn declared_columns_are_those_of_one_row_in_the_order_of_their_cells() {
        let columns = [("10", Native::Text), ("-1", Native::Boolean), ("9", Native::Blob)];
        let table = declared(&standard("LongType"), &columns);
        let text = "(post uuid, \"9\" blob, \"10\" text, \"-1\" boolean, rest map<blob, int>, \
                    PRIMARY KEY (post))";
        assert_eq!(table.to_string(), text);
        assert_eq!(*table.columns[1].cell_name, 9i64.to_be_bytes());
        let value_type = |name: i64| table.value_type(&name.to_be_bytes()).unwrap().to_string();
        assert_eq!([-1, 9, 10, 11].map(value_type), ["boolean", "blob", "text", "int"]);
        assert_eq!(table.form, Form::Sparse { has_markers: false, has_rest: true });
        let table = declared(&of_super("TimeUUIDType", "UTF8Type"), &[("rest", Native::Text)]);
        let text = "(post uuid, time timeuuid, rest text, rest1 map<blob, int>, \
                    PRIMARY KEY (post, time))";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn values_of_tables_made_over_cql_have_the_types_of_their_columns_and_elements() {
        let point = UserType {
            keyspace: "k".into(),
            name: "point".into(),
            fields: vec![("x".into(), Native::Int.into()), ("y".into(), Native::Double.into())],
        };
        let column = |name, of_type, kind| Column::new(name, of_type, kind);
        let regular = |name, of_type| column(name, of_type, ColumnKind::Regular);
        let columns = vec![
            column("k", Native::Int.into(), ColumnKind::PartitionKey),
            column("c", Native::Int.into(), ColumnKind::Clustering { is_descending: false }),
            column("s", Native::Boolean.into(), ColumnKind::Static),
            regular("v", Native::Int.into()),
            regular("l", CqlType::List(Arc::new(Native::Date.into()))),
            regular("m", CqlType::Map(Arc::new((Native::Text.into(), Native::Bigint.into())))),
            regular("u", CqlType::User(Arc::new(point))),
            regular("set", CqlType::Set(Arc::new(Native::Text.into()))),
        ];
        let table = Table::of_columns(columns, false);
        let types = [
            (&b"s"[..], Some("boolean"), Some("s")),
            (b"v", Some("int"), Some("v")),
            (b"l\0time", Some("date"), Some("l[0x74696d65]")),
            (b"m\0a\0b", Some("bigint"), Some("m['a\0b']")),
            (b"u\0\0\x01", Some("double"), Some("u.y")),
            (b"u\0\0\x02", None, None),
            (b"set\0a", None, Some("set['a']")),
            (b"\0", None, Some("(row marker)")),
            (b"dropped", None, None),
        ];
        for (name, of_type, shown) in types {
            let found = table.value_type(name).map(ToString::to_string);
            assert_eq!(found.as_deref(), of_type, "{}", name.escape_ascii());
            assert_eq!(table.shown_name(name).as_deref(), shown, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn names_are_written_as_their_comparator_shows_them() {
        let cell = |class: &str, name: &str| {
            let column = DeclaredColumn::new(name, Native::Blob.into(), &by_class(class));
            column.map(|it| it.cell_name.into_vec())
        };
        assert_eq!(cell("BytesType", "0x00"), Ok(b"0x00".to_vec()));
        assert_eq!(cell("ReversedType(IntegerType)", "-1"), Ok(vec![0xff]));
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(cell("LexicalUUIDType", uuid).map(|it| it[0]), Ok(1));
        for (class, name) in
            [("AsciiType", "ä"), ("LongType", "x"), ("TimeUUIDType", uuid), ("DateType", "today")]
        {
            assert!(cell(class, name).is_err(), "{class} {name}");
        }
        let refusal = cell("CompositeType(UTF8Type)", "a").unwrap_err();
        assert_eq!(refusal, "names of several components are not declared one by one");
    }
}
