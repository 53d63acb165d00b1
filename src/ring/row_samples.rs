//! Distribution of the rows of a range, and tokens that divide them into equal parts.

use super::range::TokenRange;
use super::token::Token;
use std::num::NonZero;

/// Fewest samples for the choice of a middle.
const LEAST_SAMPLES: usize = 3;

/// The rows of a range as samples: some rows that are stored side by side, of which one token is
/// known.
///
/// Samples may come from many tables, in any order. A row counts as often as there are tables with
/// something of it.
#[derive(Debug, Clone)]
pub struct RowSamples {
    range: TokenRange,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    /// The token of the first row.
    token: Token,
    /// Number of rows, the first included.
    rows: u64,
}

impl RowSamples {
    /// None yet.
    pub fn new(range: TokenRange) -> Self {
        Self { range, samples: Vec::new() }
    }

    /// Adds as many rows, the first of which has the token, if that lies in the range.
    pub fn add(&mut self, first: &Token, rows: u64) {
        if self.range.contains(first) {
            self.samples.push(Sample { token: first.clone(), rows });
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.samples.iter().map(|sample| sample.rows).sum()
    }

    /// The answer to `describe_splits`: the ends of the range, and between them tokens that divide
    /// its rows into parts of about `keys_per_split`.
    ///
    /// There are as many parts as in 0.6: the rows by `keys_per_split`, rounded down, but at least
    /// one. Each has about the same number of rows, where 0.6 leaves the remainder to the last one.
    /// No two tokens are the same, so that no part reads as the whole ring; so there are fewer
    /// parts where the samples are too few. A negative `keys_per_split` splits nothing.
    pub fn splits(mut self, keys_per_split: NonZero<i32>) -> Vec<Token> {
        self.sort();
        let rows = u128::from(self.rows());
        let parts = u128::try_from(keys_per_split.get()).map_or(1, |keys| rows / keys);
        let Self { range, samples } = self;
        let mut tokens = vec![range.start];
        let (mut part, mut rows_before) = (1, 0);
        for Sample { token, rows: in_sample } in samples {
            let is_due = part < parts && rows_before * parts >= part * rows;
            if is_due && token != range.end && tokens.last() != Some(&token) {
                // The parts that should have ended within the last sample end here as well.
                part = rows_before * parts / rows + 1;
                tokens.push(token);
            }
            rows_before += u128::from(in_sample);
        }
        tokens.push(range.end);
        tokens
    }

    /// A token within the range, not its end, that has about half of the rows on each side; `None`
    /// if there are too few samples to tell, as in 0.6.
    pub fn middle(mut self) -> Option<Token> {
        self.sort();
        let rows = self.rows();
        let Self { range, mut samples } = self;
        let mut rows_before = 0;
        // Where several tables have the same token, the rows before it are those before the first.
        samples.dedup_by(|later, first| {
            let is_same = later.token == first.token;
            first.rows += if is_same { later.rows } else { 0 };
            is_same
        });
        samples.retain(|sample| sample.token != range.end);
        if samples.len() < LEAST_SAMPLES {
            return None;
        }
        let last = samples.pop().map(|sample| sample.token);
        let middle = samples.into_iter().find(|sample| {
            let is_half = rows_before * 2 >= rows;
            rows_before += sample.rows;
            is_half
        });
        middle.map(|sample| sample.token).or(last)
    }

    /// In the order of the range: one that wraps begins with the tokens after its start.
    fn sort(&mut self) {
        let start = &self.range.start;
        self.samples.sort_unstable_by(|a, b| {
            let wrapped = |sample: &Sample| sample.token <= *start;
            wrapped(a).cmp(&wrapped(b)).then_with(|| a.token.cmp(&b.token))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    fn sampled(range: &TokenRange, samples: impl IntoIterator<Item = (u128, u64)>) -> RowSamples {
        let mut all = RowSamples::new(range.clone());
        for (token, rows) in samples {
            all.add(&Token::Random(token), rows);
        }
        all
    }

    fn split(samples: &[u128], range: &TokenRange, rows: u64, keys: i32) -> Vec<u128> {
        let samples = sampled(range, samples.iter().map(|&token| (token, rows)));
        let tokens = samples.splits(NonZero::new(keys).unwrap());
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

    #[test]
    fn half_of_the_rows_are_on_each_side_of_the_middle() {
        let middle = |samples: &[u128], range| {
            let samples = samples.iter().map(|&token| (token, 1));
            sampled(&range, samples).middle()
        };
        assert_eq!(middle(&[50, 12, 11, 13, 99, 14], range(10, 40)), Some(Token::Random(13)));
        // Over the end of the ring: first those above the start.
        assert_eq!(middle(&[1, 2, 91, 92, 50], range(90, 10)), Some(Token::Random(1)));
        assert_eq!(middle(&[11, 12, 12], range(10, 40)), None);
        // The end of the range is taken.
        assert_eq!(middle(&[11, 12, 40], range(10, 40)), None);
        assert_eq!(middle(&[11, 12, 13, 40, 40, 40], range(10, 40)), Some(Token::Random(13)));
    }

    #[test]
    fn large_samples_weigh_more() {
        let middle = |samples: &[(u128, u64)]| {
            sampled(&range(0, 99), samples.iter().copied()).middle().unwrap()
        };
        assert_eq!(middle(&[(1, 100), (2, 1), (3, 1), (4, 1)]), Token::Random(2));
        assert_eq!(middle(&[(1, 1), (2, 1), (3, 1), (4, 100)]), Token::Random(4));
        // The same row in memory and on disk.
        assert_eq!(middle(&[(1, 10), (2, 10), (3, 10), (1, 30)]), Token::Random(2));
    }

    proptest! {
        #[test]
        fn parts_cover_the_range_and_are_about_even(
            samples in vec((0..1000u128, 0..200u64), 0..60),
            (start, end) in (0..1000u128, 0..1000u128),
            keys in 1..2000i32,
        ) {
            let range = range(start, end);
            let given = sampled(&range, samples.iter().copied());
            let tokens = given.splits(NonZero::new(keys).unwrap());
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
