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
    columns: Vec<u8>,
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
        put_string(name, &mut self.columns);
        put_type(&mut self.columns);
    }

    /// Adds a column of any table. Only where [`Columns::default`] was the beginning.
    pub fn push_of(
        &mut self,
        (keyspace, table): (&str, &str),
        name: &str,
        put_type: impl FnOnce(&mut Vec<u8>),
    ) {
        put_string(keyspace, &mut self.columns);
        put_string(table, &mut self.columns);
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
            out.extend_from_slice(&self.columns);
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
            key.iter().for_each(|marker| put_short(*marker, out));
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

    /// Adds a cell whose value is written here.
    pub fn cell_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        put_int(0, self.out);
        write(self.out);
        let length = self.out.len() - at - size_of::<i32>();
        set_int(at, length as i32, self.out);
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
