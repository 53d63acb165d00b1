//! Calls between nodes of this program, each with its request and its answer.
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

use crate::net::bodies::fields_body;
use std::net::IpAddr;

/// Asks whether a node has heard the announcement of the caller. Answered by [`Heard`].
pub(super) const HAS_HEARD: &str = "has-heard";
/// Asks for the place of a node, as far as the receiver knows.
pub(super) const WHERE_IS: &str = "where-is";
/// Asks for the members with their tokens, in the order of tokens.
pub(super) const WHICH_RING: &str = "which-ring";
/// Asks for the version of the schema that a node has followed.
pub(super) const WHICH_SCHEMA: &str = "which-schema";
/// Asks for the load of a node, and the token that would halve it.
pub(super) const WHICH_TOKEN: &str = "which-token";
/// Asks for a page of rows, which only a column family can decode.
pub(super) const PAGE: &str = "page";
pub(super) const START: &str = "start";
pub(super) const POLL: &str = "poll";
pub(super) const CANCEL: &str = "cancel";

/// Answer to [`HAS_HEARD`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) knows_it: bool,
    /// Whether the writes that it began before it heard have ended.
    pub(super) is_quiet: bool,
    /// Number of joining nodes that it has forgotten, see [`Membership::given_up`].
    ///
    /// [`Membership::given_up`]: crate::gossip::Membership::given_up
    pub(super) given_up: u64,
    /// Nodes that are alive to it.
    pub(super) live: Vec<IpAddr>,
}

fields_body!(Heard { knows_it, is_quiet, given_up, live });
