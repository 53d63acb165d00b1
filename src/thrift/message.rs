//! The first bytes: of a connection, which tell the form of its messages or another protocol, whose
//! clients are turned away in their own; and of each message.

use super::codec::{DecodeError, Malformed, Reader};

/// Longest method name. The longest of the IDL has 24 bytes.
pub(super) const MAX_METHOD_NAME_BYTES: usize = 1024;

/// High half of the first number of a message with a version.
const VERSION_1: u32 = 0x8001;

/// Separation of the messages of a connection. The first bytes of a connection decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Back to back.
    Unframed,
    /// Each after its length.
    Framed,
}

impl Form {
    /// Recognises the form by the first bytes of a connection; `None` if they are too few.
    ///
    /// `80 01` begins an unframed message. A length is that of a frame if `80 01` or `00` follows,
    /// which is how messages begin with and without a version, or if no method has so long a name.
    /// A small length and a letter are an unframed message without a version. `prefer_framed`
    /// decides about the rest, which no known client sends.
    pub(super) fn recognise(
        bytes: &[u8],
        prefer_framed: bool,
    ) -> Result<Option<Self>, DecodeError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let first = u32::from_be_bytes(*length);
        if first >> 31 == 1 {
            return check_version(first).map(|()| Some(Self::Unframed)).map_err(Into::into);
        }
        if first as usize > MAX_METHOD_NAME_BYTES {
            return Ok(Some(Self::Framed));
        }
        let preferred = if prefer_framed { Self::Framed } else { Self::Unframed };
        if first == 0 {
            return Ok(Some(preferred));
        }
        Ok(match rest {
            [] => None,
            [0x80, 0x01, ..] | [0, ..] => Some(Self::Framed),
            [0x80] => None,
            [letter, ..] if letter.is_ascii_alphanumeric() || *letter == b'_' => {
                Some(Self::Unframed)
            }
            _ => Some(preferred),
        })
    }
}

/// The beginning of a request. The message type is not looked at: the original did not either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// Method.
    pub(super) name: &'a [u8],
    /// Any number; the reply repeats it.
    pub(super) seqid: i32,
    /// Bytes up to the arguments.
    pub(super) length: usize,
}

impl<'a> Header<'a> {
    /// Reads a header with or without a version.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let first = reader.i32()?;
        let has_version = first < 0;
        let name_length = if has_version {
            check_version(first as u32)?;
            reader.i32()?
        } else {
            first
        };
        let name_bytes =
            usize::try_from(name_length).map_err(|_| Malformed::NegativeLength(name_length))?;
        if name_bytes > MAX_METHOD_NAME_BYTES {
            return Err(Malformed::MethodName(name_bytes).into());
        }
        let name = reader.take(name_bytes)?;
        if !has_version {
            reader.byte()?;
        }
        let seqid = reader.i32()?;
        Ok(Self { name, seqid, length: reader.position() })
    }
}

fn check_version(first: u32) -> Result<(), Malformed> {
    if first >> 16 == VERSION_1 { Ok(()) } else { Err(Malformed::Version(first)) }
}

/// First bytes of HTTP requests: methods of HTTP/1, and the preface of HTTP/2.
const HTTP_METHODS: [&[u8; 4]; 10] =
    [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI "];

/// TLS: the alert `handshake_failure`, in a record of the oldest version, which all clients read.
const TLS_HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 1, 0, 2, 2, 40];

/// CQL: opcodes of the requests that begin a connection.
const CQL_STARTUP: u8 = 1;
const CQL_OPTIONS: u8 = 5;

/// CQL: opcode of an error.
const CQL_ERROR: u8 = 0;

/// CQL: the error for a request that the server does not understand.
const CQL_PROTOCOL_ERROR: i32 = 0x000A;

/// CQL: bit of the version that marks a response.
const CQL_RESPONSE: u8 = 0x80;

/// CQL: first version whose stream ids have two bytes.
const CQL_WIDE_STREAMS: u8 = 3;

const CQL_TEXT: &str = "this port speaks Thrift: CQL clients connect to CqlPort, usually 9042";

/// First byte of the Compact protocol, and second ones: calls, also those without an answer.
const COMPACT: u8 = 0x82;
const COMPACT_CALLS: [u8; 2] = [0x21, 0x81];

/// Its length is written in one byte.
const COMPACT_TEXT: &str = "this server speaks the Binary protocol of Thrift, not the Compact one";

const HTTP_TEXT: &str = "This port speaks Thrift. nodetool, JSON over HTTP and metrics are at \
                         AdminAddress and AdminPort, by default http://127.0.0.1:8080.\n";

/// A protocol that is not Thrift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    Http,
    Tls,
    /// A request of the native protocol of later Cassandras.
    Cql {
        version: u8,
        stream: [u8; 2],
    },
    /// Thrift by its other protocol.
    Compact {
        framed: bool,
    },
}

impl Foreign {
    /// A refusal in this protocol.
    pub(super) fn answer(self) -> Vec<u8> {
        match self {
            Self::Http => format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{HTTP_TEXT}",
                HTTP_TEXT.len()
            )
            .into_bytes(),
            Self::Tls => TLS_HANDSHAKE_FAILURE.to_vec(),
            Self::Cql { version, stream } => cql_error(version, stream),
            Self::Compact { framed } => compact_exception(framed),
        }
    }

    /// A line for the operator.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Http => {
                "it speaks HTTP to a Thrift port: JSON, metrics and nodetool are at AdminPort"
            }
            Self::Tls => {
                "it speaks TLS, and Thrift clients are served without: switch TLS off in the \
                 client, or let a proxy end it before this port"
            }
            Self::Cql { .. } => {
                "it speaks CQL to a Thrift port: CQL clients connect to CqlPort, usually 9042"
            }
            Self::Compact { .. } => {
                "it speaks the Compact protocol of Thrift: set the client to the Binary one"
            }
        }
    }
}

/// An error in the frame of this version, for the request on this stream.
fn cql_error(version: u8, stream: [u8; 2]) -> Vec<u8> {
    let stream_bytes = if version < CQL_WIDE_STREAMS { 1 } else { 2 };
    let mut body = CQL_PROTOCOL_ERROR.to_be_bytes().to_vec();
    body.extend_from_slice(&(CQL_TEXT.len() as u16).to_be_bytes());
    body.extend_from_slice(CQL_TEXT.as_bytes());
    let mut frame = vec![CQL_RESPONSE | version, 0];
    frame.extend(stream.into_iter().take(stream_bytes));
    frame.push(CQL_ERROR);
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend(body);
    frame
}

/// `TApplicationException` of the Compact protocol, without the name of the call.
fn compact_exception(framed: bool) -> Vec<u8> {
    // No name and no number of a call; then text and type, which is INVALID_PROTOCOL.
    let mut message = vec![COMPACT, 0x61, 0, 0, 0x18, COMPACT_TEXT.len() as u8];
    message.extend_from_slice(COMPACT_TEXT.as_bytes());
    message.extend_from_slice(&[0x15, 2 * 9, 0]);
    let length = (message.len() as u32).to_be_bytes();
    if framed { [&length, &*message].concat() } else { message }
}

/// Which protocol the first bytes of a connection are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    /// Nothing but Thrift can be meant.
    Thrift,
    /// More bytes are needed.
    Undecided,
    Foreign(Foreign),
}

impl Guess {
    /// Guesses by the first bytes of a connection.
    ///
    /// The other protocols begin with bytes that may be the length of a Thrift frame of 16 MB or
    /// more. After such a length a message follows: `80 01`, a type and a length of at most 1024,
    /// or such a length at once and a name.
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [COMPACT, call, ..] if COMPACT_CALLS.contains(call) => {
                return Self::Foreign(Foreign::Compact { framed: false });
            }
            // No name of a method begins like this.
            [0, _, _, _, COMPACT, call, ..] if COMPACT_CALLS.contains(call) => {
                return Self::Foreign(Foreign::Compact { framed: true });
            }
            [0, _, _, _, COMPACT] => return Self::Undecided,
            _ => {}
        }
        // The hello of TLS in a record of SSL 2, as clients of the time send it.
        if let [0x80..=0xFF, 2..=0xFF, 1, 3, ..] = bytes {
            return Self::Foreign(Foreign::Tls);
        }
        let method = bytes.get(..4).unwrap_or(bytes);
        let is_http = HTTP_METHODS.iter().any(|it| it.starts_with(method));
        if !is_http && !matches!(bytes, [1..=6 | 22 | 0x41 | 0x42, ..]) {
            return Self::Thrift;
        }
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Self::Undecided };
        match *head {
            [22, 3, 0..=4, _, _, 1, 0, _] => match rest {
                // The version that the hello names.
                [_, 3, ..] => Self::Foreign(Foreign::Tls),
                [_, _, ..] => Self::Thrift,
                _ => Self::Undecided,
            },
            [version @ 1..=2, _, stream, opcode, 0, 0, length @ ..] => {
                let cql = Self::Foreign(Foreign::Cql { version, stream: [stream, 0] });
                match (opcode, length, rest) {
                    (CQL_OPTIONS, [0, 0], _) => cql,
                    // A map of strings, where a name would follow.
                    (CQL_STARTUP, _, [0, ..]) => cql,
                    (CQL_STARTUP, _, []) => Self::Undecided,
                    _ => Self::Thrift,
                }
            }
            [version @ 3..=6, _, a, b, CQL_STARTUP | CQL_OPTIONS, 0, ..] => {
                Self::Foreign(Foreign::Cql { version, stream: [a, b] })
            }
            // Versions of a later product, which drivers try first. They go back to this one.
            [0x41 | 0x42, _, a, b, CQL_STARTUP | CQL_OPTIONS, 0, ..] => {
                Self::Foreign(Foreign::Cql { version: 4, stream: [a, b] })
            }
            [a, b, c, d, b' '..=b'~', ..] if HTTP_METHODS.contains(&&[a, b, c, d]) => {
                Self::Foreign(Foreign::Http)
            }
            _ => Self::Thrift,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_form() {
        let cases: [(&[u8], Option<Form>); 12] = [
            (b"", None),
            (b"\x80\x01\x00", None),
            (b"\x80\x01\x00\x01", Some(Form::Unframed)),
            (b"\x00\x00\x00\x03", None),
            (b"\x00\x00\x00\x03get", Some(Form::Unframed)),
            (b"\x00\x00\x00\x21\x80", None),
            (b"\x00\x00\x00\x21\x80\x01", Some(Form::Framed)),
            (b"\x00\x00\x00\x21\x00", Some(Form::Framed)),
            (b"\x00\x10\x00\x00", Some(Form::Framed)),
            (b"\x00\x00\x00\x05\x07", Some(Form::Unframed)),
            (b"\x00\x00\x00\x05\x80\x02", Some(Form::Unframed)),
            (b"\x00\x00\x00\x00", Some(Form::Unframed)),
        ];
        for (bytes, form) in cases {
            assert_eq!(Form::recognise(bytes, false), Ok(form), "{bytes:02X?}");
        }
    }

    #[test]
    fn the_preference_decides_only_what_nothing_else_can() {
        for undecided in [b"\x00\x00\x00\x05\x07".as_slice(), b"\x00\x00\x00\x00"] {
            assert_eq!(Form::recognise(undecided, true), Ok(Some(Form::Framed)));
        }
        for decided in [b"\x80\x01\x00\x01".as_slice(), b"\x00\x00\x00\x03get"] {
            assert_eq!(Form::recognise(decided, true), Ok(Some(Form::Unframed)));
        }
        let other = Form::recognise(b"\x80\x02\x00\x01", true);
        assert_eq!(other, Err(Malformed::Version(0x8002_0001).into()));
    }

    #[test]
    fn headers_with_and_without_a_version() {
        let versioned = b"\x80\x01\x00\x01\x00\x00\x00\x03get\xFF\xFF\xFF\xFErest";
        let expected = Header { name: b"get", seqid: -2, length: 15 };
        assert_eq!(Header::decode(versioned), Ok(expected));
        let old = b"\x00\x00\x00\x03get\x01\x00\x00\x00\x09rest";
        assert_eq!(Header::decode(old), Ok(Header { name: b"get", seqid: 9, length: 12 }));
        for end in 0..15 {
            assert_eq!(Header::decode(&versioned[..end]), Err(DecodeError::Incomplete));
        }
        let long = Header::decode(b"\x00\x00\x04\x01g");
        assert_eq!(long, Err(Malformed::MethodName(1025).into()));
    }

    #[test]
    fn messages_of_thrift_are_never_taken_for_another_protocol() {
        let [versioned, old] =
            [b"\x80\x01\x00\x01\x00\x00\x00\x03get", b"\x00\x00\x00\x06insert\x01"];
        let mut lengths: Vec<[u8; 4]> = HTTP_METHODS.into_iter().copied().collect();
        lengths.extend((0..=255).flat_map(|low| [1, 2, 3, 4, 5, 6, 22].map(|it| [it, 3, 1, low])));
        for length in lengths {
            for message in [versioned.as_slice(), old] {
                let bytes = [&length, message].concat();
                assert_eq!(Guess::of(&bytes), Guess::Thrift, "{bytes:02X?}");
            }
        }
        let others: [&[u8]; 5] =
            [versioned, old, b"\x80\x02\x00\x01", b"JRMI\x00\x02\x4B", b"\x7F\xFF\xFF\xFF"];
        for first in others {
            assert_eq!(Guess::of(first), Guess::Thrift);
        }
    }

    #[test]
    fn other_protocols_are_recognised_as_soon_as_their_bytes_tell() {
        let cql = |version, stream| Foreign::Cql { version, stream };
        let startup = b"\x02\x00\x07\x01\x00\x00\x00\x16\x00\x01\x00\x0BCQL_VERSION";
        let cases: [(&[u8], Foreign); 12] = [
            (b"\x42\x00\x00\x03\x05\x00\x00\x00\x00", cql(4, [0, 3])),
            (b"GET / HTTP/1.1\r\n", Foreign::Http),
            (b"PRI * HTTP/2.0\r\n", Foreign::Http),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03", Foreign::Tls),
            (b"\x16\x03\x01\x00\x80\x01\x00\x00\x7C\x03\x03", Foreign::Tls),
            (b"\x80\x2E\x01\x03\x01\x00\x15", Foreign::Tls),
            (b"\x04\x00\x00\x00\x05\x00\x00\x00\x00", cql(4, [0, 0])),
            (b"\x05\x10\x01\x02\x01\x00\x00\x00\x16", cql(5, [1, 2])),
            (b"\x01\x00\x09\x05\x00\x00\x00\x00", cql(1, [9, 0])),
            (startup, cql(2, [7, 0])),
            (b"\x82\x21\x01\x03get", Foreign::Compact { framed: false }),
            (b"\x00\x00\x00\x1E\x82\x21\x01\x03get", Foreign::Compact { framed: true }),
        ];
        for (bytes, foreign) in cases {
            assert_eq!(Guess::of(bytes), Guess::Foreign(foreign), "{bytes:02X?}");
            let guesses = (1..bytes.len()).map(|end| Guess::of(&bytes[..end]));
            let mut early = guesses.filter(|it| *it != Guess::Foreign(foreign));
            assert!(
                early.all(|it| it == Guess::Undecided || matches!(bytes[0], 0 | 0x80 | 0x82)),
                "{bytes:02X?}"
            );
        }
    }

    #[test]
    fn a_compact_exception_has_the_frame_of_its_call() {
        let [bare, framed] = [false, true].map(compact_exception);
        assert_eq!(bare[..6], [0x82, 0x61, 0, 0, 0x18, bare.len() as u8 - 9]);
        assert_eq!(framed, [&(bare.len() as u32).to_be_bytes(), &*bare].concat());
    }

    #[test]
    fn a_cql_error_goes_to_its_stream() {
        let error = cql_error(4, [1, 2]);
        assert_eq!(error[..5], [0x84, 0, 1, 2, 0]);
        assert_eq!(error[5..9], ((error.len() - 9) as u32).to_be_bytes());
        let narrow = cql_error(2, [7, 0]);
        assert_eq!(narrow[..4], [0x82, 0, 7, 0]);
        assert_eq!(narrow[8..12], CQL_PROTOCOL_ERROR.to_be_bytes());
    }
}
