//! How a call is answered: result, declared exception, or an error of the protocol.

use super::codec::{DecodeError, Reader, Text, WireType, decode_lossy};
use super::encode::{Encode, encode_field, put_head};
use super::idl::{Arguments, Exception};
use super::schema::{Kind, Struct, Throws, wire_type};
use crate::base::limited_log::LimitedLog;
use crate::config::settings::Release;
use crate::service::ServiceError;

/// A method of the service.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Name on the wire.
    pub name: &'static str,
    /// The first and the last generation that has it.
    pub versions: (Release, Release),
    /// Its arguments.
    pub args: Struct,
    /// Its result, field 0 of the result struct.
    pub result: Kind,
    /// Its declared exceptions.
    pub throws: &'static [Throws],
    /// Reads its arguments.
    pub(super) decode: for<'a> fn(&mut Reader<'a>) -> Result<Arguments<'a>, DecodeError>,
}

impl Method {
    /// Whether a call only reads: methods that change something answer nothing.
    pub fn only_reads(&self) -> bool {
        self.result != Kind::Void
    }
}

/// Log of calls that are not answered as their clients expect.
pub(super) type Reporter = LimitedLog<Reason>;

/// Subject of a log line. Each one has its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// A call that came after the generation of the port.
    LaterCall,
    /// A call that failed for an internal reason.
    Internal,
    /// A call that panicked.
    Panic,
    /// A result that no message can hold.
    ResultTooLong,
}

/// Message types of the protocol. The numbers are part of the protocol: never change them.
const REPLY: u8 = 2;
const EXCEPTION: u8 = 3;

/// Types of a `TApplicationException` that a server sends. Never change the numbers.
const UNKNOWN_METHOD: i32 = 1;
const INTERNAL_ERROR: i32 = 6;
const PROTOCOL_ERROR: i32 = 7;

/// The exception for a failure, and its text; `None` for an internal one.
fn exception_of(failure: &ServiceError) -> Option<(Exception, Option<&str>)> {
    let exception = match failure {
        ServiceError::Invalid(_) | ServiceError::Refused(_) | ServiceError::TooLarge(_) => {
            Exception::InvalidRequest
        }
        ServiceError::NotFound => return Some((Exception::NotFound, None)),
        ServiceError::Unavailable(_) => return Some((Exception::Unavailable, None)),
        ServiceError::TimedOut(_) => return Some((Exception::TimedOut, None)),
        ServiceError::Unauthenticated(_) => Exception::Authentication,
        ServiceError::Unauthorized(_) => Exception::Authorization,
        ServiceError::Internal(_) => return None,
    };
    Some((exception, Some(failure.text())))
}

/// Fields of a request that its answer repeats, and its transport.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    /// Method as the client wrote it.
    pub name: &'a [u8],
    /// Any number.
    pub seqid: i32,
    /// Whether a length goes before each message.
    pub framed: bool,
    /// Whose numbers of exceptions apply.
    pub version: Release,
}

impl Head<'_> {
    /// Writes one message; the length of a frame is put in when the body is known. False if the
    /// message is longer than a length can say; nothing has been written then.
    fn message(&self, kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) -> bool {
        let start = out.len();
        if self.framed {
            out.extend_from_slice(&[0; 4]);
        }
        let begin = out.len();
        out.extend_from_slice(&[0x80, 0x01, 0, kind]);
        let name_length = i32::try_from(self.name.len()).unwrap_or(i32::MAX);
        out.extend_from_slice(&name_length.to_be_bytes());
        out.extend_from_slice(self.name);
        out.extend_from_slice(&self.seqid.to_be_bytes());
        body(out);
        let Ok(length) = i32::try_from(out.len() - begin) else {
            out.truncate(start);
            return false;
        };
        if self.framed
            && let Some(room) = out.get_mut(start..begin)
        {
            room.copy_from_slice(&length.to_be_bytes());
        }
        true
    }

    fn application_exception(&self, message: &str, number: i32, out: &mut Vec<u8>) {
        self.message(EXCEPTION, out, |out| {
            encode_field::<Text<'_>>(1, message, out);
            encode_field::<i32>(2, number, out);
            out.push(wire_type::STOP);
        });
    }

    /// Answers a call of a method that does not exist.
    pub(super) fn unknown_method(&self, out: &mut Vec<u8>) {
        let name = decode_lossy(self.name);
        self.application_exception(&format!("Invalid method name: '{name}'"), UNKNOWN_METHOD, out);
    }

    /// Answers a call whose arguments lack something.
    pub(super) fn protocol_error(&self, why: &str, out: &mut Vec<u8>) {
        self.application_exception(why, PROTOCOL_ERROR, out);
    }

    /// Answers a call that failed for an internal reason.
    pub(super) fn internal_error(&self, out: &mut Vec<u8>) {
        let name = decode_lossy(self.name);
        let message = format!("Internal error processing {name}");
        self.application_exception(&message, INTERNAL_ERROR, out);
    }
}

/// The place for the answer to one call, in the output buffer of its connection.
pub(super) struct Reply<'a> {
    pub(super) method: &'static Method,
    pub(super) head: Head<'a>,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) reporter: &'a Reporter,
}

impl Reply<'_> {
    /// Answers a call. The value may borrow.
    pub(super) fn write<R: WireType>(self, answer: Result<impl Encode<R>, ServiceError>) {
        match answer {
            Ok(value) => self.ok::<R>(value),
            Err(failure) => self.fail(&failure),
        }
    }

    fn ok<R: WireType>(self, value: impl Encode<R>) {
        let sent = self.head.message(REPLY, self.out, |out| {
            if R::TYPE != wire_type::STOP {
                encode_field::<R>(0, value, out);
            }
            out.push(wire_type::STOP);
        });
        if !sent {
            self.reporter.warn(
                Reason::ResultTooLong,
                format_args!("the result of {} is longer than a message can be", self.method.name),
            );
            self.head.internal_error(self.out);
        }
    }

    /// Answers a call that is not even looked at.
    pub(super) fn refuse(self, why: &str) {
        match field_of(self.method, self.head.version, Exception::InvalidRequest) {
            Some(_) => self.fail(&ServiceError::invalid(why.to_owned())),
            // The method declares no exception with a text.
            None => self.head.protocol_error(why, self.out),
        }
    }

    /// Answers with an exception; one that the method does not declare becomes an internal error,
    /// and its cause goes to the log, unless the client may not do this, and is told so. When every
    /// call fails, as on a full disk, a few lines do.
    pub(super) fn fail(self, failure: &ServiceError) {
        let version = self.head.version;
        let declared = exception_of(failure)
            .and_then(|(exception, why)| Some((field_of(self.method, version, exception)?, why)));
        if let Some((id, why)) = declared {
            self.head.message(REPLY, self.out, |out| {
                put_head(wire_type::STRUCT, id, out);
                if let Some(why) = why {
                    encode_field::<Text<'_>>(1, why, out);
                }
                out.extend_from_slice(&[wire_type::STOP, wire_type::STOP]);
            });
        } else if let ServiceError::Refused(why) = failure {
            self.head.protocol_error(why, self.out);
        } else {
            self.reporter.log(
                log::Level::Error,
                Reason::Internal,
                format_args!("{}: {failure}", self.method.name),
            );
            self.head.internal_error(self.out);
        }
    }
}

/// Field of the result in which an exception travels to clients of a generation.
///
/// 0.4 knew no timeout: its clients take a void result with an unknown field for success, so they
/// get `Unavailable`. Its `get_slice` had `Unavailable` at another number.
fn field_of(method: &Method, version: Release, exception: Exception) -> Option<i16> {
    let exception = match (version, exception) {
        (Release::V04, Exception::TimedOut) => Exception::Unavailable,
        _ => exception,
    };
    let throws = method.throws.iter().find(|throws| throws.exception == exception)?;
    let moved = version == Release::V04
        && exception == Exception::Unavailable
        && method.name == "get_slice";
    Some(if moved { 3 } else { throws.id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thrift::idl::method_named;

    /// Fields of InvalidRequest, NotFound, Unavailable and TimedOut in the results of a method.
    fn fields(name: &str, version: Release) -> [Option<i16>; 4] {
        let method = method_named(name.as_bytes()).unwrap();
        [
            Exception::InvalidRequest,
            Exception::NotFound,
            Exception::Unavailable,
            Exception::TimedOut,
        ]
        .map(|exception| field_of(method, version, exception))
    }

    #[test]
    fn exceptions_have_the_numbers_of_their_generation() {
        const READS: [&str; 3] = ["multiget", "multiget_slice", "get_count"];
        const WRITES: [&str; 3] = ["insert", "batch_insert", "remove"];
        for name in READS.into_iter().chain(WRITES).chain(["get_key_range"]) {
            let of = |version| fields(name, version);
            assert_eq!(of(Release::V04), [Some(1), None, Some(2), Some(2)], "{name}");
            assert_eq!(of(Release::V05), [Some(1), None, Some(2), Some(3)], "{name}");
            assert_eq!(of(Release::V06), of(Release::V05), "{name}");
        }
        let slice = |version| fields("get_slice", version);
        assert_eq!(slice(Release::V04), [Some(1), None, Some(3), Some(3)]);
        assert_eq!(slice(Release::V05), [Some(1), None, Some(2), Some(3)]);
        assert_eq!(slice(Release::V06), slice(Release::V05));
        let get = |version| fields("get", version);
        assert_eq!(get(Release::V04), [Some(1), Some(2), Some(3), Some(3)]);
        assert_eq!(get(Release::V05), [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(get(Release::V06), get(Release::V05));
        for version in [Release::V04, Release::V05, Release::V06] {
            assert_eq!(fields("describe_keyspace", version), [None, Some(1), None, None]);
        }
    }
}
