//! The answer to a request, written straight into the buffer of its connection.

use super::error::CqlError;
use super::events::SchemaChange;
use super::frame::{self, HEAD_BYTES, Head, LONGEST_BODY, VERSIONS, flag, opcode};
use super::wire::{put_bytes, put_int, put_short, put_short_bytes, put_string, put_string_list};

/// Kinds of RESULT. The numbers are part of the protocol: never change them.
const VOID: i32 = 1;
const ROWS: i32 = 2;
const SET_KEYSPACE: i32 = 3;
const PREPARED: i32 = 4;
const SCHEMA_CHANGE: i32 = 5;

/// Flags of metadata.
const ONE_TABLE: i32 = 1;
const MORE_PAGES: i32 = 2;
const NO_METADATA: i32 = 4;

/// The version of CQL.
const CQL_VERSION: &str = "3.4.4";

/// The name of the only compression.
pub(super) const COMPRESSION: &str = "lz4";

/// Columns of a result, or markers of a statement, in the form of the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    count: i32,
    /// Keyspace and table, if all are of one.
    table: Option<Vec<u8>>,
    encoded: Vec<u8>,
}

impl Columns {
    /// Columns of one table.
    pub fn of_table(keyspace: &str, table: &str) -> Self {
        let mut place = Vec::new();
        put_string(keyspace, &mut place);
        put_string(table, &mut place);
        Self { table: Some(place), ..Self::default() }
    }

    /// Adds a column of the table; `put_type` writes the `[option]` of its type.
    pub fn push(&mut self, name: &str, put_type: impl FnOnce(&mut Vec<u8>)) {
        self.count += 1;
        put_string(name, &mut self.encoded);
        put_type(&mut self.encoded);
    }

    /// Adds a column of any table. Only where [`Columns::default`] was the beginning.
    pub fn push_of(
        &mut self,
        (keyspace, table): (&str, &str),
        name: &str,
        put_type: impl FnOnce(&mut Vec<u8>),
    ) {
        put_string(keyspace, &mut self.encoded);
        put_string(table, &mut self.encoded);
        self.push(name, put_type);
    }

    /// The number of columns.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    fn flags(&self) -> i32 {
        if self.count > 0 && self.table.is_some() { ONE_TABLE } else { 0 }
    }

    fn put(&self, out: &mut Vec<u8>) {
        if self.count > 0 {
            out.extend_from_slice(self.table.as_deref().unwrap_or_default());
            out.extend_from_slice(&self.encoded);
        }
    }
}

/// The place of an answer. One message is written to it; a further one takes its place.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    head: Head,
    compresses: bool,
    warnings: Vec<String>,
}

impl<'a> Reply<'a> {
    /// The answer to the request with this head, in an empty buffer.
    pub(super) fn new(head: Head, compresses: bool, out: &'a mut Vec<u8>) -> Self {
        Self { out, head, compresses, warnings: Vec::new() }
    }

    /// Version of the protocol.
    pub fn version(&self) -> u8 {
        self.head.answer_version()
    }

    /// Adds a text that the client logs. Clients of version 3 do not get it.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Begins a message.
    fn begin(&mut self, opcode: u8) -> &mut Vec<u8> {
        self.out.clear();
        frame::begin(self.version(), self.head.stream, opcode, self.out);
        self.out
    }

    fn result(&mut self, kind: i32) -> &mut Vec<u8> {
        let out = self.begin(opcode::RESULT);
        put_int(kind, out);
        out
    }

    /// A statement without a result.
    pub fn void(&mut self) {
        self.result(VOID);
    }

    /// The keyspace that is in use from now on.
    pub fn keyspace(&mut self, keyspace: &str) {
        put_string(keyspace, self.result(SET_KEYSPACE));
    }

    /// A changed schema.
    pub fn schema_change(&mut self, change: &SchemaChange) {
        change.encode(self.result(SCHEMA_CHANGE));
    }

    /// A prepared statement: its id, its markers, which of them are the partition key in its
    /// order, and the columns of its result.
    pub fn prepared(&mut self, id: &[u8], markers: &Columns, key: &[u16], result: &Columns) {
        let version = self.version();
        let out = self.result(PREPARED);
        put_short_bytes(id, out);
        put_int(markers.flags(), out);
        put_int(markers.count, out);
        if version >= 4 {
            put_int(key.len() as i32, out);
            for marker in key {
                put_short(*marker, out);
            }
        }
        markers.put(out);
        put_int(if result.count == 0 { NO_METADATA } else { result.flags() }, out);
        put_int(result.count, out);
        result.put(out);
    }

    /// Rows of these columns, which the client may know already.
    pub fn rows(&mut self, columns: &Columns, skips_metadata: bool) -> Rows<'_> {
        let out = self.result(ROWS);
        let flags_at = out.len();
        let flags = if skips_metadata { NO_METADATA } else { columns.flags() };
        put_int(flags, out);
        put_int(columns.count, out);
        let paging_at = out.len();
        if !skips_metadata {
            columns.put(out);
        }
        let count_at = out.len();
        put_int(0, out);
        Rows { out, flags, flags_at, paging_at, count_at, count: 0 }
    }

    pub(super) fn ready(&mut self) {
        self.begin(opcode::READY);
    }

    pub(super) fn authenticate(&mut self, class: &str) {
        put_string(class, self.begin(opcode::AUTHENTICATE));
    }

    pub(super) fn auth_success(&mut self) {
        put_bytes(None, self.begin(opcode::AUTH_SUCCESS));
    }

    pub(super) fn supported(&mut self) {
        let out = self.begin(opcode::SUPPORTED);
        let versions = VERSIONS.map(|(_, name)| name);
        let options: [(&str, &[&str]); 3] = [
            ("CQL_VERSION", &[CQL_VERSION]),
            ("COMPRESSION", &[COMPRESSION]),
            ("PROTOCOL_VERSIONS", &versions),
        ];
        put_short(options.len() as u16, out);
        for (option, values) in options {
            put_string(option, out);
            put_string_list(values, out);
        }
    }

    pub(super) fn error(&mut self, error: &CqlError) {
        let version = self.version();
        error.encode(version, self.begin(opcode::ERROR));
    }

    /// Completes the frame.
    pub(super) fn finish(mut self) {
        if self.out.len() > LONGEST_BODY {
            let why = "The answer is longer than a frame of the protocol may be: ask for less, or \
                       for smaller pages";
            self.error(&CqlError::invalid(why));
        }
        let mut flags = 0;
        if self.version() >= 4 && !self.warnings.is_empty() {
            flags |= flag::WARNING;
            let mut warnings = Vec::new();
            let texts: Vec<&str> = self.warnings.iter().map(String::as_str).collect();
            put_string_list(&texts, &mut warnings);
            self.out.splice(HEAD_BYTES..HEAD_BYTES, warnings);
        }
        frame::end(flags, self.compresses, self.out);
    }
}

/// Writes the rows of an answer.
#[derive(Debug)]
#[must_use = "rows are not there until they are finished"]
pub struct Rows<'a> {
    out: &'a mut Vec<u8>,
    flags: i32,
    flags_at: usize,
    paging_at: usize,
    count_at: usize,
    count: i32,
}

impl Rows<'_> {
    /// Adds a cell to the row.
    pub fn cell(&mut self, value: Option<&[u8]>) {
        put_bytes(value, self.out);
    }

    /// Ends a row.
    pub fn end_row(&mut self) {
        self.count += 1;
    }

    /// The number of whole rows.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of the answer so far.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Ends the answer. If there are more pages the next one is asked for with this state.
    pub fn finish(self, paging_state: Option<&[u8]>) {
        let Self { out, flags, flags_at, paging_at, count_at, count } = self;
        set_int(count_at, count, out);
        let Some(state) = paging_state else { return };
        set_int(flags_at, flags | MORE_PAGES, out);
        let mut bytes = Vec::new();
        put_bytes(Some(state), &mut bytes);
        out.splice(paging_at..paging_at, bytes);
    }
}

fn set_int(at: usize, value: i32, out: &mut [u8]) {
    if let Some(place) = out.get_mut(at..at + size_of::<i32>()) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cql::{Change, SchemaTarget};

    const LENGTH: usize = 9;

    /// The frame that answers a request of this version on stream 0x0102.
    fn answer(version: u8, write: impl FnOnce(&mut Reply<'_>)) -> Vec<u8> {
        let head = Head { version, flags: 0, stream: 0x0102, opcode: opcode::QUERY, length: 0 };
        let mut out = Vec::new();
        let mut reply = Reply::new(head, false, &mut out);
        write(&mut reply);
        reply.finish();
        let body = (out.len() - LENGTH) as u32;
        assert_eq!(out[5..LENGTH], body.to_be_bytes(), "the length is that of the body");
        out
    }

    fn columns() -> Columns {
        let mut columns = Columns::of_table("k", "t");
        columns.push("a", |out| put_short(9, out));
        columns
    }

    #[test]
    fn rows_follow_their_columns() {
        let frame = answer(4, |reply| {
            let mut rows = reply.rows(&columns(), false);
            rows.cell(Some(b"x"));
            rows.end_row();
            rows.cell(None);
            rows.end_row();
            rows.cell(Some(b"yz"));
            rows.end_row();
            rows.finish(None);
        });
        assert_eq!(frame[..5], [0x84, 0, 1, 2, 8]);
        let body = b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x01k\0\x01t\0\x01a\0\x09\0\0\0\x03\
                     \0\0\0\x01x\xFF\xFF\xFF\xFF\0\0\0\x02yz";
        assert_eq!(frame[LENGTH..], body[..]);
    }

    #[test]
    fn a_page_that_is_not_the_last_tells_where_the_next_one_begins() {
        let page = |skips_metadata| {
            answer(3, |reply| {
                let mut rows = reply.rows(&columns(), skips_metadata);
                rows.cell(Some(b"x"));
                rows.end_row();
                rows.finish(Some(b"ps"));
            })
        };
        let known = b"\0\0\0\x02\0\0\0\x06\0\0\0\x01\0\0\0\x02ps\0\0\0\x01\0\0\0\x01x";
        assert_eq!(page(true)[LENGTH..], known[..]);
        let told = b"\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\0\0\x02ps\0\x01k\0\x01t\0\x01a\0\x09\
                     \0\0\0\x01\0\0\0\x01x";
        assert_eq!(page(false)[LENGTH..], told[..]);
    }

    #[test]
    fn a_prepared_statement_tells_its_key_from_version_4_on() {
        let prepared = |version| {
            answer(version, |reply| {
                reply.prepared(b"id", &columns(), &[0], &Columns::default());
            })
        };
        let v4: &[&[u8]] = &[
            b"\0\0\0\x04\0\x02id",
            b"\0\0\0\x01\0\0\0\x01",
            b"\0\0\0\x01\0\0",
            b"\0\x01k\0\x01t\0\x01a\0\x09",
            b"\0\0\0\x04\0\0\0\0",
        ];
        assert_eq!(prepared(4)[LENGTH..], v4.concat());
        let v3 = [&v4[..2], &v4[3..]].concat().concat();
        assert_eq!(prepared(3)[LENGTH..], v3);
    }

    #[test]
    fn columns_of_several_tables_each_name_theirs() {
        let mut columns = Columns::default();
        columns.push_of(("k", "t"), "a", |out| put_short(9, out));
        columns.push_of(("k", "u"), "b", |out| put_short(9, out));
        let frame = answer(4, |reply| reply.rows(&columns, false).finish(None));
        let body =
            b"\0\0\0\x02\0\0\0\0\0\0\0\x02\0\x01k\0\x01t\0\x01a\0\x09\0\x01k\0\x01u\0\x01b\0\x09\
                     \0\0\0\0";
        assert_eq!(frame[LENGTH..], body[..]);
    }

    #[test]
    fn warnings_come_before_the_message_from_version_4_on() {
        let warned = |version| {
            answer(version, |reply| {
                reply.warn("w");
                reply.void();
            })
        };
        assert_eq!((warned(4)[1], &warned(4)[LENGTH..]), (8, &b"\0\x01\0\x01w\0\0\0\x01"[..]));
        assert_eq!((warned(3)[1], &warned(3)[LENGTH..]), (0, &b"\0\0\0\x01"[..]));
    }

    #[test]
    fn an_error_takes_the_place_of_what_was_written() {
        let frame = answer(4, |reply| {
            reply.rows(&columns(), false).cell(Some(b"x"));
            reply.error(&CqlError::table_exists("k", "t"));
        });
        assert_eq!(frame[4], opcode::ERROR);
        assert_eq!(frame[LENGTH..LENGTH + 4], 0x2400_i32.to_be_bytes());
        assert!(frame.ends_with(b"\0\x01k\0\x01t"));
    }

    #[test]
    fn a_changed_schema_names_its_object() {
        let change =
            |target| SchemaChange { change: Change::Dropped, keyspace: "k".into(), target };
        let table = change(Some(SchemaTarget::Table("t".into())));
        let body = b"\0\0\0\x05\0\x07DROPPED\0\x05TABLE\0\x01k\0\x01t";
        assert_eq!(answer(4, |reply| reply.schema_change(&table))[LENGTH..], body[..]);
        let body = b"\0\0\0\x05\0\x07DROPPED\0\x08KEYSPACE\0\x01k";
        assert_eq!(answer(4, |reply| reply.schema_change(&change(None)))[LENGTH..], body[..]);
    }
}
