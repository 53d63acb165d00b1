//! Elements of collections and fields of tuples, in errors of CQL.

use super::error::CqlError;
use crate::model::types::collection::{self, Kind};
use crate::model::types::{CqlType, tuple};

/// The elements of a collection; of a map keys and values in turn.
pub(super) fn elements<'v>(of_type: &CqlType, value: &'v [u8]) -> Result<Vec<&'v [u8]>, CqlError> {
    let kind = match of_type.unfrozen() {
        CqlType::Map(_) => Kind::Map,
        CqlType::Set(_) => Kind::Set,
        _ => Kind::List,
    };
    let mut elements = collection::elements(kind, value);
    let mut all = Vec::with_capacity(elements.size_hint().0);
    while let Some(element) = elements.next_present() {
        all.push(element.map_err(CqlError::invalid_value)?);
    }
    Ok(all)
}

/// The fields of a tuple or a value of a user type.
pub(super) fn fields(value: &[u8]) -> Result<Vec<Option<&[u8]>>, CqlError> {
    let cut = |_| CqlError::invalid("Not enough bytes to read a tuple");
    tuple::fields(value).map(|field| field.map_err(cut)).collect()
}
