//! Owners of tokens, and pending changes.

use super::range::{RowRange, TokenRange};
use super::token::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The members of the ring: tokens in order, each with the endpoint that owns it. An endpoint has
/// exactly one token, a token exactly one owner. Beside them the leaving members, joining nodes
/// with their tokens, and nodes that are to replace a member: their future ranges are pending.
///
/// A value: readers keep a snapshot, and changes replace it as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenMetadata {
    members: Vec<(Token, IpAddr)>,
    /// Always members.
    leaving: BTreeSet<IpAddr>,
    /// Never members. In the order of the tokens; an endpoint joins at one token, and two
    /// endpoints never join at the same.
    bootstrapping: Vec<(Token, IpAddr)>,
    /// Future owners of the tokens of members. Never members.
    replacing: BTreeMap<Token, IpAddr>,
    /// The ring as some nodes may still know it: without members that just joined, with nodes that
    /// just left. `None` if that is the same.
    former: Option<Box<TokenMetadata>>,
}

/// A node must not join at the token of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is taken by {by}")]
pub struct TokenTaken {
    /// The owner of the token, or the node that joins there.
    pub by: IpAddr,
}

impl TokenMetadata {
    /// A ring of one node, which owns all of it.
    pub fn single(token: Token, endpoint: IpAddr) -> Self {
        Self { members: vec![(token, endpoint)], ..Self::default() }
    }

    /// Gives the token to this endpoint, which loses the one it had, and is neither joining nor
    /// leaving any more. Returns who owned the token before, if that was another endpoint; it is
    /// no member any more.
    pub fn insert(&mut self, token: Token, endpoint: IpAddr) -> Option<IpAddr> {
        self.remove(endpoint);
        match self.position(&token) {
            Ok(place) => {
                let (_, owner) = self.members.get_mut(place)?;
                let before = std::mem::replace(owner, endpoint);
                self.leaving.remove(&before);
                self.replacing.remove(&token);
                Some(before)
            }
            Err(place) => {
                self.members.insert(place, (token, endpoint));
                None
            }
        }
    }

    /// Takes an endpoint out of the ring, also as one that joins. Returns the token that it had as
    /// a member.
    pub fn remove(&mut self, endpoint: IpAddr) -> Option<Token> {
        self.leaving.remove(&endpoint);
        self.bootstrapping.retain(|&(_, joining)| joining != endpoint);
        self.replacing.retain(|_, replacing| *replacing != endpoint);
        let place = self.members.iter().position(|&(_, member)| member == endpoint)?;
        let (token, _) = self.members.remove(place);
        self.replacing.remove(&token);
        Some(token)
    }

    /// Notes that an endpoint joins at this token. A member that does so is none any
    /// more. Nothing changes if the token is taken by another endpoint.
    pub fn begin_bootstrap(&mut self, token: Token, endpoint: IpAddr) -> Result<(), TokenTaken> {
        let joining = self.bootstrapping.iter().find(|(at, _)| *at == token);
        let other = joining.map(|&(_, by)| by).or_else(|| self.owner(&token));
        if let Some(by) = other.filter(|&by| by != endpoint) {
            return Err(TokenTaken { by });
        }
        self.remove(endpoint);
        let place = self.bootstrapping.partition_point(|(at, _)| *at < token);
        self.bootstrapping.insert(place, (token, endpoint));
        Ok(())
    }

    /// Notes the ring as some may still know it, who read from its replicas: these get writes as
    /// well. Only its members count.
    pub fn set_former(&mut self, former: &Self) {
        self.former = (former.members != self.members).then(|| Box::new(former.after_all_left()));
    }

    /// The ring as some may still know it, if that is another.
    pub fn former(&self) -> Option<&Self> {
        self.former.as_deref()
    }

    /// Notes that an endpoint is to have the token of a member, which owns it until then. One that
    /// has a place already keeps it, and of several the last counts. Returns whether it is noted.
    pub fn begin_replace(&mut self, token: Token, endpoint: IpAddr) -> bool {
        let mut placed = self.members.iter().chain(&self.bootstrapping);
        let may = self.owner(&token).is_some() && placed.all(|(_, other)| *other != endpoint);
        if may {
            self.replacing.retain(|_, replacing| *replacing != endpoint);
            self.replacing.insert(token, endpoint);
        }
        may
    }

    /// Notes that a member is about to leave; it owns its token as long as it does not. Returns
    /// whether the endpoint is a member.
    pub fn begin_leave(&mut self, endpoint: IpAddr) -> bool {
        let is_member = self.token(endpoint).is_some();
        if is_member {
            self.leaving.insert(endpoint);
        }
        is_member
    }

    /// Joining nodes, in the order of the tokens.
    pub fn bootstrapping(&self) -> impl Iterator<Item = (&Token, IpAddr)> {
        self.bootstrapping.iter().map(|(token, endpoint)| (token, *endpoint))
    }

    /// Future owners of the tokens of members, in the order of the tokens.
    pub fn replacing(&self) -> impl Iterator<Item = (&Token, IpAddr)> {
        self.replacing.iter().map(|(token, endpoint)| (token, *endpoint))
    }

    /// The members that are about to leave, in the order of their addresses.
    pub fn leaving(&self) -> impl Iterator<Item = IpAddr> {
        self.leaving.iter().copied()
    }

    /// Whether the endpoint is a member that is about to leave.
    pub fn is_leaving(&self, endpoint: IpAddr) -> bool {
        self.leaving.contains(&endpoint)
    }

    /// Whether there are no pending changes, and none has just ended.
    pub fn is_settled(&self) -> bool {
        self.leaving.is_empty()
            && self.bootstrapping.is_empty()
            && self.replacing.is_empty()
            && self.former.is_none()
    }

    /// The ring after all leaving members have left, without joining nodes.
    #[must_use]
    pub fn after_all_left(&self) -> Self {
        let mut members = self.members.clone();
        members.retain(|(_, endpoint)| !self.leaving.contains(endpoint));
        Self { members, ..Self::default() }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Tokens in order with their owners.
    pub fn members(&self) -> impl Iterator<Item = (&Token, IpAddr)> {
        self.members.iter().map(|(token, endpoint)| (token, *endpoint))
    }

    /// Tokens in order.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.members.iter().map(|(token, _)| token)
    }

    /// The owner of exactly this token.
    pub fn owner(&self, token: &Token) -> Option<IpAddr> {
        let place = self.position(token).ok()?;
        self.members.get(place).map(|&(_, endpoint)| endpoint)
    }

    /// The token of an endpoint.
    pub fn token(&self, endpoint: IpAddr) -> Option<&Token> {
        self.members().find(|&(_, member)| member == endpoint).map(|(token, _)| token)
    }

    /// All endpoints, clockwise from the first whose token is not less than this one.
    pub fn endpoints_from(&self, token: &Token) -> impl Iterator<Item = IpAddr> {
        let first = self.members.partition_point(|(member, _)| member < token);
        let (before, from) = self.members.split_at(first);
        from.iter().chain(before).map(|&(_, endpoint)| endpoint)
    }

    /// The range that each node owns first, in the order of their tokens: from the token of the
    /// node before, with its own token. A node alone owns the whole ring, from its own token.
    pub fn primary_ranges(&self) -> impl Iterator<Item = (TokenRange, IpAddr)> {
        let before = self.members.iter().cycle().skip(self.members.len().saturating_sub(1));
        self.members.iter().zip(before).map(|((end, endpoint), (start, _))| {
            (TokenRange { start: start.clone(), end: end.clone() }, *endpoint)
        })
    }

    /// The range that an endpoint owns first.
    pub fn primary_range(&self, endpoint: IpAddr) -> Option<TokenRange> {
        self.primary_ranges().find(|&(_, member)| member == endpoint).map(|(range, _)| range)
    }

    /// Cuts a range at the tokens of the nodes, so that all of a piece has the same replicas:
    /// those of its right token.
    pub fn split(&self, range: &RowRange) -> Vec<RowRange> {
        range.split_after(self.tokens())
    }

    fn position(&self, token: &Token) -> Result<usize, usize> {
        self.members.binary_search_by(|(member, _)| member.cmp(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn endpoint(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    fn ring(tokens: &[u128]) -> TokenMetadata {
        let mut ring = TokenMetadata::default();
        for (number, &token) in (1..).zip(tokens) {
            assert_eq!(ring.insert(Token::Random(token), endpoint(number)), None);
        }
        ring
    }

    #[test]
    fn a_node_alone_owns_the_whole_ring() {
        let token = Token::Random(5);
        let ring = TokenMetadata::single(token.clone(), endpoint(1));
        let whole = TokenRange { start: token.clone(), end: token };
        assert_eq!(ring.primary_range(endpoint(1)), Some(whole));
        assert_eq!(ring.primary_range(endpoint(2)), None);
        assert!(ring.endpoints_from(&Token::Minimum).eq([endpoint(1)]));
        assert_eq!(TokenMetadata::default().primary_ranges().count(), 0);
    }

    #[test]
    fn the_walk_begins_at_the_owner() {
        let ring = ring(&[10, 30, 20]);
        let walk = |token| ring.endpoints_from(&token).collect::<Vec<_>>();
        let [a, b, c] = [1, 3, 2].map(endpoint);
        assert_eq!(walk(Token::Minimum), [a, b, c]);
        assert_eq!(walk(Token::Random(10)), [a, b, c]);
        assert_eq!(walk(Token::Random(11)), [b, c, a]);
        assert_eq!(walk(Token::Random(31)), [a, b, c]);
    }

    #[test]
    fn a_move_gives_the_old_token_up() {
        let mut ring = ring(&[10, 20]);
        assert_eq!(ring.insert(Token::Random(5), endpoint(2)), None);
        assert_eq!(ring.token(endpoint(2)), Some(&Token::Random(5)));
        assert_eq!(ring.owner(&Token::Random(20)), None);
        assert_eq!(ring.insert(Token::Random(10), endpoint(3)), Some(endpoint(1)));
        assert_eq!((ring.len(), ring.token(endpoint(1))), (2, None));
        assert_eq!(ring.insert(Token::Random(10), endpoint(3)), None);
        assert_eq!(ring.remove(endpoint(3)), Some(Token::Random(10)));
    }

    #[test]
    fn joining_and_leaving_nodes_stand_beside_the_members() {
        let mut ring = ring(&[10, 20, 30]);
        let [a, b, c, joining, other] = [1, 2, 3, 4, 5].map(endpoint);
        assert!(ring.is_settled() && !ring.begin_leave(joining));
        assert_eq!(ring.begin_bootstrap(Token::Random(15), joining), Ok(()));
        let taken = |by| Err(TokenTaken { by });
        assert_eq!(ring.begin_bootstrap(Token::Random(15), other), taken(joining));
        assert_eq!(ring.begin_bootstrap(Token::Random(20), joining), taken(b));
        assert_eq!(ring.begin_bootstrap(Token::Random(25), joining), Ok(()));
        assert_eq!(ring.begin_bootstrap(Token::Random(5), other), Ok(()));
        let joined: Vec<_> = ring.bootstrapping().map(|(_, endpoint)| endpoint).collect();
        assert_eq!((joined, ring.len()), (vec![other, joining], 3));
        assert!(ring.begin_leave(b) && ring.begin_leave(a) && ring.is_leaving(b));
        assert!(ring.leaving().eq([a, b]));
        let after = ring.after_all_left();
        assert!(after.is_settled() && after.members().map(|(_, member)| member).eq([c]));
        // Another node in the place of one that was leaving stays.
        assert_eq!(ring.insert(Token::Random(10), other), Some(a));
        assert!(ring.leaving().eq([b]));
        // A member that joins again is none, whatever its pending change.
        assert_eq!(ring.begin_bootstrap(Token::Random(20), b), Ok(()));
        assert!(ring.leaving().next().is_none() && ring.token(b).is_none());
        ring.insert(Token::Random(25), joining);
        ring.remove(b);
        assert!(ring.is_settled());
    }

    #[test]
    fn a_replacing_node_is_no_member_until_it_has_the_token() {
        let mut ring = ring(&[10, 20]);
        let [a, new, other] = [1, 3, 4].map(endpoint);
        assert!(!ring.begin_replace(Token::Random(15), new), "nobody is there");
        assert!(!ring.begin_replace(Token::Random(20), a), "it has a place");
        assert!(ring.begin_replace(Token::Random(10), other));
        assert!(ring.begin_replace(Token::Random(10), new));
        assert!(ring.replacing().eq([(&Token::Random(10), new)]) && !ring.is_settled());
        assert_eq!((ring.owner(&Token::Random(10)), ring.token(new)), (Some(a), None));
        assert_eq!(ring.insert(Token::Random(10), new), Some(a));
        assert!(ring.is_settled());
        assert!(ring.begin_replace(Token::Random(20), a), "who was replaced has none");
        ring.remove(endpoint(2));
        assert!(ring.is_settled(), "with the member goes the wish for its place");
    }

    #[test]
    fn a_query_is_cut_at_the_tokens() {
        let ring = ring(&[0, 1 << 126]);
        let pieces = ring.split(&RowRange::all());
        let right: Vec<&Token> = pieces.iter().map(RowRange::right_token).collect();
        assert_eq!(right, [&Token::Random(0), &Token::Random(1 << 126), &Token::Minimum]);
    }

    proptest! {
        #[test]
        fn every_change_keeps_the_ring_in_order(
            changes in vec((0..6u128, 1..5u8, any::<bool>()), 0..20),
        ) {
            let mut ring = TokenMetadata::default();
            let mut model: BTreeMap<u128, u8> = BTreeMap::new();
            for (token, node, joins) in changes {
                model.retain(|_, member| *member != node);
                if joins {
                    let before = model.insert(token, node);
                    let owner = ring.insert(Token::Random(token), endpoint(node));
                    prop_assert_eq!(owner, before.map(endpoint));
                } else {
                    ring.remove(endpoint(node));
                }
                let members = model.iter().map(|(&t, &node)| (Token::Random(t), endpoint(node)));
                prop_assert!(ring.members().map(|(t, e)| (t.clone(), e)).eq(members));
            }
            // Each token belongs to one primary range, whose owner the walk begins with.
            for token in (0..7).map(Token::Random) {
                let ranges = ring.primary_ranges().filter(|(range, _)| range.contains(&token));
                let owners: Vec<IpAddr> = ranges.map(|(_, owner)| owner).collect();
                prop_assert_eq!(owners, Vec::from_iter(ring.endpoints_from(&token).next()));
            }
        }
    }
}
