//! TREE_REQUEST and TREE_RESPONSE: the Merkle tree of a column family.
//!
//! ```text
//! TREE_REQUEST   UTF keyspace, UTF column family
//! TREE_RESPONSE  UTF keyspace, UTF column family, and the tree up to the end
//! ```

use super::error::{BodyError, EncodeError};
use super::key::{check_end, put_family_name, read_family_name};
use crate::base::bytes::ByteReader;
use crate::model::schema::{FamilyId, Schema};

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
    /// The tree in the object serialization of Java. Nobody has looked at it here.
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
    use crate::net::message::Message;
    use crate::net::verb::Verb;

    #[test]
    fn recorded_messages_are_read_and_written_alike() {
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
        assert_eq!(error, "column family Xeyspace1.Standard2 is not configured here");
    }
}
