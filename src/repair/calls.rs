//! Calls between nodes of this program, each with what is sent and what comes back.
//!
//! ```text
//! has-heard    i32 generation, i32 version
//!              bool knows it, bool is quiet, u64 given up, list of live nodes
//! where-is     ADDR
//!              option token, bool is leaving
//! which-ring
//!              list of ADDR, token
//! which-token
//!              f64 load, token that takes half of it
//! page         a page command
//!              a page reply
//! start        u64 job, TASK
//! poll         u64 job
//!              STATUS
//! cancel       u64 job
//! ```
//!
//! [`job`](super::job) has TASK and STATUS.

use crate::base::bytes::ByteReader;
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError};
use std::net::IpAddr;

/// Whether a node has heard what the sender of this has announced: [`Heard`].
pub(super) const HAS_HEARD: &str = "has-heard";
/// Where a node has its place, as far as the receiver knows.
pub(super) const WHERE_IS: &str = "where-is";
/// Members with their tokens, in the order of these.
pub(super) const WHICH_RING: &str = "which-ring";
/// Load of a node, and the token that would halve it.
pub(super) const WHICH_TOKEN: &str = "which-token";
/// A page of rows, which only a column family can read.
pub(super) const PAGE: &str = "page";
pub(super) const START: &str = "start";
pub(super) const POLL: &str = "poll";
pub(super) const CANCEL: &str = "cancel";

/// Answer to [`HAS_HEARD`].
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
