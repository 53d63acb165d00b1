//! What nodes of this program ask each other when the ring changes, besides pieces of ranges. The
//! bodies are JSON: they are few, and a later version may add to them.

use crate::net::caller::{CallError, Caller};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The call for a piece of a range, see [`PieceCommand`](crate::net::bodies::PieceCommand).
pub(super) const PIECE: &str = "piece";

/// A call with its answer.
pub(super) trait Call: Serialize + DeserializeOwned {
    /// What it is called.
    const NAME: &'static str;

    /// What comes back.
    type Answer: Serialize + DeserializeOwned;
}

/// Has a node heard what the sender of this announced?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HasHeard {
    pub(super) generation: i32,
    pub(super) version: i32,
}

impl Call for HasHeard {
    const NAME: &'static str = "has-heard";
    type Answer = Heard;
}

/// What the node says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heard {
    pub(super) knows_it: bool,
    /// Whether what it began before it had heard is over.
    pub(super) is_quiet: bool,
    /// How often it has given up on nodes that joined, see [`Membership::given_up`].
    ///
    /// [`Membership::given_up`]: crate::gossip::Membership::given_up
    pub(super) given_up: u64,
    /// Who seems alive to it.
    pub(super) live: BTreeSet<IpAddr>,
}

/// Where does a node have its place, as far as the receiver knows?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WhereIs {
    pub(super) endpoint: IpAddr,
}

impl Call for WhereIs {
    const NAME: &'static str = "where-is";
    type Answer = TokenOf;
}

/// The answer to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenOf {
    /// The token that it owns, if it is a member.
    pub(super) token: Option<String>,
    /// Whether it is about to leave it.
    pub(super) is_leaving: bool,
}

/// Whom does a node know as members?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WhichRing {}

impl Call for WhichRing {
    const NAME: &'static str = "which-ring";
    type Answer = KnownRing;
}

/// The answer to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownRing {
    /// Each with its token, in the order of these.
    pub(super) members: Vec<(IpAddr, String)>,
}

/// A node shall collect data, since it is about to become a replica of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Collect {
    /// Tells the orders of all nodes apart.
    pub(super) order: u64,
    pub(super) ranges: Vec<WantedRange>,
}

/// A range that a node is about to become a replica of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WantedRange {
    pub(super) keyspace: String,
    /// The token before the range, as text.
    pub(super) start: String,
    /// The last token of the range.
    pub(super) end: String,
    /// Those that cease to be replicas.
    pub(super) lost: Vec<IpAddr>,
    /// Those that stay replicas.
    pub(super) kept: Vec<IpAddr>,
    /// Whether those that cease to be replicas are not enough, since who collects may have been one
    /// for a while.
    #[serde(default)]
    pub(super) from_all: bool,
    /// Whether an operator gives up what only dead nodes have.
    #[serde(default)]
    pub(super) accepts_loss: bool,
}

impl Call for Collect {
    const NAME: &'static str = "collect";
    type Answer = Accepted;
}

/// The order is being carried out.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Accepted {}

/// How far is a node with an order?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HowFar {
    pub(super) order: u64,
}

impl Call for HowFar {
    const NAME: &'static str = "how-far";
    type Answer = JobStatus;
}

/// How far a node is with an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(super) enum JobStatus {
    /// It does not know the order: it has been started since, or never got it.
    Unknown,
    Running {
        bytes: u64,
        rows: u64,
        ranges_done: usize,
        ranges: usize,
    },
    Done {
        bytes: u64,
        rows: u64,
    },
    Failed {
        why: String,
    },
}

/// Nobody needs an order any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Withdraw {
    pub(super) order: u64,
}

impl Call for Withdraw {
    const NAME: &'static str = "withdraw";
    type Answer = Accepted;
}

/// Which token would halve the load of a node?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WhichToken {}

impl Call for WhichToken {
    const NAME: &'static str = "which-token";
    type Answer = Halving;
}

/// The answer to that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Halving {
    /// Bytes on its disks.
    pub(super) load: f64,
    /// The token that takes half of it.
    pub(super) token: String,
}

/// Why a call brought no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the answer of {from} makes no sense: {source}")]
    Senseless { from: IpAddr, source: serde_json::Error },
}

/// Calls a node.
pub(super) async fn ask<C: Call>(
    caller: &Caller,
    to: IpAddr,
    call: &C,
) -> Result<C::Answer, AskError> {
    let senseless = |source| AskError::Senseless { from: to, source };
    let body = serde_json::to_vec(call).map_err(senseless)?;
    let answer = caller.call(to, C::NAME, &body).await?;
    serde_json::from_slice(&answer).map_err(senseless)
}
