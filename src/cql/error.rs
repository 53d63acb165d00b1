//! Errors of CQL, with the codes and fields of the native protocol.

use super::wire::{Level, Malformed, put_int, put_short, put_short_bytes, put_string};
use crate::base::hex::hex;
use crate::schema::ChangeError;
use crate::service::{Failure, ReplicaCounts, ServiceError};

/// Kind of the write that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteType {
    /// One row.
    Simple,
    /// A logged batch.
    Batch,
    /// A batch without a log.
    UnloggedBatch,
    /// A counter.
    Counter,
    /// The log of a batch.
    BatchLog,
    /// A conditional write.
    Cas,
}

impl WriteType {
    fn name(self) -> &'static str {
        match self {
            Self::Simple => "SIMPLE",
            Self::Batch => "BATCH",
            Self::UnloggedBatch => "UNLOGGED_BATCH",
            Self::Counter => "COUNTER",
            Self::BatchLog => "BATCH_LOG",
            Self::Cas => "CAS",
        }
    }
}

/// Replicas that an operation needed, and those that answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// The level that was asked for.
    pub level: Level,
    /// Replicas that answered in time.
    pub received: i32,
    /// Replicas that had to.
    pub needed: i32,
}

impl Answers {
    /// The counts of a request at this level.
    pub fn new(level: Level, counts: ReplicaCounts) -> Self {
        let [received, needed] = [counts.present, counts.required].map(|count| count as i32);
        Self { level, received, needed }
    }
}

/// Kind of an error, with the fields of its code.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// Something of ours failed. The cause is for the log, and the client does not get it.
    Server { cause: String },
    /// Bytes that are no request, or a request out of its turn.
    Protocol,
    /// The login was refused.
    BadCredentials,
    /// Too few replicas are alive.
    Unavailable { level: Level, required: i32, alive: i32 },
    /// There is no memory for the request.
    Overloaded,
    /// The node does not serve yet.
    Bootstrapping,
    /// A table could not be truncated.
    Truncate,
    /// Too few replicas acknowledged a write in time.
    WriteTimeout { answers: Answers, write: WriteType },
    /// Too few replicas answered a read in time.
    ReadTimeout { answers: Answers, has_data: bool },
    /// Replicas could not answer a read.
    ReadFailure { answers: Answers, failures: i32, has_data: bool },
    /// A function failed.
    FunctionFailure { keyspace: String, function: String, arguments: Vec<String> },
    /// Replicas could not apply a write.
    WriteFailure { answers: Answers, failures: i32, write: WriteType },
    /// The text is no CQL.
    Syntax,
    /// The user may not do this.
    Unauthorized,
    /// The statement makes no sense.
    Invalid,
    /// A change of the schema makes no sense.
    Config,
    /// The keyspace exists already, or the table if one is named.
    AlreadyExists { keyspace: String, table: String },
    /// No statement was prepared with this id.
    Unprepared { id: Vec<u8> },
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{message}")]
pub struct CqlError {
    /// Kind, with the fields of its code.
    pub kind: ErrorKind,
    /// Text for the client.
    pub message: String,
}

impl std::error::Error for CqlError {}

impl CqlError {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The statement makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The text is no CQL.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, message)
    }

    /// The user may not do this.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unauthorized, message)
    }

    /// A change of the schema makes no sense.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// The request is out of its turn, or malformed.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    /// Something of ours failed, for a cause that only the log tells.
    pub fn server(cause: impl Into<String>) -> Self {
        let message = "Internal error: the log of the server has its cause";
        Self::new(ErrorKind::Server { cause: cause.into() }, message)
    }

    /// A keyspace exists already.
    pub fn keyspace_exists(keyspace: &str) -> Self {
        let kind = ErrorKind::AlreadyExists { keyspace: keyspace.to_owned(), table: String::new() };
        Self::new(kind, format!("Cannot add existing keyspace \"{keyspace}\""))
    }

    /// A table exists already.
    pub fn table_exists(keyspace: &str, table: &str) -> Self {
        let kind =
            ErrorKind::AlreadyExists { keyspace: keyspace.to_owned(), table: table.to_owned() };
        Self::new(
            kind,
            format!("Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\""),
        )
    }

    /// No statement was prepared with this id.
    pub fn unprepared(id: &[u8]) -> Self {
        let hex = hex(id);
        let message = format!(
            "Prepared query with ID {hex} not found (either the query was not prepared on this \
             host (maybe the host has been restarted?) or you have prepared too many queries and \
             it has been evicted from the internal cache)"
        );
        Self::new(ErrorKind::Unprepared { id: id.to_vec() }, message)
    }

    /// Too few replicas are alive.
    pub fn unavailable(level: Level, required: i32, alive: i32) -> Self {
        let kind = ErrorKind::Unavailable { level, required, alive };
        Self::new(kind, format!("Cannot achieve consistency level {}", level.name()))
    }

    /// The error of a read at this level.
    pub fn of_read(error: ServiceError, level: Level) -> Self {
        Self::of(error, level, |answers, has_data| ErrorKind::ReadTimeout { answers, has_data })
    }

    /// The error of a write at this level.
    pub fn of_write(error: ServiceError, level: Level, write: WriteType) -> Self {
        Self::of(error, level, |answers, _| {
            // Two nodes keep the log of a batch, or one, whatever the level of its writes.
            let of_log = if answers.needed > 1 { Level::Two } else { Level::One };
            let level = if write == WriteType::BatchLog { of_log } else { level };
            ErrorKind::WriteTimeout { answers: Answers { level, ..answers }, write }
        })
    }

    /// The error of a read that was at this level, if it is one of too few replicas.
    pub(super) fn at(mut self, own: Level) -> Self {
        match &mut self.kind {
            ErrorKind::Unavailable { required, alive, .. } => {
                return Self::unavailable(own, *required, *alive);
            }
            ErrorKind::ReadTimeout { answers, .. } => answers.level = own,
            _ => {}
        }
        self
    }

    fn of(
        error: ServiceError,
        level: Level,
        timeout: impl FnOnce(Answers, bool) -> ErrorKind,
    ) -> Self {
        match error {
            ServiceError::Unavailable(counts) => {
                let Answers { needed, received, .. } = Answers::new(level, counts);
                Self::unavailable(level, needed, received)
            }
            ServiceError::TimedOut(counts) => Self::new(
                timeout(Answers::new(level, counts), counts.has_data),
                "Operation timed out: too few replicas answered in time.",
            ),
            error => error.into(),
        }
    }

    /// Writes the body of an ERROR. Failures of replicas came with version 4: before they are
    /// timeouts.
    pub(super) fn encode(&self, version: u8, out: &mut Vec<u8>) {
        let is_old = version < 4;
        let put_answers = |answers: &Answers, out: &mut Vec<u8>| {
            put_short(answers.level.code(), out);
            put_int(answers.received, out);
            put_int(answers.needed, out);
        };
        put_int(self.code(is_old), out);
        put_string(&self.message, out);
        match &self.kind {
            ErrorKind::Unavailable { level, required, alive } => {
                put_short(level.code(), out);
                put_int(*required, out);
                put_int(*alive, out);
            }
            ErrorKind::WriteTimeout { answers, write } => {
                put_answers(answers, out);
                put_string(write.name(), out);
            }
            ErrorKind::ReadTimeout { answers, has_data } => {
                put_answers(answers, out);
                out.push((*has_data).into());
            }
            ErrorKind::ReadFailure { answers, failures, has_data } => {
                put_answers(answers, out);
                if !is_old {
                    put_int(*failures, out);
                }
                out.push((*has_data).into());
            }
            ErrorKind::WriteFailure { answers, failures, write } => {
                put_answers(answers, out);
                if !is_old {
                    put_int(*failures, out);
                }
                put_string(write.name(), out);
            }
            ErrorKind::FunctionFailure { keyspace, function, arguments } if !is_old => {
                put_string(keyspace, out);
                put_string(function, out);
                put_short(arguments.len() as u16, out);
                for argument in arguments {
                    put_string(argument, out);
                }
            }
            ErrorKind::AlreadyExists { keyspace, table } => {
                put_string(keyspace, out);
                put_string(table, out);
            }
            ErrorKind::Unprepared { id } => put_short_bytes(id, out),
            _ => {}
        }
    }

    /// The code of the protocol: never change it.
    fn code(&self, is_old: bool) -> i32 {
        match self.kind {
            ErrorKind::ReadFailure { .. } if is_old => 0x1200,
            ErrorKind::FunctionFailure { .. } if is_old => 0x2200,
            ErrorKind::WriteFailure { .. } if is_old => 0x1100,
            ErrorKind::Server { .. } => 0x0000,
            ErrorKind::Protocol => 0x000A,
            ErrorKind::BadCredentials => 0x0100,
            ErrorKind::Unavailable { .. } => 0x1000,
            ErrorKind::Overloaded => 0x1001,
            ErrorKind::Bootstrapping => 0x1002,
            ErrorKind::Truncate => 0x1003,
            ErrorKind::WriteTimeout { .. } => 0x1100,
            ErrorKind::ReadTimeout { .. } => 0x1200,
            ErrorKind::ReadFailure { .. } => 0x1300,
            ErrorKind::FunctionFailure { .. } => 0x1400,
            ErrorKind::WriteFailure { .. } => 0x1500,
            ErrorKind::Syntax => 0x2000,
            ErrorKind::Unauthorized => 0x2100,
            ErrorKind::Invalid => 0x2200,
            ErrorKind::Config => 0x2300,
            ErrorKind::AlreadyExists { .. } => 0x2400,
            ErrorKind::Unprepared { .. } => 0x2500,
        }
    }
}

/// For metrics.
impl From<&CqlError> for Failure {
    fn from(error: &CqlError) -> Self {
        match error.kind {
            ErrorKind::Unavailable { .. } | ErrorKind::Bootstrapping => Self::Unavailable,
            ErrorKind::WriteTimeout { .. } | ErrorKind::ReadTimeout { .. } => Self::TimedOut,
            ErrorKind::Overloaded => Self::TooLarge,
            ErrorKind::BadCredentials | ErrorKind::Unauthorized => Self::Denied,
            ErrorKind::Server { .. }
            | ErrorKind::Truncate
            | ErrorKind::ReadFailure { .. }
            | ErrorKind::WriteFailure { .. } => Self::Internal,
            ErrorKind::Protocol
            | ErrorKind::FunctionFailure { .. }
            | ErrorKind::Syntax
            | ErrorKind::Invalid
            | ErrorKind::Config
            | ErrorKind::AlreadyExists { .. }
            | ErrorKind::Unprepared { .. } => Self::Invalid,
        }
    }
}

impl From<Malformed> for CqlError {
    fn from(Malformed(why): Malformed) -> Self {
        Self::protocol(why)
    }
}

/// For operations without a level of their own: it counts as ONE.
impl From<ServiceError> for CqlError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Unavailable(_) | ServiceError::TimedOut(_) => {
                Self::of_read(error, Level::One)
            }
            ServiceError::Invalid(why) => Self::invalid(why),
            ServiceError::TooLarge(why) => Self::invalid(why),
            ServiceError::NotFound => Self::invalid("There is nothing of this name"),
            ServiceError::Unauthenticated(why) => Self::new(ErrorKind::BadCredentials, why),
            ServiceError::Refused(why) => Self::unauthorized(why),
            ServiceError::Unauthorized(why) => Self::unauthorized(why),
            ServiceError::Internal(why) => Self::server(why),
        }
    }
}

impl From<ChangeError<CqlError>> for CqlError {
    fn from(error: ChangeError<CqlError>) -> Self {
        match error {
            ChangeError::Change(error) => error,
            ChangeError::Refused(why) => Self::invalid(why),
            ChangeError::Conflict(why) => Self::config(why.to_string()),
            ChangeError::TooDeep => Self::invalid(error.to_string()),
            // The text names the nodes that are missing, so it goes to the client.
            ChangeError::Disagreement(why) => {
                Self::new(ErrorKind::Server { cause: why.clone() }, why)
            }
            error => Self::server(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(error: &CqlError, version: u8) -> Vec<u8> {
        let mut out = Vec::new();
        error.encode(version, &mut out);
        out
    }

    #[test]
    fn each_kind_has_its_code_and_fields() {
        let (answers, level) =
            (Answers { level: Level::Quorum, received: 1, needed: 2 }, Level::One);
        let fields = [[0, 4, 0, 0, 0, 1, 0, 0, 0].as_slice(), &[2]].concat();
        let write = WriteType::Simple;
        let cases: [(ErrorKind, i32, Vec<u8>); 9] = [
            (ErrorKind::Protocol, 0x000A, vec![]),
            (
                ErrorKind::Unavailable { level, required: 3, alive: 2 },
                0x1000,
                vec![0, 1, 0, 0, 0, 3, 0, 0, 0, 2],
            ),
            (
                ErrorKind::WriteTimeout { answers, write },
                0x1100,
                [&fields[..], b"\0\x06SIMPLE"].concat(),
            ),
            (
                ErrorKind::ReadTimeout { answers, has_data: true },
                0x1200,
                [&fields[..], &[1]].concat(),
            ),
            (
                ErrorKind::ReadFailure { answers, failures: 7, has_data: false },
                0x1300,
                [&fields[..], &[0, 0, 0, 7, 0]].concat(),
            ),
            (
                ErrorKind::FunctionFailure {
                    keyspace: "k".into(),
                    function: "f".into(),
                    arguments: vec!["int".into()],
                },
                0x1400,
                b"\0\x01k\0\x01f\0\x01\0\x03int".to_vec(),
            ),
            (
                ErrorKind::WriteFailure { answers, failures: 7, write },
                0x1500,
                [&fields[..], b"\0\0\0\x07\0\x06SIMPLE"].concat(),
            ),
            (ErrorKind::Syntax, 0x2000, vec![]),
            (ErrorKind::Unprepared { id: b"id".to_vec() }, 0x2500, b"\0\x02id".to_vec()),
        ];
        for (kind, code, fields) in cases {
            let expected = [&code.to_be_bytes()[..], b"\0\x03why", &fields].concat();
            assert_eq!(body(&CqlError::new(kind.clone(), "why"), 4), expected, "{kind:?}");
        }
    }

    #[test]
    fn clients_of_version_3_get_timeouts_for_failures() {
        let answers = Answers::new(Level::One, ReplicaCounts::NONE);
        let failure = ErrorKind::ReadFailure { answers, failures: 7, has_data: true };
        let timeout = ErrorKind::ReadTimeout { answers, has_data: true };
        let [failure, timeout] = [failure, timeout].map(|kind| body(&CqlError::new(kind, ""), 3));
        assert_eq!(failure, timeout);
    }

    #[test]
    fn the_cause_of_an_internal_error_is_not_for_the_client() {
        let error = CqlError::from(ServiceError::Internal("a secret".to_owned()));
        let body = String::from_utf8_lossy(&body(&error, 4)).into_owned();
        assert!(!body.contains("secret") && !error.to_string().contains("secret"));
    }

    #[test]
    fn errors_of_the_service_keep_the_level_of_their_request() {
        let counts = ReplicaCounts { required: 3, present: 2, has_data: true };
        let late = || ServiceError::TimedOut(counts);
        let answers = |level| Answers { level, received: 2, needed: 3 };
        let (answers, write) = (answers(Level::All), WriteType::Simple);
        let written = CqlError::of_write(late(), Level::All, write);
        assert_eq!(written.kind, ErrorKind::WriteTimeout { answers, write });
        let read = CqlError::from(late()).at(Level::All);
        assert_eq!(read.kind, ErrorKind::ReadTimeout { answers, has_data: true });
        let few = CqlError::from(ServiceError::Unavailable(counts)).at(Level::Two);
        let (required, alive) = (3, 2);
        assert_eq!(few, CqlError::unavailable(Level::Two, required, alive));
        assert_eq!(few.to_string(), "Cannot achieve consistency level TWO");
        let refused = ServiceError::invalid("no");
        assert_eq!(CqlError::of_read(refused, Level::Two), CqlError::invalid("no"));
    }
}
