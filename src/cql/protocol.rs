//! CQL as a protocol of the server: finds the requests of a connection and has them answered.
//!
//! The requests that change the state of a connection are answered in their place, those about
//! statements beside each other.

use super::error::{CqlError, ErrorKind};
use super::events::{EventKinds, Events};
use super::frame::{self, Head, LONGEST_BODY, flag, opcode};
use super::prepared;
use super::reply::{COMPRESSION, Reply};
use super::request::{Request, Work};
use super::session::Session;
use super::wire::{Few, Malformed, Reader};
use crate::base::budget::Charge;
use crate::base::clock::Clock;
use crate::base::limited_log::LimitedLog;
use crate::server::{Close, Decoded, Protocol, Refusal, RefusalKind, Room, Whole, catch_panic};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Shortest time between two log lines for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Bodies up to this size are not charged, so that small requests do not compete for a counter.
const UNCHARGED_BYTES: usize = 4 << 10;

/// The authenticator that drivers know, for logins with user and password.
const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// Least version of CQL that clients may ask for.
const LEAST_CQL_VERSION: u32 = 3;

/// Subject of a log line. Each one has its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// A request that failed for an internal reason.
    Internal,
    /// A request that panicked.
    Panic,
}

/// Answers the requests of a port that are about statements and users.
pub trait Execute: Send + Sync + 'static {
    /// Answers a request. Nothing that it has written to the reply is sent after an error.
    fn execute(
        &self,
        session: &Session,
        work: &Work<'_>,
        reply: &mut Reply<'_>,
    ) -> impl Future<Output = Result<(), CqlError>> + Send;

    /// Whether clients have to log in.
    fn requires_login(&self) -> bool;

    /// Logs a user in.
    fn log_in(
        &self,
        session: &Session,
        user: String,
        password: String,
    ) -> impl Future<Output = Result<(), CqlError>> + Send;
}

/// CQL on a port.
#[derive(Debug)]
pub struct Cql<E> {
    pub(super) executor: E,
    events: Arc<Events>,
    reporter: LimitedLog<Reason>,
}

impl<E> Cql<E> {
    /// A port whose statements an executor answers, and whose clients may register for events.
    pub fn new(executor: E, events: Arc<Events>, clock: Arc<dyn Clock>) -> Self {
        let reporter = LimitedLog::new("alexandra::cql", clock, LOG_INTERVAL);
        Self { executor, events, reporter }
    }
}

/// Parse state of a connection: bytes that are left of a refused request.
#[derive(Debug, Default)]
pub struct Framing {
    refused: usize,
}

/// A frame with a request.
#[derive(Debug)]
pub struct Frame {
    head: Head,
    /// The body, or why the frame is no request.
    body: Result<Vec<u8>, Malformed>,
    /// Memory of the body.
    _charge: Option<Charge>,
}

impl<E: Execute> Protocol for Cql<E> {
    type Framing = Framing;
    type Session = Session;
    type Request<'a> = Frame;

    fn connect(&self, peer: SocketAddr) -> (Framing, Session) {
        (Framing::default(), Session::new(peer))
    }

    fn decode<'a>(
        &self,
        framing: &mut Framing,
        bytes: &'a [u8],
        room: &'a Room,
    ) -> Result<Decoded<'a, Self>, Close> {
        if framing.refused > 0 {
            let passed = bytes.len().min(framing.refused);
            framing.refused -= passed;
            return Ok(Decoded::PassOver(passed));
        }
        if let Some(foreign) = foreign(bytes) {
            return Err(Close::foreign(foreign, Vec::new()));
        }
        let Some(head) = Head::decode(bytes) else { return Ok(Decoded::Incomplete) };
        check_length(&head, room)?;
        let length = head.own_length() + head.length as usize;
        let Some(body) = bytes.get(head.own_length()..length) else {
            return Ok(Decoded::Incomplete);
        };
        let mut body = head.fault().map_or(Ok(body), Err);
        let mut charge = None;
        if let Ok(found) = body {
            match memory(&head, found, room) {
                Ok(needed) if needed > UNCHARGED_BYTES => {
                    let taken = charge.insert(Charge::new(Arc::clone(&room.memory)));
                    if !taken.try_set(needed) {
                        return Ok(Decoded::NoMemory(needed));
                    }
                }
                Ok(_) => {}
                Err(malformed) => body = Err(malformed),
            }
        }
        let only_reads = body.as_ref().is_ok_and(|body| only_reads(&head, body));
        let is_work = matches!(
            head.opcode,
            opcode::QUERY | opcode::PREPARE | opcode::EXECUTE | opcode::BATCH
        );
        let request = Frame { head, body: body.map(<[u8]>::to_vec), _charge: charge };
        let whole = Whole { request, length, only_reads };
        Ok(if is_work { Decoded::Beside(whole) } else { Decoded::InPlace(whole) })
    }

    fn refuse(
        &self,
        framing: &mut Framing,
        bytes: &[u8],
        refusal: &Refusal<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<&'static str> {
        // Without a head there is nothing to answer to.
        let head = Head::decode(bytes)?;
        framing.refused = head.own_length() + head.length as usize;
        let kind = match refusal.kind {
            RefusalKind::Passing => ErrorKind::Overloaded,
            // A protocol error would end the connection for drivers, with all its requests.
            RefusalKind::TooLarge => ErrorKind::Invalid,
            RefusalKind::Plain => ErrorKind::Protocol,
        };
        put_error(head, &CqlError::new(kind, refusal.why), reply);
        Some(opcode::request_name(head.opcode).unwrap_or("an unknown request"))
    }

    async fn answer(&self, session: &Session, request: &Self::Request<'_>, reply: &mut Vec<u8>) {
        let mut reply = Reply::new(request.head, session.compresses(), reply);
        let answered = {
            let mut answer = pin!(self.respond(session, request, &mut reply));
            catch_panic(answer.as_mut()).await
        };
        let name = opcode::request_name(request.head.opcode).unwrap_or_default();
        let reason = if answered.is_some() { Reason::Internal } else { Reason::Panic };
        if let Err(error) = answered.unwrap_or_else(|| Err(CqlError::server("it panicked"))) {
            if let ErrorKind::Server { cause } = &error.kind {
                let line = format_args!("{name} of {} failed: {cause}", session.peer());
                self.reporter.log(log::Level::Error, reason, line);
            }
            reply.error(&error);
        }
        reply.finish();
    }

    fn poll_push(
        &self,
        session: &Session,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<u8>, Close>> {
        let Some(registration) = session.registration.get() else { return Poll::Pending };
        let frame = ready!(registration.poll_next(context));
        Poll::Ready(frame.ok_or_else(|| Close::unread("its events")))
    }
}

impl<E: Execute> Cql<E> {
    async fn respond(
        &self,
        session: &Session,
        frame: &Frame,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let Frame { head, body, .. } = frame;
        let body = match body {
            Ok(body) => plain_body(head, body, session)?,
            Err(malformed) => return Err(malformed.clone().into()),
        };
        let mut reader = Reader::new(&body);
        if head.has(flag::CUSTOM_PAYLOAD) && head.version >= 4 {
            reader.skip_bytes_map()?;
        }
        let request = Request::decode(head.version, head.opcode, reader)?;
        session.check_turn(head.opcode)?;
        match request {
            Request::Work(work) => return self.executor.execute(session, &work, reply).await,
            Request::Startup(options) => self.start(session, &options, reply)?,
            Request::AuthResponse(token) => Box::pin(self.log_in(session, token, reply)).await?,
            Request::Options => reply.supported(),
            Request::Register(kinds) => {
                self.register(session, head.version, kinds);
                reply.ready();
            }
        }
        Ok(())
    }

    fn start(
        &self,
        session: &Session,
        options: &Few<(&str, &str)>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let option = |name| options.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
        let missing = || CqlError::protocol("Missing value CQL_VERSION in STARTUP message");
        let version = option("CQL_VERSION").ok_or_else(missing)?;
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < LEAST_CQL_VERSION) {
            return Err(CqlError::protocol(format!(
                "CQL version {version} is not supported by the binary protocol (supported version \
                 are >= 3.0.0)"
            )));
        }
        let compression = option("COMPRESSION");
        if let Some(other) = compression.filter(|name| !name.eq_ignore_ascii_case(COMPRESSION)) {
            return Err(CqlError::protocol(format!("Unknown compression algorithm: {other}")));
        }
        let requires_login = self.executor.requires_login();
        session.begin(compression.is_some(), requires_login);
        if requires_login {
            reply.authenticate(AUTHENTICATOR);
        } else {
            reply.ready();
        }
        Ok(())
    }

    async fn log_in(
        &self,
        session: &Session,
        token: Option<&[u8]>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let (user, password) = credentials(token.unwrap_or_default())?;
        self.executor.log_in(session, user, password).await?;
        session.log_in();
        reply.auth_success();
        Ok(())
    }

    fn register(&self, session: &Session, version: u8, kinds: EventKinds) {
        session.registration.get_or_init(|| self.events.listen(version)).add(kinds);
    }
}

/// User and password of SASL PLAIN: the user to act for, which is not looked at, a zero byte, the
/// user, a zero byte, the password.
fn credentials(token: &[u8]) -> Result<(String, String), CqlError> {
    let refused = |why: &str| CqlError::new(ErrorKind::BadCredentials, why);
    let mut parts = token.rsplitn(3, |byte| *byte == 0);
    let mut part = |what: &str| {
        let found = parts.next().filter(|found| !found.is_empty());
        let text = found.and_then(|found| std::str::from_utf8(found).ok()).map(str::to_owned);
        text.ok_or_else(|| refused(what))
    };
    let password = part("Password must not be null")?;
    let user = part("Authentication ID must not be null")?;
    Ok((user, password))
}

/// The body as it was before compression.
fn plain_body<'a>(
    head: &Head,
    body: &'a [u8],
    session: &Session,
) -> Result<Cow<'a, [u8]>, Malformed> {
    if !head.has(flag::COMPRESSED) {
        return Ok(Cow::Borrowed(body));
    }
    if !session.compresses() {
        return Err(Malformed::new("The frame is compressed, and STARTUP agreed on none"));
    }
    frame::decompress(body).map(Cow::Owned)
}

/// Memory that the body of a request takes, also when it is decompressed.
fn memory(head: &Head, body: &[u8], room: &Room) -> Result<usize, Malformed> {
    if !head.has(flag::COMPRESSED) {
        return Ok(body.len());
    }
    let plain = frame::plain_length(body)?;
    if plain > longest(room) {
        let longest = longest(room) >> 20;
        return Err(Malformed::new(format!(
            "The request has {plain} bytes before compression, and {longest} MB are allowed"
        )));
    }
    Ok(body.len() + plain)
}

/// Longest body of a request.
fn longest(room: &Room) -> usize {
    room.longest.min(LONGEST_BODY)
}

/// Ends a connection whose request is too long: its bytes cannot be passed over in good time.
fn check_length(head: &Head, room: &Room) -> Result<(), Close> {
    if head.length as usize <= longest(room) {
        return Ok(());
    }
    let longest = longest(room) >> 20;
    let why = format!("Request is too big: length {} exceeds {longest} MB", head.length);
    let mut words = Vec::new();
    put_error(*head, &CqlError::protocol(why), &mut words);
    Err(Close::too_long(head.length.into(), room).with_last_words(words))
}

/// Writes the answer to a request that is not looked at.
fn put_error(head: Head, error: &CqlError, out: &mut Vec<u8>) {
    let mut reply = Reply::new(head, false, out);
    reply.error(error);
    reply.finish();
}

/// Why the first bytes of a frame are of another protocol.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0, ..] | [0x80, 1, ..] => Some("it speaks Thrift to the CQL port: see ThriftPort"),
        [22, 3, ..] => Some("it speaks TLS, and CQL clients are served without"),
        [b'C'..=b'Z', b'A'..=b'Z', ..] => {
            Some("it speaks HTTP to the CQL port: JSON, metrics and nodetool are at AdminPort")
        }
        // Versions of later releases, and of a relative of the original.
        [version, ..] if !matches!(version & 0x7F, 1..=15 | 0x41 | 0x42) => {
            Some("it speaks another protocol to the CQL port")
        }
        _ => None,
    }
}

/// Whether a request changes nothing, so that it may be given up when its client leaves. False
/// where that is not to be seen at once.
fn only_reads(head: &Head, body: &[u8]) -> bool {
    match head.opcode {
        _ if head.has(flag::COMPRESSED) || head.has(flag::CUSTOM_PAYLOAD) => false,
        opcode::PREPARE | opcode::OPTIONS => true,
        opcode::QUERY => is_select(body.get(size_of::<i32>()..).unwrap_or_default()),
        opcode::EXECUTE => Reader::new(body).short_bytes().is_ok_and(prepared::only_reads),
        _ => false,
    }
}

/// Whether a statement begins as one that only reads.
fn is_select(text: &[u8]) -> bool {
    let word = text.trim_ascii_start().first_chunk::<6>();
    word.is_some_and(|word| word.eq_ignore_ascii_case(b"SELECT"))
}
