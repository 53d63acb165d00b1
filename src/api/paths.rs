//! Column paths and column parents: where in a row a request points.

use super::family::Family;
use super::invalid_request::InvalidRequest;
use super::names::check_names;
use crate::model::schema::Schema;
use crate::model::slice::Slice;
use crate::thrift::idl::{ColumnParent, ColumnPath};

/// What a column path points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// A row in its column family.
    Row,
    /// A super column.
    SuperColumn(&'a [u8]),
    /// A column, in a super column or, in a standard column family, without one.
    Column { super_name: Option<&'a [u8]>, name: &'a [u8] },
}

impl<'a> Target<'a> {
    fn new(super_name: Option<&'a [u8]>, name: Option<&'a [u8]>) -> Self {
        match (super_name, name) {
            (super_name, Some(name)) => Self::Column { super_name, name },
            (Some(super_name), None) => Self::SuperColumn(super_name),
            (None, None) => Self::Row,
        }
    }

    /// What a read of it has to look at.
    pub(super) fn slice(self, family: Family<'_>) -> Slice {
        match self {
            Self::Row => Slice::all(None),
            Self::SuperColumn(super_name) => Slice::all(Some(super_name)),
            Self::Column { super_name, name } => Slice::names(family.schema, super_name, [name]),
        }
    }
}

/// The path of `get`, `multiget` and `insert`: a column, or a super column.
pub(super) fn check_path<'s, 'a>(
    schema: &'s Schema,
    keyspace: &str,
    path: &ColumnPath<'a>,
) -> Result<(Family<'s>, Target<'a>), InvalidRequest> {
    let family = Family::find(schema, keyspace, &path.column_family)?;
    let target = check_target(family, path.super_column, path.column)?;
    Ok((family, target))
}

/// The path to one column, or super column, of a family. Also each element of a batch has one.
pub(super) fn check_target<'a>(
    family: Family<'_>,
    super_name: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
) -> Result<Target<'a>, InvalidRequest> {
    if family.schema.is_super() {
        if super_name.is_none() {
            return Err(family.refuse(InvalidRequest::NoSuperColumn));
        }
    } else if super_name.is_some() {
        return Err(family.refuse(InvalidRequest::SuperColumnInStandard));
    } else if name.is_none() {
        return Err(family.refuse(InvalidRequest::NoColumn));
    }
    check_path_names(family, super_name, name)?;
    Ok(Target::new(super_name, name))
}

/// The path of `remove`: it may also point at a row.
pub(super) fn check_removal<'s, 'a>(
    schema: &'s Schema,
    keyspace: &str,
    path: &ColumnPath<'a>,
) -> Result<(Family<'s>, Target<'a>), InvalidRequest> {
    let family = Family::find(schema, keyspace, &path.column_family)?;
    let (super_name, name) = (path.super_column, path.column);
    if !family.schema.is_super() && super_name.is_some() {
        return Err(family.refuse(InvalidRequest::RemovalInStandard));
    }
    if family.schema.is_super() && super_name.is_none() && name.is_some() {
        return Err(family.refuse(InvalidRequest::RemovalWithoutSuperColumn));
    }
    check_path_names(family, super_name, name)?;
    Ok((family, Target::new(super_name, name)))
}

/// The parent of a slice: a row, or a super column in it.
pub(super) fn check_parent<'s>(
    schema: &'s Schema,
    keyspace: &str,
    parent: &ColumnParent<'_>,
) -> Result<Family<'s>, InvalidRequest> {
    let family = Family::find(schema, keyspace, &parent.column_family)?;
    if let Some(super_name) = parent.super_column {
        if !family.schema.is_super() {
            return Err(family.refuse(InvalidRequest::ParentInStandard));
        }
        check_names(family, None, [super_name])?;
    }
    Ok(family)
}

/// The column first, and then the super column that it is in, as in 0.6.
fn check_path_names(
    family: Family<'_>,
    super_name: Option<&[u8]>,
    name: Option<&[u8]>,
) -> Result<(), InvalidRequest> {
    if let Some(name) = name {
        check_names(family, super_name, [name])?;
    }
    match super_name {
        Some(super_name) => check_names(family, None, [super_name]),
        None => Ok(()),
    }
}
