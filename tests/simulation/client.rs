//! Simulated clients: what they ask for, by chance, and how that is put to a coordinator.

use crate::cluster::{KEYSPACE, Setup, family_id, key, row_of_key};
use crate::history::{
    COLUMNS, Call, Change, Family, GROUPS, Operation, Outcome, Place, ROWS, Rank, RowAnswer,
    RowChange, Selection,
};
use alexandra::coordinator::{
    BatchError, ConsistencyLevel, Coordinator, CoordinatorError, Row, RowQuery, ScanQuery,
};
use alexandra::model::cell::Cell;
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::Schema;
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::ring::RowRange;
use std::ops::Bound;
use std::sync::Arc;

/// Invents calls.
#[derive(Debug)]
pub(crate) struct Inventor {
    rng: fastrand::Rng,
    writes: u64,
    timestamp: i64,
    /// Whether rows are only read as a whole.
    whole_rows: bool,
}

impl Inventor {
    pub(crate) fn new(seed: u64, whole_rows: bool) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), writes: 0, timestamp: 1000, whole_rows }
    }

    pub(crate) fn invent(&mut self, client: usize, node: usize) -> Call {
        let (operation, level) = if self.rng.u32(..100) < 50 {
            (self.write(), self.write_level())
        } else {
            (self.read(), self.read_level())
        };
        Call { client, node, level, operation }
    }

    fn write_level(&mut self) -> ConsistencyLevel {
        match self.rng.u32(..100) {
            0..55 => ConsistencyLevel::Quorum,
            55..80 => ConsistencyLevel::One,
            80..90 => ConsistencyLevel::All,
            90..96 => ConsistencyLevel::Any,
            _ => ConsistencyLevel::Zero,
        }
    }

    fn read_level(&mut self) -> ConsistencyLevel {
        match self.rng.u32(..100) {
            0..65 => ConsistencyLevel::Quorum,
            65..90 => ConsistencyLevel::One,
            _ => ConsistencyLevel::All,
        }
    }

    fn family(&mut self) -> Family {
        if self.rng.u32(..100) < 70 { Family::Standard } else { Family::Super }
    }

    /// A few rows, each once.
    fn rows(&mut self) -> Vec<u8> {
        let count = if self.rng.u32(..100) < 70 { 1 } else { self.rng.usize(2..4) };
        let mut rows: Vec<u8> = (0..ROWS).collect();
        self.rng.shuffle(&mut rows);
        rows.truncate(count);
        rows
    }

    /// Later ones are mostly greater, as with clients whose clocks differ, and now and then alike.
    fn next_timestamp(&mut self) -> i64 {
        if self.rng.u32(..100) >= 4 {
            self.timestamp += 10;
        }
        self.timestamp + if self.rng.u32(..10) == 0 { self.rng.i64(-10..10) * 10 } else { 0 }
    }

    fn write(&mut self) -> Operation {
        let family = self.family();
        let rows = self.rows();
        Operation::Write(rows.into_iter().map(|row| self.row_change(family, row)).collect())
    }

    fn row_change(&mut self, family: Family, row: u8) -> RowChange {
        let timestamp = self.next_timestamp();
        let group = if family == Family::Super { self.rng.u8(..GROUPS) } else { 0 };
        let column = self.rng.u8(..COLUMNS);
        let changes = match self.rng.u32(..100) {
            0..8 => vec![Change::DeleteColumn { group, column, timestamp }],
            8..12 => vec![Change::DeleteRow { timestamp }],
            12..18 if family == Family::Super => vec![Change::DeleteGroup { group, timestamp }],
            _ => self.inserts(group, timestamp),
        };
        RowChange { family, row, changes }
    }

    fn inserts(&mut self, group: u8, timestamp: i64) -> Vec<Change> {
        let mut columns: Vec<u8> = (0..COLUMNS).collect();
        self.rng.shuffle(&mut columns);
        columns.truncate(self.rng.usize(1..4));
        let insert = |column| {
            self.writes += 1;
            // Unique, and in no order, so that ties are decided by chance.
            let value = (self.rng.u64(..1 << 20) << 32) | self.writes;
            Change::Insert { group, column, rank: Rank { timestamp, value: Some(value) } }
        };
        columns.into_iter().map(insert).collect()
    }

    fn read(&mut self) -> Operation {
        let family = self.family();
        match self.rng.u32(..100) {
            0..10 => {
                let is_group = family == Family::Super && self.rng.bool();
                let group = is_group.then(|| self.rng.u8(..GROUPS));
                Operation::Count { family, row: self.rng.u8(..ROWS), group }
            }
            10..25 => {
                let behind = self.rng.bool().then(|| self.rng.u8(..ROWS));
                let (wraps, selection) = (self.rng.bool(), self.selection(family));
                let max_rows = if self.rng.bool() { 100 } else { self.rng.usize(1..5) };
                Operation::Scan { family, behind, wraps, max_rows, selection }
            }
            _ => {
                let rows = self.rows();
                Operation::Read { family, rows, selection: self.selection(family) }
            }
        }
    }

    fn selection(&mut self, family: Family) -> Selection {
        if self.whole_rows || self.rng.u32(..100) < 40 {
            return Selection::Whole;
        }
        let all = if family == Family::Super { GROUPS } else { COLUMNS };
        match self.rng.u32(..10) {
            0..4 => {
                let mut names: Vec<u8> = (0..all).collect();
                self.rng.shuffle(&mut names);
                names.truncate(self.rng.usize(1..3));
                names.sort_unstable();
                Selection::Names(names)
            }
            4..6 if family == Family::Super => Selection::Group(self.rng.u8(..GROUPS)),
            6..8 if family == Family::Super => self.range(None, GROUPS),
            _ if family == Family::Super => {
                let group = self.rng.u8(..GROUPS);
                self.range(Some(group), COLUMNS)
            }
            _ => self.range(None, COLUMNS),
        }
    }

    /// A range of so many names.
    fn range(&mut self, group: Option<u8>, names: u8) -> Selection {
        let bounds = [self.rng.u8(..names), self.rng.u8(..names)];
        let (least, greatest) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
        let reversed = self.rng.bool();
        let (start, finish) = if reversed { (greatest, least) } else { (least, greatest) };
        let mut bound = |it| self.rng.bool().then_some(it);
        let (start, finish) = (bound(start), bound(finish));
        let limit = self.rng.usize(1..usize::from(names));
        Selection::Range { group, start, finish, reversed, limit }
    }
}

/// Makes a call. Deletions get the time of the coordinator's clock, in seconds.
pub(crate) async fn call(
    coordinator: Arc<Coordinator>,
    setup: Arc<Setup>,
    call: Call,
    now_secs: i32,
) -> Outcome {
    let outcome = match &call.operation {
        Operation::Write(rows) => {
            let rows: Vec<RowMutation> =
                rows.iter().map(|row| mutation(&setup.schema, row, now_secs)).collect();
            let written = if call.is_batch() {
                coordinator.write_batch(&rows, call.level).await.map_err(|error| match error {
                    BatchError::NotKept(error) | BatchError::NotWritten(error) => error,
                })
            } else {
                coordinator.write(&rows, call.level).await
            };
            written.map(|()| Outcome::Written)
        }
        Operation::Read { family, rows, selection } => {
            read(&coordinator, &setup, call.level, *family, rows, selection).await
        }
        Operation::Count { family, row, group } => {
            let group = group.map(group_name);
            let (id, row) = (family_id(*family), RowKey::from(key(*row).as_str()));
            let request = coordinator.request();
            let count = coordinator.count(id, &row, group.as_deref(), call.level, &request).await;
            count.map(Outcome::Counted)
        }
        Operation::Scan { family, behind, wraps, max_rows, selection } => {
            let behind = behind.map(|row| setup.row_token(row));
            let range = |start: Option<Bound<_>>, end: Option<Bound<_>>| RowRange {
                start: start.unwrap_or(Bound::Unbounded),
                end: end.unwrap_or(Bound::Unbounded),
            };
            let mut ranges = vec![range(behind.clone().map(Bound::Excluded), None)];
            let rest = behind.filter(|_| *wraps).map(|token| Some(Bound::Included(token)));
            ranges.extend(rest.map(|end| range(None, end)));
            let slice = slice(&setup, *family, selection);
            let query = ScanQuery {
                family: family_id(*family),
                slice: &slice,
                level: call.level,
                max_rows: *max_rows,
                page_rows: *max_rows,
            };
            let rows = scan(&coordinator, query, ranges).await;
            rows.map(|rows| answers(*family, rows))
        }
    };
    outcome.unwrap_or_else(|error| match error {
        CoordinatorError::Unavailable(_) => Outcome::Unavailable,
        CoordinatorError::TimedOut(_) => Outcome::TimedOut,
        other => Outcome::Failed(other.to_string()),
    })
}

async fn scan(
    coordinator: &Arc<Coordinator>,
    query: ScanQuery<'_>,
    ranges: Vec<RowRange>,
) -> Result<Vec<Row>, CoordinatorError> {
    let (request, mut rows) = (coordinator.request(), Vec::new());
    let mut scan = coordinator.scan(query, ranges);
    while let Some((page, _)) = scan.next_page(&request).await? {
        rows.extend(page);
    }
    Ok(rows)
}

async fn read(
    coordinator: &Arc<Coordinator>,
    setup: &Setup,
    level: ConsistencyLevel,
    family: Family,
    rows: &[u8],
    selection: &Selection,
) -> Result<Outcome, CoordinatorError> {
    let (slice, mut request) = (slice(setup, family, selection), coordinator.request());
    let keys: Vec<RowKey> = rows.iter().map(|row| RowKey::from(key(*row).as_str())).collect();
    let id = family_id(family);
    let found = match &keys[..] {
        [only] => {
            let row = RowQuery { family: id, key: only, slice: &slice };
            vec![coordinator.read(row, level, &mut request).await?]
        }
        keys => coordinator.read_many(id, keys, &slice, level, &mut request).await?,
    };
    Ok(answers(family, keys.into_iter().zip(found)))
}

fn slice(setup: &Setup, family: Family, selection: &Selection) -> Slice {
    let schema = setup.schema.family(family_id(family));
    let name = |number: u8| match family {
        Family::Standard => column_name(number),
        Family::Super => group_name(number),
    };
    match selection {
        Selection::Whole => Slice::all(None),
        Selection::Group(group) => Slice::all(Some(&group_name(*group))),
        Selection::Names(names) => {
            let names: Vec<Vec<u8>> = names.iter().map(|it| name(*it)).collect();
            Slice::names(schema, None, names.iter().map(Vec::as_slice))
        }
        Selection::Range { group, start, finish, reversed, limit } => {
            let name = |it| if group.is_some() { column_name(it) } else { name(it) };
            let bound = |it: Option<u8>| it.map(name).unwrap_or_default();
            let group = group.map(group_name);
            Slice::range(group.as_deref(), &bound(*start), &bound(*finish), *reversed, *limit)
        }
    }
}

/// The mutation of a row.
pub(crate) fn mutation(schema: &Schema, row: &RowChange, now_secs: i32) -> RowMutation {
    let mut builder = MutationBuilder::new(schema, KEYSPACE, key(row.row).as_bytes());
    builder.family(family_id(row.family));
    for change in &row.changes {
        let super_name = |group: u8| match row.family {
            Family::Standard => Vec::new(),
            Family::Super => group_name(group),
        };
        let deletion = |timestamp: i64| Deletion::at(timestamp, now_secs);
        match *change {
            Change::Insert { group, column, rank } => {
                let value = format!("{:020}", rank.value.unwrap_or(0));
                let place = (super_name(group), column_name(column));
                builder.insert((&place.0, &place.1), value.as_bytes(), rank.timestamp);
            }
            Change::DeleteColumn { group, column, timestamp } => {
                let place = (super_name(group), column_name(column));
                builder.delete_column((&place.0, &place.1), deletion(timestamp));
            }
            Change::DeleteGroup { group, timestamp } => {
                builder.delete_super_column(&group_name(group), deletion(timestamp));
            }
            Change::DeleteRow { timestamp } => {
                builder.delete_row(deletion(timestamp));
            }
        }
    }
    builder.finish()
}

fn column_name(column: u8) -> Vec<u8> {
    format!("c{column}").into_bytes()
}

fn group_name(group: u8) -> Vec<u8> {
    format!("s{group}").into_bytes()
}

fn answers(family: Family, rows: impl IntoIterator<Item = (RowKey, RowSlice)>) -> Outcome {
    let mut answers = Vec::new();
    for (key, slice) in rows {
        match answer(family, &key, &slice) {
            Some(answer) => answers.push(answer),
            None => return Outcome::Nonsense(format!("{key}: {:?}", slice.cells)),
        }
    }
    Outcome::Rows(answers)
}

fn answer(family: Family, key: &RowKey, slice: &RowSlice) -> Option<RowAnswer> {
    let row = row_of_key(key.as_bytes())?;
    let cells = slice.cells.iter().map(|cell| Some((place(family, row, cell)?, rank(cell)?)));
    Some((row, cells.collect::<Option<_>>()?))
}

fn place(family: Family, row: u8, cell: &Cell) -> Option<Place> {
    let number = |name: &[u8], letter: u8, count: u8| match name {
        [first, digit] if *first == letter => {
            Some(digit.wrapping_sub(b'0')).filter(|it| *it < count)
        }
        _ => None,
    };
    let group = match family {
        Family::Standard => cell.super_name().is_empty().then_some(0)?,
        Family::Super => number(cell.super_name(), b's', GROUPS)?,
    };
    Some(Place { family, row, group, column: number(cell.name(), b'c', COLUMNS)? })
}

fn rank(cell: &Cell) -> Option<Rank> {
    let value = std::str::from_utf8(cell.value()).ok()?.parse().ok()?;
    Some(Rank { timestamp: cell.timestamp(), value: Some(value) })
}
