//! Thrift as a protocol of the server: finds the messages of a connection and has them answered.

use super::codec::{DecodeError, Malformed, Reader};
use super::idl::{Arguments, Cassandra, dispatch, method_named};
use super::message::{Form, Guess, Header};
use super::reply::{Head, Method, Reason, Reply, Reporter};
use super::scan::{Scanner, Step};
use crate::base::budget::Charge;
use crate::base::clock::Clock;
use crate::config::settings::Release;
use crate::server::{Close, Decoded, Protocol, Refusal, Room, Whole, catch_panic};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Shortest time between two log lines for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of the length of a frame.
const FRAME_HEAD: usize = size_of::<i32>();

/// Generation of the clients of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clients {
    /// Whose methods and exceptions they know.
    pub version: Release,
    /// `ThriftFramedTransport`: decides about connections whose first bytes say nothing.
    pub prefer_framed: bool,
}

/// Thrift on one port.
#[derive(Debug)]
pub struct Thrift<S> {
    service: Arc<S>,
    clients: Clients,
    reporter: Reporter,
}

impl<S> Thrift<S> {
    /// A port whose calls the service answers.
    pub fn new(service: Arc<S>, clients: Clients, clock: Arc<dyn Clock>) -> Self {
        let reporter = Reporter::new("alexandra::thrift", clock, LOG_INTERVAL);
        Self { service, clients, reporter }
    }
}

/// Parse state of a connection.
#[derive(Debug)]
pub struct Framing {
    peer: SocketAddr,
    form: Option<Form>,
    /// Bytes of the frame under way that follow. All of them have come.
    frame_left: usize,
    /// Scanner of the arguments of an unfinished unframed request.
    scanner: Option<Scanner>,
    /// A request that was refused, and has not ended yet.
    refused: Option<Refused>,
    /// Whether a call later than the generation of the port was logged.
    has_told_of_later: bool,
}

/// The rest of a request that was refused.
#[derive(Debug)]
struct Refused {
    /// This many bytes, whatever they are.
    bytes: usize,
    /// Then arguments, scanned up to the bytes at hand.
    arguments: Option<Scanner>,
}

impl Refused {
    /// The number of these bytes that belong to it, and whether it ends with them.
    fn pass_over(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let first = bytes.len().min(self.bytes);
        self.bytes -= first;
        let Some(scanner) = self.arguments.as_mut().filter(|_| self.bytes == 0) else {
            return Ok((first, self.bytes == 0));
        };
        let (passed, is_over) = scanner.pass_over(bytes.get(first..).unwrap_or_default())?;
        Ok((first + passed, is_over))
    }
}

/// A message that can be answered.
pub struct Request<'a> {
    head: Head<'a>,
    call: Call<'a>,
}

#[expect(clippy::large_enum_variant, reason = "a box would cost more than a copy")]
enum Call<'a> {
    Known {
        method: &'static Method,
        args: Arguments<'a>,
        /// Memory of the arguments.
        _charge: Option<Charge>,
    },
    Unknown,
    /// A required field is absent.
    Lacking(Box<str>),
}

impl<S: Cassandra> Protocol for Thrift<S> {
    type Framing = Framing;
    type Session = S::Session;
    type Request<'a> = Request<'a>;

    fn connect(&self, peer: SocketAddr) -> (Framing, S::Session) {
        let framing = Framing {
            peer,
            form: None,
            frame_left: 0,
            scanner: None,
            refused: None,
            has_told_of_later: false,
        };
        (framing, S::Session::from(peer))
    }

    fn decode<'a>(
        &self,
        framing: &mut Framing,
        bytes: &'a [u8],
        room: &'a Room,
    ) -> Result<Decoded<'a, Self>, Close> {
        if framing.form.is_none() {
            match Guess::of(bytes) {
                Guess::Thrift => {}
                Guess::Undecided => return Ok(Decoded::Incomplete),
                Guess::Foreign(foreign) => {
                    return Err(Close::foreign(foreign.why(), foreign.answer()));
                }
            }
        }
        match self.next(framing, bytes, room) {
            Ok(decoded) => Ok(decoded),
            Err(DecodeError::Incomplete) => Ok(Decoded::Incomplete),
            Err(DecodeError::OverBudget(needed)) => Ok(Decoded::NoMemory(needed)),
            Err(DecodeError::Missing(why)) => {
                // The rest is what the client has sent, which is not for the log.
                let (what, _) = why.split_once(" Struct: ").unwrap_or((&why, ""));
                let own = self.clients.version;
                Err(Close::malformed(format!("as clients of {own} expect: {what}")))
            }
            Err(DecodeError::Malformed(Malformed::TooLong(length))) => {
                Err(Close::too_long(length, room))
            }
            Err(DecodeError::Malformed(malformed)) => {
                Err(Close::malformed(format!("no message: {malformed}")))
            }
        }
    }

    fn refuse(
        &self,
        framing: &mut Framing,
        bytes: &[u8],
        refusal: &Refusal<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<&'static str> {
        let begins_frame = framing.form == Some(Form::Framed) && framing.frame_left == 0;
        let start = if begins_frame { FRAME_HEAD } else { 0 };
        // Without a head there is nothing to answer to.
        let message = bytes.get(start..).unwrap_or_default();
        let header = Header::decode(message).ok()?;
        let refused = if begins_frame {
            let length = Reader::new(bytes).length().ok()?;
            Refused { bytes: FRAME_HEAD + length, arguments: None }
        } else {
            Refused { bytes: header.length, arguments: Some(framing.scanner()) }
        };
        framing.refused = Some(refused);
        let (method, head) = self.head(framing, &header);
        let Some(method) = method else {
            head.unknown_method(reply);
            return Some("an unknown method");
        };
        Reply { method, head, out: reply, reporter: &self.reporter }.refuse(refusal.why);
        Some(method.name)
    }

    async fn answer(&self, session: &S::Session, request: &Self::Request<'_>, reply: &mut Vec<u8>) {
        let Request { head, call } = request;
        let (method, args) = match call {
            Call::Known { method, args, .. } => (method, args),
            Call::Unknown => return head.unknown_method(reply),
            Call::Lacking(why) => return head.protocol_error(why, reply),
        };
        let is_answered = {
            let place = Reply { method, head: *head, out: &mut *reply, reporter: &self.reporter };
            let mut answer = pin!(dispatch(&*self.service, session, args, place));
            catch_panic(answer.as_mut()).await.is_some()
        };
        if !is_answered {
            self.reporter.log(
                log::Level::Error,
                Reason::Panic,
                format_args!("{} panicked; its caller gets an internal error", method.name),
            );
            reply.clear();
            head.internal_error(reply);
        }
    }
}

impl<S: Cassandra> Thrift<S> {
    /// The message, or the beginning of a frame, at the start of these bytes.
    fn next<'a>(
        &self,
        framing: &mut Framing,
        bytes: &'a [u8],
        room: &'a Room,
    ) -> Result<Decoded<'a, Self>, DecodeError> {
        if let Some(refused) = &mut framing.refused {
            let (passed, is_over) = refused.pass_over(bytes)?;
            if is_over {
                framing.refused = None;
                framing.frame_left = framing.frame_left.saturating_sub(passed);
            }
            // The next item of the arguments needs more bytes.
            let is_stuck = passed == 0 && !is_over;
            return if is_stuck {
                Err(DecodeError::Incomplete)
            } else {
                Ok(Decoded::PassOver(passed))
            };
        }
        if framing.form.is_none() {
            framing.form = Form::recognise(bytes, self.clients.prefer_framed)?;
        }
        match framing.form {
            None => Err(DecodeError::Incomplete),
            Some(Form::Unframed) => self.message(framing, bytes, room).map(Decoded::InPlace),
            Some(Form::Framed) if framing.frame_left == 0 => {
                framing.frame_left = frame_length(bytes, room)?;
                Ok(Decoded::PassOver(FRAME_HEAD))
            }
            Some(Form::Framed) => {
                let frame = bytes.get(..framing.frame_left).unwrap_or_default();
                match self.message(framing, frame, room) {
                    Ok(whole) => {
                        framing.frame_left -= whole.length;
                        Ok(Decoded::InPlace(whole))
                    }
                    Err(DecodeError::Incomplete) => Err(Malformed::ShortFrame.into()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The message at the start of these bytes.
    fn message<'a>(
        &self,
        framing: &mut Framing,
        bytes: &'a [u8],
        room: &'a Room,
    ) -> Result<Whole<Request<'a>>, DecodeError> {
        let header = Header::decode(bytes)?;
        let args = bytes.get(header.length..).unwrap_or_default();
        // Decoding starts over when the scanner has seen the end, and not before.
        if framing.scanner.is_some() {
            framing.end_of(args, room)?;
        }
        let (method, head) = self.head(framing, &header);
        let only_reads = method.is_none_or(|method| method.only_reads());
        let decoded = method.map(|method| (method, decode_call(method, args, head.version, room)));
        let (call, length) = match decoded {
            Some((_, Ok(decoded))) => decoded,
            None => (Call::Unknown, framing.end_of(args, room)?),
            Some((_, Err(DecodeError::Missing(why)))) => {
                let length = framing.end_of(args, room)?;
                if head.version < Release::V06 {
                    return Err(DecodeError::Missing(why));
                }
                (Call::Lacking(why), length)
            }
            Some((_, Err(DecodeError::Incomplete))) => {
                framing.end_of(args, room)?;
                return Err(DecodeError::Incomplete);
            }
            Some((_, Err(error))) => return Err(error),
        };
        Ok(Whole { request: Request { head, call }, length: header.length + length, only_reads })
    }

    /// The method that is called, and the fields of the request that its answer repeats.
    fn head<'a>(
        &self,
        framing: &mut Framing,
        header: &Header<'a>,
    ) -> (Option<&'static Method>, Head<'a>) {
        let framed = framing.form == Some(Form::Framed);
        let own = self.clients.version;
        let head = Head { name: header.name, seqid: header.seqid, framed, version: own };
        let Some(method) = method_named(header.name) else { return (None, head) };
        // A client that makes a later call is of a later generation, so its other calls may be
        // taken for those of this one.
        let (since, _) = method.versions;
        if since > own && !framing.has_told_of_later {
            framing.has_told_of_later = true;
            let (peer, name) = (framing.peer, method.name);
            let line = format_args!(
                "{peer} calls {name}, which came with {since}, where other calls are answered as \
                 by {own}: see ThriftApiVersion and ThriftListeners"
            );
            self.reporter.warn(Reason::LaterCall, line);
        }
        (Some(method), Head { version: own.max(since), ..head })
    }
}

impl Framing {
    /// The scanner of the arguments under way.
    fn scanner(&mut self) -> Scanner {
        self.scanner.take().unwrap_or_else(Scanner::of_struct)
    }

    /// Length of the arguments. While they are incomplete the scanner remembers how far it came.
    fn end_of(&mut self, args: &[u8], room: &Room) -> Result<usize, DecodeError> {
        let mut scanner = self.scanner();
        let step = scanner.advance(args)?;
        check_length(scanner.least_length(), room)?;
        match step {
            Step::Done(length) => Ok(length),
            Step::More => {
                self.scanner = Some(scanner);
                Err(DecodeError::Incomplete)
            }
        }
    }
}

/// Length of a frame whose bytes have all come.
fn frame_length(bytes: &[u8], room: &Room) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes);
    let length = reader.length()?;
    check_length(length as u64, room)?;
    if reader.take(length).is_err() {
        // Do not wait for bytes that cannot become a message.
        Header::decode(bytes.get(FRAME_HEAD..).unwrap_or_default())?;
        return Err(DecodeError::Incomplete);
    }
    Ok(length)
}

fn check_length(length: u64, room: &Room) -> Result<(), Malformed> {
    if length > room.longest as u64 { Err(Malformed::TooLong(length)) } else { Ok(()) }
}

/// The call with these arguments, and how many bytes they take. Nothing is executed unless they are
/// whole and valid.
fn decode_call<'a>(
    method: &'static Method,
    args: &'a [u8],
    version: Release,
    room: &'a Room,
) -> Result<(Call<'a>, usize), DecodeError> {
    let mut reader = Reader::new(args).of(version).within(&room.memory);
    let args = (method.decode)(&mut reader)?;
    let length = reader.position();
    let known = Call::Known { method, args, _charge: reader.into_charge()? };
    Ok((known, length))
}
