//! Calls between nodes of this program: questions about the ring. Those about jobs are in
//! [`job`](super::job), that for rows is a
//! [`PageCommand`](crate::net::bodies::PageCommand).
//!
//! ```text
//! has-heard    i32 generation, i32 version
//!              bool knows it, bool is quiet, u64 given up, list of live nodes
//! where-is     ADDR
//!              option token, bool is leaving
//! which-ring
//!              list of ADDR, token
//! which-token
//!              f64 load, token
//! ```

use super::host::Announced;
use crate::base::bytes::ByteReader;
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError};
use crate::ring::Token;
use std::net::IpAddr;

/// A call with its answer.
pub(super) trait Call: Body + Sync {
    /// Its name, which a header of the message has.
    const NAME: &'static str;

    /// What comes back.
    type Answer: Body;
}

/// The name of the call for a page, whose answer only a column family can read.
pub(super) const PAGE: &str = "page";

/// Asks whether a node has heard what the sender of this announced.
#[derive(Debug, Clone)]
pub(super) struct HasHeard(pub(super) Announced);

impl Call for HasHeard {
    const NAME: &'static str = "has-heard";
    type Answer = Heard;
}

impl Body for HasHeard {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        let Self(Announced { generation, version }) = *self;
        (generation, version).put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (generation, version) = Body::read(reader, context)?;
        Ok(Self(Announced { generation, version }))
    }
}

/// Answer to [`HasHeard`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) knows_it: bool,
    /// Whether what it began before it had heard is over.
    pub(super) is_quiet: bool,
    /// How often it has given up on nodes that joined, see [`Membership::given_up`].
    ///
    /// [`Membership::given_up`]: crate::gossip::Membership::given_up
    pub(super) given_up: u64,
    /// Nodes that seem alive to it.
    pub(super) live: Vec<IpAddr>,
}

impl Body for Heard {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        (self.knows_it, self.is_quiet).put(out, context)?;
        self.given_up.put(out, context)?;
        self.live.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (knows_it, is_quiet) = Body::read(reader, context)?;
        let (given_up, live) = Body::read(reader, context)?;
        Ok(Self { knows_it, is_quiet, given_up, live })
    }
}

/// Asks where a node has its place, as far as the receiver knows.
#[derive(Debug, Clone)]
pub(super) struct WhereIs(pub(super) IpAddr);

impl Call for WhereIs {
    const NAME: &'static str = "where-is";
    type Answer = TokenOf;
}

impl Body for WhereIs {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.0.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(Self(Body::read(reader, context)?))
    }
}

/// Answer to [`WhereIs`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenOf {
    /// The token that it owns, if it is a member.
    pub(super) token: Option<Token>,
    /// Whether it is about to leave it.
    pub(super) is_leaving: bool,
}

impl Body for TokenOf {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.token.put(out, context)?;
        self.is_leaving.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (token, is_leaving) = Body::read(reader, context)?;
        Ok(Self { token, is_leaving })
    }
}

/// Asks which members a node knows.
#[derive(Debug, Clone)]
pub(super) struct WhichRing;

impl Call for WhichRing {
    const NAME: &'static str = "which-ring";
    /// Members with their tokens, in the order of these.
    type Answer = Vec<(IpAddr, Token)>;
}

impl Body for WhichRing {
    fn put(&self, _: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        Ok(())
    }

    fn read(_: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(Self)
    }
}

/// Asks which token would halve the load of a node.
#[derive(Debug, Clone)]
pub(super) struct WhichToken;

impl Call for WhichToken {
    const NAME: &'static str = "which-token";
    type Answer = Halving;
}

impl Body for WhichToken {
    fn put(&self, _: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        Ok(())
    }

    fn read(_: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(Self)
    }
}

/// Answer to [`WhichToken`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Halving {
    /// Bytes on its disks.
    pub(super) load: f64,
    /// The token that takes half of it.
    pub(super) token: Token,
}

impl Body for Halving {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.load.put(out, context)?;
        self.token.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (load, token) = Body::read(reader, context)?;
        Ok(Self { load, token })
    }
}
