//! The token at which a new node takes half of the load of another.

use super::host::Host;
use crate::base::context::RequestContext;
use crate::ring::{RowSamples, Token, TokenRange};
use crate::storage::Storage;

/// The token that halves the load of the primary range of this node, as 0.6 answers
/// BOOTSTRAP_TOKEN: one with half of its rows on each side, or the middle of the range.
pub(super) fn halving_token(storage: &Storage, host: &dyn Host) -> Token {
    let look = host.look();
    let ring = &look.members.ring;
    let own = look.local.and_then(|local| ring.primary_range(local));
    let range = own.unwrap_or(TokenRange { start: Token::Minimum, end: Token::Minimum });
    let half_of_the_range = || storage.partitioner().midpoint(&range.start, &range.end);
    let samples = storage.row_samples(range.clone(), &RequestContext::default());
    samples.ok().and_then(RowSamples::middle).unwrap_or_else(half_of_the_range)
}
