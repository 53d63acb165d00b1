//! What nodes ask each other when they compare what they have.

use super::leaves::Shape;
use crate::model::comparator::hex;
use crate::repair::calls::{Accepted, Call};
use crate::repair::compare::TreeHash;
use crate::repair::text_key::TextKey;
use crate::ring::{Partitioner, Token, TokenError, TokenRange};
use crate::storage::json::{key_text, parse_key};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The call for single rows, see [`RowsCommand`](crate::net::bodies::RowsCommand).
pub(in crate::repair) const ROWS: &str = "rows";

/// A range as two tokens in text form: the one before it, and its last.
pub(super) type TextRange = [String; 2];

pub(super) fn text_ranges(partitioner: Partitioner, ranges: &[TokenRange]) -> Vec<TextRange> {
    let text =
        |range: &TokenRange| [&range.start, &range.end].map(|token| token_text(partitioner, token));
    ranges.iter().map(text).collect()
}

pub(super) fn token_ranges(
    partitioner: Partitioner,
    ranges: &[TextRange],
) -> Result<Vec<TokenRange>, TokenError> {
    let range = |[start, end]: &TextRange| {
        let (start, end) = (parse_token(partitioner, start)?, parse_token(partitioner, end)?);
        Ok(TokenRange { start, end })
    };
    ranges.iter().map(range).collect()
}

/// A token as text. Where the token is the key of a row, which need not be text, it is written as
/// keys are: otherwise two tokens could become one, or stand in another order.
pub(super) fn token_text(partitioner: Partitioner, token: &Token) -> String {
    match token {
        Token::Ordered(key) => key_text(key.as_bytes()).into_owned(),
        token => partitioner.format_token(token),
    }
}

/// Reads what [`token_text`] gives.
pub(super) fn parse_token(partitioner: Partitioner, text: &str) -> Result<Token, TokenError> {
    if partitioner != Partitioner::OrderPreserving {
        return partitioner.parse_token(text);
    }
    let key = parse_key(text).ok_or_else(|| TokenError::NotHex(text.to_owned()))?;
    Ok(partitioner.token(&key))
}

/// Of what the hashes are wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::repair) struct Scope {
    pub(super) keyspace: String,
    pub(super) family: String,
    /// Deletions made at or before this second do not count.
    pub(super) gc_before: i32,
    pub(super) ranges: Vec<TextRange>,
}

/// Work out hashes of what you have on disk, memtables included, leaf by leaf.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::repair) struct Validate {
    /// Tells the requests of all nodes apart.
    pub(in crate::repair) session: u64,
    pub(super) scope: Scope,
    pub(super) shape: Shape,
}

impl Call for Validate {
    const NAME: &'static str = "validate";
    type Answer = Accepted;
}

/// Work out hashes of single rows, as they are now, until there are enough for one answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::repair) struct HashRows {
    pub(in crate::repair) session: u64,
    pub(super) scope: Scope,
    /// Behind which row; from the start of the first range on if there is none.
    pub(super) after: Option<TextKey>,
}

impl Call for HashRows {
    const NAME: &'static str = "row-hashes";
    type Answer = Accepted;
}

/// What has come of it?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::repair) struct Validated {
    pub(in crate::repair) session: u64,
    /// From which leaf on.
    pub(in crate::repair) from: usize,
}

impl Call for Validated {
    const NAME: &'static str = "validated";
    type Answer = Findings;
}

/// What has come of working out hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(in crate::repair) enum Findings {
    /// The node was started since, or never got the request, or has forgotten it.
    Unknown,
    Running {
        /// Rows that were read so far.
        rows: u64,
        /// About how many are to be read.
        #[serde(default)]
        of: u64,
    },
    /// Some of the leaves.
    Leaves {
        /// Rows that were read; none where the hashes were known.
        rows: u64,
        /// How many leaves there are.
        count: usize,
        /// In hexadecimal, in order, empty where there is no row.
        hashes: Vec<String>,
    },
    Rows {
        /// Keys with their hashes, in the order of their tokens.
        rows: Vec<(TextKey, String)>,
        /// About how many bytes each of them has.
        #[serde(default)]
        bytes: Vec<u64>,
        /// Behind which key there may be more; none if these were the last.
        next: Option<TextKey>,
    },
    Failed {
        why: String,
    },
}

/// Nobody needs these hashes any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::repair) struct Forget {
    pub(in crate::repair) session: u64,
}

impl Call for Forget {
    const NAME: &'static str = "forget";
    type Answer = Accepted;
}

/// Collect rows from others. [`HowFar`](crate::repair::calls::HowFar) tells how far that is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::repair) struct CollectRows {
    /// Tells the orders of all nodes apart.
    pub(in crate::repair) order: u64,
    pub(in crate::repair) keyspace: String,
    pub(in crate::repair) family: String,
    /// Keys in the order of their tokens, by the node that has the rows.
    pub(in crate::repair) sources: Vec<(IpAddr, Vec<TextKey>)>,
}

impl Call for CollectRows {
    const NAME: &'static str = "collect-rows";
    type Answer = Accepted;
}

/// A hash as text.
pub(super) fn hash_text(hash: &TreeHash) -> String {
    hex(hash.as_bytes())
}

/// A hash of its text; `None` if it is none.
pub(super) fn parse_hash(text: &str) -> Option<TreeHash> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? * 16 + digit(*low)?) as u8);
    TreeHash::new(&pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_go_through_text() {
        for hash in [TreeHash::default(), TreeHash::from([0xa7; 32])] {
            assert_eq!(parse_hash(&hash_text(&hash)), Some(hash));
        }
        for text in ["a", "zz", &"00".repeat(33)] {
            assert_eq!(parse_hash(text), None);
        }
    }

    #[test]
    fn tokens_go_through_text() {
        for partitioner in Partitioner::ALL {
            for key in [&b""[..], b"plain", "caf\u{e9}".as_bytes(), b"\xff", b"\xfe", b"\0hex:ff"] {
                let token = partitioner.token(key);
                let text = token_text(partitioner, &token);
                assert_eq!(parse_token(partitioner, &text), Ok(token));
            }
        }
        let ordered = Partitioner::OrderPreserving;
        assert_eq!(token_text(ordered, &ordered.token(b"plain")), "plain");
        parse_token(ordered, "\0hex:f").unwrap_err();
    }
}
