//! Rows for people: a page at a time, read as a client reads them at ONE, with names and values as
//! texts of their types.

use super::access::{self, Reader};
use super::context::AdminContext;
use super::error::AdminError;
use super::request::find_family;
use crate::base::audit;
use crate::base::hex::hex;
use crate::model::cell::Cell;
use crate::model::comparator::{Comparator, composite, shown_bytes};
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::model::slice::{RowSlice, Slice};
use crate::model::table::Table;
use crate::model::types::{CqlType, Native};
use crate::ring::RowRange;
use crate::service::{Access, ConsistencyLevel, RowQuery, ServiceError, Session};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::sync::Arc;

/// Rows of a page, or columns of one row, unless the request says how many.
const USUAL: usize = 50;

/// Most of them.
const MOST: usize = 500;

/// Columns that are shown of each row of a page.
const FIRST_COLUMNS: usize = 4;

/// Characters of a text that are shown.
const MOST_CHARS: usize = 4096;

/// Rows that are looked at for a page: of most of them nothing may be visible.
const MOST_LOOKED_AT: usize = 10_000;

/// Stands for a key where keys are not shown.
pub(super) const HIDDEN: &str = "(shown with the token of AdminToken)";

/// Choice of rows in an address or a body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsChoice {
    keyspace: String,
    column_family: String,
    /// One row instead of all.
    key: Option<String>,
    /// The first row.
    start_key: Option<String>,
    /// Columns of a super column instead of those of the row.
    super_column: Option<String>,
    /// The first column or super column of the row.
    start: Option<String>,
    /// Whether keys and names are in hexadecimal digits, instead of text of their types.
    #[serde(default)]
    hex: bool,
    /// Most rows, or of one row most columns.
    limit: Option<usize>,
}

/// A page of rows, or one row with a page of its columns.
#[derive(Debug, Serialize)]
pub(super) struct RowsPage {
    rows: Vec<ShownRow>,
    /// Where the next page starts, in hexadecimal digits: a key, or of one row a name.
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShownRow {
    key: ShownName,
    columns: Vec<ShownColumn>,
    /// Whether it has further columns.
    more: bool,
}

/// A name or a key.
#[derive(Debug, Serialize)]
struct ShownName {
    text: String,
    hex: String,
    /// Time of a time UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
}

/// A column, or a super column, which has no value but a number of columns.
#[derive(Debug, Serialize)]
struct ShownColumn {
    name: ShownName,
    value: Option<ShownValue>,
    timestamp: Option<i64>,
    /// Second since the Unix epoch in which it is there no more.
    expires: Option<i64>,
    columns: Option<usize>,
}

#[derive(Debug, Serialize)]
struct ShownValue {
    text: String,
    bytes: usize,
    /// Whether the text is only the beginning.
    is_cut: bool,
}

impl AdminContext {
    /// Returns rows that the reader may see, and records the read in the audit log.
    pub(super) async fn rows(
        &self,
        (reader, peer): (Reader, IpAddr),
        choice: &RowsChoice,
    ) -> Result<RowsPage, AdminError> {
        let who = self.admit(reader, peer, &choice.keyspace).await?;
        let schema = self.storage.schema();
        let id = find_family(schema, &choice.keyspace, &choice.column_family)?;
        let family = Arc::clone(schema.family(id));
        let query = Query::new(&family, choice)?;
        let page = match &query.key {
            Some(key) => self.columns(id, &query, key).await,
            None => self.page(id, &query).await,
        };
        let number = page.as_ref().map_or(0, |page| page.rows.len());
        let rows =
            query.key.as_ref().map_or_else(|| format!("{number} rows"), |key| format!("row {key}"));
        let (keyspace, name) = (&family.keyspace, family.table_name());
        log::info!(target: audit::TARGET, "{who} of {peer} reads {rows} of {keyspace}.{name}");
        Ok(page?)
    }

    /// Whether the sender of a request may see keys of rows of all keyspaces.
    pub(super) fn shows_keys(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        match access::reader(&self.settings.admin, peer, headers) {
            Ok(Reader::Token) => true,
            Ok(Reader::Machine) => !self.service.requires_login(),
            Ok(Reader::Login { .. }) | Err(_) => false,
        }
    }

    /// Fails unless the reader may see rows of a keyspace; tells who it is.
    async fn admit(
        &self,
        reader: Reader,
        peer: IpAddr,
        keyspace: &str,
    ) -> Result<String, AdminError> {
        let service = &self.service;
        match reader {
            Reader::Token => Ok("the holder of AdminToken".to_owned()),
            Reader::Machine if !service.requires_login() => Ok("an operator".to_owned()),
            Reader::Login { user, password } if service.requires_login() => {
                let session = Session::from(SocketAddr::new(peer, 0));
                let who = format!("user {user:?}");
                let credentials = [("username", user), ("password", password)];
                let credentials = credentials.map(|(name, value)| (name.to_owned(), value));
                service.login(&session, keyspace, BTreeMap::from(credentials)).await?;
                service.check_access(&session, keyspace, Access::Read)?;
                Ok(who)
            }
            Reader::Machine => Err(unauthorized("log in as a client does, by a Basic login")),
            Reader::Login { .. } => Err(unauthorized(
                "clients need no login here, so that none can be checked: use the token of \
                 AdminToken",
            )),
        }
    }

    /// A page of the columns of one row.
    async fn columns(
        &self,
        id: FamilyId,
        query: &Query<'_>,
        key: &RowKey,
    ) -> Result<RowsPage, ServiceError> {
        let slice = query.slice(query.limit + 1);
        let mut context = self.service.request();
        let row = RowQuery { family: id, key, slice: &slice };
        let read = self.service.read(row, ConsistencyLevel::One, &mut context);
        let row = self.service.in_time(read).await?;
        let (mut columns, next) = query.columns(&row, query.limit);
        let next = next.map(|column| column.name.hex);
        columns.truncate(query.limit);
        let rows = (!columns.is_empty()).then(|| ShownRow {
            key: query.shown_key(key),
            columns,
            more: next.is_some(),
        });
        Ok(RowsPage { rows: rows.into_iter().collect(), next })
    }

    /// A page of rows with their first columns.
    async fn page(&self, id: FamilyId, query: &Query<'_>) -> Result<RowsPage, ServiceError> {
        let slice = query.slice(FIRST_COLUMNS + 1);
        let partitioner = self.service.ring_partitioner();
        let start = query.start_key.as_ref().map(|key| partitioner.token(key.as_bytes()));
        let range = RowRange {
            start: start.map_or(Bound::Unbounded, Bound::Included),
            end: Bound::Unbounded,
        };
        let columns = (id, &slice);
        let mut pages = self.service.scan(columns, ConsistencyLevel::One, (range, query.limit + 1));
        let mut page = RowsPage { rows: Vec::new(), next: None };
        let mut looked_at = 0;
        while looked_at < MOST_LOOKED_AT {
            let context = self.service.request();
            let read = self.service.in_time(async { Ok(pages.next_page(&context).await?) });
            let Some((rows, _memory)) = read.await? else {
                page.next = None;
                break;
            };
            looked_at += rows.len();
            for (key, row) in rows {
                // Where to go on if nothing is visible before there is an end.
                page.next = Some(hex(key.as_bytes()));
                if row.count == 0 {
                    continue;
                }
                if page.rows.len() == query.limit {
                    return Ok(page);
                }
                let (columns, more) = query.columns(&row, FIRST_COLUMNS);
                let more = more.is_some();
                page.rows.push(ShownRow { key: query.shown_key(&key), columns, more });
            }
        }
        Ok(page)
    }
}

fn unauthorized(why: &str) -> AdminError {
    AdminError::new(
        StatusCode::UNAUTHORIZED,
        format_args!("rows are not shown to everybody: {why}"),
    )
}

/// A checked choice.
#[derive(Debug)]
struct Query<'f> {
    family: &'f ColumnFamilySchema,
    keys: Keys,
    key: Option<RowKey>,
    start_key: Option<RowKey>,
    super_name: Option<Vec<u8>>,
    start: Vec<u8>,
    limit: usize,
}

impl<'f> Query<'f> {
    fn new(family: &'f ColumnFamilySchema, choice: &RowsChoice) -> Result<Self, AdminError> {
        let keys = Keys::of(&family.table);
        let key = |text: &String| {
            let parsed = if choice.hex { parse_hex(text) } else { keys.parse(text) };
            let no_key = |why| AdminError::bad_request(format_args!("{text:?} is no key: {why}"));
            parsed.map(|bytes| RowKey::new(&bytes)).map_err(no_key)
        };
        let name = |comparator: &Comparator, text: &String| {
            let parsed = if choice.hex { parse_hex(text) } else { comparator.parse(text) };
            let check = |bytes: Vec<u8>| match comparator.validate(&bytes) {
                Ok(()) => Ok(bytes),
                Err(error) => Err(error.to_string()),
            };
            let no_name = |why| AdminError::bad_request(format_args!("{text:?} is no name: {why}"));
            parsed.and_then(check).map_err(no_name)
        };
        if choice.super_column.is_some() && !family.is_super() {
            let text = format!("{} has no super columns", family.table_name());
            return Err(AdminError::bad_request(text));
        }
        if choice.key.is_none() && (choice.super_column.is_some() || choice.start.is_some()) {
            let text = "super_column and start are parts of a row: say by key which";
            return Err(AdminError::bad_request(text));
        }
        let super_name = choice.super_column.as_ref();
        let super_name = super_name.map(|text| name(family.comparator(), text)).transpose()?;
        let below = family.comparator_below(super_name.as_deref());
        let start = choice.start.as_ref().map(|text| name(below, text)).transpose()?;
        Ok(Self {
            key: choice.key.as_ref().map(key).transpose()?,
            start_key: choice.start_key.as_ref().map(key).transpose()?,
            start: start.unwrap_or_default(),
            limit: choice.limit.unwrap_or(USUAL).clamp(1, MOST),
            super_name,
            family,
            keys,
        })
    }

    fn slice(&self, limit: usize) -> Slice {
        Slice::range(self.super_name.as_deref(), &self.start, b"", false, limit)
    }

    /// The first columns of a row, at most `limit`, and the one after them.
    fn columns(&self, row: &RowSlice, limit: usize) -> (Vec<ShownColumn>, Option<ShownColumn>) {
        let is_grouped = self.family.is_super() && self.super_name.is_none();
        let mut columns: Vec<ShownColumn> = if is_grouped {
            let groups = row
                .cells
                .chunk_by(|a, b| self.family.is_one_super_column(a.super_name(), b.super_name()));
            let shown = |group: &[Cell]| self.super_column(group);
            groups.take(limit + 1).filter_map(shown).collect()
        } else {
            row.cells.iter().take(limit + 1).map(|cell| self.column(cell)).collect()
        };
        let next = if columns.len() > limit { columns.pop() } else { None };
        (columns, next)
    }

    fn super_column(&self, cells: &[Cell]) -> Option<ShownColumn> {
        let name = shown_name(self.family.comparator(), cells.first()?.super_name());
        let columns = Some(cells.len());
        Some(ShownColumn { name, value: None, timestamp: None, expires: None, columns })
    }

    fn column(&self, cell: &Cell) -> ShownColumn {
        let (family, table) = (self.family, &self.family.table);
        let comparator = family.subcolumn_comparator().unwrap_or(family.comparator());
        let mut name = shown_name(comparator, cell.name());
        if let Some(shown) = table.shown_name(cell.name()) {
            name.text = cut(shown).0;
        }
        let value = cell.value();
        let (text, is_cut) = cut(shown(table.value_type(cell.name()), value));
        ShownColumn {
            name,
            value: Some(ShownValue { text, bytes: value.len(), is_cut }),
            timestamp: Some(cell.timestamp()),
            expires: cell.expiry().map(|expiry| expiry.at),
            columns: None,
        }
    }

    fn shown_key(&self, key: &RowKey) -> ShownName {
        let text = self.keys.show(key);
        ShownName { text, hex: hex(key.as_bytes()), time: None }
    }
}

/// Texts of the keys of a table.
#[derive(Debug)]
pub(super) struct Keys {
    of_type: CqlType,
    /// Form of keys of several parts.
    composite: Option<Comparator>,
}

impl Keys {
    pub(super) fn of(table: &Table) -> Self {
        Self { of_type: table.key_type(), composite: table.composite_keys() }
    }

    pub(super) fn show(&self, key: &RowKey) -> String {
        let bytes = key.as_bytes();
        let composite = self.composite.as_ref().map(|composite| composite.show(bytes));
        // Parts that have colons themselves are not told apart.
        let composite = composite.filter(|text| self.parse(text).is_ok_and(|it| it == bytes));
        cut(composite.unwrap_or_else(|| shown(Some(&self.of_type), bytes))).0
    }

    /// The bytes of a key: those of bytes are written as they are shown, or else as text, as in the
    /// command line.
    fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        let is_blob = self.of_type == CqlType::Native(Native::Blob);
        let digits = text.strip_prefix("0x").filter(|_| is_blob);
        if let Some(Ok(key)) = digits.map(parse_hex) {
            return Ok(key);
        }
        match &self.composite {
            Some(composite) => {
                let (key, wanted) = (composite.parse(text)?, composite.components().len());
                let is_whole = composite::components(&key).count() == wanted;
                is_whole.then_some(key).ok_or_else(|| format!("it needs {wanted} parts, as in a:b"))
            }
            None if is_blob => Ok(text.into()),
            None => self.of_type.from_string(text).map_err(|error| error.to_string()),
        }
    }
}

fn shown_name(comparator: &Comparator, name: &[u8]) -> ShownName {
    let (text, _) = cut(comparator.show(name));
    ShownName { text, hex: hex(name), time: comparator.time_of(name) }
}

fn shown(of_type: Option<&CqlType>, value: &[u8]) -> String {
    match of_type.filter(|it| **it != CqlType::Native(Native::Blob)) {
        Some(of_type) => of_type.show(value),
        None => shown_bytes(value),
    }
}

/// The beginning of a text, and whether something is missing.
fn cut(mut text: String) -> (String, bool) {
    let end = text.char_indices().nth(MOST_CHARS).map(|(at, _)| at);
    if let Some(end) = end {
        text.truncate(end);
    }
    (text, end.is_some())
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, String> {
    CqlType::Native(Native::Blob).from_string(digits).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::table::{Column, ColumnKind};

    #[test]
    fn a_key_is_found_as_it_is_shown() {
        let keys = |columns: &[Native]| {
            let column = |it: &Native| Column::new("k", (*it).into(), ColumnKind::PartitionKey);
            Keys::of(&Table::of_columns(columns.iter().map(column).collect(), false))
        };
        let blob = keys(&[Native::Blob]);
        assert_eq!(blob.parse("0x00fF").unwrap(), [0, 0xFF]);
        assert_eq!(blob.parse("0x00f").unwrap(), b"0x00f");
        assert_eq!(blob.parse("00ff").unwrap(), b"00ff");
        let parts = keys(&[Native::Text, Native::Int]);
        let key = |text: &[u8]| composite::encode([text, &[0, 0, 0, 7]], 0);
        let shown = [(&b"a"[..], "a:7"), (b"0x", "0x:7"), (b"", ":7"), (b"a:b", "0x0003613a6200")];
        for (text, expected) in shown {
            let bytes = key(text);
            let shown = parts.show(&RowKey::new(&bytes));
            assert!(shown.starts_with(expected), "{shown}");
            assert_eq!(parts.parse(&shown).unwrap(), bytes);
        }
        assert_eq!(parts.parse("a").unwrap_err(), "it needs 2 parts, as in a:b");
        assert!(parts.parse("a:b").is_err());
    }
}
