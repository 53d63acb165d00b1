//! Names of columns and super columns.

use super::family::Family;
use super::invalid_request::InvalidRequest;
use crate::model::cell::MAX_NAME_LENGTH;
use crate::model::comparator::Comparator;

/// Names of columns of the super column, or without one of columns or super columns of a row.
pub(super) fn check_names<'n>(
    family: Family<'_>,
    super_name: Option<&[u8]>,
    names: impl IntoIterator<Item = &'n [u8]>,
) -> Result<(), InvalidRequest> {
    if let Some(super_name) = super_name {
        check_super_name(super_name)?;
        if !family.schema.is_super() {
            return Err(family.refuse(InvalidRequest::NotSuper));
        }
    }
    let comparator = family.schema.comparator_below(super_name);
    names.into_iter().try_for_each(|name| check_name(comparator, name))
}

/// One name, by the comparator it belongs to.
pub(super) fn check_name(comparator: &Comparator, name: &[u8]) -> Result<(), InvalidRequest> {
    if name.len() > MAX_NAME_LENGTH {
        return Err(InvalidRequest::NameTooLong);
    }
    if name.is_empty() {
        return Err(InvalidRequest::EmptyName);
    }
    Ok(comparator.validate(name)?)
}

/// The length of the name of a super column whose columns are meant.
pub(super) fn check_super_name(super_name: &[u8]) -> Result<(), InvalidRequest> {
    if super_name.len() > MAX_NAME_LENGTH {
        return Err(InvalidRequest::SuperColumnNameTooLong);
    }
    if super_name.is_empty() {
        return Err(InvalidRequest::EmptySuperColumnName);
    }
    Ok(())
}
