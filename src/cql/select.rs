//! SELECT.
//!
//! ```text
//!   SelectPlan      names looked up, types known: made once for a prepared statement
//!   Reader          partitions and rows in order, some at a time, from the place where the last
//!                   page ended
//!   output          filters rows, counts them, and writes the columns of the result
//! ```

use super::ast::{Select, Term};
use super::error::CqlError;
use super::output::Output;
use super::paging::{PagingState, Place};
use super::relations::{Check, Named};
use super::reply::Rows;
use super::restrictions::{Keys, Purpose, Restrictions};
use super::rows::{Partition, Row, drop_hidden};
use super::selection::{Context, Selection};
use super::tables::TableRef;
use super::terms::{Expression, Typing, Values};
use super::windows::{RowSet, Window, directed};
use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::comparator::composite;
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::model::slice::{AnswerCells, RowSlice, Slice};
use crate::model::table::{ColumnKind, Form, Table};
use crate::model::types::{CqlType, Native};

use crate::service::{
    ConsistencyLevel, Partitioner, RowQuery, RowRange, SerialConsistency, Service, Token,
};
use std::ops::Bound;
use std::pin::pin;

/// Rows of a partition that are read at a time.
const ROWS_AT_A_TIME: usize = 1000;

/// Partitions of a scan that are read at a time.
const PARTITIONS_AT_A_TIME: usize = 256;

/// The same at first.
const PARTITIONS_AT_FIRST: usize = 4;

/// Rows in the first read of each partition of a scan.
const ROWS_OF_SCANNED: usize = 128;

const SERIAL_OF_SEVERAL: &str =
    "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time";

/// A SELECT whose names are looked up.
#[derive(Debug)]
pub(super) struct SelectPlan {
    pub(super) table: TableRef,
    pub(super) selection: Selection,
    restrictions: Restrictions,
    /// Columns that must be equal in all rows of a group; `None` without GROUP BY.
    pub(super) group_by: Option<Vec<usize>>,
    pub(super) is_distinct: bool,
    is_reversed: bool,
    /// Columns by which all rows are sorted, since they come from several partitions.
    pub(super) sorts_by: Vec<(usize, bool)>,
    limit: Option<Expression>,
    per_partition_limit: Option<Expression>,
}

/// Settings of one execution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Execution<'e> {
    pub(super) values: Values<'e>,
    pub(super) level: ConsistencyLevel,
    /// Sees all changes under a condition, in one partition.
    pub(super) serial: Option<SerialConsistency>,
    /// Most rows of a page; `None` for all.
    pub(super) page_size: Option<usize>,
    pub(super) paging_state: Option<&'e [u8]>,
}

impl SelectPlan {
    /// Looks up the names of a statement.
    pub(super) fn new(
        select: &Select,
        table: TableRef,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let named = table.named();
        let selection = Selection::new(select.items.as_deref(), select.is_json, &named, typing)?;
        let purpose = Purpose::Select { allows_filtering: select.allows_filtering };
        let restrictions = Restrictions::new(&select.relations, &named, purpose, typing)?;
        if select.is_distinct {
            check_distinct(&selection, &restrictions, &named)?;
        }
        let group_by = group_by(select, &restrictions, &named)?;
        let (is_reversed, sorts_by) = order(select, &restrictions, &named)?;
        let mut count = |term: &Option<Term>, name: &str| {
            let receiver = named.receiver(name, CqlType::Native(Native::Int));
            term.as_ref().map(|term| Expression::new(term, &receiver, typing)).transpose()
        };
        let per_partition_limit = count(&select.per_partition_limit, "[per_partition_limit]")?;
        let limit = count(&select.limit, "[limit]")?;
        if select.per_partition_limit.is_some() && select.is_distinct {
            let why = "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries";
            return Err(CqlError::invalid(why));
        }
        if select.per_partition_limit.is_some() && selection.is_aggregate && group_by.is_none() {
            let why = "PER PARTITION LIMIT is not allowed with aggregate queries.";
            return Err(CqlError::invalid(why));
        }
        Ok(Self {
            table,
            selection,
            restrictions,
            group_by,
            is_distinct: select.is_distinct,
            is_reversed,
            sorts_by,
            limit,
            per_partition_limit,
        })
    }

    /// Markers that give the partition key, in the order of its columns.
    pub(super) fn key_markers(&self) -> Option<Vec<u16>> {
        self.restrictions.key_markers()
    }

    /// Reads a page of the table.
    pub(super) async fn execute(
        &self,
        service: &Service,
        execution: &Execution<'_>,
        context: &RequestContext,
        into: Rows<'_>,
    ) -> Result<(), CqlError> {
        let table = &*self.table.table;
        let values = &execution.values;
        let Some((family_id, family)) = self.table.stored() else { return Ok(()) };
        let keys = self.restrictions.keys(table, values)?;
        let rows = self.restrictions.rows(table, values, true)?;
        let scans = matches!(keys, Keys::Tokens(..));
        let windows = rows.windows(table, family);
        // A scan reads one window of each partition.
        let narrows = !scans || windows.len() == 1;
        let whole = RowSet::all(table);
        let windows = if narrows { windows } else { whole.windows(table, family) };
        let mut checks = self.restrictions.checks(values, &rows)?;
        if !narrows {
            checks.extend(self.restrictions.clustering_checks(values)?);
        }
        let mut output = self.output(execution, checks, (context, into))?;
        if rows.is_empty() || output.is_done() {
            return output.finish();
        }
        let mut reader = Reader {
            service,
            plan: self,
            family: (family_id, family),
            level: execution.level,
            serial: execution.serial,
            windows: &windows,
            resumes: output.resumes.take(),
        };
        match keys {
            Keys::Tokens(..) if execution.serial.is_some() => {
                return Err(CqlError::invalid(SERIAL_OF_SEVERAL));
            }
            Keys::Several(keys) if execution.serial.is_some() && keys.len() > 1 => {
                return Err(CqlError::invalid(SERIAL_OF_SEVERAL));
            }
            Keys::Several(keys) => reader.read_keys(&keys, &mut output).await?,
            Keys::Tokens(start, end) => {
                let ranges = token_range(self.table.partitioner, start, end)?;
                // In a box, as its memory is much, and reads of single rows need none of it.
                Box::pin(reader.scan(ranges, &mut output)).await?;
            }
        }
        output.finish()
    }

    /// Filters rows that are in memory: those of a system table.
    pub(super) fn execute_on(
        &self,
        rows: &[Row<'_>],
        execution: &Execution<'_>,
        context: &RequestContext,
        into: Rows<'_>,
    ) -> Result<(), CqlError> {
        let checks = self.restrictions.all_checks(&execution.values)?;
        let mut output = self.output(execution, checks, (context, into))?;
        let first = output.resumes.take().map_or(0, |state| state.passed);
        for (at, row) in rows.iter().enumerate().skip(first) {
            output.begin_partition()?;
            output.passed = at;
            if !output.add(row, None)? {
                break;
            }
        }
        output.finish()
    }

    fn output<'e>(
        &'e self,
        execution: &'e Execution<'e>,
        checks: Vec<Check<'e>>,
        (memory, rows): (&'e RequestContext, Rows<'e>),
    ) -> Result<Output<'e>, CqlError> {
        let table = &*self.table.table;
        let values = &execution.values;
        let limit = |limit: &'e Option<Expression>, name| -> Result<usize, CqlError> {
            match limit {
                Some(limit) => count_of(limit, values, name),
                None => Ok(usize::MAX),
            }
        };
        let mut left = limit(&self.limit, "LIMIT")?;
        let per_partition = limit(&self.per_partition_limit, "PER PARTITION LIMIT")?;
        let per_partition = if self.is_distinct { 1 } else { per_partition };
        let resumes = execution.paging_state.map(PagingState::decode).transpose()?;
        let mut left_in_partition = per_partition;
        if let Some(state) = &resumes {
            left = left.min(state.left);
            left_in_partition = left_in_partition.min(state.left_in_partition);
        }
        let is_grouped = self.selection.is_aggregate || self.group_by.is_some();
        let sorts = !self.sorts_by.is_empty();
        Ok(Output {
            plan: self,
            context: Context { table, values, moment: values.moment },
            memory,
            checks,
            page_left: execution.page_size.filter(|_| !sorts).unwrap_or(usize::MAX),
            left,
            per_partition,
            left_in_partition,
            group: is_grouped.then(|| self.selection.group()),
            group_key: None,
            group_order: Vec::new(),
            sorted: Vec::new(),
            taken: rows.bytes(),
            rows,
            passed: 0,
            last: None,
            left_after_last: left_in_partition,
            ended_at: None,
            has_more: false,
            resumes,
        })
    }

    /// Whether the reader may stop after a few rows of each partition.
    fn wants_few(&self) -> bool {
        self.is_distinct || self.per_partition_limit.is_some()
    }
}

/// A number of LIMIT.
fn count_of(limit: &Expression, values: &Values<'_>, name: &str) -> Result<usize, CqlError> {
    let Some(value) = limit.evaluate(values)? else { return Ok(usize::MAX) };
    let value = value.ok_or_else(|| CqlError::invalid(format!("Invalid null value of {name}")))?;
    let count = value.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    count.ok_or_else(|| CqlError::invalid(format!("{name} must be strictly positive")))
}

fn check_distinct(
    selection: &Selection,
    restrictions: &Restrictions,
    named: &Named<'_>,
) -> Result<(), CqlError> {
    let table = named.table;
    let mut needed = vec![false; table.columns.len()];
    selection.needs(&mut needed);
    for (column, _) in needed.iter().enumerate().filter(|(_, needed)| **needed) {
        let column = &table.columns[column];
        if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Static) {
            return Err(CqlError::invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static \
                 columns (not {})",
                column.name
            )));
        }
    }
    // Rows of one partition follow each other in a scan, and are told apart by all of the key.
    let missing = (0..table.key_length()).find(|column| !needed[*column]);
    if let (Some(missing), false) = (missing, restrictions.names_keys()) {
        return Err(CqlError::invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            table.columns[missing].name
        )));
    }
    if restrictions.restricts_rows() {
        return Err(CqlError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or \
             static columns.",
        ));
    }
    Ok(())
}

/// The columns of GROUP BY: a beginning of the primary key, of which columns that are restricted to
/// one value may be left out.
fn group_by(
    select: &Select,
    restrictions: &Restrictions,
    named: &Named<'_>,
) -> Result<Option<Vec<usize>>, CqlError> {
    if select.group_by.is_empty() {
        return Ok(None);
    }
    let table = named.table;
    let equal: Vec<usize> = restrictions.equal_columns().collect();
    let mut next = 0;
    let mut columns = Vec::new();
    for name in &select.group_by {
        let column = named.column(name)?;
        let wrong = || {
            CqlError::invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {name}"
            ))
        };
        if column >= table.clustering().end {
            return Err(wrong());
        }
        while next < column && equal.contains(&next) {
            next += 1;
        }
        if column != next {
            return Err(CqlError::invalid(
                "Group by currently only support groups of columns following their declared order \
                 in the PRIMARY KEY",
            ));
        }
        columns.push(column);
        next += 1;
    }
    while next < table.key_length() && equal.contains(&next) {
        next += 1;
    }
    if next < table.key_length() {
        return Err(CqlError::invalid(
            "Group by is not supported on only a part of the partition key",
        ));
    }
    if select.is_distinct && columns.iter().any(|it| *it >= table.key_length()) {
        return Err(CqlError::invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ));
    }
    Ok(Some(columns))
}

/// ORDER BY: whether partitions are read backwards, and the columns to sort by if there are
/// several.
fn order(
    select: &Select,
    restrictions: &Restrictions,
    named: &Named<'_>,
) -> Result<(bool, Vec<(usize, bool)>), CqlError> {
    if select.order_by.is_empty() {
        return Ok((false, Vec::new()));
    }
    let table = named.table;
    if !restrictions.names_keys() {
        return Err(CqlError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let equal: Vec<usize> = restrictions.equal_columns().collect();
    let mut next = table.clustering().start;
    let mut reversed = None;
    let mut sorts_by = Vec::new();
    for (name, descends) in &select.order_by {
        let column = named.column(name)?;
        let ColumnKind::Clustering { is_descending } = table.columns[column].kind else {
            return Err(CqlError::invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, \
                 got {name}"
            )));
        };
        while next < column && equal.contains(&next) {
            next += 1;
        }
        if column != next {
            return Err(CqlError::invalid(
                "Order by currently only supports the ordering of columns following their declared \
                 order in the PRIMARY KEY",
            ));
        }
        next += 1;
        let turns = is_descending != *descends;
        if reversed.is_some_and(|it| it != turns) {
            return Err(CqlError::invalid("Unsupported order by relation"));
        }
        reversed = Some(turns);
        sorts_by.push((column, *descends));
    }
    let several = restrictions.has_key_list();
    Ok((reversed.unwrap_or(false), if several { sorts_by } else { Vec::new() }))
}

/// The ranges of a scan between two tokens.
fn token_range(
    partitioner: Partitioner,
    start: Option<(Vec<u8>, bool)>,
    end: Option<(Vec<u8>, bool)>,
) -> Result<RowRange, CqlError> {
    let token = |value: &[u8]| -> Result<Token, CqlError> {
        let text = match partitioner {
            // All of them are above the tokens of other partitioners that are below 0.
            Partitioner::Random if value.first() >= Some(&0x80) => "-1".to_owned(),
            Partitioner::Random => CqlType::Native(Native::Varint).render(value),
            _ => String::from_utf8_lossy(value).into_owned(),
        };
        partitioner.parse_token(&text).map_err(|error| CqlError::invalid(error.to_string()))
    };
    let bound = |end: Option<(Vec<u8>, bool)>| -> Result<Bound<Token>, CqlError> {
        Ok(match end {
            None => Bound::Unbounded,
            Some((value, true)) => Bound::Included(token(&value)?),
            Some((value, false)) => Bound::Excluded(token(&value)?),
        })
    };
    Ok(RowRange { start: bound(start)?, end: bound(end)? })
}

/// Reads partitions.
struct Reader<'r> {
    service: &'r Service,
    plan: &'r SelectPlan,
    family: (FamilyId, &'r ColumnFamilySchema),
    level: ConsistencyLevel,
    serial: Option<SerialConsistency>,
    windows: &'r [Window],
    /// The place where the last page ended, until it is reached.
    resumes: Option<PagingState>,
}

impl<'r> Reader<'r> {
    fn family(&self) -> &'r ColumnFamilySchema {
        self.family.1
    }

    async fn read_keys(
        &mut self,
        keys: &[RowKey],
        output: &mut Output<'_>,
    ) -> Result<(), CqlError> {
        let first = match &self.resumes {
            Some(state) => keys.iter().position(|key| key.as_bytes() == state.key).unwrap_or(0),
            None => 0,
        };
        for key in keys.iter().skip(first) {
            let after = self.resumes.take().and_then(|state| state.after);
            if after.is_none() {
                output.begin_partition()?;
            }
            if !self.read_partition(key, after, None, output).await? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the rows of a partition after a place. False if no more rows are wanted.
    async fn read_partition(
        &self,
        key: &RowKey,
        mut after: Option<Place>,
        statics: Option<Vec<Cell>>,
        output: &mut Output<'_>,
    ) -> Result<bool, CqlError> {
        let table = &*self.plan.table.table;
        let is_reversed = self.plan.is_reversed;
        let is_whole = after.is_none() && !self.plan.restrictions.restricts_rows();
        let mut statics = match statics {
            Some(statics) => statics,
            None => self.read_statics(key).await?,
        };
        let mut has_rows = after.is_some();
        for window in self.ordered_windows() {
            let mut at_a_time = 0;
            loop {
                // Names of which few are rows are read in ever longer lists.
                at_a_time = output.rows_wanted().max(at_a_time * 2).min(ROWS_AT_A_TIME);
                let places = (table, self.family());
                let slice = window.slice(places, after.as_ref(), is_reversed, at_a_time);
                let Some(slice) = slice else { break };
                let mut found = self.read(key, &slice).await?;
                // They ascend in each super column of an answer that has several.
                let turns = table.form == Form::Dense && table.in_super_name > 0;
                if slice.is_reversed() && slice.super_name().is_none() && turns {
                    reverse_columns(self.family(), &mut found.cells);
                }
                let end = window.end_of(table, &slice, &found, is_reversed);
                let own_statics = take_statics(table, &mut found.cells);
                if !own_statics.is_empty() {
                    statics = own_statics;
                }
                drop_hidden(table, &mut found.cells);
                let (family, cells) = (self.family(), &found.cells);
                let partition = Partition { table, family, key, statics: &statics, cells };
                let mut groups = partition.groups();
                if is_reversed && !slice.is_reversed() {
                    groups.reverse();
                }
                for group in groups {
                    let last = &cells[group.end - 1];
                    if after.as_ref().is_some_and(|after| !self.is_after(last, after)) {
                        continue;
                    }
                    has_rows = true;
                    let here = Some((key, Some(last)));
                    if !output.add(&partition.row(group), here)? || output.left_in_partition == 0 {
                        return Ok(!output.is_done());
                    }
                }
                if end.is_none() {
                    break;
                }
                after = end;
                tokio::task::yield_now().await;
            }
        }
        if !has_rows && is_whole && !statics.is_empty() {
            let family = self.family();
            let partition = Partition { table, family, key, statics: &statics, cells: &[] };
            output.add(&partition.static_row(), Some((key, None)))?;
        }
        Ok(!output.is_done())
    }

    fn ordered_windows(&self) -> impl Iterator<Item = &'r Window> + use<'r> {
        let (windows, last) = (self.windows, self.windows.len().saturating_sub(1));
        let is_reversed = self.plan.is_reversed;
        (0..windows.len()).map(move |at| &windows[if is_reversed { last - at } else { at }])
    }

    /// Whether the row of a cell is after a place.
    fn is_after(&self, cell: &Cell, place: &Place) -> bool {
        let family = self.family();
        let order = match self.plan.table.table.form {
            Form::Dense => family.compare(cell.place(), (&place.super_name, &place.name)),
            Form::Sparse { .. } => {
                family.comparator().compare(cell.super_name(), &place.super_name)
            }
        };
        directed(order, self.plan.is_reversed).is_gt()
    }

    async fn read_statics(&self, key: &RowKey) -> Result<Vec<Cell>, CqlError> {
        let table = &*self.plan.table.table;
        if table.statics().is_empty() {
            return Ok(Vec::new());
        }
        let slice = Slice::names(self.family(), None, [composite::STATIC]);
        let mut cells = self.read(key, &slice).await?.cells;
        Ok(take_statics(table, &mut cells))
    }

    async fn read(&self, key: &RowKey, slice: &Slice) -> Result<RowSlice, CqlError> {
        let mut request = self.service.request();
        let query = RowQuery { family: self.family.0, key, slice };
        if let Some(level) = self.serial {
            return Ok(Box::pin(self.service.read_serial(query, level, &mut request)).await?);
        }
        // Pinned here: moving a future copies room for all its states.
        let read = pin!(self.service.read(query, self.level, &mut request));
        Ok(self.service.in_time(read).await?)
    }

    /// Reads the partitions of a range of tokens.
    async fn scan(&mut self, mut range: RowRange, output: &mut Output<'_>) -> Result<(), CqlError> {
        let partitioner = self.plan.table.partitioner;
        let mut passed = None;
        if let Some(state) = self.resumes.take() {
            let key = RowKey::new(&state.key);
            if let Some(after) = state.after
                && !self.read_partition(&key, Some(after), None, output).await?
            {
                return Ok(());
            }
            let key = partitioner.decorate(key);
            range.start = Bound::Included(key.token().clone());
            passed = Some(key);
        }
        let table = &*self.plan.table.table;
        let Some(window) = self.windows.first() else { return Ok(()) };
        let places = (table, self.family());
        let few = if self.plan.wants_few() { 2 } else { ROWS_OF_SCANNED };
        let rows = output.rows_wanted().min(few);
        // A partition that has none of the first names may have others.
        let limit = if window.is_range() { rows } else { usize::MAX };
        let slice = window.slice(places, None, self.plan.is_reversed, limit);
        let Some(slice) = slice else { return Ok(()) };
        // The fewer rows the first partitions have, the more are read at a time.
        let most = output.rows_wanted().min(PARTITIONS_AT_A_TIME);
        let mut partitions = if rows > 2 { most.min(PARTITIONS_AT_FIRST) } else { most };
        let mut pages = self.service.scan((self.family.0, &slice), self.level, (range, partitions));
        loop {
            let context = self.service.request();
            let next = pages.next_page(&context);
            let next = self.service.in_time(async { Ok(next.await?) }).await?;
            let Some((page, _memory)) = next else { return Ok(()) };
            for (key, mut found) in page {
                if let Some(before) = &passed
                    && partitioner.decorate(key.clone()) <= *before
                {
                    continue;
                }
                passed = None;
                let is_cut = found.count >= slice.limit();
                let end = found.cells.last().map(Place::of);
                let own_statics = take_statics(table, &mut found.cells);
                drop_hidden(table, &mut found.cells);
                if found.cells.is_empty() && own_statics.is_empty() && !is_cut {
                    continue;
                }
                output.begin_partition()?;
                let statics = if own_statics.is_empty() && !window.is_open() {
                    self.read_statics(&key).await?
                } else {
                    own_statics
                };
                // Cells of dropped columns may be all that the first rows have.
                let after = end.filter(|_| !found.cells.is_empty());
                let is_unknown = is_cut && after.is_none();
                if !is_unknown && !self.add_scanned(&key, &statics, &found.cells, output)? {
                    return Ok(());
                }
                let goes_on = is_cut && output.left_in_partition > 0;
                if goes_on && !self.read_partition(&key, after, Some(statics), output).await? {
                    return Ok(());
                }
            }
            partitions = most.min(partitions * PARTITIONS_AT_FIRST);
            pages.set_page_rows(partitions);
            tokio::task::yield_now().await;
        }
    }

    /// Adds the first rows of a partition. False if no more rows are wanted.
    fn add_scanned(
        &self,
        key: &RowKey,
        statics: &[Cell],
        cells: &[Cell],
        output: &mut Output<'_>,
    ) -> Result<bool, CqlError> {
        let (table, family) = (&*self.plan.table.table, self.family());
        let partition = Partition { table, family, key, statics, cells };
        let groups = partition.groups();
        if groups.is_empty() && !statics.is_empty() && !self.plan.restrictions.restricts_rows() {
            output.add(&partition.static_row(), Some((key, None)))?;
        }
        for group in groups {
            let last = &cells[group.end - 1];
            if !output.add(&partition.row(group), Some((key, Some(last))))? {
                break;
            }
            if output.left_in_partition == 0 {
                break;
            }
        }
        Ok(!output.is_done())
    }
}

/// Turns the columns of each super column round.
fn reverse_columns(family: &ColumnFamilySchema, cells: &mut [Cell]) {
    let is_same = |a: &Cell, b: &Cell| family.is_one_super_column(a.super_name(), b.super_name());
    cells.chunk_by_mut(is_same).for_each(<[Cell]>::reverse);
}

/// Takes the cells of the static columns, which come before all others, from those of a partition.
fn take_statics(table: &Table, cells: &mut AnswerCells) -> Vec<Cell> {
    if table.statics().is_empty() {
        return Vec::new();
    }
    // They come last in a reversed answer.
    let first = cells.iter().position(is_static).unwrap_or(cells.len());
    let count = count_statics(table, &cells[first..]);
    let mut statics: AnswerCells = cells.drain(first..first + count).collect();
    drop_hidden(table, &mut statics);
    statics.into_vec()
}

/// The number of the first cells that are of static columns.
pub(super) fn count_statics(table: &Table, cells: &[Cell]) -> usize {
    if table.statics().is_empty() {
        return 0;
    }
    cells.iter().take_while(|cell| is_static(cell)).count()
}

fn is_static(cell: &Cell) -> bool {
    cell.super_name() == composite::STATIC
}
