//! Why the ring is not changed.

use super::transfer::plan::NoSource;
use crate::storage::compaction::CompactionError;
use crate::storage::engine::WriteError;
use std::net::IpAddr;

/// Why an operation was refused, or did not come to its end. In either case the ring is as it was
/// before, unless it says otherwise. Texts of 0.6 stand where it had any.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// One at a time.
    #[error("{0} is under way on this node: wait until it is done, `nodetool streams` shows it")]
    Busy(&'static str),
    /// Several at once could each count on what the other takes away.
    #[error(
        "{endpoint} is {doing}: one change of the ring at a time, since what is safe for each may \
         not be so for both. Wait until it is done"
    )]
    Other {
        /// Who.
        endpoint: IpAddr,
        /// What it is about.
        doing: &'static str,
    },
    /// Only members can leave or move.
    #[error("local node is not a member of the token ring yet")]
    NotMember,
    /// The last node holds everything.
    #[error("no other normal nodes in the ring; decommission would be pointless")]
    Alone,
    /// There is nobody to join.
    #[error(
        "No other nodes seen!  Unable to bootstrap. See that the seeds run and that ListenAddress, \
         StoragePort and ClusterName are right"
    )]
    NobodySeen,
    /// A member does not bootstrap.
    #[error(
        "This node is already a member of the token ring; bootstrap aborted. (If replacing a dead \
         node, remove the old one from the ring first, or start this one under another address \
         with -Dcassandra.replace_token=TOKEN.)"
    )]
    AlreadyMember,
    /// The token of a bootstrap belongs to another node.
    #[error(
        "Bootstraping to existing token {token} is not allowed (decommission/removetoken the old \
         node first). It is that of {owner}"
    )]
    ExistingToken {
        /// The token.
        token: String,
        /// Whose it is.
        owner: IpAddr,
    },
    /// The first token of a node without data belongs to another node.
    #[error(
        "{owner} has the token {token}, whose data are not here: give this node another \
         InitialToken or, if {owner} is gone for good, start it with \
         -Dcassandra.replace_token={token} to collect them from the other replicas. If they are \
         given up, -Dcassandra.accept_data_loss=true starts it without them"
    )]
    ForeignToken {
        /// The token.
        token: String,
        /// Whose it is.
        owner: IpAddr,
    },
    /// The token of a move belongs to another node.
    #[error("target token {token} is already owned by another node: {owner}")]
    OwnedToken {
        /// The token.
        token: String,
        /// Whose it is.
        owner: IpAddr,
    },
    /// It is where it is to go.
    #[error("this node has the token {0} already")]
    SameToken(String),
    /// Nobody has the token that is to be removed or replaced.
    #[error("no node has the token {0}: `nodetool ring` shows which there are")]
    NoSuchToken(String),
    /// A node is not removed by itself.
    #[error("Cannot remove node's own token")]
    OwnToken,
    /// Who is alive leaves by itself.
    #[error(
        "Node /{0} is alive and owns this token. Use decommission command to remove it from the \
         ring"
    )]
    Alive(IpAddr),
    /// A node that is to take over data does not run.
    #[error("{0} is down, which is to take over data: bring it up, or remove it first")]
    ReceiverDown(IpAddr),
    /// A node of 0.6 would have to take data from others than this node.
    #[error(
        "{0} is a node of 0.6, and would have to take over data from others than this node, which \
         nobody can order it to: replace that one first"
    )]
    Original(IpAddr),
    /// Data could not be handed over to a node of 0.6.
    #[error("{to}, a node of 0.6, could not be sent its data: {why}")]
    Push {
        /// Which node.
        to: IpAddr,
        /// Why.
        why: String,
    },
    /// Some have not heard of the change in time.
    #[error(
        "{0:?} have not heard of it in time, or have not ended the writes that they began before"
    )]
    NotHeard(Vec<IpAddr>),
    /// A range is lost.
    #[error(transparent)]
    NoSource(#[from] NoSource),
    /// Data could not be fetched.
    #[error("{by} could not collect its data: {why}")]
    Fetch {
        /// Which node.
        by: IpAddr,
        /// Why.
        why: String,
    },
    /// The plan does not fit the ring any more.
    #[error("the ring has changed meanwhile: do it again")]
    RingChanged,
    /// What is safe in one ring may not be so in another.
    #[error("{}", other_ring(*.by, .about))]
    OtherRing {
        /// Who.
        by: IpAddr,
        /// Of whom only one of both knows, or at another token; none if it does not answer.
        about: Vec<IpAddr>,
    },
    /// Writes may be missing, however often data are collected.
    #[error(
        "{0} forgets again and again what this node is about, as they do not hear of each other \
         for a while: see that the network is sound, and do it again"
    )]
    Forgotten(IpAddr),
    /// A node with an empty disk would make the ring believe that its former data are elsewhere.
    #[error(
        "{by} knows this address as the owner of token {token}, whose data are not here: start it \
         with -Dcassandra.replace_token={token} to collect them from the other replicas, or have \
         the token removed first by `nodetool removetoken`. If they are given up for good, \
         AutoBootstrap false and -Dcassandra.accept_data_loss=true start it without them"
    )]
    KnownAt {
        /// Who knows it.
        by: IpAddr,
        /// The token.
        token: String,
    },
    /// A move that has come half of its way.
    #[error(
        "this node has handed its data over and left token {from}, and has not joined again: start \
         it anew, and it goes on. {source}"
    )]
    HalfMoved {
        /// Where it was.
        from: String,
        /// Why it has not joined.
        source: Box<OperationError>,
    },
    /// The node could not note where it is.
    #[error("the new place of this node cannot be saved: {0}")]
    Save(#[from] WriteError),
    /// Data of an earlier bootstrap could not be dropped.
    #[error("the data of a bootstrap that was not finished cannot be dropped: {0}")]
    Discard(#[source] CompactionError),
    /// Data could not be dropped.
    #[error("the cleanup of {family} failed, what was done before stays done: {source}")]
    Cleanup {
        /// Keyspace and name of the column family.
        family: String,
        /// Why.
        source: CompactionError,
    },
    /// Nobody says which token would be good.
    #[error("no member has said at which token to join: give this node an InitialToken. {0}")]
    NoToken(String),
    /// There is one replica of everything, and nobody to compare it with.
    #[error("keyspace {0} is not replicated")]
    NotReplicated(String),
    /// A repair would leave them out.
    #[error("{0:?} are down, which have some of it: bring them up first")]
    ReplicasDown(Vec<IpAddr>),
    /// A replica could not do its part of a repair.
    #[error("{replica} could not do its part, what was repaired until then stays so: {why}")]
    Repair {
        /// Which replica.
        replica: IpAddr,
        /// Why.
        why: String,
    },
    /// The node stops.
    #[error("the node is stopping")]
    Stopping,
}

fn other_ring(by: IpAddr, about: &[IpAddr]) -> String {
    if about.is_empty() {
        return format!(
            "{by} counts as alive, and does not say which members it knows: see that it can be \
             reached, or wait until it counts as down, and do it again"
        );
    }
    format!(
        "{by} does not agree with this node on {about:?}: do it again, and if that does not help \
         remove who is dead of them at the node that still knows it"
    )
}
