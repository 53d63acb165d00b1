//! The columns that a command asks for, checked.

use super::error::BodyError;
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::JavaReader;
use crate::model::comparator::Comparator;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::Slice;
use std::cmp::Ordering;

/// The number that is sent for a limit. Nobody has more columns than it can say.
pub(super) fn limit_to_wire(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

/// The limit that was sent; `None` for a negative one.
pub(super) fn limit_from_wire(limit: i32) -> Option<usize> {
    if limit == i32::MAX { Some(usize::MAX) } else { usize::try_from(limit).ok() }
}

/// Most names of one command: what is made of a name takes some times the bytes that it has in a
/// message.
const MAX_NAMES: usize = 1 << 22;

/// Reads the number of names, each of which takes at least `least` bytes.
pub(super) fn count_names(reader: &mut ByteReader<'_>, least: usize) -> Result<usize, Malformed> {
    reader.count_at_most(least, MAX_NAMES)
}

/// Where the columns of a slice are: in a row, or in one of its super columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent<'a> {
    family: &'a ColumnFamilySchema,
    super_name: Option<&'a [u8]>,
}

/// Start, finish, order and limit as they were sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireRange<'a> {
    pub(super) start: &'a [u8],
    pub(super) finish: &'a [u8],
    pub(super) reversed: bool,
    pub(super) limit: usize,
}

impl<'a> Parent<'a> {
    /// An empty name stands for no super column.
    pub(super) fn new(
        family: &'a ColumnFamilySchema,
        super_name: &'a [u8],
    ) -> Result<Self, BodyError> {
        if super_name.is_empty() {
            return Ok(Self { family, super_name: None });
        }
        if !family.is_super() || !family.comparator().can_sort(super_name) {
            return Err(BodyError::name(family, None, super_name));
        }
        Ok(Self { family, super_name: Some(super_name) })
    }

    fn comparator(self) -> &'a Comparator {
        let columns = self.super_name.and_then(|_| self.family.subcolumn_comparator());
        columns.unwrap_or(self.family.comparator())
    }

    fn check(self, name: &[u8], may_be_empty: bool) -> Result<(), BodyError> {
        if name.is_empty() && !may_be_empty || !self.comparator().can_sort(name) {
            return Err(BodyError::name(self.family, self.super_name, name));
        }
        Ok(())
    }

    /// The columns of these names.
    pub(super) fn names(self, names: &[&[u8]]) -> Result<Slice, BodyError> {
        names.iter().try_for_each(|name| self.check(name, false))?;
        Ok(Slice::names(self.family, self.super_name, names.iter().copied()))
    }

    /// The columns of this range.
    pub(super) fn range(self, range: WireRange<'_>) -> Result<Slice, BodyError> {
        let WireRange { start, finish, reversed, limit } = range;
        self.check(start, true)?;
        self.check(finish, true)?;
        let (least, greatest) = if reversed { (finish, start) } else { (start, finish) };
        let is_open = least.is_empty() || greatest.is_empty();
        if !is_open && self.comparator().compare(least, greatest) == Ordering::Greater {
            return Err(BodyError::EmptySlice { family: self.family.to_string() });
        }
        Ok(Slice::range(self.super_name, start, finish, reversed, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_without_number() {
        let bytes =
            |count: usize| [&(count as u32).to_be_bytes()[..], &vec![0; 2 * count]].concat();
        let count = |count: usize| count_names(&mut ByteReader::new(&bytes(count)), 2);
        assert_eq!(count(MAX_NAMES), Ok(MAX_NAMES));
        assert_eq!(count(MAX_NAMES + 1), Err(Malformed(0)));
    }
}
