//! Statements of CQL as they were written: names are not looked up, and values have no types yet.

pub(super) use crate::model::types::{Arithmetic, ConstantKind};

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypeName {
    /// A native type, such as `int`, or a user type: a name, which may be of another keyspace.
    Named(Option<String>, String),
    /// `list<…>`.
    List(Box<TypeName>),
    /// `set<…>`.
    Set(Box<TypeName>),
    /// `map<…, …>`.
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<…>`.
    Tuple(Vec<TypeName>),
    /// `frozen<…>`.
    Frozen(Box<TypeName>),
    /// The class name of a comparator, between quotes.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Term {
    /// A constant, with its text.
    Constant(ConstantKind, String),
    /// `NULL`.
    Null,
    /// `?` or `:name`: the number of the marker in the statement.
    Marker(u16),
    /// `[…]`.
    List(Vec<Term>),
    /// `{…}` without colons. `{}` is this, also where a map is meant.
    Set(Vec<Term>),
    /// `{… : …}`.
    Map(Vec<(Term, Term)>),
    /// `(…, …)`.
    Tuple(Vec<Term>),
    /// `{field: …}`: a value of a user type.
    Fields(Vec<(String, Term)>),
    /// A function call.
    Call(Box<QualifiedName>, Vec<Term>),
    /// `(type) term`.
    Hint(Box<TypeName>, Box<Term>),
    /// `-term` before something that is not a constant number.
    Negation(Box<Term>),
    /// `term + term` and the like.
    Arithmetic(Box<Term>, Arithmetic, Box<Term>),
}

/// An element of the selection of SELECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selector {
    /// A column.
    Column(String),
    /// A field of a value of a user type.
    Field(Box<Selector>, String),
    /// `count(*)` or `count(1)`.
    CountRows,
    /// `writetime(column)`.
    WriteTime(String),
    /// `ttl(column)`.
    Ttl(String),
    /// `cast(selector as type)`.
    Cast(Box<Selector>, Box<TypeName>),
    /// A function call.
    Call(Box<QualifiedName>, Vec<Selector>),
    /// A term.
    Term(Term),
    /// `-selector`.
    Negation(Box<Selector>),
    /// `selector + selector` and the like.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// A column.
    Column(String),
    /// An element of a collection: `column[term]`.
    Element(String, Term),
    /// A field of a value of a user type: `column.field`. Only in conditions.
    Field(String, String),
    /// Several columns: `(a, b)`.
    Columns(Vec<String>),
    /// `token(a, b)`.
    Token(Vec<String>),
}

/// The operator of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `IN`
    In,
    /// `CONTAINS`
    Contains,
    /// `CONTAINS KEY`
    ContainsKey,
    /// `LIKE`
    Like,
    /// `IS NOT NULL`: the object is [`Term::Null`].
    IsNotNull,
}

/// The right side of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// One value. With [`Operator::In`] a marker for a whole list.
    Term(Term),
    /// The values of `IN (…)`.
    List(Vec<Term>),
}

/// A condition of `WHERE` or `IF`.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Kind of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchKind {
    /// `BEGIN BATCH`.
    Logged,
    /// `BEGIN UNLOGGED BATCH`.
    Unlogged,
    /// `BEGIN COUNTER BATCH`.
    Counter,
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
