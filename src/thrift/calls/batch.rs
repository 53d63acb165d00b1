//! The writes of a batch to one row, checked and collected element by element.

use super::paths::check_target;
use crate::model::cell::MAX_NAME_LENGTH;
use crate::model::deletion::Deletion;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::service::{
    Family, Service, ServiceError, check_modifiable, check_name, check_super_name, not_super,
    unknown_keyspace,
};
use crate::thrift::idl::{
    Column, ColumnOrSuperColumn, Deletion as WireDeletion, Mutation, SlicePredicate, SuperColumn,
};
use std::fmt::Write;

/// Bytes of a name that an error text shows.
const MAX_SHOWN_NAME: usize = 128;

/// Mutations of a batch for one row.
pub(super) struct RowBatch<'a> {
    service: &'a Service,
    keyspace: &'a str,
    /// Local time of deletions, in seconds since the Unix epoch.
    now: i32,
    /// `None` if there is no such keyspace: then every element with content is refused.
    builder: Option<MutationBuilder<'a>>,
}

/// Mutations of a batch for one row in one column family.
pub(super) struct FamilyBatch<'b, 'a> {
    row: &'b mut RowBatch<'a>,
    name: &'b str,
    /// The family, as soon as it was needed: an element that says nothing does not need one.
    family: Option<Family<'a>>,
}

impl<'a> RowBatch<'a> {
    /// Room for a mutation of some columns.
    pub(super) fn buffer() -> Vec<u8> {
        Vec::with_capacity(512)
    }

    /// A batch for a row whose key has been checked. The buffer may come from the row before.
    pub(super) fn new(service: &'a Service, keyspace: &'a str, key: &str, buffer: Vec<u8>) -> Self {
        let schema = service.schema();
        let known = schema.has_keyspace(keyspace);
        let builder =
            known.then(|| MutationBuilder::with_buffer(schema, keyspace, key.as_bytes(), buffer));
        Self { service, keyspace, now: service.now_secs(), builder }
    }

    /// Begins a column family.
    pub(super) fn family<'b>(&'b mut self, name: &'b str) -> FamilyBatch<'b, 'a> {
        FamilyBatch { row: self, name, family: None }
    }

    /// The mutation with the buffer for the next row; `None` if there is nothing to do.
    pub(super) fn finish(self) -> Result<Option<(RowMutation, Vec<u8>)>, ServiceError> {
        self.service.check_keyspace(self.keyspace)?;
        check_modifiable(self.keyspace)?;
        let builder = self.builder.filter(|builder| !builder.is_empty());
        Ok(builder.map(MutationBuilder::finish_with_buffer))
    }
}

impl<'a> FamilyBatch<'_, 'a> {
    /// An element of `batch_insert`. A column beside an empty super column is refused, as there.
    pub(super) fn insert_one(
        &mut self,
        element: &ColumnOrSuperColumn<'_>,
    ) -> Result<(), ServiceError> {
        self.insert(element)?;
        match element {
            ColumnOrSuperColumn { column: Some(_), super_column: Some(_) } => {
                let why =
                    "ColumnOrSuperColumn may have either a Column or a SuperColumn, but not both";
                Err(ServiceError::invalid(why))
            }
            _ => Ok(()),
        }
    }

    /// An element of `batch_mutate`.
    pub(super) fn mutate(&mut self, mutation: &Mutation<'_>) -> Result<(), ServiceError> {
        match (&mutation.column_or_supercolumn, &mutation.deletion) {
            (Some(_), Some(_)) => Err(ServiceError::invalid(
                "Mutation may have either a ColumnOrSuperColumn or a Deletion, but not both",
            )),
            (Some(element), None) => self.insert(element),
            (None, Some(deletion)) => self.delete(deletion),
            (None, None) => Err(ServiceError::invalid(
                "Mutation must have one ColumnOrSuperColumn or one Deletion",
            )),
        }
    }

    fn insert(&mut self, element: &ColumnOrSuperColumn<'_>) -> Result<(), ServiceError> {
        if let Some(column) = &element.column {
            check_target(self.resolve()?, None, Some(column.name))?;
            self.push_column(b"", column)?;
        }
        match &element.super_column {
            Some(super_column) => self.insert_super_column(super_column),
            None if element.column.is_none() => Err(ServiceError::invalid(
                "ColumnOrSuperColumn must have one or both of Column or SuperColumn",
            )),
            None => Ok(()),
        }
    }

    /// One without columns is nothing at all, whatever its name.
    fn insert_super_column(&mut self, super_column: &SuperColumn<'_>) -> Result<(), ServiceError> {
        let Some((first, rest)) = super_column.columns.split_first() else { return Ok(()) };
        let family = self.resolve()?;
        let super_name = super_column.name;
        check_target(family, Some(super_name), Some(first.name))?;
        self.push_column(super_name, first)?;
        let comparator = family.schema.comparator_below(Some(super_name));
        for column in rest {
            check_name(comparator, column.name)?;
            self.push_column(super_name, column)?;
        }
        Ok(())
    }

    fn push_column(&mut self, super_name: &[u8], column: &Column<'_>) -> Result<(), ServiceError> {
        self.builder()?.insert((super_name, column.name), column.value, column.timestamp);
        Ok(())
    }

    /// The checks of the original in their order; but an unknown family is refused.
    fn delete(&mut self, deletion: &WireDeletion<'_>) -> Result<(), ServiceError> {
        let super_name = deletion.super_column;
        if let Some(predicate) = &deletion.predicate {
            self.check_deleted_names(super_name, predicate)?;
        }
        if let Some(super_name) = super_name {
            // An unknown family counts as a standard one.
            if !self.resolve().is_ok_and(|family| family.is_super()) {
                return Err(self.refuse_super_column(deletion.timestamp, super_name));
            }
        }
        let family = self.resolve()?;
        if let Some(name) = super_name
            && let Err(refusal) = family.check_names(None, [name])
        {
            // The original does not check this name. No such super column can exist, so there is
            // nothing to delete; only names that are too long are refused.
            return if name.len() > MAX_NAME_LENGTH { Err(refusal) } else { Ok(()) };
        }
        let tombstone = Deletion::at(deletion.timestamp, self.row.now);
        let names = deletion.predicate.as_ref().map(|p| p.column_names.as_deref());
        let builder = self.builder()?;
        match (super_name, names.map(Option::unwrap_or_default)) {
            (None, None) => {
                builder.delete_row(tombstone);
            }
            (Some(super_name), None) => {
                builder.delete_super_column(super_name, tombstone);
            }
            (None, Some(names)) if family.is_super() => {
                for name in names {
                    builder.delete_super_column(name, tombstone);
                }
            }
            (super_name, Some(names)) => {
                let super_name = super_name.unwrap_or_default();
                for name in names {
                    builder.delete_column((super_name, name), tombstone);
                }
            }
        }
        Ok(())
    }

    fn check_deleted_names(
        &mut self,
        super_name: Option<&[u8]>,
        predicate: &SlicePredicate<'_>,
    ) -> Result<(), ServiceError> {
        if predicate.column_names.is_none() && predicate.slice_range.is_none() {
            return Err(ServiceError::invalid(
                "A SlicePredicate must be given a list of Columns, a SliceRange, or both",
            ));
        }
        if let Some(range) = &predicate.slice_range {
            let family = self.resolve()?;
            if super_name.is_some() && !family.is_super() {
                return Err(not_super(family.name()));
            }
            family.slice_range(super_name, range.into())?;
        }
        if let Some(names) = &predicate.column_names {
            let family = match (self.resolve(), super_name) {
                (Err(_), Some(super_name)) => {
                    check_super_name(super_name)?;
                    return Err(not_super(self.name));
                }
                (family, _) => family?,
            };
            family.check_names(super_name, names.iter().copied())?;
        }
        if predicate.slice_range.is_some() {
            let why = "Deletion does not yet support SliceRange predicates.";
            return Err(ServiceError::invalid(why));
        }
        Ok(())
    }

    fn refuse_super_column(&self, timestamp: i64, super_name: &[u8]) -> ServiceError {
        let mut deletion = format!("Deletion(timestamp:{timestamp}, super_column:");
        for (i, byte) in super_name.iter().take(MAX_SHOWN_NAME).enumerate() {
            let separator = if i == 0 { "" } else { " " };
            write!(deletion, "{separator}{byte:02X}").expect("a String takes any text");
        }
        deletion.push_str(if super_name.len() > MAX_SHOWN_NAME { " ...)" } else { ")" });
        ServiceError::invalid(format!(
            "deletion of super_column is not possible on a standard ColumnFamily \
             (KeySpace={} ColumnFamily={} Deletion={deletion})",
            self.row.keyspace, self.name
        ))
    }

    /// The family, which must exist. The first time it is opened in the mutation.
    fn resolve(&mut self) -> Result<Family<'a>, ServiceError> {
        if let Some(family) = self.family {
            return Ok(family);
        }
        let family = self.row.service.family(self.row.keyspace, self.name)?;
        if let Some(builder) = &mut self.row.builder {
            builder.family(family.id);
        }
        self.family = Some(family);
        Ok(family)
    }

    /// The builder for checked elements.
    fn builder(&mut self) -> Result<&mut MutationBuilder<'a>, ServiceError> {
        self.resolve()?;
        let unknown = || unknown_keyspace(self.row.keyspace);
        self.row.builder.as_mut().ok_or_else(unknown)
    }
}
