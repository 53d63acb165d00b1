//! Recognises clients of other protocols, to turn them away in their own.

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

const CQL_TEXT: &str = "this port speaks Thrift, and the server has no CQL: \
                        use a Thrift client for Cassandra 0.4 to 0.6";

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
                "it speaks CQL, which this server does not have: use a Thrift client for \
                 Cassandra 0.4 to 0.6"
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
    /// The other protocols begin with what may be the length of a Thrift frame of 16 MB or more.
    /// After such a length a message follows: `80 01`, a type and a length of at most 1024, or such
    /// a length at once and a name.
    pub(super) fn of(bytes: &[u8]) -> Self {
        // The hello of TLS in a record of SSL 2, as clients of the time send it.
        if let [0x80..=0xFF, 2..=0xFF, 1, 3, ..] = bytes {
            return Self::Foreign(Foreign::Tls);
        }
        let method = bytes.get(..4).unwrap_or(bytes);
        let is_http = HTTP_METHODS.iter().any(|it| it.starts_with(method));
        if !is_http && !matches!(bytes, [1..=6 | 22, ..]) {
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
        let cases: [(&[u8], Foreign); 9] = [
            (b"GET / HTTP/1.1\r\n", Foreign::Http),
            (b"PRI * HTTP/2.0\r\n", Foreign::Http),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03", Foreign::Tls),
            (b"\x16\x03\x01\x00\x80\x01\x00\x00\x7C\x03\x03", Foreign::Tls),
            (b"\x80\x2E\x01\x03\x01\x00\x15", Foreign::Tls),
            (b"\x04\x00\x00\x00\x05\x00\x00\x00\x00", cql(4, [0, 0])),
            (b"\x05\x10\x01\x02\x01\x00\x00\x00\x16", cql(5, [1, 2])),
            (b"\x01\x00\x09\x05\x00\x00\x00\x00", cql(1, [9, 0])),
            (startup, cql(2, [7, 0])),
        ];
        for (bytes, foreign) in cases {
            assert_eq!(Guess::of(bytes), Guess::Foreign(foreign), "{bytes:02X?}");
            let guesses = (1..bytes.len()).map(|end| Guess::of(&bytes[..end]));
            let mut early = guesses.filter(|it| *it != Guess::Foreign(foreign));
            assert!(early.all(|it| it == Guess::Undecided || bytes[0] == 0x80), "{bytes:02X?}");
        }
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
