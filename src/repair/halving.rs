//! The token at which a new node takes half of the load of another.

use super::host::Host;
use crate::ring::{Partitioner, Token, TokenRange};
use crate::storage::Storage;

/// With fewer sampled keys in its range, where half of the load is cannot be told.
const LEAST_SAMPLES: usize = 3;

/// The token that halves the load of the primary range of this node, as 0.6 answers
/// BOOTSTRAP_TOKEN: that of the middle of the sampled keys, or the middle of the range.
pub(super) fn halving_token(storage: &Storage, host: &dyn Host) -> Token {
    let look = host.look();
    let ring = &look.members.ring;
    let own = look.local.and_then(|local| ring.primary_range(local));
    let whole = TokenRange { start: Token::Minimum, end: Token::Minimum };
    halve(storage.partitioner(), storage.sampled_tokens(), &own.unwrap_or(whole))
}

fn halve(partitioner: Partitioner, samples: Vec<Token>, range: &TokenRange) -> Token {
    let mut samples: Vec<Token> = samples.into_iter().filter(|it| range.contains(it)).collect();
    // In the order of the range, which may wrap.
    samples.sort_unstable_by(|a, b| {
        let wraps = |token: &Token| *token <= range.start;
        wraps(a).cmp(&wraps(b)).then_with(|| a.cmp(b))
    });
    samples.dedup();
    // The end of the range is taken.
    samples.retain(|it| *it != range.end);
    match samples.get(samples.len() / 2) {
        Some(middle) if samples.len() >= LEAST_SAMPLES => middle.clone(),
        _ => partitioner.midpoint(&range.start, &range.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    fn tokens(tokens: &[u128]) -> Vec<Token> {
        tokens.iter().copied().map(Token::Random).collect()
    }

    #[test]
    fn half_of_the_sampled_keys_are_on_each_side() {
        let halve = |samples: &[u128], range| halve(Partitioner::Random, tokens(samples), &range);
        assert_eq!(halve(&[50, 12, 11, 13, 99, 14], range(10, 40)), Token::Random(13));
        // Over the end of the ring: first those above the start.
        assert_eq!(halve(&[1, 2, 91, 92, 50], range(90, 10)), Token::Random(1));
    }

    #[test]
    fn with_few_keys_the_range_is_halved() {
        let halve = |samples: &[u128], range| halve(Partitioner::Random, tokens(samples), &range);
        assert_eq!(halve(&[11, 12], range(10, 40)), Token::Random(25));
        assert_eq!(
            halve(&[], range(7, 7)),
            Partitioner::Random.midpoint(&Token::Random(7), &Token::Random(7))
        );
    }
}
