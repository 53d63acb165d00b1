//! Names of types in statements.

use super::ast::TypeName;
use super::error::CqlError;
use crate::model::types::{CqlType, Native, UserType};
use crate::schema::Definitions;
use std::sync::Arc;

/// Finds user types.
pub(super) trait TypeNames {
    /// The user type of this name.
    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>>;
}

impl dyn TypeNames + '_ {
    /// The type of this name, of this keyspace unless it names another.
    pub(super) fn resolve(&self, name: &TypeName, keyspace: &str) -> Result<CqlType, CqlError> {
        let inner = |name: &TypeName| self.resolve(name, keyspace).map(Arc::new);
        Ok(match name {
            TypeName::Named(own, name) => {
                let native = Native::from_name(name).filter(|_| own.is_none());
                let user = || self.named(own.as_deref(), name, keyspace);
                native.map_or_else(user, |native| Ok(native.into()))?
            }
            TypeName::List(of) => CqlType::List(inner(of)?),
            TypeName::Set(of) => CqlType::Set(inner(of)?),
            TypeName::Map(key, value) => CqlType::Map(Arc::new((
                self.resolve(key, keyspace)?,
                self.resolve(value, keyspace)?,
            ))),
            TypeName::Tuple(fields) => {
                let fields = fields.iter().map(|it| self.resolve(it, keyspace));
                // A tuple is one value, and so is all that it holds.
                CqlType::Tuple(fields.collect::<Result<_, _>>()?).frozen()
            }
            TypeName::Frozen(of) => match self.resolve(of, keyspace)? {
                native @ CqlType::Native(_) => {
                    return Err(CqlError::invalid(format!(
                        "frozen<> is only allowed on collections, tuples, and user-defined types \
                         (got {native})"
                    )));
                }
                of => of.frozen(),
            },
            TypeName::Class(class) => CqlType::from_class(class)
                .ok_or_else(|| CqlError::invalid(format!("Error setting type {class}")))?,
        })
    }

    /// The user type of a name.
    fn named(&self, own: Option<&str>, name: &str, keyspace: &str) -> Result<CqlType, CqlError> {
        let of = own.unwrap_or(keyspace);
        if of != keyspace && !keyspace.is_empty() {
            return Err(CqlError::invalid(format!(
                "Statement on keyspace {keyspace} cannot refer to a user type in keyspace {of}; \
                 user types can only be used in the keyspace they are defined in"
            )));
        }
        let unknown = || CqlError::invalid(format!("Unknown type {of}.{name}"));
        self.user_type(of, name).map(CqlType::User).ok_or_else(unknown)
    }
}

impl TypeNames for Definitions {
    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>> {
        Self::user_type(self, keyspace, name).cloned()
    }
}

/// No user types at all.
pub(super) struct NoTypes;

impl TypeNames for NoTypes {
    fn user_type(&self, _: &str, _: &str) -> Option<Arc<UserType>> {
        None
    }
}
