//! Slice predicates: which columns a request wants.

use super::family::Family;
use super::invalid_request::InvalidRequest;
use super::names::check_names;
use crate::config::settings::Release;
use crate::model::slice::Slice;
use crate::thrift::idl::{SlicePredicate, SliceRange};
use std::cmp::Ordering;

/// The predicate of a read, as the slice that it means below its parent. To 0.4 the range counted
/// for nothing beside names.
pub(super) fn check_predicate(
    version: Release,
    family: Family<'_>,
    super_name: Option<&[u8]>,
    predicate: &SlicePredicate<'_>,
) -> Result<Slice, InvalidRequest> {
    let range = match version {
        Release::V04 if predicate.column_names.is_some() => &None,
        _ => &predicate.slice_range,
    };
    match (&predicate.column_names, range) {
        (None, None) => Err(InvalidRequest::EmptyPredicate),
        (Some(_), Some(_)) => Err(InvalidRequest::DoublePredicate),
        (None, Some(range)) => {
            let limit = check_slice_range(family, super_name, range)?;
            let (start, finish) = (range.start, range.finish);
            Ok(Slice::range(super_name, start, finish, range.reversed, limit))
        }
        (Some(names), None) => {
            check_names(family, super_name, names.iter().copied())?;
            Ok(Slice::names(family.schema, super_name, names.iter().copied()))
        }
    }
}

/// A range of columns; returns how many it may have.
pub(super) fn check_slice_range(
    family: Family<'_>,
    super_name: Option<&[u8]>,
    range: &SliceRange<'_>,
) -> Result<usize, InvalidRequest> {
    let comparator = family.schema.comparator_below(super_name);
    comparator.validate(range.start)?;
    comparator.validate(range.finish)?;
    let limit = usize::try_from(range.count).map_err(|_| InvalidRequest::NegativeCount)?;
    if !range.start.is_empty() && !range.finish.is_empty() {
        let order = comparator.compare(range.start, range.finish);
        let backwards = if range.reversed { Ordering::Less } else { Ordering::Greater };
        if order == backwards {
            return Err(InvalidRequest::FinishBeforeStart);
        }
    }
    Ok(limit)
}
