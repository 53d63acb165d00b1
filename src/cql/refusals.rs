//! Errors of statements.

use super::error::{CqlError, ErrorKind};
use crate::base::context::TooLarge;
use crate::model::types::InvalidValue;

impl CqlError {
    /// A feature that this server does not have.
    pub(super) fn unsupported(feature: &str) -> Self {
        Self::invalid(format!("This server does not support {feature}"))
    }

    /// Bytes that are no value of a type.
    pub(super) fn invalid_value(error: impl Into<InvalidValue>) -> Self {
        Self::invalid(error.into().to_string())
    }

    /// A result for which there is no memory.
    pub(super) fn too_large(error: TooLarge) -> Self {
        Self::invalid(error.to_string())
    }

    /// A function of the keyspace `system` that failed.
    pub(super) fn function_failure(name: &str, arguments: Vec<String>, why: String) -> Self {
        let (keyspace, function) = name.split_once('.').unwrap_or(("system", name));
        let (keyspace, function) = (keyspace.to_owned(), function.to_owned());
        Self::new(ErrorKind::FunctionFailure { keyspace, function, arguments }, why)
    }
}
