//! How a range divides into parts of about equally many rows.

use super::range::TokenRange;
use super::token::Token;
use std::num::NonZero;

/// Some rows that are stored side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSample {
    /// The token of the first of them.
    pub token: Token,
    /// How many there are, the first included.
    pub rows: u64,
}

/// The answer to `describe_splits`: the ends of the range, and between them tokens that divide its
/// rows into parts of about `keys_per_split`.
///
/// The samples may come from many tables, in any order and also from outside of the range. There
/// are as many parts as in 0.6: the rows by `keys_per_split`, rounded down, but at least one. Each
/// has about the same number of rows, where 0.6 leaves the remainder to the last one. No two tokens
/// are the same, so that no part reads as the whole ring; so there are fewer parts where the
/// samples are too few. A negative `keys_per_split` splits nothing.
pub fn splits(
    samples: impl IntoIterator<Item = RowSample>,
    range: &TokenRange,
    keys_per_split: NonZero<i32>,
) -> Vec<Token> {
    let mut samples: Vec<RowSample> =
        samples.into_iter().filter(|sample| range.contains(&sample.token)).collect();
    // A range that wraps begins with the tokens after its start.
    samples.sort_unstable_by(|a, b| {
        let wrapped = |sample: &RowSample| sample.token <= range.start;
        wrapped(a).cmp(&wrapped(b)).then_with(|| a.token.cmp(&b.token))
    });
    let rows: u128 = samples.iter().map(|sample| u128::from(sample.rows)).sum();
    let parts = u128::try_from(keys_per_split.get()).map_or(1, |keys| rows / keys);
    let mut tokens = vec![range.start.clone()];
    let (mut part, mut rows_before) = (1, 0);
    for RowSample { token, rows: in_sample } in samples {
        let is_due = part < parts && rows_before * parts >= part * rows;
        if is_due && token != range.end && tokens.last() != Some(&token) {
            // The parts that should have ended within the last sample end here as well.
            part = rows_before * parts / rows + 1;
            tokens.push(token);
        }
        rows_before += u128::from(in_sample);
    }
    tokens.push(range.end.clone());
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    fn split(samples: &[u128], range: &TokenRange, rows: u64, keys: i32) -> Vec<u128> {
        let samples = samples.iter().map(|&n| RowSample { token: Token::Random(n), rows });
        let tokens = splits(samples, range, NonZero::new(keys).unwrap());
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
        assert_eq!(split(&samples, &range(0, 100), 128, 300), [0, 4, 6, 9, 100]);
        assert_eq!(split(&samples, &range(0, 100), 128, 128), [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100]);
        assert_eq!(split(&samples, &range(4, 8), 128, 256), [4, 7, 8]);
    }

    #[test]
    fn the_last_part_is_no_larger_than_the_others() {
        // 0.6 would make 99 parts of one sample each, and a last one of 100.
        let samples: Vec<u128> = (1..=199).collect();
        let tokens = split(&samples, &range(0, 1000), 100, 199);
        let sizes = tokens.windows(2).map(|ends| ends[1].min(199) - ends[0]);
        assert_eq!((tokens.len(), sizes.max()), (101, Some(3)));
    }

    #[test]
    fn a_wrapping_range_begins_after_its_start() {
        assert_eq!(split(&[1, 2, 3, 6, 7, 8], &range(5, 2), 1, 1), [5, 7, 8, 1, 2]);
        assert_eq!(split(&[1, 5, 7], &range(5, 5), 1, 1), [5, 1, 5]);
    }

    #[test]
    fn no_part_begins_where_it_ends() {
        // The same row in three tables, and one at the very end.
        assert_eq!(split(&[3, 3, 3, 4], &range(0, 9), 1, 1), [0, 3, 4, 9]);
        assert_eq!(split(&[3, 9, 9], &range(0, 9), 1, 1), [0, 9]);
    }

    #[test]
    fn parts_are_no_smaller_than_samples() {
        assert_eq!(split(&[1, 2, 3], &range(0, 9), 128, 64), [0, 2, 3, 9]);
    }

    #[test]
    fn few_rows_or_odd_parts_split_nothing() {
        assert_eq!(split(&[1, 2, 3], &range(0, 9), 128, 1000), [0, 9]);
        assert_eq!(split(&[1, 2, 3], &range(0, 9), 128, -128), [0, 9]);
        assert_eq!(split(&[], &range(0, 9), 128, 128), [0, 9]);
    }

    proptest! {
        #[test]
        fn parts_cover_the_range_and_are_about_even(
            samples in vec((0..1000u128, 0..200u64), 0..60),
            (start, end) in (0..1000u128, 0..1000u128),
            keys in 1..2000i32,
        ) {
            let range = range(start, end);
            let sample = |&(n, rows): &(u128, u64)| RowSample { token: Token::Random(n), rows };
            let given = samples.iter().map(sample);
            let tokens = splits(given, &range, NonZero::new(keys).unwrap());
            let ends = (tokens.first(), tokens.last());
            prop_assert_eq!(ends, (Some(&range.start), Some(&range.end)));
            // Each sample in the range lies in one part, each other one in none.
            let mut parts = vec![0; tokens.len() - 1];
            let mut largest = 0;
            for &(number, rows) in &samples {
                let token = Token::Random(number);
                let holds = |ends: &[Token]| {
                    TokenRange { start: ends[0].clone(), end: ends[1].clone() }.contains(&token)
                };
                let found: Vec<usize> =
                    (0..parts.len()).filter(|&i| holds(&tokens[i..i + 2])).collect();
                prop_assert_eq!(found.len(), usize::from(range.contains(&token)));
                for part in found {
                    parts[part] += rows;
                }
                let alike = samples.iter().filter(|(other, _)| *other == number);
                largest = largest.max(alike.map(|(_, rows)| rows).sum());
            }
            let rows: u64 = parts.iter().sum();
            let wanted = rows.checked_div(rows / keys as u64).unwrap_or(rows);
            prop_assert!(parts.iter().all(|&part| part <= wanted + 1 + 2 * largest), "{parts:?}");
        }
    }
}
