//! Merkle trees: how two replicas find out in which ranges of the ring they differ, without sending
//! each other what they have.
//!
//! A tree divides the ring into leaves and has a hash for each: the XOR of the hashes of its rows
//! ([`RowHasher`]). That of a wider range is the XOR of those within, so that trees of different
//! shapes can be compared ([`MerkleTree::differences`]). Nodes of 0.6 send each other trees in the
//! object serialization of Java ([`java`]).

mod hash;
pub mod java;
mod row_hash;
mod tree;

pub use hash::TreeHash;
pub use row_hash::{HashError, RowHasher};
pub use tree::MerkleTree;
pub(super) use tree::{ends_before, middle, straight};
