//! The rows of a result: filtered, counted, grouped and sorted, and written as they come.

use super::error::CqlError;
use super::paging::{PagingState, Place};
use super::relations::Check;
use super::reply::Rows;
use super::rows::Row;
use super::select::SelectPlan;
use super::selection::{Context, Group};
use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::key::RowKey;

/// Memory of a value of the result besides its bytes.
const VALUE_HEAD: usize = 4;

/// Values of a row, kept.
type OwnedRow = Vec<Option<Vec<u8>>>;

/// Takes rows in the order of the result.
pub(super) struct Output<'e> {
    pub(super) plan: &'e SelectPlan,
    pub(super) context: Context<'e>,
    pub(super) memory: &'e RequestContext,
    pub(super) checks: Vec<Check<'e>>,
    /// Rows that the page, the result and the partition may still have.
    pub(super) page_left: usize,
    pub(super) left: usize,
    pub(super) per_partition: usize,
    pub(super) left_in_partition: usize,
    /// The group that is being collected.
    pub(super) group: Option<Group>,
    pub(super) group_key: Option<OwnedRow>,
    /// The values of its first row to sort by.
    pub(super) group_order: OwnedRow,
    /// Rows that are to be sorted, with the values to sort by.
    pub(super) sorted: Vec<(OwnedRow, OwnedRow)>,
    pub(super) rows: Rows<'e>,
    /// Bytes of the answer for which memory is taken.
    pub(super) taken: usize,
    /// Number of the row among those in memory.
    pub(super) passed: usize,
    /// Place of the last row.
    pub(super) last: Option<(Vec<u8>, Place)>,
    /// Rows that its partition may still have.
    pub(super) left_after_last: usize,
    /// State for the next page.
    pub(super) ended_at: Option<PagingState>,
    pub(super) has_more: bool,
    pub(super) resumes: Option<PagingState>,
}

impl Output<'_> {
    /// Whether no more rows are wanted.
    pub(super) fn is_done(&self) -> bool {
        self.has_more || self.left == 0
    }

    /// Rows to read, one more than are wanted, to see whether there are more.
    pub(super) fn rows_wanted(&self) -> usize {
        if !self.checks.is_empty() || self.group.is_some() || !self.sorted.is_empty() {
            return usize::MAX;
        }
        let wanted = self.page_left.min(self.left).min(self.left_in_partition);
        wanted.saturating_add(1)
    }

    /// Begins with the rows of another partition. They are of other groups than those before.
    pub(super) fn begin_partition(&mut self) -> Result<(), CqlError> {
        if self.group_key.is_some() {
            self.end_group()?;
        }
        self.left_in_partition = self.per_partition;
        Ok(())
    }

    /// Adds a row, whose place is that of its last cell; `None` for one of static columns alone, or
    /// one that is stored nowhere. False if no more rows of this page are wanted.
    pub(super) fn add(
        &mut self,
        row: &Row<'_>,
        here: Option<(&RowKey, Option<&Cell>)>,
    ) -> Result<bool, CqlError> {
        let (table, partitioner) = (self.context.table, self.plan.table.partitioner);
        if !self.checks.iter().all(|check| check.holds(table, row, partitioner)) {
            return Ok(true);
        }
        let place = || {
            let (key, last) = here?;
            Some((key.as_bytes().to_vec(), last.map(Place::of).unwrap_or_default()))
        };
        if self.group.is_some() {
            return self.add_to_group(row, place());
        }
        if self.page_left == 0 {
            self.end_page();
            return Ok(false);
        }
        if self.left_in_partition == 0 {
            return Ok(true);
        }
        // A page ends after its last row.
        if self.page_left == 1 {
            self.last = place();
        }
        let plan = self.plan;
        match &plan.selection.plain {
            Some(columns) if plan.sorts_by.is_empty() => {
                for column in columns {
                    self.rows.cell(row.value(table, *column).as_deref());
                }
                self.end_row()?;
            }
            _ => {
                let values = plan.selection.of_row(row, &self.context)?;
                let values = values.into_iter().map(|it| it.map(|it| it.into_owned())).collect();
                let order = self.order_of(row);
                self.emit(values, order)?;
            }
        }
        Ok(self.left > 0)
    }

    /// Counts a row that was written.
    fn end_row(&mut self) -> Result<(), CqlError> {
        self.rows.end_row();
        let bytes = self.rows.bytes();
        self.memory.take(bytes - self.taken).map_err(CqlError::too_large)?;
        self.taken = bytes;
        self.page_left = self.page_left.saturating_sub(1);
        self.left = self.left.saturating_sub(1);
        self.left_in_partition = self.left_in_partition.saturating_sub(1);
        self.left_after_last = self.left_in_partition;
        Ok(())
    }

    /// The values of a row to sort by.
    fn order_of(&self, row: &Row<'_>) -> OwnedRow {
        let columns = self.plan.sorts_by.iter();
        let value = |column| row.value(self.context.table, column).map(|it| it.into_owned());
        columns.map(|(column, _)| value(*column)).collect()
    }

    fn emit(&mut self, values: OwnedRow, order: OwnedRow) -> Result<(), CqlError> {
        if self.plan.sorts_by.is_empty() {
            for value in &values {
                self.rows.cell(value.as_deref());
            }
            return self.end_row();
        }
        let bytes =
            values.iter().chain(&order).map(|it| it.as_ref().map_or(0, Vec::len) + VALUE_HEAD);
        self.memory.take(bytes.sum()).map_err(CqlError::too_large)?;
        self.left_in_partition = self.left_in_partition.saturating_sub(1);
        self.sorted.push((order, values));
        Ok(())
    }

    /// Groups are rows of neighbours in the order of the table.
    fn add_to_group(
        &mut self,
        row: &Row<'_>,
        here: Option<(Vec<u8>, Place)>,
    ) -> Result<bool, CqlError> {
        let plan = self.plan;
        let table = self.context.table;
        let value = |column: &usize| row.value(table, *column).map(|it| it.into_owned());
        let key = plan.group_by.as_ref().map(|columns| columns.iter().map(value).collect());
        if self.group_key.is_some() && self.group_key != key {
            self.end_group()?;
        }
        if self.left == 0 {
            return Ok(false);
        }
        if self.left_in_partition == 0 {
            return Ok(true);
        }
        if self.page_left == 0 {
            self.end_page();
            return Ok(false);
        }
        if self.group_key.is_none() {
            self.group_order = self.order_of(row);
        }
        self.group_key = key;
        if plan.is_distinct {
            self.left_in_partition = 0;
        }
        self.last = here;
        let mut group = self.group.take().unwrap_or_else(|| plan.selection.group());
        let added = plan.selection.add(&mut group, row, &self.context);
        self.group = Some(group);
        added.map(|()| true)
    }

    fn end_group(&mut self) -> Result<(), CqlError> {
        let plan = self.plan;
        let fresh = plan.selection.group();
        let Some(group) = self.group.replace(fresh) else { return Ok(()) };
        self.group_key = None;
        let values = plan.selection.of_group(&group, &self.context)?;
        let values = values.into_iter().map(|it| it.map(|it| it.into_owned())).collect();
        let order = std::mem::take(&mut self.group_order);
        self.emit(values, order)
    }

    fn end_page(&mut self) {
        self.has_more = true;
        let (key, after) = match self.last.take() {
            Some((key, place)) => (key, Some(place)),
            None => (Vec::new(), None),
        };
        self.ended_at = Some(PagingState {
            key,
            after,
            passed: self.passed,
            left: self.left,
            left_in_partition: self.left_after_last,
        });
    }

    pub(super) fn finish(mut self) -> Result<(), CqlError> {
        let has_rows = self.group.as_ref().is_some_and(|group| !group.is_empty());
        // Without GROUP BY there is a row even of nothing.
        if self.group.is_some()
            && !self.has_more
            && self.left > 0
            && (has_rows || self.plan.group_by.is_none())
        {
            self.end_group()?;
        }
        if !self.plan.sorts_by.is_empty() {
            self.sort();
        }
        let next = self.ended_at.map(|state| state.encode());
        self.rows.finish(next.as_deref());
        Ok(())
    }

    fn sort(&mut self) {
        let table = self.context.table;
        let plan = self.plan;
        self.sorted.sort_by(|(a, _), (b, _)| {
            let mut columns = plan.sorts_by.iter().zip(a.iter().zip(b));
            let order = columns.find_map(|((column, descends), (a, b))| {
                let of_type = &table.columns[*column].of_type;
                let order = match (a, b) {
                    (Some(a), Some(b)) => of_type.compare(a, b),
                    (a, b) => a.is_some().cmp(&b.is_some()),
                };
                let order = if *descends { order.reverse() } else { order };
                order.is_ne().then_some(order)
            });
            order.unwrap_or(std::cmp::Ordering::Equal)
        });
        for (_, row) in std::mem::take(&mut self.sorted).into_iter().take(self.left) {
            for value in &row {
                self.rows.cell(value.as_deref());
            }
            self.rows.end_row();
        }
    }
}
