//! How a call is answered: result, declared exception, or an error of the protocol.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::ApiVersion;
use super::codec::{Text, WireType};
use super::encode::{Encode, encode_field};
use super::report::{Reason, Reporter};
use super::schema::{self, wire_type};
pub use super::types::Exception;
use crate::base::budget::Budget;

/// A method with the exceptions of this IDL.
pub type Method = schema::Method<Exception>;

/// Message types of the protocol. The numbers are part of the protocol: never change them.
const REPLY: u8 = 2;
const EXCEPTION: u8 = 3;

/// Types of a `TApplicationException` that a server sends. Never change the numbers.
const UNKNOWN_METHOD: i32 = 1;
const INTERNAL_ERROR: i32 = 6;
const PROTOCOL_ERROR: i32 = 7;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The request makes no sense; the client reads why.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// The column that was asked for does not exist.
    #[error("not found")]
    NotFound,
    /// Too few replicas are alive.
    #[error("unavailable")]
    Unavailable,
    /// Too few replicas answered in time.
    #[error("timed out")]
    TimedOut,
    /// The login was refused; the client reads why.
    #[error("authentication failed: {0}")]
    Authentication(String),
    /// The caller may not do this; the client reads why.
    #[error("not authorized: {0}")]
    Authorization(String),
    /// Something of ours failed. The text goes to the log, not to the client.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Failure {
    fn declared(&self) -> Option<(Exception, Option<&str>)> {
        match self {
            Self::InvalidRequest(why) => Some((Exception::InvalidRequest, Some(why))),
            Self::NotFound => Some((Exception::NotFound, None)),
            Self::Unavailable => Some((Exception::Unavailable, None)),
            Self::TimedOut => Some((Exception::TimedOut, None)),
            Self::Authentication(why) => Some((Exception::Authentication, Some(why))),
            Self::Authorization(why) => Some((Exception::Authorization, Some(why))),
            Self::Internal(_) => None,
        }
    }
}

/// What an answer repeats of the request, and how it travels.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Method as the client wrote it.
    pub name: &'a [u8],
    /// Any number.
    pub seqid: i32,
    /// Whether a length goes before each message.
    pub framed: bool,
    /// Whose numbers of exceptions apply.
    pub version: ApiVersion,
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
    pub fn unknown_method(&self, out: &mut Vec<u8>) {
        let name = super::text::decode_lossy(self.name);
        self.application_exception(&format!("Invalid method name: '{name}'"), UNKNOWN_METHOD, out);
    }

    /// Answers a call whose arguments lack something.
    pub fn protocol_error(&self, why: &str, out: &mut Vec<u8>) {
        self.application_exception(why, PROTOCOL_ERROR, out);
    }

    /// Answers a call that failed for a reason that the client is not told.
    pub fn internal_error(&self, out: &mut Vec<u8>) {
        let name = super::text::decode_lossy(self.name);
        let message = format!("Internal error processing {name}");
        self.application_exception(&message, INTERNAL_ERROR, out);
    }
}

/// Proof that a call has been answered.
#[derive(Debug)]
#[must_use = "the service hands it back"]
pub struct Replied(());

/// The place for the answer to one call, in the output buffer of its connection.
///
/// Answering encodes at once, so that the value may borrow from whatever is at hand.
#[derive(Debug)]
pub struct Reply<'a, R> {
    method: &'static Method,
    head: Head<'a>,
    out: &'a mut Vec<u8>,
    reporter: &'a Reporter,
    result: PhantomData<fn(R)>,
}

impl<'a, R: WireType> Reply<'a, R> {
    pub(super) fn new(call: Call<'a>) -> Self {
        let Call { method, head, out, reporter, .. } = call;
        Self { method, head, out, reporter, result: PhantomData }
    }

    /// Answers with a result.
    pub fn ok(self, value: impl Encode<R>) -> Replied {
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
        Replied(())
    }

    /// Answers with an exception; one that the method does not declare becomes an internal error,
    /// and its cause goes to the log. When every call fails, as on a full disk, a few lines do.
    #[allow(clippy::needless_pass_by_value, reason = "callers hand over what they just made")]
    pub fn fail(self, failure: Failure) -> Replied {
        let declared =
            failure.declared().and_then(|(exception, why)| Some((self.field_of(exception)?, why)));
        if let Some((id, why)) = declared {
            self.head.message(REPLY, self.out, |out| {
                let [high, low] = id.to_be_bytes();
                out.extend_from_slice(&[wire_type::STRUCT, high, low]);
                if let Some(why) = why {
                    encode_field::<Text<'_>>(1, why, out);
                }
                out.extend_from_slice(&[wire_type::STOP, wire_type::STOP]);
            });
        } else {
            self.reporter.log(
                log::Level::Error,
                Reason::Internal,
                format_args!("{}: {failure}", self.method.name),
            );
            self.head.internal_error(self.out);
        }
        Replied(())
    }

    fn field_of(&self, exception: Exception) -> Option<i16> {
        field_of(self.method, self.head.version, exception)
    }
}

/// Field of the result in which an exception travels to clients of a generation.
///
/// 0.4 knew no timeout: its clients take a void result with a field that they do not know for
/// success, so they are told `Unavailable`. Its `get_slice` had that one at another number.
fn field_of(method: &Method, version: ApiVersion, exception: Exception) -> Option<i16> {
    let exception = match (version, exception) {
        (ApiVersion::V04, Exception::TimedOut) => Exception::Unavailable,
        _ => exception,
    };
    let throws = method.throws.iter().find(|throws| throws.exception == exception)?;
    let moved = version == ApiVersion::V04
        && exception == Exception::Unavailable
        && method.name == "get_slice";
    Some(if moved { 3 } else { throws.id })
}

/// A call whose arguments have not been decoded yet.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: &'static Method,
    pub(super) head: Head<'a>,
    /// Begins with the arguments; whatever follows them belongs to later messages.
    pub(super) args: &'a [u8],
    pub(super) out: &'a mut Vec<u8>,
    /// What the decoded arguments take their memory from.
    pub(super) memory: &'a Arc<Budget>,
    /// Hears of failures that the client is not told.
    pub(super) reporter: &'a Reporter,
}

/// What became of a call that was executed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// Bytes that the arguments took.
    pub(super) length: usize,
    /// False if the service panicked: the answer is missing or half written.
    pub(super) sound: bool,
}

/// Drives a call to its end; false if it panicked. The future may not be polled again then.
pub(super) async fn catch_panic<F: Future<Output = Replied>>(mut call: Pin<&mut F>) -> bool {
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context))) {
            Ok(Poll::Ready(Replied(()))) => Poll::Ready(true),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(false),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::service::method_named;

    /// Fields of InvalidRequest, NotFound, Unavailable and TimedOut in the results of a method.
    fn fields(name: &str, version: ApiVersion) -> [Option<i16>; 4] {
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
            assert_eq!(of(ApiVersion::V04), [Some(1), None, Some(2), Some(2)], "{name}");
            assert_eq!(of(ApiVersion::V05), [Some(1), None, Some(2), Some(3)], "{name}");
            assert_eq!(of(ApiVersion::V06), of(ApiVersion::V05), "{name}");
        }
        let slice = |version| fields("get_slice", version);
        assert_eq!(slice(ApiVersion::V04), [Some(1), None, Some(3), Some(3)]);
        assert_eq!(slice(ApiVersion::V05), [Some(1), None, Some(2), Some(3)]);
        assert_eq!(slice(ApiVersion::V06), slice(ApiVersion::V05));
        let get = |version| fields("get", version);
        assert_eq!(get(ApiVersion::V04), [Some(1), Some(2), Some(3), Some(3)]);
        assert_eq!(get(ApiVersion::V05), [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(get(ApiVersion::V06), get(ApiVersion::V05));
        for version in [ApiVersion::V04, ApiVersion::V05, ApiVersion::V06] {
            assert_eq!(fields("describe_keyspace", version), [None, Some(1), None, None]);
        }
    }
}
