//! Statements.

use super::lexer::Span;
use crate::thrift::idl::ConsistencyLevel;

/// A statement of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// `help`, or about one statement.
    Help(Option<Name>),
    /// `exit`, `quit`.
    Exit,
    /// `connect HOST/PORT`.
    Connect { host: String, port: u16 },
    /// `show …`: a property of the server.
    Show(Property),
    /// `describe keyspace K`.
    DescribeKeyspace(Name),
    /// `describe K.C`: the types of a column family.
    DescribeFamily(Family),
    /// `use K`: the keyspace of names without one.
    Use(Name),
    /// `get K.C['key']…`: a column, or a slice of a row or super column.
    Get(Path, Slice),
    /// `list K.C …`: rows between two keys.
    List { family: Family, rows: Slice },
    /// `count K.C['key']…`: columns of a row or super column.
    Count(Path),
    /// `set K.C['key']… = value`.
    Set { path: Path, value: Term },
    /// `del K.C['key']…`.
    Del(Path),
    /// `consistencylevel as L`.
    Level(Option<ConsistencyLevel>),
    /// `assume K.C … as TYPE`.
    Assume { family: Family, part: Part, type_name: Name },
}

/// A property that `show` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Property {
    ClusterName,
    ConfigFile,
    ApiVersion,
    Keyspaces,
}

/// The part of a column family that gets a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Names of columns or super columns.
    Comparator,
    /// Names of the columns of super columns.
    SubComparator,
    /// Values.
    Validator,
    /// Values of one column.
    Column(Term),
    /// Row keys.
    Keys,
}

/// A name and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Span,
}

/// A column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Family {
    /// Without one: that of `use`.
    pub(super) keyspace: Option<Name>,
    pub(super) name: Name,
}

/// A row, and what is named of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) family: Family,
    pub(super) key: Term,
    /// A column, a super column, or a super column and a column of it.
    pub(super) columns: Vec<Term>,
}

/// A range of names or keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slice {
    /// The least and the greatest, both included.
    pub(super) from: Option<Term>,
    pub(super) to: Option<Term>,
    pub(super) limit: Option<u32>,
    /// Columns of each row.
    pub(super) columns: Option<u32>,
    /// Whether the least comes first.
    pub(super) is_forward: bool,
}

/// A value as it is written, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) kind: TermKind,
    pub(super) span: Span,
}

/// Form of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TermKind {
    /// In quotes or bare; the place where it stands gives it a type.
    Text(String),
    /// `type(…)`: a value of this type.
    Typed { type_name: String, arguments: Vec<Term> },
}
