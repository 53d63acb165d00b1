//! Requests: the bodies of frames as values that borrow from them.

use super::events::EventKinds;
use super::frame::opcode;
use super::wire::{Few, Level, Malformed, Reader, Value};

/// Flags of the parameters of a statement.
mod flag {
    pub(super) const VALUES: u8 = 0x01;
    pub(super) const SKIP_METADATA: u8 = 0x02;
    pub(super) const PAGE_SIZE: u8 = 0x04;
    pub(super) const PAGING_STATE: u8 = 0x08;
    pub(super) const SERIAL_LEVEL: u8 = 0x10;
    pub(super) const TIMESTAMP: u8 = 0x20;
    pub(super) const NAMES: u8 = 0x40;
}

/// Numbers of the kinds of a batch, and of a statement in it.
const BATCH_KINDS: [BatchKind; 3] = [BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter];
const BY_TEXT: u8 = 0;
const BY_ID: u8 = 1;

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request<'a> {
    /// STARTUP, with its options.
    Startup(Few<(&'a str, &'a str)>),
    /// AUTH_RESPONSE, with its token.
    AuthResponse(Option<&'a [u8]>),
    /// OPTIONS.
    Options,
    /// REGISTER.
    Register(EventKinds),
    /// A request about statements.
    Work(Work<'a>),
}

/// A request about statements.
#[derive(Debug, Clone, PartialEq)]
pub enum Work<'a> {
    /// QUERY: a statement with the values of its markers.
    Query(&'a str, Parameters<'a>),
    /// PREPARE.
    Prepare(&'a str),
    /// EXECUTE: the id of a prepared statement, and values.
    Execute(&'a [u8], Parameters<'a>),
    /// BATCH.
    Batch(Batch<'a>),
}

/// Values of markers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values<'a> {
    /// The values, in the order of the request.
    pub values: Few<Value<'a>>,
    /// A name for each, if the client bound them by name; else empty.
    pub names: Few<&'a str>,
}

/// The parameters of QUERY and EXECUTE.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters<'a> {
    /// The consistency level.
    pub level: Level,
    /// Values of the markers.
    pub values: Values<'a>,
    /// Whether the client knows the columns of the result.
    pub skips_metadata: bool,
    /// Most rows of the answer; `None` for all.
    pub page_size: Option<usize>,
    /// Where the last page ended.
    pub paging_state: Option<&'a [u8]>,
    /// Level of the serial phase of a conditional statement: SERIAL if absent.
    pub serial_level: Option<Level>,
    /// Timestamp of writes that have none of their own, in microseconds.
    pub timestamp: Option<i64>,
}

/// Kind of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// Applied as a whole.
    Logged,
    /// Each row for itself.
    Unlogged,
    /// Of counters.
    Counter,
}

/// A statement of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStatement<'a> {
    /// Its text.
    Text(&'a str),
    /// The id of a prepared one.
    Prepared(&'a [u8]),
}

/// BATCH.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<'a> {
    /// Its kind.
    pub kind: BatchKind,
    /// Its statements, each with the values of its markers.
    pub statements: Vec<(BatchStatement<'a>, Few<Value<'a>>)>,
    /// The consistency level.
    pub level: Level,
    /// Level of the serial phase of conditional statements: SERIAL if absent.
    pub serial_level: Option<Level>,
    /// Timestamp of writes that have none of their own, in microseconds.
    pub timestamp: Option<i64>,
}

impl<'a> Request<'a> {
    /// Reads the body of a request of this version.
    pub(super) fn decode(version: u8, code: u8, mut body: Reader<'a>) -> Result<Self, Malformed> {
        let body = &mut body;
        let request = match code {
            opcode::STARTUP => Self::Startup(body.string_map()?),
            opcode::OPTIONS => Self::Options,
            opcode::AUTH_RESPONSE => Self::AuthResponse(body.bytes()?),
            opcode::REGISTER => Self::Register(EventKinds::named(&body.string_list()?)?),
            opcode::QUERY => {
                Self::Work(Work::Query(body.long_string()?, body.parameters(version)?))
            }
            opcode::PREPARE => Self::Work(Work::Prepare(body.long_string()?)),
            opcode::EXECUTE => {
                Self::Work(Work::Execute(body.short_bytes()?, body.parameters(version)?))
            }
            opcode::BATCH => Self::Work(Work::Batch(body.batch(version)?)),
            code => return Err(Malformed::new(format!("Unknown opcode {code}"))),
        };
        body.end()?;
        Ok(request)
    }
}

impl<'a> Reader<'a> {
    fn parameters(&mut self, version: u8) -> Result<Parameters<'a>, Malformed> {
        let level = self.level()?;
        let flags = self.byte()?;
        let has = |flag: u8| flags & flag != 0;
        let values = if has(flag::VALUES) {
            self.values(has(flag::NAMES), version)?
        } else {
            Values::default()
        };
        Ok(Parameters {
            level,
            values,
            skips_metadata: has(flag::SKIP_METADATA),
            page_size: if has(flag::PAGE_SIZE) { self.page_size()? } else { None },
            paging_state: if has(flag::PAGING_STATE) { self.bytes()? } else { None },
            serial_level: if has(flag::SERIAL_LEVEL) { Some(self.serial_level()?) } else { None },
            timestamp: if has(flag::TIMESTAMP) { Some(self.timestamp()?) } else { None },
        })
    }

    fn values(&mut self, are_named: bool, version: u8) -> Result<Values<'a>, Malformed> {
        let mut found = Values::default();
        for _ in 0..self.short()? {
            if are_named {
                found.names.push(self.string()?);
            }
            found.values.push(self.value(version)?);
        }
        Ok(found)
    }

    /// Without a positive number there are no pages.
    fn page_size(&mut self) -> Result<Option<usize>, Malformed> {
        Ok(usize::try_from(self.int()?).ok().filter(|size| *size > 0))
    }

    fn serial_level(&mut self) -> Result<Level, Malformed> {
        match self.level()? {
            level @ (Level::Serial | Level::LocalSerial) => Ok(level),
            level => Err(Malformed::new(format!(
                "Invalid consistency for conditional update. Must be one of SERIAL or \
                 LOCAL_SERIAL, not {}",
                level.name()
            ))),
        }
    }

    /// The least number stands for no timestamp elsewhere.
    fn timestamp(&mut self) -> Result<i64, Malformed> {
        match self.long()? {
            i64::MIN => {
                let (least, most) = (i64::MIN + 1, i64::MAX);
                let why = format!("Out of bound timestamp, must be in [{least}, {most}]");
                Err(Malformed::new(why))
            }
            timestamp => Ok(timestamp),
        }
    }

    fn batch(&mut self, version: u8) -> Result<Batch<'a>, Malformed> {
        let number = self.byte()?;
        let kind = BATCH_KINDS.get(usize::from(number)).copied();
        let kind = kind.ok_or_else(|| Malformed::new(format!("Invalid batch type {number}")))?;
        let mut statements = Vec::new();
        for _ in 0..self.short()? {
            let statement = match self.byte()? {
                BY_TEXT => BatchStatement::Text(self.long_string()?),
                BY_ID => BatchStatement::Prepared(self.short_bytes()?),
                other => {
                    let why = format!(
                        "Invalid query kind in BATCH messages. Must be 0 or 1 but got {other}"
                    );
                    return Err(Malformed::new(why));
                }
            };
            // The flag of names comes too late to be used.
            statements.push((statement, self.values(false, version)?.values));
        }
        let level = self.level()?;
        let flags = self.byte()?;
        let has = |flag: u8| flags & flag != 0;
        if has(flag::NAMES) {
            return Err(Malformed::new("The values of a batch cannot be named"));
        }
        Ok(Batch {
            kind,
            statements,
            level,
            serial_level: if has(flag::SERIAL_LEVEL) { Some(self.serial_level()?) } else { None },
            timestamp: if has(flag::TIMESTAMP) { Some(self.timestamp()?) } else { None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(version: u8, code: u8, body: &[u8]) -> Result<Request<'_>, String> {
        Request::decode(version, code, Reader::new(body)).map_err(|malformed| malformed.to_string())
    }

    fn work(version: u8, code: u8, body: &[u8]) -> Work<'_> {
        match decoded(version, code, body) {
            Ok(Request::Work(work)) => work,
            other => panic!("{other:?}"),
        }
    }

    const PLAIN: Parameters<'static> = Parameters {
        level: Level::Quorum,
        values: Values { values: Few::new_const(), names: Few::new_const() },
        skips_metadata: false,
        page_size: None,
        paging_state: None,
        serial_level: None,
        timestamp: None,
    };

    #[test]
    fn a_query_has_only_the_parameters_that_its_flags_name() {
        assert_eq!(work(3, 7, b"\0\0\0\x03abc\0\x04\0"), Work::Query("abc", PLAIN));
        let all = b"\0\0\0\x03abc\0\x0A\x7F\0\x03\0\x01a\0\0\0\x02hi\0\x01b\xFF\xFF\xFF\xFF\0\x01c\
                    \xFF\xFF\xFF\xFE\0\0\0\x64\0\0\0\x02ps\0\x08\0\0\0\0\0\0\0\x05";
        let expected = Parameters {
            level: Level::LocalOne,
            values: Values {
                values: [Value::Bytes(b"hi"), Value::Null, Value::Unset].into_iter().collect(),
                names: ["a", "b", "c"].into_iter().collect(),
            },
            skips_metadata: true,
            page_size: Some(100),
            paging_state: Some(b"ps"),
            serial_level: Some(Level::Serial),
            timestamp: Some(5),
        };
        assert_eq!(work(4, 7, all), Work::Query("abc", expected));
    }

    #[test]
    fn a_prepared_statement_is_executed_by_its_id() {
        let body = b"\0\x02id\0\x01\x01\0\x01\0\0\0\0";
        let values = [Value::Bytes(b"")].into_iter().collect();
        let values = Values { values, names: Few::new() };
        let parameters = Parameters { level: Level::One, values, ..PLAIN };
        assert_eq!(work(4, 0x0A, body), Work::Execute(b"id", parameters));
        assert_eq!(work(4, 9, b"\0\0\0\x02ab"), Work::Prepare("ab"));
    }

    #[test]
    fn a_batch_holds_texts_and_prepared_statements() {
        let body =
            b"\x01\0\x02\0\0\0\0\x01x\0\0\x01\0\x02id\0\x01\0\0\0\x01v\0\x05\x20\0\0\0\0\0\0\0\x07";
        let expected = Batch {
            kind: BatchKind::Unlogged,
            statements: vec![
                (BatchStatement::Text("x"), Few::new()),
                (BatchStatement::Prepared(b"id"), [Value::Bytes(b"v")].into_iter().collect()),
            ],
            level: Level::All,
            serial_level: None,
            timestamp: Some(7),
        };
        assert_eq!(work(3, 0x0D, body), Work::Batch(expected));
    }

    #[test]
    fn a_negative_length_is_null_in_version_3_and_an_error_in_version_4() {
        let body = b"\0\0\0\0\0\x04\x01\0\x01\xFF\xFF\xFF\xF0";
        let values = Values { values: [Value::Null].into_iter().collect(), names: Few::new() };
        assert_eq!(work(3, 7, body), Work::Query("", Parameters { values, ..PLAIN }));
        assert_eq!(decoded(4, 7, body).unwrap_err(), "Invalid length of a value: -16");
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let cases: [(u8, &[u8], &str); 12] = [
            (7, b"\0\0\0\x09abc", "9 bytes expected, 3 are left"),
            (7, b"\xFF\xFF\xFF\xFF", "Negative length of a string: -1"),
            (7, b"\0\0\0\x01\xFF\0\x01\0", "Cannot decode string as UTF8"),
            (7, b"\0\0\0\0\0\x0B\0", "Unknown code 11 for a consistency level"),
            (7, b"\0\0\0\0\0\x01\0\0", "1 bytes are left"),
            (7, b"\0\0\0\0\0\x01\x10\0\x01", "Must be one of SERIAL or LOCAL_SERIAL"),
            (7, b"\0\0\0\0\0\x01\x20\x80\0\0\0\0\0\0\0", "Out of bound timestamp"),
            (7, b"\0\0\0\0\0\x01\x01\xFF\xFF", "4 bytes expected, 0 are left"),
            (0x0D, b"\x03\0\0\0\x01\0", "Invalid batch type 3"),
            (0x0D, b"\0\0\x01\x02", "Must be 0 or 1 but got 2"),
            (0x0D, b"\0\0\0\0\x01\x40", "cannot be named"),
            (0x0B, b"\0\x01\0\x01X", "Unknown type of events 'X'"),
        ];
        for (code, body, why) in cases {
            let refused = decoded(4, code, body).unwrap_err();
            assert!(refused.contains(why), "{refused} instead of {why}");
        }
    }
}
