//! Checks of the names in a request, with the texts of 0.6.

use super::{Service, ServiceError};
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::model::cell::MAX_NAME_LENGTH;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::model::table::Column;
use crate::model::types::{CqlType, Native};
use std::cmp::Ordering;

/// Longest row key, in bytes of Java's modified UTF-8.
const MAX_KEY_LENGTH: usize = 65535;

/// A column family that exists.
#[derive(Debug, Clone, Copy)]
pub struct Family<'s> {
    /// Number of the family.
    pub id: FamilyId,
    /// Shape of its rows.
    pub schema: &'s ColumnFamilySchema,
}

/// Columns between two names, in the order of the comparator.
#[derive(Debug, Clone, Copy)]
pub struct ColumnRange<'a> {
    /// First name, and the last one; empty for an open end.
    pub bounds: (&'a [u8], &'a [u8]),
    /// From the greatest to the smallest.
    pub reversed: bool,
    /// Most columns.
    pub count: i32,
}

impl Service {
    /// The column family of a request, which may be empty or unknown.
    pub fn family(&self, keyspace: &str, name: &str) -> Result<Family<'_>, ServiceError> {
        if let Some(id) = self.options.schema.find(keyspace, name) {
            let family = Family { id, schema: self.options.schema.family(id) };
            return family.check_served().map(|()| family);
        }
        self.check_keyspace(keyspace)?;
        Err(match name {
            "" => ServiceError::invalid("non-empty columnfamily is required"),
            _ => ServiceError::invalid(format!("unconfigured columnfamily {name}")),
        })
    }

    /// The keyspace must exist.
    pub fn check_keyspace(&self, keyspace: &str) -> Result<(), ServiceError> {
        if self.options.schema.has_keyspace(keyspace) {
            Ok(())
        } else {
            Err(unknown_keyspace(keyspace))
        }
    }

    /// All keyspaces and column families.
    pub fn schema(&self) -> &Schema {
        &self.options.schema
    }
}

/// The refusal of a keyspace that does not exist.
pub fn unknown_keyspace(keyspace: &str) -> ServiceError {
    ServiceError::invalid(format!("Keyspace {keyspace} does not exist in this schema."))
}

/// Fails for keyspaces that the node keeps for itself.
pub fn check_modifiable(keyspace: &str) -> Result<(), ServiceError> {
    if keyspace == SYSTEM_KEYSPACE {
        return Err(ServiceError::invalid("system keyspace is not user-modifiable"));
    }
    Ok(())
}

/// Whether requests can name the rows of a column family by text, as those of Thrift do: a table
/// that was made over CQL may have a key of another type or of several parts.
pub fn has_text_keys(family: &ColumnFamilySchema) -> bool {
    let is_text = |column: &Column| matches!(column.of_type, CqlType::Native(Native::Text));
    let is_one =
        family.table.key_length() == 1 && family.table.columns.first().is_some_and(is_text);
    is_one || !ColumnFamilySchema::is_of_cql(&family.name)
}

impl Family<'_> {
    /// Name of the family.
    pub fn name(&self) -> &str {
        self.schema.table_name()
    }

    fn check_served(&self) -> Result<(), ServiceError> {
        if has_text_keys(self.schema) {
            return Ok(());
        }
        Err(ServiceError::invalid(format!(
            "{} was made over CQL, and its partition key is not one column of type text: it can be \
             used over CQL only",
            self.name()
        )))
    }

    /// Whether its columns are in super columns.
    pub fn is_super(&self) -> bool {
        self.schema.is_super()
    }

    /// Names of columns of the super column, or without one of columns or super columns of a row.
    pub fn check_names<'n>(
        &self,
        super_name: Option<&[u8]>,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) -> Result<(), ServiceError> {
        if let Some(super_name) = super_name {
            check_super_name(super_name)?;
            if !self.is_super() {
                return Err(not_super(self.name()));
            }
        }
        let comparator = self.schema.comparator_below(super_name);
        names.into_iter().try_for_each(|name| check_name(comparator, name))
    }

    /// A range of columns as a slice.
    pub fn slice_range(
        &self,
        super_name: Option<&[u8]>,
        range: ColumnRange<'_>,
    ) -> Result<Slice, ServiceError> {
        let ColumnRange { bounds: (start, finish), reversed, count } = range;
        let comparator = self.schema.comparator_below(super_name);
        comparator.validate(start)?;
        comparator.validate(finish)?;
        let limit = usize::try_from(count)
            .map_err(|_| ServiceError::invalid("get_slice requires non-negative count"))?;
        let backwards = if reversed { Ordering::Less } else { Ordering::Greater };
        if !start.is_empty() && !finish.is_empty() && comparator.compare(start, finish) == backwards
        {
            let why = "range finish must come after start in the order of traversal";
            return Err(ServiceError::invalid(why));
        }
        Ok(Slice::range(super_name, start, finish, reversed, limit))
    }
}

/// The refusal of a super column in a family that has none.
pub fn not_super(family: &str) -> ServiceError {
    ServiceError::invalid(format!(
        "supercolumn specified to ColumnFamily {family} containing normal columns"
    ))
}

/// One name, by the comparator it belongs to.
pub fn check_name(comparator: &Comparator, name: &[u8]) -> Result<(), ServiceError> {
    if name.len() > MAX_NAME_LENGTH {
        return Err(ServiceError::invalid("column name length must not be greater than 65535"));
    }
    if name.is_empty() {
        return Err(ServiceError::invalid("column name must not be empty"));
    }
    Ok(comparator.validate(name)?)
}

/// The length of the name of a super column whose columns are meant.
pub fn check_super_name(super_name: &[u8]) -> Result<(), ServiceError> {
    if super_name.len() > MAX_NAME_LENGTH {
        let why = "supercolumn name length must not be greater than 65535";
        return Err(ServiceError::invalid(why));
    }
    if super_name.is_empty() {
        return Err(ServiceError::invalid("supercolumn name must not be empty"));
    }
    Ok(())
}

/// The key of a row. It must have a length that the original can store.
pub fn row_key(key: &str) -> Result<RowKey, ServiceError> {
    check_key(key)?;
    Ok(RowKey::from(key))
}

/// Checks a row key without a copy.
pub fn check_key(key: &str) -> Result<(), ServiceError> {
    if key.is_empty() {
        return Err(ServiceError::invalid("Key may not be empty"));
    }
    // Modified UTF-8 takes at most twice as many bytes as UTF-8.
    if key.len() > MAX_KEY_LENGTH / 2 {
        let length = modified_utf8_length(key);
        if length > MAX_KEY_LENGTH {
            return Err(ServiceError::invalid(format!(
                "Encoded key length of {length} is longer than maximum of {MAX_KEY_LENGTH}"
            )));
        }
    }
    Ok(())
}

/// Length in Java's modified UTF-8: zero takes two bytes, and characters beyond the basic plane
/// are two surrogates of three bytes each.
fn modified_utf8_length(text: &str) -> usize {
    let length = |c| match c {
        '\u{1}'..='\u{7f}' => 1,
        '\0' | '\u{80}'..='\u{7ff}' => 2,
        '\u{800}'..='\u{ffff}' => 3,
        '\u{10000}'.. => 6,
    };
    text.chars().map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_modified_utf8() {
        assert!(check_key("").is_err());
        for (character, length) in [("a", 1), ("\0", 2), ("é", 2), ("日", 3), ("😀", 6)] {
            assert_eq!(modified_utf8_length(character), length, "{character:?}");
            let most = MAX_KEY_LENGTH / length;
            assert_eq!(check_key(&character.repeat(most)), Ok(()), "{character:?}");
            let refused = check_key(&character.repeat(most + 1)).unwrap_err().to_string();
            let shown = format!("length of {} is longer", (most + 1) * length);
            assert!(refused.contains(&shown), "{refused}");
        }
    }
}
