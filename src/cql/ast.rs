//! Statements of CQL as they were written: names are not looked up, and values have no types yet.

pub(super) use super::request::BatchKind;
pub(super) use crate::model::types::{Arithmetic, ConstantKind};
use std::fmt::Display;

/// Texts with commas between them.
fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|it| it.to_string()).collect::<Vec<_>>().join(", ")
}

/// Texts of pairs with commas between them.
fn entries<K: Display>(pairs: &[(K, Term)]) -> String {
    joined(pairs.iter().map(|(key, value)| format!("{key}: {value}")))
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum TypeName {
    /// A native type, such as `int`, or a user type: a name, which may be of another keyspace.
    #[display("{}{_1}", _0.as_ref().map(|keyspace| format!("{keyspace}.")).unwrap_or_default())]
    Named(Option<String>, String),
    /// `list<…>`.
    #[display("list<{_0}>")]
    List(Box<TypeName>),
    /// `set<…>`.
    #[display("set<{_0}>")]
    Set(Box<TypeName>),
    /// `map<…, …>`.
    #[display("map<{_0}, {_1}>")]
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<…>`.
    #[display("tuple<{}>", joined(_0))]
    Tuple(Vec<TypeName>),
    /// `frozen<…>`.
    #[display("frozen<{_0}>")]
    Frozen(Box<TypeName>),
    /// The class name of a comparator, between quotes.
    #[display("'{_0}'")]
    Class(String),
}

/// Name of a table or a type, which may be of another keyspace than the one in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QualifiedName {
    /// The keyspace, if it is named.
    pub(super) keyspace: Option<String>,
    /// The name: in lower case unless it was quoted.
    pub(super) name: String,
}

/// A value in a statement.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum Term {
    /// A constant, with its text.
    #[display("{}", if *_0 == ConstantKind::String { format!("'{_1}'") } else { _1.clone() })]
    Constant(ConstantKind, String),
    /// `NULL`.
    #[display("NULL")]
    Null,
    /// `?` or `:name`: the number of the marker in the statement.
    #[display("?")]
    Marker(u16),
    /// `[…]`.
    #[display("[{}]", joined(_0))]
    List(Vec<Term>),
    /// `{…}` without colons. `{}` is this, also where a map is meant.
    #[display("{{{}}}", joined(_0))]
    Set(Vec<Term>),
    /// `{… : …}`.
    #[display("{{{}}}", entries(_0))]
    Map(Vec<(Term, Term)>),
    /// `(…, …)`.
    #[display("({})", joined(_0))]
    Tuple(Vec<Term>),
    /// `{field: …}`: a value of a user type.
    #[display("{{{}}}", entries(_0))]
    Fields(Vec<(String, Term)>),
    /// A function call.
    #[display("{}({})", _0.name, joined(_1))]
    Call(Box<QualifiedName>, Vec<Term>),
    /// `(type) term`.
    #[display("({_0}){_1}")]
    Hint(Box<TypeName>, Box<Term>),
    /// `-term` before something that is not a constant number.
    #[display("...")]
    Negation(Box<Term>),
    /// `term + term` and the like.
    #[display("...")]
    Arithmetic(Box<Term>, Arithmetic, Box<Term>),
}

/// An element of the selection of SELECT.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum Selector {
    /// A column.
    Column(String),
    /// A field of a value of a user type.
    #[display("{_0}.{_1}")]
    Field(Box<Selector>, String),
    /// `count(*)` or `count(1)`.
    #[display("count")]
    CountRows,
    /// `writetime(column)`.
    #[display("writetime({_0})")]
    WriteTime(String),
    /// `ttl(column)`.
    #[display("ttl({_0})")]
    Ttl(String),
    /// `cast(selector as type)`.
    #[display("cast({_0} as {_1})")]
    Cast(Box<Selector>, Box<TypeName>),
    /// A function call.
    #[display("system.{}({})", _0.name, joined(_1))]
    Call(Box<QualifiedName>, Vec<Selector>),
    /// A term.
    Term(Term),
    /// `-selector`.
    #[display("...")]
    Negation(Box<Selector>),
    /// `selector + selector` and the like.
    #[display("...")]
    Arithmetic(Box<Selector>, Arithmetic, Box<Selector>),
}

/// A selector with the name of its column in the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectItem {
    /// The selector.
    pub(super) selector: Selector,
    /// `AS alias`.
    pub(super) alias: Option<String>,
}

/// SELECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Select {
    /// The table.
    pub(super) table: QualifiedName,
    /// `SELECT JSON`.
    pub(super) is_json: bool,
    /// `SELECT DISTINCT`.
    pub(super) is_distinct: bool,
    /// The selection; `None` for `*`.
    pub(super) items: Option<Vec<SelectItem>>,
    /// `WHERE`.
    pub(super) relations: Vec<Relation>,
    /// `GROUP BY`.
    pub(super) group_by: Vec<String>,
    /// `ORDER BY`: columns, and whether they descend.
    pub(super) order_by: Vec<(String, bool)>,
    /// `PER PARTITION LIMIT`.
    pub(super) per_partition_limit: Option<Term>,
    /// `LIMIT`.
    pub(super) limit: Option<Term>,
    /// `ALLOW FILTERING`.
    pub(super) allows_filtering: bool,
}

/// The left side of a relation.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum Subject {
    /// A column.
    Column(String),
    /// An element of a collection: `column[term]`.
    #[display("{_0}")]
    Element(String, Term),
    /// A field of a value of a user type: `column.field`. Only in conditions.
    #[display("{_0}")]
    Field(String, String),
    /// Several columns: `(a, b)`.
    #[display("({})", joined(_0))]
    Columns(Vec<String>),
    /// `token(a, b)`.
    #[display("token({})", joined(_0))]
    Token(Vec<String>),
}

/// The operator of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub(super) enum Operator {
    /// `=`
    #[display("=")]
    Equal,
    /// `!=`
    #[display("!=")]
    NotEqual,
    /// `<`
    #[display("<")]
    Less,
    /// `<=`
    #[display("<=")]
    LessOrEqual,
    /// `>`
    #[display(">")]
    Greater,
    /// `>=`
    #[display(">=")]
    GreaterOrEqual,
    /// `IN`
    #[display("IN")]
    In,
    /// `CONTAINS`
    #[display("CONTAINS")]
    Contains,
    /// `CONTAINS KEY`
    #[display("CONTAINS KEY")]
    ContainsKey,
    /// `LIKE`
    #[display("LIKE")]
    Like,
    /// `IS NOT NULL`: the object is [`Term::Null`].
    #[display("IS NOT")]
    IsNotNull,
}

/// The right side of a relation.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum Object {
    /// One value. With [`Operator::In`] a marker for a whole list.
    Term(Term),
    /// The values of `IN (…)`.
    #[display("({})", joined(_0))]
    List(Vec<Term>),
}

/// A condition of `WHERE` or `IF`.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{subject} {operator} {object}")]
pub(super) struct Relation {
    /// The left side.
    pub(super) subject: Subject,
    /// The operator.
    pub(super) operator: Operator,
    /// The right side.
    pub(super) object: Object,
}

/// `USING TIMESTAMP … AND TTL …`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Using {
    /// The timestamp.
    pub(super) timestamp: Option<Term>,
    /// The time to live.
    pub(super) ttl: Option<Term>,
}

/// `IF …` of a modification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// `IF EXISTS`.
    Exists,
    /// `IF a = … AND b[…] = …`.
    Relations(Vec<Relation>),
}

/// INSERT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Insert {
    /// The table.
    pub(super) table: QualifiedName,
    /// Columns and values, or a JSON document.
    pub(super) values: InsertValues,
    /// `IF NOT EXISTS`.
    pub(super) if_not_exists: bool,
    /// `USING`.
    pub(super) using: Using,
}

/// Values of INSERT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InsertValues {
    /// `(columns) VALUES (terms)`: their numbers may differ.
    Columns(Vec<String>, Vec<Term>),
    /// `JSON '…'`: a constant or a marker.
    Json {
        /// The document.
        document: Term,
        /// `DEFAULT UNSET`: columns that the document lacks stay as they are.
        default_unset: bool,
    },
}

/// The place that an assignment or DELETE changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The column.
    pub(super) column: String,
    /// A part of it.
    pub(super) part: Option<TargetPart>,
}

/// A part of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetPart {
    /// `column[term]`.
    Element(Term),
    /// `column.field`.
    Field(String),
}

/// The new value of an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Assigned {
    /// `column = term`.
    Value(Term),
    /// `column = column + term`, and `column += term`.
    Append(Term),
    /// `column = term + column`.
    Prepend(Term),
    /// `column = column - term`, and `column -= term`.
    Remove(Term),
}

/// UPDATE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    /// The table.
    pub(super) table: QualifiedName,
    /// `USING`.
    pub(super) using: Using,
    /// `SET`.
    pub(super) assignments: Vec<(Target, Assigned)>,
    /// `WHERE`.
    pub(super) relations: Vec<Relation>,
    /// `IF`.
    pub(super) condition: Option<Condition>,
}

/// DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delete {
    /// The table.
    pub(super) table: QualifiedName,
    /// Columns or parts of them; none for whole rows.
    pub(super) targets: Vec<Target>,
    /// `USING TIMESTAMP`.
    pub(super) using: Using,
    /// `WHERE`.
    pub(super) relations: Vec<Relation>,
    /// `IF`.
    pub(super) condition: Option<Condition>,
}

/// A statement that changes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Modification {
    /// INSERT.
    Insert(Insert),
    /// UPDATE.
    Update(Update),
    /// DELETE.
    Delete(Delete),
}

/// BATCH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    /// Its kind.
    pub(super) kind: BatchKind,
    /// `USING TIMESTAMP`.
    pub(super) using: Using,
    /// Its statements.
    pub(super) statements: Vec<Modification>,
}

/// The value of a property after `WITH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Property {
    /// A constant, as text.
    Text(String),
    /// A map of constants, as texts.
    Map(Vec<(String, String)>),
}

/// Properties after `WITH`, in their order.
pub(super) type Properties = Vec<(String, Property)>;

/// A column of CREATE TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnDefinition {
    /// Its name.
    pub(super) name: String,
    /// Its type.
    pub(super) of_type: TypeName,
    /// `STATIC`.
    pub(super) is_static: bool,
}

/// CREATE TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CreateTable {
    /// The table.
    pub(super) table: QualifiedName,
    /// `IF NOT EXISTS`.
    pub(super) if_not_exists: bool,
    /// Its columns.
    pub(super) columns: Vec<ColumnDefinition>,
    /// Each PRIMARY KEY that is given: partition key and clustering columns. A column with
    /// `PRIMARY KEY` after it is one of its own.
    pub(super) primary_keys: Vec<(Vec<String>, Vec<String>)>,
    /// `WITH COMPACT STORAGE`.
    pub(super) is_compact: bool,
    /// `WITH CLUSTERING ORDER BY`: columns, and whether they descend.
    pub(super) clustering_order: Vec<(String, bool)>,
    /// Other properties.
    pub(super) properties: Properties,
}

/// A change by ALTER TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AlterTable {
    /// `ADD`.
    Add(Vec<ColumnDefinition>),
    /// `DROP`, and `USING TIMESTAMP`.
    Drop(Vec<String>, Option<Term>),
    /// `ALTER column TYPE …`.
    Type(String, TypeName),
    /// `RENAME a TO b AND …`.
    Rename(Vec<(String, String)>),
    /// `WITH`.
    With(Properties),
    /// `DROP COMPACT STORAGE`.
    DropCompactStorage,
}

/// A change by ALTER TYPE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AlterType {
    /// `ADD field type`.
    Add(String, TypeName),
    /// `ALTER field TYPE …`.
    Type(String, TypeName),
    /// `RENAME a TO b AND …`.
    Rename(Vec<(String, String)>),
}

/// A statement that changes the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SchemaStatement {
    /// CREATE KEYSPACE.
    CreateKeyspace {
        /// Its name.
        name: String,
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// `WITH`.
        properties: Properties,
    },
    /// ALTER KEYSPACE.
    AlterKeyspace {
        /// Its name.
        name: String,
        /// `WITH`.
        properties: Properties,
    },
    /// DROP KEYSPACE.
    DropKeyspace {
        /// Its name.
        name: String,
        /// `IF EXISTS`.
        if_exists: bool,
    },
    /// CREATE TABLE.
    CreateTable(CreateTable),
    /// ALTER TABLE.
    AlterTable(QualifiedName, AlterTable),
    /// DROP TABLE.
    DropTable {
        /// The table.
        table: QualifiedName,
        /// `IF EXISTS`.
        if_exists: bool,
    },
    /// CREATE TYPE.
    CreateType {
        /// The type.
        name: QualifiedName,
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// Names and types of its fields.
        fields: Vec<(String, TypeName)>,
    },
    /// ALTER TYPE.
    AlterType(QualifiedName, AlterType),
    /// DROP TYPE.
    DropType {
        /// The type.
        name: QualifiedName,
        /// `IF EXISTS`.
        if_exists: bool,
    },
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// SELECT.
    Select(Select),
    /// INSERT, UPDATE or DELETE.
    Modification(Modification),
    /// BATCH.
    Batch(Batch),
    /// USE.
    Use(String),
    /// TRUNCATE.
    Truncate(QualifiedName),
    /// CREATE, ALTER or DROP.
    Schema(SchemaStatement),
    /// A statement about something that is not here, such as `secondary indexes`.
    Unsupported(&'static str),
}

/// A statement with the names of its markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The statement.
    pub(super) statement: Statement,
    /// A name for each marker; `None` for `?`.
    pub(super) markers: Vec<Option<String>>,
}
