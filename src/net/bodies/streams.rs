//! Messages of 0.6 about files that nodes stream, and about Merkle trees.
//!
//! ```text
//! STREAM_REQUEST   i32 number, each: ADDR target, UTF keyspace, i32 number of ranges, each:
//!                      i32 0, BYTES left token, BYTES right token
//! STREAM_INITIATE  i32 number of files, each: UTF path at the source, i64 bytes, UTF keyspace
//! STREAM_FINISHED  UTF path as it was announced, i64 bytes, i32 0: received, 1: to be sent again
//! TREE_REQUEST     UTF keyspace, UTF column family
//! TREE_RESPONSE    UTF keyspace, UTF column family, and the tree up to the end
//! ```
//!
//! STREAM_INITIATE_DONE and the request for a token have empty bodies.

use super::body::{put_family_name, read_family_name};
use super::error::{BodyError, EncodeError};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::original_mutation::check_end;
use crate::model::schema::{FamilyId, Schema};
use crate::ring::{Partitioner, TokenRange};
use std::net::IpAddr;

/// A range of tokens, and not bounds of keys.
const RANGE: i32 = 0;

/// Fewest bytes of a range: a form and two empty tokens.
const LEAST_RANGE_BYTES: usize = 4 + 4 + 4;

/// Fewest bytes of a part of a request: an IPv4 address, no keyspace and no ranges.
const LEAST_PART_BYTES: usize = 5 + 2 + 4;

/// Fewest bytes of a file: an empty path and an empty keyspace.
const LEAST_FILE_BYTES: usize = 2 + 8 + 2;

/// Most requests of one message.
const MAX_PARTS: usize = 64;

/// Most ranges of one request: more than nodes that gossip knows of have.
const MAX_RANGES: usize = 1 << 14;

/// Most files that one message announces.
const MAX_FILES: usize = 1 << 16;

const RECEIVED: i32 = 0;
const SEND_AGAIN: i32 = 1;

/// Asks a node to stream all that it has of some ranges of a keyspace. Nodes of 0.6 send one in a
/// message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRequest {
    /// The node that gets the data. Nodes of 0.6 ask for themselves.
    pub target: IpAddr,
    /// Whether it is one of ours is for the receiver to see.
    pub keyspace: String,
    /// Which rows. They may wrap.
    pub ranges: Vec<TokenRange>,
}

impl StreamRequest {
    /// The body that [`StreamRequest::decode`] reads.
    pub fn encode(requests: &[Self], partitioner: Partitioner) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(128);
        out.extend_from_slice(&(requests.len() as u32).to_be_bytes());
        for request in requests {
            out.put_address(request.target);
            out.put_utf(request.keyspace.as_bytes())?;
            out.extend_from_slice(&(request.ranges.len() as u32).to_be_bytes());
            for TokenRange { start, end } in &request.ranges {
                out.extend_from_slice(&RANGE.to_be_bytes());
                out.put_bytes(&partitioner.token_to_bytes(start));
                out.put_bytes(&partitioner.token_to_bytes(end));
            }
        }
        Ok(out)
    }

    /// Reads all requests of a message.
    pub fn decode(body: &[u8], partitioner: Partitioner) -> Result<Vec<Self>, BodyError> {
        let mut reader = ByteReader::new(body);
        let count = reader.count_at_most(LEAST_PART_BYTES, MAX_PARTS)?;
        let requests = (0..count).map(|_| Self::read(&mut reader, partitioner));
        let requests = requests.collect::<Result<_, _>>()?;
        check_end(&reader)?;
        Ok(requests)
    }

    fn read(reader: &mut ByteReader<'_>, partitioner: Partitioner) -> Result<Self, BodyError> {
        let target = reader.address()?;
        let keyspace = reader.utf()?.into_owned();
        let mut ranges = Vec::new();
        for _ in 0..reader.count_at_most(LEAST_RANGE_BYTES, MAX_RANGES)? {
            let at = reader.position();
            if reader.i32()? != RANGE {
                return Err(BodyError::Malformed(at));
            }
            let start = partitioner.token_from_bytes(reader.bytes()?)?;
            let end = partitioner.token_from_bytes(reader.bytes()?)?;
            ranges.push(TokenRange { start, end });
        }
        Ok(Self { target, keyspace, ranges })
    }
}

/// A file that will be streamed, as its source announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFile {
    /// Its path at the source, which the answer has to repeat. Only the name has a meaning: it is
    /// that of a file of an SSTable of 0.6.
    pub path: String,
    /// Bytes of the file.
    pub length: u64,
    /// The keyspace of its column family. Whether it is one of ours is for the receiver to see.
    pub keyspace: String,
}

impl StreamFile {
    /// The body that [`StreamFile::decode`] reads.
    pub fn encode(files: &[Self]) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(4 + 100 * files.len());
        out.extend_from_slice(&(files.len() as u32).to_be_bytes());
        for file in files {
            out.put_utf(file.path.as_bytes())?;
            out.extend_from_slice(&file.length.to_be_bytes());
            out.put_utf(file.keyspace.as_bytes())?;
        }
        Ok(out)
    }

    /// Reads the files that a source announces, in the order in which they will come.
    pub fn decode(body: &[u8]) -> Result<Vec<Self>, BodyError> {
        let mut reader = ByteReader::new(body);
        let mut files = Vec::new();
        for _ in 0..reader.count_at_most(LEAST_FILE_BYTES, MAX_FILES)? {
            let path = reader.utf()?.into_owned();
            let length = read_length(&mut reader)?;
            files.push(Self { path, length, keyspace: reader.utf()?.into_owned() });
        }
        check_end(&reader)?;
        Ok(files)
    }
}

/// Outcome of streaming a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFinished {
    /// The path as it was announced. It comes from outside: only the node that announced it may use
    /// it as a path.
    pub path: String,
    /// The bytes that were announced.
    pub length: u64,
    /// Whether the file was received; otherwise it has to be sent again.
    pub is_received: bool,
}

impl StreamFinished {
    /// The body that [`StreamFinished::decode`] reads.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(2 + self.path.len() + 8 + 4);
        out.put_utf(self.path.as_bytes())?;
        out.extend_from_slice(&self.length.to_be_bytes());
        let action = if self.is_received { RECEIVED } else { SEND_AGAIN };
        out.extend_from_slice(&action.to_be_bytes());
        Ok(out)
    }

    /// Reads the outcome.
    pub fn decode(body: &[u8]) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let path = reader.utf()?.into_owned();
        let length = read_length(&mut reader)?;
        let at = reader.position();
        let is_received = match reader.i32()? {
            RECEIVED => true,
            SEND_AGAIN => false,
            _ => return Err(BodyError::Malformed(at)),
        };
        check_end(&reader)?;
        Ok(Self { path, length, is_received })
    }
}

/// A number of bytes, which Java has as a signed one.
fn read_length(reader: &mut ByteReader<'_>) -> Result<u64, BodyError> {
    let at = reader.position();
    u64::try_from(reader.i64()?).map_err(|_| BodyError::Malformed(at))
}

/// The body of the answer to BOOTSTRAP_TOKEN: the text of a token.
pub fn encode_bootstrap_token(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Reads the text of a token; [`Partitioner::parse_token`] makes a token of it.
pub fn decode_bootstrap_token(body: &[u8]) -> Result<&str, BodyError> {
    str::from_utf8(body).map_err(|error| BodyError::Malformed(error.valid_up_to()))
}

/// Asks a node to build the tree of a column family, and to send it to all its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRequest {
    /// The column family.
    pub family: FamilyId,
}

impl TreeRequest {
    /// The body that [`TreeRequest::decode`] reads.
    pub fn encode(self, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(64);
        put_family_name(&mut out, self.family, schema)?;
        Ok(out)
    }

    /// Reads a request, whose column family is one of ours.
    pub fn decode(body: &[u8], schema: &Schema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let family = read_family_name(&mut reader, schema)?;
        check_end(&reader)?;
        Ok(Self { family })
    }
}

/// The tree of a column family, as its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeResponse<'a> {
    /// The column family.
    pub family: FamilyId,
    /// The tree in the object serialization of Java, not validated.
    pub tree: &'a [u8],
}

impl<'a> TreeResponse<'a> {
    /// The body that [`TreeResponse::decode`] reads.
    pub fn encode(&self, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(64 + self.tree.len());
        put_family_name(&mut out, self.family, schema)?;
        out.extend_from_slice(self.tree);
        Ok(out)
    }

    /// Reads a tree without looking at it. Its column family is one of ours.
    pub fn decode(body: &'a [u8], schema: &Schema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let family = read_family_name(&mut reader, schema)?;
        Ok(Self { family, tree: reader.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{recorded_streams, schema};
    use super::*;
    use crate::net::message::{Message, STREAMING_KEYSPACE};
    use crate::net::verb::Verb;
    use crate::ring::Token;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const RANDOM: Partitioner = Partitioner::Random;

    fn file(part: &str, length: u64) -> StreamFile {
        let folder = "/var/lib/cassandra/data/Keyspace1/stream";
        let path = format!("{folder}/Super1-2-{part}.db");
        StreamFile { path, length, keyspace: "Keyspace1".into() }
    }

    #[test]
    fn no_message_has_more_elements_than_a_ring_has_use_for() {
        let range = TokenRange { start: Token::Random(0), end: Token::Random(1) };
        let request = |ranges: usize| StreamRequest {
            target: [127, 0, 10, 3].into(),
            keyspace: "Keyspace1".into(),
            ranges: vec![range.clone(); ranges],
        };
        let decode = |requests: Vec<StreamRequest>| {
            StreamRequest::decode(&StreamRequest::encode(&requests, RANDOM).unwrap(), RANDOM)
        };
        assert_eq!(decode(vec![request(MAX_RANGES)]), Ok(vec![request(MAX_RANGES)]));
        // The number stands behind the one of requests, the address and the keyspace.
        let at = 4 + 5 + 2 + "Keyspace1".len();
        assert_eq!(decode(vec![request(MAX_RANGES + 1)]), Err(BodyError::Malformed(at)));
        assert_eq!(decode(vec![request(0); MAX_PARTS]), Ok(vec![request(0); MAX_PARTS]));
        assert_eq!(decode(vec![request(0); MAX_PARTS + 1]), Err(BodyError::Malformed(0)));
        let files = vec![file("Data", 1); MAX_FILES + 1];
        assert_eq!(
            StreamFile::decode(&StreamFile::encode(&files).unwrap()),
            Err(BodyError::Malformed(0))
        );
    }

    #[test]
    fn recorded_messages_are_read_and_written_alike() {
        let recorded = recorded_streams();
        let message = |name: &str| Message::decode(&recorded[name]).unwrap();
        let request = message("stream 3");
        let number = |shift: u32| Token::Random(1 << shift);
        let asked = StreamRequest {
            target: [127, 0, 10, 3].into(),
            keyspace: "Keyspace1".into(),
            ranges: vec![
                TokenRange { start: Token::Random(0), end: number(125) },
                TokenRange { start: number(126), end: Token::Random(0) },
            ],
        };
        assert_eq!(request.verb, Verb::StreamRequest);
        assert_eq!(
            StreamRequest::decode(request.body, RANDOM).unwrap()[..],
            *std::slice::from_ref(&asked)
        );
        assert_eq!(
            StreamRequest::encode(std::slice::from_ref(&asked), RANDOM).unwrap(),
            request.body
        );

        let initiate = message("stream 4");
        let files = [file("Index", 51), file("Filter", 325), file("Data", 244)];
        assert_eq!(initiate.verb, Verb::StreamInitiate);
        assert_eq!(initiate.header(STREAMING_KEYSPACE), Some(&b"Keyspace1"[..]));
        assert_eq!(StreamFile::decode(initiate.body).unwrap(), files);
        assert_eq!(StreamFile::encode(&files).unwrap(), initiate.body);

        let done = message("stream 5");
        assert_eq!((done.verb, done.body), (Verb::StreamInitiateDone, &b""[..]));

        let finished = message("stream 7");
        let told = StreamFinished { path: file("Index", 0).path, length: 51, is_received: true };
        assert_eq!(finished.verb, Verb::StreamFinished);
        assert_eq!(StreamFinished::decode(finished.body), Ok(told.clone()));
        assert_eq!(told.encode().unwrap(), finished.body);

        let (asks, token) = (message("stream 1"), message("stream 2"));
        assert_eq!((asks.verb, asks.body), (Verb::BootstrapToken, &b""[..]));
        let text = decode_bootstrap_token(token.body).unwrap();
        assert_eq!(text, "42535295865117307932921825928971026432");
        assert_eq!(encode_bootstrap_token(text), token.body);
    }

    #[test]
    fn what_no_node_says_is_malformed() {
        let range = TokenRange { start: Token::Random(1), end: Token::Random(2) };
        let (target, keyspace) = ([127, 0, 0, 1].into(), "K".into());
        let request = StreamRequest { target, keyspace, ranges: vec![range] };
        let mut body = StreamRequest::encode(&[request], RANDOM).unwrap();
        let at = body.len() - 2 * 5 - 1;
        body[at] = 1;
        let error = StreamRequest::decode(&body, RANDOM).unwrap_err();
        assert_eq!(error, BodyError::Malformed(at - 3), "bounds of keys are no range");
        let (path, length) = ("p".to_owned(), 1);
        let again = StreamFinished { path, length, is_received: false };
        let mut body = again.encode().unwrap();
        assert_eq!(StreamFinished::decode(&body), Ok(again));
        *body.last_mut().unwrap() = 2;
        assert_eq!(StreamFinished::decode(&body), Err(BodyError::Malformed(11)));
        body[3] = 0x80;
        assert_eq!(StreamFinished::decode(&body), Err(BodyError::Malformed(3)), "less than none");
        assert_eq!(decode_bootstrap_token(b"1\xff"), Err(BodyError::Malformed(1)));
    }

    fn file_of_any_name() -> impl Strategy<Value = StreamFile> {
        ("[a-z/é😀]{0,9}", 0..=i64::MAX as u64, "[a-z]{0,3}")
            .prop_map(|(path, length, keyspace)| StreamFile { path, length, keyspace })
    }

    proptest! {
        #[test]
        fn bodies_are_read_back(
            files in vec(file_of_any_name(), 0..5),
            tokens in vec((any::<Option<u128>>(), any::<Option<u128>>()), 0..5),
            times in 0usize..3,
        ) {
            let body = StreamFile::encode(&files).unwrap();
            prop_assert_eq!(StreamFile::decode(&body), Ok(files));
            let token = |number: Option<u128>| number.map_or(Token::Minimum, Token::Random);
            let range = |(start, end)| TokenRange { start: token(start), end: token(end) };
            let ranges = tokens.into_iter().map(range).collect();
            let target = [127, 0, 0, 1].into();
            let requests = vec![StreamRequest { target, keyspace: "K".into(), ranges }; times];
            let body = StreamRequest::encode(&requests, RANDOM).unwrap();
            prop_assert_eq!(StreamRequest::decode(&body, RANDOM), Ok(requests));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in vec(prop_oneof![0u8..3, 0u8..], 0..60)) {
            for partitioner in Partitioner::ALL {
                let _ = StreamRequest::decode(&bytes, partitioner);
            }
            let _ = (StreamFile::decode(&bytes), StreamFinished::decode(&bytes));
            let _ = decode_bootstrap_token(&bytes);
        }
    }

    #[test]
    fn recorded_trees_are_read_and_written_alike() {
        let (recorded, schema) = (recorded_streams(), schema());
        let family = schema.family_id("Keyspace1", "Standard2").unwrap();
        let message = Message::decode(&recorded["repair 1"]).unwrap();
        assert_eq!(message.verb, Verb::TreeRequest);
        let request = TreeRequest::decode(message.body, &schema).unwrap();
        assert_eq!(request, TreeRequest { family });
        assert_eq!(request.encode(&schema).unwrap(), message.body);
        let body = [message.body, &recorded["repair 3"]].concat();
        let response = TreeResponse::decode(&body, &schema).unwrap();
        assert_eq!(response, TreeResponse { family, tree: &recorded["repair 3"] });
        assert_eq!(response.encode(&schema).unwrap(), body);
        assert!(TreeRequest::decode(&body, &schema).is_err(), "there is more than a request");
        for length in 0..message.body.len() {
            assert!(TreeRequest::decode(&message.body[..length], &schema).is_err());
        }
        let mut other = message.body.to_vec();
        other[2] = b'X';
        let error = TreeResponse::decode(&other, &schema).unwrap_err().to_string();
        assert_eq!(error, "column family Xeyspace1.Standard2 is not configured");
    }
}
