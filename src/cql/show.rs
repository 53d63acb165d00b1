//! Parts of statements as texts, for messages and for the names of columns of a result.

use super::ast::{ConstantKind, Object, Operator, Relation, Selector, Subject, Term, TypeName};
use std::fmt::{self, Display};

/// Texts with commas between them.
fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|it| it.to_string()).collect::<Vec<_>>().join(", ")
}

impl Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(None, name) => f.write_str(name),
            Self::Named(Some(keyspace), name) => write!(f, "{keyspace}.{name}"),
            Self::List(inner) => write!(f, "list<{inner}>"),
            Self::Set(inner) => write!(f, "set<{inner}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
            Self::Tuple(fields) => write!(f, "tuple<{}>", joined(fields)),
            Self::Frozen(inner) => write!(f, "frozen<{inner}>"),
            Self::Class(class) => write!(f, "'{class}'"),
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(ConstantKind::String, text) => write!(f, "'{text}'"),
            Self::Constant(_, text) => f.write_str(text),
            Self::Null => f.write_str("NULL"),
            Self::Marker(_) => f.write_str("?"),
            Self::List(items) => write!(f, "[{}]", joined(items)),
            Self::Set(items) => write!(f, "{{{}}}", joined(items)),
            Self::Tuple(items) => write!(f, "({})", joined(items)),
            Self::Map(entries) => {
                write!(f, "{{{}}}", joined(entries.iter().map(|(k, v)| format!("{k}: {v}"))))
            }
            Self::Fields(fields) => {
                write!(f, "{{{}}}", joined(fields.iter().map(|(k, v)| format!("{k}: {v}"))))
            }
            Self::Call(function, arguments) => {
                write!(f, "{}({})", function.name, joined(arguments))
            }
            Self::Hint(of_type, inner) => write!(f, "({of_type}){inner}"),
            Self::Negation(_) | Self::Arithmetic(..) => f.write_str("..."),
        }
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => f.write_str(name),
            Self::Field(inner, field) => write!(f, "{inner}.{field}"),
            Self::CountRows => f.write_str("count"),
            Self::WriteTime(column) => write!(f, "writetime({column})"),
            Self::Ttl(column) => write!(f, "ttl({column})"),
            Self::Cast(inner, to) => write!(f, "cast({inner} as {to})"),
            Self::Call(function, arguments) => {
                write!(f, "system.{}({})", function.name, joined(arguments))
            }
            Self::Term(term) => term.fmt(f),
            Self::Negation(_) | Self::Arithmetic(..) => f.write_str("..."),
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Column(name) | Subject::Element(name, _) | Subject::Field(name, _) => {
                f.write_str(name)
            }
            Subject::Columns(names) => write!(f, "({})", joined(names)),
            Subject::Token(names) => write!(f, "token({})", joined(names)),
        }?;
        match &self.object {
            Object::Term(term) => write!(f, " {} {term}", self.operator),
            Object::List(terms) => write!(f, " {} ({})", self.operator, joined(terms)),
        }
    }
}

impl Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "IN",
            Self::Contains => "CONTAINS",
            Self::ContainsKey => "CONTAINS KEY",
            Self::Like => "LIKE",
            Self::IsNotNull => "IS NOT",
        })
    }
}
