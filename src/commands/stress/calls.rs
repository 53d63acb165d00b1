//! Operations as calls, and checks of their answers.

use super::nodes::Place;
use super::rows::{Draft, super_name};
use super::trouble::{Trouble, TroubleKind};
use super::workload::{Kind, Operation, Workload};
use crate::client::Client;
use crate::thrift::Map;
use crate::thrift::idl::{
    BatchInsertArgs, BatchMutateArgs, ColumnOrSuperColumn, ColumnParent, ColumnPath, Exception,
    GetArgs, GetRangeSlicesArgs, GetSliceArgs, InsertArgs, KeyRange, MultigetSliceArgs, Mutation,
    SlicePredicate, SliceRange,
};
use crate::thrift::remote::CallError;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Operations on a column family.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) workload: Workload,
    pub(super) place: Place,
    pub(super) family: String,
    /// Whether reads compare what they find with what was written.
    pub(super) checks: bool,
}

impl Calls {
    /// The name of the call that an operation makes.
    pub(super) fn name(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Insert if self.workload.access.batch > 1 => "batch_mutate",
            Kind::Insert if self.writes_one_column() => "insert",
            Kind::Insert => "batch_insert",
            Kind::Read if self.workload.access.batch > 1 => "multiget_slice",
            Kind::Read => "get_slice",
            Kind::Get => "get",
            Kind::Range => "get_range_slices",
        }
    }

    fn writes_one_column(&self) -> bool {
        let Workload { rows, access, .. } = &self.workload;
        rows.super_columns == 0 && rows.columns.min(access.slice) == 1
    }

    /// Makes the call of an operation.
    pub(super) fn perform(
        &self,
        client: &mut Client,
        operation: &Operation,
        timestamp: i64,
    ) -> Result<(), Trouble> {
        match operation.kind {
            Kind::Insert => Ok(self.insert(client, &operation.drafts, timestamp)?),
            Kind::Read if self.workload.access.batch > 1 => self.read_rows(client, operation),
            Kind::Read => self.read_row(client, operation),
            Kind::Get => self.get(client, operation),
            Kind::Range => self.range(client, operation),
        }
    }

    fn insert(
        &self,
        client: &mut Client,
        drafts: &[Draft],
        timestamp: i64,
    ) -> Result<(), CallError> {
        let consistency_level = self.place.level;
        if self.workload.access.batch > 1 {
            let mutation = |cell| Mutation { column_or_supercolumn: Some(cell), deletion: None };
            let rows = drafts.iter().map(|draft| {
                let mutations = draft.cells(timestamp).into_iter().map(mutation).collect();
                (Cow::from(&draft.key), Map(vec![(Cow::from(&self.family), mutations)]))
            });
            let (keyspace, mutation_map) = (self.keyspace(), Map(rows.collect()));
            return client.call(&BatchMutateArgs { keyspace, mutation_map, consistency_level });
        }
        for draft in drafts {
            let (keyspace, key) = (self.keyspace(), Cow::from(&draft.key));
            if self.writes_one_column() {
                let (name, value) = draft.first();
                client.call(&InsertArgs {
                    keyspace,
                    key,
                    column_path: ColumnPath {
                        column_family: Cow::from(&self.family),
                        super_column: None,
                        column: Some(name),
                    },
                    value,
                    timestamp,
                    consistency_level,
                })?;
            } else {
                let cfmap = Map(vec![(Cow::from(&self.family), draft.cells(timestamp))]);
                client.call(&BatchInsertArgs { keyspace, key, cfmap, consistency_level })?;
            }
        }
        Ok(())
    }

    fn read_row(&self, client: &mut Client, operation: &Operation) -> Result<(), Trouble> {
        let (row, part) = (operation.first_row(), self.part(operation));
        let cells = client.call(&GetSliceArgs {
            keyspace: self.keyspace(),
            key: self.workload.rows.key(row).into(),
            column_parent: part.parent(),
            predicate: part.predicate(),
            consistency_level: self.place.level,
        })?;
        self.check(row, operation, &cells)
    }

    fn read_rows(&self, client: &mut Client, operation: &Operation) -> Result<(), Trouble> {
        let (rows, part) = (&self.workload.rows, self.part(operation));
        let found = client.call(&MultigetSliceArgs {
            keyspace: self.keyspace(),
            keys: operation.rows.iter().map(|row| rows.key(*row).into()).collect(),
            column_parent: part.parent(),
            predicate: part.predicate(),
            consistency_level: self.place.level,
        })?;
        let found: BTreeMap<Option<u64>, &Vec<ColumnOrSuperColumn<'_>>> =
            found.iter().map(|(key, cells)| (rows.row_of(key), cells)).collect();
        for row in &operation.rows {
            let cells = found.get(&Some(*row)).map_or(&[][..], |cells| cells);
            self.check(*row, operation, cells)?;
        }
        Ok(())
    }

    fn get(&self, client: &mut Client, operation: &Operation) -> Result<(), Trouble> {
        let (row, part) = (operation.first_row(), self.part(operation));
        let key = self.workload.rows.key(row);
        let missing = || format!("row {key}, column {} is not there", part.start);
        let cell = client
            .call(&GetArgs {
                keyspace: self.keyspace(),
                key: Cow::from(&key),
                column_path: ColumnPath {
                    column_family: Cow::from(&self.family),
                    super_column: part.super_name.as_deref().map(str::as_bytes),
                    column: Some(part.start.as_bytes()),
                },
                consistency_level: self.place.level,
            })
            .map_err(|error| match error {
                CallError::Declared(Exception::NotFound, _) => {
                    Trouble::new(TroubleKind::Missing, missing())
                }
                other => other.into(),
            })?;
        self.check(row, operation, &[cell])
    }

    /// Rows of others may lie within a range, so that only the first one must be there.
    fn range(&self, client: &mut Client, operation: &Operation) -> Result<(), Trouble> {
        let (rows, part) = (&self.workload.rows, self.part(operation));
        let first = operation.first_row();
        let range = KeyRange {
            start_key: Some(rows.key(first).into()),
            end_key: Some("".into()),
            start_token: None,
            end_token: None,
            count: limit(self.workload.access.range_rows),
        };
        let found = client.call(&GetRangeSlicesArgs {
            keyspace: self.keyspace(),
            column_parent: part.parent(),
            predicate: part.predicate(),
            range,
            consistency_level: self.place.level,
        })?;
        let mut found = found.iter().map(|it| (rows.row_of(&it.key), &it.columns));
        let (_, cells) = found.next().filter(|(row, _)| *row == Some(first)).unzip();
        self.check(first, operation, cells.map_or(&[], |cells: &Vec<_>| cells))?;
        for (row, cells) in found.filter(|(_, cells)| self.checks && !cells.is_empty()) {
            row.map_or(Ok(()), |row| self.check(row, operation, cells))?;
        }
        Ok(())
    }

    /// Checks that a row was found and, if that is asked for, what was found of it.
    fn check(
        &self,
        row: u64,
        operation: &Operation,
        found: &[ColumnOrSuperColumn<'_>],
    ) -> Result<(), Trouble> {
        let rows = &self.workload.rows;
        if found.is_empty() {
            let text = format!("row {} is not there", rows.key(row));
            return Err(Trouble::new(TroubleKind::Missing, text));
        }
        if self.checks {
            rows.check((row, operation.super_column), &operation.columns, found)
        } else {
            Ok(())
        }
    }

    fn keyspace(&self) -> Cow<'_, str> {
        Cow::from(&self.place.keyspace)
    }

    fn part(&self, operation: &Operation) -> Part<'_> {
        let Workload { rows, access, .. } = &self.workload;
        let is_whole = rows.columns <= access.slice && operation.kind != Kind::Get;
        let name = |column| if is_whole { String::new() } else { rows.name(column) };
        let columns = &operation.columns;
        Part {
            family: &self.family,
            super_name: (rows.super_columns > 0).then(|| super_name(operation.super_column)),
            start: name(columns.start),
            finish: name(columns.end - 1),
            count: limit(columns.end - columns.start),
        }
    }
}

fn limit(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The part of a row that an operation reads.
struct Part<'f> {
    family: &'f str,
    super_name: Option<String>,
    /// First and last column; empty for a whole row.
    start: String,
    finish: String,
    count: i32,
}

impl Part<'_> {
    fn parent(&self) -> ColumnParent<'_> {
        let super_column = self.super_name.as_deref().map(str::as_bytes);
        ColumnParent { column_family: self.family.into(), super_column }
    }

    fn predicate(&self) -> SlicePredicate<'_> {
        let range = SliceRange {
            start: self.start.as_bytes(),
            finish: self.finish.as_bytes(),
            reversed: false,
            count: self.count,
        };
        SlicePredicate { column_names: None, slice_range: Some(range) }
    }
}
