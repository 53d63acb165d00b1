//! Messages: a head with verb and sender, and a body.
//!
//! ```text
//! UTF   message id
//! ADDR  sender: where the answer goes
//! UTF   stage
//! i32   verb
//! i32   number of headers, each: UTF name, BYTES value
//! BYTES body
//! ```

use super::frame::{MAX_MESSAGE_BYTES, WAY_OUT};
use super::verb::Verb;
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::{JavaReader, JavaWriter, TooLong};
use std::borrow::Cow;
use std::net::IpAddr;

/// The header of a mutation that the receiver shall keep for others; its value is a list of these.
pub const HINT: &str = "HINT";

/// The header of messages about streams; its value is a keyspace.
pub const STREAMING_KEYSPACE: &str = "STREAMING-TABLE-NAME";

/// Longest body that is sent, in bytes: one that fits into a frame whatever stands before it. The
/// id may be a text of up to 64 KB, which the sender of the request chose; the rest is short.
pub const MAX_BODY_BYTES: usize = MAX_MESSAGE_BYTES - (128 << 10);

/// Distinguishes the requests of one sender. Ours are numbers; a peer may choose any text, which
/// the answer repeats.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug, derive_more::Display)]
#[debug("MessageId({self})")]
pub struct MessageId(Id);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
enum Id {
    Number(u64),
    /// Any other text.
    Text(Box<str>),
}

impl MessageId {
    /// The number, if it is one of the form that ours have.
    pub fn as_u64(&self) -> Option<u64> {
        match self.0 {
            Id::Number(number) => Some(number),
            Id::Text(_) => None,
        }
    }
}

impl From<u64> for MessageId {
    fn from(number: u64) -> Self {
        Self(Id::Number(number))
    }
}

impl From<&str> for MessageId {
    fn from(text: &str) -> Self {
        let is_plain = !text.starts_with(['0', '+']) || text == "0";
        match text.parse() {
            Ok(number) if is_plain => Self(Id::Number(number)),
            _ => Self(Id::Text(text.into())),
        }
    }
}

/// An attribute beside the body. Receivers ignore unknown ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header<'a> {
    /// The meaning of the value.
    pub name: Cow<'a, str>,
    /// The value, in a form that depends on the name.
    pub value: &'a [u8],
}

/// A message that arrived or is to be sent. It borrows the bytes of its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// Which request it is or answers.
    pub id: MessageId,
    /// The node that sent it, by the address on which it listens.
    pub from: IpAddr,
    /// The verb of the message.
    pub verb: Verb,
    /// In the order in which they stand.
    pub headers: Vec<Header<'a>>,
    /// The body, in the form of the verb.
    pub body: &'a [u8],
}

/// Why a payload is not a message. The connection can be read on, since the frame is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes do not have the form of a message; the value is the offset.
    #[error("not a message: byte {0} does not fit the format")]
    Malformed(usize),
    /// A node of 0.6.0 writes the address of the sender without its length.
    #[error("Cassandra 0.6.0 runs there: {WAY_OUT}")]
    Old,
    /// No node of 0.6 sends this number.
    #[error("there is no verb of number {0}")]
    UnknownVerb(i32),
}

impl From<Malformed> for MessageError {
    fn from(Malformed(at): Malformed) -> Self {
        Self::Malformed(at)
    }
}

/// Fewest bytes that a header takes.
const LEAST_HEADER_BYTES: usize = 2 + 4;

/// Most headers of a message: a node of 0.6 puts in one, of which the value names all targets.
const MAX_HEADERS: usize = 64;

impl<'a> Message<'a> {
    /// A message without headers.
    pub fn new(id: MessageId, from: IpAddr, verb: Verb, body: &'a [u8]) -> Self {
        Self { id, from, verb, headers: Vec::new(), body }
    }

    /// Reads the message at the beginning of a payload and ignores bytes after it. The stage is
    /// that of the verb; the text of the sender is ignored.
    pub fn decode(payload: &'a [u8]) -> Result<Self, MessageError> {
        Self::read(payload).map_err(|error| if is_old(payload) { MessageError::Old } else { error })
    }

    fn read(payload: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = ByteReader::new(payload);
        let id = MessageId::from(&*reader.utf()?);
        let from = reader.address()?;
        reader.utf()?;
        let ordinal = reader.i32()?;
        let verb = Verb::from_ordinal(ordinal).ok_or(MessageError::UnknownVerb(ordinal))?;
        let at = reader.position();
        let count = reader.count(LEAST_HEADER_BYTES)?;
        if count > MAX_HEADERS {
            return Err(Malformed(at).into());
        }
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            headers.push(Header { name: reader.utf()?, value: reader.bytes()? });
        }
        Ok(Self { id, from, verb, headers, body: reader.bytes()? })
    }

    /// The value of the header of this name.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.iter().find(|header| header.name == name).map(|header| header.value)
    }

    /// The bytes that [`Message::decode`] reads.
    ///
    /// # Errors
    /// If an id or the name of a header is longer than a text can be.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let headers: usize =
            self.headers.iter().map(|header| header.name.len() + header.value.len() + 8).sum();
        let mut out = Vec::with_capacity(80 + headers + self.body.len());
        out.put_utf(self.id.to_string().as_bytes())?;
        out.put_address(self.from);
        out.put_utf(self.verb.stage().as_bytes())?;
        out.extend_from_slice(&self.verb.ordinal().to_be_bytes());
        out.extend_from_slice(&(self.headers.len() as u32).to_be_bytes());
        for header in &self.headers {
            out.put_utf(header.name.as_bytes())?;
            out.put_bytes(header.value);
        }
        out.put_bytes(self.body);
        Ok(out)
    }
}

/// Whether a payload begins like a message of 0.6.0.
fn is_old(payload: &[u8]) -> bool {
    let mut reader = ByteReader::new(payload);
    let mut verb = || {
        reader.utf()?;
        reader.take(4)?;
        reader.utf()?;
        reader.i32()
    };
    verb().is_ok_and(|ordinal| Verb::from_ordinal(ordinal).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn ids_keep_their_text() {
        for text in ["", "0", "1", "18446744073709551615", "18446744073709551616", "+1", "007", "a"]
        {
            assert_eq!(MessageId::from(text).to_string(), text);
        }
        assert_eq!(MessageId::from("42"), MessageId::from(42));
        assert_eq!(MessageId::from("042").as_u64(), None);
        assert!(size_of::<MessageId>() <= 24);
    }

    #[test]
    fn an_unknown_verb_and_stage_are_no_harm() {
        let mut bytes =
            Message::new(1.into(), [127, 0, 0, 1].into(), Verb::Join, b"body").encode().unwrap();
        bytes[11] = 0x7f;
        assert_eq!(Message::decode(&bytes).unwrap().verb, Verb::Join);
        bytes[15] = 17;
        assert_eq!(Message::decode(&bytes), Err(MessageError::UnknownVerb(17)));
    }

    proptest! {
        #[test]
        fn messages_are_read_back(
            id: String,
            from: std::net::IpAddr,
            verb in 0i32..17,
            headers in vec((any::<String>(), vec(0u8.., 0..9)), 0..4),
            body: Vec<u8>,
            padding in vec(0u8.., 0..40),
        ) {
            let header = |(name, value)| Header { name: Cow::Borrowed(name), value };
            let headers =
                headers.iter().map(|(name, value)| header((name.as_str(), value.as_slice())));
            let message = Message {
                id: id.as_str().into(),
                from: from.to_canonical(),
                verb: Verb::from_ordinal(verb).unwrap(),
                headers: headers.collect(),
                body: &body,
            };
            let mut bytes = message.encode().unwrap();
            bytes.extend(padding);
            let read = Message::decode(&bytes).unwrap();
            prop_assert_eq!(&read, &message);
            for header in &message.headers {
                prop_assert!(read.header(&header.name).is_some());
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn a_message_of_0_6_0_is_told_apart() {
        let from = IpAddr::from([127, 0, 0, 1]);
        let message = Message::new(MessageId::from("77"), from, Verb::GossipDigestSyn, b"body");
        let mut bytes = message.encode().unwrap();
        assert_eq!(bytes.remove(4), 4);
        assert_eq!(Message::decode(&bytes), Err(MessageError::Old));
    }

    #[test]
    fn headers_are_not_without_number() {
        let header = Header { name: "H".into(), value: b"v" };
        let message = |count: usize| {
            let from = IpAddr::from([127, 0, 0, 1]);
            let id = MessageId::from("1");
            let headers = vec![header.clone(); count];
            Message { id, from, verb: Verb::Mutation, headers, body: b"body" }.encode().unwrap()
        };
        assert_eq!(Message::decode(&message(MAX_HEADERS)).unwrap().headers.len(), MAX_HEADERS);
        let many = message(MAX_HEADERS + 1);
        assert!(matches!(Message::decode(&many), Err(MessageError::Malformed(_))));
    }
}
