//! Names, types and the words that are neither.

use super::super::ast::{ConstantKind, QualifiedName, TypeName};
use super::lexer::{Kind, Token};
use super::{Parse, Parser};
use std::collections::HashSet;
use std::sync::LazyLock;

static NATIVE_TYPES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "ascii bigint blob boolean counter date decimal double duration float inet int smallint text \
     time timestamp timeuuid tinyint uuid varchar varint"
        .split(' ')
        .collect()
});

/// Names of types with types in them.
const PARAMETRIC_TYPES: [&str; 5] = ["frozen", "list", "map", "set", "tuple"];

/// Names that no user type may have.
const RESERVED_TYPES: [&str; 6] = ["bitstring", "byte", "complex", "enum", "interval", "macaddr"];

/// Names of columns, but of no function, as they have a meaning of their own before a parenthesis.
const NOT_FUNCTIONS: [&str; 6] = ["cast", "distinct", "json", "key", "ttl", "writetime"];

fn is_one_of(token: Token<'_>, words: &[&str]) -> bool {
    words.iter().any(|it| token.is_word(it))
}

fn is_native_type(token: Token<'_>) -> bool {
    token.kind == Kind::Word && NATIVE_TYPES.contains(token.text.to_ascii_lowercase().as_str())
}

/// True for a name that is not empty.
pub(super) fn is_name(token: Token<'_>) -> bool {
    match token.kind {
        Kind::Word => true,
        Kind::QuotedName => token.text.len() > 2,
        _ => false,
    }
}

fn is_function(token: Token<'_>) -> bool {
    token.is_word("token") || is_name(token) && !is_one_of(token, &NOT_FUNCTIONS)
}

fn is_type(token: Token<'_>) -> bool {
    token.is_word("set") || is_name(token)
}

/// The name in a token: in lower case unless it is quoted.
fn name_of(token: Token<'_>) -> String {
    match token.kind {
        Kind::QuotedName => token.value(),
        _ => token.text.to_ascii_lowercase(),
    }
}

impl Parser<'_> {
    /// A name that is not empty.
    pub(super) fn name(&mut self) -> Parse<String> {
        self.name_if(is_name)
    }

    /// The name of a column of a statement that reads or changes rows. It may be empty.
    pub(super) fn column(&mut self) -> Parse<String> {
        self.name_if(|it| is_name(it) || it.kind == Kind::QuotedName)
    }

    fn name_if(&mut self, is_fit: impl Fn(Token<'_>) -> bool) -> Parse<String> {
        if is_fit(self.peek(0)) { Ok(name_of(self.bump())) } else { Err(self.unexpected()) }
    }

    pub(super) fn keyspace_name(&mut self) -> Parse<String> {
        if self.is("?") {
            return Err(self.error("Bind variables cannot be used for keyspace names"));
        }
        self.name()
    }

    pub(super) fn table_name(&mut self) -> Parse<QualifiedName> {
        if self.is("?") {
            return Err(self.error("Bind variables cannot be used for table names"));
        }
        self.qualified(is_name)
    }

    /// A name that the name of a keyspace and a dot may come before.
    fn qualified(&mut self, is_fit: impl Fn(Token<'_>) -> bool) -> Parse<QualifiedName> {
        let keyspace = if self.peek(1).is_symbol(".") {
            let keyspace = self.name()?;
            self.bump();
            Some(keyspace)
        } else {
            None
        };
        Ok(QualifiedName { keyspace, name: self.name_if(is_fit)? })
    }

    /// True if a function is called here.
    pub(super) fn is_call(&mut self) -> bool {
        if self.peek(1).is_symbol(".") {
            return is_name(self.peek(0)) && self.peek(3).is_symbol("(");
        }
        is_function(self.peek(0)) && self.peek(1).is_symbol("(")
    }

    pub(super) fn function_name(&mut self) -> Parse<QualifiedName> {
        self.qualified(is_function)
    }

    /// True if there is a type in parentheses here.
    pub(super) fn is_hint(&mut self) -> bool {
        if !self.is("(") || !is_type(self.peek(1)) {
            return false;
        }
        let after = self.peek(2);
        after.is_symbol(")")
            || after.is_symbol("<")
            || after.is_symbol(".") && self.peek(4).is_symbol(")")
    }

    pub(super) fn type_name(&mut self) -> Parse<TypeName> {
        self.nested(Self::type_at_depth)
    }

    fn type_at_depth(&mut self) -> Parse<TypeName> {
        let token = self.peek(0);
        if !self.peek(1).is_symbol("<") || !is_one_of(token, &PARAMETRIC_TYPES) {
            return self.simple_type();
        }
        self.bump();
        self.enclosed(("<", ">"), |it| match token.text.to_ascii_lowercase().as_str() {
            "list" => Ok(TypeName::List(Box::new(it.type_name()?))),
            "set" => Ok(TypeName::Set(Box::new(it.type_name()?))),
            "map" => {
                let key = it.type_name()?;
                it.expect(",")?;
                Ok(TypeName::Map(Box::new(key), Box::new(it.type_name()?)))
            }
            "tuple" => it.list(Self::type_name).map(TypeName::Tuple),
            _ => it.frozen(),
        })
    }

    fn frozen(&mut self) -> Parse<TypeName> {
        let token = self.peek(0);
        if is_native_type(token) {
            return Err(self.error(format!(
                "frozen<> is only allowed on collections, tuples, and user-defined types (got {})",
                name_of(token)
            )));
        }
        Ok(TypeName::Frozen(Box::new(self.type_name()?)))
    }

    fn simple_type(&mut self) -> Parse<TypeName> {
        let token = self.peek(0);
        if token.kind == Kind::Constant(ConstantKind::String) {
            self.bump();
            return Ok(TypeName::Class(token.value()));
        }
        if is_native_type(token) {
            return self.native_type();
        }
        let QualifiedName { keyspace, name } = self.user_type_name()?;
        Ok(TypeName::Named(keyspace, name))
    }

    pub(super) fn native_type(&mut self) -> Parse<TypeName> {
        let name = self.name_if(is_native_type)?;
        Ok(TypeName::Named(None, name))
    }

    pub(super) fn user_type_name(&mut self) -> Parse<QualifiedName> {
        let name = self.qualified(|it| is_name(it) && !is_native_type(it))?;
        if RESERVED_TYPES.contains(&name.name.as_str()) {
            return Err(self.error(format!("Invalid (reserved) user type name {}", name.name)));
        }
        Ok(name)
    }
}
