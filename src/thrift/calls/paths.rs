//! Where a request points, and how many replicas have to answer: the arguments as values of the
//! model, checked in the order of 0.6.

use crate::config::settings::Release;
use crate::model::slice::Slice;
use crate::service::{ColumnRange, ConsistencyLevel, Family, Service, ServiceError};
use crate::thrift::idl::{
    ColumnParent, ColumnPath, ConsistencyLevel as Level, SlicePredicate, SliceRange,
};

/// Target of a column path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// A row in its column family.
    Row,
    /// A super column.
    SuperColumn(&'a [u8]),
    /// A column, in a super column or, in a standard column family, without one.
    Column { super_name: Option<&'a [u8]>, name: &'a [u8] },
}

impl Target<'_> {
    /// The slice that a read of it needs.
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
    service: &'s Service,
    keyspace: &str,
    path: &ColumnPath<'a>,
) -> Result<(Family<'s>, Target<'a>), ServiceError> {
    let family = service.family(keyspace, &path.column_family)?;
    let target = check_target(family, path.super_column, path.column)?;
    Ok((family, target))
}

/// The path to one column, or super column, of a family. Also each element of a batch has one.
pub(super) fn check_target<'a>(
    family: Family<'_>,
    super_name: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
) -> Result<Target<'a>, ServiceError> {
    let fault = match (family.is_super(), super_name, name) {
        (true, None, _) => Some("supercolumn parameter is not optional for super CF"),
        (false, Some(_), _) => Some("supercolumn parameter is invalid for standard CF"),
        (false, None, None) => Some("column parameter is not optional for standard CF"),
        _ => None,
    };
    checked(family, super_name, name, fault)
}

/// The path of `remove`: it may also point at a row.
pub(super) fn check_removal<'s, 'a>(
    service: &'s Service,
    keyspace: &str,
    path: &ColumnPath<'a>,
) -> Result<(Family<'s>, Target<'a>), ServiceError> {
    let family = service.family(keyspace, &path.column_family)?;
    let (super_name, name) = (path.super_column, path.column);
    let fault = match (family.is_super(), super_name, name) {
        (false, Some(_), _) => Some("supercolumn may not be specified for standard CF"),
        (true, None, Some(_)) => Some(
            "A column cannot be specified without specifying a super column for removal on \
             super CF",
        ),
        _ => None,
    };
    Ok((family, checked(family, super_name, name, fault)?))
}

/// The parent of a slice: a row, or a super column in it.
pub(super) fn check_parent<'s>(
    service: &'s Service,
    keyspace: &str,
    parent: &ColumnParent<'_>,
) -> Result<Family<'s>, ServiceError> {
    let family = service.family(keyspace, &parent.column_family)?;
    if let Some(super_name) = parent.super_column {
        if !family.is_super() {
            return Err(refused("columnfamily alone is required for standard CF", family));
        }
        family.check_names(None, [super_name])?;
    }
    Ok(family)
}

/// A refusal that ends with the name of the family.
pub(super) fn refused(why: &str, family: Family<'_>) -> ServiceError {
    ServiceError::invalid(format!("{why} {}", family.name()))
}

/// The target, unless it has a fault. Checks the column first, and then its super column, as 0.6.
fn checked<'a>(
    family: Family<'_>,
    super_name: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    fault: Option<&str>,
) -> Result<Target<'a>, ServiceError> {
    if let Some(why) = fault {
        return Err(refused(why, family));
    }
    if let Some(name) = name {
        family.check_names(super_name, [name])?;
    }
    if let Some(super_name) = super_name {
        family.check_names(None, [super_name])?;
    }
    Ok(match (super_name, name) {
        (super_name, Some(name)) => Target::Column { super_name, name },
        (Some(super_name), None) => Target::SuperColumn(super_name),
        (None, None) => Target::Row,
    })
}

/// The predicate of a read, as the slice that it means below its parent. To 0.4 the range counted
/// for nothing beside names.
pub(super) fn check_predicate(
    version: Release,
    family: Family<'_>,
    super_name: Option<&[u8]>,
    predicate: &SlicePredicate<'_>,
) -> Result<Slice, ServiceError> {
    let refused = |what| {
        let why = format!("predicate column_names and slice_range may not both be {what}");
        Err(ServiceError::invalid(why))
    };
    match (&predicate.column_names, &predicate.slice_range) {
        (None, None) => refused("null"),
        (Some(_), Some(_)) if version != Release::V04 => refused("present"),
        (None, Some(range)) => family.slice_range(super_name, range.into()),
        (Some(names), _) => {
            family.check_names(super_name, names.iter().copied())?;
            Ok(Slice::names(family.schema, super_name, names.iter().copied()))
        }
    }
}

impl<'a> From<&SliceRange<'a>> for ColumnRange<'a> {
    fn from(range: &SliceRange<'a>) -> Self {
        let SliceRange { start, finish, reversed, count } = *range;
        Self { bounds: (start, finish), reversed, count }
    }
}

/// The level of a write; all are allowed.
pub(super) fn write_level(level: Level) -> ConsistencyLevel {
    match level {
        Level::Zero => ConsistencyLevel::Zero,
        Level::One => ConsistencyLevel::One,
        Level::Quorum => ConsistencyLevel::Quorum,
        Level::DcQuorum => ConsistencyLevel::DcQuorum,
        Level::DcQuorumSync => ConsistencyLevel::DcQuorumSync,
        Level::All => ConsistencyLevel::All,
        Level::Any => ConsistencyLevel::Any,
    }
}

/// The level of a read by key.
pub(super) fn read_level(level: Level) -> Result<ConsistencyLevel, ServiceError> {
    let name = match level {
        Level::Zero => "zero",
        Level::Any => "any",
        level => return Ok(write_level(level)),
    };
    let why = format!("Consistency level {name} may not be applied to read operations");
    Err(ServiceError::invalid(why))
}

/// The level of a read by range. The original does not check it: `ANY` is as `ONE` there, and
/// `ZERO` an internal error.
pub(super) fn range_level(level: Level) -> Result<ConsistencyLevel, ServiceError> {
    match level {
        Level::Any => Ok(ConsistencyLevel::One),
        level => read_level(level),
    }
}
