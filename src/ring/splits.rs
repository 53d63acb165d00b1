//! How a range divides into parts of about equally many rows.

use super::range::TokenRange;
use super::token::Token;

/// Why a range cannot be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitsError {
    /// Parts of no keys.
    #[error("keys_per_split must not be zero")]
    ZeroKeysPerSplit,
}

/// The answer to `describe_splits`: the ends of the range, and between them tokens that divide its
/// rows into parts of about `keys_per_split`.
///
/// `samples` are tokens of stored rows, one of each `index_interval` of every file on disk, in any
/// order and also from outside of the range. The arithmetic is that of 0.6: with fewer samples than
/// parts nothing is split, so `keys_per_split` should not be less than `index_interval`. A negative
/// `keys_per_split` splits nothing.
pub fn splits(
    samples: impl IntoIterator<Item = Token>,
    range: &TokenRange,
    index_interval: u32,
    keys_per_split: i32,
) -> Result<Vec<Token>, SplitsError> {
    if keys_per_split == 0 {
        return Err(SplitsError::ZeroKeysPerSplit);
    }
    let mut samples: Vec<Token> =
        samples.into_iter().filter(|token| range.contains(token)).collect();
    // A range that wraps begins with the tokens after its start.
    samples.sort_unstable_by(|a, b| {
        let wrapped = |token: &Token| *token <= range.start;
        wrapped(a).cmp(&wrapped(b)).then_with(|| a.cmp(b))
    });
    let keys = samples.len() as i64 * i64::from(index_interval);
    let parts = usize::try_from(keys / i64::from(keys_per_split)).unwrap_or(0);
    let mut tokens = vec![range.start.clone()];
    if let Some(step) = samples.len().checked_div(parts).filter(|&step| step > 0) {
        tokens.extend(samples.into_iter().step_by(step).skip(1).take(parts - 1));
    }
    tokens.push(range.end.clone());
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    fn split(samples: &[u128], range: &TokenRange, interval: u32, keys: i32) -> Vec<u128> {
        let samples = samples.iter().map(|&n| Token::Random(n));
        let tokens = splits(samples, range, interval, keys).unwrap();
        tokens
            .into_iter()
            .map(|token| match token {
                Token::Random(number) => number,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn samples_divide_the_range() {
        let samples: Vec<u128> = (1..=10).collect();
        assert_eq!(split(&samples, &range(0, 100), 128, 256), [0, 3, 5, 7, 9, 100]);
        assert_eq!(split(&samples, &range(0, 100), 128, 300), [0, 3, 5, 7, 100]);
        assert_eq!(split(&samples, &range(0, 100), 128, 128), [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100]);
        assert_eq!(split(&samples, &range(4, 8), 128, 256), [4, 7, 8]);
    }

    #[test]
    fn a_wrapping_range_begins_after_its_start() {
        assert_eq!(split(&[1, 2, 3, 6, 7, 8], &range(5, 2), 1, 1), [5, 7, 8, 1, 2, 2]);
    }

    #[test]
    fn small_or_odd_parts_split_nothing() {
        assert_eq!(split(&[1, 2, 3], &range(0, 9), 128, 64), [0, 9]);
        assert_eq!(split(&[1, 2, 3], &range(0, 9), 128, 1000), [0, 9]);
        assert_eq!(split(&[1, 2, 3], &range(0, 9), 128, -128), [0, 9]);
        assert_eq!(split(&[], &range(0, 9), 128, 128), [0, 9]);
        let zero = splits([], &range(0, 9), 128, 0);
        assert_eq!(zero, Err(SplitsError::ZeroKeysPerSplit));
    }

    proptest! {
        /// Against the arithmetic written out.
        #[test]
        fn parts_are_as_the_original_counts_them(
            mut samples in vec(1..1000u128, 0..60),
            interval in 1..200u32,
            keys in -50..2000i32,
        ) {
            prop_assume!(keys != 0);
            let tokens = split(&samples, &range(0, 1000), interval, keys);
            samples.sort_unstable();
            let parts = samples.len() as i64 * i64::from(interval) / i64::from(keys);
            let mut expected = vec![0];
            if samples.len() as i64 >= parts {
                for i in 1..parts {
                    expected.push(samples[(i * (samples.len() as i64 / parts)) as usize]);
                }
            }
            expected.push(1000);
            prop_assert_eq!(tokens, expected);
        }
    }
}
